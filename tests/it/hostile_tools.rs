//! Commands that flood or multiply, in a real daemon: bounded memory and disk, a result, and nothing left behind (I8, I10).
//!
//! The hostile arguments of each tool are in the daemon's own tests. `LINGER_OUTPUT_GB=10` makes the flood longer.

use std::path::Path;
use std::time::Duration;

use linger_tests::harness::{Daemon, process, until};
use linger_tests::model::{ModelServer, Reply};
use serde_json::json;

/// What the daemon may take more than before, in KiB: buffers of the pipe and of the whole output.
const GROWTH: u64 = 48 << 10;

/// The most that is kept of one output, in bytes (`FILE_MAX` of the tools).
const KEPT: u64 = 1 << 30;

/// What else lies in the data directory: the database and its write-ahead log.
const BESIDE: u64 = 32 << 20;

/// Gigabytes of output: by default somewhat more than is kept of one.
fn gigabytes() -> f64 {
    std::env::var("LINGER_OUTPUT_GB").ok().and_then(|gb| gb.parse().ok()).unwrap_or(1.2)
}

/// The bytes of all files below a directory.
fn size(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            size(&entry.path())
        } else {
            entry.metadata().map_or(0, |metadata| metadata.len())
        }
    };
    entries.map(of).sum()
}

/// A call with the longest time that there is: how fast a machine is must not matter.
fn patient(command: &str) -> Reply {
    Reply::tool("bash", json!({ "command": command, "timeout_s": 600 }))
}

#[tokio::test]
async fn output_of_gigabytes_takes_bounded_memory_and_disk_and_has_a_result() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let bytes = (gigabytes() * 1e9) as u64;
    let flood = format!("head -c {bytes} /dev/zero | tr '\\0' x; echo; echo the end");
    model.push([Reply::text("hi"), patient(&flood), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "hello").await;
    let pid = daemon.pid().await;
    let before = process::memory(pid).0;
    client.prompt(&session, "flood").await;
    // As long as it takes: it is over when the call is.
    while client.look(|seen| seen.of("turn_finished").count()) < 2 {
        let grown = process::memory(pid).0.saturating_sub(before);
        assert!(grown < GROWTH, "{grown} KiB more while it floods");
        assert!(!client.has_hung_up(), "the daemon is gone");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let finished = client.first(&session, "tool_finished").await;
    let text = finished.event["content"].to_string();
    assert!(text.contains("the end") && text.len() < 64 << 10, "{} bytes", text.len());
    assert_eq!(finished.str("outcome"), "ran");
    let data = daemon.dirs.database();
    let kept = size(data.parent().unwrap());
    assert!(kept <= KEPT + BESIDE, "{kept} bytes on disk of {bytes}");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_storm_of_processes_that_leave_their_group_is_over_with_its_call() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    // Each process starts two more, each in a session of its own, to the depth of seven; all ignore what asks them to end, and hold
    // the pipe.
    let script = "echo here >> count\ntrap '' TERM HUP INT\n\
                  [ $1 -gt 0 ] && for n in 1 2; do setsid sh storm.sh $(($1 - 1)) & done\nsleep 1000\n";
    std::fs::write(daemon.workspace().join("storm.sh"), script).unwrap();
    let storm =
        "touch count; (setsid sh storm.sh 6 &); until [ $(wc -l < count) -ge 127 ]; do sleep 0.05; done; echo started";
    model.push([patient(storm), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "storm").await;
    let finished = client.first(&session, "tool_finished").await;
    assert!(finished.event["content"].to_string().contains("started"), "{}", finished.raw);
    client.first(&session, "turn_finished").await;
    let pid = daemon.pid().await;
    until("nothing of it is left", async || process::descendants(pid).is_empty().then_some(())).await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn what_a_command_leaves_behind_is_named_to_the_model_and_its_progress_comes_as_the_last_frame() {
    let model = ModelServer::start();
    let daemon = Daemon::auto(&model).await;
    let command = "setsid -f sleep 671 >/dev/null 2>&1; (env -i setsid sleep 672 >/dev/null 2>&1 &); sleep 673 & \
                   for n in $(seq 2000); do printf '\\rprogress %d of 2000' $n; done; printf '\\n\\033[1mready\\033[0m\\n'";
    model.push([patient(command), patient("echo quiet"), Reply::text("done")]);
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "start it").await;
    let finished: Vec<String> = client.look(|seen| {
        let of = seen.of("tool_finished");
        of.map(|event| event.event["content"].to_string()).collect()
    });
    let first = &finished[0];
    assert!(
        first.contains("progress 2000 of 2000\\nready\\n") && !first.contains("1999") && !first.contains("u001b"),
        "{first}"
    );
    assert!(first.contains("[3 processes that it left behind were ended: "), "{first}");
    assert!(["671", "672", "673"].iter().all(|name| first.contains(&format!("sleep {name} ("))), "{first}");
    assert!(!finished[1].contains("left behind"), "{}", finished[1]);
    let pid = daemon.pid().await;
    until("nothing of it is left", async || process::descendants(pid).is_empty().then_some(())).await;
    daemon.check(&[&client], &model);
}
