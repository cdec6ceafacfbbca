//! The turn: the agent loop. A child of its session's actor, to which it talks only in [`TurnMessage`]s.
//!
//! It begins by reading the log, so that a turn that is taken up after a crash or an interrupt runs through the same lines as
//! one that is new: open calls first, then step after step until an answer has no tool call. Dropping it at any point is how a
//! turn is stopped. It never touches the store but to read its context, and never waits for a client but in a permission.

mod compact;
mod emit;
mod key;
mod shape;
mod shown;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use linger_protocol::event::{EventBody, Instruction, Level, NoticeCode};
use linger_protocol::id::{BlobId, CallId, MessageId, SessionId};
use linger_protocol::message::{ContentBlock, ImageSource, Role, StopReason, Usage};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::actor::{Ending, MEND, Next, TurnMessage, Wanted};
use super::compaction::{Effort, Need, Next as Try};
use super::context::Context;
use super::log::PieceKind;
use super::state::State;
use super::{calls, context, instructions};
use crate::clock;
use crate::daemon::Daemon;
use crate::fault;
use crate::provider::retry::{self, Decision};
use crate::provider::shape::{self as provider_shape, Shape};
use crate::provider::{
    Encoding, Failure, FailureClass, Images, Message, Request, Response, Stop, Stream, StreamEvent, ToolSpec, json_size,
};
use crate::secret::Secret;
use crate::store::StoreError;
use crate::tool::Workspace;
use emit::settled;
pub use emit::{Commits, Emitter};
use shown::Shown;

/// What to do when a turn has come to one of its limits.
const GO_ON: &str = "prompt again to go on";

/// Why a turn ends whose last answer is not whole.
const CUT: &str = "the answer was cut at the model's token limit";

/// The turn is over, for a reason that its actor knows: it ended it, or the store failed.
pub struct Over;

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
    /// The last answer is not over.
    goes_on: bool,
    /// It compacts and does nothing else, unless a prompt comes.
    only_compacts: bool,
    /// What was done to make room for the step under way.
    effort: Effort,
    /// What the answer has to fit.
    shape: Option<super::state::Shape>,
    /// How the last request asked for that.
    way: shape::Way,
    /// How hard the model is to think.
    thinking: linger_protocol::session::Effort,
    /// What was paid for answers that broke off and are no messages.
    unshown: Option<Usage>,
    instructions: Vec<Instruction>,
    created_at: u64,
}

/// What was read of the log.
#[derive(Default)]
struct Past {
    builder: context::Builder,
    /// The last event of it.
    after: u64,
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
    Answer(Answer),
    /// The failure, and the message that shows what came before it.
    Failed(Failure, Option<MessageId>),
}

/// A whole answer.
struct Answer {
    id: MessageId,
    response: Response,
    /// What was counted, with its cost.
    usage: Option<Usage>,
}

/// What a model is asked.
struct Ask<'a> {
    system: &'a str,
    tools: &'a [ToolSpec],
    messages: &'a [Message],
    /// What the answer has to fit.
    shape: Option<Shape<'a>>,
    /// Whether the answer is a message of the session, and shown as it comes.
    shown: bool,
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
            emit: Emitter::new(messages),
            model: state.model.clone(),
            steps: state.turn.as_ref().map_or(0, |turn| turn.steps),
            messages: state.counts.messages,
            calls: state.counts.calls,
            cut: state.turn.as_ref().is_some_and(|turn| turn.cut),
            goes_on: state.turn.as_ref().is_some_and(|turn| turn.goes_on),
            only_compacts: state.turn.as_ref().is_some_and(|turn| turn.compacts.is_some()),
            unshown: None,
            shape: state.turn.as_ref().and_then(|turn| turn.shape.clone()),
            way: shape::Way::default(),
            thinking: state.thinking,
            effort: state.turn.as_ref().map_or_else(Effort::default, |turn| turn.effort),
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
        // What started this turn must be in the log before its end is read; what came before it is read meanwhile.
        let (committed, early) = tokio::join!(self.emit.committed(), self.read_on(Past::default()));
        committed?;
        // What could not be read is met again.
        let mut context = match self.history_when_readable(early.unwrap_or_default()).await? {
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
        let open = context::open_calls(&context.messages);
        if !open.is_empty() {
            let results = std::mem::take(&mut context.results);
            self.run_calls(&mut context, open, results, self.cut).await?;
        }
        if !self.only_compacts && context.messages.last().is_some_and(|last| last.role == Role::Assistant) {
            // It was cut between its answer and its end: only the end is missing.
            let stop = match (self.cut, self.goes_on) {
                (true, _) => Stop::MaxTokens,
                (false, true) => Stop::Paused,
                (false, false) => Stop::End,
            };
            if self.answer_over(stop, &mut context).await? {
                return Ok(());
            }
        }
        loop {
            let next = self.emit.boundary(None).await?;
            let asked = self.take(next, &mut context).await?;
            let failed = match asked {
                Some(asked) => self.compact_as_asked(asked, &mut context, &system, &tools, &mut encoding).await?,
                None => None,
            };
            if self.only_compacts {
                let next = match failed {
                    Some((detail, hint)) => self.end(StopReason::Error, &detail, hint).await?,
                    None => self.end(StopReason::EndTurn, "", "").await?,
                };
                if next.prompts.is_empty() {
                    return Ok(());
                }
                self.take(next, &mut context).await?;
                continue;
            }
            let limit = self.daemon.max_steps();
            if self.steps >= limit {
                let detail = format!("the turn took {} steps, max_steps is {limit}", self.steps);
                return self.end(StopReason::MaxSteps, &detail, GO_ON).await.map(drop);
            }
            self.say_schema(&mut context).await?;
            self.say_go_on(&mut context).await?;
            let answer = match self.step(&system, &tools, &mut context, &mut encoding).await? {
                Ok(answer) => answer,
                Err(failure) => {
                    let hint = self.hint(&failure);
                    return self.end(StopReason::Error, &failure.message, &hint).await.map(drop);
                }
            };
            let stop = answer.response.stop;
            self.answered(&mut context, answer)?;
            let calls = context::open_calls(&context.messages);
            if calls.is_empty() {
                if self.answer_over(stop, &mut context).await? {
                    return Ok(());
                }
            } else {
                self.run_calls(&mut context, calls, HashMap::new(), stop == Stop::MaxTokens).await?;
            }
        }
    }

    /// An answer without calls ends the turn, unless somebody steers, or it does not have the shape that it should; whether it did.
    async fn answer_over(&mut self, stop: Stop, context: &mut Context) -> Result<bool, Over> {
        let next = match stop {
            Stop::End => match self.fits(context).await? {
                shape::Fit::Yes(answer) => self.emit.boundary(Some(Ending { answer, ..plain() })).await?,
                shape::Fit::Again => return Ok(false),
                shape::Fit::Never(fault) => {
                    let detail = format!("the answer does not fit the schema: {fault}");
                    self.end(StopReason::Error, &detail, shape::HINT).await?
                }
            },
            Stop::MaxTokens => self.end(StopReason::MaxTokens, CUT, GO_ON).await?,
            // The next step goes on with it.
            Stop::Paused => return Ok(false),
            Stop::Refusal => self.end(StopReason::Refusal, "the model refused", "").await?,
        };
        if next.prompts.is_empty() {
            return Ok(true);
        }
        self.take(next, context).await?;
        Ok(false)
    }

    /// What the log says. While it cannot be read, but may be in a moment, the turn waits, visibly.
    async fn history_when_readable(&self, mut past: Past) -> Result<Result<context::Context, String>, Over> {
        let mut pause = MEND[0];
        loop {
            let error = match self.read_on(std::mem::take(&mut past)).await {
                Ok(past) => return Ok(Ok(past.builder.finish())),
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

    /// Reads the log to its end, a page at a time: other sessions' queries go between.
    async fn read_on(&self, Past { mut builder, mut after }: Past) -> Result<Past, Unread> {
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
                return Ok(Past { builder, after });
            }
        }
    }

    /// Prompts that came back from the actor are messages already; gives the compaction that is asked for.
    async fn take(&mut self, next: Next, context: &mut Context) -> Result<Option<Wanted>, Over> {
        (self.model, self.shape, self.thinking) = (next.model, next.shape, next.thinking);
        let new = !next.prompts.is_empty();
        for content in next.prompts {
            let opens = std::mem::replace(&mut self.only_compacts, false);
            self.effort = Effort::default();
            self.messages += 1;
            let id = MessageId(format!("m{}", self.messages));
            context.push(id, Message { role: Role::User, content, origin: None }, opens);
        }
        if new {
            // What a model has seen is in the log: a turn that is taken up after a crash says the same again.
            self.emit.committed().await?;
        }
        Ok(next.compact)
    }

    /// What a user can do about a failure.
    fn hint(&self, failure: &Failure) -> String {
        let catalogue = self.daemon.catalogue().ok().filter(|_| failure.class == FailureClass::NotFound);
        let near = catalogue.and_then(|catalogue| catalogue.near_model(&self.model));
        near.map_or_else(
            || failure.class.hint().to_owned(),
            |near| format!("did you mean {near}? `linger models` lists more"),
        )
    }

    async fn end(&self, reason: StopReason, detail: &str, hint: &str) -> Result<Next, Over> {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        self.emit.boundary(Some(Ending { detail: some(detail), hint: some(hint), ..Ending::plain(reason) })).await
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
            let changed = EventBody::SessionChanged {
                model: None,
                mode: None,
                effort: None,
                name: None,
                instructions: Some(read.clone()),
            };
            self.emit.send(vec![changed], false, None)?;
            self.instructions = read;
        }
        let day = self.created_at / clock::DAY_MS;
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
    async fn ask(&mut self, ask: &Ask<'_>, encoding: &mut Encoding) -> Result<Step, Over> {
        let &Ask { system, tools, messages, shape, shown: is_shown } = ask;
        let began = Instant::now();
        let mut attempt = 1;
        let mut refused: Option<(Secret, Failure)> = None;
        loop {
            let (resolved, provider) = match self.resolve().await? {
                Ok(resolved) => resolved,
                Err(failure) => return Ok(Step::Failed(failure, None)),
            };
            if let Some((key, failure)) = &refused
                && provider.key() == Some(key)
            {
                return Ok(Step::Failed(failure.clone(), None));
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
                shape,
                effort: if self.thinking.is_auto() { resolved.facts.effort } else { self.thinking },
            };
            fault::point("request.before_send");
            tracing::info!(target: "request", session = %self.session, model = %self.model, messages = messages.len(), attempt, "sent");
            let id = MessageId(format!("m{}", self.messages + 1));
            let mut shown = Shown { id: id.clone(), prices: resolved.facts.prices, ..Shown::default() };
            let stream = provider.start(&request, encoding);
            drop(images);
            let failure = match self.attempt(stream, &mut shown, is_shown).await? {
                Ok(mut response) => {
                    if shape.is_some() {
                        provider_shape::spoken(&mut response);
                    }
                    tracing::info!(target: "response", session = %self.session, id = %id, ms = began.elapsed().as_millis() as u64,
                        input = response.usage.input_tokens, output = response.usage.output_tokens, "done");
                    let usage = shown.priced(response.usage);
                    return Ok(Step::Answer(Answer { id, response, usage }));
                }
                Err(failure) => failure,
            };
            tracing::warn!(target: "response", session = %self.session, class = ?failure.class, why = failure.message, attempt, "failed");
            let interrupted = is_shown && !shown.pieces.is_empty();
            if interrupted {
                self.messages += 1;
                let message = self.message(id.clone(), shown.blocks(), true, shown.usage, Stop::End);
                self.emit.send(vec![message], false, None)?;
            } else {
                // Nobody pays for a refusal; of a summary that broke off its event has the sum.
                self.unshown =
                    self.unshown.into_iter().chain(shown.usage.filter(|_| !shown.pieces.is_empty())).reduce(sum);
                self.emit.tell(TurnMessage::Counted(None))?;
            }
            if failure.class == FailureClass::Auth
                && !interrupted
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
                    return Ok(Step::Failed(Failure { message, ..failure }, interrupted.then_some(id)));
                }
                Decision::Again { after } => {
                    attempt += 1;
                    let (message, of) = (&failure.message, retry::attempts(failure.class));
                    let text = format!("{message}; trying again in {:.1} s ({attempt} of {of})", after.as_secs_f64());
                    let (level, code) = (Level::Warning, Some(NoticeCode::Retry));
                    let wait = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                    let until_at = Some(clock::now().saturating_add(wait));
                    self.emit.send(vec![EventBody::Notice { level, code, text, until_at }], false, None)?;
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

    /// One attempt; what is shown of it goes into `shown`, and to clients if `is_shown`.
    async fn attempt(
        &self,
        mut stream: Stream,
        shown: &mut Shown,
        is_shown: bool,
    ) -> Result<Result<Response, Failure>, Over> {
        let mut commits = Commits::default();
        loop {
            let mut pieces = Vec::new();
            let mut end = None;
            let events = stream.next().await;
            if let Some(usage) = shown.count(stream.usage()) {
                tracing::debug!(target: "response", session = %self.session, id = %shown.id, input = usage.input_tokens,
                    output = usage.output_tokens, cost_micros = usage.cost_micros, "counted");
                self.emit.tell(TurnMessage::Counted(Some(usage)))?;
            }
            for event in events {
                match event {
                    StreamEvent::Text { block, text } => pieces.push(shown.push(block, PieceKind::Text, text)),
                    StreamEvent::Thinking { block, text } => pieces.push(shown.push(block, PieceKind::Thinking, text)),
                    StreamEvent::Hosted { block, tool, part, text } => {
                        pieces.push(shown.push(block, PieceKind::Hosted(tool, part), text));
                    }
                    StreamEvent::Counted => {}
                    StreamEvent::Done(response) => end = Some(Ok(response)),
                    StreamEvent::Failed(failure) => end = Some(Err(failure)),
                }
            }
            fault::point("request.first_piece");
            if is_shown && !pieces.is_empty() {
                commits.add(self.emit.pieces(pieces)?).await?;
            }
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    /// Writes the answer down; its calls get the daemon's ids.
    fn answered(&mut self, context: &mut Context, answer: Answer) -> Result<(), Over> {
        fault::point("response.done");
        let Answer { id, response: Response { mut content, stop, .. }, usage } = answer;
        for block in &mut content {
            if let ContentBlock::ToolUse { call_id, .. } = block {
                self.calls += 1;
                *call_id = CallId(format!("c{}", self.calls));
            }
        }
        self.messages += 1;
        self.steps += 1;
        self.effort = Effort::default();
        let message = self.message(id.clone(), content.clone(), false, usage, stop);
        self.emit.send(vec![message], false, None)?;
        context.push(id, Message { role: Role::Assistant, content, origin: Some(self.model.clone()) }, false);
        usage.into_iter().for_each(|usage| context.measure(usage));
        Ok(())
    }

    fn message(
        &self,
        message: MessageId,
        content: Vec<ContentBlock>,
        interrupted: bool,
        usage: Option<Usage>,
        stop: Stop,
    ) -> EventBody {
        let (role, model) = (Role::Assistant, Some(self.model.clone()));
        let (prompt, asks) = (None, None);
        let (cut, paused) = (stop == Stop::MaxTokens, stop == Stop::Paused);
        EventBody::Message { message, role, content, interrupted, prompt, asks, model, usage, cut, paused }
    }

    /// Runs the calls of a step, and adds the message with all their results, in the order of the calls.
    async fn run_calls(
        &mut self,
        context: &mut Context,
        calls: Vec<ContentBlock>,
        results: HashMap<CallId, ContentBlock>,
        cut: bool,
    ) -> Result<(), Over> {
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
            message: message.clone(),
            role: Role::User,
            content: content.clone(),
            interrupted: false,
            prompt: None,
            asks: None,
            model: None,
            usage: None,
            cut: false,
            paused: false,
        };
        self.emit.send(vec![body], false, Some(done))?;
        // The next request is not paid for unless this step is written down.
        settled(committed).await?;
        context.push(message, Message { role: Role::User, content, origin: None }, false);
        Ok(())
    }
}

fn notice(level: Level, code: NoticeCode, text: String) -> EventBody {
    EventBody::Notice { level, code: Some(code), text, until_at: None }
}

/// An end that is good.
fn plain() -> Ending {
    Ending::plain(StopReason::EndTurn)
}

/// Two usages in one.
fn sum(mut one: Usage, other: Usage) -> Usage {
    one += other;
    one
}

/// A failure before anything was sent.
fn rejected(message: String) -> Failure {
    Failure { class: FailureClass::Rejected, message, retry_after: None }
}
