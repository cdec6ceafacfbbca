//! Lossless replay: detach anywhere, attach again from anywhere, and have every byte.

use linger_tests::Rng;
use linger_tests::check::{Entry, Transcript, assemble};
use linger_tests::harness::{Client, Daemon, Setup, comes_true};
use linger_tests::model::{Gate, ModelServer, Reply};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{FileFailurePersistence, TestRunner};
use serde_json::json;

use crate::{bash, story};

/// How many schedules of a client that comes and goes are tried.
const CASES: u32 = 32;

/// How many places a stream is cut in after a restart.
const CUTS: usize = 25;

#[tokio::test]
async fn a_plain_turn_is_seen_as_it_is_written_down() {
    let model = ModelServer::with([Reply::text("Good d").and_text("ay")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let finished = client.turn(&session, "hello").await;
    let seen = client.transcript();
    let want = ["prompt_accepted", "turn_started", "message", "message", "turn_finished"];
    assert_eq!(story(&seen, &session), want);
    assert_eq!(finished.str("stop_reason"), "end_turn");
    assert_eq!(finished.event["usage"]["input_tokens"], 10);
    assert_eq!(finished.event["steps"], 1);
    let accepted = seen.of("prompt_accepted").next().unwrap();
    assert_eq!(accepted.event["content"], json!([{ "type": "text", "text": "hello" }]));
    assert_eq!(accepted.str("when"), "queue");
    let messages: Vec<_> = seen.of("message").collect();
    assert_eq!(messages[0].str("role"), "user");
    assert_eq!(messages[0].str("prompt"), accepted.str("prompt"));
    assert_eq!(messages[1].str("role"), "assistant");
    assert_eq!(messages[1].event["content"], json!([{ "type": "text", "text": "Good day" }]));
    assert!(messages[1].event.get("interrupted").is_none());
    let created = seen.of("session_created").next().unwrap();
    assert_eq!(created.str("model"), "work/m");
    assert_eq!(created.seq(), Some(1));
    let (all, _) = assemble(&seen, &session);
    assert_eq!(all.message(messages[1].str("message")), "Good day");
    assert_eq!(seen.of("caught_up").count(), 1);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn caught_up_comes_once_between_replay_and_live() {
    let model = ModelServer::with([Reply::text("one"), Reply::text("two")]);
    let daemon = Daemon::start(&model).await;
    let first = daemon.client().await;
    let session = first.session().await;
    first.turn(&session, "hello").await;
    let late = daemon.client().await;
    late.attach(&session).await;
    late.wait("caught_up", |seen| seen.of("caught_up").next().cloned()).await;
    late.turn(&session, "again").await;
    let kinds: Vec<String> = late.transcript().events().map(|seen| seen.kind().to_owned()).collect();
    let at = kinds.iter().position(|kind| kind == "caught_up").unwrap();
    assert_eq!(kinds[..at].iter().filter(|kind| *kind == "turn_finished").count(), 1);
    assert_eq!(kinds[at..].iter().filter(|kind| *kind == "turn_finished").count(), 1);
    assert_eq!(late.transcript().of("caught_up").count(), 1);
    daemon.check(&[&first, &late], &model);
}

/// Everything after the entry at `cut` is forgotten, as if the link had been lost there.
fn cut_at(transcript: &Transcript, cut: usize) -> Transcript {
    Transcript(transcript.0[..cut].to_vec())
}

/// Attaches a new client where `before` ended, and waits until it has seen the end of the turn.
async fn read_on(daemon: &Daemon, session: &str, before: Transcript, finished: usize) -> Client {
    let client = daemon.client().await;
    let cursor = before.cursor(session).map(str::to_owned);
    client.continues(before);
    match cursor {
        Some(cursor) => client.attach_after(session, &cursor).await,
        None => client.attach(session).await,
    }
    client.nth(session, "turn_finished", finished).await;
    client
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
async fn reattaching_in_mid_message_continues_at_the_byte_while_the_model_still_speaks() {
    let gate = Gate::new();
    let later = Gate::new();
    let model = ModelServer::with([Reply::text("Good d").gate(&gate).and_text("ay, ").gate(&later).and_text("friend")]);
    let daemon = Daemon::start(&model).await;
    let stayed = daemon.client().await;
    let session = stayed.session().await;
    stayed.prompt(&session, "hello").await;
    let left = daemon.client().await;
    left.attach(&session).await;
    left.sees_text(&session, "Good d").await;
    let before = left.hang_up();
    gate.open();
    stayed.sees_text(&session, "ay, ").await;
    later.open();
    let back = read_on(&daemon, &session, before, 1).await;
    let after: Vec<_> = back.transcript().of("text_delta").map(|seen| seen.event["offset"].clone()).collect();
    assert!(after.iter().all(|offset| offset.as_u64().is_some()), "{after:?}");
    stayed.first(&session, "turn_finished").await;
    assert_eq!(assemble(&back.transcript(), &session).0, assemble(&stayed.transcript(), &session).0);
    daemon.check(&[&stayed, &back], &model);
}

#[tokio::test]
async fn a_client_that_comes_late_sees_the_text_so_far() {
    let gate = Gate::new();
    let model =
        ModelServer::with([Reply::new().text_in_deltas("the text so far", 4).gate(&gate).and_text(" and the rest")]);
    let daemon = Daemon::start(&model).await;
    let first = daemon.client().await;
    let session = first.session().await;
    first.prompt(&session, "hello").await;
    first.sees_text(&session, "the text so far").await;
    let late = daemon.client().await;
    late.attach(&session).await;
    late.sees_text(&session, "the text so far").await;
    gate.open();
    late.first(&session, "turn_finished").await;
    first.first(&session, "turn_finished").await;
    assert_eq!(assemble(&late.transcript(), &session).0, assemble(&first.transcript(), &session).0);
    daemon.check(&[&first, &late], &model);
}

#[tokio::test]
async fn the_cursor_in_the_list_shows_only_what_is_new() {
    let model = ModelServer::with([Reply::text("old"), Reply::text("new")]);
    let daemon = Daemon::start(&model).await;
    let first = daemon.client().await;
    let session = first.session().await;
    first.turn(&session, "one").await;
    let list = first.call("session/list", json!({})).await;
    let cursor = list[0]["cursor"].as_str().unwrap().to_owned();
    let late = daemon.client().await;
    late.attach_after(&session, &cursor).await;
    late.turn(&session, "two").await;
    let text: String = late.transcript().of("text_delta").map(|seen| seen.str("text").to_owned()).collect();
    assert_eq!(text, "new");
    let turn = first.call("session/list", json!({})).await[0]["turn_cursor"].as_str().unwrap().to_owned();
    let latest = daemon.client().await;
    latest.attach_after(&session, &turn).await;
    latest.first(&session, "turn_finished").await;
    assert_eq!(latest.transcript().of("turn_finished").count(), 1);
    first.nth(&session, "turn_finished", 2).await;
    daemon.check(&[&first, &late, &latest], &model);
}

#[tokio::test]
async fn an_unknown_cursor_is_an_error_and_never_a_silent_restart() {
    let model = ModelServer::with([Reply::text("x")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "hello").await;
    for after in ["999999", "nonsense", "4+m9.0.6", "-1", "1+", "", "18446744073709551616"] {
        let error = client.refused("session/attach", json!({ "session": session, "after": after })).await;
        assert_eq!(error.code, -31004, "{after}: {error}");
    }
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_client_that_wants_no_deltas_gets_none_and_misses_nothing() {
    let model = ModelServer::with([bash("echo out"), Reply::text("Good d").and_text("ay")]);
    let daemon = Daemon::auto(&model).await;
    let all = daemon.client().await;
    let session = all.session().await;
    let few = daemon.client().await;
    few.call("session/attach", json!({ "session": session, "deltas": false })).await;
    all.turn(&session, "hello").await;
    few.first(&session, "turn_finished").await;
    assert!(few.transcript().events().all(|seen| !seen.is_delta()));
    let durable = |client: &Client| assemble(&client.transcript(), &session).0.events;
    assert_eq!(durable(&few), durable(&all));
    daemon.check(&[&all, &few], &model);
}

#[tokio::test]
async fn after_detach_nothing_comes_and_after_attach_everything() {
    let gate = Gate::new();
    let model = ModelServer::with([Reply::text("a").gate(&gate).and_text("b")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.prompt(&session, "hello").await;
    client.sees_text(&session, "a").await;
    client.call("session/detach", json!({ "session": session })).await;
    let before = client.transcript().events().count();
    let other = daemon.client().await;
    other.attach(&session).await;
    gate.open();
    other.first(&session, "turn_finished").await;
    client.call("daemon/status", json!({})).await;
    assert_eq!(client.transcript().events().count(), before, "events after detach");
    let cursor = client.cursor(&session);
    client.attach_after(&session, &cursor).await;
    client.first(&session, "turn_finished").await;
    assert_eq!(assemble(&client.transcript(), &session).0, assemble(&other.transcript(), &session).0);
    daemon.check(&[&client, &other], &model);
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
