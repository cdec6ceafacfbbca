//! The actor: one task that owns all state of a session; everything else sends it a [`Command`].
//!
//! [`Wake`] lists everything that can wake it. The turn runs as its child and talks back only with [`TurnMessage`]s, so that
//! the mailbox answers while a model streams. Cancel, interrupt and crash are one mechanism: the child is gone, and open items are
//! closed from the state ([`super::recovery`]); a turn can restart at any point of its log.
//! The actor never waits for the disk: it numbers an event, folds it and queues it at the store, and the commit answers the
//! request. If a write fails, it restarts from the stored state.

mod attention;
mod background;
mod bin;
mod checkpoints;
mod children;
mod hooks;
mod lasting;
mod limit;
mod messages;
mod plan;
mod prompts;
mod questions;
mod record;
mod requests;
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

use super::env::{Env, Host};
use super::queued_bytes::{MAX_TOTAL, Share};
use super::state::{Queued, Resolution, State};
use super::title::Titled;
use super::{Draft, recovery, subscription, turn};
use crate::fault;
use crate::log::cursor::Position;
use crate::log::{Log, OpenStream, Piece, PieceKind, Stored};
use crate::mcp::sessions::Loaded;
use crate::provider::catalogue::Resolved;
use crate::question::permission::{Verdict, grant_everywhere};
use crate::store::damage::Found;
use crate::store::idempotency::{Key, Outcome};
use crate::store::{Append, Fold, SessionRow, StoreError};
use crate::sys::clock::{self, DAY_MS};
use crate::sys::disk;
use crate::tool::Workspace;
use crate::tool::background::{Jobs, Report};

pub use messages::{
    AnswerLimit, AttachPoint, Author, CallBasis, Command, Commands, Ending, Fragment, KeyedReply, Mailbox, Named,
    NextStep, PermissionAnswer, PermissionRequest, Reply, Stale, TurnMessage, Wanted,
};
pub use questions::answered_before;
pub use record::{blob_fold, environment, idle_effort, question_fold, spent, stored, unknown_model};
use record::{message_of, missing_variables, notice};
pub use requests::add_directories;
use storage::known;
pub use tree::GoBack;
use worktree::AskedPrompt;
pub use worktree::MergeWork;

/// How long a stopped turn may take before it is abandoned. Its processes are killed immediately.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// The first and the longest wait before retrying after a failed write.
pub const WRITE_RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

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
    Turn(Option<TurnMessage>),
    Job(Report),
    /// The time of a question has passed.
    Unanswered,
    /// A model was asked for a title.
    Titled(Option<Titled>),
    /// A checkpoint was taken for a call that was cut off.
    Checkpoint(Option<Checkpoint>),
    /// Git is done.
    Worked(Option<Box<worktree::Worked>>),
    /// A person is to be notified.
    Attention,
    /// The last terminal of a person has left.
    Left,
    Stopped,
    Idle,
    /// A write failed without a waiting request.
    Broken,
    Mend,
}

enum Phase {
    Idle,
    Running(Box<Running>),
    /// Git works for the session; no turn begins until it is done.
    Git(Box<worktree::AtGit>),
    /// The child was told to stop; what to do afterwards.
    Stopping(JoinHandle<()>, Then),
    /// A write failed; the last wait, the time of the next try, and git if it works meanwhile: its end is recorded then.
    Failed(Duration, Instant, Option<Box<worktree::AtGit>>),
}

impl Phase {
    /// Whether another failed write makes no difference.
    fn ends_or_failed(&self) -> bool {
        matches!(self, Self::Failed(..) | Self::Stopping(_, Then::Remove(_) | Then::Pause(_)))
    }
}

struct Running {
    task: JoinHandle<()>,
    messages: mpsc::UnboundedReceiver<TurnMessage>,
    /// Ends its wait for a provider that cannot answer.
    nudge: Arc<Notify>,
    /// Calls that wait for a decision.
    waiting: HashMap<QuestionId, PermissionRequest>,
    /// Calls that make a child, of which nothing is recorded yet.
    delegating: HashSet<CallId>,
    /// The boundary that a question holds back.
    held: Option<(Option<Ending>, oneshot::Sender<NextStep>)>,
}

enum Then {
    /// The turn ends as cancelled; true if a prompt arrived since, so that the next turn starts immediately.
    Cancel(Vec<KeyedReply>, bool),
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
    /// The usage of the streaming answer; not stored, so a crash loses it.
    counted: Option<Usage>,
    /// This session's share of the bound on queued prompts.
    waits: Share,
    /// Reply channels of questions that are not permissions; after a restart only of those asked again.
    askers: HashMap<QuestionId, Vec<Reply<Resolution>>>,
    /// Results of open calls, until all have one and become a message.
    results: HashMap<CallId, ContentBlock>,
    workspace: Arc<Workspace>,
    /// The history, if short and known.
    past: turn::Past,
    phase: Phase,
    /// Outcomes that may not be committed yet.
    remembered: Vec<Outcome>,
    /// The wait after the last failed write, and the time when writing worked again.
    mended: Option<(Duration, Instant)>,
    /// A cancelled turn whose end could not be written yet; it does not run.
    cancelled: Option<Cancelled>,
    /// The last merge, whose event may not be written yet.
    last_merge: Option<Box<worktree::LastMerge>>,
    /// When open questions are denied.
    deadlines: unattended::Deadlines,
    /// Notifications of people.
    attending: attention::Attending,
    /// The hooks that hold up nothing; they end with the actor.
    hooks: JoinSet<()>,
    /// The request for a title; it ends with the actor.
    titles: JoinSet<Option<Titled>>,
    /// The checkpoint after a call that was cut off; it ends with the actor.
    checkpoints: JoinSet<Checkpoint>,
    /// The first prompt, while its turn runs: what the title is of.
    first_prompt: Option<String>,
    /// The commands in the background; they end with the actor.
    jobs: Jobs,
    /// Keeps the MCP servers that a client brought.
    servers: Option<Loaded>,
    /// What follows children.
    followers: children::Followers,
    /// What they report.
    reports: mpsc::UnboundedReceiver<Report>,
}

/// Clears the "cannot write" report of a session when its actor ends.
struct ClearUnwritten {
    found: Found,
    id: SessionId,
}

impl Drop for ClearUnwritten {
    fn drop(&mut self) {
        self.found.written(&self.id);
    }
}

/// A turn that a user has cancelled.
#[derive(Default)]
struct Cancelled {
    /// The turn; if absent, the unfinished turn in the store.
    turn: Option<TurnId>,
    /// Keys of the cancel requests.
    keys: Vec<Key>,
}

impl Actor {
    /// Loads the actor of a stored session.
    pub async fn load(env: Arc<Env>, host: Arc<dyn Host>, row: SessionRow) -> Result<Self, StoreError> {
        fault::point("actor.load");
        let id = row.id.clone();
        let (state, variables) = known(&env.store, row).await?;
        if let (Some(parent), true) = (&state.parent, state.delegated.is_some()) {
            env.share_secrets(&id, parent);
        }
        // The daemon's own log has no directory.
        let cwd = if id.is_daemon() { Path::new("/") } else { &state.cwd };
        let within = (disk::SHORT_TIMEOUT, state.bound_by());
        let mut workspace = env.workspace_within(&id, cwd, variables, within).await;
        workspace.notes.is_child = state.parent.is_some();
        let workspace = Arc::new(workspace);
        if !id.is_daemon() {
            // Its tools are those of before.
            env.read_workspace(&workspace).await;
            env.watch_files(&workspace);
        }
        let log = Log::new(id.clone(), state.head, Vec::new());
        workspace.added.set(&state.directories);
        let mut actor = Self::new(id, (env, host), log, state, workspace);
        actor.configure_servers();
        actor.keep_within_parent().await?;
        if let Err(error) = actor.finish_undo().await {
            tracing::warn!(target: "session", session = %actor.id, %error, "an undo cannot be ended");
        }
        actor.take_up(recovery::Cause::Restart(actor.env.config.after_restart())).await?;
        actor.tend_children();
        actor.tend_checkpoint();
        Ok(actor)
    }

    /// Creates the actor of a new session and queues its first events; `done` gets the result of the commit.
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
        let waits = env.queued_bytes.share();
        let (jobs, reports) = Jobs::new();
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
            last_merge: None,
            deadlines: unattended::Deadlines::default(),
            attending: attention::Attending::default(),
            hooks: JoinSet::new(),
            titles: JoinSet::new(),
            checkpoints: JoinSet::new(),
            first_prompt: None,
            jobs,
            servers: None,
            followers: children::Followers::default(),
            reports,
        }
    }

    /// Runs until the session is removed, unloaded or the daemon ends.
    /// `first`: a command before those in the mailbox.
    pub async fn run(mut self, first: Option<Box<Command>>, mut commands: Commands) {
        let _clear = ClearUnwritten { found: self.env.store.found.clone(), id: self.id.clone() };
        if let Some(command) = first {
            self.boxed_command(*command).await;
        }
        loop {
            let wake = self.next_wake(&mut commands).await;
            if self.log.failed() && !self.phase.ends_or_failed() {
                self.fail();
                match wake {
                    Wake::Command(Some(_)) => {}
                    Wake::Worked(worked) => {
                        self.keep_worked(worked);
                        continue;
                    }
                    // Other wake-ups belong to the turn that was just dropped.
                    _ => continue,
                }
            }
            match wake {
                Wake::Command(Some(command)) => self.boxed_command(*command).await,
                Wake::Command(None) => return,
                Wake::Turn(Some(message)) => self.turn_message(message),
                Wake::Turn(None) => self.turn_vanished(),
                Wake::Job(report) => self.job_report(report),
                Wake::Unanswered => self.deny_unanswered(),
                Wake::Titled(titled) => self.titled(titled),
                Wake::Checkpoint(taken) => self.checkpoint_taken(taken),
                Wake::Worked(worked) if matches!(self.phase, Phase::Failed(..)) => {
                    self.keep_worked(worked);
                    self.mend(false).await;
                }
                Wake::Worked(worked) => Box::pin(self.worked(worked.map(|worked| *worked))).await,
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
                Wake::Mend if self.env.store.found.of(&self.id).is_some() => return self.give_up(commands),
                Wake::Mend => self.mend(false).await,
                // Handled above.
                Wake::Broken => {}
            }
        }
    }

    async fn next_wake(&mut self, commands: &mut Commands) -> Wake {
        let deadline = self.next_deadline();
        let (due, attended) = (self.attention_due(), self.attending.attended);
        let may_unload = self.askers.is_empty()
            && self.jobs.running() == 0
            && self.state.children.is_empty()
            && due.is_none()
            && self.titles.is_empty()
            && self.checkpoints.is_empty();
        match &mut self.phase {
            Phase::Running(running) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                message = running.messages.recv() => Wake::Turn(message),
                Some(report) = self.reports.recv() => Wake::Job(report),
                Some(titled) = self.titles.join_next() => Wake::Titled(titled.ok().flatten()),
                Some(taken) = self.checkpoints.join_next() => Wake::Checkpoint(taken.ok()),
                () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => Wake::Unanswered,
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Wake::Attention,
                () = self.log.unattended(), if attended => Wake::Left,
                // A turn that waits for a permission does not notice that its question was never stored.
                () = self.log.broken() => Wake::Broken,
            },
            Phase::Git(at_git) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                worked = &mut at_git.worked => Wake::Worked(worked.ok().map(Box::new)),
                Some(report) = self.reports.recv() => Wake::Job(report),
                Some(titled) = self.titles.join_next() => Wake::Titled(titled.ok().flatten()),
                Some(taken) = self.checkpoints.join_next() => Wake::Checkpoint(taken.ok()),
                () = self.log.unattended(), if attended => Wake::Left,
                () = self.log.broken() => Wake::Broken,
            },
            Phase::Stopping(task, _) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                _ = tokio::time::timeout(STOP_GRACE, task) => Wake::Stopped,
            },
            Phase::Failed(_, until, None) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                () = tokio::time::sleep_until(*until) => Wake::Mend,
            },
            // Nothing begins before git is done.
            Phase::Failed(_, until, Some(at_git)) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                worked = async { tokio::time::sleep_until(*until).await; (&mut at_git.worked).await } =>
                    Wake::Worked(worked.ok().map(Box::new)),
            },
            // A session with readers is not unloaded and has no timer.
            Phase::Idle => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                Some(report) = self.reports.recv() => Wake::Job(report),
                Some(titled) = self.titles.join_next() => Wake::Titled(titled.ok().flatten()),
                Some(taken) = self.checkpoints.join_next() => Wake::Checkpoint(taken.ok()),
                () = async { self.log.unwatched().await; tokio::time::sleep(self.env.config.idle_unload()).await },
                    if may_unload => Wake::Idle,
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Wake::Attention,
                () = self.log.unattended(), if attended => Wake::Left,
                () = self.log.broken() => Wake::Broken,
            },
        }
    }

    /// Boxed, as the largest command would otherwise take its room in each idle session.
    fn boxed_command(&mut self, command: Command) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.command(command))
    }

    async fn command(&mut self, command: Command) {
        let command = match command {
            Command::Cancel(background, asked) if matches!(self.phase, Phase::Failed(..)) => {
                if background {
                    self.jobs.kill_all(ENDED_BY_USER);
                }
                return self.cancel_later(asked).await;
            }
            command if self.id.is_daemon() && !command.is_for_daemon() => {
                let error = RpcError::new(Code::UnknownSession, format!("there is no session '{}'", self.id));
                return command.refuse(error.hint("it is the daemon's own log; you can only attach to it"));
            }
            command => command,
        };
        if self.may_be_mended() && !matches!(command, Command::Attach(..) | Command::Pause(_)) {
            self.mend(true).await;
        }
        match command {
            Command::Attach(after, person, env, reply) => respond(reply, self.attach(after, person, &env).await),
            Command::Environment(reply) => respond(reply, Ok(self.environment())),
            Command::CallBasis(reply) => respond(reply, Ok(self.call_basis())),
            Command::Pause(done) => self.pause(done).await,
            Command::Remove(force, asked) => self.remove(force, asked).await,
            Command::Prune(before, force, reply) => self.prune(before, force, reply).await,
            command if matches!(self.phase, Phase::Failed(..)) => {
                command.refuse(self.unwritten());
            }
            command if self.state.binned_at.is_some() && !command.is_for_binned() => {
                let error = RpcError::new(Code::Binned, format!("session {} is in the bin", self.id));
                command.refuse(error.hint(format!("`linger restore {}` takes it out", self.id)));
            }
            Command::Bin(asked) => self.bin(asked).await,
            Command::Restore(key, reply) => self.take_out(key, reply).await,
            Command::Unqueue(prompt, key, by, reply) => self.unqueue(prompt, key, by, reply).await,
            Command::Prompt(prompt, named, key, by, reply) => {
                self.prompt(AskedPrompt { prompt, named, key, by, reply }).await;
            }
            Command::Compact(compact, key, by, reply) => self.compact(compact, key, by, reply).await,
            Command::Cancel(background, asked) => self.cancel(background, asked).await,
            Command::Continue(asked) => self.resume(asked).await,
            Command::Configured => self.configured(),
            Command::GoBack(back, key, by, reply) => self.go_back(*back, key, by, reply).await,
            Command::Uncompact(taken, head, key, by, reply) => self.uncompact((taken, head), key, by, reply).await,
            Command::Diff(asked, reply) => self.diff(asked, reply),
            Command::TidyWorktree(reply) => self.tidy_worktree(reply),
            Command::CommitWorktree(reply) => self.commit_worktree(reply),
            Command::WorktreeIs(status, reply) => self.note_worktree(status, reply),
            Command::Merge(work, key, by, reply) => self.merge(*work, key, by, reply).await,
            Command::Undo(undo, key, by, reply) => self.undo(undo, key, by, reply).await,
            Command::Redo(redo, key, by, reply) => self.redo(redo, key, by, reply).await,
            Command::Set(set, asked) => self.set(set, asked).await,
            Command::Answer(answer, by, limit, asked) => self.answer(answer, by, limit, asked).await,
            Command::Ask(question, reply) => self.ask_question(*question, reply),
            Command::AskAbout(about, stale, asked, reply) => {
                self.ask_about(about, &stale, asked.map(|asked| *asked), reply)
            }
            Command::Confirmed(confirmed, reply) => self.config_confirmed(confirmed, reply),
            Command::Child(report, reply) => self.child_report(*report, reply),
            Command::FilesChanged(root, text) => {
                if root.is_none_or(|root| root == self.workspace.rules_root()) {
                    let draft = self.in_turn(notice(Level::Info, NoticeCode::Files, &text));
                    self.append(vec![draft], Vec::new(), false, None);
                }
            }
            Command::Warn(code, text) => {
                let draft = self.in_turn(notice(Level::Warning, code, &text));
                self.append(vec![draft], Vec::new(), false, None);
            }
        }
    }

    /// Ends the actor, because the stored session is damaged. The next command tries to load it again.
    fn give_up(self, mut commands: Commands) {
        self.host.forget(&self.id);
        self.log.damaged();
        commands.close();
        let text = self.env.store.found.of(&self.id).unwrap_or_default();
        while let Ok(command) = commands.try_recv() {
            command.refuse(StoreError::damage(text.clone()).into());
        }
    }

    /// Refuses the commands that arrived after the end.
    fn refuse_rest(&self, mut commands: Commands) {
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
                let drafts: Vec<Draft> = drafts.map(|draft| Draft { turn: turn.clone(), ..draft }).collect();
                let has_limit = |draft: &Draft| matches!(draft.body, EventBody::ToolStarted { limit: Some(_), .. });
                let is_limited = drafts.iter().any(has_limit);
                self.append(drafts, Vec::new(), sync, done);
                if is_limited {
                    // The skill may limit the calls that wait for an answer.
                    self.review();
                }
            }
            TurnMessage::Message(body, reply, done) => {
                let draft = self.in_turn(*body);
                let named = self.append(vec![draft], Vec::new(), false, done).pop().and_then(message_of);
                // A stopped turn does not wait for the reply.
                if let Some(named) = named {
                    let _gone = reply.send(named);
                }
            }
            TurnMessage::Interrupted(model, times, reply) => {
                // As above.
                let _gone = reply.send(self.interrupted(model, times));
            }
            TurnMessage::Pieces(fragments, done) => self.pieces(fragments, done),
            TurnMessage::Counted(usage) => self.counted = usage,
            TurnMessage::AskPermission(request) => self.request_permission(*request),
            TurnMessage::Ask(question, reply) => self.ask_question(*question, reply),
            TurnMessage::Boundary(ending, reply) => self.boundary_or_hold(ending, reply),
            TurnMessage::Check(reply) => self.check(reply),
            TurnMessage::Runs(reply) => self.runs(reply),
            TurnMessage::Unreadable(why) => self.offer(&why),
            TurnMessage::Read(past) => self.past = past.up_to(self.state.head),
            TurnMessage::FallBack(resolved, why) => self.fall_back(&resolved, &why),
            TurnMessage::Delegate(call, background, reply) => self.delegate(&call, background, reply),
            TurnMessage::Child(update, reply) => self.child_updated(*update, reply),
            TurnMessage::Model(reply) => {
                // A stopped turn does not wait for the reply.
                let _gone = reply.send((self.state.model.clone(), self.state.setup.clone()));
            }
        }
    }
}

/// Replies to a command; the caller may be gone.
fn respond<T>(reply: Reply<T>, result: Result<T, RpcError>) {
    let _gone = reply.send(result);
}

/// Replies once the effect of the command is committed.
fn respond_when<T: Send + 'static>(reply: Reply<T>, committed: oneshot::Receiver<Result<(), StoreError>>, value: T) {
    respond_holding(reply, committed, value, ());
}

/// As [`respond_when`]; drops `held` afterwards.
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

/// Replies to all cancel requests of a turn.
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

/// Why commands in the background ended that a user cancelled.
const ENDED_BY_USER: &str = "ended by the user";

/// The hint of a cancel that cannot be stored yet.
const CANCELLED_LATER: &str = "the turn has stopped; its cancellation is stored when writing works";
