//! Slow, stuck and hostile clients: none slows the others, grows the memory or leaves anything behind (I8, I10).
//!
//! Nothing here measures a time that a busy machine could stretch: a client that behaves does its work and gets everything,
//! while memory, descriptors and connections stay within bounds. `LINGER_HOSTILE=10` makes the crowds ten times as large.

use std::time::Duration;

use linger_tests::Rng;
use linger_tests::harness::{Client, Daemon, Raw, Setup, process, until};
use linger_tests::model::{Gate, ModelServer, Reply};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"daemon/hello","params":{"client":"crowd","protocol":[1,1]}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":3,"method":"session/list"}"#;
const STATUS: &str = r#"{"jsonrpc":"2.0","id":4,"method":"daemon/status"}"#;

/// Connections that a daemon has at most.
const MAX_CONNECTIONS: usize = 512;

/// How many of these one process gets, and processes of the daemon's together: the last quarter is for users.
const COMMON: usize = MAX_CONNECTIONS - MAX_CONNECTIONS / 4;

/// How many times larger than usual the crowds are.
fn scale() -> usize {
    std::env::var("LINGER_HOSTILE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

/// Descriptors that are opened when they are first needed and then stay: the checkpoint's connection (database, WAL, index) and
/// one to the model. What leaks here leaks with each of dozens of clients.
const LAZY: usize = 4;

/// What the daemon uses when nothing goes on, to be held against what it uses afterwards.
struct Base {
    pid: u32,
    /// KiB.
    memory: u64,
    /// None where only root is told.
    files: Option<usize>,
}

impl Base {
    async fn of(daemon: &Daemon) -> Self {
        let pid = daemon.pid().await;
        Self { pid, memory: process::memory(pid).0, files: process::files(pid) }
    }

    /// How much memory it takes more than before, in MiB.
    fn grown(&self) -> u64 {
        process::memory(self.pid).0.saturating_sub(self.memory) >> 10
    }

    /// Waits until as few files are open as before.
    async fn back(&self) {
        until("descriptors are back to what they were", async || {
            (process::files(self.pid) <= self.files.map(|files| files + LAZY)).then_some(())
        })
        .await;
    }
}

/// Lets this test, and what it starts, open as many files as the system allows it: a crowd needs more than a user's shell usually
/// gives (1024).
fn open_many_files() {
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }).expect("a soft limit can be raised");
}

/// Attaches, and does not read what comes.
async fn attach_blind(raw: &mut Raw, session: &str) -> std::io::Result<()> {
    let attach = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/attach", "params": { "session": session } });
    raw.try_send(format!("{HELLO}\n{attach}\n")).await
}

fn long(words: usize) -> Reply {
    Reply::new().text_in_deltas(&"word ".repeat(words), 5)
}

#[tokio::test]
async fn a_thousand_clients_that_never_read_neither_fill_the_memory_nor_lock_a_user_out() {
    open_many_files();
    let model = ModelServer::with([Reply::text("x".repeat(400_000)), long(500)]);
    let daemon = Daemon::start(&model).await;
    let fast = daemon.client().await;
    let session = fast.session().await;
    fast.turn(&session, "long").await;
    let base = Base::of(&daemon).await;
    let mut crowd = Vec::new();
    for _ in 0..1000 * scale() {
        let mut raw = Raw::connect(&daemon.dirs.socket()).await;
        // Those beyond the limit are refused, and may find the socket closed.
        let _refused = attach_blind(&mut raw, &session).await;
        crowd.push(raw);
    }
    fast.turn(&session, "with a crowd").await;
    // What is large is made only where there is room for it, so this is not 512 times a megabyte, but 64 MiB and what is small.
    let grown = base.grown();
    assert!(grown < 128, "{grown} MiB more with a crowd that does not read");
    let new = until("a new client gets the place of one that is stuck", async || {
        let client = Client::connect(&daemon.dirs, "new").await.ok()?;
        client.request("session/attach", json!({ "session": session })).await?.ok()?;
        Some(client)
    })
    .await;
    new.nth(&session, "turn_finished", 2).await;
    drop(crowd);
    drop(new);
    base.back().await;
    daemon.check(&[&fast], &model);
}

#[tokio::test]
async fn connections_that_say_nothing_make_room_and_those_at_work_do_not() {
    open_many_files();
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let base = Base::of(&daemon).await;
    let mut idle = Vec::new();
    for _ in 0..MAX_CONNECTIONS * scale() {
        idle.push(Raw::connect(&daemon.dirs.socket()).await);
    }
    // All places are taken, and a person's command waits until there is one.
    daemon.cli(&["ls"]).run().await.exits(0);
    // Each client that comes now waits for something, and so keeps the place that it gets.
    let mut working = Vec::new();
    while working.len() < COMMON - 1 {
        let attached = until("a silent connection makes room", async || {
            let mut raw = Raw::connect(&daemon.dirs.socket()).await;
            attach_blind(&mut raw, &session).await.ok()?;
            raw.line().await?["result"].is_object().then_some(())?;
            raw.line().await?["result"].is_object().then_some(raw)
        })
        .await;
        working.push(attached);
    }
    let mut refused = Raw::connect(&daemon.dirs.socket()).await;
    assert_eq!(refused.line().await.unwrap()["error"]["code"], -31015);
    // Another process of the user gets one of the places that are kept.
    daemon.cli(&["ls"]).run().await.exits(0);
    daemon.cli(&["daemon", "status"]).run().await.exits(0);
    for raw in &mut working {
        assert_eq!(raw.ask(STATUS).await["result"]["connections"], COMMON);
    }
    client.call("daemon/status", json!({})).await;
    drop((idle, working, refused));
    base.back().await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn half_a_request_of_each_of_many_takes_a_bounded_part_of_the_memory() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.create().await;
    let base = Base::of(&daemon).await;
    let half = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}", "x".repeat(1 << 20));
    let mut crowd = Vec::new();
    for n in 0..100 * scale().min(4) {
        let mut raw = Raw::connect(&daemon.dirs.socket()).await;
        if n % 2 == 0 {
            raw.send(&half).await;
        } else {
            raw.send(format!("Content-Length: {}\r\n\r\n{half}", half.len() + 2)).await;
        }
        crowd.push(raw);
    }
    // Small requests need no room; and large ones have it again when nothing more comes of the halves.
    client.call("daemon/status", json!({})).await;
    let grown = base.grown();
    assert!(grown < 100, "{grown} MiB more for halves of requests");
    let large = json!({ "session": session, "name": "n", "padding": "x".repeat(8 << 20) });
    until("a large request has room", async || {
        // An answer without an id is for nobody in particular: the client waits for it in vain, a raw one sees it.
        let mut raw = Raw::connect(&daemon.dirs.socket()).await;
        let line = json!({ "jsonrpc": "2.0", "id": 7, "method": "session/set", "params": large });
        let answer = raw.ask(&line.to_string()).await;
        assert!(answer["id"] == 7 || answer["error"]["code"] == -31015, "{answer}");
        (answer["id"] == 7).then_some(())
    })
    .await;
    // Whoever was given up is told so at the end of its request, and may go on.
    let mut told = 0;
    for (n, raw) in crowd.iter_mut().enumerate() {
        raw.send("\"}").await;
        if n % 2 == 0 {
            raw.send("\n").await;
            let code = raw.line().await.unwrap()["error"]["code"].clone();
            told += usize::from(code == -31015);
            assert_eq!(raw.ask(STATUS).await["id"], 4);
        } else {
            told += usize::from(raw.counted().await["error"]["code"] == -31015);
        }
    }
    assert!(told > 0);
    drop(crowd);
    base.back().await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn a_line_without_end_is_thrown_away_as_it_comes() {
    let model = ModelServer::with([long(500)]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let base = Base::of(&daemon).await;
    let piece = vec![b'['; 1 << 20];
    let mut raw = Raw::connect(&daemon.dirs.socket()).await;
    let flood = async {
        for _ in 0..128 * scale() {
            raw.send(&piece).await;
        }
    };
    tokio::join!(flood, client.turn(&session, "meanwhile"));
    let grown = base.grown();
    assert!(grown < 48, "{grown} MiB more for a line without end");
    raw.send("\n").await;
    assert!(raw.line().await.unwrap()["error"]["code"].as_i64().unwrap() < -31000);
    assert_eq!(raw.ask(STATUS).await["id"], 4);
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn nesting_without_end_is_an_error_wherever_it_stands() {
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let mut raw = Raw::connect(&daemon.dirs.socket()).await;
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    let (lists, objects) = (deep("[", "]"), format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000)));
    for value in [&lists, &objects] {
        for line in [
            value.clone(),
            format!(r#"[{value}]"#),
            format!(r#"{{"jsonrpc":"2.0","id":{value},"method":"daemon/status"}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":5,"method":{value}}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":5,"method":"session/prompt","params":{value}}}"#),
            format!(
                r#"{{"jsonrpc":"2.0","id":5,"method":"session/prompt","params":{{"session":"{session}","content":{value}}}}}"#
            ),
        ] {
            let answer = raw.ask(&line).await;
            let answer = answer.get(0).unwrap_or(&answer);
            assert!(answer["error"].is_object(), "{answer}");
        }
    }
    // A model can nest as well: in the arguments of a call, and in its stream.
    model.push([
        Reply::new().and_raw_tool("read", &format!("{{\"path\":{lists}}}")),
        Reply::new().raw(format!("data: {{\"choices\":{lists}}}\n\n").as_bytes()),
    ]);
    model.otherwise(|_| Reply::text("done"));
    let finished = client.turn(&session, "deep").await;
    assert!(["end_turn", "error"].contains(&finished.str("stop_reason")));
    let result = client.first(&session, "tool_finished").await;
    assert_eq!(result.str("outcome"), "invalid");
    model.forgive();
}

#[tokio::test]
async fn attaching_and_detaching_without_end_leaves_nothing_and_disturbs_nobody() {
    let gate = Gate::new();
    let model = ModelServer::with([long(300), Reply::text("begin ").gate(&gate).and_text("end")]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    client.turn(&session, "long").await;
    client.prompt(&session, "waits").await;
    gate.reached().await;
    let base = Base::of(&daemon).await;
    let named = |id: usize, verb: &str| json!({ "jsonrpc": "2.0", "id": id, "method": format!("session/{verb}"), "params": { "session": session } });
    let mut rng = Rng(7);
    let rounds = 2000 * scale();
    let storm = async |seed: usize| {
        let mut raw = Raw::connect(&daemon.dirs.socket()).await;
        for round in 0..rounds / 4 {
            // Sent at once, so that a detach meets an attach that is under way.
            raw.send(format!("{}\n{}\n", named(1, "attach"), named(2, "detach"))).await;
            let answers = [raw.line().await.unwrap(), raw.line().await.unwrap()];
            let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
            assert!(ids.contains(&&json!(1)) && ids.contains(&&json!(2)), "{answers:?}");
            if (round + seed).is_multiple_of(97) {
                raw = Raw::connect(&daemon.dirs.socket()).await;
            }
        }
    };
    tokio::join!(storm(rng.below(97)), storm(rng.below(97)), storm(rng.below(97)), storm(rng.below(97)));
    gate.open();
    client.nth(&session, "turn_finished", 2).await;
    let grown = base.grown();
    assert!(grown < 16, "{grown} MiB more after {rounds} attaches");
    base.back().await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn what_a_client_asked_that_has_hung_up_is_not_worked_off() {
    let model = ModelServer::with([long(500)]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    let database = rusqlite::Connection::open(daemon.dirs.database()).unwrap();
    database.busy_timeout(linger_tests::TIMEOUT).unwrap();
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
               INSERT INTO session (id, name, cwd, state, updated_at, env, fold, size)
               SELECT 'z' || i, NULL, cwd, 'idle', 0, '{}', fold, 0 FROM n, session WHERE id = ?";
    database.execute(sql, [&session]).unwrap();
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
               INSERT INTO family (session, name, data) SELECT 'z' || i, name, data FROM n, family WHERE session = ?";
    database.execute(sql, [&session]).unwrap();
    let base = Base::of(&daemon).await;
    let one = {
        let before = process::cpu(base.pid);
        // The system counts in hundredths of a second.
        for _ in 0..50 {
            client.call("session/list", json!({})).await;
        }
        (process::cpu(base.pid) - before) / 50.0
    };
    let before = process::cpu(base.pid);
    let (clients, requests) = (60 * scale(), 20);
    for _ in 0..clients {
        let mut raw = Raw::connect(&daemon.dirs.socket()).await;
        raw.send(format!("{LIST}\n").repeat(requests)).await;
    }
    client.turn(&session, "meanwhile").await;
    base.back().await;
    let spent = process::cpu(base.pid) - before;
    let all = one * (clients * requests) as f64;
    // Each may have had one of its twenty lists made.
    assert!(spent < all / 4.0, "{spent:.1} s of work for clients that had gone; all of it would have taken {all:.1} s");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn one_who_replays_much_or_asks_much_does_not_hold_up_the_others() {
    let model = ModelServer::with([Reply::text("x".repeat(4 << 20)), long(500)]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let (large, session) = (client.session().await, client.session().await);
    client.turn(&large, "much").await;
    let base = Base::of(&daemon).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let busy = async |n: usize| {
        let mut raw = Raw::connect(&daemon.dirs.socket()).await;
        while !stop.is_cancelled() {
            if n.is_multiple_of(2) {
                attach_blind(&mut raw, &large).await.unwrap();
                raw.drain(|line| line.contains("caught_up") || stop.is_cancelled()).await;
            } else {
                raw.send(format!("{LIST}\n").repeat(50)).await;
                for _ in 0..50 {
                    raw.line().await.unwrap();
                }
            }
        }
    };
    let work = async {
        client.turn(&session, "meanwhile").await;
        for _ in 0..20 {
            client.call("daemon/status", json!({})).await;
        }
        stop.cancel();
    };
    tokio::join!(work, busy(0), busy(1), busy(2), busy(3), busy(4), busy(5));
    let grown = base.grown();
    assert!(grown < 64, "{grown} MiB more");
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn nonsense_from_many_at_once_is_answered_or_ignored_and_never_mixed_up() {
    let model = ModelServer::with([Reply::text("hi"), long(1000)]);
    let daemon = Daemon::start(&model).await;
    let client = daemon.client().await;
    let session = client.session().await;
    // The connection to the model stays open from here on.
    client.turn(&session, "before").await;
    let base = Base::of(&daemon).await;
    let nonsense: Vec<(Vec<u8>, bool)> = [
        (&b"\xff\xfe\x00"[..], true),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\\u0000b\"}", true),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"\x80\",\"method\":\"daemon/status\"}", true),
        (b"\0\0\0\0", true),
        (b"[]", true),
        (b"[1,2,[3]]", true),
        (b"[{\"jsonrpc\":\"2.0\",\"method\":\"daemon/status\"}]", false),
        (b"{\"jsonrpc\":\"2.0\",\"method\":\"session/cancel\",\"params\":{\"session\":\"nobody\"}}", false),
        (b"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"daemon/status\"}", true),
        (b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"daemon/status\"}", true),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/attach\",\"params\":7}", true),
        (b"   \t ", false),
    ]
    .map(|(line, answered)| (line.to_vec(), answered))
    .to_vec();
    let babble = async |seed: u64| {
        let mut rng = Rng(seed);
        let mut raw = Raw::connect(&daemon.dirs.socket()).await;
        for round in 0..40 * scale() {
            let (line, answered) = &nonsense[rng.below(nonsense.len())];
            // In two pieces, so that those of all connections come interleaved.
            let (first, second) = line.split_at(rng.below(line.len()));
            raw.send(first).await;
            tokio::task::yield_now().await;
            raw.send([second, b"\n"].concat()).await;
            if *answered {
                let answer = raw.line().await.unwrap();
                assert!(answer["error"].is_object() || answer[0]["error"].is_object(), "{answer}");
            }
            let own = format!("{seed}-{round}");
            let status = format!(r#"{{"jsonrpc":"2.0","id":"{own}","method":"daemon/status"}}"#);
            assert_eq!(raw.ask(&status).await["id"], own, "an answer to another request, or to another client");
        }
    };
    let crowd = async {
        let all = (0..24).map(|seed| Box::pin(babble(seed)));
        let mut all: Vec<_> = all.collect();
        std::future::poll_fn(|context| {
            all.retain_mut(|one| one.as_mut().poll(context).is_pending());
            if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    };
    tokio::join!(crowd, client.turn(&session, "meanwhile"));
    let grown = base.grown();
    assert!(grown < 32, "{grown} MiB more");
    base.back().await;
    daemon.check(&[&client], &model);
}

#[tokio::test]
async fn with_few_files_the_daemon_takes_fewer_connections_says_so_and_does_not_spin() {
    let gates: Vec<Gate> = (0..60).map(|_| Gate::new()).collect();
    let model = ModelServer::start();
    model.push(gates.iter().map(|gate| Reply::text("waits ").gate(gate).and_text("done")));
    model.otherwise(|_| Reply::text("after all"));
    let daemon = Daemon::start_with(&model, Setup { files: Some(64), ..Setup::default() }).await;
    let client = daemon.client().await;
    let pid = daemon.pid().await;
    assert!(daemon.log().contains("the limit of open files is low"), "{}", daemon.log_tail());
    // Turns take what connections leave.
    let mut sessions = Vec::new();
    for _ in 0..gates.len() {
        let session = client.session().await;
        client.prompt(&session, "go").await;
        sessions.push(session);
    }
    let mut crowd = Vec::new();
    for _ in 0..100 {
        crowd.push(Raw::connect(&daemon.dirs.socket()).await);
    }
    let before = process::cpu(pid);
    // There is no event to wait for: what is asked is that nothing happens.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let spent = process::cpu(pid) - before;
    assert!(spent < 1.0, "{spent} s of work in 2 s while connections are refused");
    let lines = daemon.log().lines().filter(|line| line.contains("was not accepted")).count();
    assert!(lines < 10, "{lines} times in the log");
    client.call("daemon/status", json!({})).await;
    drop(crowd);
    gates.iter().for_each(Gate::open);
    for session in &sessions {
        client.first(session, "turn_finished").await;
    }
    until("a new client gets in", async || Client::connect(&daemon.dirs, "new").await.ok()).await;
    daemon.check(&[&client], &model);
}
