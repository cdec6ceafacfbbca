//! The differences between two checkpoints, and the contents of files in them.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use linger_protocol::checkpoint::Checkpoint;
use linger_protocol::event::{ChangeKind, FileChange, FileType, NotRestored};

use super::directory::CheckpointGit;
use super::modes::mode_of;
use super::snapshot::is_name;
use super::{Checkpoints, Skip};
use crate::store::blob::{Blobs, Held, id_of_bytes};
use crate::sys::task;
use crate::tool::change::KEPT_MAX;
use crate::tool::workspace::Workspace;

/// The bytes of contents that one call of git gives: more than the longest content that is kept.
const CHUNK: u64 = 2 * KEPT_MAX;

/// The most bytes of contents that are read for one undo or one diff, as a session keeps of its own changes.
const MAX_READ: u64 = 200 << 20;

/// The most files that are put back at once: their names are part of one event.
pub const MAX_RESTORED: usize = 5000;

/// How far the times that a disk notes may lie behind the clock, in milliseconds.
const CLOCK_STEP_MS: u128 = 20;

/// A file in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Its mode, as git has it: 0o100644, 0o100755, or 0o120000 for a link.
    pub mode: u32,
    /// The name of its content.
    pub object: String,
}

impl Side {
    /// The type of the file; absent for a repository within the workspace.
    pub fn file_type(&self) -> Option<FileType> {
        match self.mode & 0o170_000 {
            0o100_000 if self.mode & 0o100 != 0 => Some(FileType::Executable),
            0o100_000 => Some(FileType::File),
            0o120_000 => Some(FileType::Link),
            _ => None,
        }
    }
}

/// A file that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeChange {
    /// Absolute path of the file.
    pub path: PathBuf,
    /// Its path below the workspace's root, wherever that is now.
    pub name: PathBuf,
    /// As it was; absent if there was none.
    pub before: Option<Side>,
    /// As it is; absent if there is none.
    pub after: Option<Side>,
}

impl TreeChange {
    /// Whether the file could be executed.
    pub fn was_executable(&self) -> bool {
        self.before.as_ref().and_then(Side::file_type) == Some(FileType::Executable)
    }
}

/// The changes of a call, as its checkpoint tells them.
#[derive(Clone, Copy, Debug)]
pub struct CommandChanges<'a> {
    /// The checkpoint after the call.
    pub taken: &'a Checkpoint,
    /// The checkpoint before it.
    pub since: &'a str,
}

/// The differences between two checkpoints, as undo needs them.
#[derive(Debug, Default)]
pub struct Restorable {
    /// The files, their former contents in blobs.
    pub changes: Vec<FileChange>,
    /// These blobs, held until an event names them.
    pub held: Vec<Held>,
    /// Files that cannot be put back.
    pub failed: Vec<NotRestored>,
}

/// Compares two checkpoints.
pub(super) async fn between(git: &CheckpointGit, before: &str, after: &str) -> Result<Vec<TreeChange>, Skip> {
    if !is_name(before) || !is_name(after) {
        return Err(Skip::Failed("that is no checkpoint".to_owned()));
    }
    let args = ["diff-tree", "-r", "--raw", "-z", "--no-abbrev", "--no-renames", "--no-ext-diff", before, after];
    let raw = git.run(&args, Vec::new()).await?;
    let mut parts = raw.split(|byte| *byte == 0);
    let mut changes = Vec::new();
    while let (Some(head), Some(name)) = (parts.next(), parts.next()) {
        let head = String::from_utf8_lossy(head);
        let mut words = head.trim_start_matches(':').split(' ');
        let mut word = || words.next().unwrap_or_default();
        let (old, new, was, is) = (word(), word(), word(), word());
        let side = |mode: &str, object: &str| {
            let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode != 0)?;
            Some(Side { mode, object: object.to_owned() })
        };
        let name = PathBuf::from(OsStr::from_bytes(name));
        changes.push(TreeChange { path: git.root.join(&name), name, before: side(old, was), after: side(new, is) });
    }
    Ok(changes)
}

/// The contents with these names; those that are gone or too long are left out.
pub(super) async fn read(git: &CheckpointGit, mut names: Vec<String>) -> Result<HashMap<String, Vec<u8>>, Skip> {
    names.retain(|name| is_name(name));
    names.sort_unstable();
    names.dedup();
    let git = git.reading();
    if names.is_empty() {
        return Ok(HashMap::new());
    }
    let looked = git.run(&["cat-file", "--batch-check"], lines(&names)).await?;
    let looked = String::from_utf8_lossy(&looked).into_owned();
    let size =
        |line: &str| line.split_once(" blob ").and_then(|(name, size)| Some((name.to_owned(), size.parse().ok()?)));
    let sizes: Vec<(String, u64)> = looked.lines().filter_map(size).filter(|(_, size)| *size <= KEPT_MAX).collect();
    if sizes.iter().map(|(_, size)| size).fold(0, |sum: u64, size| sum.saturating_add(*size)) > MAX_READ {
        return Err(Skip::TooMuch(format!("the changed files have more than {} MB", MAX_READ >> 20)));
    }
    let mut contents = HashMap::new();
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    for (name, size) in sizes {
        if bytes + size > CHUNK {
            contents.extend(read_chunk(&git, &std::mem::take(&mut chunk)).await?);
            bytes = 0;
        }
        bytes += size;
        chunk.push(name);
    }
    contents.extend(read_chunk(&git, &chunk).await?);
    Ok(contents)
}

async fn read_chunk(git: &CheckpointGit, names: &[String]) -> Result<Vec<(String, Vec<u8>)>, Skip> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let given = git.run(&["cat-file", "--batch"], lines(names)).await?;
    let (mut rest, mut contents) = (given.as_slice(), Vec::new());
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let head = String::from_utf8_lossy(rest.get(..end).unwrap_or_default()).into_owned();
        rest = rest.get(end + 1..).unwrap_or_default();
        let Some((name, size)) = head.split_once(" blob ") else { continue };
        let size: usize = size.parse().unwrap_or(usize::MAX);
        let Some(content) = rest.get(..size) else { break };
        contents.push((name.to_owned(), content.to_vec()));
        rest = rest.get(size + 1..).unwrap_or_default();
    }
    Ok(contents)
}

fn lines(names: &[String]) -> Vec<u8> {
    names.iter().flat_map(|name| [name.as_bytes(), b"\n"]).flatten().copied().collect()
}

impl Checkpoints {
    /// The differences between two checkpoints, so that they can be undone: former contents become blobs. Fails with the reason.
    pub async fn restorable(
        &self,
        workspace: &Workspace,
        made: CommandChanges<'_>,
        blobs: &Blobs,
    ) -> Result<Restorable, String> {
        let CommandChanges { taken, since } = made;
        let (root, taken) = (&taken.root, taken.clone());
        let mut differs = self.between(workspace, root, since, &taken.checkpoint).await?;
        let others: HashSet<&PathBuf> = taken.others.iter().collect();
        differs.retain(|change| !others.contains(&change.name));
        if differs.len() > MAX_RESTORED {
            return Err(format!("it changed {} files, and {MAX_RESTORED} can be put back", differs.len()));
        }
        let sides = differs.iter().flat_map(|change| [&change.before, &change.after]).flatten();
        let names = sides.filter(|side| side.file_type().is_some()).map(|side| side.object.clone()).collect();
        let contents = self.contents(workspace, root, names).await?;
        let blobs = blobs.clone();
        let made = task::spawn_blocking(move || restorable(&differs, &contents, &blobs, &taken));
        let made = made.await.map_err(|error| error.to_string())?;
        made.map_err(|error| format!("the former contents cannot be stored: {error}"))
    }
}

fn restorable(
    differs: &[TreeChange],
    contents: &HashMap<String, Vec<u8>>,
    blobs: &Blobs,
    taken: &Checkpoint,
) -> std::io::Result<Restorable> {
    let mut made = Restorable::default();
    for change in differs {
        let TreeChange { path, before, after, .. } = change;
        let path = path.clone();
        if before.iter().chain(after).any(|side| side.file_type().is_none()) {
            made.failed.push(NotRestored { path, reason: "it is or was a repository".to_owned() });
            continue;
        }
        let kind = match (before, after) {
            (None, _) => ChangeKind::Create,
            (_, None) => ChangeKind::Delete,
            _ => ChangeKind::Edit,
        };
        let content = |side: &Option<Side>| side.as_ref().and_then(|side| contents.get(&side.object));
        let held = content(before).map(|bytes| blobs.put(bytes)).transpose()?;
        let was = held.as_ref().map(|held| held.id().clone());
        let is = content(after).map(|bytes| id_of_bytes(bytes));
        let bytes = held.as_ref().map_or(0, Held::size);
        made.held.extend(held);
        // A plain file that stays one is put back by its content alone, whatever else became of its mode.
        let types = [before, after].map(|side| side.as_ref().and_then(Side::file_type));
        let is_plain = types.iter().flatten().all(|file_type| *file_type == FileType::File);
        let [before_type, after_type] = if is_plain { [None, None] } else { types };
        let (before_mode, directories) = (mode_before(change, taken), directories(change, taken));
        let (before, after, after_mode) = (was, is, None);
        made.changes.push(FileChange {
            path,
            kind,
            before,
            after,
            before_type,
            after_type,
            before_mode,
            after_mode,
            directories,
            bytes,
        });
    }
    Ok(made)
}

/// The permissions of a file before the call.
fn mode_before(change: &TreeChange, taken: &Checkpoint) -> Option<u32> {
    let file_type = change.before.as_ref()?.file_type()?;
    mode_of(taken.modes.as_ref(), &change.name, file_type == FileType::File).filter(|_| file_type != FileType::Link)
}

/// The permissions of the directories above a file that came with it, or that may have gone with it; the innermost first.
fn directories(change: &TreeChange, taken: &Checkpoint) -> Vec<u32> {
    let depth = change.name.components().count().saturating_sub(1);
    let above = change.path.ancestors().skip(1).take(depth);
    match (&change.before, taken.from) {
        (Some(_), _) => {
            let names = change.name.ancestors().skip(1).take(depth);
            names.map(|name| mode_of(taken.modes.as_ref(), name, false).unwrap_or(0o700)).collect()
        }
        (None, Some(from)) => above.map_while(|above| made_since(above, from)).collect(),
        (None, None) => Vec::new(),
    }
}

/// The permissions of a directory that was made since then, in Unix milliseconds, as far as the disk tells when. Blocks.
fn made_since(path: &Path, from: u64) -> Option<u32> {
    let status = path.symlink_metadata().ok().filter(std::fs::Metadata::is_dir)?;
    let made = status.created().ok()?.duration_since(UNIX_EPOCH).ok()?.as_millis();
    (made + CLOCK_STEP_MS >= u128::from(from)).then(|| status.permissions().mode() & 0o7777)
}
