//! Git worktrees of children: making one with the child, and merging what it did.

use std::path::PathBuf;
use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::child::Delegated;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::worktree::{Merge, Merged, Worktree, WorktreeStatus};
use sha2::{Digest as _, Sha256};

use super::{ID, Registry};
use crate::session::messages::Child;
use crate::session::messages::{Author, Command, MergeWork};
use crate::session::state::State;
use crate::store::idempotency::Key;
use crate::sys::task;
use crate::sys::{clock, disk};
use crate::tool::Workspace;

/// The id of a child with a worktree, made from its call, so that a call that is joined finds what was begun before a crash. `tries`
/// counts the ids that were tried.
pub(super) fn id_of(child: &Child, tries: u32) -> SessionId {
    let of = format!("{}\n{}\n{tries}", child.parent, child.delegated.call);
    let hash = Sha256::digest(of.as_bytes());
    SessionId(clock::word(hash.get(..ID).unwrap_or_default()))
}

impl Registry {
    /// Makes the worktree of a child, or finds what is there of it, and gives the directory in it that is the same as its parent's.
    pub(super) async fn worktree_of(&self, child: &Child, id: &SessionId) -> Result<(Worktree, PathBuf), RpcError> {
        self.sweep_worktrees(&child.workspace);
        let made = self.env.worktrees.make(&child.workspace, id).await;
        let own = made.map_err(|why| {
            RpcError::new(Code::NoWorkspace, why).hint("delegate without `worktree` to work in your own directory")
        })?;
        let (root, below) = (own.path.clone(), child.workspace.cwd.strip_prefix(&child.workspace.root));
        let wanted = below.map_or_else(|_| root.clone(), |below| root.join(below));
        // A directory that is not in the commit is not there, and a link in its place does not lead out.
        let look = move || wanted.canonicalize().ok().filter(|real| *real == wanted && real.is_dir()).unwrap_or(root);
        let place = disk::probe(&own.path, disk::TIMEOUT, look).await;
        let place = place.ok_or_else(|| RpcError::new(Code::NoWorkspace, disk::unresponsive(&own.path)))?;
        Ok((own, place))
    }

    /// Removes the worktree of a child that could not be made.
    pub(super) async fn drop_worktree(&self, of: Option<&Delegated>, workspace: &Workspace) {
        if let Some(worktree) = of.and_then(|of| of.worktree.as_ref())
            && let Err(why) = self.env.worktrees.tidy(worktree, workspace).await
        {
            tracing::warn!(target: "worktree", why, "a worktree without a session stays");
        }
    }

    /// Removes worktrees whose sessions were never created, in the background.
    fn sweep_worktrees(&self, workspace: &Arc<Workspace>) {
        let (env, workspace) = (self.env.clone(), workspace.clone());
        task::spawn(async move {
            for child in env.worktrees.made_before().await {
                // One that cannot be looked up has a session, perhaps.
                if !matches!(env.store.session(child.clone()).await, Ok(None)) {
                    continue;
                }
                if let Err(why) = env.worktrees.tidy_stray(&child, &workspace).await {
                    tracing::warn!(target: "worktree", %child, why, "a worktree without a session stays");
                }
            }
        });
    }

    /// Merges what a child did in its worktree into the directory of its parent.
    pub async fn merge(self: &Arc<Self>, asked: Merge, key: Option<Key>, by: Author) -> Result<Merged, RpcError> {
        let (_turn, done) = self.locked(key.as_ref()).await?;
        if let Some(done) = done {
            return Ok(done);
        }
        let id = &asked.session;
        let (_, state) = self.stored(id).await?;
        let (Some(worktree), Some(parent)) = (state.task.worktree().cloned(), state.identity.parent.clone()) else {
            let error = RpcError::new(Code::NotAllowed, format!("session {id} has no git worktree of its own"));
            return Err(error.hint("`linger ls` shows those of children"));
        };
        if worktree.status == WorktreeStatus::Removed {
            let error = RpcError::new(Code::Idle, format!("there is nothing to merge: session {id} changed nothing"));
            return Err(error.hint("its worktree was removed when its task ended"));
        }
        let (_, of_parent) = self.stored(&parent).await?;
        for (id, state, what) in [(&parent, &of_parent, "the parent"), (id, &state, "the child")] {
            if state.turn.is_some() || !state.queue.prompts.is_empty() {
                let busy = RpcError::new(Code::Busy, format!("session {id}, {what}, is at work"));
                return Err(busy.hint(format!("wait for its end: `linger wait {id}`, or cancel it first")));
            }
        }
        let commit = self.ask(id, Command::CommitWorktree).await?;
        let agent = state.task.delegated.as_ref().map(|of| of.agent.clone()).unwrap_or_default();
        let work = MergeWork {
            child: id.clone(),
            agent,
            worktree,
            commit,
            title: title(&state.title.given_title, &state.title.title),
        };
        let done = self.ask(&parent, |reply| Command::Merge(Box::new(work), key, by, reply)).await?;
        let status = WorktreeStatus::Merged;
        if let Err(error) = self.ask(id, |reply| Command::WorktreeIs(status, reply)).await {
            // It is merged; only lists do not say so.
            tracing::warn!(target: "worktree", session = %id, %error, "cannot note that it was merged");
        }
        Ok(done)
    }

    /// Removes the worktrees of a session that is about to be removed and of those below it, and gives those that stay because they
    /// have changes.
    pub async fn tidy_worktrees(self: &Arc<Self>, below: &[SessionId], session: &SessionId) -> Vec<Worktree> {
        let mut kept = Vec::new();
        for id in below.iter().chain([session]) {
            let Some(row) = self.env.store.session(id.clone()).await.ok().flatten() else { continue };
            let Some(state) = State::from_stored(&row.fold) else { continue };
            if id == session {
                let variables = serde_json::from_str(&row.env).unwrap_or_default();
                let workspace =
                    self.env.workspaces.workspace(id, &state.identity.cwd, variables, disk::SHORT_TIMEOUT).await;
                self.sweep_worktrees(&Arc::new(workspace));
            }
            let Some(worktree) = state.task.worktree().cloned() else { continue };
            match self.ask(id, Command::TidyWorktree).await {
                Ok(Some(Worktree { status: WorktreeStatus::Removed, .. }) | None) => {}
                Ok(Some(now)) => kept.push(now),
                // What cannot be looked at stays.
                Err(_) => kept.push(worktree),
            }
        }
        kept
    }
}

/// The first line of a commit message: what the session is called.
fn title(given: &Option<String>, first: &Option<String>) -> String {
    given.clone().or_else(|| first.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use linger_protocol::permission::Mode;
    use linger_protocol::session::Create;

    use super::*;
    use crate::tool::tests::test_workspace;

    #[test]
    fn the_id_of_a_child_with_a_worktree_is_that_of_its_call() {
        let (_dir, workspace) = test_workspace();
        let child = |parent: &str, call: &str| Child {
            parent: parent.into(),
            delegated: Delegated { call: call.into(), ..Delegated::default() },
            create: Create::default(),
            model: String::new(),
            most: Mode::Ask,
            workspace: Arc::new(workspace.clone()),
            worktree: Some(true),
        };
        let ids: BTreeSet<_> = [("a", "c1", 1), ("a", "c2", 1), ("b", "c1", 1), ("a", "c1", 2), ("a", "c1", 1)]
            .map(|(parent, call, tries)| id_of(&child(parent, call), tries))
            .into_iter()
            .collect();
        assert_eq!(ids.len(), 4);
        assert!(ids.iter().all(|id| id.as_str().len() == ID));
    }
}
