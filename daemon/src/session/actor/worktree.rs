//! The git worktree of a child, and merging one into the directory of its parent.
//!
//! Nothing else happens to the session meanwhile: its actor waits for git, and no turn runs.

use linger_protocol::worktree::{Merged, Worktree, WorktreeStatus};

use super::*;
use crate::tool::worktree::{MergeDone, MergeError, Work};

/// What is to be merged into the session's directory, checked by the registry.
#[derive(Debug)]
pub struct MergeWork {
    /// The child.
    pub child: SessionId,
    /// The name of its agent.
    pub agent: String,
    /// Its worktree.
    pub worktree: Worktree,
    /// The commit.
    pub commit: String,
    /// What the child is called.
    pub title: String,
}

impl Actor {
    /// Removes the worktree unless it has changes, or is in use; gives what became of it.
    pub(super) async fn tidy_worktree(&mut self, reply: Reply<Option<Worktree>>) {
        let Some(worktree) = self.state.worktree().cloned() else { return respond(reply, Ok(None)) };
        let jobs = self.state.running_background().count();
        let is_used = self.is_at_work() || jobs > 0 || !matches!(self.phase, Phase::Idle);
        if is_used || worktree.status == WorktreeStatus::Removed {
            return respond(reply, Ok(Some(worktree)));
        }
        match self.env.worktrees.tidy(&worktree, &self.workspace).await {
            Ok(true) => {
                let now = Worktree { status: WorktreeStatus::Removed, ..worktree };
                let committed = self.worktree_is(now.clone());
                respond_when(reply, committed, Some(now));
            }
            Ok(false) => respond(reply, Ok(Some(worktree))),
            Err(why) => {
                tracing::warn!(target: "worktree", session = %self.id, why, "its worktree cannot be looked at, and stays");
                respond(reply, Ok(Some(worktree)));
            }
        }
    }

    /// Makes the worktree again that was removed because it had no changes.
    pub(super) async fn worktree_again(&mut self) -> Result<(), RpcError> {
        let removed = |worktree: &&Worktree| worktree.status == WorktreeStatus::Removed;
        let (Some(_), Some(parent)) = (self.state.worktree().filter(removed), self.state.parent.clone()) else {
            return Ok(());
        };
        let row = self.env.store.session(parent.clone()).await?;
        let Some(of_parent) = row.and_then(|row| State::from_stored(&row.fold)) else {
            let gone = RpcError::new(Code::NoWorkspace, format!("session {parent}, whose worktree this was, is gone"));
            return Err(gone.hint("start a session in another directory"));
        };
        let (env, limit) = (BTreeMap::clone(&self.workspace.env), disk::SHORT_TIMEOUT);
        let parent = self.env.workspace_within(&self.id, &of_parent.cwd, env, (limit, of_parent.bound_by())).await;
        let made = self.env.worktrees.make(&parent, &self.id).await;
        let made =
            made.map_err(|why| RpcError::new(Code::NoWorkspace, why).hint("start a session in another directory"))?;
        let committed = self.worktree_is(made);
        committed.await.unwrap_or_else(|_| Err(StoreError("the store has ended".into())))?;
        Ok(())
    }

    /// Commits what is in the worktree, and gives its latest commit.
    pub(super) async fn commit_worktree(&mut self, reply: Reply<String>) {
        respond(reply, self.committed_work().await);
    }

    async fn committed_work(&mut self) -> Result<String, RpcError> {
        self.must_rest()?;
        let none = || RpcError::new(Code::NotAllowed, format!("session {} has no git worktree of its own", self.id));
        let worktree = self.state.worktree().cloned().ok_or_else(none)?;
        let name = self.state.given_title.clone().or_else(|| self.state.title.clone()).unwrap_or_default();
        let agent = self.state.delegated.as_ref().map(|of| of.agent.clone()).unwrap_or_default();
        let message = message(&name, &format!("Made by the agent {agent} of linger in session {}.", self.id));
        match self.env.worktrees.commit(&worktree, &self.workspace, &message).await {
            Ok(Work { commit, is_new }) => {
                tracing::info!(target: "worktree", session = %self.id, commit, is_new, "to be merged");
                Ok(commit)
            }
            Err(why) => {
                let error = RpcError::new(Code::NotAllowed, format!("the changes cannot be committed: {why}"));
                Err(error.hint(format!("look at {}", worktree.path.display())))
            }
        }
    }

    /// Merges what a child did into the directory of this session.
    pub(super) async fn merge(&mut self, work: MergeWork, key: Option<Key>, by: Author, reply: Reply<Merged>) {
        match self.outcome::<Merged>(key.as_ref()).await {
            Ok(None) => {}
            Ok(Some(outcome)) => return respond(reply, Ok(outcome)),
            Err(error) => return respond(reply, Err(error)),
        }
        let merged = match self.merged(work, by).await {
            Ok(merged) => merged,
            Err(error) => return respond(reply, Err(error)),
        };
        let outcome = self.remember(key, &merged);
        let (done, committed) = oneshot::channel();
        let draft = Draft::new(EventBody::Merged(Box::new(merged.clone())));
        self.append(vec![draft], outcome.into_iter().collect(), true, Some(done));
        respond_when(reply, committed, merged);
    }

    async fn merged(&mut self, work: MergeWork, by: Author) -> Result<Merged, RpcError> {
        self.must_rest()?;
        self.finish_undo().await?;
        // What its own calls changed is told apart from what is merged.
        self.close_checkpoint().await;
        let MergeWork { child, agent, worktree, commit, title } = work;
        let (branch, directory) = (worktree.branch, self.workspace.root.clone());
        let message = message(&format!("Merge {branch}: {title}"), "");
        match self.env.worktrees.merge((&commit, &branch), &self.workspace, &message).await {
            Ok(MergeDone { before, commit, files, count }) => {
                let Author { name, process } = by;
                Ok(Merged { child, agent, branch, directory, before, commit, files, count, by: Some(name), process })
            }
            Err(why) => {
                let place = directory.display();
                let (code, hint) = match &why {
                    MergeError::Nothing => (Code::Idle, format!("all of {branch} is in {place} already")),
                    MergeError::Conflict(_) => (
                        Code::NotAllowed,
                        format!("nothing was changed; `git merge {branch}` in {place} merges by hand"),
                    ),
                    MergeError::Dirty(_) => (Code::NotAllowed, format!("commit or stash them in {place} first")),
                    MergeError::Failed(_) => (Code::NotAllowed, format!("the changes are on the branch {branch}")),
                };
                Err(RpcError::new(code, format!("{branch} is not merged: {why}")).hint(hint))
            }
        }
    }

    /// Records what became of the worktree.
    pub(super) fn note_worktree(&mut self, status: WorktreeStatus, reply: Reply<()>) {
        let Some(worktree) = self.state.worktree().cloned() else { return respond(reply, Ok(())) };
        let committed = self.worktree_is(Worktree { status, ..worktree });
        respond_when(reply, committed, ());
    }

    fn worktree_is(&mut self, worktree: Worktree) -> oneshot::Receiver<Result<(), StoreError>> {
        let (done, committed) = oneshot::channel();
        self.append(vec![Draft::new(EventBody::WorktreeChanged(worktree))], Vec::new(), true, Some(done));
        committed
    }

    fn is_at_work(&self) -> bool {
        self.state.turn.is_some() || !self.state.queue.is_empty()
    }

    /// Fails while a turn runs, or is about to.
    fn must_rest(&self) -> Result<(), RpcError> {
        if !self.is_at_work() && matches!(self.phase, Phase::Idle) {
            return Ok(());
        }
        let busy = RpcError::new(Code::Busy, format!("session {} is at work", self.id));
        Err(busy.hint("wait for its end, or cancel it first"))
    }
}

/// The longest first line of a commit message, in characters.
const SUBJECT: usize = 72;

fn message(subject: &str, body: &str) -> String {
    let line = crate::tool::text::one_line(subject.lines().next().unwrap_or_default());
    let subject: String = line.trim().chars().take(SUBJECT).collect();
    let subject = if subject.is_empty() { "changes of an agent".to_owned() } else { subject };
    if body.is_empty() { subject } else { format!("{subject}\n\n{body}") }
}
