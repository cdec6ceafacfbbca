//! The file changes of a session's turns: by its file tools, its commands and its children, from their logs.
//!
//! For each file the content before the first change is compared with the content after the last one, so changes that were reverted
//! or undone do not show. The current files do not count: somebody else may have changed them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::checkpoint::{Diff, DiffChild, Differences, FileDiff};
use linger_protocol::error::Code;
use linger_protocol::event::{ChangeKind, Event, EventBody, FileChange, FileType, Moved, SessionChanged, ToolFinished};
use linger_protocol::id::{BlobId, SessionId, TurnId};

use crate::session::env::CallServices;
use crate::store::blob::Blobs;
use crate::sys::task;
use crate::tool::Workspace;
use crate::tool::checkpoint::{Side, TreeChange};
use crate::tool::diff::unified;

/// The bytes of events that are read at once.
const PAGE: usize = 1 << 20;

/// The most children, those of children among them: as many as a turn may have by default.
const MAX_CHILDREN: usize = 32;

/// The most files of an answer: one message has room for their names.
const MAX_FILES: usize = 5000;

/// The most bytes of the texts of an answer; more are counted and not shown.
const MAX_TEXT: usize = 8 << 20;

/// How long the comparison of one file may take before it is a coarser one.
const LIMIT: Duration = Duration::from_millis(200);

/// How many first bytes tell whether a content is text.
const PROBE: usize = 8000;

/// A content, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Version {
    Missing,
    /// With what the file is, if that may have changed.
    Blob(BlobId, Option<FileType>),
    Git(PathBuf, Side),
    Unknown,
}

impl Version {
    fn file_type(&self) -> Option<FileType> {
        match self {
            Self::Blob(_, file_type) => *file_type,
            Self::Git(_, side) => side.file_type(),
            Self::Missing | Self::Unknown => None,
        }
    }
}

/// The files that the turns of one session changed.
#[derive(Default)]
struct Changes {
    /// The first version and the last one of each.
    files: BTreeMap<PathBuf, (Version, Version)>,
    /// The files that somebody else may have changed while a command ran.
    uncertain: BTreeSet<PathBuf>,
    children: Vec<DiffChild>,
    missing: Vec<String>,
    has_turn: bool,
}

impl Changes {
    fn add(&mut self, path: PathBuf, before: Version, after: Version) {
        self.files.entry(path).and_modify(|(_, last)| *last = after.clone()).or_insert((before, after));
    }

    fn add_file(&mut self, change: FileChange) {
        let FileChange { path, kind, before, after, before_type, after_type, .. } = change;
        let named = |id: Option<BlobId>, file_type| id.map_or(Version::Unknown, |id| Version::Blob(id, file_type));
        let before = if kind == ChangeKind::Create { Version::Missing } else { named(before, before_type) };
        let after = if kind == ChangeKind::Delete { Version::Missing } else { named(after, after_type) };
        self.add(path, before, after);
    }

    /// The directory of these files has another name since.
    fn follow(&mut self, moved: &Moved) {
        self.files = std::mem::take(&mut self.files).into_iter().map(|(path, both)| (moved.path(path), both)).collect();
    }

    fn add_tree(&mut self, root: &Path, change: TreeChange) {
        let version = |side: Option<Side>| side.map_or(Version::Missing, |side| Version::Git(root.to_path_buf(), side));
        self.add(change.path, version(change.before), version(change.after));
    }
}

/// The differences that a session's turns made; `workspace` is where git runs. Fails for an unknown turn.
pub async fn diff(services: &CallServices, workspace: &Workspace, asked: Diff) -> Result<Differences, RpcError> {
    let Diff { session, turn, stat } = asked;
    let own = read(services, workspace, &session, turn.as_ref()).await?;
    if let Some(turn) = turn.filter(|_| !own.has_turn) {
        let error = RpcError::new(Code::UnknownMessage, format!("session {session} has no turn '{turn}'"));
        return Err(error.hint("`linger log` shows the turns: t1, t2, t3 …"));
    }
    let mut children: Vec<DiffChild> = own.children.clone();
    let mut known: BTreeSet<SessionId> = children.iter().map(|child| child.session.clone()).collect();
    let mut all = vec![(None, own)];
    let mut at = 0;
    while let Some(child) = children.get(at).cloned() {
        at += 1;
        if at > MAX_CHILDREN {
            let text = format!("the changes of {} more children", children.len() + 1 - at);
            if let Some((_, own)) = all.first_mut() {
                own.missing.push(text);
            }
            break;
        }
        // One that was removed has no log any more.
        let Ok(changes) = read(services, workspace, &child.session, None).await else { continue };
        let more = changes.children.iter().filter(|child| known.insert(child.session.clone())).cloned();
        children.extend(more.collect::<Vec<_>>());
        all.push((Some(child), changes));
    }
    let contents = contents(services, workspace, &mut all).await;
    let blobs = services.store.blobs.clone();
    let base = workspace.root.clone();
    let compared = task::spawn_blocking(move || compare(all, &contents, &blobs, &base, stat));
    compared.await.map_err(|error| RpcError::new(Code::Internal, error.to_string()))
}

/// Reads the changes from the log of a session: of one turn, or of all.
async fn read(
    services: &CallServices,
    workspace: &Workspace,
    session: &SessionId,
    turn: Option<&TurnId>,
) -> Result<Changes, RpcError> {
    let kinds = &["turn_started", "tool_finished", "undone", "checkpoint", "child_updated", "session_changed"];
    let (mut changes, mut after) = (Changes::default(), 0);
    loop {
        let (page, more) = services.store.events_of(session.clone(), kinds, after, PAGE).await?;
        for stored in &page {
            let Ok(event) = serde_json::from_str::<Event>(&stored.data) else { continue };
            if let EventBody::SessionChanged(SessionChanged { moved: Some(moved), .. }) = &event.body {
                changes.follow(moved);
            }
            if turn.is_some() && event.turn.as_ref() != turn {
                continue;
            }
            match event.body {
                EventBody::TurnStarted { .. } => changes.has_turn = true,
                EventBody::ToolFinished(ToolFinished { changes: made, .. })
                | EventBody::Undone { changes: made, .. } => {
                    for change in made {
                        changes.add_file(change);
                    }
                }
                EventBody::Checkpoint(taken) if taken.changed > 0 => {
                    let Some(since) = &taken.since else { continue };
                    let differs = services.checkpoints.between(workspace, &taken.root, since, &taken.checkpoint).await;
                    match differs {
                        Ok(differs) => {
                            let others: BTreeSet<&PathBuf> = taken.others.iter().collect();
                            for change in differs.into_iter().filter(|change| !others.contains(&change.name)) {
                                if !taken.certain {
                                    changes.uncertain.insert(change.path.clone());
                                }
                                changes.add_tree(&taken.root, change);
                            }
                        }
                        Err(why) => changes.missing.push(format!("what call {} changed: {why}", taken.call_id)),
                    }
                }
                EventBody::ChildUpdated(update) => {
                    let child = DiffChild { session: update.child, agent: update.agent };
                    if !changes.children.contains(&child) {
                        changes.children.push(child);
                    }
                }
                _ => {}
            }
        }
        after = page.last().map_or(u64::MAX, |stored| stored.seq);
        if !more {
            return Ok(changes);
        }
    }
}

/// The contents that git has of these files.
async fn contents(
    services: &CallServices,
    workspace: &Workspace,
    all: &mut [(Option<DiffChild>, Changes)],
) -> HashMap<String, Vec<u8>> {
    let mut wanted: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for (before, after) in all.iter().flat_map(|(_, changes)| changes.files.values()).filter(|(a, b)| a != b) {
        for version in [before, after] {
            if let Version::Git(root, side) = version {
                wanted.entry(root.clone()).or_default().push(side.object.clone());
            }
        }
    }
    let mut contents = HashMap::new();
    for (root, objects) in wanted {
        match services.checkpoints.contents(workspace, &root, objects).await {
            Ok(read) => contents.extend(read),
            Err(why) => {
                if let Some((_, own)) = all.first_mut() {
                    own.missing.push(why);
                }
            }
        }
    }
    contents
}

/// Blocks.
fn compare(
    all: Vec<(Option<DiffChild>, Changes)>,
    contents: &HashMap<String, Vec<u8>>,
    blobs: &Blobs,
    base: &Path,
    stat: bool,
) -> Differences {
    let mut differences = Differences::default();
    let mut room = if stat { 0 } else { MAX_TEXT };
    for (child, changes) in all {
        differences.missing.extend(changes.missing);
        for (path, (before, after)) in changes.files {
            if before == after {
                continue;
            }
            if differences.files.len() >= MAX_FILES {
                differences.missing.push(format!("more than {MAX_FILES} files"));
                return differences;
            }
            let uncertain = changes.uncertain.contains(&path);
            if let Some(mut file) = file(path, &before, &after, contents, blobs, base) {
                file.uncertain = uncertain;
                if file.diff.as_ref().is_some_and(|diff| diff.len() > room) {
                    file.diff = None;
                }
                room -= file.diff.as_ref().map_or(0, String::len);
                differences.files.push(FileDiff { child: child.clone(), ..file });
            }
        }
    }
    differences
}

/// How a file differs; nothing if it does not.
fn file(
    path: PathBuf,
    before: &Version,
    after: &Version,
    contents: &HashMap<String, Vec<u8>>,
    blobs: &Blobs,
    base: &Path,
) -> Option<FileDiff> {
    let bytes = |version: &Version| match version {
        Version::Missing => Some(Vec::new()),
        Version::Blob(id, _) => blobs.read(id, 0, u64::MAX).ok(),
        Version::Git(_, side) => contents.get(&side.object).cloned(),
        Version::Unknown => None,
    };
    let kind = match (before, after) {
        (Version::Missing, Version::Missing) => return None,
        (Version::Missing, _) => ChangeKind::Create,
        (_, Version::Missing) => ChangeKind::Delete,
        _ => ChangeKind::Edit,
    };
    let plain = FileDiff { path, kind, added: 0, removed: 0, diff: None, note: None, uncertain: false, child: None };
    let note = |text: &str| Some(FileDiff { note: Some(text.to_owned()), ..plain.clone() });
    let types = (before.file_type(), after.file_type());
    let of_mode = match types {
        (Some(FileType::File), Some(FileType::Executable)) => Some("it is executable now"),
        (Some(FileType::Executable), Some(FileType::File)) => Some("it is executable no more"),
        _ => None,
    };
    if let (Version::Git(_, was), Version::Git(_, is)) = (before, after)
        && was.object == is.object
        && let Some(of_mode) = of_mode
    {
        return note(of_mode);
    }
    let (Some(old), Some(new)) = (bytes(before), bytes(after)) else { return note("its content is not kept") };
    if kind == ChangeKind::Edit && old == new {
        return of_mode.and_then(note);
    }
    let of_link = match types {
        (Some(FileType::Link), Some(FileType::Link) | None) | (None, Some(FileType::Link)) => Some("it is a link"),
        (Some(FileType::Link), _) => Some("it was a link"),
        (_, Some(FileType::Link)) => Some("it is a link now"),
        _ => of_mode,
    };
    let is_text = |bytes: &[u8]| !bytes.iter().take(PROBE).any(|byte| *byte == 0);
    let (Ok(old), Ok(new)) = (String::from_utf8(old), String::from_utf8(new)) else { return note("it is no text") };
    if !is_text(old.as_bytes()) || !is_text(new.as_bytes()) {
        return note("it is no text");
    }
    let name = linger_protocol::path::shown(plain.path.strip_prefix(base).unwrap_or(&plain.path));
    // One that lies elsewhere, as in a child's worktree, stands below `a/` and `b/` all the same.
    let name = name.trim_start_matches('/');
    let text = unified(name, &old, &new, LIMIT);
    let hunks = text.splitn(3, '\n').nth(2).unwrap_or_default();
    let lines = |sign: char| u32::try_from(hunks.lines().filter(|line| line.starts_with(sign)).count());
    let (added, removed) = (lines('+').unwrap_or(u32::MAX), lines('-').unwrap_or(u32::MAX));
    let (from, to) = match kind {
        ChangeKind::Create => ("/dev/null".to_owned(), format!("b/{name}")),
        ChangeKind::Delete => (format!("a/{name}"), "/dev/null".to_owned()),
        _ => (format!("a/{name}"), format!("b/{name}")),
    };
    let diff = Some(format!("--- {from}\n+++ {to}\n{hunks}"));
    let note = of_link.map(str::to_owned);
    Some(FileDiff { added, removed, diff, note, ..plain })
}
