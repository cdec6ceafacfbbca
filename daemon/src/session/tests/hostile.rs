//! Hostile arguments for every file tool: each call ends, with a result that is bounded, and nothing outside of the workspace is
//! read or written.

use linger_protocol::event::ToolFinished;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use super::*;

/// The most that a result may have, in bytes: what `read` gives, and a word with it.
const RESULT: usize = 64 << 10;

/// What no result may have.
const SECRET: &str = "the secret of another directory";

/// The calls of every file tool for one path.
fn calls(path: &str) -> Answer {
    let read = Answer::call("read", json!({ "path": path }));
    read.calls("read", json!({ "path": path, "offset": u64::MAX, "limit": u64::MAX }))
        .calls("ls", json!({ "path": path }))
        .calls("glob", json!({ "path": path, "pattern": "**" }))
        .calls("grep", json!({ "path": path, "pattern": "secret", "hidden": true }))
        .calls("grep", json!({ "path": path, "pattern": "(?s).*", "multiline": true }))
        .calls("edit", json!({ "path": path, "old": "secret", "new": "stolen" }))
        .calls("write", json!({ "path": path, "content": "stolen" }))
}

/// Whether a question is a permission; the others ask whether to go on after so many failures.
fn is_permission(body: &EventBody) -> Option<bool> {
    match body {
        EventBody::PermissionRequested(_) => Some(true),
        EventBody::QuestionAsked { .. } => Some(false),
        _ => None,
    }
}

#[tokio::test]
async fn every_file_tool_takes_hostile_paths_with_a_bounded_result_and_touches_nothing_outside() {
    let outside = tempfile::tempdir().unwrap();
    let canary = outside.path().canonicalize().unwrap().join("canary");
    std::fs::write(&canary, SECRET).unwrap();
    let absolute = canary.to_string_lossy().into_owned();
    let up = format!("{}{absolute}", "../".repeat(40));
    let long = "x/".repeat(3000);
    let name = "n".repeat(300);
    let paths = [
        absolute.as_str(),
        up.as_str(),
        "link-file",
        "link-dir/canary",
        "link-dir",
        "link-dir/new/file",
        "dangling",
        "loop",
        "loop/x",
        "fifo",
        "/proc/self/mem",
        "/proc/self/environ",
        "/proc/self/fd/0",
        "/proc/self/root/etc/passwd",
        "/dev/zero",
        "/dev/full",
        "huge",
        "sparse",
        "binary",
        "dir",
        "file/x",
        "odd",
        ".",
        "~",
        "",
        "a\0b",
        long.as_str(),
        name.as_str(),
    ];
    let answers = paths.iter().map(|path| calls(path)).chain([Answer::text("done")]);
    let mut scene = Scene::with("max_steps = 100", "mock/m", Mode::Edit, answers).await;
    let at = |name: &str| scene.path(name);
    symlink(&canary, at("link-file")).unwrap();
    symlink(outside.path(), at("link-dir")).unwrap();
    symlink(outside.path().join("not-there"), at("dangling")).unwrap();
    symlink("loop", at("loop")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    std::fs::write(at("huge"), vec![b'a'; 17 << 20]).unwrap();
    std::fs::File::create(at("sparse")).unwrap().set_len(10 << 30).unwrap();
    std::fs::write(at("binary"), b"\x7fELF\0\0").unwrap();
    std::fs::write(at("file"), "x").unwrap();
    std::fs::create_dir(at("dir")).unwrap();
    std::fs::create_dir(at("odd")).unwrap();
    std::fs::write(at("odd").join(OsStr::from_bytes(b"\xff\n\x1b[2J")), "secret\n").unwrap();
    scene.prompt("go", When::Queue).await;
    // What leaves the workspace asks, and is refused.
    let mut answered = 0;
    while scene.count("turn_finished").await == 0 {
        let asked: Vec<bool> = scene.events().await.iter().filter_map(|event| is_permission(&event.body)).collect();
        for permission in asked.iter().skip(answered) {
            answered += 1;
            let answer = if *permission { Decision::RejectOnce.name() } else { "go_on" };
            scene.choose(answered, answer, None).await.unwrap();
        }
        if scene.count("turn_finished").await == 0 {
            timeout(LONG, scene.changed.changed()).await.expect("every call ends").unwrap();
        }
    }
    let results: Vec<(bool, String)> = scene
        .events()
        .await
        .into_iter()
        .filter_map(|event| match event.body {
            EventBody::ToolFinished(ToolFinished { content, is_error, .. }) => Some((is_error, text_of(&content))),
            _ => None,
        })
        .collect();
    assert_eq!(results.len(), 8 * paths.len(), "{}", scene.transcript().await);
    for ((_, text), n) in results.iter().zip(0..) {
        let path = paths[n / 8].chars().take(40).collect::<String>();
        assert!(text.len() <= RESULT, "{path}: a result of {} bytes", text.len());
        assert!(!text.contains(SECRET), "{path}: {text}");
        assert!(!text.contains('\u{1b}'), "{path}: {text:?}");
    }
    assert_eq!(std::fs::read_to_string(&canary).unwrap(), SECRET);
    let left: Vec<_> = std::fs::read_dir(outside.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["canary"], "something was made outside");
    assert_eq!(std::fs::metadata(scene.path("sparse")).unwrap().len(), 10 << 30);
    assert_eq!(std::fs::read(scene.path("huge")).unwrap().len(), 17 << 20);
}
