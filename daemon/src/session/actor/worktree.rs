//! The git worktree of a child, and merging one into the directory of its parent.
//!
//! Git works in a task of its own, and the mailbox answers meanwhile; no turn begins, and nothing else that needs an idle session,
//! until that task is done. Prompts to a child whose worktree is being looked at or made again wait for it.
#![allow(clippy::vec_box)] // Prompts wait in the boxes in which the mailbox had them.

use linger_protocol::worktree::{Merged, Worktree, WorktreeStatus};

use super::*;
use crate::session::calls::checkpoints::{CallTime, after};
use crate::session::state::undo::OpenCheckpoint;
use crate::store::Store;
use crate::sys::task;
use crate::tool::worktree::{MergeDone, MergeError, Work};

/// How long git may go on when the daemon ends, as long as running commands.
const END_GRACE: Duration = Duration::from_secs(10);

/// The most prompts that wait for git: as many as wait for a turn.
const MAX_PROMPTS: usize = 256;

/// The kind of event of a merge.
const MERGED: &[&str] = &["merged"];

/// How much of the log is read at once to find one, in bytes.
const PAGE: usize = 1 << 20;

/// Git at work for the session.
pub(super) struct GitPhase {
    task: JoinHandle<()>,
    result: oneshot::Receiver<GitDone>,
    behind: BehindGit,
}

/// The prompts that wait for git.
#[derive(Default)]
pub(super) struct BehindGit {
    /// New prompts to a session in a worktree.
    prompts: Vec<Box<PromptRequest>>,
    /// Whether held prompts start too: a prompt or an answer came meanwhile.
    starts_held: bool,
}

impl GitPhase {
    /// The result, once git is done; absent if its task has panicked.
    pub(super) async fn next(&mut self) -> Option<Box<GitDone>> {
        (&mut self.result).await.ok().map(Box::new)
    }

    /// The result, if git is done and its task has not panicked.
    pub(super) fn try_next(&mut self) -> Option<GitDone> {
        self.result.try_recv().ok()
    }

    /// Whether git is done.
    pub(super) fn is_done(&self) -> bool {
        self.task.is_finished()
    }

    /// The task, to be awaited or stopped.
    pub(super) fn into_task(self) -> JoinHandle<()> {
        self.task
    }

    /// A prompt or an answer starts held prompts once git is done.
    pub(super) fn start_held(&mut self) {
        self.behind.starts_held = true;
    }

    /// Refuses the prompts that wait.
    pub(super) fn refuse_prompts(&mut self, error: &RpcError) {
        self.behind.refuse(error);
    }
}

impl BehindGit {
    fn refuse(&mut self, error: &RpcError) {
        for asked in self.prompts.drain(..) {
            respond(asked.reply, Err(error.clone()));
        }
    }
}

/// The result of git, with the request for it.
pub(super) enum GitDone {
    /// Removed a worktree, or found that it stays.
    Tidied(Worktree, Result<bool, String>, Reply<Option<Worktree>>),
    /// Committed what is in the worktree.
    Committed(Worktree, Result<Work, String>, Reply<String>),
    /// Merged what a child did.
    Merged(Box<MergeRequest>, Option<Checkpoint>, Result<MergeDone, MergeError>),
    /// Made a removed worktree again.
    Recreated(Result<Worktree, RpcError>),
}

impl GitDone {
    /// Answers the request for it with an error.
    fn refuse(self, error: RpcError) {
        match self {
            Self::Tidied(_, _, reply) => respond(reply, Err(error)),
            Self::Committed(_, _, reply) => respond(reply, Err(error)),
            Self::Merged(asked, ..) => respond(asked.reply, Err(error)),
            Self::Recreated(_) => {}
        }
    }
}

/// A request to merge.
pub(super) struct MergeRequest {
    work: MergeWork,
    key: Option<Key>,
    by: Author,
    reply: Reply<Merged>,
}

/// The last merge, whose event may not be written yet.
#[derive(Default)]
pub(super) struct LastMerge(Option<Box<MergeRecord>>);

struct MergeRecord {
    /// The number of the event.
    seq: u64,
    merged: Merged,
    key: Option<Key>,
}

impl Actor {
    /// Runs git in a task of its own.
    fn start_git(&mut self, behind: BehindGit, work: impl Future<Output = GitDone> + Send + 'static) {
        let (done, result) = oneshot::channel();
        let id = self.id.clone();
        let task = task::spawn(async move {
            if let Err(result) = done.send(work.await) {
                result
                    .refuse(RpcError::new(Code::UnknownSession, format!("session {id} was removed while git worked")));
            }
        });
        self.phase = Phase::Git(Box::new(GitPhase { task, result, behind }));
    }

    /// Keeps the result of git until it can be recorded.
    pub(super) fn keep_git_result(&mut self, result: Option<Box<GitDone>>) {
        let Phase::Failed(_, _, Some(git)) = &mut self.phase else { return };
        let (done, kept) = oneshot::channel();
        git.result = kept;
        if let Some(result) = result {
            // The receiver is in place.
            let _sent = done.send(*result);
        }
    }

    /// Whether a prompt starts, or is accepted, once git is done.
    pub(super) fn has_prompt_behind_git(&self) -> bool {
        let Phase::Git(git) = &self.phase else { return false };
        !git.behind.prompts.is_empty() || self.has_prompt_for(git.behind.starts_held)
    }

    /// Cancels what waits for git as if git had not held it up: the next prompt is a turn that ends as cancelled, further ones are
    /// held. Git goes on.
    pub(super) fn cancel_behind_git(&mut self, asked: KeyedReply) {
        let Phase::Git(mut git) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        git.refuse_prompts(&self.cancelled_prompt());
        let is_due = self.has_prompt_for(std::mem::take(&mut git.behind.starts_held));
        // Its commit is that of its end.
        if is_due && self.announce_turn(Vec::new(), false, oneshot::channel().0) {
            self.close_turn(vec![asked]);
        } else {
            self.cancelled_without_turn(asked);
        }
        self.phase = Phase::Git(git);
    }

    /// Continues after git is done.
    pub(super) async fn git_done(&mut self, result: Option<GitDone>) {
        let Some(behind) = self.record_git(result) else { return };
        if self.lacks_worktree() && (!behind.prompts.is_empty() || self.has_prompt_for(behind.starts_held)) {
            return self.recreate_worktree(behind);
        }
        let BehindGit { prompts, starts_held } = behind;
        for request in prompts {
            self.take(Box::new(Command::Prompt(request))).await;
        }
        if matches!(self.phase, Phase::Idle) && self.state.settings.binned_at.is_none() {
            self.start_next(starts_held);
        }
        self.start_checkpoint();
    }

    /// When the daemon ends git has a while to finish what it began.
    pub(super) async fn finish_git(&mut self) {
        let (Phase::Git(git) | Phase::Failed(_, _, Some(git))) = &mut self.phase else { return };
        let Ok(result) = tokio::time::timeout(END_GRACE, &mut git.result).await else { return };
        if matches!(self.phase, Phase::Failed(..)) {
            return drop(result.map(|result| result.refuse(self.unwritten())));
        }
        if let Some(mut behind) = self.record_git(result.ok()) {
            behind.refuse(&RpcError::new(Code::Ending, "the daemon is ending"));
        }
    }

    /// Records the result of git, and answers the request for it; without a result its task has panicked. Returns the prompts that
    /// wait, unless they were refused.
    pub(super) fn record_git(&mut self, result: Option<GitDone>) -> Option<BehindGit> {
        let Phase::Git(..) = self.phase else { return None };
        let Phase::Git(git) = std::mem::replace(&mut self.phase, Phase::Idle) else { return None };
        let mut behind = git.behind;
        match result {
            Some(GitDone::Tidied(worktree, tidied, reply)) => self.tidied(worktree, tidied, reply),
            Some(GitDone::Committed(worktree, done, reply)) => self.committed(&worktree, done, reply),
            Some(GitDone::Merged(asked, taken, done)) => self.merge_done(*asked, taken, done),
            Some(GitDone::Recreated(Ok(made))) => drop(self.record_worktree(made)),
            Some(GitDone::Recreated(Err(error))) => {
                behind.refuse(&error);
                return None;
            }
            None => {
                let text = "internal error in the daemon";
                tracing::error!(target: "worktree", session = %self.id, text);
                behind.refuse(&RpcError::new(Code::Internal, text));
                return None;
            }
        }
        Some(behind)
    }

    fn has_prompt_for(&self, starts_held: bool) -> bool {
        self.state.turn.is_none() && !self.state.queue.prompts.is_empty() && (starts_held || !self.state.queue.held)
    }

    /// Removes the worktree unless it has changes, or is in use; gives what became of it.
    pub(super) fn tidy_worktree(&mut self, reply: Reply<Option<Worktree>>) {
        let Some(worktree) = self.state.task.worktree().cloned() else { return respond(reply, Ok(None)) };
        let jobs = self.state.background.running().count();
        let is_used = self.is_busy() || jobs > 0 || !matches!(self.phase, Phase::Idle);
        if is_used || worktree.status == WorktreeStatus::Removed {
            return respond(reply, Ok(Some(worktree)));
        }
        let (env, workspace) = (self.env.clone(), self.workspace.clone());
        self.start_git(BehindGit::default(), async move {
            let tidied = env.worktrees.tidy(&worktree, &workspace).await;
            GitDone::Tidied(worktree, tidied, reply)
        });
    }

    fn tidied(&mut self, worktree: Worktree, tidied: Result<bool, String>, reply: Reply<Option<Worktree>>) {
        match tidied {
            Ok(true) => {
                let now = Worktree { status: WorktreeStatus::Removed, ..worktree };
                let committed = self.record_worktree(now.clone());
                respond_when(reply, committed, Some(now));
            }
            Ok(false) => respond(reply, Ok(Some(worktree))),
            Err(why) => {
                tracing::warn!(target: "worktree", session = %self.id, why, "its worktree cannot be looked at, and stays");
                respond(reply, Ok(Some(worktree)));
            }
        }
    }

    /// Whether the worktree was removed because it had no changes.
    fn lacks_worktree(&self) -> bool {
        self.state.task.worktree().is_some_and(|worktree| worktree.status == WorktreeStatus::Removed)
    }

    /// A prompt to a session whose worktree is away, or is being looked at, waits for that. Gives back one that need not.
    pub(super) fn wait_for_worktree(&mut self, asked: Box<PromptRequest>) -> Option<Box<PromptRequest>> {
        let (has_own, is_away) = (self.state.task.worktree().is_some(), self.lacks_worktree());
        match &mut self.phase {
            Phase::Git(git) if has_own && git.behind.prompts.len() >= MAX_PROMPTS => {
                let much = format!("{MAX_PROMPTS} prompts wait for the git worktree of session {} already", self.id);
                respond(asked.reply, Err(RpcError::new(Code::TooMuch, much).hint("try again in a moment")));
                None
            }
            Phase::Git(git) if has_own => {
                git.behind.prompts.push(asked);
                None
            }
            Phase::Idle if is_away => {
                self.recreate_worktree(BehindGit { prompts: vec![asked], starts_held: false });
                None
            }
            _ => Some(asked),
        }
    }

    /// Makes the worktree again that was removed because it had no changes.
    fn recreate_worktree(&mut self, behind: BehindGit) {
        let (env, id, variables) = (self.env.clone(), self.id.clone(), BTreeMap::clone(&self.workspace.env));
        let parent = self.state.identity.parent.clone().unwrap_or_default();
        self.start_git(behind, async move { GitDone::Recreated(recreated(&env, &id, parent, variables).await) });
    }

    /// Commits what is in the worktree, and gives its latest commit.
    pub(super) fn commit_worktree(&mut self, reply: Reply<String>) {
        if let Err(error) = self.check_idle() {
            return respond(reply, Err(error));
        }
        let Some(worktree) = self.state.task.worktree().cloned() else {
            let none = format!("session {} has no git worktree of its own", self.id);
            return respond(reply, Err(RpcError::new(Code::NotAllowed, none)));
        };
        let name = self.state.title.given_title.clone().or_else(|| self.state.title.title.clone()).unwrap_or_default();
        let agent = self.state.task.delegated.as_ref().map(|of| of.agent.clone()).unwrap_or_default();
        let message = message(&name, &format!("Made by the agent {agent} of linger in session {}.", self.id));
        let (env, workspace) = (self.env.clone(), self.workspace.clone());
        self.start_git(BehindGit::default(), async move {
            let done = env.worktrees.commit(&worktree, &workspace, &message).await;
            GitDone::Committed(worktree, done, reply)
        });
    }

    fn committed(&self, worktree: &Worktree, done: Result<Work, String>, reply: Reply<String>) {
        match done {
            Ok(Work { commit, is_new }) => {
                tracing::info!(target: "worktree", session = %self.id, commit, is_new, "to be merged");
                respond(reply, Ok(commit));
            }
            Err(why) => {
                let error = RpcError::new(Code::NotAllowed, format!("the changes cannot be committed: {why}"));
                respond(reply, Err(error.hint(format!("look at {}", worktree.path.display()))));
            }
        }
    }

    /// Merges what a child did into the directory of this session.
    pub(super) async fn merge(&mut self, work: MergeWork, key: Option<Key>, by: Author, reply: Reply<Merged>) {
        let Some(reply) = self.if_new(key.as_ref(), reply).await else { return };
        if let Err(error) = self.check_idle() {
            return respond(reply, Err(error));
        }
        if let Err(error) = self.finish_undo().await {
            return respond(reply, Err(error));
        }
        let open = self.state.undo.open.as_deref().cloned();
        let (env, workspace, id) = (self.env.clone(), self.workspace.clone(), self.id.clone());
        let asked = Box::new(MergeRequest { work, key, by, reply });
        self.start_git(BehindGit::default(), async move {
            // What its own calls changed is told apart from what is merged.
            let taken = match open {
                Some(OpenCheckpoint { before, at, .. }) => {
                    Some(after(&env.calls.checkpoints, &workspace, before, CallTime::cut_off(at)).await)
                }
                None => None,
            };
            let MergeWork { worktree, commit, title, .. } = &asked.work;
            let message = message(&format!("Merge {}: {title}", worktree.branch), "");
            let done = match env.worktrees.merge(commit, &worktree.branch, &workspace, &message).await {
                // A crash cut it off from its record.
                Err(MergeError::Nothing(Some(done))) if !is_recorded(&env.store, id, &done.commit).await => Ok(*done),
                done => done,
            };
            GitDone::Merged(asked, taken, done)
        });
    }

    fn merge_done(&mut self, asked: MergeRequest, taken: Option<Checkpoint>, done: Result<MergeDone, MergeError>) {
        self.checkpoint_taken(taken);
        let MergeRequest { work, key, by, reply } = asked;
        let MergeWork { child, agent, worktree, .. } = work;
        let (branch, directory) = (worktree.branch, self.workspace.root.clone());
        let merged = match done {
            Ok(MergeDone { before, commit, files, count }) => {
                let Author { name, process } = by;
                Merged { child, agent, branch, directory, before, commit, files, count, by: Some(name), process }
            }
            Err(why) => {
                let place = directory.display();
                let (code, hint) = match &why {
                    MergeError::Nothing(_) => (Code::Idle, format!("all of {branch} is in {place} already")),
                    MergeError::Conflict(_) => (
                        Code::NotAllowed,
                        format!("nothing was changed; `git merge {branch}` in {place} merges by hand"),
                    ),
                    MergeError::Dirty(_) => (Code::NotAllowed, format!("commit or stash them in {place} first")),
                    MergeError::Failed(_) => (Code::NotAllowed, format!("the changes are on the branch {branch}")),
                };
                let error = RpcError::new(code, format!("{branch} is not merged: {why}"));
                return respond(reply, Err(error.hint(hint)));
            }
        };
        let committed = self.record_merge(merged.clone(), key);
        respond_when(reply, committed, merged);
    }

    fn record_merge(&mut self, merged: Merged, key: Option<Key>) -> Committed {
        let outcome = self.remember(key.clone(), &merged);
        let draft = Draft::new(EventBody::Merged(Box::new(merged.clone())));
        let committed = self.append_synced(vec![draft], outcome);
        self.last_merge.0 = Some(Box::new(MergeRecord { seq: self.state.progress.head, merged, key }));
        committed
    }

    /// Records the last merge once more if its event could not be written: the branch has moved.
    pub(super) fn record_merge_again(&mut self) {
        let lost = self.last_merge.0.take().filter(|last| last.seq > self.state.progress.head);
        if let Some(lost) = lost {
            let MergeRecord { merged, key, .. } = *lost;
            drop(self.record_merge(merged, key));
        }
    }

    /// Records what became of the worktree.
    pub(super) fn note_worktree(&mut self, status: WorktreeStatus, reply: Reply<()>) {
        let Some(worktree) = self.state.task.worktree().cloned() else { return respond(reply, Ok(())) };
        let committed = self.record_worktree(Worktree { status, ..worktree });
        respond_when(reply, committed, ());
    }

    fn record_worktree(&mut self, worktree: Worktree) -> Committed {
        self.append_synced(vec![Draft::new(EventBody::WorktreeChanged(worktree))], None)
    }

    fn is_busy(&self) -> bool {
        self.state.turn.is_some() || !self.state.queue.prompts.is_empty()
    }

    /// The error for a request that has to wait for git.
    pub(super) fn git_is_busy(&self) -> Option<RpcError> {
        let busy = || RpcError::new(Code::Busy, format!("git is at work for session {}", self.id));
        matches!(self.phase, Phase::Git(_)).then(|| busy().hint("try again in a moment"))
    }

    /// Fails while a turn runs, or is about to.
    fn check_idle(&self) -> Result<(), RpcError> {
        if let Some(busy) = self.git_is_busy() {
            return Err(busy);
        }
        if !self.is_busy() && matches!(self.phase, Phase::Idle) {
            return Ok(());
        }
        let busy = RpcError::new(Code::Busy, format!("session {} is at work", self.id));
        Err(busy.hint("wait for its end, or cancel it first"))
    }
}

/// Whether the log of a session has the merge that made this commit; true if it cannot be read.
async fn is_recorded(store: &Store, session: SessionId, commit: &str) -> bool {
    let mut after = 0;
    loop {
        let Ok((page, more)) = store.events_of(session.clone(), MERGED, after, PAGE).await else { return true };
        for stored in &page {
            after = stored.seq;
            if serde_json::from_str::<Merged>(&stored.data).is_ok_and(|merged| merged.commit == commit) {
                return true;
            }
        }
        if !more {
            return false;
        }
    }
}

/// Makes a child's worktree again, from its parent's workspace.
async fn recreated(
    env: &Arc<Env>,
    child: &SessionId,
    parent: SessionId,
    variables: BTreeMap<String, String>,
) -> Result<Worktree, RpcError> {
    let elsewhere = "start a session in another directory";
    let row = env.store.session(parent.clone()).await?;
    let Some(of_parent) = row.and_then(|row| State::from_stored(&row.fold)) else {
        let gone = RpcError::new(Code::NoWorkspace, format!("session {parent}, whose worktree this was, is gone"));
        return Err(gone.hint(elsewhere));
    };
    let (cwd, bound_by) = (&of_parent.identity.cwd, of_parent.task.bound_by());
    let parent = env.workspaces.workspace_within(child, cwd, variables, disk::SHORT_TIMEOUT, bound_by).await;
    let made = env.worktrees.make(&parent, child).await;
    made.map_err(|why| RpcError::new(Code::NoWorkspace, why).hint(elsewhere))
}

/// The longest first line of a commit message, in characters.
const SUBJECT: usize = 72;

fn message(subject: &str, body: &str) -> String {
    let line = crate::tool::text::one_line(subject.lines().next().unwrap_or_default());
    let subject: String = line.trim().chars().take(SUBJECT).collect();
    let subject = if subject.is_empty() { "changes of an agent".to_owned() } else { subject };
    if body.is_empty() { subject } else { format!("{subject}\n\n{body}") }
}
