//! Forks, and going back.
//!
//! A fork is made of what is stored of its origin, whose actor is not asked: nothing of the shared events is copied or folded. Going
//! back makes a fork first, which keeps what the session leaves, and then asks the actor; a daemon that dies in between leaves a
//! fork too many, and nothing less.

use std::path::PathBuf;
use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::checkpoint::Uncertain;
use linger_protocol::error::Code;
use linger_protocol::event::{EventBody, TurnFinished};
use linger_protocol::id::SessionId;
use linger_protocol::message::{StopReason, Usage};
use linger_protocol::permission::Mode;
use linger_protocol::session::Undo;
use linger_protocol::tree::{Fork, ForkMade, Forked, Origin, PromptRow, Prompts, Rewind, RewindDone, Rewound};
use tokio::sync::oneshot;

use super::Registry;
use super::place::HeldPlace;
use crate::agent::role::stricter;
use crate::session::Draft;
use crate::session::actor::{Actor, NewSession, uncertain_changes};
use crate::session::messages::{Author, Command, GoBack, KeyedReply};
use crate::session::reading::line::{Line, Point, PointInfo, is_on_line};
use crate::session::state::State;
use crate::session::state::tree::MAX_SKIPPED;
use crate::store::idempotency::Key;
use crate::store::{Fold, MAX_PARTS, SessionRow, StoreError};
use crate::sys::disk;
use crate::sys::task;

/// Prompts in a list, when nothing is said, and at most.
const PROMPTS: [u32; 2] = [100, 1000];

/// How the turn ends in which a fork begins.
const LEFT: &str = "the fork goes on from within this turn";

/// The parts of its origin that a fork may take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkAllows {
    /// Whether directories and MCP servers that a user added are among them.
    pub added: bool,
    /// Its loosest mode; `None` for any.
    pub most: Option<Mode>,
}

impl Registry {
    /// Makes a session that continues from a point of another one, or finds the one that was made for the key. `place`: the
    /// request's place in its origin.
    pub async fn fork(
        self: &Arc<Self>,
        fork: Fork,
        place: HeldPlace,
        allows: ForkAllows,
        key: Option<Key>,
    ) -> Result<ForkMade, RpcError> {
        let (_turn, done) = self.locked(key.as_ref()).await?;
        if let Some(done) = done {
            return Ok(done);
        }
        let (row, state) = self.stored(&fork.session).await?;
        // The rest reads the log up to this state, and may wait for a disk: a cancel must not. A removal does.
        place.has_read();
        let line = Line { store: &self.env.store, id: fork.session, state: &state };
        let point = line.point(fork.at.as_deref()).await?;
        self.make_fork(row, &line, point, ForkOptions { name: fork.name, cwd: fork.cwd, allows }, key).await
    }

    /// Goes back to before a prompt. `place`: the request's place in the session.
    pub async fn rewind(
        self: &Arc<Self>,
        asked: Rewind,
        place: &HeldPlace,
        allows: ForkAllows,
        key: Option<Key>,
        by: Author,
    ) -> Result<RewindDone, RpcError> {
        let (_turn, done) = self.locked(key.as_ref()).await?;
        if let Some(done) = done {
            return Ok(done);
        }
        let id = &asked.session;
        let (_, state) = self.stored(id).await?;
        may_go_back(id, &state)?;
        let line = Line { store: &self.env.store, id: id.clone(), state: &state };
        let point = line.before(asked.to.as_ref()).await?;
        let context_tokens = line.known(&point).await?.context_tokens;
        let changes = if asked.files { self.put_back(&asked, place, point.seq, &by).await? } else { Vec::new() };
        // The files were put back by events of their own.
        let (row, state) = self.stored(id).await?;
        may_go_back(id, &state)?;
        let line = Line { store: &self.env.store, id: id.clone(), state: &state };
        // One that was made for another end of the session is not this one.
        let branch_of =
            |key: &Key| Key { id: format!("{}/branch/{}", key.id, state.progress.head), params: key.params.clone() };
        let own = key.as_ref().map(branch_of);
        let made = match &own {
            Some(own) => self.env.store.answer_to::<ForkMade>(own).await?,
            None => None,
        };
        let branch = match made.filter(|made| made.origin.seq == state.progress.head) {
            Some(made) => made.session,
            None => {
                let all = Point { seq: state.progress.head, prompt: None };
                self.make_fork(row, &line, all, ForkOptions { name: None, cwd: None, allows }, own).await?.session
            }
        };
        let (prompt, text) = point.prompt.unwrap_or_default();
        let done = RewindDone { branch: branch.clone(), to: point.seq, prompt: prompt.clone(), text, changes };
        let files = asked.files;
        let (to, head) = (point.seq, state.progress.head);
        let rewound = Rewound { to, prompt, branch: branch.clone(), files, context_tokens, ..Rewound::default() };
        let back = Box::new(GoBack { rewound, head, done });
        let done = place.ask(|reply| Command::GoBack(back, key, by, reply)).await;
        if done.is_err() {
            // Nothing was left, so nothing has to be kept.
            let asked = |reply| Command::Remove(true, KeyedReply { key: None, reply });
            if let Err(error) = self.ask(&branch, asked).await {
                tracing::warn!(target: "session", session = %branch, %error, "an unused fork cannot be removed");
            }
        }
        done
    }

    /// The prompts that a session can go back to.
    pub async fn prompts(&self, asked: Prompts) -> Result<Vec<PromptRow>, RpcError> {
        let (_, state) = self.stored(&asked.session).await?;
        let [usual, most] = PROMPTS;
        let line = Line { store: &self.env.store, id: asked.session, state: &state };
        line.prompts(asked.limit.unwrap_or(usual).min(most) as usize).await
    }

    /// Puts back the files that were changed after an event, turn by turn.
    async fn put_back(
        self: &Arc<Self>,
        asked: &Rewind,
        place: &HeldPlace,
        after: u64,
        by: &Author,
    ) -> Result<Vec<linger_protocol::event::FileChange>, RpcError> {
        let (id, mut changes) = (&asked.session, Vec::new());
        if !asked.force && matches!(asked.uncertain, None | Some(Uncertain::Ask)) {
            let uncertain = place.ask(|reply| Command::Uncertain(after, reply)).await?;
            if !uncertain.is_empty() {
                let (_, state) = self.stored(id).await?;
                return Err(uncertain_changes(&uncertain, &state.identity.cwd));
            }
        }
        loop {
            let (_, state) = self.stored(id).await?;
            if state.undo.steps.last().is_none_or(|step| step.first <= after) {
                return Ok(changes);
            }
            let (force, uncertain) = (asked.force, asked.uncertain);
            let undo = Undo { session: id.clone(), force, uncertain, ..Undo::default() };
            let undone = place.ask(|reply| Command::Undo(undo, None, by.clone(), reply)).await?;
            changes.extend(undone.changes);
            if !undone.uncertain.is_empty() {
                return Err(uncertain_changes(&undone.uncertain, &state.identity.cwd));
            }
            if let Some(left) = undone.failed.first() {
                let text = format!("{} cannot be put back: {}", left.path.display(), left.reason);
                let error = RpcError::new(Code::FileChanged, text);
                return Err(error.hint("the conversation is as it was; `linger redo` makes undone changes again"));
            }
            let (_, after_undo) = self.stored(id).await?;
            if after_undo.undo.steps.len() >= state.undo.steps.len() {
                let error = RpcError::new(Code::FileChanged, "the changes of a turn cannot be undone as a whole");
                return Err(error.hint("the conversation is as it was; `linger undo` says what is left"));
            }
        }
    }

    /// A session as it is stored.
    pub(super) async fn stored(&self, id: &SessionId) -> Result<(SessionRow, State), RpcError> {
        let row = if id.is_daemon() { None } else { self.env.store.session(id.clone()).await? };
        let Some(row) = row else {
            let error = RpcError::new(Code::UnknownSession, format!("there is no session '{id}'"));
            return Err(error.hint("`linger ls` or session/list shows those there are"));
        };
        let state = State::from_stored(&row.fold).filter(|_| self.env.store.found.of(id).is_none());
        let state =
            state.ok_or_else(|| self.env.store.found.of(id).unwrap_or_else(|| "its state cannot be read".to_owned()));
        let state = state.map_err(StoreError::damage)?;
        if state.settings.binned_at.is_some() {
            let error = RpcError::new(Code::Binned, format!("session {id} is in the bin"));
            return Err(error.hint(format!("`linger restore {id}` takes it out")));
        }
        Ok((row, state))
    }

    /// Returns when it is on disk.
    async fn make_fork(
        self: &Arc<Self>,
        row: SessionRow,
        line: &Line<'_>,
        point: Point,
        options: ForkOptions,
        key: Option<Key>,
    ) -> Result<ForkMade, RpcError> {
        let ForkOptions { name, cwd, allows } = options;
        let cwd = cwd.unwrap_or_else(|| line.state.identity.cwd.clone());
        let (env, state, origin) = (&self.env, line.state, &line.id);
        let config = env.config.current()?;
        if point.seq == 0 || !is_on_line(state, point.seq) {
            return Err(RpcError::new(Code::Idle, format!("session {origin} has nothing to go on from there")));
        }
        if env.store.parts_to(origin.clone(), point.seq).await? >= MAX_PARTS {
            let error = RpcError::new(Code::TooMuch, format!("session {origin} is the {MAX_PARTS}th fork of a fork"));
            return Err(error.hint("fork one of the sessions that it comes from"));
        }
        self.check_room().await?;
        let _named = match &name {
            Some(name) => Some(env.names.take(&env.store, name, None).await?),
            None => None,
        };
        let id = self.new_id(None).await?;
        let PointInfo { turn, before_turn, context_tokens } = line.known(&point).await?;
        let variables: std::collections::BTreeMap<String, String> = serde_json::from_str(&row.env).unwrap_or_default();
        env.workspaces.secrets_of(origin).copy_to(&env.workspaces.secrets_of(&id));
        if allows.added {
            env.toolbox.servers.share_brought(origin.as_str(), id.as_str());
        }
        let workspace = Arc::new(env.workspaces.workspace(&id, &cwd, variables.clone(), disk::SHORT_TIMEOUT).await);
        env.read_workspace(&workspace).await;
        env.toolbox.servers.begin(&workspace, id.as_str());
        let whole = state.forked();
        let left = Origin { session: origin.clone(), seq: point.seq };
        let mode = stricter(whole.mode, env.policy.mode(config.mode, &workspace));
        let forked = Forked {
            cwd,
            origin: left.clone(),
            mode: allows.most.map_or(mode, |most| stricter(mode, most)),
            name,
            title: whole.title.filter(|_| before_turn.is_some()),
            additional_directories: if allows.added { whole.additional_directories } else { Vec::new() },
            mcp_servers: if allows.added { whole.mcp_servers } else { Vec::new() },
            context_tokens,
            before_turn: before_turn.unwrap_or_default(),
            ..whole
        };
        let text = point.prompt.map(|(_, text)| text);
        let (model, mode) = (forked.model.clone(), forked.mode);
        let made = ForkMade { session: id.clone(), origin: left, model, mode, text };
        let more = turn.map(|(turn, prompt)| Draft::of_turn(&turn, left_within(prompt)));
        let outcome = key.map(|key| Fold::Outcome(key.outcome(&made)));
        tracing::info!(target: "session", session = %id, %origin, seq = point.seq, "forked");
        let (done, committed) = oneshot::channel();
        let commands = self.mailboxes.add_new(id.clone())?;
        let new = NewSession { id: id.clone(), variables: &variables, workspace, outcome };
        let before = state.before_fork(point.seq);
        let actor = Actor::fork(env.clone(), self.clone(), new, before, forked, more, done);
        match committed.await.unwrap_or_else(|_| Err(StoreError("the store has ended".into()))) {
            Ok(()) => {
                task::spawn(Box::new(actor).run(None, commands));
                Ok(made)
            }
            Err(error) => {
                self.mailboxes.forget(&id);
                env.forget_secrets(&id);
                Err(error.into())
            }
        }
    }
}

/// The options of a new fork.
struct ForkOptions {
    /// A name, unique among sessions; absent for none.
    name: Option<String>,
    /// Where it works; where its origin does when absent.
    cwd: Option<PathBuf>,
    /// The rights of its caller.
    allows: ForkAllows,
}

fn may_go_back(id: &SessionId, state: &State) -> Result<(), RpcError> {
    if state.turn.is_some() {
        let busy = RpcError::new(Code::Busy, format!("session {id} has an unfinished turn"));
        return Err(busy.hint("wait for its end, or cancel it first"));
    }
    if state.history.passed_over.skipped.len() >= MAX_SKIPPED {
        let error = RpcError::new(Code::TooMuch, format!("session {id} went back {MAX_SKIPPED} times"));
        return Err(error.hint(format!("fork it at the prompt: `linger fork {id} --at PROMPT`")));
    }
    Ok(())
}

/// The end of the turn in which a fork begins.
fn left_within(prompt: linger_protocol::id::PromptId) -> EventBody {
    EventBody::TurnFinished(TurnFinished {
        prompt: Some(prompt),
        stop_reason: StopReason::Cancelled,
        detail: Some(LEFT.to_owned()),
        hint: None,
        until_at: None,
        answer: None,
        usage: Usage::default(),
        session_usage: Some(Usage::default()),
        context_tokens: None,
        context_window: None,
        steps: 0,
    })
}
