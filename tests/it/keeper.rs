//! The keeper: restarts the daemon proper, ends what it left behind, passes signals on, gives up when it must.

use std::time::{Duration, Instant};

use linger_tests::TIMEOUT;
use linger_tests::harness::{Client, Daemon, Pty, Setup, comes_true, process, until};
use linger_tests::model::{Gate, ModelServer, Reply};
use rustix::process::{Flock, FlockType, Signal};
use serde_json::json;

use crate::bash;

/// Descriptors that are opened when they are first needed, and stay: the connection of the checkpoint, with its files.
const LAZY: usize = 6;

#[tokio::test]
async fn after_kill_9_with_nobody_attached_the_turn_goes_on_by_itself() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate), Reply::text("Good day")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "hello").await;
    client.sees_text(&session, "Good d").await;
    let (old, seen) = (daemon.pid().await, client.hang_up());
    process::signal(old, Signal::KILL);
    let killed = Instant::now();
    model.wait_requests(2).await;
    println!("the step was asked for again {:?} after kill -9", killed.elapsed());
    let late = daemon.client().await;
    late.continues(seen);
    late.attach(&session).await;
    late.first(&session, "turn_finished").await;
    let status = late.call("daemon/status", json!({})).await;
    assert_eq!((&status["restarts"], status["keeper"].as_u64()), (&json!(1), Some(u64::from(daemon.keeper()))));
    assert_ne!(status["pid"], old);
    assert!(daemon.log().contains(&format!("[keeper] the daemon (process {old}) was killed by signal 9")));
    daemon.check(&[&late], &model);
}

/// `/proc/locks`, where clients look otherwise, makes each of them wait for milliseconds.
#[tokio::test]
async fn the_system_names_the_keeper_as_holder_of_the_lock_in_every_life_of_the_daemon() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let lock = std::fs::File::open(daemon.dirs.database().with_file_name("lingerd.lock")).unwrap();
    let holder = || {
        let holder = rustix::process::fcntl_getlk(&lock, &Flock::from(FlockType::WriteLock)).unwrap();
        holder.map(|lock| u32::try_from(lock.pid.unwrap().as_raw_pid()).unwrap())
    };
    assert_eq!(holder(), Some(daemon.keeper()));
    daemon.kill_daemon().await;
    daemon.client().await.call("daemon/status", json!({})).await;
    assert_eq!(holder(), Some(daemon.keeper()), "after a restart");
    let old = daemon.pid().await;
    daemon.kill_keeper().await;
    until("the old daemon is the new keeper", async || (holder() == Some(old)).then_some(())).await;
    process::signal(old, Signal::TERM);
    assert!(comes_true(TIMEOUT, || process::of_directory(daemon.dirs.root()).is_empty()));
    assert_eq!(holder(), None, "no daemon");
}

#[tokio::test]
async fn a_daemon_whose_program_was_deleted_is_restarted_nevertheless() {
    let model = ModelServer::with([Reply::text("Good day")]);
    let daemon = Daemon::start_with(&model, Setup { copied: true, ..Setup::default() }).await;
    std::fs::remove_file(daemon.program_copy()).unwrap();
    daemon.kill_daemon().await;
    let client = daemon.client().await;
    let session = client.session().await;
    assert_eq!(client.turn(&session, "hello").await.str("stop_reason"), "end_turn");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn what_the_dead_daemon_left_behind_is_ended_even_if_it_forked_away_without_its_mark() {
    // `env -i` drops the variable by which a start finds what is left: only the family tells.
    let model = ModelServer::with([bash("(env -i setsid sleep 641 &); sleep 642"), Reply::text("done")]);
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    client.first(&session, "tool_started").await;
    let keeper = daemon.keeper();
    let sleeping = || {
        let family = process::descendants(keeper);
        family.into_iter().filter(|child| child.command.starts_with("sleep 64")).collect::<Vec<_>>()
    };
    assert!(comes_true(TIMEOUT, || sleeping().len() == 2), "{:?}", sleeping());
    let asleep = sleeping();
    daemon.kill_daemon().await;
    assert!(!asleep.iter().any(process::is_alive), "the next daemon serves, and something is left: {asleep:?}");
    let back = daemon.client().await;
    back.attach(&session).await;
    back.first(&session, "turn_finished").await;
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn a_daemon_that_loses_its_keeper_ends_in_good_order_and_becomes_one() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate), Reply::text("Good day")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "hello").await;
    client.sees_text(&session, "Good d").await;
    let old = daemon.pid().await;
    daemon.kill_keeper().await;
    model.wait_requests(2).await;
    let back = daemon.client().await;
    back.attach(&session).await;
    back.first(&session, "turn_finished").await;
    let codes: Vec<_> = back.transcript().of("notice").map(|notice| notice.str("code").to_owned()).collect();
    assert_eq!(codes, ["paused", "resumed"]);
    let status = back.call("daemon/status", json!({})).await;
    assert_eq!(status["keeper"], old, "the old daemon is the new keeper");
    process::signal(old, Signal::TERM);
    assert!(comes_true(TIMEOUT, || process::of_directory(daemon.dirs.root()).is_empty()), "SIGTERM is passed on");
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn a_daemon_that_cannot_live_is_given_up_with_the_reason_in_the_log() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let keeper = daemon.keeper();
    let mut last = 0;
    for life in 1..=11 {
        let pid = until("the next life", async || {
            let children = process::descendants(keeper);
            let daemon = children.iter().find(|child| child.command.contains("--kept="))?;
            (daemon.pid != last).then_some(daemon.pid)
        })
        .await;
        process::signal(pid, Signal::ABORT);
        last = pid;
        println!("life {life}: process {pid}");
    }
    assert_eq!(daemon.ended(), Some(1));
    let log = daemon.log();
    assert!(log.contains("was killed by signal 6, for the 11th time in a row: giving up"), "{log}");
    daemon.launch().await;
    daemon.client().await.call("daemon/status", json!({})).await;
}

#[tokio::test]
async fn a_keeper_that_cannot_start_the_next_daemon_now_tries_again_and_ends_what_is_left_first() {
    let model = ModelServer::with([bash("(setsid sleep 651 &); sleep 652"), Reply::text("done")]);
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    client.first(&session, "tool_started").await;
    let (keeper, pid) = (daemon.keeper(), daemon.pid().await);
    let asleep = || {
        let family = process::descendants(keeper);
        family.into_iter().filter(|child| child.command.starts_with("sleep 65")).collect::<Vec<_>>()
    };
    assert!(comes_true(TIMEOUT, || asleep().len() == 2), "the tool runs");
    let left = asleep();
    let Ok(open) = std::fs::read_dir(format!("/proc/{keeper}/fd")) else {
        eprintln!("not tried: which files a keeper has open, only root is told");
        return;
    };
    let open: Vec<u64> = open.flatten().map(|fd| fd.file_name().to_str().unwrap().parse().unwrap()).collect();
    // When the daemon's end of the link is gone, there is one to write the log with, and none for anything more.
    let usual = process::limit_files(keeper, (0..).find(|fd| !open.contains(fd)).unwrap());
    process::signal(pid, Signal::KILL);
    until("the keeper says that it failed", async || daemon.log().contains("cannot start the daemon").then_some(()))
        .await;
    process::limit_files(keeper, usual);
    let back = until("the next daemon", async || Client::connect(&daemon.dirs, "test").await.ok()).await;
    assert!(!left.iter().any(process::is_alive), "the next daemon serves, and something is left: {left:?}");
    assert_eq!(daemon.keeper(), keeper);
    back.attach(&session).await;
    back.first(&session, "turn_finished").await;
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn the_keeper_is_small_and_holds_neither_socket_nor_database() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let fds = std::fs::read_dir(format!("/proc/{}/fd", daemon.keeper()));
    if fds.is_err() {
        eprintln!("not looked at: which files a keeper has open, only root is told");
    }
    let open: Vec<String> = fds
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .map(|path| path.display().to_string())
        .collect();
    assert!(!open.iter().any(|path| path.contains("linger.db") || path.contains("lingerd.sock")), "{open:?}");
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.keeper())).unwrap().count();
    assert_eq!(threads, 1);
    daemon.pid().await;
    // Two thirds of it is what the loader changes in a program for tests; for one that is used a bench has the figure.
    let own = process::own_memory(daemon.keeper());
    assert!(own.is_none_or(|own| own < 4 << 10), "the keeper has {own:?} KiB of its own");
    // It hears that the daemon is ready, and sleeps again.
    let before = rests(daemon.keeper(), Duration::from_millis(500));
    daemon.client().await.call("session/list", json!({})).await;
    assert_eq!(process::wakeups(daemon.keeper()), before, "what clients do is nothing to the keeper");
}

#[tokio::test]
async fn a_daemon_with_nothing_to_do_does_not_wake() {
    let model = ModelServer::with([Reply::text("done")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let pid = daemon.pid().await;
    drop(client);
    // It gives back memory a second after the last client has gone; then 2.5 s without a wake-up are far more than any timer had.
    rests(pid, Duration::from_millis(2500));
}

/// Waits until a process does not wake for so long; how often it had until then.
fn rests(pid: u32, long: Duration) -> u64 {
    let (mut before, mut since) = (0, Instant::now());
    let sleeps = || {
        let now = process::wakeups(pid);
        if now != std::mem::replace(&mut before, now) {
            since = Instant::now();
        }
        since.elapsed() >= long
    };
    assert!(comes_true(TIMEOUT, sleeps), "process {pid} does not come to rest");
    before
}

#[tokio::test]
async fn a_tool_of_a_daemon_in_the_foreground_cannot_write_to_its_terminal_and_ctrl_c_ends_it() {
    let model = ModelServer::with([bash("echo from a tool > /dev/tty; echo rc=$?"), Reply::text("done")]);
    let daemon = Daemon::prepare(&model, Setup { mode: "auto", ..Setup::default() });
    let program = &linger_tests::harness::programs().daemon;
    let mut terminal = Pty::open(program, &daemon.env(true), &daemon.workspace(), &[]);
    terminal.shows("ready").await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let output = client.first(&session, "tool_finished").await.raw;
    assert!(output.contains("rc=1"), "{output}");
    terminal.keys("\x03");
    assert_eq!(terminal.exits().await, 0);
    assert!(!terminal.text().contains("from a tool"), "{}", terminal.text());
    assert_eq!(process::of_directory(daemon.dirs.root()), []);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_first_start_that_fails_says_why_once_and_is_not_tried_again() {
    let model = ModelServer::start();
    let env = vec![("LINGER_LOG".to_owned(), "loud".to_owned())];
    let daemon = Daemon::prepare(&model, Setup { env, ..Setup::default() });
    let output = daemon.cli(&["ls"]).run().await.exits(5);
    assert_eq!(output.stderr.matches("LINGER_LOG is 'loud'").count(), 1, "{output:?}");
    assert!(!daemon.log().contains("[keeper]"), "{}", daemon.log());
}

#[tokio::test]
async fn a_tool_that_ignores_sigterm_does_not_keep_the_daemon_from_ending() {
    let model = ModelServer::with([bash("trap '' TERM; while :; do sleep 644; done"), Reply::text("done")]);
    let daemon = Daemon::auto(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "go").await;
    client.first(&session, "tool_started").await;
    assert_eq!(daemon.terminate(), Some(0));
    assert_eq!(process::of_directory(daemon.dirs.root()), []);
    daemon.launch().await;
    let back = daemon.client().await;
    back.attach(&session).await;
    back.first(&session, "turn_finished").await;
    daemon.check(&[&client, &back], &model);
}

#[tokio::test]
async fn descriptors_threads_and_processes_return_to_where_they_were() {
    let model = ModelServer::start();
    model.otherwise(|request| {
        if crate::after_tool(request) { Reply::text("done") } else { bash("seq 20000; (sleep 0.01 &); true") }
    });
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", top: "idle_unload_s = 0", ..Setup::default() }).await;
    let pid = daemon.pid().await;
    let count = |what: &str| std::fs::read_dir(format!("/proc/{pid}/{what}")).map_or(0, Iterator::count);
    let round = async |sessions: usize| {
        let client = daemon.client().await;
        let mut all = Vec::new();
        for _ in 0..sessions {
            let session = client.session().await;
            client.prompt(&session, &format!("go, {session}")).await;
            all.push(session);
        }
        for session in &all {
            client.first(session, "turn_finished").await;
        }
        client
    };
    // What the first work opens for good, or for a while: connections to the model, threads for files, the one that moves a WAL
    // which got long.
    daemon.check(&[&round(60).await], &model);
    let rests = || (count("fd"), process::descendants(daemon.keeper()).len());
    let mut base = rests();
    assert!(comes_true(TIMEOUT, || {
        let now = rests();
        std::mem::replace(&mut base, now) == now && now.1 == 1
    }));
    daemon.check(&[&round(40).await], &model);
    assert!(comes_true(TIMEOUT, || rests().0 <= base.0 + LAZY && rests().1 <= base.1), "{base:?} became {:?}", rests());
    assert!(comes_true(TIMEOUT, || count("task") < 16), "{} threads", count("task"));
}

#[tokio::test]
async fn a_daemon_that_nobody_talks_to_takes_less_memory_than_one_at_work() {
    let model = ModelServer::with([bash("true"), Reply::text("done")]);
    let daemon = Daemon::auto(&model).await;
    let pid = daemon.pid().await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "go").await;
    let (at_work, _) = process::memory(pid);
    daemon.check(&[&client], &model);
    drop(client);
    let at_rest = || process::memory(pid).0;
    assert!(comes_true(TIMEOUT, || at_rest() < at_work * 3 / 4), "{at_work} KiB at work, {} KiB at rest", at_rest());
    // It works as before.
    let back = daemon.client().await;
    back.attach(&session).await;
    back.first(&session, "turn_finished").await;
}
