//! The turn: the agent loop. A child of its session's actor, to which it talks only in [`TurnMessage`]s.
//!
//! It begins by reading the log, so that a turn that is taken up after a crash or an interrupt runs through the same lines as
//! one that is new: open calls first, then step after step until an answer has no tool call. Dropping it at any point is how a
//! turn is stopped. It never touches the store but to read its context, and never waits for a client but in a permission.

mod ask;
pub mod beside;
mod compact;
mod emit;
mod key;
mod shape;
mod shown;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use linger_protocol::event::{EventBody, Instruction, Level, NoticeCode};
use linger_protocol::id::{CallId, MessageId, SessionId};
use linger_protocol::message::{ContentBlock, Role, StopReason, Usage};
use linger_protocol::session::Setup;
use tokio::sync::{mpsc, oneshot};

use super::actor::{Ending, MEND, Next, TurnMessage, Wanted};
use super::compaction::Effort;
use super::context::Context;
use super::state::State;
use super::{calls, context};
use crate::daemon::Daemon;
use crate::provider::{Encoding, Failure, FailureClass, Message, Response, Stop};
use crate::store::StoreError;
use crate::tool::Workspace;
use crate::{clock, fault};
use ask::Answer;
use emit::settled;
pub use emit::{Commits, Emitter};

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
    /// What requests have beside the conversation, as the log says.
    setup: Option<Setup>,
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
    /// The model was told to think by the last request.
    thinks: bool,
    /// That had `reasoning_content` at all calls.
    reasons: bool,
    /// The model is not to think, until the turn is over: the history lacks thinking that it would have to have.
    unthinking: bool,
    /// What was paid for answers that broke off and are no messages.
    unshown: Option<Usage>,
    instructions: Vec<Instruction>,
    created_at: u64,
    /// What an earlier turn has read.
    past: Past,
    /// The calls that the state says are open: others that the history has open are so because what came of them is lost.
    known: HashSet<CallId>,
}

/// The longest history that a session keeps from one turn to the next, in bytes of events: a turn then reads what is new. A longer
/// one is read and parsed again, which is nothing beside the time that a model takes for it.
const KEPT: usize = 64 << 10;

/// What was read of the log.
#[derive(Clone, Debug, Default)]
pub struct Past {
    builder: context::Builder,
    /// The last event of it.
    after: u64,
    /// How much was read.
    bytes: usize,
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
        if error.is_damage() { Self::Broken(error.0.to_string()) } else { Self::ForNow(error) }
    }
}

impl Turn {
    /// The turn of a session in this state.
    pub fn new(
        session: SessionId,
        daemon: Arc<Daemon>,
        workspace: Arc<Workspace>,
        (state, past): (&State, Past),
        messages: mpsc::UnboundedSender<TurnMessage>,
    ) -> Self {
        Self {
            session,
            daemon,
            workspace,
            emit: Emitter::new(messages),
            model: state.model.clone(),
            setup: state.setup.clone(),
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
            thinks: false,
            reasons: false,
            unthinking: false,
            effort: state.turn.as_ref().map_or_else(Effort::default, |turn| turn.effort),
            instructions: state.instructions.clone(),
            created_at: state.created_at,
            past,
            known: state.turn.iter().flat_map(|turn| &turn.calls).map(|call| call.id.clone()).collect(),
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
        let past = std::mem::take(&mut self.past);
        let (committed, early) = tokio::join!(self.emit.committed(), self.read_on(past));
        committed?;
        // What could not be read is met again.
        let mut context = match self.history_when_readable(early.unwrap_or_default()).await? {
            Ok(context) => context,
            Err(error) => {
                // Its prompt, and what it has begun or asked for, is not given up.
                self.emit.tell(TurnMessage::Unreadable(format!("the history cannot be read: {error}")))?;
                return Ok(());
            }
        };
        fault::point("turn.context");
        let system = self.system(instructions.await.unwrap_or_default())?;
        let tools = self.daemon.tool_specs();
        let mut encoding = Encoding::default();
        let open = context::open_calls(&context.messages);
        if !open.is_empty() {
            let mut results = std::mem::take(&mut context.results);
            context::call_ids(&open).filter(|call| !self.known.contains(call)).for_each(|call| {
                // It may have run.
                results.entry(call.clone()).or_insert_with(|| context::lost_result(call));
            });
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
                Some(Ok(answer)) => answer,
                Some(Err(failure)) => return self.failed(&failure).await.map(drop),
                None => continue,
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
                Ok(past) => {
                    #[cfg(all(debug_assertions, not(feature = "faults")))]
                    self.is_as_read_anew(&past).await;
                    if past.bytes <= KEPT {
                        self.emit.tell(TurnMessage::Read(Box::new(past.clone())))?;
                    }
                    return Ok(Ok(past.builder.finish()));
                }
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
    async fn read_on(&self, Past { mut builder, mut after, mut bytes }: Past) -> Result<Past, Unread> {
        loop {
            let read = self.daemon.store.events_of(self.session.clone(), context::KINDS, after, context::PAGE);
            let (page, more) = read.await?;
            after = page.last().map_or(after, |last| last.seq);
            bytes += page.iter().map(|stored| stored.data.len()).sum::<usize>();
            let parse = move || builder.add(&page).map(|()| builder);
            // A long history is parsed elsewhere: one thread runs all sessions. A short one is not worth the way there.
            let parsed = if more { tokio::task::spawn_blocking(parse).await } else { Ok(parse()) };
            let parsed = parsed.map_err(|error| Unread::Broken(error.to_string()))?;
            builder = parsed.map_err(|error| Unread::Broken(error.to_string()))?;
            if !more {
                return Ok(Past { builder, after, bytes });
            }
        }
    }

    /// What was read piece by piece is what is there. Not where store operations fail on purpose: this one tells nobody.
    #[cfg(all(debug_assertions, not(feature = "faults")))]
    async fn is_as_read_anew(&self, past: &Past) {
        if let Ok(anew) = self.read_on(Past::default()).await {
            assert_eq!(past.builder.clone().finish(), anew.builder.finish(), "the history was kept and has changed");
        }
    }

    /// Prompts that came back from the actor are messages already; gives the compaction that is asked for.
    async fn take(&mut self, next: Next, context: &mut Context) -> Result<Option<Wanted>, Over> {
        self.unthinking &= next.model == self.model;
        (self.model, self.setup) = (next.model, next.setup);
        (self.shape, self.thinking) = (next.shape, next.thinking);
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
        self.emit.boundary(Some(ending(reason, detail, hint))).await
    }

    /// Ends the turn because no answer is to be had.
    async fn failed(&self, failure: &Failure) -> Result<Next, Over> {
        let ending = ending(StopReason::Error, &failure.message, &self.hint(failure));
        let wait = failure.retry_after.filter(|wait| !wait.is_zero());
        let until_at =
            wait.map(|wait| clock::now().saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)));
        self.emit.boundary(Some(Ending { until_at, ..ending })).await
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

fn ending(reason: StopReason, detail: &str, hint: &str) -> Ending {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Ending { detail: some(detail), hint: some(hint), ..Ending::plain(reason) }
}

/// An end that is good.
fn plain() -> Ending {
    Ending::plain(StopReason::EndTurn)
}

/// A failure before anything was sent.
fn rejected(message: String) -> Failure {
    Failure { class: FailureClass::Rejected, message, retry_after: None }
}
