//! Children: their settings, their progress, and following those whose call has ended.
//!
//! A call follows its child itself. The actor follows those that work in the background, whose result becomes a prompt, and those
//! whose call was cut off: these are cancelled, and their costs still count. It does so after a restart too; its followers end with
//! it.

use linger_protocol::event::PromptAccepted;
use std::collections::HashSet;

use linger_protocol::child::{ChildStatus, ChildUpdate};
use linger_protocol::session::Create;

use super::*;
use crate::agent::role::stricter;
use crate::session::delegate::follow::{Follower, send};
use crate::session::delegate::{answer, cancel};
use crate::sys::task;
use crate::tool::ToolOutput;

/// The tasks that follow children.
#[derive(Default)]
pub(super) struct Followers {
    tasks: JoinSet<()>,
    of: HashSet<SessionId>,
}

impl Actor {
    /// Gives a call the settings of its child, or the child that it has.
    pub(super) fn delegate(
        &mut self,
        call: &CallId,
        background: bool,
        reply: oneshot::Sender<Result<ChildSettings, String>>,
    ) {
        let basis = self.basis(call, background);
        if let (Some(running), Ok(ChildSettings { known: None, .. })) = (self.running_mut(), &basis) {
            running.begin_delegating(call.clone());
        }
        // A stopped turn does not wait for the reply.
        let _gone = reply.send(basis);
    }

    fn basis(&self, call: &CallId, background: bool) -> Result<ChildSettings, String> {
        let known = self.state.children.under_way.iter().find(|child| child.call_id == *call).cloned();
        if known.is_none() {
            self.may_delegate(background)?;
        }
        let settings = &self.state.settings;
        let create = Create {
            effort: settings.thinking,
            patience: settings.outage.patience,
            fallback: settings.outage.fallback.clone(),
            unattended: Some(settings.unattended),
            additional_directories: settings.directories.clone(),
            mcp_servers: settings.mcp_servers.clone(),
            tools: settings.tools.clone(),
            one_shot: true,
            ..Create::default()
        };
        let (model, mode, depth) =
            (self.state.settings.model.clone(), self.state.settings.mode, self.state.task.depth() + 1);
        Ok(ChildSettings { create, model, mode, depth, known })
    }

    /// Checks the limits; the error is for the model.
    fn may_delegate(&self, background: bool) -> Result<(), String> {
        let limits = self.env.config.delegation();
        if self.state.task.depth() >= limits.depth {
            return Err("not run: agents of agents may not delegate any further".to_owned());
        }
        if background && self.state.task.delegated.is_some() {
            // Its own answer comes with the end of its turn.
            return Err("not run: an agent may not delegate in the background; wait for the result".to_owned());
        }
        let of_turn = self.state.turn.as_ref().map_or(0, |turn| turn.delegated as usize);
        let under_way = self.running().map_or(0, RunningTurn::delegating);
        if of_turn + under_way >= limits.per_turn as usize {
            return Err(format!("not run: a turn may delegate {} tasks; do the rest yourself", limits.per_turn));
        }
        let behind = self.state.children.under_way.iter().filter(|child| child.background).count();
        if background && behind >= limits.at_once as usize {
            return Err(format!("not run: {behind} agents work in the background already; wait for a result"));
        }
        Ok(())
    }

    /// Records how the child of a running call gets on; tells whether the budget is spent.
    pub(super) fn child_updated(&mut self, update: ChildUpdate, reply: oneshot::Sender<bool>) {
        if let Some(running) = self.running_mut() {
            running.end_delegating(&update.call_id);
        }
        // It has no task until this is on disk.
        let is_first = update.status == ChildStatus::Started;
        let draft = self.in_turn(EventBody::ChildUpdated(update));
        let (done, committed) = oneshot::channel();
        self.append(vec![draft], Vec::new(), is_first, Some(done));
        let is_spent = self.is_over_budget();
        if !is_first {
            // A stopped turn does not wait for the reply.
            let _gone = reply.send(is_spent);
            return;
        }
        task::spawn(async move {
            if let Ok(Ok(())) = committed.await {
                // As above.
                let _gone = reply.send(is_spent);
            }
        });
    }

    /// Hears of a child whose call has ended: its result becomes a prompt, in the transaction of its end. In the bin it is only
    /// recorded.
    pub(super) fn child_report(&mut self, report: ChildReport, reply: Reply<()>) {
        let ChildReport { update, message } = report;
        if self.state.children.get(&update.child).is_none() {
            return respond(reply, Ok(()));
        }
        let (child, is_finished) = (update.child.clone(), update.is_finished());
        // It may have been called off since.
        let is_wanted = self.state.children.get(&child).is_some_and(|known| known.background);
        let update = ChildUpdate { background: is_wanted, ..update };
        let by = format!("agent {} in session {child}", update.agent);
        let mut drafts = vec![Draft::new(EventBody::ChildUpdated(update))];
        let is_binned = self.state.settings.binned_at.is_some();
        if let (Some(message), true) = (message, is_finished && is_wanted && !is_binned) {
            let content = vec![ContentBlock::text(message)];
            let accepted = self.next_prompt(content, When::Queue, &Author { name: by, process: None });
            let accepted = EventBody::PromptAccepted(PromptAccepted { child: Some(child.clone()), ..accepted });
            drafts.push(Draft::new(accepted));
        }
        let (done, committed) = oneshot::channel();
        self.append(drafts, Vec::new(), is_finished, Some(done));
        respond_when(reply, committed, ());
        if is_finished {
            self.followers.of.remove(&child);
        } else if self.is_over_budget() {
            self.host.clone().command(&child, cancel());
        }
        if matches!(self.phase, Phase::Idle) && !is_binned {
            self.start_next(false);
        }
    }

    /// Calls off the children in the background: they are cancelled, and say nothing. Whether there were any.
    pub(super) fn call_off(&mut self) -> bool {
        let behind = self.state.children.under_way.iter().filter(|child| child.background).cloned();
        let updates = behind.map(|child| EventBody::ChildUpdated(ChildUpdate { background: false, ..child }));
        let drafts: Vec<Draft> = updates.map(Draft::new).collect();
        let had_some = !drafts.is_empty();
        if had_some {
            let children: Vec<SessionId> =
                self.state.children.under_way.iter().map(|child| child.child.clone()).collect();
            self.append(drafts, Vec::new(), false, None);
            let off: HashSet<SessionId> = self.state.abandoned().map(|child| child.child.clone()).collect();
            children.iter().filter(|child| off.contains(child)).for_each(|child| {
                self.host.clone().command(child, cancel());
            });
        }
        had_some
    }

    /// Follows the children whose call has ended.
    pub(super) fn follow_children(&mut self) {
        if self.state.children.under_way.is_empty() || matches!(self.phase, Phase::Failed(..)) {
            return;
        }
        let off: Vec<ChildUpdate> = self.state.abandoned().cloned().collect();
        for child in off {
            self.follow(child, true);
        }
        let is_open = |call: &CallId| {
            self.state.turn.iter().flat_map(|turn| &turn.calls).any(|open| open.id == *call && !open.finished)
        };
        let behind = self.state.children.under_way.iter().filter(|child| child.background && !is_open(&child.call_id));
        for child in behind.cloned().collect::<Vec<_>>() {
            self.follow(child, false);
        }
    }

    fn follow(&mut self, child: ChildUpdate, is_off: bool) {
        if !self.followers.of.insert(child.child.clone()) {
            return;
        }
        // Those that have ended.
        while self.followers.tasks.try_join_next().is_some() {}
        let (env, host, parent) = (self.env.clone(), self.host.clone(), self.id.clone());
        let workspace = self.workspace.clone();
        self.followers.tasks.spawn(async move { follow(&env, &host, parent, workspace, child, is_off).await });
    }

    /// Whether the session has spent its budget.
    fn is_over_budget(&self) -> bool {
        self.state.progress.budget.question(&self.state.progress.usage, false).is_some()
    }

    /// How the turn ends, if it is the task of a child whose budget is spent: its parent decides what comes of that.
    pub(super) fn out_of_budget(&self) -> Option<TurnEnding> {
        self.state.task.delegated.as_ref()?;
        let is_task = self.state.turn.as_ref().is_some_and(|turn| turn.id.0 == FIRST_TURN);
        let asked = self.state.progress.budget.question(&self.state.progress.usage, false).filter(|_| is_task)?;
        let detail = asked.trim_end_matches("; go on?").to_owned();
        Some(TurnEnding { detail: Some(detail), ..TurnEnding::plain(StopReason::Error) })
    }
}

/// How many parents of parents are looked at: more than the limits of delegation allow.
const MAX_ABOVE: usize = 32;

/// The turn of a child's task.
const FIRST_TURN: &str = "t1";

/// Follows a child until its task has ended, and tells its parent.
async fn follow(
    env: &Arc<Env>,
    host: &Arc<dyn Host>,
    parent: SessionId,
    workspace: Arc<Workspace>,
    mut update: ChildUpdate,
    is_off: bool,
) {
    let tell = async |update: &ChildUpdate, message: Option<String>| {
        let report = ChildReport { update: update.clone(), message };
        // The parent is gone, or the next daemon hears of it.
        let _told = send(host, &parent, |reply| Command::Child(Box::new(report.clone()), reply)).await;
    };
    let mut follower = match Follower::attach(&env.store, host, &update.child).await {
        Ok(follower) => follower,
        Err(why) => {
            update.status = ChildStatus::Finished;
            let said = answer::later(&update, &ToolOutput::error(format!("[it cannot be read: {why}]")));
            return tell(&update, Some(said)).await;
        }
    };
    follower.catch_up().await;
    if is_off {
        follower.cancel();
    }
    if is_off && !follower.has_task() {
        follower.remove_worktree().await;
        update.status = ChildStatus::Finished;
        return tell(&update, None).await;
    }
    if follower.lacks_task() {
        // Its call was cut off before, and gives it none any more.
        follower.remove_worktree().await;
        update.status = ChildStatus::Finished;
        let output = ToolOutput::error("[it never got its task]");
        return tell(&update, Some(answer::later(&update, &output))).await;
    }
    loop {
        if !follower.next(&mut update).await {
            continue;
        }
        if update.is_finished() {
            break;
        }
        tell(&update, None).await;
    }
    let (cwd, own) = follower.form();
    let output = answer::result(&env.policy, &workspace, &cwd, &update, follower.ending(), own, None).await;
    let output = answer::with_worktree(output, follower.remove_worktree().await.as_ref());
    tell(&update, Some(answer::later(&update, &output))).await;
}

impl Actor {
    /// A child never asks less than its parent, or the parent of that: not even one that was away while one of them changed.
    pub(super) async fn keep_within_parent(&mut self) -> Result<(), StoreError> {
        let is_child = self.state.task.delegated.is_some();
        let mut above = self.state.identity.parent.clone().filter(|_| is_child);
        let mut most = self.state.settings.mode;
        for _ in 0..MAX_ABOVE {
            let Some(id) = above else { break };
            let Some(row) = self.env.store.session(id).await? else { break };
            let Some(parent) = State::from_stored(&row.fold) else { break };
            most = stricter(most, parent.settings.mode);
            let is_child = parent.task.delegated.is_some();
            above = parent.identity.parent.clone().filter(|_| is_child);
        }
        if most != self.state.settings.mode {
            self.append(vec![Draft::new(EventBody::mode_changed(most))], Vec::new(), true, None);
        }
        Ok(())
    }
}
