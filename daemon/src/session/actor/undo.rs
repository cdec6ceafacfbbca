//! Undo and redo of the model's changes of files.
//!
//! Nothing else happens to the session meanwhile: the actor waits for the disk, and no turn runs. An event with all changes is on
//! disk before the first file is written; another one marks the end. A restart in between writes the rest.

use std::path::{Path, PathBuf};

use linger_protocol::event::{FileChange, NotRestored, ToolFinished, UndoStarted};
use linger_protocol::session::{Redo, Restored, Undo};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::session::state::undo::{MAX_BYTES, UndoStep, Undone};
use crate::store::blob::Held;
use crate::tool::change::KeptChange;
use crate::tool::checkpoint::Restorable;
use crate::tool::restore::{self, Plan};

/// How long the files may take. Some hundred megabytes are written in seconds; the session waits.
const LIMIT: Duration = Duration::from_secs(30);

/// The bytes of events that are read at once.
const PAGE: usize = 1 << 20;

/// Files that an error names.
const NAMED: usize = 5;

/// The changes to undo or redo.
struct UndoTarget {
    /// The turn, if all of its changes are meant.
    step: Option<TurnId>,
    call: Option<CallId>,
    file: Option<PathBuf>,
    /// In the order in which they were made.
    changes: Vec<FileChange>,
    /// The blobs with former contents of files that commands changed.
    held: Vec<Held>,
    /// Changes of commands that cannot be restored.
    failed: Vec<NotRestored>,
}

/// Changes of one call, or of an undo.
#[derive(Default)]
struct CallChanges {
    call: Option<CallId>,
    changes: Vec<FileChange>,
    held: Vec<Held>,
    failed: Vec<NotRestored>,
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
        let target = self.target(asked, redo).await?;
        let plan = self.plan(&target.changes, asked.force).await?;
        if !plan.changed.is_empty() {
            return Err(self.changed_since(&plan.changed));
        }
        let Author { name, process } = by;
        // Until the events name what they keep.
        let (step, call, file, _held) = (target.step, target.call, target.file, target.held);
        let (changes, blobs): (Vec<FileChange>, Vec<Vec<Held>>) =
            plan.changes.into_iter().map(|KeptChange { change, blobs, .. }| (change, blobs)).unzip();
        let blobs: Vec<Held> = blobs.into_iter().flatten().collect();
        let mut failed = target.failed;
        failed.extend(plan.failed);
        if !changes.is_empty() {
            let by = Some(name);
            let (step, changes) = (step.clone(), changes.clone());
            let body = EventBody::UndoStarted(UndoStarted { redo, step, call, file, changes, by, process });
            let committed = self.append_synced(vec![Draft { blobs: blobs.clone(), ..Draft::new(body) }], None);
            settled(committed).await?;
        }
        let (changes, more) = self.make(changes).await?;
        failed.extend(more);
        let restored = Restored { step: step.clone(), changes: changes.clone(), failed: failed.clone() };
        let outcome = self.remember(key, &restored);
        let committed = self.undone(EventBody::Undone { redo, step, changes, failed }, blobs, outcome);
        Ok((restored, Some(committed)))
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
        let Some(EventBody::UndoStarted(UndoStarted { redo, step, changes, .. })) = event.map(|event| event.body)
        else {
            return Err(StoreError::damage(format!("event {seq} cannot be read")).into());
        };
        let (changes, failed) = self.make(changes).await?;
        let body = EventBody::Undone { redo, step, changes, failed };
        let blobs = body.file_contents().into_iter().filter_map(|id| self.env.store.blobs.hold(id).ok().flatten());
        let blobs = blobs.collect();
        settled(self.undone(body, blobs, None)).await?;
        Ok(())
    }

    /// Finds the changes that a request means.
    async fn target(&self, asked: &Undo, redo: bool) -> Result<UndoTarget, RpcError> {
        let Undo { call, file, .. } = asked;
        let (call, file) = (call.clone(), file.as_ref().map(|file| self.state.identity.cwd.join(file)));
        if redo {
            let Some(Undone { seq, step }) = self.state.undo.undone.last() else {
                let idle = RpcError::new(Code::Idle, format!("session {} has nothing to do again", self.id));
                return Err(idle.hint("a change of the model since the undo ends that"));
            };
            let made = self.changes(*seq, *seq, true).await?;
            let changes = made.into_iter().flat_map(|made| made.changes).collect();
            let step = step.as_ref().map(|step| step.turn.clone());
            return Ok(UndoTarget { step, call, file, changes, held: Vec::new(), failed: Vec::new() });
        }
        let real = match &file {
            Some(file) => Some(self.real(file.clone()).await?),
            None => None,
        };
        for UndoStep { turn, first, last, .. } in self.state.undo.steps.iter().rev() {
            let is_whole = call.is_none() && file.is_none();
            let calls = self.changes(*first, *last, is_whole).await?.into_iter();
            let meant = calls.filter(|made| call.is_none() || made.call.as_ref() == call.as_ref());
            let is_meant = |path: &Path| real.as_ref().is_none_or(|names| names.iter().any(|file| file == path));
            let (mut changes, mut held, mut failed) = (Vec::new(), Vec::new(), Vec::new());
            for made in meant {
                changes.extend(made.changes.into_iter().filter(|change| is_meant(&change.path)));
                failed.extend(made.failed.into_iter().filter(|left| is_meant(&left.path)));
                held.extend(made.held);
            }
            if !changes.is_empty() || !failed.is_empty() {
                return Ok(UndoTarget { step: is_whole.then(|| turn.clone()), call, file, changes, held, failed });
            }
        }
        let what = match (&call, &file) {
            (Some(call), _) => format!("call {call} changed no file that can be undone"),
            (None, Some(file)) => format!("no change of {} can be undone", file.display()),
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
    async fn changes(&self, first: u64, last: u64, needed: bool) -> Result<Vec<CallChanges>, RpcError> {
        let (mut found, mut after) = (Vec::new(), first.saturating_sub(1));
        loop {
            let kinds = &["tool_finished", "undone", "checkpoint"];
            let (page, more) = self.env.store.events_of(self.id.clone(), kinds, after, PAGE).await?;
            for stored in page.iter().filter(|stored| stored.seq <= last) {
                match serde_json::from_str::<Event>(&stored.data).map(|event| event.body) {
                    Ok(EventBody::ToolFinished(ToolFinished { call_id, changes, .. })) => {
                        found.push(CallChanges { call: Some(call_id), changes, ..CallChanges::default() });
                    }
                    Ok(EventBody::Undone { changes, .. }) if first == last => {
                        found.push(CallChanges { changes, ..CallChanges::default() });
                    }
                    Ok(EventBody::Checkpoint(taken)) if taken.changed > 0 => match self.of_commands(&taken).await {
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

    /// The changes between a checkpoint and the one before it.
    async fn of_commands(&self, taken: &Checkpoint) -> Result<CallChanges, String> {
        let Checkpoint { checkpoint, root, call_id, since, .. } = taken;
        let since = since.as_deref().unwrap_or_default();
        let blobs = &self.env.store.blobs;
        let made = self.env.calls.checkpoints.restorable(&self.workspace, root, since, checkpoint, blobs).await?;
        let Restorable { changes, held, failed } = made;
        Ok(CallChanges { call: Some(call_id.clone()), changes, held, failed })
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

    async fn plan(&self, changes: &[FileChange], force: bool) -> Result<Plan, RpcError> {
        let (workspace, blobs, changes) = (self.workspace.clone(), self.env.store.blobs.clone(), changes.to_vec());
        let looked = self.run_on_disk(move |token| restore::plan(&changes, &workspace, &blobs, force, token)).await?;
        looked.map_err(|error| StoreError::from(error).into())
    }

    /// Makes the changes; gives those that are made, and those that failed.
    async fn make(&self, changes: Vec<FileChange>) -> Result<(Vec<FileChange>, Vec<NotRestored>), RpcError> {
        let (workspace, blobs) = (self.workspace.clone(), self.env.store.blobs.clone());
        self.run_on_disk(move |token| {
            let (mut made, mut failed) = (Vec::new(), Vec::new());
            for change in changes {
                let done = if token.is_cancelled() {
                    Err("the disk did not answer in time".to_owned())
                } else {
                    restore::make(&change, &workspace, &blobs)
                };
                match done {
                    Ok(()) => made.push(change),
                    Err(reason) => failed.push(NotRestored { path: change.path, reason }),
                }
            }
            (made, failed)
        })
        .await
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

    fn changed_since(&self, files: &[PathBuf]) -> RpcError {
        let shown = |file: &PathBuf| file.strip_prefix(&self.state.identity.cwd).unwrap_or(file).display().to_string();
        let named: Vec<String> = files.iter().take(NAMED).map(shown).collect();
        let more = files.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let text = format!("{}{more} changed since; nothing was undone", named.join(", "));
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
