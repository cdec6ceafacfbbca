//! Undoing changes of files: what each is put back to, whether it still is as it was left, and the writing.
//!
//! A file is written only while it has the content that was seen, by handle and within the workspace like a tool's write. What is
//! written already is left alone, so that after a crash the same may be done again.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use linger_protocol::event::{ChangeKind, FileChange, FileType, NotRestored};
use linger_protocol::id::BlobId;
use tokio_util::sync::CancellationToken;

use super::change::{Change, Content, KeptChange};
use super::handle::{Dir, Entry};
use super::workspace::Workspace;
use crate::store::blob::{Blobs, id_of_bytes};

/// A file at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FileVersion {
    /// There is no file.
    Missing,
    /// The bytes of this blob, and what the file is; absent for a file whose mode does not count.
    Known(BlobId, Option<FileType>),
    /// A directory is in its place.
    Directory,
    /// It is not kept.
    Unknown,
}

impl FileVersion {
    fn before(change: &FileChange) -> Self {
        let is_missing = change.kind == ChangeKind::Create;
        Self::of(is_missing, change.before.as_ref(), change.before_type)
    }

    fn after(change: &FileChange) -> Self {
        let is_missing = change.kind == ChangeKind::Delete;
        Self::of(is_missing, change.after.as_ref(), change.after_type)
    }

    fn of(is_missing: bool, blob: Option<&BlobId>, file_type: Option<FileType>) -> Self {
        match (file_type, blob) {
            (Some(FileType::Directory), _) => Self::Directory,
            _ if is_missing => Self::Missing,
            (_, Some(blob)) => Self::Known(blob.clone(), counts(file_type)),
            (_, None) => Self::Unknown,
        }
    }

    /// Whether a file that is as `self` is as `other` says.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Known(a, is), Self::Known(b, wanted)) => {
                a == b
                    && match wanted {
                        None => *is != Some(FileType::Link),
                        wanted => is == wanted,
                    }
            }
            _ => self == other,
        }
    }

    fn file_type(&self) -> Option<FileType> {
        match self {
            Self::Known(_, file_type) => *file_type,
            Self::Directory => Some(FileType::Directory),
            Self::Missing | Self::Unknown => None,
        }
    }
}

fn counts(file_type: Option<FileType>) -> Option<FileType> {
    file_type.filter(|file_type| *file_type != FileType::Unknown)
}

/// The present file on disk.
struct PresentFile {
    content: Content,
    /// Absent if there is none.
    file_type: Option<FileType>,
    /// Its permissions; absent for a link, and if there is none.
    mode: Option<u32>,
}

impl PresentFile {
    const MISSING: Self = Self { content: Content::Missing, file_type: None, mode: None };

    /// Fails if it is something else than a file, a link or a directory.
    fn at(path: &Path) -> io::Result<Self> {
        let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let entry = match Entry::at(path) {
            Err(error) if is_missing(&error) => return Ok(Self::MISSING),
            entry => entry?,
        };
        let mode = match entry.status() {
            Err(error) if is_missing(&error) => return Ok(Self::MISSING),
            status => status?.st_mode,
        };
        let kept = Some(mode & 0o7777);
        match mode & 0o170_000 {
            0o120_000 => {
                let target = entry.link()?.into_encoded_bytes();
                Ok(Self { content: Content::Known(target), file_type: Some(FileType::Link), mode: None })
            }
            0o040_000 => Ok(Self { file_type: Some(FileType::Directory), mode: kept, ..Self::MISSING }),
            _ => {
                let file_type = if mode & 0o100 == 0 { FileType::File } else { FileType::Executable };
                Ok(Self { content: Content::of(&entry)?, file_type: Some(file_type), mode: kept })
            }
        }
    }

    fn version(&self) -> FileVersion {
        match &self.content {
            _ if self.file_type == Some(FileType::Directory) => FileVersion::Directory,
            Content::Missing => FileVersion::Missing,
            Content::Known(bytes) => FileVersion::Known(id_of_bytes(bytes), self.file_type),
            Content::Unknown => FileVersion::Unknown,
        }
    }
}

/// A file to put back.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Goal {
    path: PathBuf,
    /// The file as the changes left it.
    left: FileVersion,
    /// The file as it should become.
    want: FileVersion,
    /// The permissions that it should have; absent if they are not known.
    mode: Option<u32>,
    /// The permissions of directories above it that came or went with it, the innermost first.
    directories: Vec<u32>,
}

/// One goal a file, whatever was changed in between; `changes` are in the order in which they were made.
fn goals(changes: &[FileChange]) -> Vec<Goal> {
    let mut goals: Vec<Goal> = Vec::new();
    for change in changes {
        let (path, left, directories) = (change.path.clone(), FileVersion::after(change), change.directories.clone());
        match goals.iter_mut().find(|goal| goal.path == change.path) {
            Some(goal) => {
                // What changed it first has left its mode alone.
                if let FileVersion::Known(_, file_type @ None) = &mut goal.want {
                    *file_type = counts(change.before_type);
                }
                goal.left = left;
                // Those that are to be made again are those that went last.
                if goal.want != FileVersion::Missing && !directories.is_empty() {
                    goal.directories = directories;
                }
            }
            None => {
                let (want, mode) = (FileVersion::before(change), change.before_mode);
                goals.push(Goal { path, left, want, mode, directories });
            }
        }
    }
    goals
}

/// The effect that undoing would have.
#[derive(Debug, Default)]
pub struct Plan {
    /// The changes to make, in this order: files go before others come in their places.
    pub changes: Vec<KeptChange>,
    /// The files that are not as the changes left them.
    pub changed: Vec<PathBuf>,
    /// The files that cannot be put back.
    pub failed: Vec<NotRestored>,
}

/// Plans undoing `changes`, which are in the order in which they were made. Stores what it would replace.
/// Files that somebody has changed since are replaced with `force` alone. Blocks.
pub fn plan(
    changes: &[FileChange],
    workspace: &Workspace,
    blobs: &Blobs,
    force: bool,
    token: &CancellationToken,
) -> io::Result<Plan> {
    let goals = goals(changes);
    let planner = Planner { workspace, blobs, force, places: goals.iter().map(|goal| (&*goal.path, goal)).collect() };
    let mut plan = Plan::default();
    for goal in &goals {
        if token.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match planner.step(goal)? {
            PlannedStep::None => {}
            PlannedStep::Change(change) => plan.changes.push(*change),
            PlannedStep::ChangedSince => plan.changed.push(goal.path.clone()),
            PlannedStep::Fails(reason) => plan.failed.push(NotRestored { path: goal.path.clone(), reason }),
        }
    }
    let order = |kept: &KeptChange| {
        let (path, goes) = (kept.change.path.clone(), FileVersion::after(&kept.change) == FileVersion::Missing);
        // The innermost goes first and comes last.
        let depth = path.components().count();
        (!goes, if goes { usize::MAX - depth } else { depth }, path)
    };
    plan.changes.sort_by_cached_key(order);
    Ok(plan)
}

/// The work on one file.
enum PlannedStep {
    /// Nothing: it is as it should be.
    None,
    Change(Box<KeptChange>),
    ChangedSince,
    Fails(String),
}

/// The permissions of a directory that is made anew and whose own are not known.
const UNKNOWN: u32 = 0o700;

/// The files that are put back together.
struct Planner<'a> {
    workspace: &'a Workspace,
    blobs: &'a Blobs,
    force: bool,
    places: HashMap<&'a Path, &'a Goal>,
}

impl Planner<'_> {
    fn step(&self, goal: &Goal) -> io::Result<PlannedStep> {
        let Goal { path, left, want, mode, directories } = goal;
        let blocked = self.blocked(path);
        if !may_be_written(blocked.unwrap_or(path), self.workspace) {
            return Ok(PlannedStep::Fails(OUTSIDE.to_owned()));
        }
        let now = match blocked {
            // What stands in the place of one of its directories goes first.
            Some(_) => PresentFile::MISSING,
            None => match PresentFile::at(path) {
                Ok(now) => now,
                Err(error) => return Ok(PlannedStep::Fails(error.to_string())),
            },
        };
        let version = now.version();
        if version.is(want) {
            return Ok(PlannedStep::None);
        }
        let after = match want {
            FileVersion::Missing | FileVersion::Directory => Content::Missing,
            FileVersion::Known(id, _) if self.blobs.check(id).is_ok() => {
                Content::Known(self.blobs.read(id, 0, u64::MAX)?)
            }
            FileVersion::Known(..) | FileVersion::Unknown => {
                return Ok(PlannedStep::Fails("its former content is not kept".to_owned()));
            }
        };
        match &version {
            FileVersion::Unknown => {
                return Ok(PlannedStep::Fails("it is too long to be kept, or cannot be read".to_owned()));
            }
            FileVersion::Directory if *want == FileVersion::Missing => return Ok(PlannedStep::None),
            FileVersion::Directory => match self.goes(path, &mut 0) {
                Ok(true) => {}
                Ok(false) => return Ok(PlannedStep::Fails(OTHER_FILES.to_owned())),
                Err(error) => return Ok(PlannedStep::Fails(error.to_string())),
            },
            version if !version.is(left) && !self.force => return Ok(PlannedStep::ChangedSince),
            _ => {}
        }
        let mut kept = Change { path: path.clone(), before: now.content, after }.keep(self.blobs)?;
        let change = &mut kept.change;
        // What cannot be seen from the content is done again with it.
        let is_special = |file_type| matches!(file_type, Some(FileType::Link | FileType::Directory));
        if is_special(now.file_type) || left.file_type().is_some() || want.file_type().is_some() {
            (change.before_type, change.after_type) = (now.file_type, want.file_type());
        }
        (change.before_mode, change.after_mode) = (now.mode, *mode);
        change.directories = match want {
            FileVersion::Missing => self.going(path, directories.len()),
            _ => (0..self.coming(path)).map(|above| directories.get(above).copied().unwrap_or(UNKNOWN)).collect(),
        };
        Ok(PlannedStep::Change(Box::new(kept)))
    }

    /// The nearest directory above that is none now, and is to be one again.
    fn blocked(&self, path: &Path) -> Option<&Path> {
        path.ancestors().skip(1).find_map(|above| {
            let (place, goal) = self.places.get_key_value(above)?;
            let is_there = place.symlink_metadata().is_ok_and(|status| !status.is_dir());
            (is_there && matches!(goal.want, FileVersion::Missing | FileVersion::Directory)).then_some(*place)
        })
    }

    /// Whether all that a directory has goes with the other changes. Fails if it has too much.
    fn goes(&self, path: &Path, seen: &mut usize) -> io::Result<bool> {
        for entry in Dir::open(path)?.list()? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            *seen += 1;
            if *seen > MAX_SEEN {
                return Ok(false);
            }
            let below = path.join(name);
            let is_directory = below.symlink_metadata()?.is_dir();
            let goes = || self.places.get(&*below).is_some_and(|goal| goal.want == FileVersion::Missing);
            if !(if is_directory { self.goes(&below, seen)? } else { goes() }) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The permissions of the directories above that came with a file: `count` of them at most.
    fn going(&self, path: &Path, count: usize) -> Vec<u32> {
        let mode = |above: &Path| Some(PresentFile::at(above).ok()?.mode.unwrap_or(0o700));
        path.ancestors().skip(1).take(count).map_while(mode).collect()
    }

    /// How many of the directories above are missing, or come in the place of something else.
    fn coming(&self, path: &Path) -> usize {
        let is_there = |above: &&Path| above.symlink_metadata().is_ok_and(|status| status.is_dir());
        path.ancestors().skip(1).take_while(|above| !is_there(above)).count()
    }
}

/// When a file was last written, in Unix milliseconds; `None` if there is none. Blocks.
pub fn written_at(path: &Path) -> Option<u64> {
    let status = Entry::at(path).ok()?.status().ok()?;
    u64::try_from(status.st_mtime.saturating_mul(1000)).ok()
}

/// Makes changes that were planned, in their order; gives those that are made, and those that failed. Blocks.
pub fn make_all(
    changes: Vec<FileChange>,
    workspace: &Workspace,
    blobs: &Blobs,
    token: &CancellationToken,
) -> (Vec<FileChange>, Vec<NotRestored>) {
    let is_link = |change: &&FileChange| change.after_type == Some(FileType::Link);
    let links: HashSet<PathBuf> = changes.iter().filter(is_link).map(|change| change.path.clone()).collect();
    let (mut made, mut failed) = (Vec::new(), Vec::new());
    for change in changes {
        // What was to go is gone with the directory in whose place a link was put, before a crash.
        let mut above = change.path.ancestors().skip(1);
        let is_gone = FileVersion::after(&change) == FileVersion::Missing
            && above.any(|above| links.contains(above) && above.is_symlink());
        let done = match () {
            () if token.is_cancelled() => Err("the disk did not answer in time".to_owned()),
            () if is_gone => Ok(()),
            () => make(&change, workspace, blobs),
        };
        match done {
            Ok(()) => made.push(change),
            Err(reason) => failed.push(NotRestored { path: change.path, reason }),
        }
    }
    (made, failed)
}

/// Makes a change that was planned, unless it is made already. Blocks.
fn make(change: &FileChange, workspace: &Workspace, blobs: &Blobs) -> Result<(), String> {
    let failed = |error: io::Error| error.to_string();
    if !may_be_written(&change.path, workspace) {
        return Err(OUTSIDE.to_owned());
    }
    let (before, want) = (FileVersion::before(change), FileVersion::after(change));
    let now = match PresentFile::at(&change.path) {
        // What was to go is gone with a directory of its path.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory && want == FileVersion::Missing => {
            FileVersion::Missing
        }
        now => now.map_err(failed)?.version(),
    };
    // A directory in the place of what was to go came with files that were put back already.
    if now.is(&want) || now == FileVersion::Directory && want == FileVersion::Missing {
        remove_directories(change);
        return Ok(());
    }
    // A directory may be gone already, in the place of which the file comes.
    if !(now.is(&before) || before == FileVersion::Directory && now == FileVersion::Missing) {
        return Err("it was changed meanwhile".to_owned());
    }
    match &want {
        FileVersion::Missing => {
            remove(&change.path, &now).map_err(failed)?;
            remove_directories(change);
            workspace.seen.left(&change.path, None);
        }
        FileVersion::Directory => {
            if now != FileVersion::Missing {
                remove(&change.path, &now).map_err(failed)?;
            }
            let entry = Entry::make_as(&change.path, &change.directories).map_err(failed)?;
            entry.make_directory(change.after_mode.unwrap_or(0o700)).map_err(failed)?;
        }
        FileVersion::Known(id, file_type) => {
            blobs.check(id).map_err(failed)?;
            let bytes = blobs.read(id, 0, u64::MAX).map_err(failed)?;
            put_back(change, &now, *file_type, &bytes).map_err(failed)?;
            workspace.seen.left(&change.path, Some(&bytes));
        }
        FileVersion::Unknown => return Err("its former content is not kept".to_owned()),
    }
    Ok(())
}

/// Puts a file or a link back where `now` is.
fn put_back(change: &FileChange, now: &FileVersion, file_type: Option<FileType>, bytes: &[u8]) -> io::Result<()> {
    if *now == FileVersion::Directory {
        let entry = Entry::at(&change.path)?;
        entry.remove_directory().map_err(|error| match error.kind() {
            io::ErrorKind::NotADirectory | io::ErrorKind::DirectoryNotEmpty => io::Error::other(OTHER_FILES),
            _ => error,
        })?;
    }
    let entry = Entry::make_as(&change.path, &change.directories)?;
    let is_executable = file_type.map(|file_type| file_type == FileType::Executable);
    let wanted = id_of_bytes(bytes);
    let is_same = matches!(now, FileVersion::Known(known, of) if *known == wanted && *of != Some(FileType::Link));
    match is_executable {
        _ if file_type == Some(FileType::Link) => entry.replace_link(OsStr::from_bytes(bytes)),
        Some(is_executable) if is_same => entry.set_executable(is_executable, change.after_mode),
        is_executable => entry.restore(bytes, is_executable, change.after_mode),
    }
}

/// Removes a file or a link.
fn remove(path: &Path, now: &FileVersion) -> io::Result<()> {
    let entry = Entry::at(path)?;
    if now.file_type() == Some(FileType::Link) { entry.remove_link() } else { entry.remove() }
}

/// Removes the directories that came with a file that is gone, as far as nothing else is in them.
fn remove_directories(change: &FileChange) {
    if FileVersion::after(change) != FileVersion::Missing {
        return;
    }
    for above in change.path.ancestors().skip(1).take(change.directories.len()) {
        if Entry::at(above).and_then(|entry| entry.remove_empty()).is_err() {
            return;
        }
    }
}

/// Why a file is left alone.
const OUTSIDE: &str = "it is outside of the workspace";

/// Why a file is not put back where a directory is.
const OTHER_FILES: &str = "a directory with other files is in its place";

/// The most entries of a directory in the place of a file that are looked at.
const MAX_SEEN: usize = 10_000;

/// Whether the name `path`, and not what a link there leads to, lies where the session writes: in its workspace, or among its notes.
fn may_be_written(path: &Path, workspace: &Workspace) -> bool {
    let Some(parent) = path.parent() else { return false };
    let notes = [&workspace.notes.user, &workspace.notes.workspace];
    let is_note = || notes.iter().any(|dir| !dir.as_os_str().is_empty() && workspace.resolve(dir) == parent);
    workspace.contains(parent) || is_note()
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
