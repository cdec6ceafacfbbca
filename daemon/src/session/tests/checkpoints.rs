//! What commands change: seen in a diff, undone, done again; also when they are cut off.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use linger_protocol::checkpoint::{Diff, Differences, Uncertain};
use linger_protocol::error::Code;
use linger_protocol::session::Restored;

use super::*;

fn bash(command: &str) -> Answer {
    Answer::call("bash", json!({ "command": command }))
}

impl Scene {
    /// Makes the workspace a repository with a committed file `a`.
    pub(super) async fn repository(&self) {
        let cwd = self.path("").canonicalize().unwrap();
        let env = Arc::new(BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").unwrap())]));
        let spawn =
            crate::process::server::Spawn { cwd, env, children: Children::default(), started_for: Default::default() };
        let script = "git init -q -b main; echo one > a; git add a
            git -c user.name=a -c user.email=a@b commit -q -m first";
        let process =
            spawn.shell(script, crate::process::Input::Nothing, crate::process::Stderr::Merged).await.unwrap();
        let done = process.finish(LONG, 9999).await.unwrap();
        assert!(done.output.is_empty(), "{}", String::from_utf8_lossy(&done.output));
    }

    async fn back(&self) -> Result<Restored, RpcError> {
        // A busy machine makes a short command a long one.
        let undo = session::Undo { uncertain: Some(Uncertain::Undo), ..session::Undo::default() };
        self.send(|reply| Command::Undo(undo, None, Author::named("someone"), reply)).await
    }

    async fn forth(&self) -> Result<Restored, RpcError> {
        self.send(|reply| Command::Redo(session::Redo::default(), None, Author::named("someone"), reply)).await
    }

    async fn differences(&self, turn: Option<&str>) -> Differences {
        let asked = Diff { session: self.id.clone(), turn: turn.map(Into::into), stat: false };
        self.send(|reply| Command::Diff(asked, reply)).await.unwrap()
    }

    /// The files that differ, each with its lines.
    async fn stat(&self, turn: Option<&str>) -> Vec<String> {
        let Differences { files, missing } = self.differences(turn).await;
        assert_eq!(missing, Vec::<String>::new());
        let root = self.path("").canonicalize().unwrap();
        let name = |path: &std::path::Path| path.strip_prefix(&root).unwrap().display().to_string();
        files.iter().map(|file| format!("{} +{} -{}", name(&file.path), file.added, file.removed)).collect()
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }
}

#[tokio::test]
async fn what_a_command_changes_is_shown_undone_and_done_again() {
    let write = Answer::call("write", json!({ "path": "w", "content": "w\n" }));
    let answers = [
        bash("echo two >> a; mkdir d; echo new > d/b"),
        write,
        bash("echo 2 >> w; cat a"),
        Answer::text("1"),
        bash("ls && cat a"),
        Answer::text("2"),
    ];
    let mut scene = Scene::auto(answers).await;
    scene.repository().await;
    scene.turn("first").await;
    scene.turn("second").await;
    assert_eq!(scene.stat(None).await, ["a +1 -0", "d/b +1 -0", "w +2 -0"]);
    assert_eq!(scene.stat(Some("t2")).await, Vec::<String>::new());
    let diff = scene.differences(Some("t1")).await.files.remove(0).diff.unwrap();
    assert_eq!(diff, "--- a/a\n+++ b/a\n@@ -1 +1,2 @@\n one\n+two\n");
    let undone = scene.back().await.unwrap();
    assert_eq!((undone.step.unwrap().as_str(), undone.changes.len(), undone.failed.len()), ("t1", 3, 0));
    assert_eq!((scene.read("a").as_deref(), scene.read("d/b"), scene.read("w")), (Some("one\n"), None, None));
    assert_eq!(scene.stat(None).await, Vec::<String>::new());
    scene.crash().await;
    scene.forth().await.unwrap();
    assert_eq!(scene.read("a").as_deref(), Some("one\ntwo\n"));
    assert_eq!(scene.read("w").as_deref(), Some("w\n2\n"));
    let unknown = Diff { session: scene.id.clone(), turn: Some("t9".into()), stat: true };
    let unknown = scene.send(|reply| Command::Diff(unknown, reply)).await.unwrap_err();
    assert_eq!(unknown.message, "session scene has no turn 't9'");
}

#[tokio::test]
async fn links_and_modes_that_a_command_changes_are_shown_and_undone_too() {
    let command = "ln -s a link; chmod +x a; ln -sf elsewhere was; rm run; echo made > new; chmod +x new";
    let mut scene = Scene::auto([bash(command), Answer::text("1")]).await;
    scene.repository().await;
    let root = scene.path("");
    let at = |name: &str| root.join(name);
    let mode = |name: &str| std::fs::metadata(at(name)).map_or(0, |it| it.permissions().mode() & 0o100);
    symlink("a", at("was")).unwrap();
    std::fs::write(at("run"), "run\n").unwrap();
    std::fs::set_permissions(at("run"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let state = || {
        let link = |name: &str| at(name).read_link().map(|to| to.display().to_string()).unwrap_or_default();
        (["link", "was"].map(link), ["a", "run", "new"].map(mode))
    };
    let before = state();
    scene.turn("go").await;
    let after = (["a", "elsewhere"].map(str::to_owned), [0o100, 0, 0o100]);
    assert_eq!(state(), after);
    let notes: Vec<String> = scene.differences(None).await.files.into_iter().filter_map(|file| file.note).collect();
    assert_eq!(notes, ["it is executable now", "it is a link", "it is a link"]);
    let undone = scene.back().await.unwrap();
    assert_eq!((undone.changes.len(), undone.failed), (5, Vec::new()));
    assert_eq!(state(), before);
    assert_eq!(scene.stat(None).await, Vec::<String>::new());
    scene.crash().await;
    scene.forth().await.unwrap();
    assert_eq!(state(), after);
    // A link is meant by its own name.
    let undo = session::Undo { file: Some("link".into()), ..session::Undo::default() };
    scene.send(|reply| Command::Undo(undo, None, Author::named("someone"), reply)).await.unwrap();
    assert!(!scene.path("link").is_symlink() && scene.path("new").exists());
}

#[tokio::test]
async fn a_call_that_only_reads_has_no_checkpoint_and_neither_has_a_workspace_without_a_repository() {
    let answers = [bash("cat a | wc -l"), Answer::text("1"), bash("echo x > y"), Answer::text("2")];
    let mut scene = Scene::auto(answers).await;
    scene.repository().await;
    scene.turn("read").await;
    assert_eq!(scene.count("checkpoint").await, 0);
    assert!(!scene.dir.path().join("data/checkpoints").exists());
    std::fs::rename(scene.path(".git"), scene.path("git")).unwrap();
    scene.turn("write").await;
    assert_eq!(scene.count("checkpoint").await, 0);
    assert_eq!(scene.back().await.unwrap_err().message, "session scene has no file changes to undo");
}

#[tokio::test]
async fn a_file_that_a_user_changes_after_a_command_is_not_overwritten_without_force() {
    let mut scene = Scene::auto([bash("echo model > a; echo m > b"), Answer::text("1")]).await;
    scene.repository().await;
    scene.turn("go").await;
    std::fs::write(scene.path("a"), "user\n").unwrap();
    // Nothing of it is part of a turn.
    assert_eq!(scene.stat(None).await, ["a +1 -1", "b +1 -0"]);
    assert_eq!(scene.back().await.unwrap_err().message, "a changed since; nothing was undone");
    assert_eq!(scene.read("b").as_deref(), Some("m\n"));
}

#[tokio::test]
async fn what_a_user_changes_between_two_commands_is_not_part_of_either() {
    let answers = [bash("echo 1 > x"), Answer::text("1"), bash("echo 2 > x"), Answer::text("2")];
    let mut scene = Scene::auto(answers).await;
    scene.repository().await;
    scene.turn("first").await;
    std::fs::write(scene.path("a"), "user\n").unwrap();
    scene.turn("second").await;
    assert_eq!(scene.stat(Some("t2")).await, ["x +1 -1"]);
    scene.back().await.unwrap();
    assert_eq!((scene.read("a").as_deref(), scene.read("x").as_deref()), (Some("user\n"), Some("1\n")));
}

#[tokio::test]
async fn what_a_cancelled_command_changed_can_be_undone() {
    let mut scene = Scene::auto([bash("rm a; echo junk > junk; echo ready; sleep 1000")]).await;
    scene.repository().await;
    scene.prompt("go", When::Queue).await;
    scene.shows("ready").await;
    scene.cancel().await;
    scene.ends(1).await;
    let undone = scene.back().await.unwrap();
    assert_eq!(undone.changes.len(), 2);
    assert_eq!((scene.read("a").as_deref(), scene.read("junk")), (Some("one\n"), None));
}

#[tokio::test]
async fn what_a_command_changed_that_a_crash_cut_off_is_part_of_its_turn() {
    let cut = bash("echo junk > junk; echo ready; sleep 1000");
    let mut scene = Scene::auto([cut, bash("echo 2 > b"), Answer::text("done")]).await;
    scene.repository().await;
    scene.prompt("go", When::Queue).await;
    scene.shows("ready").await;
    scene.crash().await;
    scene.ends(1).await;
    assert_eq!(scene.stat(Some("t1")).await, ["b +1 -0", "junk +1 -0"]);
    scene.back().await.unwrap();
    assert_eq!((scene.read("junk"), scene.read("b")), (None, None));
    // Each event has its place: before each call, and after it.
    let transcript = scene.transcript().await;
    let taken: Vec<&str> = transcript.lines().filter(|line| line.contains("checkpoint")).collect();
    assert_eq!(taken.len(), 4, "{transcript}");
}

#[tokio::test]
async fn a_workspace_that_is_too_large_is_told_once() {
    let answers = [bash("echo 1 > x"), Answer::text("1"), bash("echo 2 > x"), Answer::text("2")];
    let mut scene = Scene::auto(answers).await;
    scene.repository().await;
    let large = std::fs::File::create(scene.path("large")).unwrap();
    large.set_len(crate::tool::checkpoint::MAX_BYTES + 1).unwrap();
    scene.turn("first").await;
    scene.crash().await;
    scene.turn("second").await;
    assert_eq!(scene.count("no checkpoint of").await, 1, "{}", scene.transcript().await);
    assert_eq!(scene.count("checkpoint ").await, 1);
}

/// A command that ends once there is a file `go`, and not before a second has passed.
fn waits(command: &str) -> Answer {
    bash(&format!("echo ready; sleep 1.1; while [ ! -e go ]; do sleep 0.02; done; {command}"))
}

impl Scene {
    async fn undo_as(&self, uncertain: Option<Uncertain>, files: &[&str]) -> Result<Restored, RpcError> {
        let files = files.iter().map(Into::into).collect();
        let undo = session::Undo { uncertain, files, ..session::Undo::default() };
        self.send(|reply| Command::Undo(undo, None, Author::named("someone"), reply)).await
    }

    /// The uncertain files of a result.
    fn uncertain(&self, done: &Restored) -> Vec<String> {
        let root = self.path("").canonicalize().unwrap();
        done.uncertain.iter().map(|it| it.path.strip_prefix(&root).unwrap().display().to_string()).collect()
    }
}

#[tokio::test]
async fn what_may_be_of_an_editor_is_left_until_somebody_says_what_becomes_of_it() {
    let write = Answer::call("write", json!({ "path": "sure", "content": "model\n" }));
    let answers = [write, waits("echo m > made"), Answer::text("1")];
    let mut scene = Scene::auto(answers).await;
    scene.repository().await;
    scene.prompt("go", When::Queue).await;
    scene.shows("ready").await;
    std::fs::write(scene.path("a"), "user\n").unwrap();
    std::fs::write(scene.path("mine"), "user\n").unwrap();
    std::fs::write(scene.path("go"), "").unwrap();
    scene.ends(1).await;
    let asked = scene.undo_as(Some(Uncertain::Ask), &[]).await.unwrap_err();
    assert_eq!(asked.code(), Some(Code::Uncertain));
    let listed = asked.get_uncertain();
    assert_eq!(listed.len(), 4);
    assert!(listed.iter().all(|it| it.call_id.as_str() == "c2" && it.from.is_some() && it.at.is_some()), "{listed:?}");
    assert_eq!(scene.read("sure").as_deref(), Some("model\n"), "nothing was done");
    let marked: Vec<bool> = scene.differences(None).await.files.iter().map(|file| file.uncertain).collect();
    assert_eq!(marked, [true, true, true, true, false]);
    // Nobody said anything: they stay, and the turn too.
    let done = scene.undo_as(None, &[]).await.unwrap();
    assert_eq!(
        (scene.uncertain(&done), done.changes.len()),
        (["a", "go", "made", "mine"].map(str::to_owned).to_vec(), 1)
    );
    assert_eq!((scene.read("a").as_deref(), scene.read("sure")), (Some("user\n"), None));
    // One that is named is undone.
    let done = scene.undo_as(None, &["made", "go"]).await.unwrap();
    assert_eq!((done.changes.len(), scene.read("made"), scene.read("mine").as_deref()), (2, None, Some("user\n")));
    // All of them, and back: nothing is lost, whatever the model does in between.
    scene.undo_as(Some(Uncertain::Undo), &[]).await.unwrap();
    assert_eq!((scene.read("a").as_deref(), scene.read("mine")), (Some("one\n"), None));
    scene.crash().await;
    scene.forth().await.unwrap();
    assert_eq!((scene.read("a").as_deref(), scene.read("mine").as_deref()), (Some("user\n"), Some("user\n")));
}

#[tokio::test]
async fn what_is_kept_for_good_counts_as_undone() {
    let first = Answer::call("write", json!({ "path": "old", "content": "1\n" }));
    let answers = [first, Answer::text("1"), waits("echo m > made"), Answer::text("2")];
    let mut scene = Scene::auto(answers).await;
    scene.repository().await;
    scene.turn("first").await;
    scene.prompt("second", When::Queue).await;
    scene.shows("ready").await;
    std::fs::write(scene.path("go"), "").unwrap();
    scene.ends(2).await;
    let done = scene.undo_as(Some(Uncertain::Keep), &[]).await.unwrap();
    assert_eq!(
        (done.step.as_ref().map(linger_protocol::id::TurnId::as_str), done.changes.len(), done.uncertain.len()),
        (Some("t2"), 0, 0)
    );
    assert_eq!(scene.read("made").as_deref(), Some("m\n"));
    let done = scene.undo_as(None, &[]).await.unwrap();
    assert_eq!((done.step.unwrap().as_str(), scene.read("old")), ("t1", None));
}

#[tokio::test]
async fn what_was_undone_can_be_done_again_after_more_changes() {
    let write = |name: &str| Answer::call("write", json!({ "path": name, "content": "model\n" }));
    let mut scene = Scene::auto([write("a"), Answer::text("1"), write("b"), Answer::text("2")]).await;
    scene.turn("first").await;
    scene.back().await.unwrap();
    scene.turn("second").await;
    scene.forth().await.unwrap();
    assert_eq!((scene.read("a").as_deref(), scene.read("b").as_deref()), (Some("model\n"), Some("model\n")));
    // The turns are in their order again.
    assert_eq!(scene.back().await.unwrap().step.unwrap().as_str(), "t2");
    assert_eq!(scene.back().await.unwrap().step.unwrap().as_str(), "t1");
}

#[tokio::test]
async fn what_another_session_writes_while_a_command_runs_is_not_the_commands() {
    let mut scene = Scene::auto([waits("echo m > made"), Answer::text("1")]).await;
    scene.repository().await;
    scene.prompt("go", When::Queue).await;
    scene.shows("ready").await;
    let other = scene.env.workspaces.writers().seen_by("session other");
    let root = scene.path("").canonicalize().unwrap();
    for (name, content) in [("a", "other\n"), ("b", "other\n"), ("c", "before\n")] {
        std::fs::write(root.join(name), content).unwrap();
        other.left(&root.join(name), Some(content.as_bytes()));
    }
    // This one is changed again.
    std::fs::write(root.join("c"), "after\n").unwrap();
    std::fs::write(scene.path("go"), "").unwrap();
    scene.ends(1).await;
    assert_eq!(scene.stat(None).await, ["c +1 -0", "go +0 -0", "made +1 -0"]);
    scene.back().await.unwrap();
    let left = ["a", "b", "c", "made"].map(|name| scene.read(name));
    assert_eq!(left, [Some("other\n".to_owned()), Some("other\n".to_owned()), None, None]);
}

#[tokio::test]
async fn names_of_any_bytes_are_recorded_undone_and_done_again() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let command = r"mkdir -p $'d\xe9'; echo 1 > $'caf\xe9.txt'; echo 2 > $'d\xe9/x\ny'; echo 3 > $'\xef\xbf\xbd'; mv $'old\xff' $'new\xff'";
    let mut scene = Scene::auto([bash(command), Answer::text("1"), Answer::text("2")]).await;
    scene.repository().await;
    let root = scene.path("");
    let at = |name: &[u8]| root.join(OsStr::from_bytes(name));
    let names: [&[u8]; 5] = [b"caf\xe9.txt", b"d\xe9/x\ny", b"\xef\xbf\xbd", b"new\xff", b"old\xff"];
    std::fs::write(at(b"old\xff"), "old\n").unwrap();
    scene.turn("go").await;
    let there = || names.map(|name| at(name).exists());
    assert_eq!(there(), [true, true, true, true, false]);
    assert_eq!(scene.events().await.iter().filter(|event| matches!(event.body, EventBody::Checkpoint(_))).count(), 2);
    assert_eq!(scene.back().await.unwrap().changes.len(), 5);
    assert_eq!(there(), [false, false, false, false, true]);
    assert!(!at(b"d\xe9").exists(), "it came with the file");
    scene.crash().await;
    scene.forth().await.unwrap();
    assert_eq!(there(), [true, true, true, true, false]);
    scene.turn("go on").await;
    let told = scene.last_request();
    assert!(told.contains(r"caf\xe9.txt") && !told.contains("\u{fffd}"), "{told}");
}

#[tokio::test]
async fn private_files_stay_private_when_a_command_removed_them() {
    let command = "rm key; rm -r secret; chmod 600 made; cat run > x; rm run; echo new > over; echo fast > b";
    let mut scene = Scene::auto([bash(command), Answer::text("1")]).await;
    scene.repository().await;
    let script = [("key", 0o600), ("secret/s", 0o640), ("made", 0o644), ("run", 0o750), ("over", 0o600)];
    std::fs::create_dir(scene.path("secret")).unwrap();
    for (name, mode) in script {
        std::fs::write(scene.path(name), "text\n").unwrap();
        std::fs::set_permissions(scene.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::set_permissions(scene.path("secret"), std::fs::Permissions::from_mode(0o700)).unwrap();
    scene.turn("go").await;
    for _ in 0..2 {
        scene.back().await.unwrap();
        let mode = |name: &str| std::fs::metadata(scene.path(name)).unwrap().permissions().mode() & 0o777;
        let modes = ["key", "secret", "secret/s", "run", "over"].map(mode);
        assert_eq!(modes, [0o600, 0o700, 0o640, 0o750, 0o600]);
        scene.forth().await.unwrap();
        assert!(!scene.path("key").exists() && !scene.path("secret").exists());
    }
}
