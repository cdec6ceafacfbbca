//! The turn: the agent loop. A child of its session's actor, to which it talks only in [`TurnMessage`]s.
//!
//! It begins by reading the log, so that a turn that is taken up after a crash or an interrupt runs through the same lines as
//! one that is new: open calls first, then step after step until an answer has no tool call. Dropping it at any point is how a
//! turn is stopped. It never touches the store but to read its context, and never waits for a client but in a permission.

mod key;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use linger_protocol::event::{EventBody, Instruction, Level, NoticeCode};
use linger_protocol::id::{BlobId, CallId, MessageId, SessionId};
use linger_protocol::message::{ContentBlock, ImageSource, Role, StopReason};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::actor::{Ending, MEND, Next, TurnMessage};
use super::log::{Piece, PieceKind};
use super::state::State;
use super::{Draft, calls, context, instructions, recovery};
use crate::clock;
use crate::daemon::Daemon;
use crate::fault;
use crate::provider::retry::{self, Decision};
use crate::provider::{
    Encoding, Failure, FailureClass, Images, Message, Request, Response, Stop, Stream, StreamEvent, ToolSpec,
};
use crate::secret::Secret;
use crate::store::StoreError;
use crate::tool::Workspace;

/// Appends of deltas that may wait for their commit before the turn waits too: it keeps the store busy and memory small.
const AHEAD: usize = 4;

/// What to do when a turn has come to one of its limits.
const GO_ON: &str = "prompt again to go on";

/// Why a turn ends whose last answer is not whole.
const CUT: &str = "the answer was cut at the model's token limit";

/// The turn is over, for a reason that its actor knows: it ended it, or the store failed.
pub struct Over;

/// Where a turn talks to its actor.
#[derive(Clone)]
pub struct Emitter(mpsc::UnboundedSender<TurnMessage>);

/// One turn.
pub struct Turn {
    session: SessionId,
    daemon: Arc<Daemon>,
    workspace: Arc<Workspace>,
    emit: Emitter,
    /// `provider/model`; may change between steps.
    model: String,
    steps: u32,
    /// How many messages and calls the session has: the source of the next ids.
    messages: u64,
    calls: u64,
    /// The last answer was cut at the token limit.
    cut: bool,
    instructions: Vec<Instruction>,
    created_at: u64,
}

/// Why a history is not there.
enum Unread {
    /// The storage failed, and may not the next time.
    ForNow(StoreError),
    /// What is stored is no history.
    Broken(String),
}

impl From<StoreError> for Unread {
    fn from(error: StoreError) -> Self {
        if error.is_damage() { Self::Broken(error.to_string()) } else { Self::ForNow(error) }
    }
}

/// How a step ended.
enum Step {
    Answer(Vec<ContentBlock>, Stop),
    Failed(Failure),
}

impl Turn {
    /// The turn of a session in this state.
    pub fn new(
        session: SessionId,
        daemon: Arc<Daemon>,
        workspace: Arc<Workspace>,
        state: &State,
        messages: mpsc::UnboundedSender<TurnMessage>,
    ) -> Self {
        Self {
            session,
            daemon,
            workspace,
            emit: Emitter(messages),
            model: state.model.clone(),
            steps: state.turn.as_ref().map_or(0, |turn| turn.steps),
            messages: state.counts.messages,
            calls: state.counts.calls,
            cut: state.turn.as_ref().is_some_and(|turn| turn.cut),
            instructions: state.instructions.clone(),
            created_at: state.created_at,
        }
    }

    /// Runs until the turn ends; the actor learns that by message.
    pub async fn run(mut self) {
        // Over is not an error: the actor knows.
        let Err(Over) = self.drive().await else { return };
    }

    async fn drive(&mut self) -> Result<(), Over> {
        let instructions = self.read_instructions();
        // What started this turn must be in the log before it is read.
        self.emit.committed().await?;
        let context::Context { mut messages, results } = match self.history_when_readable().await? {
            Ok(context) => context,
            Err(error) => {
                let detail = format!("the history cannot be read: {error}");
                return self.end(StopReason::Error, &detail, "`linger doctor` says more").await.map(drop);
            }
        };
        fault::point("turn.context");
        let system = self.system(instructions.await.unwrap_or_default())?;
        let tools = self.daemon.tool_specs();
        let mut encoding = Encoding::default();
        let open = context::open_calls(&messages);
        if !open.is_empty() {
            messages.push(self.run_calls(open, results, self.cut).await?);
        }
        if messages.last().is_some_and(|last| last.role == Role::Assistant) {
            // It was cut between its answer and its end: only the end is missing.
            let next = match self.cut {
                true => self.end(StopReason::MaxTokens, CUT, GO_ON).await?,
                false => self.end(StopReason::EndTurn, "", "").await?,
            };
            if next.prompts.is_empty() {
                return Ok(());
            }
            self.take(next, &mut messages);
        }
        loop {
            self.take(self.emit.boundary(None).await?, &mut messages);
            let limit = self.daemon.max_steps();
            if self.steps >= limit {
                let detail = format!("the turn took {} steps, max_steps is {limit}", self.steps);
                return self.end(StopReason::MaxSteps, &detail, GO_ON).await.map(drop);
            }
            let (content, stop) = match self.step(&system, &tools, &messages, &mut encoding).await? {
                Step::Answer(content, stop) => (content, stop),
                Step::Failed(failure) => {
                    let hint = failure.class.hint();
                    return self.end(StopReason::Error, &failure.message, hint).await.map(drop);
                }
            };
            self.steps += 1;
            let message = Message { role: Role::Assistant, content, origin: Some(self.model.clone()) };
            messages.push(message);
            let calls = context::open_calls(&messages);
            if calls.is_empty() {
                let next = match stop {
                    Stop::End => self.end(StopReason::EndTurn, "", "").await?,
                    Stop::MaxTokens => self.end(StopReason::MaxTokens, CUT, GO_ON).await?,
                    Stop::Refusal => self.end(StopReason::Refusal, "the model refused", "").await?,
                };
                if next.prompts.is_empty() {
                    return Ok(());
                }
                self.take(next, &mut messages);
            } else {
                messages.push(self.run_calls(calls, HashMap::new(), stop == Stop::MaxTokens).await?);
            }
        }
    }

    /// What the log says. While it cannot be read, but may be in a moment, the turn waits, visibly.
    async fn history_when_readable(&self) -> Result<Result<context::Context, String>, Over> {
        let mut pause = MEND[0];
        loop {
            let error = match self.history().await {
                Ok(context) => return Ok(Ok(context)),
                Err(Unread::Broken(error)) => return Ok(Err(error)),
                Err(Unread::ForNow(error)) => error,
            };
            tracing::warn!(target: "turn", session = %self.session, %error, "the history cannot be read for now");
            if pause == MEND[0] {
                let text = format!("the history cannot be read: {error}; trying again");
                self.emit.send(vec![notice(Level::Warning, NoticeCode::Retry, text)], false, None)?;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MEND[1]);
        }
    }

    /// What the log says, read a page at a time: other sessions' queries go between.
    async fn history(&self) -> Result<context::Context, Unread> {
        let mut builder = context::Builder::default();
        let mut after = 0;
        loop {
            let read = self.daemon.store.events_of(self.session.clone(), context::KINDS, after, context::PAGE);
            let (page, more) = read.await?;
            after = page.last().map_or(after, |last| last.seq);
            let parse = move || builder.add(&page).map(|()| builder);
            // A long history is parsed elsewhere: one thread runs all sessions. A short one is not worth the way there.
            let parsed = if more { tokio::task::spawn_blocking(parse).await } else { Ok(parse()) };
            let parsed = parsed.map_err(|error| Unread::Broken(error.to_string()))?;
            builder = parsed.map_err(|error| Unread::Broken(error.to_string()))?;
            if !more {
                return Ok(builder.finish());
            }
        }
    }

    /// Prompts that came back from the actor are messages already.
    fn take(&mut self, next: Next, messages: &mut Vec<Message>) {
        self.messages += next.prompts.len() as u64;
        self.model = next.model;
        let prompts = next.prompts.into_iter().map(|content| Message { role: Role::User, content, origin: None });
        messages.extend(prompts);
    }

    async fn end(&self, reason: StopReason, detail: &str, hint: &str) -> Result<Next, Over> {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        self.emit.boundary(Some(Ending { reason, detail: some(detail), hint: some(hint) })).await
    }

    /// Begins to read the instruction files, beside whatever else a turn starts with.
    fn read_instructions(&self) -> JoinHandle<Vec<(Instruction, String)>> {
        let (config, workspace) = (self.daemon.places.config.clone(), self.workspace.clone());
        tokio::task::spawn_blocking(move || instructions::load(Some(&config), &workspace.root, &workspace.cwd))
    }

    /// The system prompt. Instruction files are read at the start of each turn; an event says when they have changed.
    fn system(&mut self, loaded: Vec<(Instruction, String)>) -> Result<String, Over> {
        let read: Vec<_> = loaded.iter().map(|(instruction, _)| instruction.clone()).collect();
        if read != self.instructions {
            let changed =
                EventBody::SessionChanged { model: None, mode: None, name: None, instructions: Some(read.clone()) };
            self.emit.send(vec![changed], false, None)?;
            self.instructions = read;
        }
        let day = self.created_at / 86_400_000;
        Ok(format!(
            "{}\nDirectory: {}\nPlatform: {}\nSession started: {}\n{}",
            include_str!("system.md"),
            self.workspace.cwd.display(),
            std::env::consts::OS,
            clock::date(day),
            instructions::render(&loaded),
        ))
    }

    /// One request until it is answered, or has failed for good.
    async fn step(
        &mut self,
        system: &str,
        tools: &[ToolSpec],
        messages: &[Message],
        encoding: &mut Encoding,
    ) -> Result<Step, Over> {
        let began = Instant::now();
        let mut attempt = 1;
        let mut refused: Option<(Secret, Failure)> = None;
        loop {
            let (resolved, provider) = match self.resolve().await? {
                Ok(resolved) => resolved,
                Err(failure) => return Ok(Step::Failed(failure)),
            };
            if let Some((key, failure)) = &refused
                && provider.key() == Some(key)
            {
                return Ok(Step::Failed(failure.clone()));
            }
            let images = self.images(messages.get(provider.encoded(&resolved.origin, encoding)..)).await;
            let request = Request {
                model: &resolved.model,
                origin: &resolved.origin,
                system,
                tools,
                messages,
                max_tokens: resolved.max_tokens,
                cache_key: self.session.as_str(),
                images: &images,
            };
            fault::point("request.before_send");
            tracing::info!(target: "request", session = %self.session, model = %self.model, messages = messages.len(), attempt, "sent");
            let id = MessageId(format!("m{}", self.messages + 1));
            let mut shown = Shown { id: id.clone(), ..Shown::default() };
            let stream = provider.start(&request, encoding);
            drop(images);
            let failure = match self.attempt(stream, &mut shown).await? {
                Ok(response) => {
                    tracing::info!(target: "response", session = %self.session, id = %id, ms = began.elapsed().as_millis() as u64,
                        input = response.usage.input_tokens, output = response.usage.output_tokens, "done");
                    return self.answered(id, response).map(|(content, stop)| Step::Answer(content, stop));
                }
                Err(failure) => failure,
            };
            tracing::warn!(target: "response", session = %self.session, class = ?failure.class, why = failure.message, attempt, "failed");
            let interrupted = !shown.pieces.is_empty();
            if interrupted {
                self.messages += 1;
                self.emit.send(vec![self.message(id.clone(), shown.blocks(), true, None, false)], false, None)?;
            }
            if failure.class == FailureClass::Auth
                && let Some(key) = provider.key()
                && self.daemon.key_sources.refuse(&resolved.key, key)
                && refused.is_none()
            {
                // A key that expires is got anew, once.
                let failure = Failure { message: format!("{}: {}", resolved.provider, failure.message), ..failure };
                let text = format!("{}; asking for the key again", failure.message);
                self.emit.send(vec![notice(Level::Warning, NoticeCode::Retry, text)], false, None)?;
                refused = Some((key.clone(), failure));
                attempt += 1;
                continue;
            }
            match retry::decide(&failure, attempt, began.elapsed(), clock::random_fraction()) {
                Decision::GiveUp { note } => {
                    let message =
                        note.map_or_else(|| failure.message.clone(), |note| format!("{}; {note}", failure.message));
                    let message = format!("{}: {message}", resolved.provider);
                    return Ok(Step::Failed(Failure { message, ..failure }));
                }
                Decision::Again { after } => {
                    attempt += 1;
                    let (message, of) = (&failure.message, retry::attempts(failure.class));
                    let text = format!("{message}; trying again in {:.1} s ({attempt} of {of})", after.as_secs_f64());
                    self.emit.send(vec![notice(Level::Warning, NoticeCode::Retry, text)], false, None)?;
                    tokio::time::sleep(after).await;
                }
            }
            if interrupted {
                self.emit.send(vec![EventBody::MessageSuperseded { message: id }], false, None)?;
            }
        }
    }

    /// The images that these messages name, read for one request and then let go.
    async fn images(&self, messages: Option<&[Message]>) -> Images {
        let named = |block: &ContentBlock| -> Vec<BlobId> {
            match block {
                ContentBlock::Image { source: ImageSource::Blob { blob, .. }, .. } => vec![blob.clone()],
                ContentBlock::ToolResult { content, .. } => {
                    content.iter().filter_map(ContentBlock::blob).cloned().collect()
                }
                _ => Vec::new(),
            }
        };
        let blocks = messages.unwrap_or_default().iter().flat_map(|message| &message.content);
        let ids: BTreeSet<BlobId> = blocks.flat_map(named).collect();
        if ids.is_empty() {
            return Images::new();
        }
        let (blobs, session) = (self.daemon.store.blobs.clone(), self.session.clone());
        let load = move |id: BlobId| match blobs.load(&id) {
            Ok(data) => Some((id, data)),
            Err(error) => {
                tracing::error!(target: "request", %session, blob = %id, %error, "an image cannot be read");
                None
            }
        };
        tokio::task::spawn_blocking(move || ids.into_iter().filter_map(load).collect()).await.unwrap_or_default()
    }

    /// One attempt; what is shown of it goes into `shown`.
    async fn attempt(&self, mut stream: Stream, shown: &mut Shown) -> Result<Result<Response, Failure>, Over> {
        let mut commits = Commits::default();
        loop {
            let mut pieces = Vec::new();
            let mut end = None;
            for event in stream.next().await {
                match event {
                    StreamEvent::Text { block, text } => pieces.push(shown.push(block, PieceKind::Text, text)),
                    StreamEvent::Thinking { block, text } => pieces.push(shown.push(block, PieceKind::Thinking, text)),
                    StreamEvent::Done(response) => end = Some(Ok(response)),
                    StreamEvent::Failed(failure) => end = Some(Err(failure)),
                }
            }
            fault::point("request.first_piece");
            if !pieces.is_empty() {
                commits.add(self.emit.pieces(pieces)?).await?;
            }
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    /// Writes the answer down; its calls get the daemon's ids.
    fn answered(&mut self, id: MessageId, response: Response) -> Result<(Vec<ContentBlock>, Stop), Over> {
        fault::point("response.done");
        let Response { mut content, stop, usage } = response;
        for block in &mut content {
            if let ContentBlock::ToolUse { call_id, .. } = block {
                self.calls += 1;
                *call_id = CallId(format!("c{}", self.calls));
            }
        }
        self.messages += 1;
        let message = self.message(id, content.clone(), false, Some(usage), stop == Stop::MaxTokens);
        self.emit.send(vec![message], false, None)?;
        Ok((content, stop))
    }

    fn message(
        &self,
        message: MessageId,
        content: Vec<ContentBlock>,
        interrupted: bool,
        usage: Option<linger_protocol::message::Usage>,
        cut: bool,
    ) -> EventBody {
        let (role, model) = (Role::Assistant, Some(self.model.clone()));
        EventBody::Message { message, role, content, interrupted, prompt: None, model, usage, cut }
    }

    /// Runs the calls of a step, and gives the message with all their results, in the order of the calls.
    async fn run_calls(
        &mut self,
        calls: Vec<ContentBlock>,
        results: HashMap<CallId, ContentBlock>,
        cut: bool,
    ) -> Result<Message, Over> {
        let runner = calls::Runner {
            daemon: self.daemon.clone(),
            workspace: self.workspace.clone(),
            emit: self.emit.clone(),
            session: self.session.clone(),
            size: Arc::default(),
        };
        let content = runner.run(calls, results, cut).await?;
        self.messages += 1;
        let message = MessageId(format!("m{}", self.messages));
        let (done, committed) = oneshot::channel();
        let body = EventBody::Message {
            message,
            role: Role::User,
            content: content.clone(),
            interrupted: false,
            prompt: None,
            model: None,
            usage: None,
            cut: false,
        };
        self.emit.send(vec![body], false, Some(done))?;
        // The next request is not paid for unless this step is written down.
        settled(committed).await?;
        Ok(Message { role: Role::User, content, origin: None })
    }
}

impl Emitter {
    /// Emits events in order.
    pub fn send(
        &self,
        bodies: Vec<EventBody>,
        sync: bool,
        done: Option<oneshot::Sender<Result<(), StoreError>>>,
    ) -> Result<(), Over> {
        self.drafts(bodies.into_iter().map(Draft::new).collect(), sync, done)
    }

    /// Emits events in order, with the blobs that they name.
    pub fn drafts(
        &self,
        drafts: Vec<Draft>,
        sync: bool,
        done: Option<oneshot::Sender<Result<(), StoreError>>>,
    ) -> Result<(), Over> {
        self.tell(TurnMessage::Emit(drafts, sync, done))
    }

    /// Emits events and waits until they are on disk.
    pub async fn synced(&self, bodies: Vec<EventBody>) -> Result<(), Over> {
        let (done, committed) = oneshot::channel();
        self.send(bodies, true, Some(done))?;
        settled(committed).await
    }

    /// Waits until everything that was emitted is committed.
    async fn committed(&self) -> Result<(), Over> {
        let (done, committed) = oneshot::channel();
        self.send(Vec::new(), false, Some(done))?;
        settled(committed).await
    }

    /// Emits pieces of open streams.
    pub fn pieces(&self, pieces: Vec<Piece>) -> Result<oneshot::Receiver<Result<(), StoreError>>, Over> {
        let (done, committed) = oneshot::channel();
        self.tell(TurnMessage::Pieces(pieces, done))?;
        Ok(committed)
    }

    async fn model(&self) -> Result<String, Over> {
        let (reply, answer) = oneshot::channel();
        self.tell(TurnMessage::Model(reply))?;
        answer.await.map_err(|_| Over)
    }

    async fn boundary(&self, ending: Option<Ending>) -> Result<Next, Over> {
        let (reply, answer) = oneshot::channel();
        self.tell(TurnMessage::Boundary(ending, reply))?;
        answer.await.map_err(|_| Over)
    }

    /// Tells the actor; if it has dropped the turn, the turn is over.
    pub fn tell(&self, message: TurnMessage) -> Result<(), Over> {
        self.0.send(message).map_err(|_| Over)
    }
}

/// Commits that are waited for, a few behind.
#[derive(Default)]
pub struct Commits(std::collections::VecDeque<oneshot::Receiver<Result<(), StoreError>>>);

impl Commits {
    /// Takes one more; waits for the oldest when there are too many.
    pub async fn add(&mut self, commit: oneshot::Receiver<Result<(), StoreError>>) -> Result<(), Over> {
        self.0.push_back(commit);
        while self.0.len() > AHEAD
            && let Some(oldest) = self.0.pop_front()
        {
            settled(oldest).await?;
        }
        Ok(())
    }
}

async fn settled(commit: oneshot::Receiver<Result<(), StoreError>>) -> Result<(), Over> {
    match commit.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Over),
    }
}

/// What was shown of an attempt.
#[derive(Default)]
struct Shown {
    id: MessageId,
    /// One piece a block.
    pieces: BTreeMap<u32, Piece>,
}

impl Shown {
    fn push(&mut self, block: u32, kind: PieceKind, text: String) -> Piece {
        let stream = self.id.0.clone();
        let whole =
            self.pieces.entry(block).or_insert_with(|| Piece { stream, block, offset: 0, kind, text: String::new() });
        let piece = Piece { stream: whole.stream.clone(), block, offset: whole.end(), kind, text };
        whole.text.push_str(&piece.text);
        piece
    }

    fn blocks(&self) -> Vec<ContentBlock> {
        recovery::blocks(self.pieces.values())
    }
}

fn notice(level: Level, code: NoticeCode, text: String) -> EventBody {
    EventBody::Notice { level, code: Some(code), text }
}

/// A failure before anything was sent.
fn rejected(message: String) -> Failure {
    Failure { class: FailureClass::Rejected, message, retry_after: None }
}
