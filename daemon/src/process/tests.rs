//! Children as they are: real shells, real groups, real pipes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::{Instant, timeout};

use super::child::DEFAULT_PATH;
use super::spawn::{Children, Spawn};
use super::*;
use crate::sys::disk;

/// More than any of these takes; a hang fails the test.
const SOON: Duration = Duration::from_secs(20);

fn spawn(cwd: impl Into<PathBuf>, env: &BTreeMap<String, String>) -> Spawn {
    Spawn {
        cwd: cwd.into(),
        env: Arc::new(env.clone()),
        children: Children::default(),
        started_for: Default::default(),
    }
}

async fn start(script: &str) -> Process {
    spawn("/", &BTreeMap::new()).shell(script, Input::Nothing, Stderr::Merged).await.unwrap()
}

async fn all(process: &mut Process) -> String {
    let mut output = Vec::new();
    let mut buffer = vec![0; READ_SIZE];
    loop {
        match timeout(SOON, process.read(&mut buffer)).await.unwrap().unwrap() {
            0 => return String::from_utf8(output).unwrap(),
            read => output.extend_from_slice(&buffer[..read]),
        }
    }
}

async fn line(process: &mut Process) -> String {
    let mut buffer = vec![0; 1024];
    let read = timeout(SOON, process.read(&mut buffer)).await.unwrap().unwrap();
    String::from_utf8_lossy(&buffer[..read]).trim().to_owned()
}

/// Waits until all copies of the write end are closed: then no process that had it lives.
async fn gone(mut witness: pipe::Receiver) {
    let mut rest = Vec::new();
    timeout(SOON, witness.read_to_end(&mut rest)).await.unwrap().unwrap();
}

/// A FIFO in a new directory, opened for reading; whoever in `script` has it open as a writer is alive.
fn witness() -> (tempfile::TempDir, String, pipe::Receiver) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("witness");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let reader = pipe::OpenOptions::new().open_receiver(&path).unwrap();
    (dir, path.display().to_string(), reader)
}

#[tokio::test]
async fn output_and_errors_are_in_the_order_of_writing() {
    let mut process = start("for i in 1 2 3; do echo out $i; echo err $i >&2; done").await;
    assert_eq!(all(&mut process).await, "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n");
    assert!(process.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_child_has_exactly_the_given_environment() {
    let env = BTreeMap::from([("A".to_owned(), "1 2".to_owned()), ("TERM".to_owned(), "vt100".to_owned())]);
    let mut process = spawn("/", &env).program::<&str>("env", &[], Input::Nothing, Stderr::Merged).await.unwrap();
    let mut lines: Vec<_> = all(&mut process).await.lines().map(ToOwned::to_owned).collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            "A=1 2",
            &format!("LINGER_CALL={}", strays::of_daemon()),
            "NO_COLOR=1",
            &format!("PATH={DEFAULT_PATH}"),
            "TERM=vt100"
        ]
    );
    let spawn = Spawn { children: Children::of(Path::new("/db")), ..spawn("/", &env) };
    let mut process = spawn.program::<&str>("env", &[], Input::Nothing, Stderr::Merged).await.unwrap();
    assert!(all(&mut process).await.lines().any(|line| line == format!("{OWNER}=/db")), "whose it is");
}

#[tokio::test]
async fn a_program_is_looked_for_in_the_path_of_the_child() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("bin")).unwrap();
    std::os::unix::fs::symlink("/bin/echo", dir.path().join("bin/own-echo")).unwrap();
    std::fs::write(dir.path().join("own-echo"), "not a program").unwrap();
    let start = async |path: &str| {
        let env = BTreeMap::from([("PATH".to_owned(), path.to_owned())]);
        spawn(dir.path(), &env).program("own-echo", &["hi"], Input::Nothing, Stderr::Merged).await
    };
    let mut process = start(".:bin").await.unwrap();
    assert_eq!(all(&mut process).await, "hi\n");
    let missing = start("/nowhere").await.unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    assert_eq!(missing.to_string(), "own-echo not found in PATH (/nowhere)");
}

#[tokio::test]
async fn a_directory_of_the_path_that_does_not_answer_is_named_and_holds_nobody_up() {
    let path = "/dead/bin:/usr/bin:/bin";
    let (answer, hangs) = std::sync::mpsc::channel::<()>();
    let hangs = Arc::new(Mutex::new(hangs));
    // As many as may hang there do.
    for _ in 0..16 {
        let hangs = hangs.clone();
        let hang = move || hangs.lock().unwrap().recv().is_ok();
        assert_eq!(disk::probe(Path::new(path), Duration::from_millis(1), hang).await, None);
    }
    let env = BTreeMap::from([("PATH".to_owned(), path.to_owned())]);
    let spawn = spawn("/", &env);
    let shell = || spawn.shell("echo hi", Input::Nothing, Stderr::Merged);
    let late = shell().await.unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    let expect = "the file system of /dead/bin does not answer, and it is a directory of PATH";
    assert_eq!(late.to_string(), expect);
    drop(answer);
    let answers = async {
        while shell().await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, answers).await.unwrap();
}

#[cfg(target_os = "linux")] // `/proc`
#[tokio::test]
async fn a_child_has_no_input_and_its_pipe_only_where_it_belongs() {
    let mut process = start(
        "cat; cd /proc/$$/fd; pipe=$(readlink 1); for fd in *; do [ \"$(readlink $fd)\" = $pipe ] && echo $fd; done",
    )
    .await;
    assert_eq!(all(&mut process).await, "1\n2\n");
}

#[tokio::test]
async fn what_was_left_in_the_background_neither_holds_the_output_nor_lives_on() {
    let (_dir, path, reader) = witness();
    let mut process = start(&format!("sleep 1000 3>{path} & echo hi")).await;
    assert_eq!(all(&mut process).await, "hi\n");
    process.wait().await.unwrap();
    gone(reader).await;
}

#[tokio::test]
async fn a_background_flood_ends_soon_after_its_parent() {
    let (_dir, path, reader) = witness();
    let mut process = start(&format!("yes 3>{path} & exit 7")).await;
    all(&mut process).await;
    assert_eq!(process.wait().await.unwrap().code(), Some(7));
    gone(reader).await;
}

#[tokio::test]
async fn the_last_words_end_although_there_is_more_to_read() {
    let mut process = start("yes").await;
    line(&mut process).await;
    process.output.readable().await.unwrap();
    process.until = Some(Instant::now());
    assert_eq!(all(&mut process).await, "");
}

#[tokio::test]
async fn output_that_lags_behind_its_shell_is_kept() {
    let mut process = start("(sleep 0.05; echo late) & true").await;
    assert_eq!(all(&mut process).await, "late\n");
}

#[tokio::test]
async fn dropping_kills_the_whole_group_and_reaps_the_child() {
    let (_dir, path, reader) = witness();
    let mut process = start(&format!("exec 3>{path}; (sleep 1000 & sleep 1000) & echo ready; sleep 1000")).await;
    assert_eq!(line(&mut process).await, "ready");
    let pid = process.group.group.unwrap();
    drop(process);
    gone(reader).await;
    let reaped = async {
        while rustix::process::test_kill_process(pid).is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, reaped).await.unwrap();
}

#[tokio::test]
async fn ending_lets_a_child_clean_up() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bye");
    let mut process =
        start(&format!("trap 'echo bye >{}; exit' TERM; echo ready; while :; do sleep 0.01; done", file.display()))
            .await;
    assert_eq!(line(&mut process).await, "ready");
    process.end().await;
    assert_eq!(std::fs::read_to_string(file).unwrap(), "bye\n");
}

#[tokio::test]
async fn ending_kills_what_ignores_the_request() {
    let (_dir, path, reader) = witness();
    let mut process =
        start(&format!("exec 3>{path}; trap '' TERM; (trap '' TERM; sleep 1000) & echo ready; sleep 1000; sleep 1000"))
            .await;
    assert_eq!(line(&mut process).await, "ready");
    timeout(SOON, process.end()).await.unwrap();
    gone(reader).await;
}

#[tokio::test]
async fn a_child_that_closes_its_output_is_still_waited_for() {
    let mut process = start("exec >&- 2>&-; sleep 0.05; exit 3").await;
    assert_eq!(all(&mut process).await, "");
    assert_eq!(process.wait().await.unwrap().code(), Some(3));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_child_begins_with_a_limit_of_processes_and_so_does_what_it_starts() {
    // Not while another test starts a child.
    let nproc = || {
        let _none = running::lock();
        rustix::process::getrlimit(rustix::process::Resource::Nproc)
    };
    let own = nproc();
    let limits = "awk '/^Max processes/ { print $3; print $4 }' /proc/self/limits";
    for round in 0..50 {
        // The first thing that it does, however late the daemon comes to look at it.
        let mut process = start("ulimit -Su; setsid bash -c 'ulimit -Su'").await;
        let text = all(&mut process).await;
        let numbers: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        assert!(numbers.len() == 2 && numbers.iter().all(|limit| (4096..65_536).contains(limit)), "{round}: {text}");
    }
    // That it cannot be raised is set from outside, at once.
    let hard = own.maximum.map_or("unlimited".to_owned(), |own| own.to_string());
    let script = format!("while [ $(ulimit -Hu) = {hard} ]; do sleep 0.01; done; setsid {limits}");
    let mut process = start(&script).await;
    let text = all(&mut process).await;
    let numbers: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    assert!(numbers.len() == 2 && numbers[0] <= numbers[1] && numbers[1] < 65_536, "{text}");
    assert_eq!(nproc(), own, "the daemon has its own again");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_child_is_ended_before_the_daemon_when_memory_runs_out() {
    let own: i32 = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
    let more = (own + 300).min(1000);
    // Set from outside, at once.
    let script = format!(
        "until [ $(cat /proc/$$/oom_score_adj) = {more} ]; do sleep 0.01; done; setsid cat /proc/self/oom_score_adj"
    );
    let mut process = start(&script).await;
    assert_eq!(all(&mut process).await.trim(), more.to_string());
    assert_eq!(std::fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim(), own.to_string());
}
