//! The answer of a session: a turn that is followed event by event, across restarts of the daemon.
//!
//! Text that a client has cannot be taken back. Where a step is repeated (after a crash, or after its provider failed), what it says
//! again is held back while it is the same; once it differs, the answer ends as failed.

use hyper::StatusCode;
use linger_protocol::error::Code;
use linger_protocol::event::{Delta, Event, EventBody, MessageAdded, Notification, TurnFinished};
use linger_protocol::id::{Cursor, PromptId, SessionId, TurnId};
use linger_protocol::message::{ContentBlock, Role, StopReason, Usage};
use linger_protocol::permission::Mode;
use linger_protocol::prompt::PromptContent;
use linger_protocol::session::{Attach, Cancel, Create, Created, Effort, Info, List, Prompt, Prompted};
use linger_protocol::unattended::Unattended;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::asked::{ApiRequest, Target};
use super::options::RequestOptions;
use super::piece::{AnswerPiece, AnswerStream, Finished, WAITING, lost};
use super::repeat::ShownText;
use crate::face::gateway::client::Client;
use crate::face::gateway::reply::Failure;
use crate::face::gateway::wire::Trouble;
use crate::sys::clock;
use crate::sys::task;

/// How long a question of a session waits that was made for a request, in milliseconds: a script waits for the answer.
const UNATTENDED: Unattended = Unattended::DenyAfter(30_000);

/// How often the daemon may be lost in one answer: a daemon that dies more often has another problem.
const MAX_LOSSES: u32 = 5;

/// A turn that is followed.
struct Turn {
    client: Client,
    session: SessionId,
    prompt: PromptId,
    /// Whether the session was made for the request.
    is_made: bool,
    has_events: bool,
    /// Whether text is shown as it comes: what has to fit a schema is shown once it does.
    has_text: bool,
    cursor: Option<Cursor>,
    turn: Option<TurnId>,
    /// The text of the model's messages, as far as the client has it.
    shown: ShownText,
    /// The model's last message.
    content: Vec<ContentBlock>,
}

/// Prompts a session, and follows the turn.
pub(super) async fn prompt(
    mut client: Client,
    options: &RequestOptions,
    target: Target,
    asked: ApiRequest,
) -> Result<AnswerStream, Failure> {
    let is_made = !matches!(target, Target::Bound(_));
    let content = asked.prompt(!is_made)?;
    let ignored = asked.ignored_in_session();
    let (session, model, cursor) = match target {
        Target::Bound(session) => {
            let list = List { matching: Some(session.to_string()), ..List::default() };
            let rows: Vec<Info> = client.wire.get("session/list", list).await?;
            let row =
                rows.into_iter().find(|row| row.session == session || row.name.as_deref() == Some(session.as_str()));
            let row = row.ok_or_else(|| Failure::not_found(format!("there is no session '{session}'")))?;
            (row.session, row.model, Some(row.cursor))
        }
        Target::Made { model, tools, agent } => {
            let created = create(&mut client, options, asked.effort, model, tools, agent).await?;
            (created.session, created.model, None)
        }
        Target::Plain => return Err(Failure::bad_request("a model alone has no session")),
    };
    let attach = Attach {
        session: session.clone(),
        after: cursor.clone(),
        deltas: None,
        person: false,
        env: Default::default(),
    };
    client.wire.ask("session/attach", attach).await?;
    let has_text = asked.schema.is_none();
    let prompt = Prompt {
        session: session.clone(),
        content: PromptContent::Blocks(content),
        when: None,
        schema: asked.schema,
        until: None,
        expand: false,
        awaited: true,
        env: Default::default(),
        key: Some(format!("gateway-{}", clock::random_word(KEY))),
    };
    let prompted: Prompted = client.wire.get("session/prompt", prompt).await?;
    let (sender, pieces) = mpsc::channel(WAITING);
    let turn = Turn {
        client,
        session: session.clone(),
        prompt: prompted.prompt,
        is_made,
        has_events: options.has_events,
        has_text,
        cursor,
        turn: None,
        shown: ShownText::default(),
        content: Vec::new(),
    };
    task::spawn(turn.follow(sender));
    Ok(AnswerStream { pieces, model, session: Some(session), ignored, is_native: false })
}

/// The characters of an idempotency key: 160 bits.
const KEY: usize = 32;

async fn create(
    client: &mut Client,
    options: &RequestOptions,
    effort: Effort,
    model: Option<String>,
    tools: Option<Vec<String>>,
    agent: Option<String>,
) -> Result<Created, Failure> {
    let cwd = options.required_directory(client)?;
    let mode = client.wire.welcome.pointer("/grant/mode").cloned();
    let mode: Option<Mode> = mode.and_then(|mode| serde_json::from_value(mode).ok());
    let (unattended, key) = (Some(UNATTENDED), Some(format!("gateway-{}", clock::random_word(KEY))));
    let create = Create {
        cwd,
        model,
        mode,
        tools,
        agent,
        effort,
        unattended,
        one_shot: true,
        login_env: true,
        key,
        ..Create::default()
    };
    match client.wire.get("session/create", &create).await {
        // The process at the other end is unknown: then it has the configuration's mode, or `ask`.
        Err(Trouble::Refused(error)) if error.code() == Some(Code::NotAllowed) && mode.is_some() => {
            Ok(client.wire.get("session/create", Create { mode: None, ..create }).await?)
        }
        created => Ok(created?),
    }
}

impl Turn {
    /// Reads until the turn has ended or the client has gone.
    async fn follow(mut self, sender: mpsc::Sender<AnswerPiece>) {
        let mut losses = 0;
        loop {
            let notice = tokio::select! {
                notice = self.client.wire.next() => notice,
                () = sender.closed() => return self.leave().await,
            };
            let Some(notice) = notice else {
                losses += 1;
                match self.come_back().await {
                    Ok(()) if losses <= MAX_LOSSES => continue,
                    // It may take longer to start than one attempt waits.
                    Err(failure) if losses < MAX_LOSSES && failure.status.is_server_error() => continue,
                    Ok(()) => drop(sender.send(AnswerPiece::Failed(lost())).await),
                    Err(failure) => drop(sender.send(AnswerPiece::Failed(failure)).await),
                }
                return;
            };
            for piece in self.pieces(&notice) {
                let is_last = matches!(piece, AnswerPiece::Finished(_) | AnswerPiece::Failed(_));
                if sender.send(piece).await.is_err() {
                    return self.leave().await;
                }
                if is_last {
                    return;
                }
            }
        }
    }

    /// The client has gone: a turn that is for it alone is cancelled.
    async fn leave(mut self) {
        if self.is_made {
            let cancel = Cancel { session: self.session, background: true, key: None };
            // It may just have ended.
            let _ended = self.client.wire.ask("session/cancel", cancel).await;
        }
    }

    /// Attaches to the next daemon, at the cursor.
    async fn come_back(&mut self) -> Result<(), Failure> {
        self.client.reconnect().await?;
        let (session, after) = (self.session.clone(), self.cursor.clone());
        let attach = Attach { session, after, deltas: None, person: false, env: Default::default() };
        self.client.wire.ask("session/attach", attach).await?;
        Ok(())
    }

    fn pieces(&mut self, notice: &RawValue) -> Vec<AnswerPiece> {
        let Ok(Notification { cursor, event, .. }) = serde_json::from_str(notice.get()) else { return Vec::new() };
        self.cursor = Some(cursor);
        let mut pieces = Vec::new();
        if self.has_events {
            pieces.push(AnswerPiece::Event(notice.to_owned()));
        }
        pieces.extend(self.piece(event));
        pieces
    }

    /// The piece of the answer that an event of the session gives.
    fn piece(&mut self, event: Event) -> Option<AnswerPiece> {
        let is_ours = self.turn.is_some() && event.turn == self.turn;
        match event.body {
            EventBody::TurnStarted { prompt } if prompt == self.prompt => {
                self.turn = event.turn;
                None
            }
            EventBody::PromptUnqueued { prompt, .. } if prompt == self.prompt => Some(AnswerPiece::Failed(cancelled())),
            EventBody::TextDelta(delta) if is_ours && self.has_text => self.text(delta),
            EventBody::ThinkingDelta(Delta { text, .. }) if is_ours => {
                (!self.shown.is_repeating()).then_some(AnswerPiece::Thinking(text))
            }
            EventBody::MessageSuperseded { message } => {
                self.shown.supersede(&message);
                None
            }
            EventBody::Message(MessageAdded { role: Role::Assistant, content, interrupted: false, .. }) if is_ours => {
                let text = linger_protocol::message::text_of(&content);
                self.content = content;
                if self.has_text && self.shown.is_repeating() {
                    return Some(AnswerPiece::Failed(self.differs()));
                }
                (self.has_text && !text.is_empty()).then_some(AnswerPiece::Message(text))
            }
            EventBody::TurnFinished(TurnFinished { stop_reason, detail, hint, answer, usage, .. }) if is_ours => {
                Some(self.end(stop_reason, detail, hint, answer, usage))
            }
            _ => None,
        }
    }

    /// The piece for a delta: nothing while it repeats what the client has.
    fn text(&mut self, delta: Delta) -> Option<AnswerPiece> {
        match self.shown.add(&delta.message, delta.block, &delta.text) {
            Ok(text) => (!text.is_empty()).then_some(AnswerPiece::Text(text)),
            Err(_) => Some(AnswerPiece::Failed(self.differs())),
        }
    }

    /// The text that the client has is no longer part of the answer.
    fn differs(&self) -> Failure {
        let text = "the step was interrupted, and the model now says something else than what was sent";
        let failure = Failure::new(StatusCode::BAD_GATEWAY, "superseded", text);
        failure.hint(format!("the turn goes on in the session {}: `linger log` shows it", self.session))
    }

    fn end(
        &mut self,
        reason: StopReason,
        detail: Option<String>,
        hint: Option<String>,
        answer: Option<Value>,
        usage: Usage,
    ) -> AnswerPiece {
        match reason {
            StopReason::Cancelled => AnswerPiece::Failed(cancelled()),
            StopReason::Error | StopReason::Unknown => {
                let text = detail.unwrap_or_else(|| "the turn failed".to_owned());
                let failure = Failure::new(StatusCode::BAD_GATEWAY, "turn_failed", text);
                AnswerPiece::Failed(Failure { hint, ..failure })
            }
            reason => {
                AnswerPiece::Finished(Finished { content: std::mem::take(&mut self.content), answer, reason, usage })
            }
        }
    }
}

fn cancelled() -> Failure {
    Failure::new(StatusCode::CONFLICT, "cancelled", "the turn was cancelled")
}
