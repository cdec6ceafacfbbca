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
        let changes = plan.changes.iter().map(|kept| kept.change.clone()).collect();
        let (_, failed) = make_all(changes, &self.workspace, &self.blobs, &CancellationToken::new());
        assert_eq!(failed, []);
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
fn typed(scene: &Scene, name: &str, before: Option<(&str, FileType)>, after: Option<(&str, FileType)>) -> FileChange {
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
        // What its mode was is not known.
        assert_eq!(seen(), (["/nowhere", "", "", "new"].map(str::to_owned), [0, 0o100], run.clone()));
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

/// The permissions of what is there.
fn mode(scene: &Scene, name: &str) -> u32 {
    scene.workspace.cwd.join(name).symlink_metadata().map_or(0, |it| it.permissions().mode() & 0o7777)
}

#[test]
fn what_is_made_anew_has_the_mode_that_it_had_and_never_a_wider_one() {
    use FileType::{Executable, File};
    let scene = Scene::new();
    let at = |name: &str| scene.workspace.cwd.join(name);
    let with = |change: FileChange, before_mode, directories: &[u32]| FileChange {
        before_mode,
        directories: directories.to_vec(),
        ..change
    };
    let gone = |name: &str, file_type| typed(&scene, name, Some(("x", file_type)), None);
    let changes = [
        with(gone("key", File), Some(0o600), &[]),
        with(gone("read", File), Some(0o400), &[]),
        with(gone("run", Executable), Some(0o750), &[]),
        with(gone("unknown", File), None, &[]),
        with(gone("tool", Executable), None, &[]),
        with(gone("secret/deep/s", File), Some(0o644), &[0o755, 0o700]),
        with(gone("dark/s", File), None, &[]),
        with(typed(&scene, "over", Some(("old", File)), Some(("new", File))), Some(0o600), &[]),
        with(typed(&scene, "tight", Some(("old", File)), Some(("new", File))), Some(0o644), &[]),
    ];
    for (name, mode) in [("over", 0o644), ("tight", 0o400)] {
        fs::write(at(name), "new").unwrap();
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let expect = [
        ("key", 0o600),
        ("read", 0o400),
        ("run", 0o750),
        ("unknown", 0o600),
        ("tool", 0o700),
        ("secret", 0o700),
        ("secret/deep", 0o755),
        ("secret/deep/s", 0o644),
        ("dark", 0o700),
        ("dark/s", 0o600),
        ("over", 0o600),
        ("tight", 0o400),
    ];
    let check = |what: &str| {
        for (name, wanted) in expect {
            assert_eq!(mode(&scene, name), wanted, "{what}: {name}");
        }
    };
    let undo = scene.plan(&changes, false);
    scene.make(&undo);
    check("undone");
    let changes = |plan: &Plan| plan.changes.iter().map(|kept| kept.change.clone()).collect::<Vec<_>>();
    let redo = scene.plan(&changes(&undo), false);
    scene.make(&redo);
    assert!(!at("key").exists() && !at("secret").exists() && !at("dark").exists());
    assert_eq!(scene.text("over").as_deref(), Some("new"));
    scene.make(&scene.plan(&changes(&redo), false));
    check("undone, done again and undone");
}

/// Undoes and does again what turned one tree into another; `before` and `after` make it in an empty directory.
fn goes_back_and_forth(changes: impl Fn(&Scene) -> Vec<FileChange>, before: fn(&Path), after: fn(&Path)) {
    fn tree(root: &Path) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for entry in fs::read_dir(root).unwrap().map(Result::unwrap).filter(|entry| entry.file_name() != ".blobs") {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let name = entry.file_name().to_string_lossy().into_owned();
            if kind.is_dir() {
                all.push(format!("{name}/"));
                all.extend(tree(&path).into_iter().map(|below| format!("{name}/{below}")));
            } else if kind.is_symlink() {
                all.push(format!("{name} -> {}", path.read_link().unwrap().display()));
            } else {
                all.push(format!("{name} = {}", fs::read_to_string(&path).unwrap()));
            }
        }
        all.sort();
        all
    }
    let of = |make: fn(&Path)| {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path());
        tree(dir.path())
    };
    let scene = Scene::new();
    let root = &scene.workspace.cwd;
    after(root);
    let changes = changes(&scene);
    let undo = scene.plan(&changes, false);
    assert_eq!((undo.changed.len(), undo.failed.len()), (0, 0), "{undo:?}");
    scene.make(&undo);
    assert_eq!(tree(root), of(before), "undone");
    scene.make(&undo);
    assert_eq!(tree(root), of(before), "as after a crash");
    let undone: Vec<FileChange> = undo.changes.iter().map(|kept| kept.change.clone()).collect();
    let redo = scene.plan(&undone, false);
    scene.make(&redo);
    assert_eq!(tree(root), of(after), "done again");
    let redone: Vec<FileChange> = redo.changes.iter().map(|kept| kept.change.clone()).collect();
    scene.make(&scene.plan(&redone, false));
    assert_eq!(tree(root), of(before), "undone again");
}

#[test]
fn changes_of_type_go_back_and_forth() {
    use FileType::{File, Link};
    // A file became a directory.
    goes_back_and_forth(
        |it| vec![typed(it, "f", Some(("f", File)), None), typed(it, "f/x", None, Some(("x", File)))],
        |at| fs::write(at.join("f"), "f").unwrap(),
        |at| {
            fs::create_dir(at.join("f")).unwrap();
            fs::write(at.join("f/x"), "x").unwrap();
        },
    );
    // A directory became a file.
    goes_back_and_forth(
        |it| {
            let gone = typed(it, "d/e/x", Some(("x", File)), None);
            let gone = FileChange { directories: vec![0o755, 0o755], ..gone };
            vec![typed(it, "d", None, Some(("d", File))), gone, typed(it, "d/y", Some(("y", File)), None)]
        },
        |at| {
            fs::create_dir_all(at.join("d/e")).unwrap();
            fs::write(at.join("d/e/x"), "x").unwrap();
            fs::write(at.join("d/y"), "y").unwrap();
        },
        |at| fs::write(at.join("d"), "d").unwrap(),
    );
    // A directory became a link that leads out of the workspace.
    goes_back_and_forth(
        |it| vec![typed(it, "d", None, Some(("/tmp", Link))), typed(it, "d/x", Some(("x", File)), None)],
        |at| {
            fs::create_dir(at.join("d")).unwrap();
            fs::write(at.join("d/x"), "x").unwrap();
        },
        |at| symlink("/tmp", at.join("d")).unwrap(),
    );
    // A link became a directory, with an empty one in it.
    goes_back_and_forth(
        |it| vec![typed(it, "d", Some(("/tmp", Link)), None), typed(it, "d/x", None, Some(("x", File)))],
        |at| symlink("/tmp", at.join("d")).unwrap(),
        |at| {
            fs::create_dir(at.join("d")).unwrap();
            fs::write(at.join("d/x"), "x").unwrap();
        },
    );
    // A file became an empty directory.
    goes_back_and_forth(
        |it| vec![typed(it, "f", Some(("f", File)), None)],
        |at| fs::write(at.join("f"), "f").unwrap(),
        |at| fs::create_dir(at.join("f")).unwrap(),
    );
    // Directories that came with a file go with it.
    goes_back_and_forth(
        |it| vec![FileChange { directories: vec![0o755, 0o755], ..typed(it, "a/b/x", None, Some(("x", File))) }],
        |_| {},
        |at| {
            fs::create_dir_all(at.join("a/b")).unwrap();
            fs::write(at.join("a/b/x"), "x").unwrap();
        },
    );
}

#[test]
fn a_directory_with_other_files_stays_and_nothing_is_lost() {
    let scene = Scene::new();
    let at = |name: &str| scene.workspace.cwd.join(name);
    let changes = [
        typed(&scene, "f", Some(("f", FileType::File)), None),
        typed(&scene, "f/x", None, Some(("x", FileType::File))),
    ];
    fs::create_dir(at("f")).unwrap();
    fs::write(at("f/x"), "x").unwrap();
    fs::write(at("f/mine"), "mine").unwrap();
    let undo = scene.plan(&changes, true);
    assert_eq!(undo.failed[0].reason, "a directory with other files is in its place");
    scene.make(&undo);
    assert_eq!((scene.text("f/mine").as_deref(), scene.text("f/x")), (Some("mine"), None));
}
