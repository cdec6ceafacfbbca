//! Checkpoints: the state of a workspace at a moment, kept by the user's `git` in a private git directory of each workspace.
//!
//! A checkpoint is a tree of git. The private directory has the configuration, the index and the objects; contents that the
//! repository has already are read there and not stored again. The repository itself is never written, and no lock of it taken.
//! Programs that a repository names are named in its configuration, which no call here reads, and in hooks, which are not there;
//! attributes of the workspace are overridden, so contents are kept as they are on disk.
//! One task at a time works in a private directory. [`Checkpoints::take`] waits for it for a short time only; a first checkpoint that
//! takes longer is finished behind it, so that the next one has its index.
//! A crash leaves a lock file, which the next call removes, and objects that nothing names, which [`upkeep`] removes.
//! Deliberately absent: sessions and events. What an event names may be gone: checkpoints are kept for a time, and within bounds.
//!
//! | file | owns |
//! |---|---|
//! | `directory` | the private git directory: its files, and running git there |
//! | `snapshot` | taking a checkpoint |
//! | `contents` | what differs between two of them, and the contents of files |
//! | `modes` | the permissions of files at a checkpoint |
//! | `upkeep` | removing old ones |

mod contents;
mod directory;
mod modes;
mod snapshot;
#[cfg(test)]
mod tests;
mod upkeep;

use std::collections::{HashMap, VecDeque};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::process::server::Children;
use crate::store::days::Days;
use crate::sys::task;
use crate::tool::overlap::Overlaps;
use crate::tool::workspace::Workspace;
pub use contents::{CommandChanges, MAX_RESTORED, Restorable, Side, TreeChange};
use directory::CheckpointGit;
pub use modes::Modes;

/// The most files of a workspace: the next checkpoints look at each.
pub const MAX_FILES: usize = 50_000;

/// The most bytes of files that a checkpoint reads.
pub const MAX_BYTES: u64 = 1 << 30;

/// How long a call waits for its checkpoint.
pub const LIMIT: Duration = Duration::from_secs(2);

/// How long a checkpoint may take that no call waits for any more; at disk speed [`MAX_BYTES`] take some seconds.
const LIMIT_BEHIND: Duration = Duration::from_secs(60);

/// How long a workspace that is too large is left alone, so that not every call looks again.
const AGAIN: Duration = Duration::from_secs(600);

/// Checkpoints of a workspace whose permissions are known: as many as there are calls at a time, and some.
const MAX_MODES: usize = 8;

/// Private directories that are known at once; more are looked up again. Each is some hundred bytes.
const MAX_ROOTS: usize = 256;

/// The checkpoints of all workspaces; part of what sessions share.
#[derive(Debug)]
pub struct Checkpoints {
    dir: PathBuf,
    children: Children,
    roots: Mutex<HashMap<PathBuf, Root>>,
    swept: Mutex<Option<Instant>>,
    /// Say what is old.
    days: Arc<Days>,
    /// The commands that run.
    pub overlaps: Overlaps,
}

/// The private directory of one workspace; its lock is held while something works there.
type Root = Arc<tokio::sync::Mutex<RootState>>;

/// Facts about a private directory, kept while the daemon runs.
#[derive(Debug, Default)]
struct RootState {
    /// Whether its files were looked at since the start.
    is_ready: bool,
    /// The latest checkpoint; the index is that of it.
    last: Option<String>,
    /// The permissions at the latest checkpoints, the newest last.
    modes: VecDeque<(String, Arc<Modes>)>,
    /// Why there is none, and since when that is known.
    skipped: Option<(Instant, String)>,
    /// When it was tidied last.
    pruned_at: Option<Instant>,
}

/// Why there is no checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skip {
    /// There is no repository, or no git.
    NotHere,
    /// It would take too much; a reason for people.
    TooMuch(String),
    /// It failed; a reason for people.
    Failed(String),
}

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotHere => f.write_str("there is no git repository, or no git"),
            Self::TooMuch(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}

impl RootState {
    /// Keeps the permissions at a checkpoint.
    fn keep_modes(&mut self, checkpoint: &str, modes: Modes) {
        self.modes.retain(|(name, _)| name != checkpoint);
        self.modes.push_back((checkpoint.to_owned(), Arc::new(modes)));
        while self.modes.len() > MAX_MODES {
            self.modes.pop_front();
        }
    }
}

impl Checkpoints {
    /// The checkpoints below `dir`, which need not exist.
    pub fn below(dir: PathBuf, children: Children, days: Arc<Days>) -> Self {
        Self { dir, children, roots: Mutex::default(), swept: Mutex::default(), days, overlaps: Overlaps::default() }
    }

    /// Takes a checkpoint of a workspace, and gives its name. Waits [`LIMIT`] at most; the workspace is read by other tasks.
    pub async fn take(&self, workspace: &Workspace) -> Result<String, Skip> {
        self.sweep();
        let (root, git) = (self.root(&workspace.root), self.git(workspace, &workspace.root));
        let days = self.days.clone();
        let taking = task::spawn(async move {
            let mut state = root.lock_owned().await;
            if let Some((since, why)) = &state.skipped
                && since.elapsed() < AGAIN
            {
                return Err(Skip::TooMuch(why.clone()));
            }
            let taken = match timeout(LIMIT_BEHIND, snapshot::take(&git, &mut state)).await {
                Ok(taken) => taken,
                Err(_) => Err(Skip::TooMuch(format!("it takes longer than {} s", LIMIT_BEHIND.as_secs()))),
            };
            if let Err(Skip::TooMuch(why)) = &taken {
                state.skipped = Some((Instant::now(), why.clone()));
            }
            if taken.is_ok() && upkeep::is_due(&state) {
                // It is in nobody's way: the next checkpoint waits for its lock, and a call for that only so long.
                task::spawn(async move { upkeep::prune(&git, &mut state, upkeep::before(&days)).await });
            }
            taken
        });
        match timeout(LIMIT, taking).await {
            Ok(Ok(taken)) => taken,
            Ok(Err(error)) => Err(Skip::Failed(error.to_string())),
            Err(_) => Err(Skip::TooMuch(format!("it takes longer than {} s", LIMIT.as_secs()))),
        }
    }

    /// The permissions of files at a checkpoint, if they are known.
    pub async fn modes(&self, root: &Path, checkpoint: &str) -> Option<Arc<Modes>> {
        let root = self.root(root);
        let state = timeout(LIMIT, root.lock()).await.ok()?;
        state.modes.iter().rev().find(|(name, _)| name == checkpoint).map(|(_, modes)| modes.clone())
    }

    /// Compares two checkpoints of the workspace at `root`. Fails with the reason, also if one of them is gone.
    pub async fn between(
        &self,
        workspace: &Workspace,
        root: &Path,
        before: &str,
        after: &str,
    ) -> Result<Vec<TreeChange>, String> {
        let direct = self.git(workspace, root);
        let git = match self.moved_to(root) {
            // A new workspace may be where the moved one was.
            Some(to) if !direct.has(&[before, after]) => self.git(workspace, &to),
            _ => direct,
        };
        let changes = contents::between(&git, before, after).await;
        changes.map_err(|skip| if git.has(&[before, after]) { skip.to_string() } else { GONE.to_owned() })
    }

    /// The contents of files of checkpoints, by their names in git; those that are gone or too long are left out.
    pub async fn contents(
        &self,
        workspace: &Workspace,
        root: &Path,
        names: Vec<String>,
    ) -> Result<HashMap<String, Vec<u8>>, String> {
        let Some(to) = self.moved_to(root) else {
            return contents::read(&self.git(workspace, root), names).await.map_err(|skip| skip.to_string());
        };
        let mut all =
            contents::read(&self.git(workspace, &to), names.clone()).await.map_err(|skip| skip.to_string())?;
        if let Ok(more) = contents::read(&self.git(workspace, root), names).await {
            all.extend(more);
        }
        Ok(all)
    }

    /// The workspace at `from` is at `to` now: its checkpoints go along, and a note stays where they were. Blocks.
    pub fn follow(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        let (old, new) = (directory::private(&self.dir, from), directory::private(&self.dir, to));
        if !old.exists() || old == new {
            return Ok(());
        }
        // A workspace that comes back to where it was finds nothing but the note there.
        if directory::moved(&new).is_some() {
            let _none = std::fs::remove_file(new.join(directory::MOVED));
            let _in_use = std::fs::remove_dir(&new);
        }
        if !new.exists() {
            std::fs::rename(&old, &new)?;
            // Files and their times are those of another path.
            let _none = std::fs::remove_file(new.join("index"));
            let _none = std::fs::remove_file(new.join(directory::MOVED));
            std::fs::create_dir(&old)?;
        }
        std::fs::write(old.join(directory::MOVED), to.as_os_str().as_bytes())?;
        self.roots.lock().unwrap_or_else(PoisonError::into_inner).retain(|root, _| root != from && root != to);
        Ok(())
    }

    /// Where the workspace that was at `root` is now, if it was moved. Asks the disk, shortly.
    fn moved_to(&self, root: &Path) -> Option<PathBuf> {
        let mut at = root.to_path_buf();
        for _ in 0..MAX_MOVES {
            let Some(to) = directory::moved(&directory::private(&self.dir, &at)) else { break };
            at = to;
        }
        (at != root).then_some(at)
    }

    fn git(&self, workspace: &Workspace, root: &Path) -> CheckpointGit {
        CheckpointGit::of(&self.dir, root, workspace, self.children.clone())
    }

    fn root(&self, path: &Path) -> Root {
        let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        if roots.len() >= MAX_ROOTS {
            roots.retain(|_, root| Arc::strong_count(root) > 1);
        }
        roots.entry(path.to_path_buf()).or_default().clone()
    }

    /// Removes private directories that were not used for long, now and then.
    fn sweep(&self) {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.is_none_or(|at| at.elapsed() >= upkeep::EVERY) {
            *swept = Some(Instant::now());
            let (dir, before) = (self.dir.clone(), upkeep::before(&self.days));
            task::spawn_blocking(move || upkeep::sweep(&dir, before));
        }
    }
}

/// How often a workspace is followed.
const MAX_MOVES: usize = 16;

/// Why a checkpoint cannot be used that an event names.
const GONE: &str = "its checkpoint is gone: they are kept for 14 days, and less where they take much room";
