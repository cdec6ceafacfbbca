//! A disk that is really full, or cannot be written: a small tmpfs under the data directory, where the system lets a test mount one.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use linger_tests::harness::{Client, Daemon, Setup};
use linger_tests::model::{Gate, ModelServer, Reply};
use serde_json::json;

use crate::{after_tool, last_words};

/// How large the disk is, in MiB: the database, its WAL, and some room.
const SIZE: u64 = 12;

/// What of a prompt is stored at once, in bytes: first what uses up soon the room that is left in the WAL, then what is less
/// than the answer which is to be refused.
const PROMPTS: [usize; 2] = [200 << 10, 20 << 10];

/// How much text the answer has before its call.
const TEXT: usize = 100_000;

/// A small disk; unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    /// Nothing where the system forbids it, which is said.
    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    fn mount(at: &Path) -> Option<Self> {
        let mut command = std::process::Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={SIZE}m,mode=700"), "linger-test"]).arg(at);
        let mounted = command.output().is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("not run: this system lets the test mount no tmpfs");
        }
        mounted.then(|| Self(at.to_path_buf()))
    }

    /// Lets nobody write to it any more, or everybody again.
    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    fn remount(&self, how: &str) {
        let status = std::process::Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&self.0).status();
        assert!(status.is_ok_and(|status| status.success()), "it cannot be mounted anew");
    }

    /// Takes all that is left of it, until the file is deleted; gives its path.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("ballast");
        let mut file = std::fs::File::create(&path).expect("a file");
        for size in [64 << 10, 4 << 10, 1] {
            let block = vec![b'x'; size];
            while file.write_all(&block).is_ok() {}
        }
        path
    }
}

impl Drop for Disk {
    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    fn drop(&mut self) {
        let unmounted = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} stays mounted", self.0.display());
        }
    }
}

/// Prompts until no more can be written: a WAL has room that no disk is asked for.
async fn use_up(client: &Client, others: &[String; 2]) {
    for (other, size) in others.iter().zip(PROMPTS) {
        let refused = loop {
            let prompt = json!({ "session": other, "content": "x".repeat(size), "when": "queue" });
            match client.request("session/prompt", prompt).await.unwrap() {
                Ok(_) => assert!(client.transcript().of("prompt_accepted").count() < 200, "it never fills"),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.code, -31016, "{refused}");
    }
}

/// Waits until no session has anything to do.
async fn all_answered(client: &Client) {
    linger_tests::harness::until("all that was said is answered", async || {
        let rows = client.call("session/list", json!({})).await;
        let at_rest = |row: &serde_json::Value| row["state"] == "idle" && row["queued"] == 0;
        rows.as_array().unwrap().iter().all(at_rest).then_some(())
    })
    .await;
}

#[tokio::test]
async fn on_a_full_disk_reading_goes_on_nothing_runs_and_with_space_everything_does() {
    let gate = Gate::new();
    let model = ModelServer::start();
    let daemon = Daemon::prepare(&model, Setup { mode: "auto", log: "info", ..Setup::default() });
    let Some(disk) = Disk::mount(daemon.dirs.database().parent().unwrap()) else { return };
    daemon.launch().await;
    let client = daemon.client().await;
    let session = client.session().await;
    let (held, effect) = (gate.clone(), daemon.effect("once"));
    model.otherwise(move |request| {
        // The step is repeated when there is space again.
        if after_tool(request) || last_words(request) != "go" {
            return Reply::text("done");
        }
        let call = json!({ "command": effect });
        Reply::text("first").gate(&held).and_text("y".repeat(TEXT)).and_tool("bash", call)
    });
    client.prompt(&session, "go").await;
    client.sees_text(&session, "first").await;
    let others = [client.session().await, client.session().await];

    let ballast = disk.fill();
    use_up(&client, &others).await;
    gate.open();
    assert!(
        linger_tests::harness::comes_true(linger_tests::TIMEOUT, || daemon
            .log()
            .contains(&format!("write failed session={session}"))),
        "the turn is told too"
    );
    assert!(!daemon.side_effects().exists(), "nothing runs whose start is not written down");

    // Reading, attaching and detaching go on.
    let reader = daemon.client().await;
    reader.attach(&session).await;
    reader.sees_text(&session, "first").await;
    reader.call("session/detach", json!({ "session": session })).await;
    assert!(reader.call("session/list", json!({})).await.as_array().unwrap().len() == 3);
    let status = reader.call("daemon/status", json!({})).await;

    std::fs::remove_file(ballast).unwrap();
    client.first(&session, "turn_finished").await;
    assert_eq!(std::fs::read_to_string(daemon.side_effects()).unwrap(), "once\n");
    linger_tests::harness::until("the other session takes prompts", async || {
        client.request("session/prompt", json!({ "session": others[0], "content": "hello" })).await.unwrap().ok()
    })
    .await;
    let same = client.call("daemon/status", json!({})).await;
    assert_eq!((&same["pid"], &same["restarts"]), (&status["pid"], &json!(0)), "without a restart");
    all_answered(&client).await;
    daemon.check(&[&client, &reader], &model);
}

#[tokio::test]
async fn a_daemon_starts_on_a_full_disk_and_what_is_stored_can_be_read() {
    let model = ModelServer::with([Reply::text("Good day")]);
    let daemon = Daemon::prepare(&model, Setup { log: "info", ..Setup::default() });
    let Some(disk) = Disk::mount(daemon.dirs.database().parent().unwrap()) else { return };
    daemon.launch().await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "hello").await;
    assert_eq!(daemon.terminate(), Some(0));
    let ballast = disk.fill();
    daemon.launch().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    back.first(&session, "turn_finished").await;
    let refused = back.request("session/prompt", json!({ "session": session, "content": "x".repeat(100_000) })).await;
    assert_eq!(refused.unwrap().unwrap_err().code, -31016);
    std::fs::remove_file(ballast).unwrap();
    model.push([Reply::text("Good day")]);
    linger_tests::harness::until("the session takes prompts", async || {
        back.request("session/prompt", json!({ "session": session, "content": "again" })).await.unwrap().ok()
    })
    .await;
    back.nth(&session, "turn_finished", 2).await;
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn on_a_full_disk_readers_are_told_why_nothing_comes_and_what_is_cancelled_stays_so() {
    let gate = Gate::new();
    let model = ModelServer::start();
    let daemon = Daemon::prepare(&model, Setup { log: "info", ..Setup::default() });
    let Some(disk) = Disk::mount(daemon.dirs.database().parent().unwrap()) else { return };
    daemon.launch().await;
    let client = daemon.client().await;
    let session = client.session().await;
    let held = gate.clone();
    model.otherwise(move |request| match last_words(request).as_str() {
        "go" => Reply::text("first").gate(&held).and_text("y".repeat(TEXT)),
        _ => Reply::text("done"),
    });
    client.prompt(&session, "go").await;
    client.sees_text(&session, "first").await;
    let others = [client.session().await, client.session().await];
    let ballast = disk.fill();
    use_up(&client, &others).await;
    gate.open();
    let told = client.first(&session, "notice").await;
    assert_eq!((told.str("code"), told.seq()), ("storage", None));
    assert!(told.str("text").contains("full"), "{told:?}");
    let late = daemon.client().await;
    late.attach(&session).await;
    assert_eq!(late.first(&session, "notice").await.str("code"), "storage");

    let asked = || model.requests().iter().filter(|request| last_words(request) == "go").count();
    let before = asked();
    let removed = client.request("session/remove", json!({ "session": session })).await.unwrap().unwrap_err();
    assert!(!removed.to_string().contains("cancel it first"), "{removed}");
    for _ in 0..2 {
        let cancelled = client.request("session/cancel", json!({ "session": session, "key": "c-1" })).await.unwrap();
        let error = cancelled.unwrap_err();
        assert_eq!(error.code, -31016, "{error}");
        assert!(error.to_string().contains("its turn has stopped"), "{error}");
    }
    // A disk that has a little room may take the first write of a retry and fail the second, which is a failure of its own.
    let later = || ["next_try_s=4", "next_try_s=8"].iter().any(|next| daemon.log().contains(next));
    assert!(linger_tests::harness::comes_true(linger_tests::TIMEOUT, later), "it is tried again, less and less often");
    let said =
        |words: &str| daemon.log().lines().filter(|line| line.contains(words) && line.contains(&session)).count();
    let failures = said("write failed") + said("still cannot be written");
    assert!((1..=5).contains(&failures), "{failures}");

    std::fs::remove_file(ballast).unwrap();
    assert_eq!(client.first(&session, "turn_finished").await.str("stop_reason"), "cancelled");
    assert_eq!(asked(), before, "no model is asked for what nobody wants");
    let again = json!({ "session": session, "key": "c-1" });
    client.call("session/cancel", again).await;
    assert_eq!(client.turn(&session, "hello").await.str("stop_reason"), "end_turn");
    all_answered(&client).await;
    daemon.check(&[&client, &late], &model);
}

#[tokio::test]
async fn a_daemon_starts_where_nothing_can_be_written_and_goes_on_once_it_can() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("first").gate(&gate).and_text("never")]);
    let daemon = Daemon::prepare(&model, Setup { log: "info", ..Setup::default() });
    let Some(disk) = Disk::mount(daemon.dirs.database().parent().unwrap()) else { return };
    daemon.launch().await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    client.sees_text(&session, "first").await;
    daemon.kill_all().await;
    disk.remount("ro");
    daemon.launch().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    back.sees_text(&session, "first").await;
    let prompt = json!({ "session": session, "content": "and then", "key": "then" });
    let refused = back.request("session/prompt", prompt.clone()).await.unwrap().unwrap_err();
    assert_eq!(refused.code, -31016, "{refused}");
    let status = back.call("daemon/status", json!({})).await;
    assert!(status["damage"][0]["text"].as_str().unwrap().contains("cannot be written"), "{status}");

    model.otherwise(|_| Reply::text("done"));
    disk.remount("rw");
    let again = linger_tests::harness::until("the daemon starts anew and takes the prompt", async || {
        let client = Client::connect(&daemon.dirs, "again").await.ok()?;
        client.request("session/attach", json!({ "session": session })).await?.ok()?;
        client.request("session/prompt", prompt.clone()).await?.ok()?;
        Some(client)
    })
    .await;
    again.nth(&session, "turn_finished", 2).await;
    let anew = again.call("daemon/status", json!({})).await;
    assert_eq!((&anew["restarts"], anew.get("damage")), (&json!(1), None), "{anew}");
    daemon.check(&[&client, &back, &again], &model);
    gate.open();
}
