//! Undoing changes of files: what each is put back to, whether it still is as it was left, and the writing.
//!
//! A file is written only while it has the content that was seen, by handle and within the workspace like a tool's write. What is
//! written already is left alone, so that after a crash the same may be done again.

use std::io;
use std::path::{Path, PathBuf};

use linger_protocol::event::{ChangeKind, FileChange, NotRestored};
use linger_protocol::id::BlobId;
use tokio_util::sync::CancellationToken;

use super::Workspace;
use super::change::{Change, Content, KeptChange};
use super::handle::Entry;
use crate::store::blob::{Blobs, id_of_bytes};

/// A content, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Version {
    /// There is no file.
    Missing,
    /// The bytes of this blob.
    Blob(BlobId),
    /// It is not kept.
    Unknown,
}

impl Version {
    fn before(change: &FileChange) -> Self {
        match change.kind {
            ChangeKind::Create => Self::Missing,
            _ => change.before.clone().map_or(Self::Unknown, Self::Blob),
        }
    }

    fn after(change: &FileChange) -> Self {
        match change.kind {
            ChangeKind::Delete => Self::Missing,
            _ => change.after.clone().map_or(Self::Unknown, Self::Blob),
        }
    }

    fn of(content: &Content) -> Self {
        match content {
            Content::Missing => Self::Missing,
            Content::Known(bytes) => Self::Blob(id_of_bytes(bytes)),
            Content::Unknown => Self::Unknown,
        }
    }
}

/// A file that is to be as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Goal {
    path: PathBuf,
    /// What the changes left.
    left: Version,
    /// What it is put back to.
    want: Version,
}

/// One goal a file, whatever was changed in between; `changes` are in the order in which they were made.
fn goals(changes: &[FileChange]) -> Vec<Goal> {
    let mut goals: Vec<Goal> = Vec::new();
    for change in changes {
        let left = Version::after(change);
        match goals.iter_mut().find(|goal| goal.path == change.path) {
            Some(goal) => goal.left = left,
            None => goals.push(Goal { path: change.path.clone(), left, want: Version::before(change) }),
        }
    }
    goals
}

/// What undoing would do.
#[derive(Debug, Default)]
pub struct Plan {
    /// The changes to make.
    pub changes: Vec<KeptChange>,
    /// The files that are not as the changes left them.
    pub changed: Vec<PathBuf>,
    /// The files that cannot be put back.
    pub failed: Vec<NotRestored>,
}

/// Looks at what undoing `changes` would do; their order is that in which they were made. Stores what it would replace.
/// Files that somebody has changed since are replaced with `force` alone. Blocks.
pub fn plan(
    changes: &[FileChange],
    (workspace, blobs): (&Workspace, &Blobs),
    force: bool,
    token: &CancellationToken,
) -> io::Result<Plan> {
    let mut plan = Plan::default();
    for Goal { path, left, want } in goals(changes) {
        if token.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut fail = |reason: String| plan.failed.push(NotRestored { path: path.clone(), reason });
        if !workspace.contains(&path) {
            fail("it is outside of the workspace".to_owned());
            continue;
        }
        let now = match content(&path) {
            Ok(now) => now,
            Err(error) => {
                fail(error.to_string());
                continue;
            }
        };
        let version = Version::of(&now);
        if version == want {
            continue;
        }
        let after = match &want {
            Version::Missing => Content::Missing,
            Version::Blob(id) if blobs.check(id).is_ok() => Content::Known(blobs.read(id, 0, u64::MAX)?),
            Version::Blob(_) | Version::Unknown => {
                fail("its former content is not kept".to_owned());
                continue;
            }
        };
        match version {
            Version::Unknown => fail("it is too long to be kept, or cannot be read".to_owned()),
            version if version != left && !force => plan.changed.push(path),
            _ => plan.changes.push(Change { path, before: now, after }.keep(blobs)?),
        }
    }
    Ok(plan)
}

/// Makes a change that was planned, unless it is made already. Blocks.
pub fn make(change: &FileChange, workspace: &Workspace, blobs: &Blobs) -> Result<(), String> {
    let failed = |error: io::Error| error.to_string();
    if !workspace.contains(&change.path) {
        return Err("it is outside of the workspace".to_owned());
    }
    let now = Version::of(&content(&change.path).map_err(failed)?);
    let want = Version::after(change);
    if now == want {
        return Ok(());
    }
    if now != Version::before(change) {
        return Err("it was changed meanwhile".to_owned());
    }
    match want {
        Version::Missing => Entry::at(&change.path).and_then(|entry| entry.remove()).map_err(failed),
        Version::Blob(id) => {
            blobs.check(&id).map_err(failed)?;
            let bytes = blobs.read(&id, 0, u64::MAX).map_err(failed)?;
            Entry::make(&change.path).and_then(|entry| entry.replace(&bytes)).map_err(failed)
        }
        Version::Unknown => Err("its former content is not kept".to_owned()),
    }
}

fn content(path: &Path) -> io::Result<Content> {
    match Entry::at(path) {
        Ok(entry) => Content::of(&entry),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Content::Missing),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::tool::tests::test_workspace;

    struct Scene {
        _dirs: (tempfile::TempDir, tempfile::TempDir),
        workspace: Workspace,
        blobs: Blobs,
    }

    impl Scene {
        fn new() -> Self {
            let (dir, workspace) = test_workspace();
            let data = tempfile::tempdir().unwrap();
            let blobs = Blobs::beside(&data.path().join("linger.db"));
            Self { _dirs: (dir, data), workspace, blobs }
        }

        /// A call that writes: the change, made.
        fn write(&self, name: &str, text: &str) -> FileChange {
            let path = self.workspace.cwd.join(name);
            let before = content(&path).unwrap();
            let change = Change::written(&path, before, text).keep(&self.blobs).unwrap();
            // Kept as the database keeps them.
            std::mem::forget(change.blobs);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            change.change
        }

        fn plan(&self, changes: &[FileChange], force: bool) -> Plan {
            let token = CancellationToken::new();
            plan(changes, (&self.workspace, &self.blobs), force, &token).unwrap()
        }

        fn make(&self, plan: &Plan) {
            for kept in &plan.changes {
                make(&kept.change, &self.workspace, &self.blobs).unwrap();
            }
        }

        fn text(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.workspace.cwd.join(name)).ok()
        }
    }

    #[test]
    fn the_changes_of_a_turn_are_undone_and_done_again() {
        let scene = Scene::new();
        let file = scene.workspace.cwd.join("a");
        fs::write(&file, "0").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o750)).unwrap();
        let made = [scene.write("a", "1"), scene.write("new/b", "b"), scene.write("a", "2")];
        let undo = scene.plan(&made, false);
        assert_eq!((undo.changes.len(), undo.changed.len(), undo.failed.len()), (2, 0, 0));
        scene.make(&undo);
        assert_eq!((scene.text("a"), scene.text("new/b")), (Some("0".to_owned()), None));
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o750);
        // As after a crash in the middle.
        scene.make(&undo);
        let undone: Vec<FileChange> = undo.changes.iter().map(|kept| kept.change.clone()).collect();
        scene.make(&scene.plan(&undone, false));
        assert_eq!((scene.text("a"), scene.text("new/b")), (Some("2".to_owned()), Some("b".to_owned())));
        assert!(scene.plan(&undone, false).changes.is_empty());
    }

    #[test]
    fn a_file_that_was_changed_since_is_replaced_by_force_alone_and_can_be_had_again() {
        let scene = Scene::new();
        let made = [scene.write("a", "model"), scene.write("b", "model")];
        fs::write(scene.workspace.cwd.join("a"), "user").unwrap();
        let plan = scene.plan(&made, false);
        assert_eq!(plan.changed, [scene.workspace.cwd.join("a")]);
        let forced = scene.plan(&made, true);
        scene.make(&forced);
        assert_eq!((scene.text("a"), scene.text("b")), (None, None));
        let before = forced.changes[0].change.before.clone().unwrap();
        assert_eq!(scene.blobs.read(&before, 0, 9).unwrap(), b"user");
    }

    #[test]
    fn a_change_between_look_and_write_is_not_overwritten() {
        let scene = Scene::new();
        let plan = scene.plan(&[scene.write("a", "model")], false);
        fs::write(scene.workspace.cwd.join("a"), "user").unwrap();
        let error = make(&plan.changes[0].change, &scene.workspace, &scene.blobs).unwrap_err();
        assert_eq!((error.as_str(), scene.text("a").as_deref()), ("it was changed meanwhile", Some("user")));
    }

    #[test]
    fn nothing_outside_of_the_workspace_is_written_and_no_link_is_followed() {
        let scene = Scene::new();
        let other = tempfile::tempdir().unwrap();
        let made = scene.write("dir/a", "model");
        fs::rename(scene.workspace.cwd.join("dir"), other.path().join("dir")).unwrap();
        symlink(other.path().join("dir"), scene.workspace.cwd.join("dir")).unwrap();
        let outside = FileChange { path: other.path().canonicalize().unwrap().join("dir/a"), ..made.clone() };
        for change in [made, outside] {
            let plan = scene.plan(std::slice::from_ref(&change), true);
            assert!(plan.changes.is_empty(), "{plan:?}");
            assert_eq!(plan.failed[0].reason, "it is outside of the workspace");
            let undone = FileChange { kind: ChangeKind::Delete, before: change.after, after: None, ..change };
            assert!(make(&undone, &scene.workspace, &scene.blobs).is_err());
        }
        assert!(other.path().join("dir/a").exists());
    }
}
