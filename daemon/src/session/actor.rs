//! The actor: one task that owns all state of a session. Everybody else sends it a [`Command`].
//!
//! [`Wake`] lists everything that can wake it. The turn runs as its child and talks back only with [`TurnMessage`]s, so that
//! the mailbox answers while a model streams. Cancel, interrupt and a crash are one thing: the child is gone, and what it left
//! open is closed from the state ([`super::recovery`]); a turn can be started again at any point of its log.
//! The actor never waits for the disk: it numbers an event, folds it, queues it at the store, and whoever asked is answered by
//! the commit. If a write fails it starts anew from what is stored.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::event::{Event, EventBody, Level, NoticeCode};
use linger_protocol::id::{CallId, Cursor, MessageId, PermissionId, PromptId, SessionId, TurnId};
use linger_protocol::message::{ContentBlock, Role, StopReason};
use linger_protocol::permission::{self, Decision, Pending};
use linger_protocol::session::{self, Prompted, When};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::cursor::Position;
use super::log::{Log, OpenStream, Piece, Stored, push_piece};
use super::state::{Queued, State, state_name};
use super::{Draft, recovery, subscriber, turn};
use crate::clock;
use crate::daemon::Daemon;
use crate::permission::{CallInfo, Verdict};
use crate::store::{Append, Fold, SessionRow, StoreError};
use crate::tool::Workspace;

/// How long a turn that is being stopped may take to let go before it is left behind. Its processes are killed at once.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// After a failed write: the first wait before the next try, and the longest.
const MEND: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Results of keyed requests that are remembered here, for those whose commit is still queued; the rest is in the store.
const REMEMBERED: usize = 64;

/// Prompts that may wait in one session; a person types a handful, a script should look at the answers.
const MAX_QUEUED: usize = 256;

/// Where a command is answered.
pub type Reply<T> = oneshot::Sender<Result<T, RpcError>>;

/// What can be asked of a session.
pub enum Command {
    /// Where a reader begins.
    Attach(Option<Cursor>, Reply<(Arc<Log>, Position, Cursor)>),
    /// Something to do, and who asks.
    Prompt(session::Prompt, String, Reply<Prompted>),
    /// Stop the turn.
    Cancel(Reply<()>),
    /// Take up what was offered or held.
    Continue(Reply<()>),
    /// Change model, mode or name.
    Set(session::Set, Reply<()>),
    /// Decide a permission, and who decides.
    Answer(permission::Answer, String, Reply<()>),
    /// Delete the session; also while it works.
    Remove(bool, Reply<()>),
    /// The daemon ends.
    Pause(oneshot::Sender<()>),
}

impl Command {
    /// Answers with an error.
    pub fn refuse(self, error: RpcError) {
        match self {
            Self::Attach(_, reply) => respond(reply, Err(error)),
            Self::Prompt(_, _, reply) => respond(reply, Err(error)),
            Self::Cancel(reply) | Self::Continue(reply) | Self::Set(_, reply) | Self::Answer(_, _, reply) | Self::Remove(_, reply) => {
                respond(reply, Err(error));
            }
            Self::Pause(done) => drop(done),
        }
    }
}

/// What a turn tells its session.
pub enum TurnMessage {
    /// Events, whether they must be on disk, and who waits for them.
    Emit(Vec<Draft>, bool, Option<oneshot::Sender<Result<(), StoreError>>>),
    /// Pieces of open streams.
    Pieces(Vec<Piece>, oneshot::Sender<Result<(), StoreError>>),
    /// May this call run?
    Permit(Box<Permit>),
    /// Between two steps. With the reason if the turn would end here: it has ended if no prompts come back.
    Boundary(Option<(StopReason, Option<String>)>, oneshot::Sender<Next>),
}

/// What the next step begins with.
#[derive(Clone, Debug, Default)]
pub struct Next {
    /// Prompts that steer; their messages are in the log.
    pub prompts: Vec<Vec<ContentBlock>>,
    /// `provider/model` from now on.
    pub model: String,
}

/// A call that asks whether it may run.
pub struct Permit {
    /// The call.
    pub call_id: CallId,
    /// What the rules look at.
    pub info: CallInfo,
    /// What it does, for people.
    pub action: String,
    /// Its arguments.
    pub input: Value,
    /// Its hash.
    pub digest: String,
    /// Where the verdict goes; a call that needs a user waits for it.
    pub reply: oneshot::Sender<Permitted>,
}

/// Whether a call may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permitted {
    /// It may, if it has this digest.
    Yes(String),
    /// It may not; what the model is told.
    No(String),
}

enum Wake {
    Command(Option<Command>),
    Turn(Option<TurnMessage>),
    Stopped,
    Idle,
    Mend,
}

enum Phase {
    Idle,
    Running(Running),
    /// The child was told to stop; what comes then.
    Stopping(JoinHandle<()>, Then),
    /// A write failed; the next try comes after this.
    Failed(Duration),
}

struct Running {
    task: JoinHandle<()>,
    messages: mpsc::UnboundedReceiver<TurnMessage>,
    /// Calls that wait for a permission.
    waiting: HashMap<PermissionId, Permit>,
}

enum Then {
    /// The turn ends as cancelled.
    Cancel(Vec<Reply<()>>),
    /// The turn goes on with the prompts that interrupt it.
    Interrupt,
    Remove(Reply<()>),
    Pause(oneshot::Sender<()>),
}

/// The actor of one session.
pub struct Actor {
    id: SessionId,
    daemon: Arc<Daemon>,
    log: Arc<Log>,
    state: State,
    /// Text that was queued for streams which are open: what readers have or will have.
    streams: Vec<OpenStream>,
    /// Results of the open calls that have one, until all have and become a message.
    results: HashMap<CallId, ContentBlock>,
    workspace: Arc<Workspace>,
    phase: Phase,
    /// Keys of requests whose commit may still be queued, and what they came to.
    remembered: VecDeque<(String, String)>,
}

impl Actor {
    /// An actor for a session that is stored.
    pub async fn load(daemon: Arc<Daemon>, row: SessionRow) -> Result<Self, StoreError> {
        let SessionRow { id, fold, env } = row;
        let state: State = parse_state(&id, &fold)?;
        let workspace = Arc::new(daemon.workspace(&state.cwd, env));
        let log = Log::new(id.clone(), state.head, Vec::new());
        let mut actor = Self::new(id, daemon, log, state, workspace);
        actor.take_up().await?;
        Ok(actor)
    }

    /// An actor for a new session, whose first event is queued; `done` is answered when it is on disk.
    pub fn create(
        daemon: Arc<Daemon>,
        id: SessionId,
        created: EventBody,
        env: BTreeMap<String, String>,
        outcome: Option<Fold>,
        done: oneshot::Sender<Result<(), StoreError>>,
    ) -> Self {
        let log = Log::new(id.clone(), 0, Vec::new());
        let environment = Fold::Environment(serde_json::to_string(&env).unwrap_or_default());
        let cwd = match &created {
            EventBody::SessionCreated { cwd, .. } => cwd.clone(),
            _ => std::path::PathBuf::default(),
        };
        let workspace = Arc::new(daemon.workspace(&cwd, env));
        let mut actor = Self::new(id, daemon, log, State::default(), workspace);
        let folds = std::iter::once(environment).chain(outcome).collect();
        actor.append(vec![Draft::new(created)], folds, true, Some(done));
        actor
    }

    fn new(
        id: SessionId,
        daemon: Arc<Daemon>,
        log: Arc<Log>,
        state: State,
        workspace: Arc<Workspace>,
    ) -> Self {
        let (streams, results, remembered) = (Vec::new(), HashMap::new(), VecDeque::new());
        Self { id, daemon, log, state, streams, results, workspace, phase: Phase::Idle, remembered }
    }

    /// Runs until the session is removed, unloaded or the daemon ends.
    pub async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        loop {
            let wake = self.next_wake(&mut commands).await;
            if self.log.failed() && !matches!(self.phase, Phase::Failed(_)) {
                self.fail();
            }
            match wake {
                Wake::Command(Some(command)) => self.command(command).await,
                Wake::Command(None) => return,
                Wake::Turn(Some(message)) => self.turn_message(message),
                Wake::Turn(None) => self.turn_vanished(),
                Wake::Stopped => {
                    if self.stopped().await {
                        return;
                    }
                }
                Wake::Idle => {
                    if self.daemon.sessions.unload(&self.id, &self.log, &commands) {
                        tracing::debug!(target: "session", session = %self.id, "unloaded");
                        return;
                    }
                }
                Wake::Mend => self.mend().await,
            }
        }
    }

    async fn next_wake(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) -> Wake {
        match &mut self.phase {
            Phase::Running(running) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                message = running.messages.recv() => Wake::Turn(message),
            },
            Phase::Stopping(task, _) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                _ = tokio::time::timeout(STOP_GRACE, task) => Wake::Stopped,
            },
            Phase::Failed(wait) => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                () = tokio::time::sleep(*wait) => Wake::Mend,
            },
            // A session that is watched is not unloaded, and has no timer.
            Phase::Idle => tokio::select! {
                command = commands.recv() => Wake::Command(command),
                () = async { self.log.unwatched().await; tokio::time::sleep(self.daemon.idle_unload()).await } => Wake::Idle,
            },
        }
    }

    async fn command(&mut self, command: Command) {
        match command {
            Command::Attach(after, reply) => respond(reply, self.attach(after).await),
            Command::Prompt(prompt, by, reply) => self.prompt(prompt, by, reply).await,
            Command::Cancel(reply) => self.cancel(reply),
            Command::Continue(reply) => self.resume(reply),
            Command::Set(set, reply) => self.set(set, reply).await,
            Command::Answer(answer, by, reply) => self.answer(answer, by, reply).await,
            Command::Remove(force, reply) => self.remove(force, reply),
            Command::Pause(done) => self.stop(Then::Pause(done)),
        }
    }

    fn remove(&mut self, force: bool, reply: Reply<()>) {
        if self.state.turn.is_some() && !force {
            let busy = RpcError::new(Code::Busy, format!("session {} has a turn under way", self.id))
                .hint("cancel it first, or remove it by force");
            return respond(reply, Err(busy));
        }
        self.stop(Then::Remove(reply));
    }

    async fn attach(&mut self, after: Option<Cursor>) -> Result<(Arc<Log>, Position, Cursor), RpcError> {
        let head = Position::after(self.log.tail().head).cursor();
        let position = match &after {
            None => Position::default(),
            Some(cursor) => {
                let unknown = || {
                    RpcError::new(Code::UnknownCursor, format!("session {} never gave out the cursor '{cursor}'", self.id))
                        .hint("attach without a cursor to read from the beginning")
                };
                let position = Position::parse(cursor).ok_or_else(unknown)?;
                if !subscriber::known(&self.log, &self.daemon.store, &position).await? {
                    return Err(unknown());
                }
                position
            }
        };
        Ok((self.log.clone(), position, head))
    }

    async fn prompt(&mut self, prompt: session::Prompt, by: String, reply: Reply<Prompted>) {
        let key = prompt.key.map(|key| format!("session/prompt {} {key}", self.id));
        match self.outcome::<Prompted>(key.as_ref()).await {
            Ok(None) => {}
            Ok(Some(outcome)) => return respond(reply, Ok(outcome)),
            Err(error) => return respond(reply, Err(error)),
        }
        let content = prompt.content.into_blocks();
        if let Err(error) = self.may_prompt(&content) {
            return respond(reply, Err(error));
        }
        let id = PromptId(format!("p{}", self.state.counts.prompts + 1));
        let when = prompt.when.unwrap_or_default();
        let accepted = EventBody::PromptAccepted { prompt: id.clone(), content, when, by: Some(by) };
        let prompted = Prompted { prompt: id, seq: self.state.head + 1 };
        let outcome = self.remember(key, &prompted);
        let (done, committed) = oneshot::channel();
        self.append(vec![Draft::new(accepted)], outcome.into_iter().collect(), true, Some(done));
        respond_when(reply, committed, prompted);
        match (&self.phase, when) {
            (Phase::Running(_), When::Interrupt) => self.stop(Then::Interrupt),
            (Phase::Idle, _) if self.state.turn.is_some() => drop(self.take_up_offered()),
            (Phase::Idle, _) => self.start_next(true),
            _ => {}
        }
    }

    fn may_prompt(&self, content: &[ContentBlock]) -> Result<(), RpcError> {
        let good = |block: &ContentBlock| match block {
            ContentBlock::Text { text } => !text.trim().is_empty(),
            ContentBlock::Image { data, .. } => !data.is_empty(),
            _ => false,
        };
        if content.is_empty() || !content.iter().all(good) {
            return Err(RpcError::new(Code::BadPrompt, "a prompt is text or images, and not empty"));
        }
        if self.state.queue.len() >= MAX_QUEUED {
            return Err(RpcError::new(Code::TooMuch, format!("{MAX_QUEUED} prompts wait in session {} already", self.id))
                .hint("wait for its turns to end, or cancel"));
        }
        if !self.state.cwd.is_dir() {
            return Err(RpcError::new(Code::NoWorkspace, format!("the directory {} is gone", self.state.cwd.display()))
                .hint("make it again, or start a session in another directory"));
        }
        self.daemon.usable(&self.state.model)
    }

    fn cancel(&mut self, reply: Reply<()>) {
        match &mut self.phase {
            Phase::Stopping(_, Then::Cancel(replies)) => replies.push(reply),
            Phase::Stopping(_, then @ Then::Interrupt) => *then = Then::Cancel(vec![reply]),
            Phase::Running(_) => self.stop(Then::Cancel(vec![reply])),
            Phase::Idle if self.state.turn.is_some() => self.close_turn(vec![reply]),
            _ => {
                let idle = RpcError::new(Code::Idle, format!("session {} has no turn under way", self.id));
                respond(reply, Err(idle));
            }
        }
    }

    /// Takes up a turn that was offered, or prompts that were held.
    fn resume(&mut self, reply: Reply<()>) {
        if !matches!(self.phase, Phase::Idle) || (self.state.turn.is_none() && self.state.queue.is_empty()) {
            let idle = RpcError::new(Code::Idle, format!("session {} has nothing to continue", self.id));
            return respond(reply, Err(idle));
        }
        if let Err(error) = self.daemon.usable(&self.state.model) {
            return respond(reply, Err(error));
        }
        if self.state.turn.is_some() {
            respond_when(reply, self.take_up_offered(), ());
        } else {
            self.start_next(true);
            respond(reply, Ok(()));
        }
    }

    fn take_up_offered(&mut self) -> oneshot::Receiver<Result<(), StoreError>> {
        let notice = notice(Level::Info, NoticeCode::Continued, "the turn goes on");
        let (done, committed) = oneshot::channel();
        let drafts = recovery::supersede(&self.state).into_iter().chain([self.in_turn(notice)]).collect();
        self.append(drafts, Vec::new(), true, Some(done));
        self.spawn_turn();
        committed
    }

    async fn set(&mut self, set: session::Set, reply: Reply<()>) {
        let key = set.key.map(|key| format!("session/set {} {key}", self.id));
        match self.outcome::<()>(key.as_ref()).await {
            Ok(None) => {}
            Ok(Some(())) => return respond(reply, Ok(())),
            Err(error) => return respond(reply, Err(error)),
        }
        let model = match set.model.as_deref().map(|model| self.daemon.model(Some(model))).transpose() {
            Ok(model) => model,
            Err(error) => return respond(reply, Err(error)),
        };
        if let Some(name) = &set.name
            && let Err(error) = self.daemon.check_name(name, Some(&self.id)).await
        {
            return respond(reply, Err(error));
        }
        let outcome = self.remember(key, &());
        let changed = EventBody::SessionChanged { model, mode: set.mode, name: set.name, instructions: None };
        let (done, committed) = oneshot::channel();
        self.append(vec![Draft::new(changed)], outcome.into_iter().collect(), true, Some(done));
        respond_when(reply, committed, ());
        self.review();
    }

    async fn answer(&mut self, answer: permission::Answer, by: String, reply: Reply<()>) {
        let key = answer.key.as_ref().map(|key| format!("permission/answer {} {key}", answer.permission));
        match self.outcome::<()>(key.as_ref()).await {
            Ok(None) => {}
            Ok(Some(())) => return respond(reply, Ok(())),
            Err(error) => return respond(reply, Err(error)),
        }
        let asked = self.state.turn.iter().flat_map(|turn| &turn.calls).filter_map(|call| call.permission.as_ref());
        let Some(asked) = asked.into_iter().find(|asked| asked.id == answer.permission) else {
            // Its turn is over; what was decided then is in the store.
            let error = self.daemon.already_answered(&answer.permission).await;
            return respond(reply, Err(error));
        };
        if let Some(given) = &asked.answer {
            return respond(reply, Err(already_answered(given.decision, &given.by, given.at)));
        }
        if answer.digest.as_ref().is_some_and(|digest| *digest != asked.digest) {
            let error = RpcError::new(Code::WrongDigest, format!("permission {} is for {}", asked.id, asked.digest))
                .hint("look at it again with permission/list");
            return respond(reply, Err(error));
        }
        let grant = asked.grant.clone();
        let outcome = self.remember(key, &());
        let committed = self.decide(&answer.permission, answer.decision, by, answer.reason, outcome);
        respond_when(reply, committed, ());
        if answer.decision == Decision::AllowAlways {
            self.daemon.grant_always(&self.workspace.root, grant);
        }
        self.review();
    }

    /// Writes a decision down and wakes the call that waits for it.
    fn decide(
        &mut self,
        permission: &PermissionId,
        decision: Decision,
        by: String,
        reason: Option<String>,
        outcome: Option<Fold>,
    ) -> oneshot::Receiver<Result<(), StoreError>> {
        let decided = Fold::Decided { permission: permission.0.clone(), decision, by: by.clone(), at: clock::now() };
        let resolved =
            EventBody::PermissionResolved { permission: permission.clone(), decision, by: by.clone(), reason: reason.clone() };
        let (done, committed) = oneshot::channel();
        let draft = self.in_turn(resolved);
        self.append(vec![draft], std::iter::once(decided).chain(outcome).collect(), true, Some(done));
        if let Phase::Running(running) = &mut self.phase
            && let Some(permit) = running.waiting.remove(permission)
        {
            let verdict = permitted(decision, &permit.digest, &by, reason.as_deref());
            // The call may have been cancelled meanwhile.
            let _gone = permit.reply.send(verdict);
        }
        committed
    }

    /// Looks at the permissions that wait again: mode or rules have changed.
    fn review(&mut self) {
        let Phase::Running(running) = &self.phase else { return };
        let again: Vec<(PermissionId, Verdict)> = running
            .waiting
            .iter()
            .map(|(id, permit)| (id.clone(), self.daemon.decide(&self.state, &permit.info, &self.workspace)))
            .collect();
        for (id, verdict) in again {
            match verdict {
                Verdict::Allow { by } => drop(self.decide(&id, Decision::AllowOnce, by, None, None)),
                Verdict::Deny { reason } => {
                    drop(self.decide(&id, Decision::RejectOnce, "the rules".to_owned(), Some(reason), None));
                }
                Verdict::Ask { .. } => {}
            }
        }
    }

    fn turn_message(&mut self, message: TurnMessage) {
        match message {
            TurnMessage::Emit(drafts, sync, done) => {
                let drafts = drafts.into_iter().map(|draft| self.in_turn(draft.body)).collect();
                self.append(drafts, Vec::new(), sync, done);
            }
            TurnMessage::Pieces(pieces, done) => self.pieces(pieces, done),
            TurnMessage::Permit(permit) => self.permit(*permit),
            TurnMessage::Boundary(ending, reply) => self.boundary(ending, reply),
        }
    }

    fn permit(&mut self, permit: Permit) {
        let asked = self.state.turn.iter().flat_map(|turn| &turn.calls).find(|call| call.id == permit.call_id);
        let earlier = asked.and_then(|call| call.permission.clone());
        let verdict = match earlier {
            // Asked before the daemon was restarted; the digest is the one that was shown.
            Some(asked) => match asked.answer {
                Some(given) => permitted(given.decision, &asked.digest, &given.by, given.reason.as_deref()),
                None => return self.wait_for(asked.id, permit),
            },
            None => match self.daemon.decide(&self.state, &permit.info, &self.workspace) {
                Verdict::Allow { .. } => Permitted::Yes(permit.digest.clone()),
                Verdict::Deny { reason } => Permitted::No(reason),
                Verdict::Ask { rule } => return self.ask(permit, rule),
            },
        };
        // The call may have been cancelled meanwhile.
        let _gone = permit.reply.send(verdict);
    }

    fn ask(&mut self, permit: Permit, rule: Option<String>) {
        let id = PermissionId(format!("q{}", clock::random_word(7)));
        let grant = crate::permission::grant_for(&permit.info, &self.workspace);
        let pending = Pending {
            permission: id.clone(),
            session: self.id.clone(),
            call: permit.call_id.clone(),
            tool: permit.info.tool.clone(),
            action: permit.action.clone(),
            input: permit.input.clone(),
            cwd: self.state.cwd.clone(),
            digest: permit.digest.clone(),
            grant: grant.clone(),
            at: clock::now(),
        };
        let requested = EventBody::PermissionRequested {
            permission: id.clone(),
            call_id: permit.call_id.clone(),
            tool: permit.info.tool.clone(),
            action: permit.action.clone(),
            input: permit.input.clone(),
            cwd: self.state.cwd.clone(),
            digest: permit.digest.clone(),
            rule,
            grant,
            options: vec![Decision::AllowOnce, Decision::AllowSession, Decision::AllowAlways, Decision::RejectOnce],
        };
        tracing::info!(target: "permission", session = %self.id, permission = %id, action = %permit.action, "asked");
        let draft = self.in_turn(requested);
        self.append(vec![draft], vec![Fold::Asked(pending)], true, None);
        self.wait_for(id, permit);
    }

    fn wait_for(&mut self, id: PermissionId, permit: Permit) {
        if let Phase::Running(running) = &mut self.phase {
            running.waiting.insert(id, permit);
        }
    }

    /// Between two steps: prompts that steer become messages of the turn; without any, a turn that wants to end does.
    fn boundary(&mut self, ending: Option<(StopReason, Option<String>)>, reply: oneshot::Sender<Next>) {
        let steers = |queued: &&Queued| queued.when != When::Queue;
        let may_go_on = ending.as_ref().is_none_or(|(reason, _)| *reason == StopReason::EndTurn);
        let prompts: Vec<Queued> =
            if may_go_on { self.state.queue.iter().filter(steers).cloned().collect() } else { Vec::new() };
        if prompts.is_empty()
            && let Some((reason, detail)) = ending
        {
            self.finish_turn(reason, detail, Vec::new());
        }
        let prompts = prompts.into_iter().map(|prompt| self.prompt_message(prompt)).collect();
        // A turn that was stopped does not wait for the answer.
        let _gone = reply.send(Next { prompts, model: self.state.model.clone() });
    }

    /// Puts a prompt into the history, and gives its content.
    fn prompt_message(&mut self, queued: Queued) -> Vec<ContentBlock> {
        let message = self.next_message();
        let body = user_message(message, queued.content.clone(), Some(queued.prompt));
        let draft = self.in_turn(body);
        self.append(vec![draft], Vec::new(), false, None);
        queued.content
    }

    fn next_message(&self) -> MessageId {
        MessageId(format!("m{}", self.state.counts.messages + 1))
    }

    fn finish_turn(&mut self, stop_reason: StopReason, detail: Option<String>, replies: Vec<Reply<()>>) {
        let Some(turn) = &self.state.turn else { return };
        tracing::info!(target: "turn", session = %self.id, turn = %turn.id, ?stop_reason, steps = turn.steps, detail, "finished");
        let finished = EventBody::TurnFinished { stop_reason, detail, usage: turn.usage, steps: turn.steps };
        let draft = self.in_turn(finished);
        let (done, committed) = oneshot::channel();
        self.append(vec![draft], Vec::new(), true, Some(done));
        respond_all(replies, committed);
        self.phase = Phase::Idle;
        self.start_next(false);
    }

    /// Starts a turn for the next prompt, if there is one and it need not wait for the user's `word`.
    fn start_next(&mut self, word: bool) {
        if self.state.turn.is_some() || (self.state.held && !word) {
            return;
        }
        let Some(queued) = self.state.queue.front().cloned() else { return };
        let turn = TurnId(format!("t{}", self.state.counts.turns + 1));
        tracing::info!(target: "turn", session = %self.id, %turn, prompt = %queued.prompt, model = %self.state.model, "started");
        let started = EventBody::TurnStarted { prompt: queued.prompt.clone() };
        let message = user_message(self.next_message(), queued.content, Some(queued.prompt));
        let drafts = [started, message].map(|body| Draft { turn: Some(turn.clone()), body });
        self.append(drafts.into(), Vec::new(), false, None);
        self.spawn_turn();
    }

    fn spawn_turn(&mut self) {
        let (sender, messages) = mpsc::unbounded_channel();
        let turn = turn::Turn::new(self.id.clone(), self.daemon.clone(), self.workspace.clone(), &self.state, sender);
        let task = tokio::spawn(turn.run());
        self.phase = Phase::Running(Running { task, messages, waiting: HashMap::new() });
    }

    /// The turn's task has ended without a word: it panicked. That ends the turn, and nothing else.
    fn turn_vanished(&mut self) {
        let Phase::Running(_) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        if self.log.failed() {
            return self.fail();
        }
        tracing::error!(target: "turn", session = %self.id, "the turn met an error of the daemon's own");
        let drafts = recovery::close(&self.state, &self.streams, &self.results, "the turn failed");
        self.append(drafts, Vec::new(), false, None);
        self.finish_turn(StopReason::Error, Some("the turn met an error of the daemon's own".to_owned()), Vec::new());
    }

    /// Ends the turn's task; what comes then happens in [`Self::stopped`].
    fn stop(&mut self, then: Then) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Running(running) => {
                running.task.abort();
                self.phase = Phase::Stopping(running.task, then);
            }
            Phase::Stopping(task, earlier) => {
                let then = match (earlier, then) {
                    (Then::Cancel(replies), then @ (Then::Remove(_) | Then::Pause(_))) => {
                        replies.into_iter().for_each(|reply| respond(reply, Ok(())));
                        then
                    }
                    (_, then) => then,
                };
                self.phase = Phase::Stopping(task, then);
            }
            Phase::Idle | Phase::Failed(_) => {
                // Nothing runs: a task that has ended already stands in for it.
                self.phase = Phase::Stopping(tokio::spawn(std::future::ready(())), then);
            }
        }
    }

    /// The turn's task is gone; whether the actor is done.
    async fn stopped(&mut self) -> bool {
        let Phase::Stopping(_, then) = std::mem::replace(&mut self.phase, Phase::Idle) else { return false };
        match then {
            Then::Cancel(replies) => self.close_turn(replies),
            Then::Interrupt => self.interrupt(),
            Then::Remove(reply) => {
                let removed = self.daemon.store.remove(self.log.clone()).await;
                let gone = removed.is_ok();
                if gone {
                    self.daemon.sessions.forget(&self.id);
                }
                respond(reply, removed.map_err(RpcError::from));
                return gone;
            }
            Then::Pause(done) => {
                if self.state.turn.as_ref().is_some_and(|turn| !turn.offered) {
                    let notice = notice(Level::Info, NoticeCode::Paused, "the daemon ends; the turn goes on when it starts again");
                    let draft = self.in_turn(notice);
                    let (written, committed) = oneshot::channel();
                    self.append(vec![draft], Vec::new(), true, Some(written));
                    // A write that failed is in the log file.
                    let _logged = committed.await;
                }
                let _gone = done.send(());
                return true;
            }
        }
        false
    }

    fn close_turn(&mut self, replies: Vec<Reply<()>>) {
        let drafts = recovery::close(&self.state, &self.streams, &self.results, "cancelled by the user");
        self.append(drafts, Vec::new(), false, None);
        self.finish_turn(StopReason::Cancelled, None, replies);
    }

    /// The step is over; the turn goes on with the prompts that interrupted it.
    fn interrupt(&mut self) {
        let drafts = recovery::close(&self.state, &self.streams, &self.results, "interrupted by the user");
        self.append(drafts, Vec::new(), false, None);
        let prompts: Vec<Queued> = self.state.queue.iter().filter(|queued| queued.when != When::Queue).cloned().collect();
        prompts.into_iter().for_each(|prompt| drop(self.prompt_message(prompt)));
        self.spawn_turn();
    }

    /// Goes on with what a daemon that died left behind.
    async fn take_up(&mut self) -> Result<(), StoreError> {
        let pieces = self.daemon.store.scratch(self.id.clone()).await?;
        let turn = self.state.turn.as_ref().map(|turn| turn.id.clone());
        self.streams.clear();
        pieces.into_iter().for_each(|piece| push_piece(&mut self.streams, turn.as_ref(), piece));
        self.log.tail().streams.clone_from(&self.streams);
        if let Some(turn) = &self.state.turn {
            self.results = self.stored_results(turn).await?;
            let plan = recovery::plan(&self.state, &self.streams);
            tracing::info!(target: "turn", session = %self.id, resume = plan.resume, "found unfinished");
            self.append(plan.drafts, Vec::new(), true, None);
            if plan.resume {
                self.spawn_turn();
            }
        } else {
            self.start_next(false);
        }
        Ok(())
    }

    /// The results of a turn's open calls, as far as they are stored.
    async fn stored_results(&self, turn: &super::state::Turn) -> Result<HashMap<CallId, ContentBlock>, StoreError> {
        let mut results = HashMap::new();
        for call in turn.calls.iter().filter(|call| call.finished) {
            let stored = self.daemon.store.closing(self.id.clone(), call.id.0.clone()).await?;
            let event = stored.and_then(|stored| serde_json::from_str::<Event>(&stored.data).ok());
            results.extend(event.and_then(|event| recovery::result_of(&event.body)));
        }
        Ok(results)
    }

    /// A write failed: what was folded since is not stored. Stops, and starts anew from the store after a while.
    fn fail(&mut self) {
        if let Phase::Running(running) = std::mem::replace(&mut self.phase, Phase::Failed(MEND[0])) {
            running.task.abort();
        }
    }

    async fn mend(&mut self) {
        let Phase::Failed(wait) = self.phase else { return };
        // Everything that was queued before has been refused once this is answered.
        let (done, answered) = oneshot::channel();
        self.daemon.store.append(Append {
            log: self.log.clone(),
            events: Vec::new(),
            turn: None,
            pieces: Vec::new(),
            folds: Vec::new(),
            sync: false,
            done: Some(done),
        });
        let _refused = answered.await;
        self.phase = Phase::Idle;
        self.log.mend();
        self.remembered.clear();
        let again = async {
            let row = self.daemon.store.session(self.id.clone()).await?;
            let fold = row.map(|row| row.fold).unwrap_or_default();
            self.state = parse_state(&self.id, &fold)?;
            self.take_up().await
        };
        if let Err(error) = again.await {
            tracing::error!(target: "session", session = %self.id, %error, "still cannot be read");
            self.phase = Phase::Failed((wait * 2).min(MEND[1]));
        }
    }

    fn pieces(&mut self, pieces: Vec<Piece>, done: oneshot::Sender<Result<(), StoreError>>) {
        let turn = self.state.turn.as_ref().map(|turn| turn.id.clone());
        for piece in &pieces {
            push_piece(&mut self.streams, turn.as_ref(), piece.clone());
        }
        self.daemon.store.append(Append {
            log: self.log.clone(),
            events: Vec::new(),
            turn,
            pieces,
            folds: Vec::new(),
            sync: false,
            done: Some(done),
        });
    }

    /// Numbers events, folds them, and queues them with what is folded from them.
    fn append(
        &mut self,
        drafts: Vec<Draft>,
        mut folds: Vec<Fold>,
        sync: bool,
        done: Option<oneshot::Sender<Result<(), StoreError>>>,
    ) {
        let mut events = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let event = Event { body: draft.body, seq: Some(self.state.head + 1), at: clock::now(), turn: draft.turn };
            self.state.apply(&event);
            folds.extend(decided(&event));
            match &event.body {
                EventBody::Message { role: Role::User, .. } => self.results.clear(),
                body => self.results.extend(recovery::result_of(body)),
            }
            let stored = stored(&event);
            if let Some(stream) = &stored.stream {
                self.streams.retain(|open| open.id != *stream);
            }
            events.push(Arc::new(stored));
        }
        folds.insert(0, Fold::Session {
            name: self.state.name.clone(),
            cwd: self.state.cwd.to_string_lossy().into_owned(),
            state: state_name(self.state.doing()),
            updated_at: self.state.updated_at,
            fold: serde_json::to_string(&self.state).unwrap_or_default(),
        });
        self.daemon.store.append(Append {
            log: self.log.clone(),
            events,
            turn: self.state.turn.as_ref().map(|turn| turn.id.clone()),
            pieces: Vec::new(),
            folds,
            sync,
            done,
        });
    }

    fn in_turn(&self, body: EventBody) -> Draft {
        Draft { turn: self.state.turn.as_ref().map(|turn| turn.id.clone()), body }
    }

    /// What a request with this key came to, if it was made before.
    async fn outcome<T: serde::de::DeserializeOwned + Send + 'static>(
        &self,
        key: Option<&String>,
    ) -> Result<Option<T>, RpcError> {
        let Some(key) = key else { return Ok(None) };
        if let Some((_, result)) = self.remembered.iter().find(|(known, _)| known == key) {
            return Ok(serde_json::from_str(result).ok());
        }
        Ok(self.daemon.store.outcome(key.clone()).await?.map(|(_, outcome)| outcome))
    }

    fn remember(&mut self, key: Option<String>, outcome: &impl Serialize) -> Option<Fold> {
        let key = key?;
        let result = serde_json::to_string(outcome).unwrap_or_default();
        self.remembered.push_back((key.clone(), result.clone()));
        if self.remembered.len() > REMEMBERED {
            self.remembered.pop_front();
        }
        Some(Fold::Outcome { key, result })
    }
}

/// A decision that nobody gave, such as of a turn that was cancelled, belongs in the table of permissions too.
fn decided(event: &Event) -> Option<Fold> {
    match &event.body {
        EventBody::PermissionResolved { permission, decision: Decision::Cancelled, by, .. } => Some(Fold::Decided {
            permission: permission.0.clone(),
            decision: Decision::Cancelled,
            by: by.clone(),
            at: event.at,
        }),
        _ => None,
    }
}

fn stored(event: &Event) -> Stored {
    let stream = match &event.body {
        EventBody::Message { message, role: Role::Assistant, .. } => Some(message.0.clone()),
        EventBody::ToolFinished { call_id, .. } => Some(call_id.0.clone()),
        _ => None,
    };
    let value = serde_json::to_string(event).unwrap_or_default();
    Stored { seq: event.seq.unwrap_or_default(), at: event.at, kind: kind_name(&event.body).to_owned(), stream, data: value }
}

/// The kind as it stands in the event.
fn kind_name(body: &EventBody) -> &'static str {
    match body {
        EventBody::SessionCreated { .. } => "session_created",
        EventBody::SessionChanged { .. } => "session_changed",
        EventBody::PromptAccepted { .. } => "prompt_accepted",
        EventBody::TurnStarted { .. } => "turn_started",
        EventBody::Message { .. } => "message",
        EventBody::MessageSuperseded { .. } => "message_superseded",
        EventBody::ToolStarted { .. } => "tool_started",
        EventBody::ToolFinished { .. } => "tool_finished",
        EventBody::PermissionRequested { .. } => "permission_requested",
        EventBody::PermissionResolved { .. } => "permission_resolved",
        EventBody::TurnFinished { .. } => "turn_finished",
        EventBody::Notice { .. } => "notice",
        EventBody::TextDelta(_) => "text_delta",
        EventBody::ThinkingDelta(_) => "thinking_delta",
        EventBody::ToolOutputDelta { .. } => "tool_output_delta",
        EventBody::CaughtUp {} => "caught_up",
        EventBody::Unknown => "unknown",
    }
}

fn user_message(message: MessageId, content: Vec<ContentBlock>, prompt: Option<PromptId>) -> EventBody {
    EventBody::Message { message, role: Role::User, content, interrupted: false, prompt, model: None, usage: None }
}

fn notice(level: Level, code: NoticeCode, text: &str) -> EventBody {
    EventBody::Notice { level, code: Some(code), text: text.to_owned() }
}

fn permitted(decision: Decision, digest: &str, by: &str, reason: Option<&str>) -> Permitted {
    if decision.allows() {
        return Permitted::Yes(digest.to_owned());
    }
    Permitted::No(match reason {
        Some(reason) => format!("denied by {by}: {reason}"),
        None => format!("denied by {by}"),
    })
}

/// The error for whoever comes second.
pub fn already_answered(decision: Decision, by: &str, at: u64) -> RpcError {
    let given = permission::AlreadyAnswered { decision, by: by.to_owned(), at };
    RpcError { data: serde_json::to_value(given).ok(), ..RpcError::new(Code::AlreadyAnswered, "already answered") }
}

fn parse_state(id: &SessionId, fold: &str) -> Result<State, StoreError> {
    serde_json::from_str(fold).map_err(|error| StoreError(format!("session {id} cannot be read: {error}").into()))
}

/// Answers a command; whoever asked may have gone.
fn respond<T>(reply: Reply<T>, result: Result<T, RpcError>) {
    let _gone = reply.send(result);
}

/// Answers a command when what it did is committed.
fn respond_when<T: Send + 'static>(reply: Reply<T>, committed: oneshot::Receiver<Result<(), StoreError>>, value: T) {
    tokio::spawn(async move {
        let result = committed.await.unwrap_or_else(|_| Err(StoreError("the store has ended".into())));
        respond(reply, result.map(|()| value).map_err(RpcError::from));
    });
}

fn respond_all(replies: Vec<Reply<()>>, committed: oneshot::Receiver<Result<(), StoreError>>) {
    if replies.is_empty() {
        return;
    }
    tokio::spawn(async move {
        let result = committed.await.unwrap_or_else(|_| Err(StoreError("the store has ended".into())));
        replies.into_iter().for_each(|reply| respond(reply, result.clone().map_err(RpcError::from)));
    });
}
