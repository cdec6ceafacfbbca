//! The actor: one task that owns all state of a session. Everybody else sends it a [`Command`].
//!
//! [`Wake`] lists everything that can wake it. The turn runs as its child and talks back only with [`TurnMessage`]s, so that
//! the mailbox answers while a model streams. Cancel, interrupt and a crash are one thing: the child is gone, and what it left
//! open is closed from the state ([`super::recovery`]); a turn can be started again at any point of its log.
//! The actor never waits for the disk: it numbers an event, folds it, queues it at the store, and whoever asked is answered by
//! the commit. If a write fails it starts anew from what is stored.

mod questions;
mod record;
mod requests;
mod storage;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::event::{Event, EventBody, Level, NoticeCode};
use linger_protocol::id::{CallId, Cursor, MessageId, PromptId, QuestionId, SessionId, TurnId};
use linger_protocol::message::{AnswerEnd, ContentBlock, Role, StopReason, Usage};
use linger_protocol::permission::Decision;
use linger_protocol::question::{self as question_wire, PendingQuestion, Question};
use linger_protocol::session::{self, Effort as Thinking, Prompted, Setup, When};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::env::{Env, Host};
use super::state::{Queued, Resolution, Shape, State};
use super::waiting::{MAX_WAITING, Share};
use super::{Draft, recovery, subscription, turn};
use crate::fault;
use crate::log::cursor::Position;
use crate::log::{Log, Piece, PieceKind, Stored};
use crate::permission::{CallInfo, ResolvedAccess, Verdict, grant_everywhere};
use crate::store::damage::Found;
use crate::store::idempotency::{Key, Outcome};
use crate::store::{Append, Fold, SessionRow, StoreError};
use crate::sys::clock::{self, DAY_MS};
use crate::sys::disk;
use crate::tool::{Effects, Workspace};

pub use questions::answered_before;
pub use record::{environment, idle_effort, question_fold, spent, stored, unknown_model};
use record::{message_of, notice};
use storage::known;

/// How long a turn that is being stopped may take to let go before it is left behind. Its processes are killed at once.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// After a failed write: the first wait before the next try, and the longest.
pub const MEND: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// A write that fails within this time after another goes on with the pauses of that one: there is only a little room.
const CALM: Duration = Duration::from_secs(60);

/// Outcomes of keyed requests that are remembered here, for those whose commit is still queued; with so many, it is waited for.
const REMEMBERED: usize = 64;

/// Rules that answers may add to one session, and the longest of them in bytes: they are looked through for each call, and
/// written with each event.
const MAX_GRANTS: usize = 256;
const MAX_GRANT: usize = 8 << 10;

/// Prompts that may wait in one session; a person types a handful, a script should look at the answers.
const MAX_QUEUED: usize = 256;

/// How large the prompts that wait in one session may be together, in bytes: two of the largest that a request can carry.
const MAX_QUEUED_BYTES: usize = 2 * linger_protocol::transport::MAX_REQUEST;

/// Where a command is answered.
pub type Reply<T> = oneshot::Sender<Result<T, RpcError>>;

/// A request that is answered later, and its key.
pub struct Asked {
    /// Its key.
    pub key: Option<Key>,
    /// Where it is answered.
    pub reply: Reply<()>,
}

/// What can be asked of a session.
pub enum Command {
    /// Where a reader begins.
    Attach(Option<Cursor>, Reply<Reading>),
    /// Something to do, and who asks.
    Prompt(session::Prompt, Option<Key>, String, Reply<Prompted>),
    /// Have older messages replaced by a summary, and who asks.
    Compact(session::Compact, Option<Key>, String, Reply<Prompted>),
    /// Stop the turn.
    Cancel(Asked),
    /// Take up what was offered or held.
    Continue(Asked),
    /// Change model, mode or name.
    Set(session::Set, Asked),
    /// Answer a question, and who answers.
    Answer(question_wire::Answer, String, Asked),
    /// Ask a question that is no permission; answered with its answer.
    Ask(Question, Reply<Resolution>),
    /// Delete the session; also while it works.
    Remove(bool, Asked),
    /// Delete the session if it has not changed since this time; also while it works.
    Prune(u64, bool, Reply<()>),
    /// Tell those who are there that something did not go as it should.
    Warn(NoticeCode, String),
    /// Go on with a turn that was offered only until there is a configuration.
    Configured,
    /// The daemon ends.
    Pause(oneshot::Sender<()>),
}

impl Command {
    /// Whether the daemon's own log takes it, which has no turns and cannot be changed or removed.
    fn is_for_daemon(&self) -> bool {
        matches!(self, Self::Attach(..) | Self::Ask(..) | Self::Answer(..) | Self::Pause(_))
    }

    /// Answers with an error.
    pub fn refuse(self, error: RpcError) {
        match self {
            Self::Attach(_, reply) => respond(reply, Err(error)),
            Self::Prompt(_, _, _, reply) | Self::Compact(_, _, _, reply) => respond(reply, Err(error)),
            Self::Prune(_, _, reply) => respond(reply, Err(error)),
            Self::Ask(_, reply) => respond(reply, Err(error)),
            Self::Cancel(asked)
            | Self::Continue(asked)
            | Self::Set(_, asked)
            | Self::Answer(_, _, asked)
            | Self::Remove(_, asked) => {
                respond(asked.reply, Err(error));
            }
            // It is in the daemon's log.
            Self::Warn(..) | Self::Configured => {}
            Self::Pause(done) => drop(done),
        }
    }
}

/// Where a reader begins; while it is held, the session stays loaded.
pub struct Reading {
    /// The log.
    pub log: Arc<Log>,
    /// Wakes when the log has grown.
    pub changed: watch::Receiver<()>,
    /// Where to read on from.
    pub at: Position,
    /// The end of the log at this moment.
    pub head: Cursor,
}

/// What a turn tells its session.
pub enum TurnMessage {
    /// Events, whether they must be on disk, and who waits for them.
    Emit(Vec<Draft>, bool, Option<oneshot::Sender<Result<(), StoreError>>>),
    /// A message of the history without a name, where it is given back with its names, and who waits
    /// for its commit.
    Message(
        Box<EventBody>,
        oneshot::Sender<(MessageId, Vec<ContentBlock>)>,
        Option<oneshot::Sender<Result<(), StoreError>>>,
    ),
    /// The attempt at an answer of this model failed: what was shown of it becomes a message, whose name is given back.
    Interrupted(String, oneshot::Sender<MessageId>),
    /// What came of open streams.
    Pieces(Vec<Fragment>, oneshot::Sender<Result<(), StoreError>>),
    /// What the provider has counted of the answer that is being streamed.
    Counted(Option<Usage>),
    /// May this call run?
    Permit(Box<Permit>),
    /// A call asks a person; answered when the answer is on disk, or the question is withdrawn.
    Ask(Question, Reply<Resolution>),
    /// Between two steps. With the reason if the turn would end here: it has ended if no prompts come back.
    Boundary(Option<Ending>, oneshot::Sender<NextStep>),
    /// Which `provider/model` is it now?
    Model(oneshot::Sender<(String, Option<Setup>)>),
    /// It cannot go on from what is stored, for this reason, and has ended.
    Unreadable(String),
    /// What it has read of the log, for the next one.
    Read(Box<turn::Past>),
}

/// What came of a stream; the actor says where in the stream it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// The next text of a block of the answer under way.
    Answer {
        /// The block's index in the answer.
        block: u32,
        /// What it is.
        kind: PieceKind,
        /// The text.
        text: String,
    },
    /// Output of a call.
    Output {
        /// The call.
        call: CallId,
        /// Where it begins in the output, in bytes: what was left out makes a gap.
        offset: u64,
        /// The text.
        text: String,
    },
}

/// How a turn ends.
#[derive(Clone, Debug)]
pub struct Ending {
    /// Why.
    pub reason: StopReason,
    /// What went wrong, or what the limit was.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// Until when the provider asked to be left alone.
    pub until_at: Option<u64>,
    /// The answer that fits what was asked for.
    pub answer: Option<Value>,
}

impl Ending {
    /// An end that explains itself.
    pub fn plain(reason: StopReason) -> Self {
        Self { reason, detail: None, hint: None, until_at: None, answer: None }
    }
}

/// What the next step begins with.
#[derive(Clone, Debug, Default)]
pub struct NextStep {
    /// Prompts that steer, as the messages that they are in the log.
    pub prompts: Vec<(MessageId, Vec<ContentBlock>)>,
    /// `provider/model` from now on.
    pub model: String,
    /// What stands before the conversation in its requests, as far as the log says.
    pub setup: Option<Setup>,
    /// The compaction that is asked for.
    pub compact: Option<Wanted>,
    /// What the answer has to fit.
    pub shape: Option<Shape>,
    /// How hard the model is to think.
    pub thinking: Thinking,
}

/// A compaction that a user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The prompt that asks.
    pub prompt: PromptId,
    /// What the summary should keep in view; empty if nothing in particular.
    pub focus: String,
}

/// A call that asks whether it may run.
pub struct Permit {
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: String,
    /// What the call does to the world.
    pub effects: Effects,
    /// Where that is on the disk.
    pub resolved: ResolvedAccess,
    /// What it does, for people.
    pub action: String,
    /// Its arguments.
    pub input: Arc<Value>,
    /// Its hash.
    pub digest: String,
    /// Where the verdict goes; a call that needs a user waits for it.
    pub reply: oneshot::Sender<Permitted>,
}

impl Permit {
    /// What the rules look at.
    fn info(&self) -> CallInfo<'_> {
        CallInfo { tool: &self.tool, changes: self.effects.changes, access: self.effects.access.clone() }
    }
}

/// Whether a call may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permitted {
    /// It may, if it has this digest: somebody has said so.
    Yes(String),
    /// The same, as mode and rules are now.
    ForNow(String),
    /// It may not; what the model is told.
    No(String),
}

enum Wake {
    Command(Option<Command>),
    Turn(Option<TurnMessage>),
    Stopped,
    Idle,
    /// A write failed that nobody waits for.
    Broken,
    Mend,
}

enum Phase {
    Idle,
    Running(Running),
    /// The child was told to stop; what comes then.
    Stopping(JoinHandle<()>, Then),
    /// A write failed; how long was waited, and when the next try comes.
    Failed(Duration, Instant),
}

impl Phase {
    /// Whether a write that fails changes nothing any more.
    fn ends_or_failed(&self) -> bool {
        matches!(self, Self::Failed(..) | Self::Stopping(_, Then::Remove(_) | Then::Pause(_)))
    }
}

struct Running {
    task: JoinHandle<()>,
    messages: mpsc::UnboundedReceiver<TurnMessage>,
    /// Calls that wait for a permission.
    waiting: HashMap<QuestionId, Permit>,
    /// The end of a step, while a question keeps the turn from the next one.
    held: Option<(Option<Ending>, oneshot::Sender<NextStep>)>,
}

enum Then {
    /// The turn ends as cancelled; the next starts at once if the user has said something since.
    Cancel(Vec<Asked>, bool),
    /// The turn goes on with the prompts that interrupt it.
    Interrupt,
    Remove(Vec<Asked>),
    Pause(oneshot::Sender<()>),
}

/// The actor of one session.
pub struct Actor {
    id: SessionId,
    env: Arc<Env>,
    host: Arc<dyn Host>,
    log: Arc<Log>,
    state: State,
    /// What was counted of the answer that is being streamed; not stored, for a crash leaves no time to.
    counted: Option<Usage>,
    /// The prompts that wait here, among those of all sessions.
    waits: Share,
    /// Where the answers go to questions that are no permissions; after a restart only to those asked again.
    askers: HashMap<QuestionId, Vec<Reply<Resolution>>>,
    /// Results of the open calls that have one, until all have and become a message.
    results: HashMap<CallId, ContentBlock>,
    workspace: Arc<Workspace>,
    /// The history, as far as it is short and known here.
    past: turn::Past,
    phase: Phase,
    /// Outcomes whose commit may still be queued.
    remembered: Vec<Outcome>,
    /// How long was waited after the last write that failed, and when something could be written again.
    mended: Option<(Duration, Instant)>,
    /// The turn that a user has cancelled, if the end of it could not be written; nothing of it goes on.
    cancelled: Option<Cancelled>,
}

/// Takes back that nothing can be written of a session, when there is nobody any more who would.
struct Told {
    found: Found,
    id: SessionId,
}

impl Drop for Told {
    fn drop(&mut self) {
        self.found.written(&self.id);
    }
}

/// A turn that a user has cancelled.
#[derive(Default)]
struct Cancelled {
    /// The turn; whichever is stored as unfinished if it was cancelled when nothing could be written.
    turn: Option<TurnId>,
    /// Keys of the requests that want it.
    keys: Vec<Key>,
}

impl Actor {
    /// An actor for a session that is stored.
    pub async fn load(env: Arc<Env>, host: Arc<dyn Host>, row: SessionRow) -> Result<Self, StoreError> {
        fault::point("actor.load");
        let id = row.id.clone();
        let (state, variables) = known(&env.store, row).await?;
        // The daemon's own log works nowhere.
        let cwd = if id.is_daemon() { Path::new("/") } else { &state.cwd };
        let workspace = Arc::new(env.workspace(cwd, variables, disk::SHORT_TIMEOUT).await);
        let log = Log::new(id.clone(), state.head, Vec::new());
        let mut actor = Self::new(id, (env, host), log, state, workspace);
        actor.take_up(recovery::Cause::Restart(actor.env.config.after_restart())).await?;
        Ok(actor)
    }

    /// An actor for a new session, whose first events are queued; `done` is answered when it is on disk.
    pub fn create(
        shared: (Arc<Env>, Arc<dyn Host>),
        id: SessionId,
        (created, said): (EventBody, Vec<EventBody>),
        (env, workspace): (&BTreeMap<String, String>, Arc<Workspace>),
        outcome: Option<Fold>,
        done: oneshot::Sender<Result<(), StoreError>>,
    ) -> Self {
        let log = Log::new(id.clone(), 0, Vec::new());
        let environment = environment(env);
        let mut actor = Self::new(id, shared, log, State::default(), workspace);
        let folds = std::iter::once(environment).chain(outcome).collect();
        fault::point("actor.create");
        let drafts = std::iter::once(created).chain(said).map(Draft::new).collect();
        actor.append(drafts, folds, true, Some(done));
        actor
    }

    fn new(
        id: SessionId,
        (env, host): (Arc<Env>, Arc<dyn Host>),
        log: Arc<Log>,
        state: State,
        workspace: Arc<Workspace>,
    ) -> Self {
        let (results, remembered, askers) = (HashMap::new(), Vec::new(), HashMap::new());
        let waits = env.waiting.share();
        let (counted, past, phase, mended, cancelled) = (None, turn::Past::default(), Phase::Idle, None, None);
        Self {
            id,
            env,
            host,
            log,
            state,
            counted,
            askers,
            results,
            waits,
            workspace,
            past,
            phase,
            remembered,
            mended,
            cancelled,
        }
    }

    /// Runs until the session is removed, unloaded or the daemon ends.
    /// `first`: a command that came before those in the mailbox.
    pub async fn run(mut self, first: Option<Command>, mut commands: mpsc::UnboundedReceiver<Command>) {
        let _told = Told { found: self.env.store.found.clone(), id: self.id.clone() };
        if let Some(command) = first {
            self.command(command).await;
        }
        loop {
            let wake = self.next_wake(&mut commands).await;
            if self.log.failed() && !self.phase.ends_or_failed() {
                self.fail();
                if !matches!(wake, Wake::Command(Some(_))) {
                    // Whatever else woke it belongs to what was just given up.
                    continue;
                }
            }
            match wake {
                Wake::Command(Some(command)) => self.command(command).await,
                Wake::Command(None) => return,
                Wake::Turn(Some(message)) => self.turn_message(message),
                Wake::Turn(None) => self.turn_vanished(),
                Wake::Stopped => {
                    if self.stopped().await {
                        return self.refuse_rest(commands);
                    }
                }
                Wake::Idle => {
                    // What is loaded again is read from the store: everything must be there.
                    if self.barrier().await.is_ok() && self.host.unload(&self.id, &self.log, &commands) {
                        fault::point("actor.unload");
                        tracing::debug!(target: "session", session = %self.id, "unloaded");
                        return;
                    }
                }
                Wake::Mend if self.env.store.found.of(&self.id).is_some() => return self.give_up(commands),
                Wake::Mend => self.mend(false).await,
                // What there is to do was done above.
                Wake::Broken => {}
            }
        }
    }

    async fn next_wake(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) -> Wake {
        match &mut self.phase {
            Phase::Running(running) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                message = running.messages.recv() => Wake::Turn(message),
                // A turn that waits for a permission does not hear that the question was never stored.
                () = self.log.broken() => Wake::Broken,
            },
            Phase::Stopping(task, _) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                _ = tokio::time::timeout(STOP_GRACE, task) => Wake::Stopped,
            },
            Phase::Failed(_, until) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                () = tokio::time::sleep_until(*until) => Wake::Mend,
            },
            // A session that is watched is not unloaded, and has no timer.
            Phase::Idle => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                () = async { self.log.unwatched().await; tokio::time::sleep(self.env.config.idle_unload()).await },
                    if self.askers.is_empty() => Wake::Idle,
                () = self.log.broken() => Wake::Broken,
            },
        }
    }

    async fn command(&mut self, command: Command) {
        let command = match command {
            Command::Cancel(asked) if matches!(self.phase, Phase::Failed(..)) => return self.cancel_later(asked).await,
            command if self.id.is_daemon() && !command.is_for_daemon() => {
                let error = RpcError::new(Code::UnknownSession, format!("there is no session '{}'", self.id));
                return command.refuse(error.hint("it is the daemon's own log, which can be attached to"));
            }
            command => command,
        };
        if self.may_be_mended() && !matches!(command, Command::Attach(..) | Command::Pause(_)) {
            self.mend(true).await;
        }
        match command {
            Command::Attach(after, reply) => respond(reply, self.attach(after).await),
            Command::Pause(done) => self.pause(done).await,
            Command::Remove(force, asked) => self.remove(force, asked).await,
            Command::Prune(before, force, reply) => self.prune(before, force, reply).await,
            command if matches!(self.phase, Phase::Failed(..)) => {
                let error = RpcError::new(Code::Storage, format!("the last write of session {} failed", self.id));
                command.refuse(error.hint("see whether the disk is full, and try again in a moment"));
            }
            Command::Prompt(prompt, key, by, reply) => self.prompt(prompt, key, by, reply).await,
            Command::Compact(compact, key, by, reply) => self.compact(compact, key, by, reply).await,
            Command::Cancel(asked) => self.cancel(asked).await,
            Command::Continue(asked) => self.resume(asked).await,
            Command::Configured => self.configured(),
            Command::Set(set, asked) => self.set(set, asked).await,
            Command::Answer(answer, by, asked) => self.answer(answer, by, asked).await,
            Command::Ask(question, reply) => self.ask_question(question, reply),
            Command::Warn(code, text) => {
                let draft = self.in_turn(notice(Level::Warning, code, &text));
                self.append(vec![draft], Vec::new(), false, None);
            }
        }
    }

    /// What is stored is damaged, and trying again is no use: the next command for the session loads it, if that can be.
    fn give_up(self, mut commands: mpsc::UnboundedReceiver<Command>) {
        self.host.forget(&self.id);
        self.log.damaged();
        commands.close();
        let text = self.env.store.found.of(&self.id).unwrap_or_default();
        while let Ok(command) = commands.try_recv() {
            command.refuse(StoreError::damage(text.clone()).into());
        }
    }

    /// Answers what came after the end: nobody will, otherwise.
    fn refuse_rest(&self, mut commands: mpsc::UnboundedReceiver<Command>) {
        commands.close();
        while let Ok(command) = commands.try_recv() {
            command.refuse(RpcError::new(Code::UnknownSession, format!("session {} has ended", self.id)));
        }
    }

    fn turn_message(&mut self, message: TurnMessage) {
        match message {
            TurnMessage::Emit(drafts, sync, done) => {
                let turn = self.state.turn.as_ref().map(|turn| turn.id.clone());
                let withdrawn = |draft: &Draft| self.withdrawn_before(&draft.body).into_iter().map(Draft::new);
                let drafts = drafts.into_iter().flat_map(|draft| withdrawn(&draft).chain([draft]));
                let drafts = drafts.map(|draft| Draft { turn: turn.clone(), ..draft }).collect();
                self.append(drafts, Vec::new(), sync, done);
            }
            TurnMessage::Message(body, reply, done) => {
                let draft = self.in_turn(*body);
                let named = self.append(vec![draft], Vec::new(), false, done).pop().and_then(message_of);
                // A turn that was stopped does not wait for the answer.
                if let Some(named) = named {
                    let _gone = reply.send(named);
                }
            }
            TurnMessage::Interrupted(model, reply) => {
                // As above.
                let _gone = reply.send(self.interrupted(model));
            }
            TurnMessage::Pieces(fragments, done) => self.pieces(fragments, done),
            TurnMessage::Counted(usage) => self.counted = usage,
            TurnMessage::Permit(permit) => self.permit(*permit),
            TurnMessage::Ask(question, reply) => self.ask_question(question, reply),
            TurnMessage::Boundary(ending, reply) => self.boundary_or_hold(ending, reply),
            TurnMessage::Unreadable(why) => self.offer(&why),
            TurnMessage::Read(past) => self.past = past.up_to(self.state.head),
            TurnMessage::Model(reply) => {
                // A turn that was stopped does not wait for the answer.
                let _gone = reply.send((self.state.model.clone(), self.state.setup.clone()));
            }
        }
    }
}

/// Answers a command; whoever asked may have gone.
fn respond<T>(reply: Reply<T>, result: Result<T, RpcError>) {
    let _gone = reply.send(result);
}

/// Answers a command when what it did is committed.
fn respond_when<T: Send + 'static>(reply: Reply<T>, committed: oneshot::Receiver<Result<(), StoreError>>, value: T) {
    respond_holding(reply, committed, value, ());
}

/// As [`respond_when`]; `held` is dropped then.
fn respond_holding<T: Send + 'static>(
    reply: Reply<T>,
    committed: oneshot::Receiver<Result<(), StoreError>>,
    value: T,
    held: impl Send + 'static,
) {
    tokio::spawn(async move {
        let result = committed.await.unwrap_or_else(|_| Err(StoreError("the store has ended".into())));
        drop(held);
        respond(reply, result.map(|()| value).map_err(RpcError::from));
    });
}

/// Answers whoever has cancelled a turn.
fn respond_all(replies: Vec<Reply<()>>, committed: oneshot::Receiver<Result<(), StoreError>>) {
    if replies.is_empty() {
        return;
    }
    tokio::spawn(async move {
        let result = committed.await.unwrap_or_else(|_| Err(StoreError("the store has ended".into())));
        let late = |error| RpcError::from(error).hint(CANCELLED_LATER);
        replies.into_iter().for_each(|reply| respond(reply, result.clone().map_err(late)));
    });
}

/// What becomes of a cancel that cannot be written down.
const CANCELLED_LATER: &str = "nothing of the turn runs; it is cancelled as soon as something can be written";
