//! `linger acp`: an agent of the Agent Client Protocol (v1) over standard input and output, for editors.
//!
//! It is a client like any other. A session lives in the daemon: an editor that is closed, or a bridge that is killed,
//! leaves it at work, and `session/load` shows another one the same. One loop over the process' one channel; requests to the
//! daemon are answered at once, so the loop waits for them. What waits for long has a place in [`Bridge`]: prompts for the end
//! of their turn, `session/load` for the end of the replay, questions for the editor's answer. Deliberately absent: the
//! editor's `fs/*` and `terminal/*`, as a session outlives its editor.

mod arguments;
mod options;
mod prompt;
mod question;
mod requests;
mod servers;
mod update;
mod wire;

use std::collections::HashMap;

use agent_client_protocol_schema::v1::{
    AuthenticateResponse, CancelNotification, CancelRequestNotification, ConfigOptionUpdate, Cost, Error, ErrorCode,
    PromptResponse, SessionNotification, SessionUpdate, StopReason, UsageUpdate,
};
use base64::Engine as _;
use linger_protocol::RpcError;
use linger_protocol::blob::Get;
use linger_protocol::daemon::Model;
use linger_protocol::error::Code;
use linger_protocol::event::{
    EventBody, FileChange, Location, Notice, NoticeCode, Notification, PermissionRequested, PermissionResolved,
    QuestionResolved, SessionChanged, TurnFinished,
};
use linger_protocol::id::{BlobId, Cursor, PromptId, SessionId};
use linger_protocol::mcp::SessionServer;
use linger_protocol::message;
use linger_protocol::method::{
    BlobGet, Method, QuestionAnswer, QuestionList, SessionAttach, SessionCancel, SessionSet, SessionUnqueue,
};
use linger_protocol::question::{self as pending, PendingQuestion};
use linger_protocol::session::{Attach, Cancel, Set, Unqueue};
use linger_protocol::transport::blocking::Incoming;
use serde::Serialize;
use serde_json::Value;

use crate::arguments::Acp;
use crate::connect::{Client, parse};
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::input::piped::{self, Taken};
use crate::input::{self, Event, InputLine};
use question::{EditorQuestion, OpenQuestion};
use update::Shown;
use wire::{Editor, Message};

/// The largest blob that goes to an editor, in bytes: a file of a diff, or an image.
const MAX_BLOB: usize = 2 << 20;

/// Sessions on a page of `session/list`.
const PAGE: u32 = 100;

/// The name of the way to give linger a key, which is a command in a terminal.
const KEY: &str = "key";

/// Speaks ACP until the editor closes standard input.
pub(crate) fn run(args: Acp) -> Result<Exit, Failure> {
    let client = Client::open()?;
    let sender = client.sender();
    input::signals(sender.clone(), false)?;
    let taken = piped::read(sender);
    let mut bridge = Bridge {
        client,
        editor: Editor::new(),
        args,
        forms: false,
        sessions: HashMap::new(),
        questions: Vec::new(),
        models: Vec::new(),
    };
    bridge.work(&taken)
}

/// A bridge between one editor and the daemon.
struct Bridge {
    client: Client,
    editor: Editor,
    args: Acp,
    /// Whether the editor takes forms.
    forms: bool,
    /// The sessions that the editor has open.
    sessions: HashMap<SessionId, Session>,
    /// The questions that the editor was asked.
    questions: Vec<OpenQuestion>,
    /// The models that can be chosen, as they were when a session was opened.
    models: Vec<Model>,
}

/// A session that the editor has open.
#[derive(Debug, Default)]
struct Session {
    cursor: Option<Cursor>,
    /// The last durable event that was seen.
    seq: u64,
    shown: Shown,
    /// The prompts of this editor, which shows them by itself.
    own: Vec<PromptId>,
    /// The prompts whose turn has not ended, with the editor's requests.
    open: Vec<(PromptId, Value)>,
    /// The prompt of the turn that runs.
    running: Option<PromptId>,
    /// The request that is answered when the replay is over.
    load: Option<(Value, Value)>,
    /// The MCP servers that the editor brought, with their values: another daemon needs those again.
    servers: Vec<SessionServer>,
}

type Answer = Result<Value, Error>;

impl Bridge {
    fn work(&mut self, taken: &Taken) -> Result<Exit, Failure> {
        loop {
            let Some(event) = self.client.next_event(None) else { continue };
            match event {
                Event::Line(InputLine::Text { text, .. }) => {
                    taken.one();
                    self.line(&text)?;
                }
                Event::Line(InputLine::Garbled) => {
                    return Err(Failure::usage("a line on standard input is too long"));
                }
                Event::Line(InputLine::End) | Event::Signal(_) => return Ok(Exit::GOOD),
                Event::Incoming(_, Incoming::Event(notification, _)) => self.event(&notification)?,
                Event::Lost(_) => self.reattach()?,
                Event::Refused(_, failure) => return Err(failure),
                Event::Incoming(_, Incoming::Response(..) | Incoming::Any(..))
                | Event::Line(InputLine::Picked(_) | InputLine::Ran(_) | InputLine::NotRun)
                | Event::Key(_)
                | Event::Hotkey(_) => {}
            }
        }
    }

    /// Connects again after a loss, and reads each session on from where it was.
    fn reattach(&mut self) -> Result<(), Failure> {
        if !self.client.reconnect_soon()? {
            self.client.reconnect_attached()?;
        }
        let sessions: Vec<_> = self.sessions.iter().map(|(id, session)| (id.clone(), session.cursor.clone())).collect();
        for (session, after) in sessions {
            let servers = self.sessions.get(&session).map(|opened| opened.servers.clone()).unwrap_or_default();
            let brought = self.bring_servers(&session, servers)?;
            if let Err(error) = brought.and(self.attach(&session, after)?) {
                let gone = self.sessions.remove(&session).unwrap_or_default();
                self.update(&session, update::note(&format!("session {session}: {}", error.message)))?;
                for id in gone.open.into_iter().map(|(_, id)| id).chain(gone.load.map(|(id, _)| id)) {
                    self.editor.answer(&id, Err(error.clone()))?;
                }
                self.forget_questions(&session)?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<(), Failure> {
        if line.trim().is_empty() {
            return Ok(());
        }
        let message = match Message::read(line) {
            Ok(message) => message,
            Err(error) => return self.editor.answer(&Value::Null, Err(error)),
        };
        match (&message.method, &message.id) {
            (Some(method), Some(id)) => {
                let method = method.clone();
                match self.request(&method, id, &message) {
                    Ok(Some(answer)) => self.editor.answer(id, answer),
                    Ok(None) => Ok(()),
                    // The editor learns why, and may try again.
                    Err(failure) if !failure.interrupted => self.editor.answer(id, Err(rpc_error(failure))),
                    Err(failure) => Err(failure),
                }
            }
            (Some(method), None) => self.notified(&method.clone(), &message),
            (None, Some(id)) => self.answered(id, message.result.clone()),
            (None, None) => Ok(()),
        }
    }

    /// The answer to a request; `None` if it comes later.
    fn request(&mut self, method: &str, id: &Value, message: &Message) -> Result<Option<Answer>, Failure> {
        macro_rules! params {
            () => {
                match message.params() {
                    Ok(params) => params,
                    Err(error) => return Ok(Some(Err(error))),
                }
            };
        }
        Ok(Some(match method {
            "initialize" => Ok(self.initialize(&params!())),
            "authenticate" => value(&AuthenticateResponse::default()),
            "session/new" => self.new_session(params!())?,
            "session/load" => return self.load(id, params!()),
            "session/resume" => self.resume(params!())?,
            "session/list" => self.list(params!())?,
            "session/close" => self.close(params!())?,
            "session/delete" => self.delete(params!())?,
            "session/prompt" => return self.prompt(id, params!()),
            "session/set_mode" => self.set_mode(params!())?,
            "session/set_config_option" => self.set_option(params!())?,
            _ => Err(Error::new(ErrorCode::MethodNotFound.into(), format!("unknown method {method}"))),
        }))
    }

    fn notified(&mut self, method: &str, message: &Message) -> Result<(), Failure> {
        if method != "session/cancel" {
            return Ok(());
        }
        let Ok(CancelNotification { session_id, .. }) = message.params() else { return Ok(()) };
        let session = SessionId(session_id.to_string());
        self.cancel(&session)
    }

    /// Cancels this editor's own work in a session, or else the running turn. A session without one is not an error.
    fn cancel(&mut self, session: &SessionId) -> Result<(), Failure> {
        let Some(opened) = self.sessions.get(session) else { return Ok(()) };
        let own: Vec<PromptId> = opened.open.iter().map(|(prompt, _)| prompt.clone()).collect();
        let running = opened.running.clone();
        for prompt in own.iter().filter(|prompt| running.as_ref() != Some(prompt)) {
            let unqueue = Unqueue { session: session.clone(), prompt: Some(prompt.clone()), key: Some(key()?) };
            if self.client.call_raw(&SessionUnqueue(unqueue))?.is_ok() {
                self.settle(session, prompt, value(&PromptResponse::new(StopReason::Cancelled)))?;
            }
        }
        if !own.is_empty() && running.is_some_and(|running| !own.contains(&running)) {
            return Ok(());
        }
        let cancel = Cancel { session: session.clone(), background: false, key: Some(key()?) };
        let _idle = self.client.call_raw(&SessionCancel(cancel))?;
        Ok(())
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
                load.map_or(Ok(()), |(id, response)| self.editor.answer(&id, Ok(response)))
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
            EventBody::SessionChanged(SessionChanged { model, effort, .. }) if model.is_some() || effort.is_some() => {
                let row = self.client.session_info(session)?;
                let options = self.options(&row)?;
                self.update(session, SessionUpdate::ConfigOptionUpdate(ConfigOptionUpdate::new(options)))
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

    /// Ends the turn of this editor's prompt, which waits for a key, and tells the editor how to supply one.
    fn key_missing(&mut self, session: &SessionId, text: &str) -> Result<(), Failure> {
        let Some(opened) = self.sessions.get(session).filter(|opened| opened.load.is_none()) else { return Ok(()) };
        let running = opened.running.clone().filter(|running| opened.open.iter().any(|(open, _)| open == running));
        let Some(prompt) = running else { return self.update(session, update::note(text)) };
        self.cancel(session)?;
        self.settle(session, &prompt, Err(Error::new(ErrorCode::AuthRequired.into(), text)))
    }

    /// Answers the editor's request for a prompt, if it is one.
    fn settle(&mut self, session: &SessionId, prompt: &PromptId, answer: Answer) -> Result<(), Failure> {
        let Some(opened) = self.sessions.get_mut(session) else { return Ok(()) };
        let Some(at) = opened.open.iter().position(|(open, _)| open == prompt) else { return Ok(()) };
        let (_, id) = opened.open.remove(at);
        self.editor.answer(&id, answer)
    }

    /// Asks the editor a question, once.
    fn put(
        &mut self,
        session: &SessionId,
        question: &PendingQuestion,
        at: &[Location],
        changes: &[FileChange],
    ) -> Result<(), Failure> {
        if self.questions.iter().any(|open| open.question == question.question) {
            return Ok(());
        }
        let client = &mut self.client;
        let request = match question::ask(session, question, at, changes, self.forms, &mut |id| blob(client, id)) {
            EditorQuestion::Permission(request) => self.editor.request("session/request_permission", &request)?,
            EditorQuestion::Form(request) => self.editor.request("elicitation/create", &request)?,
            EditorQuestion::Elsewhere(update) => return self.update(session, *update),
        };
        self.questions.push(OpenQuestion::new(request, session.clone(), question));
        Ok(())
    }

    /// Handles the editor's answer to our request.
    fn answered(&mut self, id: &Value, result: Option<Value>) -> Result<(), Failure> {
        let Some(at) = self.questions.iter().position(|open| id.as_u64() == Some(open.request)) else { return Ok(()) };
        let open = self.questions.remove(at);
        let (session, question) = (open.session.clone(), open.question.clone());
        let text = match open.answer(result, key()?) {
            None => format!("the question is still open; answer it with `linger answer {question}`"),
            // Another client may have been first, whose answer then counts: its event follows.
            Some(answer) => match self.client.call_raw(&QuestionAnswer(answer))? {
                Ok(_) => return Ok(()),
                Err(error) if error.code() == Some(Code::AlreadyAnswered) => return Ok(()),
                Err(error) => error.message,
            },
        };
        // A question that was withdrawn with its turn is answered `cancelled` by the editor.
        match self.client.call(&QuestionList(pending::List { session: Some(session.clone()), after: None }))? {
            rows if rows.iter().any(|row| row.question == question) => self.update(&session, update::note(&text)),
            _ => Ok(()),
        }
    }

    fn forget_questions(&mut self, session: &SessionId) -> Result<(), Failure> {
        let (gone, kept) = std::mem::take(&mut self.questions).into_iter().partition(|open| open.session == *session);
        self.questions = kept;
        let gone: Vec<OpenQuestion> = gone;
        gone.into_iter().try_for_each(|open| self.withdraw(open.request))
    }

    /// Takes a question back that was answered elsewhere.
    fn withdraw(&self, request: u64) -> Result<(), Failure> {
        let id = i64::try_from(request).unwrap_or_default();
        self.editor.notify("$/cancel_request", &CancelRequestNotification::new(id))
    }

    fn update(&self, session: &SessionId, update: SessionUpdate) -> Result<(), Failure> {
        self.editor.notify("session/update", &SessionNotification::new(session.to_string(), update))
    }

    /// Gives a session the editor's MCP servers; an editor without any leaves those that the session has.
    fn bring_servers(
        &mut self,
        session: &SessionId,
        servers: Vec<SessionServer>,
    ) -> Result<Result<(), Error>, Failure> {
        if servers.is_empty() {
            return Ok(Ok(()));
        }
        let (session, key) = (session.clone(), Some(key()?));
        let set = Set { session, mcp_servers: Some(servers), key, ..Set::default() };
        Ok(self.ask(&SessionSet(set))?.map(|_| ()))
    }

    fn attach(&mut self, session: &SessionId, after: Option<Cursor>) -> Result<Result<(), Error>, Failure> {
        let env = self.client.secret_env();
        let attach = Attach { session: session.clone(), after, deltas: None, person: true, env };
        Ok(self.ask(&SessionAttach(attach))?.map(|_| ()))
    }

    /// The result of a method, or its refusal as an error for the editor.
    fn ask<M: Method>(&mut self, request: &M) -> Result<Result<M::Result, Error>, Failure> {
        Ok(match self.client.call_raw(request)? {
            Ok(raw) => Ok(parse::<M>(&raw)?),
            Err(error) => Err(refused(&error)),
        })
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

/// A refusal of the daemon.
fn refused(error: &RpcError) -> Error {
    let code = match error.code() {
        Some(Code::KeyMissing | Code::NoModel) => ErrorCode::AuthRequired,
        Some(Code::UnknownSession) => ErrorCode::ResourceNotFound,
        Some(
            Code::BadPrompt
            | Code::NoWorkspace
            | Code::UnknownProvider
            | Code::BadName
            | Code::BadValue
            | Code::TooMuch,
        ) => ErrorCode::InvalidParams,
        _ => ErrorCode::InternalError,
    };
    let text =
        error.get_hint().map_or_else(|| error.message.to_string(), |hint| format!("{}; hint: {hint}", error.message));
    Error::new(code.into(), text)
}

/// A failure of this bridge.
fn rpc_error(failure: Failure) -> Error {
    let text = failure.message.unwrap_or_default();
    let text = failure.hint.map_or_else(|| text.clone(), |hint| format!("{text}; hint: {hint}"));
    Error::new(ErrorCode::InternalError.into(), text)
}

fn value(response: &impl Serialize) -> Answer {
    serde_json::to_value(response).map_err(|error| Error::new(ErrorCode::InternalError.into(), error.to_string()))
}

/// The bytes of a blob, unless they are more than [`MAX_BLOB`].
fn blob(client: &mut Client, blob: &BlobId) -> Option<Vec<u8>> {
    let (mut bytes, mut offset) = (Vec::new(), Some(0));
    while offset.is_some() {
        let piece = client.call(&BlobGet(Get { blob: blob.clone(), offset, length: None })).ok()?;
        bytes.extend(base64::engine::general_purpose::STANDARD.decode(piece.data).ok()?);
        offset = piece.next;
        if bytes.len() > MAX_BLOB {
            return None;
        }
    }
    Some(bytes)
}
