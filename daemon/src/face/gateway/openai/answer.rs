//! The answer to a request: pieces of a turn in a session, or of a completion without one.
//!
//! A task of its own reads the daemon. When its receiver is dropped, as a client hangs up, it cancels what was begun for that
//! request alone; the turn of a bound session goes on.

use hyper::StatusCode;
use linger_protocol::completion::{self, CompletionEvent};
use linger_protocol::error::Code;
use linger_protocol::event::{Delta, Event, EventBody, MessageAdded, Notification, TurnFinished};
use linger_protocol::id::{Cursor, MessageId, PromptId, SessionId, TurnId};
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
use crate::face::gateway::client::Client;
use crate::face::gateway::reply::Failure;
use crate::face::gateway::wire::Trouble;
use crate::sys::clock;
use crate::sys::task;

/// How long a question of a session waits that was made for a request, in milliseconds: a script waits for the answer.
const UNATTENDED: Unattended = Unattended::DenyAfter(30_000);

/// How many pieces may wait until they are written.
const WAITING: usize = 16;

/// How often the daemon may be lost in one answer: a daemon that dies more often has another problem.
const MAX_LOSSES: u32 = 5;

/// A piece of an answer.
#[derive(Debug)]
pub(super) enum AnswerPiece {
    /// Text of a message.
    Text(String),
    /// Thinking of a message.
    Thinking(String),
    /// A message of the model's is whole; this is its text. Only from a session.
    Message(String),
    /// An event of the session, as it came.
    Event(Box<RawValue>),
    /// The end, which comes last.
    Finished(Finished),
    /// There is no more; comes last.
    Failed(Failure),
}

/// The end of an answer.
#[derive(Debug)]
pub(super) struct Finished {
    /// The last message of the model.
    pub(super) content: Vec<ContentBlock>,
    /// The answer that fits the schema, if there was one.
    pub(super) answer: Option<Value>,
    pub(super) reason: StopReason,
    pub(super) usage: Usage,
}

/// An answer that is under way.
pub(super) struct AnswerStream {
    pub(super) pieces: mpsc::Receiver<AnswerPiece>,
    /// The model that answers, or the name that was asked for.
    pub(super) model: String,
    pub(super) session: Option<SessionId>,
}

/// Begins to answer.
pub(super) async fn begin(client: Client, options: RequestOptions, asked: ApiRequest) -> Result<AnswerStream, Failure> {
    match asked.target(options.session.clone())? {
        Target::Plain => complete(client, asked).await,
        target => prompt(client, &options, target, asked).await,
    }
}

async fn complete(mut client: Client, asked: ApiRequest) -> Result<AnswerStream, Failure> {
    let start = completion::Start {
        model: Some(asked.model),
        system: asked.system.join("\n\n"),
        messages: asked.messages,
        tools: asked.tools,
        schema: asked.schema,
        max_tokens: asked.max_tokens,
        effort: asked.effort,
    };
    let started: completion::Started = client.wire.get("completion/start", start).await?;
    let (sender, pieces) = mpsc::channel(WAITING);
    task::spawn(async move {
        loop {
            let notice = tokio::select! {
                notice = client.wire.next() => notice,
                // The end of the connection ends the completion.
                () = sender.closed() => return,
            };
            let event = notice.and_then(|notice| serde_json::from_str::<completion::Notification>(notice.get()).ok());
            let piece = event.map_or_else(|| AnswerPiece::Failed(lost()), |notice| piece_of(notice.event));
            let is_last = matches!(piece, AnswerPiece::Finished(_) | AnswerPiece::Failed(_));
            if sender.send(piece).await.is_err() || is_last {
                return;
            }
        }
    });
    Ok(AnswerStream { pieces, model: started.model, session: None })
}

fn piece_of(event: CompletionEvent) -> AnswerPiece {
    match event {
        CompletionEvent::Text { text, .. } => AnswerPiece::Text(text),
        CompletionEvent::Thinking { text, .. } => AnswerPiece::Thinking(text),
        CompletionEvent::Completed { content, stop_reason, usage } => {
            AnswerPiece::Finished(Finished { content, answer: None, reason: stop_reason, usage })
        }
        CompletionEvent::Failed { message, hint, status } => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
            AnswerPiece::Failed(Failure::new(status, "provider_failed", message).hint(hint))
        }
    }
}

fn lost() -> Failure {
    Failure::new(StatusCode::BAD_GATEWAY, "lost", "the connection to the daemon was lost").hint("ask again")
}

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
    /// The block whose text came last.
    last: Option<(MessageId, u32)>,
    /// The model's last message.
    content: Vec<ContentBlock>,
}

async fn prompt(
    mut client: Client,
    options: &RequestOptions,
    target: Target,
    asked: ApiRequest,
) -> Result<AnswerStream, Failure> {
    let is_made = !matches!(target, Target::Bound(_));
    let content = asked.prompt(!is_made)?;
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
        last: None,
        content: Vec::new(),
    };
    task::spawn(turn.follow(sender));
    Ok(AnswerStream { pieces, model, session: Some(session) })
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
    let create =
        Create { cwd, model, mode, tools, agent, effort, unattended, one_shot: true, key, ..Create::default() };
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
            EventBody::TextDelta(delta) if is_ours && self.has_text => Some(AnswerPiece::Text(self.text(delta))),
            EventBody::ThinkingDelta(Delta { text, .. }) if is_ours => Some(AnswerPiece::Thinking(text)),
            EventBody::Message(MessageAdded { role: Role::Assistant, content, interrupted: false, .. }) if is_ours => {
                let text = linger_protocol::message::text_of(&content);
                self.content = content;
                (self.has_text && !text.is_empty()).then_some(AnswerPiece::Message(text))
            }
            EventBody::TurnFinished(TurnFinished { stop_reason, detail, hint, answer, usage, .. }) if is_ours => {
                Some(self.end(stop_reason, detail, hint, answer, usage))
            }
            _ => None,
        }
    }

    /// The text of a delta; a line is left blank between two messages, and two blocks of one.
    fn text(&mut self, delta: Delta) -> String {
        let block = (delta.message, delta.block);
        let is_other = self.last.as_ref().is_some_and(|last| *last != block);
        self.last = Some(block);
        if is_other { format!("\n\n{}", delta.text) } else { delta.text }
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
