//! Undoing changes of files: what each is put back to, whether it still is as it was left, and the writing.
//!
//! A file is written only while it has the content that was seen, by handle and within the workspace like a tool's write. What is
//! written already is left alone, so that after a crash the same may be done again.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use linger_protocol::event::{ChangeKind, FileChange, FileType, NotRestored};
use linger_protocol::id::BlobId;
use tokio_util::sync::CancellationToken;

use super::change::{Change, Content, KeptChange};
use super::handle::Entry;
use super::workspace::Workspace;
use crate::store::blob::{Blobs, id_of_bytes};

/// A file at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FileVersion {
    /// There is no file.
    Missing,
    /// The bytes of this blob, and what the file is; absent for a file whose mode does not count.
    Known(BlobId, Option<FileType>),
    /// It is not kept.
    Unknown,
}

impl FileVersion {
    fn before(change: &FileChange) -> Self {
        match change.kind {
            ChangeKind::Create => Self::Missing,
            _ => change.before.clone().map_or(Self::Unknown, |blob| Self::Known(blob, counts(change.before_type))),
        }
    }

    fn after(change: &FileChange) -> Self {
        match change.kind {
            ChangeKind::Delete => Self::Missing,
            _ => change.after.clone().map_or(Self::Unknown, |blob| Self::Known(blob, counts(change.after_type))),
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
        if let Self::Known(_, file_type) = self { *file_type } else { None }
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
}

impl PresentFile {
    /// Fails if it is neither a file nor a link.
    fn at(path: &Path) -> io::Result<Self> {
        let missing = Self { content: Content::Missing, file_type: None };
        let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let entry = match Entry::at(path) {
            Err(error) if is_missing(&error) => return Ok(missing),
            entry => entry?,
        };
        let mode = match entry.status() {
            Err(error) if is_missing(&error) => return Ok(missing),
            status => status?.st_mode,
        };
        if mode & 0o170_000 == 0o120_000 {
            let target = entry.link()?.into_encoded_bytes();
            return Ok(Self { content: Content::Known(target), file_type: Some(FileType::Link) });
        }
        let file_type = if mode & 0o100 == 0 { FileType::File } else { FileType::Executable };
        Ok(Self { content: Content::of(&entry)?, file_type: Some(file_type) })
    }

    fn version(&self) -> FileVersion {
        match &self.content {
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
}

/// One goal a file, whatever was changed in between; `changes` are in the order in which they were made.
fn goals(changes: &[FileChange]) -> Vec<Goal> {
    let mut goals: Vec<Goal> = Vec::new();
    for change in changes {
        let left = FileVersion::after(change);
        match goals.iter_mut().find(|goal| goal.path == change.path) {
            Some(goal) => {
                // What changed it first has left its mode alone.
                if let FileVersion::Known(_, file_type @ None) = &mut goal.want {
                    *file_type = counts(change.before_type);
                }
                goal.left = left;
            }
            None => goals.push(Goal { path: change.path.clone(), left, want: FileVersion::before(change) }),
        }
    }
    goals
}

/// The effect that undoing would have.
#[derive(Debug, Default)]
pub struct Plan {
    /// The changes to make.
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
    let mut plan = Plan::default();
    for Goal { path, left, want } in goals(changes) {
        if token.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut fail = |reason: String| plan.failed.push(NotRestored { path: path.clone(), reason });
        if !may_be_written(&path, workspace) {
            fail(OUTSIDE.to_owned());
            continue;
        }
        let now = match PresentFile::at(&path) {
            Ok(now) => now,
            Err(error) => {
                fail(error.to_string());
                continue;
            }
        };
        let version = now.version();
        if version.is(&want) {
            continue;
        }
        let after = match &want {
            FileVersion::Missing => Content::Missing,
            FileVersion::Known(id, _) if blobs.check(id).is_ok() => Content::Known(blobs.read(id, 0, u64::MAX)?),
            FileVersion::Known(..) | FileVersion::Unknown => {
                fail("its former content is not kept".to_owned());
                continue;
            }
        };
        match version {
            FileVersion::Unknown => fail("it is too long to be kept, or cannot be read".to_owned()),
            version if !version.is(&left) && !force => plan.changed.push(path),
            _ => {
                let mut kept = Change { path, before: now.content, after }.keep(blobs)?;
                // What cannot be seen from the content is done again with it.
                let is_link = now.file_type == Some(FileType::Link);
                if is_link || left.file_type().is_some() || want.file_type().is_some() {
                    (kept.change.before_type, kept.change.after_type) = (now.file_type, want.file_type());
                }
                plan.changes.push(kept);
            }
        }
    }
    Ok(plan)
}

/// Makes a change that was planned, unless it is made already. Blocks.
pub fn make(change: &FileChange, workspace: &Workspace, blobs: &Blobs) -> Result<(), String> {
    let failed = |error: io::Error| error.to_string();
    if !may_be_written(&change.path, workspace) {
        return Err(OUTSIDE.to_owned());
    }
    let now = PresentFile::at(&change.path).map_err(failed)?.version();
    let want = FileVersion::after(change);
    if now.is(&want) {
        return Ok(());
    }
    if !now.is(&FileVersion::before(change)) {
        return Err("it was changed meanwhile".to_owned());
    }
    let (id, file_type) = match (&now, want) {
        (_, FileVersion::Missing) => {
            let entry = Entry::at(&change.path).map_err(failed)?;
            let is_link = now.file_type() == Some(FileType::Link);
            return if is_link { entry.remove_link() } else { entry.remove() }.map_err(failed);
        }
        (_, FileVersion::Unknown) => return Err("its former content is not kept".to_owned()),
        (_, FileVersion::Known(id, file_type)) => (id, file_type),
    };
    blobs.check(&id).map_err(failed)?;
    let bytes = blobs.read(&id, 0, u64::MAX).map_err(failed)?;
    let entry = Entry::make(&change.path).map_err(failed)?;
    let is_executable = file_type == Some(FileType::Executable);
    let is_same = matches!(&now, FileVersion::Known(known, of) if *known == id && *of != Some(FileType::Link));
    let done = match file_type {
        Some(FileType::Link) => entry.replace_link(OsStr::from_bytes(&bytes)),
        Some(_) if is_same => entry.set_executable(is_executable),
        Some(_) => entry.replace_as(&bytes, is_executable),
        // The link itself, and never what it leads to.
        None if now.file_type() == Some(FileType::Link) => entry.replace_as(&bytes, false),
        None => entry.replace(&bytes),
    };
    done.map_err(failed)
}

/// Why a file is left alone.
const OUTSIDE: &str = "it is outside of the workspace";

/// Whether the name `path`, and not what a link there leads to, lies where the session writes: in its workspace, or among its notes.
fn may_be_written(path: &Path, workspace: &Workspace) -> bool {
    let Some(parent) = path.parent() else { return false };
    let notes = [&workspace.notes.user, &workspace.notes.workspace];
    let is_note = || notes.iter().any(|dir| !dir.as_os_str().is_empty() && workspace.resolve(dir) == parent);
    workspace.contains(parent) || is_note()
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
            let blobs = Blobs::of(&data.path().join("linger.db"));
            Self { _dirs: (dir, data), workspace, blobs }
        }

        /// A call that writes: the change, made.
        fn write(&self, name: &str, text: &str) -> FileChange {
            let path = self.workspace.cwd.join(name);
            let before = PresentFile::at(&path).unwrap().content;
            let change = Change::written(&path, before, text).keep(&self.blobs).unwrap();
            // Kept as the database keeps them.
            std::mem::forget(change.blobs);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            change.change
        }

        fn plan(&self, changes: &[FileChange], force: bool) -> Plan {
            let token = CancellationToken::new();
            plan(changes, &self.workspace, &self.blobs, force, &token).unwrap()
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

    /// A change that a command made, as a checkpoint tells it.
    fn typed(
        scene: &Scene,
        name: &str,
        before: Option<(&str, FileType)>,
        after: Option<(&str, FileType)>,
    ) -> FileChange {
        let content = |side: Option<(&str, FileType)>| side.map_or(Content::Missing, |it| Content::Known(it.0.into()));
        let change = Change { path: scene.workspace.cwd.join(name), before: content(before), after: content(after) };
        let kept = change.keep(&scene.blobs).unwrap();
        std::mem::forget(kept.blobs);
        let (before_type, after_type) = (before.map(|it| it.1), after.map(|it| it.1));
        FileChange { before_type, after_type, ..kept.change }
    }

    #[test]
    fn links_and_modes_are_put_back_and_done_again() {
        use FileType::{Executable, File, Link};
        let scene = Scene::new();
        let at = |name: &str| scene.workspace.cwd.join(name);
        let changes = [
            typed(&scene, "gone", Some(("/nowhere", Link)), None),
            typed(&scene, "new", None, Some(("../x", Link))),
            typed(&scene, "turned", Some(("text", File)), Some(("gone", Link))),
            typed(&scene, "back", Some(("new", Link)), Some(("text", File))),
            typed(&scene, "mode", Some(("run", File)), Some(("run", Executable))),
            typed(&scene, "script", Some(("run", Executable)), None),
        ];
        symlink("../x", at("new")).unwrap();
        symlink("gone", at("turned")).unwrap();
        fs::write(at("back"), "text").unwrap();
        fs::write(at("mode"), "run").unwrap();
        fs::set_permissions(at("mode"), fs::Permissions::from_mode(0o750)).unwrap();
        let seen = || {
            let mode = |name: &str| at(name).symlink_metadata().map_or(0, |it| it.permissions().mode() & 0o111);
            let link = |name: &str| at(name).read_link().map(|to| to.display().to_string()).unwrap_or_default();
            (["gone", "new", "turned", "back"].map(link), [mode("mode"), mode("script")], scene.text("mode"))
        };
        let run = Some("run".to_owned());
        let after = (["", "../x", "gone", ""].map(str::to_owned), [0o110, 0], run.clone());
        assert_eq!(seen(), after);
        let undo = scene.plan(&changes, false);
        assert_eq!((undo.changes.len(), undo.changed.len(), undo.failed.len()), (6, 0, 0), "{undo:?}");
        // Twice, as after a crash in the middle.
        for _ in 0..2 {
            scene.make(&undo);
            assert_eq!(seen(), (["/nowhere", "", "", "new"].map(str::to_owned), [0, 0o111], run.clone()));
        }
        assert_eq!(scene.text("turned").as_deref(), Some("text"));
        let undone: Vec<FileChange> = undo.changes.iter().map(|kept| kept.change.clone()).collect();
        scene.make(&scene.plan(&undone, false));
        assert_eq!(seen(), after);
    }

    #[test]
    fn a_mode_or_link_that_somebody_changed_since_is_not_overwritten() {
        let scene = Scene::new();
        let at = |name: &str| scene.workspace.cwd.join(name);
        fs::write(at("mode"), "run").unwrap();
        symlink("else", at("link")).unwrap();
        let changes = [
            typed(&scene, "mode", Some(("run", FileType::File)), Some(("run", FileType::Executable))),
            typed(&scene, "link", Some(("a", FileType::Link)), Some(("b", FileType::Link))),
        ];
        // The mode is as before already.
        assert_eq!(scene.plan(&changes, false).changed, [at("link")]);
        scene.make(&scene.plan(&changes, true));
        assert_eq!(at("link").read_link().unwrap(), Path::new("a"));
        // A file tool's change says nothing of a mode, and nothing of a link in its place.
        let written = scene.write("plain", "model");
        fs::set_permissions(at("plain"), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(scene.plan(std::slice::from_ref(&written), false).changed.is_empty());
        fs::remove_file(at("plain")).unwrap();
        symlink("model", at("plain")).unwrap();
        assert_eq!(scene.plan(std::slice::from_ref(&written), false).changed, [at("plain")]);
        // With force the link goes, and what it leads to stays.
        fs::write(at("model"), "theirs").unwrap();
        scene.make(&scene.plan(&[written], true));
        assert!(at("plain").symlink_metadata().is_err());
        fs::write(at("over"), "former").unwrap();
        let written = scene.write("over", "new");
        fs::remove_file(at("over")).unwrap();
        symlink("model", at("over")).unwrap();
        scene.make(&scene.plan(&[written], true));
        assert!(at("over").symlink_metadata().unwrap().is_file());
        assert_eq!((scene.text("over").as_deref(), scene.text("model").as_deref()), (Some("former"), Some("theirs")));
    }

    #[test]
    fn a_note_is_put_back_and_nothing_else_beside_it() {
        let mut scene = Scene::new();
        let data = tempfile::tempdir().unwrap();
        let data = data.path().canonicalize().unwrap();
        scene.workspace.notes =
            crate::tool::notes::Notes::of(&data, Path::new("/w"), crate::diagnostics::secret::Redactor::default());
        let change = |path: PathBuf| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "new").unwrap();
            let change = Change::written(&path, Content::Missing, "new").keep(&scene.blobs).unwrap();
            std::mem::forget(change.blobs);
            change.change
        };
        let note = change(scene.workspace.notes.user.join("a.md"));
        let other = change(data.join("linger.db"));
        let plan = scene.plan(&[note.clone(), other], true);
        assert_eq!((plan.changes.len(), plan.failed.len()), (1, 1));
        scene.make(&plan);
        assert!(!note.path.exists());
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
