//! Lossless replay: detach anywhere, attach again from anywhere, and have every byte.

use linger_tests::Rng;
use linger_tests::check::{Entry, Transcript, assemble};
use linger_tests::harness::{Client, Daemon, Setup, comes_true};
use linger_tests::model::{Gate, ModelServer, Reply};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{FileFailurePersistence, TestRunner};
use serde_json::json;

pub(crate) use crate::shared::replay::read_on;

/// How many schedules of a client that comes and goes are tried.
const CASES: u32 = 32;

/// How many places a stream is cut in after a restart.
const CUTS: usize = 25;

/// Everything after the entry at `cut` is forgotten, as if the link had been lost there.
fn cut_at(transcript: &Transcript, cut: usize) -> Transcript {
    Transcript(transcript.0[..cut].to_vec())
}

/// How a client leaves that comes back.
#[derive(Clone, Copy, Debug)]
enum Leave {
    /// The connection ends.
    HangUp,
    /// It detaches, and attaches again over the same connection.
    Detach,
    /// It attaches again without having left.
    Stay,
}

/// A client that was cut off somewhere, and comes and goes before it reads to the end.
#[derive(Clone, Debug)]
struct Schedule {
    /// Where what it had read ends.
    cut: Index,
    /// What it does while the model still speaks.
    live: Vec<Leave>,
    /// And when the turn is over.
    after: Vec<Leave>,
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let leave = || prop::sample::select(vec![Leave::HangUp, Leave::Detach, Leave::Stay]);
    let leaves = move || prop::collection::vec(leave(), 0..4);
    (any::<Index>(), leaves(), leaves()).prop_map(|(cut, live, after)| Schedule { cut, live, after })
}

/// Attaches where the client is, waits until it has all there is, and leaves; gives the client that goes on.
async fn come_and_go(daemon: &Daemon, session: &str, client: Client, leave: Leave) -> Client {
    let caught_up = client.transcript().of("caught_up").count();
    attach_on(&client, session).await;
    client.nth(session, "caught_up", caught_up + 1).await;
    match leave {
        Leave::HangUp => {
            let next = daemon.client().await;
            next.continues(client.hang_up());
            return next;
        }
        Leave::Detach => drop(client.call("session/detach", json!({ "session": session })).await),
        Leave::Stay => {}
    }
    client
}

async fn attach_on(client: &Client, session: &str) {
    match client.transcript().cursor(session) {
        Some(cursor) => client.attach_after(session, cursor).await,
        None => client.attach(session).await,
    }
}

/// One turn that stops in the middle of a message until the first half of the schedule is done.
async fn keeps(daemon: &Daemon, model: &ModelServer, Schedule { cut, live, after }: Schedule) -> (String, Transcript) {
    let text = "Grüße aus der Zukunft — ein Satz mit 🦀 und mehr. ".repeat(4);
    let gate = Gate::new();
    model.push([
        Reply::new()
            .text_in_deltas(&text, 3)
            .and_tool("bash", json!({ "command": "for i in 1 2 3 4 5; do echo line $i; done" })),
        Reply::new()
            .thinking("hm, so be it", "sig")
            .text_in_deltas(&text, 2)
            .gate(&gate)
            .text_in_deltas(&text, 5)
            .chunks_of(11),
    ]);
    let stayed = daemon.client().await;
    let session = stayed.create_with(json!({ "model": "claude/m" })).await;
    stayed.attach(&session).await;
    // Sessions that begin alike would be one to the model server.
    stayed.prompt(&session, &format!("go {session}")).await;
    gate.reached().await;
    let so_far = stayed.transcript();
    let first = so_far.0.iter().position(|entry| matches!(entry, Entry::Event(_))).unwrap_or(so_far.0.len());
    let mut client = daemon.client().await;
    client.continues(cut_at(&so_far, first + cut.index(so_far.0.len() - first + 1)));
    for leave in live {
        client = come_and_go(daemon, &session, client, leave).await;
    }
    gate.open();
    stayed.first(&session, "turn_finished").await;
    for leave in after {
        client = come_and_go(daemon, &session, client, leave).await;
    }
    attach_on(&client, &session).await;
    client.first(&session, "turn_finished").await;
    let whole = stayed.transcript();
    same(&session, &whole, &client.transcript());
    (session, whole)
}

#[track_caller]
fn same(session: &str, whole: &Transcript, got: &Transcript) {
    let (want, wrong) = assemble(whole, session);
    assert_eq!(wrong, Vec::<String>::new());
    let (got, wrong) = assemble(got, session);
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(got.events, want.events);
    assert_eq!(got.text, want.text);
}

#[test]
fn a_client_that_hangs_up_anywhere_and_reads_on_has_the_bytes_of_one_that_stayed() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let model = ModelServer::start();
    let daemon = runtime.block_on(Daemon::auto(&model));
    let last = std::cell::RefCell::default();
    // What was found once is tried first from then on.
    let regressions = concat!(env!("CARGO_MANIFEST_DIR"), "/it/replay.proptest-regressions");
    let failure_persistence = Some(Box::new(FileFailurePersistence::Direct(regressions)) as _);
    let mut runner = TestRunner::new(ProptestConfig { cases: CASES, failure_persistence, ..ProptestConfig::default() });
    let ran = runner.run(&schedule(), |schedule| {
        *last.borrow_mut() = runtime.block_on(keeps(&daemon, &model, schedule));
        Ok(())
    });
    ran.unwrap_or_else(|failed| panic!("{failed}"));
    let (session, whole) = last.into_inner();
    runtime.block_on(async {
        daemon.kill_and_restart().await;
        let mut rng = Rng(7);
        for _ in 0..CUTS {
            let before = cut_at(&whole, rng.below(whole.0.len() + 1));
            same(&session, &whole, &read_on(&daemon, &session, before, 1).await.transcript());
        }
        daemon.check(&[], &model);
    });
}

#[tokio::test]
async fn a_session_that_is_unloaded_after_each_command_is_the_same_session() {
    let model = ModelServer::scripted(|_| Reply::text("Good day"));
    let setup = Setup { top: "idle_unload_s = 0", log: "debug", ..Setup::default() };
    let daemon = Daemon::start_with(&model, setup).await;
    let client = daemon.client().await;
    let session = client.create().await;
    for n in 1..=5u64 {
        // Attached while the turn runs, gone in between: then nobody watches, and the actor goes.
        let watcher = daemon.client().await;
        watcher.attach(&session).await;
        watcher.prompt(&session, "hello").await;
        watcher.wait("the turn", |seen| (seen.of("turn_finished").count() as u64 == n).then_some(())).await;
        drop(watcher);
        let log = || std::fs::read_to_string(daemon.dirs.log()).unwrap_or_default().matches(" unloaded").count() as u64;
        assert!(comes_true(linger_tests::TIMEOUT, || log() >= n), "unloaded {} times", log());
    }
    client.attach(&session).await;
    client.wait("all of it", |seen| (seen.of("turn_finished").count() == 5).then_some(())).await;
    daemon.check(&[&client], &model);
}
