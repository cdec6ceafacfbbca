//! Undo with the real programs: file names of any bytes, what is left to others, and events that an earlier version stored empty.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linger_tests::harness::Daemon;
use linger_tests::model::{ModelServer, Reply};
use lingerd::store::event_sum;
use rusqlite::Connection;
use serde_json::json;

use crate::damage::{damage, doctor, talk};

/// Runs a script in a directory, as its user would.
#[allow(clippy::disallowed_methods)] // It is no child of the daemon.
fn sh(dir: &Path, script: &str) {
    let done = Command::new("bash").args(["-ec", script]).current_dir(dir).stdout(Stdio::null()).status().unwrap();
    assert!(done.success(), "{script}");
}

/// Makes the workspace a repository with a commit.
fn repository(root: &Path) {
    sh(root, "echo one > a; git init -q -b main; git add .; git -c user.name=A -c user.email=a@b commit -q -m first");
}

fn name(root: &Path, bytes: &[u8]) -> PathBuf {
    root.join(OsStr::from_bytes(bytes))
}

#[tokio::test]
async fn a_name_that_is_no_text_breaks_no_session_and_is_undone() {
    let command = r"echo data > $'caf\xe9.txt'; mkdir $'d\xe9'; echo x > $'d\xe9/a\n\x1b[31m'; echo b >> a";
    let model = ModelServer::with([Reply::tool("bash", json!({ "command": command })), Reply::text("done")]);
    let daemon = Daemon::auto(&model).await;
    let root = daemon.dirs.workspace();
    repository(&root);
    let run = daemon.cli(&["run", "--name", "x", "go"]).run().await.exits(0);
    assert_eq!(run.stdout, "done\n");
    for args in [&["log", "x"][..], &["export", "x"], &["diff", "x"], &["log", "--json", "x"]] {
        let output = daemon.cli(args).run().await.exits(0);
        let shown = output.stdout + &output.stderr;
        assert!(!shown.contains('\u{1b}'), "{args:?}: {shown}");
        assert!(
            shown.contains("caf\\xe9.txt") || shown.contains("caf\u{fffd}e9.txt") || args[0] == "export",
            "{shown}"
        );
    }
    let undone = daemon.cli(&["undo", "--force", "x"]).run().await.exits(0);
    assert!(undone.stdout.contains("deleted   caf\\xe9.txt"), "{}", undone.stdout);
    assert!(!name(&root, b"caf\xe9.txt").exists() && !name(&root, b"d\xe9").exists());
    daemon.cli(&["redo", "x"]).run().await.exits(0);
    assert_eq!(std::fs::read(name(&root, b"caf\xe9.txt")).unwrap(), b"data\n");
    assert!(name(&root, b"d\xe9/a\n\x1b[31m").exists());
    daemon.kill_and_restart().await;
    daemon.cli(&["log", "x"]).run().await.exits(0);
    daemon.cli(&["doctor"]).run().await;
    daemon.check(&[], &model);
}

#[tokio::test]
async fn a_session_in_a_directory_whose_name_is_no_text_works_and_is_undone() {
    let command = r"echo data > made; rm a";
    let model = ModelServer::with([
        Reply::tool("bash", json!({ "command": command })),
        Reply::text("done"),
        Reply::text("again"),
    ]);
    let daemon = Daemon::auto(&model).await;
    let root = name(&daemon.dirs.workspace(), b"proj\xe9");
    std::fs::create_dir(&root).unwrap();
    repository(&root);
    daemon.cli(&["run", "--name", "x", "go"]).cwd(&root).run().await.exits(0);
    assert!(root.join("made").exists());
    let listed = daemon.cli(&["ls", "--json"]).cwd(&root).run().await.exits(0);
    assert!(listed.stdout.contains("proj\u{fffd}e9"), "{}", listed.stdout);
    daemon.cli(&["undo", "--force"]).cwd(&root).run().await.exits(0);
    assert!(!root.join("made").exists() && root.join("a").exists());
    daemon.kill_and_restart().await;
    daemon.cli(&["run", "-s", "x", "more"]).cwd(&root).run().await.exits(0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn what_may_be_of_an_editor_stays_without_a_terminal_and_can_be_named() {
    let command = "echo ready; sleep 1.1; while [ ! -e go ]; do sleep 0.02; done; echo m > made";
    let model = ModelServer::with([Reply::tool("bash", json!({ "command": command })), Reply::text("done")]);
    let daemon = Daemon::auto(&model).await;
    let root = daemon.dirs.workspace();
    repository(&root);
    let client = daemon.client().await;
    // With the variables of a terminal, by which `git` is found.
    let session = daemon.cli(&["run", "-d", "go"]).run().await.exits(0).stdout.trim().to_owned();
    client.attach(&session).await;
    client.first(&session, "tool_output_delta").await;
    std::fs::write(root.join("a"), "USER\n").unwrap();
    std::fs::write(root.join("new-by-user"), "USER\n").unwrap();
    // Another branch in another terminal.
    sh(
        &root,
        "git checkout -q -b other; echo branch > b; git add b; git -c user.name=A -c user.email=a@b commit -q -m b",
    );
    std::fs::write(root.join("go"), "").unwrap();
    client.first(&session, "turn_finished").await;
    let left = daemon.cli(&["undo", &session]).run().await.exits(1);
    assert!(left.stderr.contains("not undone") && left.stderr.contains("new-by-user"), "{}", left.stderr);
    assert!(left.stderr.contains("--file PATH"), "{}", left.stderr);
    assert_eq!(std::fs::read_to_string(root.join("a")).unwrap(), "USER\n");
    assert!(root.join("b").exists() && root.join("made").exists());
    let shown = daemon.cli(&["diff", "--stat", &session]).run().await.exits(0);
    assert!(shown.stdout.contains("perhaps changed by something else"), "{}", shown.stdout);
    daemon.cli(&["undo", "--file", "made", "--file", "go", &session]).run().await.exits(0);
    assert!(!root.join("made").exists() && root.join("new-by-user").exists());
    daemon.cli(&["undo", "--keep", &session]).run().await.exits(0);
    daemon.cli(&["undo", &session]).run().await.exits(1);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_rewind_of_files_ends_at_what_may_be_of_an_editor_also_where_a_later_turn_hides_it() {
    let model = ModelServer::with([
        Reply::tool("bash", json!({ "command": "sleep 1.1; echo x > f" })),
        Reply::text("one"),
        Reply::tool("bash", json!({ "command": "rm f" })),
        Reply::text("two"),
    ]);
    let daemon = Daemon::auto(&model).await;
    let root = daemon.dirs.workspace();
    repository(&root);
    daemon.cli(&["run", "--name", "x", "go"]).run().await.exits(0);
    daemon.cli(&["run", "-s", "x", "and back"]).run().await.exits(0);
    let left = daemon.cli(&["rewind", "x", "--to", "p1", "--files"]).run().await.exits(1);
    assert!(left.stderr.contains("f changed while a command ran"), "{}", left.stderr);
    assert_eq!(daemon.cli(&["ls", "--json"]).run().await.exits(0).json().len(), 1, "nothing went back");
    daemon.cli(&["rewind", "x", "--to", "p1", "--files", "--force"]).run().await.exits(0);
    assert!(!root.join("f").exists());
    daemon.check(&[], &model);
}

#[tokio::test]
async fn undo_in_the_terminal_lists_what_may_be_of_an_editor_and_asks_what_becomes_of_it() {
    let command = "echo ready; while [ ! -e go ]; do sleep 0.02; done; sleep 1.1; echo m > made; rm go";
    let model = ModelServer::with([Reply::tool("bash", json!({ "command": command })), Reply::text("done")]);
    let daemon = Daemon::auto(&model).await;
    let root = daemon.dirs.workspace();
    repository(&root);
    let mut terminal = daemon.pty(&[]);
    terminal.prompts().await;
    terminal.line("go");
    terminal.until_rows("the command runs", |rows| rows.iter().any(|row| row.trim_start().starts_with('│'))).await;
    std::fs::write(root.join("a"), "USER\n").unwrap();
    std::fs::write(root.join("go"), "").unwrap();
    terminal.until_rows("the turn ends", |rows| rows.iter().any(|row| row == "  done")).await;
    terminal.line("/undo");
    let is_list = |rows: &[String]| {
        let has = |start: &str| rows.iter().any(|row| row.starts_with(start));
        has("  a     changed 20") && has("  made  created 20") && has(" ▸certain  undo only")
    };
    terminal.until_rows("the files with their times, and what can become of them", is_list).await;
    terminal.line("");
    terminal.until_rows("nothing was certain", |rows| rows.iter().any(|row| row.contains("nothing"))).await;
    assert_eq!(std::fs::read_to_string(root.join("a")).unwrap(), "USER\n");
    assert!(root.join("made").exists());
    assert_eq!(terminal.leaves().await, 0);
    daemon.check(&[], &model);
}

#[tokio::test]
async fn an_event_that_was_stored_empty_locks_nobody_out_and_is_repaired_once() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = talk(&client, &model, "odd", 3).await;
    let seq = client.nth(&session, "turn_finished", 2).await.seq().unwrap() as i64;
    damage(&daemon, |path| {
        // As a version stored it that could not encode a file name.
        let sql = "UPDATE event SET data = '', kind = 'checkpoint', sum = ?3 WHERE session = ?1 AND seq = ?2";
        let row = rusqlite::params![session, seq, event_sum(session.as_bytes(), "")];
        assert_eq!(Connection::open(path).unwrap().execute(sql, row).unwrap(), 1);
    })
    .await;
    daemon.launch().await;
    for command in ["log", "export"] {
        let read = daemon.cli(&[command, "odd"]).run().await.exits(0);
        assert!(read.stdout.contains("odd-2"), "{command}: {}", read.stdout);
    }
    let back = daemon.client().await;
    back.attach(&session).await;
    let lost = back.first(&session, "lost").await;
    assert_eq!((lost.event["first"].as_i64(), lost.seq().map(|seq| seq as i64)), (Some(seq), Some(seq)));
    doctor(&daemon, &[], false, "is empty").await;
    daemon.cli(&["doctor", "--repair"]).run().await;
    let kinds = |path: &Path| -> Vec<String> {
        let database = Connection::open(path).unwrap();
        let mut kinds = database.prepare("SELECT kind || data FROM event WHERE session = ? ORDER BY seq").unwrap();
        kinds.query_map([&session], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let once = kinds(&daemon.dirs.database());
    assert_eq!(once.iter().filter(|row| row.starts_with("lost{")).count(), 1);
    doctor(&daemon, &[], true, "completely readable").await;
    daemon.cli(&["doctor", "--repair"]).run().await;
    assert_eq!(kinds(&daemon.dirs.database()), once);
    daemon.cli(&["daemon", "stop"]).run().await.exits(0);
    daemon.check(&[], &model);
}
