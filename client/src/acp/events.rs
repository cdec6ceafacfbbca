//! Events of the daemon, as the editor gets them: updates, questions, and the ends of its prompts.

use std::collections::HashMap;

use agent_client_protocol_schema::v1::{
    ConfigOptionUpdate, Cost, Error, ErrorCode, PromptResponse, SessionUpdate, StopReason, UsageUpdate,
};
use linger_protocol::event::{
    EventBody, Notice, NoticeCode, Notification, PermissionRequested, PermissionResolved, QuestionResolved,
    SessionChanged, TurnFinished,
};
use linger_protocol::id::{PromptId, SessionId};
use linger_protocol::message;
use linger_protocol::question::PendingQuestion;

use super::{Answer, Bridge, Session, blob, rpc_error, update, value};
use crate::error::Failure;

impl Bridge {
    /// Handles an event. What the daemon refuses meanwhile ends neither the bridge nor its other sessions: the user is told.
    pub(super) fn take(&mut self, notification: &Notification) -> Result<(), Failure> {
        match self.event(notification) {
            Err(failure) if !failure.interrupted && !failure.is_no_answer() => {
                self.update(&notification.session, update::note(&rpc_error(failure).message))
            }
            handled => handled,
        }
    }

    fn event(&mut self, notification: &Notification) -> Result<(), Failure> {
        let Notification { session, cursor, answered, event } = notification;
        let Some(opened) = self.sessions.get_mut(session) else { return Ok(()) };
        if let Some(seq) = event.seq {
            if seq <= opened.seq {
                return Ok(());
            }
            opened.seq = seq;
        }
        opened.cursor = Some(cursor.clone());
        let client = &mut self.client;
        let updates = opened.shown.updates(event, &opened.own, &mut |id| blob(client, id));
        for update in updates {
            self.update(session, update)?;
        }
        match &event.body {
            EventBody::TurnStarted { prompt } => {
                note_running(&mut self.sessions, session, Some(prompt.clone()));
                Ok(())
            }
            EventBody::CaughtUp {} => {
                let load = self.sessions.get_mut(session).and_then(|opened| opened.load.take());
                if let Some((id, response)) = load {
                    self.editor.answer(&id, Ok(response))?;
                }
                self.introduce(session)
            }
            EventBody::PermissionRequested(PermissionRequested { locations, changes, .. }) if !answered => {
                match PendingQuestion::of_event(session, event) {
                    Some(question) => self.put(session, &question, locations, changes),
                    None => Ok(()),
                }
            }
            EventBody::QuestionAsked { .. } if !answered => match PendingQuestion::of_event(session, event) {
                Some(question) => self.put(session, &question, &[], &[]),
                None => Ok(()),
            },
            EventBody::PermissionResolved(PermissionResolved { permission: question, .. })
            | EventBody::QuestionResolved(QuestionResolved { question, .. }) => {
                let open = self.questions.iter().position(|open| open.question == *question);
                open.map_or(Ok(()), |at| {
                    let request = self.questions.remove(at).request;
                    self.withdraw(request)
                })
            }
            EventBody::SessionChanged(changed) => self.changed(session, changed),
            EventBody::Notice(Notice { code: Some(NoticeCode::Removed), text, .. }) => {
                self.update(session, update::note(text))?;
                self.forget(session, value(&PromptResponse::new(StopReason::Cancelled)))
            }
            EventBody::Notice(Notice { code: Some(NoticeCode::KeyMissing), text, .. }) => {
                self.key_missing(session, text)
            }
            EventBody::PromptUnqueued { prompt, .. } => {
                self.settle(session, prompt, value(&PromptResponse::new(StopReason::Cancelled)))
            }
            EventBody::TurnFinished(TurnFinished {
                prompt,
                stop_reason,
                detail,
                hint,
                context_tokens,
                context_window,
                session_usage,
                ..
            }) => {
                note_running(&mut self.sessions, session, None);
                if let (Some(used), Some(size)) = (context_tokens, context_window) {
                    let cost = session_usage.as_ref().and_then(|usage| usage.cost_micros);
                    let cost = cost.map(|micros| Cost::new(micros as f64 / 1e6, "USD"));
                    self.update(session, SessionUpdate::UsageUpdate(UsageUpdate::new(*used, *size).cost(cost)))?;
                }
                let Some(prompt) = prompt else { return Ok(()) };
                self.settle(session, prompt, ended(*stop_reason, detail.as_deref(), hint.as_deref()))
            }
            _ => Ok(()),
        }
    }

    /// Handles a change of a session: of its options, or that it is in the bin.
    fn changed(&mut self, session: &SessionId, changed: &SessionChanged) -> Result<(), Failure> {
        // The answer to `session/load` has the options as they are now.
        let is_loading = self.sessions.get(session).is_some_and(|opened| opened.load.is_some());
        if changed.binned == Some(true) && !is_loading {
            let text = format!("the session is in the bin; `linger rm --restore {session}` brings it back");
            self.update(session, update::note(&text))?;
            return self.forget(session, value(&PromptResponse::new(StopReason::Cancelled)));
        }
        let SessionChanged { mode, model, effort, .. } = changed;
        if is_loading || mode.is_none() && model.is_none() && effort.is_none() {
            return Ok(());
        }
        let Ok(row) = self.row(session.as_str())? else { return Ok(()) };
        let options = self.options(&row)?;
        self.update(session, SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(options)))
    }

    /// Ends the turn of this editor's prompt, which waits for a key, and tells the editor how to supply one.
    fn key_missing(&mut self, session: &SessionId, text: &str) -> Result<(), Failure> {
        let Some(opened) = self.sessions.get(session).filter(|opened| opened.load.is_none()) else { return Ok(()) };
        let running = opened.running.clone().filter(|running| opened.open.iter().any(|(open, _)| open == running));
        let Some(prompt) = running else { return self.update(session, update::note(text)) };
        self.cancel(session)?;
        self.settle(session, &prompt, Err(Error::new(ErrorCode::AuthRequired.into(), text)))
    }
}

/// Notes whose turn runs in a session.
fn note_running(sessions: &mut HashMap<SessionId, Session>, session: &SessionId, running: Option<PromptId>) {
    if let Some(opened) = sessions.get_mut(session) {
        opened.running = running;
    }
}

/// How a turn ended, for the editor's prompt.
fn ended(reason: message::StopReason, detail: Option<&str>, hint: Option<&str>) -> Answer {
    let reason = match reason {
        message::StopReason::EndTurn => StopReason::EndTurn,
        message::StopReason::MaxTokens => StopReason::MaxTokens,
        message::StopReason::MaxSteps => StopReason::MaxTurnRequests,
        message::StopReason::Refusal => StopReason::Refusal,
        message::StopReason::Cancelled => StopReason::Cancelled,
        message::StopReason::Error | message::StopReason::Unknown => {
            let detail = detail.unwrap_or("the turn failed");
            let text = hint.map_or_else(|| detail.to_owned(), |hint| format!("{detail}; hint: {hint}"));
            return Err(Error::new(ErrorCode::InternalError.into(), text));
        }
    };
    value(&PromptResponse::new(reason))
}
