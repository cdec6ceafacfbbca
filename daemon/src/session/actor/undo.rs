//! Undo and redo of the model's changes of files.
//!
//! Nothing else happens to the session meanwhile: the actor waits for the disk, and no turn runs. An event with all changes is on
//! disk before the first file is written; another one marks the end. A restart in between writes the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use linger_protocol::checkpoint::{Uncertain, UncertainChange};
use linger_protocol::event::{FileChange, NotRestored, ToolFinished, UndoStarted};
use linger_protocol::path::shown;
use linger_protocol::session::{Redo, Restored, Undo};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::session::state::undo::{MAX_BYTES, UndoStep, Undone};
use crate::store::blob::Held;
use crate::tool::change::KeptChange;
use crate::tool::checkpoint::{CommandChanges, Restorable};
use crate::tool::restore::{self, Plan};

/// How long the files may take. Some hundred megabytes are written in seconds; the session waits.
const LIMIT: Duration = Duration::from_secs(30);

/// The bytes of events that are read at once.
const PAGE: usize = 1 << 20;

/// Files that an error names.
const NAMED: usize = 5;

/// The changes to undo or redo.
#[derive(Default)]
struct UndoTarget {
    /// The turn, if all of its changes are meant.
    step: Option<TurnId>,
    call: Option<CallId>,
    files: Vec<PathBuf>,
    /// In the order in which they were made.
    changes: Vec<FileChange>,
    /// The blobs with former contents of files that commands changed.
    held: Vec<Held>,
    /// Changes of commands that cannot be restored.
    failed: Vec<NotRestored>,
    /// Files that somebody else may have changed while a command ran.
    uncertain: BTreeMap<PathBuf, UncertainChange>,
}

/// Changes of one call, or of an undo.
#[derive(Default)]
pub(super) struct CallChanges {
    call: Option<CallId>,
    changes: Vec<FileChange>,
    held: Vec<Held>,
    failed: Vec<NotRestored>,
    /// When a command ran whose changes are not certain.
    ran: Option<UncertainTime>,
}

/// When a call ran, in Unix milliseconds.
#[derive(Clone, Copy)]
struct UncertainTime {
    from: Option<u64>,
    to: u64,
}

impl CallChanges {
    /// The changes that somebody else may have made.
    pub(super) fn uncertain(&self) -> impl Iterator<Item = UncertainChange> {
        let change = |change: &FileChange| {
            let (UncertainTime { from, to }, call_id) = (self.ran?, self.call.clone()?);
            Some(UncertainChange { path: change.path.clone(), kind: change.kind, call_id, at: None, from, to })
        };
        self.changes.iter().filter_map(change)
    }
}

impl UndoTarget {
    /// Adds the changes of a call of files that are meant; whether there are any.
    fn add(&mut self, made: CallChanges, is_meant: impl Fn(&Path) -> bool) {
        self.uncertain.extend(made.uncertain().filter(|it| is_meant(&it.path)).map(|it| (it.path.clone(), it)));
        self.changes.extend(made.changes.into_iter().filter(|change| is_meant(&change.path)));
        self.failed.extend(made.failed.into_iter().filter(|left| is_meant(&left.path)));
        self.held.extend(made.held);
    }

    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.failed.is_empty()
    }

    /// The files that it has.
    fn paths(&self) -> impl Iterator<Item = &Path> {
        let failed = self.failed.iter().map(|left| &*left.path);
        self.changes.iter().map(|change| &*change.path).chain(failed)
    }
}

/// Whether a file is among the named ones, each of which may be meant as a link; `all`: none is named, and all are meant.
fn target_has(names: &[[PathBuf; 2]], path: &Path, all: bool) -> bool {
    all || names.iter().flatten().any(|name| name == path)
}

impl Actor {
    pub(super) async fn undo(&mut self, undo: Undo, key: Option<Key>, by: Author, reply: Reply<Restored>) {
        let done = self.restore(&undo, false, key, by).await;
        answer(reply, done);
    }

    pub(super) async fn redo(&mut self, redo: Redo, key: Option<Key>, by: Author, reply: Reply<Restored>) {
        let Redo { session, force, .. } = redo;
        let done = self.restore(&Undo { session, force, ..Undo::default() }, true, key, by).await;
        answer(reply, done);
    }

    async fn restore(&mut self, asked: &Undo, redo: bool, key: Option<Key>, by: Author) -> Result<Waits, RpcError> {
        if let Some(done) = self.outcome::<Restored>(key.as_ref()).await? {
            return Ok((done, None));
        }
        if let Some(busy) = self.git_is_busy() {
            return Err(busy);
        }
        if self.state.turn.is_some() || !matches!(self.phase, Phase::Idle) {
            let busy = RpcError::new(Code::Busy, format!("session {} has an unfinished turn", self.id));
            return Err(busy.hint("wait for its end, or cancel it first"));
        }
        self.finish_undo().await?;
        self.close_checkpoint().await;
        self.barrier().await?;
        let mut target = self.target(asked, redo).await?;
        let (mut plan, uncertain) = self.plan(&target, asked.force).await?;
        let named = asked.file.is_some() || !asked.files.is_empty() || asked.force;
        let asks = asked.uncertain == Some(Uncertain::Ask);
        let mut left = if named { Vec::new() } else { uncertain };
        if asks && !left.is_empty() {
            return Err(uncertain_changes(&left, &self.state.identity.cwd));
        }
        if asked.uncertain == Some(Uncertain::Undo) {
            left.clear();
        }
        let staying: BTreeSet<PathBuf> = left.iter().map(|it| it.path.clone()).collect();
        let stays = |path: &Path| staying.contains(path);
        plan.changed.retain(|path| !stays(path));
        plan.changes.retain(|kept| !stays(&kept.change.path));
        plan.failed.retain(|it| !stays(&it.path));
        target.failed.retain(|it| !stays(&it.path));
        if !plan.changed.is_empty() {
            return Err(self.changed_since(&plan.changed, redo));
        }
        if asked.uncertain == Some(Uncertain::Keep) {
            // That is decided.
            left.clear();
        }
        let Author { name, process } = by;
        // Until the events name what they keep.
        let (step, call, mut files, _held) = (target.step, target.call, target.files, target.held);
        let file = if files.len() == 1 { files.pop() } else { None };
        let (changes, blobs): (Vec<FileChange>, Vec<Vec<Held>>) =
            plan.changes.into_iter().map(|KeptChange { change, blobs, .. }| (change, blobs)).unzip();
        let blobs: Vec<Held> = blobs.into_iter().flatten().collect();
        let mut failed = target.failed;
        failed.extend(plan.failed);
        if !changes.is_empty() {
            let (by, uncertain) = (Some(name), left.clone());
            let (step, changes) = (step.clone(), changes.clone());
            let body =
                EventBody::UndoStarted(UndoStarted { redo, step, call, file, files, changes, uncertain, by, process });
            let committed = self.append_synced(vec![Draft { blobs: blobs.clone(), ..Draft::new(body) }], None);
            settled(committed).await?;
        }
        let (changes, more) = self.make(changes).await?;
        failed.extend(more);
        let uncertain = left;
        let restored = Restored {
            step: step.clone(),
            changes: changes.clone(),
            failed: failed.clone(),
            uncertain: uncertain.clone(),
        };
        let outcome = self.remember(key, &restored);
        let committed = self.undone(EventBody::Undone { redo, step, changes, failed, uncertain }, blobs, outcome);
        Ok((restored, Some(committed)))
    }

    /// The changes after an event that somebody else may have made while a command ran.
    pub(super) async fn uncertain(&mut self, after: u64) -> Result<Vec<UncertainChange>, RpcError> {
        self.close_checkpoint().await;
        self.barrier().await?;
        let mut target = UndoTarget::default();
        for UndoStep { first, last, .. } in self.state.undo.steps.iter().filter(|step| step.first > after) {
            for made in self.changes(*first, *last, true).await? {
                target.add(made, |_| true);
            }
        }
        // A file that is as it should be now may not be so any more once later turns are undone.
        let dated = move |it: UncertainChange| UncertainChange { at: restore::written_at(&it.path), ..it };
        self.run_on_disk(move |_| target.uncertain.into_values().map(dated).collect()).await
    }

    fn undone(&mut self, body: EventBody, blobs: Vec<Held>, outcome: Option<Fold>) -> Committed {
        let draft = Draft { blobs, ..Draft::new(body) };
        self.append_synced(vec![draft], outcome)
    }

    /// Ends an undo that the end of the daemon, or a disk that did not answer, has interrupted.
    pub(super) async fn finish_undo(&mut self) -> Result<(), RpcError> {
        let Some(seq) = self.state.undo.under_way else { return Ok(()) };
        let stored = self.env.store.event(self.id.clone(), seq).await?;
        let event = stored.and_then(|stored| serde_json::from_str::<Event>(&stored.data).ok());
        let Some(EventBody::UndoStarted(UndoStarted { redo, step, changes, uncertain, .. })) =
            event.map(|event| event.body)
        else {
            return Err(StoreError::damage(format!("event {seq} cannot be read")).into());
        };
        let (changes, failed) = self.make(changes).await?;
        let body = EventBody::Undone { redo, step, changes, failed, uncertain };
        let blobs = body.file_contents().into_iter().filter_map(|id| self.env.store.blobs.hold(id).ok().flatten());
        let blobs = blobs.collect();
        settled(self.undone(body, blobs, None)).await?;
        Ok(())
    }

    /// Finds the changes that a request means.
    async fn target(&self, asked: &Undo, redo: bool) -> Result<UndoTarget, RpcError> {
        let call = asked.call.clone();
        let files = asked.file.iter().chain(&asked.files).map(|file| self.state.identity.cwd.join(file)).collect();
        let mut target = UndoTarget { call, files, ..UndoTarget::default() };
        if redo {
            let Some(Undone { seq, step, .. }) = self.state.undo.undone.last() else {
                let idle = RpcError::new(Code::Idle, format!("session {} has nothing to do again", self.id));
                return Err(idle.hint("`linger undo` takes changes back"));
            };
            for made in self.changes(*seq, *seq, true).await? {
                target.add(made, |_| true);
            }
            target.step = step.as_ref().map(|step| step.turn.clone());
            return Ok(target);
        }
        let mut names = Vec::new();
        for file in &target.files {
            names.push(self.real(file.clone()).await?);
        }
        let target_names_none = names.is_empty();
        let is_whole = target.call.is_none() && target_names_none;
        for UndoStep { turn, first, last, .. } in self.state.undo.steps.iter().rev() {
            let calls = self.changes(*first, *last, is_whole).await?.into_iter();
            let call = target.call.clone();
            for made in calls.filter(|made| call.is_none() || made.call == call) {
                target.add(made, |path| target_has(&names, path, target_names_none));
            }
            // Each file is undone in the latest turn that changed it.
            let found: BTreeSet<&Path> = target.paths().collect();
            names.retain(|names| !names.iter().any(|name| found.contains(&**name)));
            if !target.is_empty() && names.is_empty() {
                target.step = is_whole.then(|| turn.clone());
                return Ok(target);
            }
        }
        if !target.is_empty() {
            return Ok(target);
        }
        let (call, file) = (target.call, target.files.first());
        let what = match (&call, &file) {
            (Some(call), _) => format!("call {call} changed no file that can be undone"),
            (None, Some(file)) => format!("no change of {} can be undone", shown(file)),
            (None, None) => format!("session {} has no file changes to undo", self.id),
        };
        let idle = RpcError::new(Code::Idle, what);
        Err(match self.state.undo.given_up {
            0 => idle.hint(
                "what commands change is covered in git repositories alone; what a child changed is undone in its own session",
            ),
            _ => idle.hint(format!("older changes were given up: a session keeps {} MB", MAX_BYTES >> 20)),
        })
    }

    /// The changes of calls, or of an undo, between two events. A checkpoint that is gone is an error if all are `needed`.
    pub(super) async fn changes(&self, first: u64, last: u64, needed: bool) -> Result<Vec<CallChanges>, RpcError> {
        let (mut found, mut after) = (Vec::new(), first.saturating_sub(1));
        loop {
            let kinds = &["tool_finished", "undone", "checkpoint"];
            let (page, more) = self.env.store.events_of(self.id.clone(), kinds, after, PAGE).await?;
            for stored in page.iter().filter(|stored| stored.seq <= last) {
                match serde_json::from_str::<Event>(&stored.data).map(|event| event.body) {
                    Ok(EventBody::ToolFinished(ToolFinished { call_id, changes, .. })) => {
                        let changes = self.changes_now(stored.seq, changes);
                        found.push(CallChanges { call: Some(call_id), changes, ..CallChanges::default() });
                    }
                    Ok(EventBody::Undone { changes, .. }) if first == last => {
                        let changes = self.changes_now(stored.seq, changes);
                        found.push(CallChanges { changes, ..CallChanges::default() });
                    }
                    Ok(EventBody::Checkpoint(taken)) if taken.changed > 0 => match self
                        .of_commands(&taken, stored.seq, stored.at)
                        .await
                    {
                        Err(why) if needed => {
                            let text = format!("what call {} changed cannot be undone: {why}", taken.call_id);
                            return Err(RpcError::new(Code::Idle, text).hint("--file or --call undoes what is left"));
                        }
                        Err(_) => {}
                        Ok(made) => found.push(made),
                    },
                    _ => {}
                }
            }
            after = page.last().map_or(last, |stored| stored.seq);
            if !more || after >= last {
                return Ok(found);
            }
        }
    }

    /// The changes that the event `seq` tells, of files as they are called now.
    fn changes_now(&self, seq: u64, changes: Vec<FileChange>) -> Vec<FileChange> {
        let now = |change: FileChange| FileChange { path: self.state.identity.path_now(seq, change.path), ..change };
        changes.into_iter().map(now).collect()
    }

    /// The changes between a checkpoint, which the event `seq` recorded then, and the one before it.
    async fn of_commands(&self, taken: &Checkpoint, seq: u64, to: u64) -> Result<CallChanges, String> {
        let made = CommandChanges { taken, since: taken.since.as_deref().unwrap_or_default() };
        let blobs = &self.env.store.blobs;
        let made = self.env.calls.checkpoints.restorable(&self.workspace, made, blobs).await?;
        let Restorable { changes, held, mut failed } = made;
        let changes = self.changes_now(seq, changes);
        for left in &mut failed {
            left.path = self.state.identity.path_now(seq, std::mem::take(&mut left.path));
        }
        let ran = (!taken.certain).then_some(UncertainTime { from: taken.from, to });
        Ok(CallChanges { call: Some(taken.call_id.clone()), changes, held, failed, ran })
    }

    /// The file that is meant by a name, which may be a link, and that link.
    async fn real(&self, file: PathBuf) -> Result<[PathBuf; 2], RpcError> {
        let workspace = self.workspace.clone();
        let probe = move || {
            let link = file.parent().zip(file.file_name()).map(|(above, name)| workspace.resolve(above).join(name));
            [workspace.resolve(&file), link.unwrap_or(file)]
        };
        let real = disk::probe(&self.state.identity.cwd, disk::SHORT_TIMEOUT, probe).await;
        real.ok_or_else(|| unresponsive(&self.state.identity.cwd))
    }

    /// Plans the changes; gives the uncertain ones among them too, in the order of their paths.
    async fn plan(&self, target: &UndoTarget, force: bool) -> Result<(Plan, Vec<UncertainChange>), RpcError> {
        let (workspace, blobs) = (self.workspace.clone(), self.env.store.blobs.clone());
        let (changes, uncertain) = (target.changes.clone(), target.uncertain.clone());
        let looked = self.run_on_disk(move |token| {
            let plan = restore::plan(&changes, &workspace, &blobs, force, token)?;
            let planned = plan.changes.iter().map(|kept| &kept.change.path).chain(&plan.changed);
            let planned: BTreeSet<&PathBuf> = planned.collect();
            // A file that is as it should be already asks nothing.
            let uncertain = uncertain.into_values().filter(|it| planned.contains(&it.path));
            let dated = uncertain.map(|it| UncertainChange { at: restore::written_at(&it.path), ..it }).collect();
            Ok((plan, dated))
        });
        looked.await?.map_err(|error: std::io::Error| StoreError::from(error).into())
    }

    /// Makes the changes; gives those that are made, and those that failed.
    async fn make(&self, changes: Vec<FileChange>) -> Result<(Vec<FileChange>, Vec<NotRestored>), RpcError> {
        let (workspace, blobs) = (self.workspace.clone(), self.env.store.blobs.clone());
        self.run_on_disk(move |token| restore::make_all(changes, &workspace, &blobs, token)).await
    }

    /// Runs `work` on a thread that may block, and tells it to stop when it takes too long.
    async fn run_on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&CancellationToken) -> T + Send + 'static,
    ) -> Result<T, RpcError> {
        let token = CancellationToken::new();
        let _guard = token.clone().drop_guard();
        let done = disk::probe(&self.state.identity.cwd, LIMIT, move || work(&token)).await;
        done.ok_or_else(|| unresponsive(&self.state.identity.cwd))
    }

    fn changed_since(&self, files: &[PathBuf], redo: bool) -> RpcError {
        let named = named(files.iter().map(PathBuf::as_path), &self.state.identity.cwd);
        let what = if redo { "done again" } else { "undone" };
        let text = format!("{named} changed since; nothing was {what}");
        RpcError::new(Code::FileChanged, text).hint("--force replaces what was changed, --file undoes one file alone")
    }
}

/// The reply to a request, and its commit; absent for a repeated request.
type Waits = (Restored, Option<Committed>);

fn answer(reply: Reply<Restored>, done: Result<Waits, RpcError>) {
    match done {
        Ok((restored, Some(committed))) => respond_when(reply, committed, restored),
        Ok((restored, None)) => respond(reply, Ok(restored)),
        Err(error) => respond(reply, Err(error)),
    }
}

fn unresponsive(cwd: &Path) -> RpcError {
    RpcError::new(Code::NoWorkspace, disk::unresponsive(cwd)).hint("try again when it does")
}

/// Some of these files, for people.
fn named<'a>(files: impl ExactSizeIterator<Item = &'a Path>, cwd: &Path) -> String {
    let more = files.len().saturating_sub(NAMED);
    let named: Vec<String> = files.take(NAMED).map(|file| shown(file.strip_prefix(cwd).unwrap_or(file))).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", named.join(", "))
}

/// The refusal to undo what may be of an editor or another program.
pub fn uncertain_changes(uncertain: &[UncertainChange], cwd: &Path) -> RpcError {
    let files = named(uncertain.iter().map(|it| &*it.path), cwd);
    let text = format!("{files} changed while a command ran, perhaps by something else; nothing was undone");
    let error = RpcError::new(Code::Uncertain, text);
    error.hint("--force undoes these too, --keep leaves them and undoes the rest").uncertain(uncertain)
}
