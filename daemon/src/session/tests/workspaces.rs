//! The rules of a workspace's own file.

use super::*;

fn bash(command: &str) -> Answer {
    Answer::call("bash", json!({ "command": command }))
}

impl Scene {
    /// A session in this mode and a workspace with this file.
    async fn in_workspace(mode: Mode, file: &str, answers: impl IntoIterator<Item = Answer>) -> Self {
        let scene = Self::with("", "mock/m", mode, answers).await;
        scene.says(file);
        scene
    }

    fn says(&self, file: &str) {
        std::fs::create_dir_all(self.path(".linger")).unwrap();
        std::fs::write(self.path(".linger/config.toml"), file).unwrap();
    }
}

#[tokio::test]
async fn what_a_workspace_denies_does_not_run_and_what_it_allows_asks_until_it_is_trusted() {
    let file = "[permissions]\nallow = ['bash(touch a)']\ndeny = ['bash(touch b)']";
    let answers = [bash("touch b").calls("bash", json!({ "command": "touch a" })), Answer::text("no")];
    let again = [bash("touch a"), Answer::text("done")];
    let mut scene = Scene::in_workspace(Mode::Ask, file, answers.into_iter().chain(again)).await;
    scene.prompt("go", When::Queue).await;
    scene.until("permission_requested", 1).await;
    scene.answer(1, Decision::RejectOnce, None).await.unwrap();
    scene.ends(1).await;
    assert_eq!(scene.count("t1 notice config_waits: 1 setting of ").await, 1, "{}", scene.transcript().await);
    assert_eq!(scene.count("tool_finished c1 denied \"not run: the rule bash(touch b) forbids it\"").await, 1);
    assert_eq!(scene.count("permission_requested q1 c2 touch a").await, 1);

    let root = scene.path("").canonicalize().unwrap();
    let waiting = scene.env.config.look(&root).waiting.clone().unwrap();
    scene.env.config.trust(&root, &waiting, "me").unwrap();
    scene.turn("again").await;
    assert!(scene.path("a").exists());
    assert_eq!(scene.count("permission_requested").await, 1);
}

#[tokio::test]
async fn where_the_file_is_broken_everything_asks_and_what_is_corrected_counts() {
    let answers = [bash("touch a"), bash("touch b"), Answer::text("done")];
    let mut scene = Scene::in_workspace(Mode::Auto, "[permissions]\ndeny = 'bash(touch b)'", answers).await;
    scene.prompt("go", When::Queue).await;
    scene.until("permission_requested q1 c1 touch a", 1).await;
    assert_eq!(scene.count("t1 notice config_waits").await, 1);
    scene.says("[permissions]\ndeny = ['bash(touch b)']");
    scene.answer(1, Decision::AllowOnce, None).await.unwrap();
    scene.ends(1).await;
    assert_eq!(scene.count("tool_finished c2 denied").await, 1, "{}", scene.transcript().await);
    assert!(scene.path("a").exists() && !scene.path("b").exists());
}

#[tokio::test]
async fn mode_edit_asks_before_the_file_changes() {
    let write = Answer::call("write", json!({ "path": ".linger/config.toml", "content": "" }));
    let read = Answer::call("read", json!({ "path": ".linger/config.toml" }));
    let mut scene = Scene::in_workspace(Mode::Edit, "", [read, write, Answer::text("done")]).await;
    scene.prompt("go", When::Queue).await;
    scene.until("permission_requested", 1).await;
}

#[tokio::test]
async fn an_added_directory_counts_like_the_workspace_from_the_next_call_on_and_after_a_crash() {
    let write = |path: &str| Answer::call("write", json!({ "path": path, "content": "x" }));
    let other = tempfile::tempdir().unwrap();
    let at = |name: &str| other.path().canonicalize().unwrap().join(name);
    let path = |name: &str| at(name).to_str().unwrap().to_owned();
    let answers = [write(&path("a")), write(&path("b")), write(&path("c")), write(&path("link/d"))];
    let end = || Answer::text("done");
    let [a, b, c, d] = answers;
    let mut scene = Scene::with("", "mock/m", Mode::Edit, [a, b, end(), c, d, end()]).await;
    scene.prompt("go", When::Queue).await;
    scene.until("permission_requested", 1).await;
    let add_directories = vec![at("")];
    scene.set(session::Set { add_directories: add_directories.clone(), ..Default::default() }).await;
    // The running turn sees it: the call that waits goes on, and its next one does not ask.
    scene.ends(1).await;
    assert_eq!((at("a").exists(), at("b").exists()), (true, true));
    scene.crash().await;
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), at("link")).unwrap();
    scene.prompt("again", When::Queue).await;
    // What a link in it leads to is not in it.
    scene.until("permission_requested", 2).await;
    assert!(at("c").exists());
    scene.answer(2, Decision::RejectOnce, None).await.unwrap();
    scene.ends(2).await;
    assert_eq!(scene.count("session_changed 1 directories").await, 1);
    scene.set(session::Set { remove_directories: add_directories.clone(), ..Default::default() }).await;
    assert_eq!(scene.count("session_changed 0 directories").await, 1);
    let again = session::Set { session: scene.id.clone(), remove_directories: add_directories, ..Default::default() };
    let error = scene.asked(|asked| Command::Set(again, Ok(()), asked)).await.unwrap_err();
    assert!(error.message.contains("is not an added directory"), "{}", error.message);
}

#[tokio::test]
async fn a_call_that_waits_runs_when_its_directory_is_added_and_others_wait_on() {
    let [added, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let at = |dir: &tempfile::TempDir| dir.path().canonicalize().unwrap();
    let write = |path: &std::path::Path| json!({ "path": path, "content": "x" });
    let calls = Answer::call("write", write(&at(&added).join("a"))).calls("write", write(&at(&other).join("b")));
    let mut scene = Scene::with("", "mock/m", Mode::Edit, [calls, Answer::text("done")]).await;
    scene.prompt("go", When::Queue).await;
    scene.until("permission_requested", 2).await;
    scene.set(session::Set { add_directories: vec![at(&added)], ..Default::default() }).await;
    scene.until("tool_finished c1 ran", 1).await;
    assert!(at(&added).join("a").exists() && !at(&other).join("b").exists());
    scene.answer(2, Decision::RejectOnce, None).await.unwrap();
    scene.ends(1).await;
    assert_eq!(scene.count("permission_resolved q1 allow_once by mode edit").await, 1, "{}", scene.transcript().await);
}
