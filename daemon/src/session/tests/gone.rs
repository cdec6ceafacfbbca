//! A session whose directory is gone takes prompts, runs commands elsewhere, and can be moved.

use std::fs;
use std::path::Path;

use super::*;

fn bash(command: &str) -> Answer {
    Answer::call("bash", json!({ "command": command }))
}

async fn move_to(scene: &Scene, cwd: &Path) -> Result<(), RpcError> {
    let set = session::Set { session: scene.id.clone(), cwd: Some(cwd.to_path_buf()), ..session::Set::default() };
    scene.asked(|asked| Command::Set(set, Ok(()), asked)).await
}

#[tokio::test]
async fn commands_run_in_a_directory_of_the_sessions_own_when_its_root_is_gone() {
    let relative = Answer::call("read", json!({ "path": "a" }));
    let mut scene = Scene::auto([bash("pwd; ls -A; touch kept"), relative, bash("ls"), Answer::text("done")]).await;
    let work = scene.path("");
    fs::remove_dir_all(&work).unwrap();
    scene.turn("where are you?").await;
    let transcript = scene.transcript().await;
    let own = scene.env.calls.empty.join("scene");
    assert!(
        transcript.contains(&format!("ran \"{}/\" \"[the session's directory is gone", own.display())),
        "{transcript}"
    );
    assert!(transcript.contains("is gone; absolute paths still work"), "{transcript}");
    assert!(own.join("kept").exists(), "{transcript}");
    // Not in what has taken its place.
    fs::write(work.parent().unwrap().join("work"), "a file").unwrap();
    scene.crash().await;
    assert!(scene.prompted(PromptContent::Text("again".to_owned()), When::Queue, None).await.is_ok());
}

#[tokio::test]
async fn commands_run_in_the_nearest_directory_within_the_workspace() {
    let mut scene =
        Scene::auto([bash("mkdir -p x/y"), bash("pwd"), bash("rm -r ../x"), bash("pwd"), Answer::text("done")]).await;
    let work = scene.path("").canonicalize().unwrap();
    fs::create_dir(work.join(".git")).unwrap();
    fs::create_dir_all(work.join("x/y")).unwrap();
    move_to(&scene, &work.join("x/y")).await.unwrap();
    fs::remove_dir(work.join("x/y")).unwrap();
    scene.turn("go").await;
    let transcript = scene.transcript().await;
    assert!(transcript.contains("\"DIR/x/\" \"[the session's directory is gone; this ran in"), "{transcript}");
    // `x` is gone too, and what lies above the root is none of it.
    assert!(transcript.contains("\"DIR/\" \"["), "{transcript}");
}

#[tokio::test]
async fn a_link_in_the_place_of_a_directory_above_is_not_followed() {
    let mut scene = Scene::auto([bash("pwd"), Answer::text("done")]).await;
    let work = scene.path("").canonicalize().unwrap();
    fs::create_dir(work.join(".git")).unwrap();
    fs::create_dir_all(work.join("x/y")).unwrap();
    move_to(&scene, &work.join("x/y")).await.unwrap();
    fs::remove_dir_all(work.join("x")).unwrap();
    std::os::unix::fs::symlink("/tmp", work.join("x")).unwrap();
    scene.turn("go").await;
    let transcript = scene.transcript().await;
    assert!(transcript.contains("this ran in DIR]"), "{transcript}");
}

#[tokio::test]
async fn undo_and_diff_go_on_in_a_renamed_project() {
    let write = Answer::call("write", json!({ "path": "n", "content": "one\n" }));
    let command = bash("echo two > b; sleep 1.2");
    let mut scene = Scene::auto([write, command, Answer::text("done")]).await;
    let work = scene.path("").canonicalize().unwrap();
    scene.repository().await;
    scene.turn("change").await;
    let renamed = work.with_file_name("work2");
    fs::rename(&work, &renamed).unwrap();
    move_to(&scene, &renamed).await.unwrap();
    scene.crash().await;
    let diff = linger_protocol::checkpoint::Diff { session: scene.id.clone(), ..Default::default() };
    let found = scene.send(|reply| Command::Diff(diff, reply)).await.unwrap();
    let mut paths: Vec<_> = found.files.iter().map(|file| file.path.clone()).collect();
    paths.sort();
    assert_eq!(paths, [renamed.join("b"), renamed.join("n")], "{found:?}");
    let undo = session::Undo { session: scene.id.clone(), force: true, ..session::Undo::default() };
    let undone = scene.send(|reply| Command::Undo(undo, None, Author::named("someone"), reply)).await.unwrap();
    assert!(undone.failed.is_empty(), "{undone:?}");
    assert!(!renamed.join("n").exists() && !renamed.join("b").exists(), "{undone:?}");
    assert!(!work.exists());
}

#[tokio::test]
async fn what_another_session_wrote_stays_in_a_renamed_project_too() {
    let command = bash("echo ready; while [ ! -e go ]; do sleep 0.02; done; echo m > made");
    let mut scene = Scene::auto([command, Answer::text("done")]).await;
    let work = scene.path("").canonicalize().unwrap();
    scene.repository().await;
    scene.prompt("go", When::Queue).await;
    scene.shows("ready").await;
    fs::write(work.join("theirs"), "other\n").unwrap();
    scene.env.workspaces.writers().seen_by("session other").left(&work.join("theirs"), Some(b"other\n"));
    fs::write(work.join("go"), "").unwrap();
    scene.ends(1).await;
    let renamed = work.with_file_name("work2");
    fs::rename(&work, &renamed).unwrap();
    move_to(&scene, &renamed).await.unwrap();
    let undo = session::Undo { session: scene.id.clone(), force: true, ..session::Undo::default() };
    let undone = scene.send(|reply| Command::Undo(undo, None, Author::named("someone"), reply)).await.unwrap();
    assert!(undone.failed.is_empty(), "{undone:?}");
    assert_eq!(["theirs", "made"].map(|name| renamed.join(name).exists()), [true, false], "{undone:?}");
    // And back again: the checkpoints go along.
    fs::rename(&renamed, &work).unwrap();
    move_to(&scene, &work).await.unwrap();
    let redo = session::Redo { session: scene.id.clone(), force: true, ..session::Redo::default() };
    scene.send(|reply| Command::Redo(redo, None, Author::named("someone"), reply)).await.unwrap();
    let diff = linger_protocol::checkpoint::Diff { session: scene.id.clone(), ..Default::default() };
    let found = scene.send(|reply| Command::Diff(diff, reply)).await.unwrap();
    let paths: Vec<_> = found.files.iter().map(|file| file.path.clone()).collect();
    assert_eq!(paths, [work.join("go"), work.join("made")], "{found:?}");
}

#[tokio::test]
async fn a_move_is_refused_while_something_works_there() {
    let mut scene = Scene::auto([Answer::text("begun").waits(&gate())]).await;
    let work = scene.path("").canonicalize().unwrap();
    scene.prompt("go", When::Queue).await;
    scene.shows("begun").await;
    let error = move_to(&scene, &work).await.unwrap_err();
    assert_eq!(error.message, "session scene is at work in its directory");
    scene.cancel().await;
    move_to(&scene, &work).await.unwrap();
    assert_eq!(scene.state().await.identity.cwd, work);
}
