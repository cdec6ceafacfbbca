//! The actor: one task that owns all state of a session; everything else sends it a [`Command`].
//!
//! [`Wake`] lists everything that can wake it. The turn runs as its child and talks back only with [`TurnMessage`]s, so that
//! the mailbox answers while a model streams. Cancel, interrupt and crash are one mechanism: the child is gone, and open items are
//! closed from the state ([`crate::session::state::recovery`]); a turn can restart at any point of its log.
//! The actor never waits for the disk: it numbers an event, folds it and queues it at the store, and the commit answers the
//! request. If a write fails, it restarts from the stored state.

mod attention;
mod background;
mod bin;
mod checkpoints;
mod children;
mod dispatch;
mod hooks;
mod lasting;
mod limit;
mod moving;
mod places;
mod plan;
mod prompts;
mod questions;
mod record;
mod reply;
mod requests;
mod running;
mod storage;
#[cfg(test)]
mod tests;
mod titles;
mod tree;
mod turns;
mod unattended;
mod undo;
mod worktree;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::checkpoint::Checkpoint;
use linger_protocol::error::Code;
use linger_protocol::event::{Event, EventBody, Level, NoticeCode};
use linger_protocol::id::{BackgroundId, CallId, Cursor, MessageId, PromptId, QuestionId, SessionId, TurnId};
use linger_protocol::message::{AnswerEnd, ContentBlock, Role, StopReason, Usage};
use linger_protocol::permission::Decision;
use linger_protocol::question::PendingQuestion;
use linger_protocol::session::{self, Environment, Prompted, When};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::fault;
use crate::log::cursor::Position;
use crate::log::{Log, OpenStream, Piece, PieceKind, Stored};
use crate::mcp::sessions::Loaded;
use crate::provider::catalogue::Resolved;
use crate::question::permission::{Verdict, grant_everywhere};
use crate::session::Draft;
use crate::session::context::Past;
use crate::session::env::queued_bytes::{MAX_TOTAL, Share};
use crate::session::env::{Env, Host};
use crate::session::messages::*;
use crate::session::reading::subscription;
use crate::session::state::recovery;
use crate::session::state::{Queued, Resolution, State};
use crate::session::turn;
use crate::session::turn::title::Titled;
use crate::store::damage::KnownDamage;
use crate::store::idempotency::{Key, Outcome};
use crate::store::{Append, Fold, SessionRow, StoreError};
use crate::sys::clock::{self, DAY_MS};
use crate::sys::disk;
use crate::tool::Workspace;
use crate::tool::background::{Jobs, Report};

use dispatch::ENDED_BY_USER;
use places::PlaceQueue;
pub use questions::answered_before;
pub use record::{blob_fold, environment, idle_effort, question_fold, spent, stored, unknown_model};
use record::{message_of, missing_variables, notice};
use reply::{CANCELLED_LATER, respond_all, respond_holding, respond_when, settled};
pub use requests::add_directories;
use running::RunningTurn;
use storage::known;
pub use undo::uncertain_changes;

/// How long a stopped turn may take before it is abandoned. Its processes are killed immediately.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// A write that fails within this time after another continues its backoff, because the disk is nearly full.
const CALM: Duration = Duration::from_secs(60);

/// How many outcomes of keyed requests are remembered until their commit; beyond that the actor waits for it.
const REMEMBERED: usize = 64;

/// The most rules that answers may add to one session: each call checks them, and each event stores them.
const MAX_GRANTS: usize = 256;
const MAX_GRANT: usize = 8 << 10;

/// The most queued prompts of one session; a user types a handful, a script should wait for answers.
const MAX_QUEUED: usize = 256;

/// The most bytes of queued prompts in one session: two of the largest requests.
const MAX_QUEUED_BYTES: usize = 2 * linger_protocol::transport::MAX_REQUEST;

enum Wake {
    Command(Option<Box<Command>>),
    Turn(Option<Box<TurnMessage>>),
    Job(Box<Report>),
    /// The time of a question has passed.
    Unanswered,
    /// A model was asked for a title.
    Titled(Option<Titled>),
    /// A checkpoint was taken for a call that was cut off.
    Checkpoint(Option<Checkpoint>),
    /// Git is done.
    GitDone(Option<Box<worktree::GitDone>>),
    /// A person is to be notified.
    Attention,
    /// The last terminal of a person has left.
    Left,
    Stopped,
    Idle,
    /// A write failed without a waiting request.
    Broken,
    Resync,
}

enum Phase {
    Idle,
    Running(Box<RunningTurn>),
    /// Git works for the session; no turn begins until it is done.
    Git(Box<worktree::GitPhase>),
    /// The child was told to stop; what to do afterwards.
    Stopping(JoinHandle<()>, Then),
    /// A write failed; the last wait, the time of the next try, and git if it works meanwhile: its end is recorded then.
    Failed(Duration, Instant, Option<Box<worktree::GitPhase>>),
}

impl Phase {
    /// Whether another failed write makes no difference.
    fn ends_or_failed(&self) -> bool {
        matches!(self, Self::Failed(..) | Self::Stopping(_, Then::Remove(_) | Then::Pause(_)))
    }
}

enum Then {
    /// The turn ends as cancelled.
    Cancel(Vec<KeyedReply>),
    /// The turn continues with the interrupting prompts.
    Interrupt,
    Remove(Vec<KeyedReply>),
    Pause(oneshot::Sender<()>),
}

/// The actor of one session.
pub struct Actor {
    id: SessionId,
    env: Arc<Env>,
    host: Arc<dyn Host>,
    log: Arc<Log>,
    state: State,
    workspace: Arc<Workspace>,
    phase: Phase,
    /// Requests that are being prepared, and what waits for them.
    places: PlaceQueue,
    recorded: record::Recorded,
    writes: storage::Writes,
    askers: questions::Askers,
    last_merge: worktree::LastMerge,
    deadlines: unattended::Deadlines,
    attendance: attention::Attendance,
    hooks: hooks::RunningHooks,
    titles: titles::Titles,
    checkpoints: checkpoints::ClosingCheckpoint,
    background: background::BackgroundJobs,
    /// Keeps the MCP servers that a client brought.
    servers: requests::ClientServers,
    followers: children::Followers,
}

/// A session that is to be created.
pub struct NewSession<'a> {
    /// Its id, which no session had before.
    pub id: SessionId,
    /// The variables of its tools.
    pub variables: &'a BTreeMap<String, String>,
    /// Where its tools work.
    pub workspace: Arc<Workspace>,
    /// The outcome of the request, if that has a key.
    pub outcome: Option<Fold>,
}

/// Clears the "cannot write" report of a session when its actor ends.
struct ClearUnwritten {
    found: KnownDamage,
    id: SessionId,
}

impl Drop for ClearUnwritten {
    fn drop(&mut self) {
        self.found.written(&self.id);
    }
}

impl Actor {
    /// Loads the actor of a stored session.
    pub async fn load(env: Arc<Env>, host: Arc<dyn Host>, row: SessionRow) -> Result<Self, StoreError> {
        fault::point("actor.load");
        let id = row.id.clone();
        let (state, variables) = known(&env.store, row).await?;
        if let (Some(parent), true) = (&state.identity.parent, state.task.delegated.is_some()) {
            env.workspaces.share_secrets(&id, parent);
        }
        // The daemon's own log has no directory.
        let cwd = if id.is_daemon() { Path::new("/") } else { &state.identity.cwd };
        let (limit, bound_by) = (disk::SHORT_TIMEOUT, state.task.bound_by());
        let mut workspace = env.workspaces.workspace_within(&id, cwd, variables, limit, bound_by).await;
        workspace.notes.is_child = state.identity.parent.is_some();
        let workspace = Arc::new(workspace);
        if !id.is_daemon() {
            // Its tools are those of before.
            env.read_workspace(&workspace).await;
            env.workspaces.watch_files(&workspace);
        }
        let log = Log::new(id.clone(), state.progress.head, Vec::new());
        workspace.added.set(&state.settings.directories);
        let mut actor = Self::new(env, host, log, state, workspace);
        actor.configure_servers();
        actor.keep_within_parent().await?;
        if let Err(error) = actor.finish_undo().await {
            tracing::warn!(target: "session", session = %actor.id, %error, "an undo cannot be ended");
        }
        actor.recover(recovery::Cause::Restart(actor.env.config.after_restart())).await?;
        actor.follow_children();
        actor.start_checkpoint();
        Ok(actor)
    }

    /// Creates the actor of a new session and queues its first events; `done` gets the result of the commit.
    pub fn create(
        env: Arc<Env>,
        host: Arc<dyn Host>,
        new: NewSession<'_>,
        events: Vec<EventBody>,
        done: oneshot::Sender<Result<(), StoreError>>,
    ) -> Self {
        let NewSession { id, variables, workspace, outcome } = new;
        let log = Log::new(id.clone(), 0, Vec::new());
        let mut actor = Self::new(env, host, log, State::default(), workspace);
        let folds = std::iter::once(environment(variables)).chain(outcome).collect();
        fault::point("actor.create");
        actor.append(events.into_iter().map(Draft::new).collect(), folds, true, Some(done));
        actor
    }

    fn new(env: Arc<Env>, host: Arc<dyn Host>, log: Arc<Log>, state: State, workspace: Arc<Workspace>) -> Self {
        let id = log.session.clone();
        let recorded = record::Recorded::new(env.queued_bytes.share());
        Self {
            id,
            env,
            host,
            log,
            state,
            workspace,
            phase: Phase::Idle,
            places: PlaceQueue::default(),
            recorded,
            writes: storage::Writes::default(),
            askers: questions::Askers::default(),
            last_merge: worktree::LastMerge::default(),
            deadlines: unattended::Deadlines::default(),
            attendance: attention::Attendance::default(),
            hooks: hooks::RunningHooks::default(),
            titles: titles::Titles::default(),
            checkpoints: checkpoints::ClosingCheckpoint::default(),
            background: background::BackgroundJobs::default(),
            servers: requests::ClientServers::default(),
            followers: children::Followers::default(),
        }
    }

    /// Runs until the session is removed, unloaded or the daemon ends.
    /// `first`: a command before those in the mailbox. In a box, because a future keeps the place of an argument that is moved.
    pub async fn run(mut self: Box<Self>, first: Option<Box<Command>>, mut commands: Commands) {
        let _clear = ClearUnwritten { found: self.env.store.found.clone(), id: self.id.clone() };
        if let Some(command) = first {
            self.take(command).await;
        }
        loop {
            self.take_waiting().await;
            let wake = self.next_wake(&mut commands).await;
            if self.log.failed() && !self.phase.ends_or_failed() {
                self.fail();
                match wake {
                    Wake::Command(Some(_)) => {}
                    Wake::GitDone(result) => {
                        self.keep_git_result(result);
                        continue;
                    }
                    // Other wake-ups belong to the turn that was just dropped.
                    _ => continue,
                }
            }
            match wake {
                Wake::Command(Some(command)) => self.take(command).await,
                Wake::Command(None) => return,
                Wake::Turn(Some(message)) => self.turn_message(*message),
                Wake::Turn(None) => self.turn_vanished(),
                Wake::Job(report) => self.job_report(*report),
                Wake::Unanswered => self.deny_unanswered(),
                Wake::Titled(titled) => self.titled(titled),
                Wake::Checkpoint(taken) => self.checkpoint_taken(taken),
                Wake::GitDone(result) if matches!(self.phase, Phase::Failed(..)) => {
                    self.keep_git_result(result);
                    self.resync(false).await;
                }
                Wake::GitDone(result) => Box::pin(self.git_done(result.map(|result| *result))).await,
                Wake::Attention => self.notify_of_questions(),
                Wake::Left => self.person_left(),
                Wake::Stopped => {
                    if self.stopped().await {
                        return self.refuse_rest(commands);
                    }
                }
                Wake::Idle => {
                    // The next load reads from the store, so everything must be committed.
                    if self.barrier().await.is_ok() && self.host.unload(&self.id, &self.log, &commands) {
                        fault::point("actor.unload");
                        tracing::debug!(target: "session", session = %self.id, "unloaded");
                        return;
                    }
                }
                Wake::Resync if self.env.store.found.of(&self.id).is_some() => return self.give_up(commands),
                Wake::Resync => self.resync(false).await,
                // Handled above.
                Wake::Broken => {}
            }
        }
    }

    async fn next_wake(&mut self, commands: &mut Commands) -> Wake {
        let deadline = self.next_deadline();
        let (due, attended) = (self.attention_due(), self.attendance.has_person());
        let may_unload = self.askers.is_empty()
            && self.background.running() == 0
            && self.state.children.under_way.is_empty()
            && self.places.is_empty()
            && due.is_none()
            && self.titles.is_idle()
            && self.checkpoints.is_idle();
        match &mut self.phase {
            Phase::Running(running) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                message = running.next() => Wake::Turn(message),
                Some(report) = self.background.next() => Wake::Job(report),
                titled = self.titles.next() => Wake::Titled(titled),
                taken = self.checkpoints.next() => Wake::Checkpoint(taken),
                () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => Wake::Unanswered,
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Wake::Attention,
                () = self.log.unattended(), if attended => Wake::Left,
                // A turn that waits for a permission does not notice that its question was never stored.
                () = self.log.broken() => Wake::Broken,
            },
            Phase::Git(git) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                result = git.next() => Wake::GitDone(result),
                Some(report) = self.background.next() => Wake::Job(report),
                titled = self.titles.next() => Wake::Titled(titled),
                taken = self.checkpoints.next() => Wake::Checkpoint(taken),
                () = self.log.unattended(), if attended => Wake::Left,
                () = self.log.broken() => Wake::Broken,
            },
            Phase::Stopping(task, _) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                _ = tokio::time::timeout(STOP_GRACE, task) => Wake::Stopped,
            },
            Phase::Failed(_, until, None) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                () = tokio::time::sleep_until(*until) => Wake::Resync,
            },
            // Nothing begins before git is done.
            Phase::Failed(_, until, Some(git)) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                result = async { tokio::time::sleep_until(*until).await; git.next().await } => Wake::GitDone(result),
            },
            // A session with readers is not unloaded and has no timer.
            Phase::Idle => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                Some(report) = self.background.next() => Wake::Job(report),
                titled = self.titles.next() => Wake::Titled(titled),
                taken = self.checkpoints.next() => Wake::Checkpoint(taken),
                () = async { self.log.unwatched().await; tokio::time::sleep(self.env.config.idle_unload()).await },
                    if may_unload => Wake::Idle,
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Wake::Attention,
                () = self.log.unattended(), if attended => Wake::Left,
                () = self.log.broken() => Wake::Broken,
            },
        }
    }

    /// Ends the actor, because the stored session is damaged. The next command tries to load it again.
    fn give_up(mut self, mut commands: Commands) {
        self.host.forget(&self.id);
        self.log.damaged();
        commands.close();
        let text = self.env.store.found.of(&self.id).unwrap_or_default();
        let error = RpcError::from(StoreError::damage(text));
        self.places.refuse_all(&error);
        while let Ok(command) = commands.try_recv() {
            command.refuse(error.clone());
        }
    }

    /// Refuses the commands that arrived after the end.
    fn refuse_rest(&mut self, mut commands: Commands) {
        commands.close();
        let error = RpcError::new(Code::UnknownSession, format!("session {} has ended", self.id));
        self.places.refuse_all(&error);
        while let Ok(command) = commands.try_recv() {
            command.refuse(error.clone());
        }
    }
}
