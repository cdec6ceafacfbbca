//! What faces need of a daemon, which runs within this process: connections with a token (what each right opens and nothing else,
//! and what a stolen one is worth), and artifacts.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // A panic is how a test speaks.

mod artifact;
mod restraint;
mod scope;

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use linger_protocol::error::Code;
use linger_protocol::place::Places;
use linger_protocol::token::Can;
use lingerd::Options;
use lingerd::rpc::in_process::{Connector, in_process};
use lingerd::service::Setup;
use lingerd::service::need::{self, Right};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// More than any of these takes; a hang fails the test.
const SOON: Duration = Duration::from_secs(60);

/// A daemon, and the directory that it has for itself.
struct Daemon {
    dir: tempfile::TempDir,
    connector: Connector,
    shutdown: CancellationToken,
    running: JoinHandle<anyhow::Result<()>>,
}

/// One end of a connection.
struct Lines {
    stream: BufReader<DuplexStream>,
    asked: u64,
    /// Notifications that came before an answer.
    seen: Vec<Value>,
}

impl Daemon {
    fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap())
    }

    fn start_in(dir: tempfile::TempDir) -> Self {
        let (connector, listener) = in_process();
        let shutdown = CancellationToken::new();
        let options = Options::of(Setup::of(Places::below(dir.path()).unwrap()));
        let running = tokio::spawn(lingerd::run(options, listener, shutdown.clone()));
        Self { dir, connector, shutdown, running }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn database(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path().join("data/linger.db")).unwrap()
    }

    /// A process of the user's own.
    async fn person(&self) -> Lines {
        Lines::over(self.connector.connect().await.unwrap())
    }

    /// A connection that has said hello with more than its name.
    async fn hello(&self, more: Value) -> Lines {
        let mut lines = self.person().await;
        lines.hello(more).await.unwrap();
        lines
    }

    /// A connection with a new token.
    async fn with(&self, mint: Value) -> Lines {
        let minted = self.person().await.ok("token/mint", mint).await;
        self.hello(json!({ "token": minted["token"] })).await
    }

    async fn end(self) -> tempfile::TempDir {
        self.shutdown.cancel();
        self.running.await.unwrap().unwrap();
        self.dir
    }
}

impl Lines {
    fn over(stream: DuplexStream) -> Self {
        Self { stream: BufReader::new(stream), asked: 0, seen: Vec::new() }
    }

    async fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        timeout(SOON, self.stream.read_line(&mut line)).await.unwrap().ok().filter(|read| *read > 0)?;
        serde_json::from_str(&line).ok()
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let line = json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params }).to_string() + "\n";
        self.stream.write_all(line.as_bytes()).await.unwrap();
        loop {
            let next = self.next().await.unwrap();
            if next["id"] == self.asked {
                return next;
            }
            self.seen.push(next);
        }
    }

    async fn ok(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.ask(method, params).await;
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    /// The code and the message of a refusal.
    async fn refused(&mut self, method: &str, params: Value) -> (Code, String) {
        let answer = self.ask(method, params).await;
        let code = answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{method}: {answer}"));
        let code = Code::from_number(i32::try_from(code).unwrap()).unwrap_or_else(|| panic!("{method}: {answer}"));
        (code, answer["error"]["message"].as_str().unwrap().to_owned())
    }

    async fn hello(&mut self, more: Value) -> Result<Value, Value> {
        let mut params = json!({ "client": "a face", "protocol": [1, 1] });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut answer = self.ask("daemon/hello", params).await;
        if answer.get("error").is_some() { Err(answer["error"].take()) } else { Ok(answer["result"].take()) }
    }

    async fn create(&mut self, cwd: &Path, more: Value) -> String {
        let mut params = json!({ "cwd": cwd, "model": "demo" });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.ok("session/create", params).await["session"].as_str().unwrap().to_owned()
    }

    /// The next event of this kind.
    async fn event(&mut self, kind: &str) -> Value {
        for mut early in std::mem::take(&mut self.seen) {
            if early["params"]["event"]["kind"] == kind {
                return early["params"]["event"].take();
            }
        }
        loop {
            let mut next = self.next().await.unwrap();
            if next["params"]["event"]["kind"] == kind {
                return next["params"]["event"].take();
            }
        }
    }

    /// Waits until the daemon hangs up.
    async fn closed(&mut self) {
        while self.next().await.is_some() {}
    }
}

/// Every method, with the right that it needs of a token.
fn methods() -> Vec<(&'static str, Right)> {
    struct Names(Vec<&'static str>);
    impl linger_protocol::method::Visitor for Names {
        fn method<P: schemars::JsonSchema, R: schemars::JsonSchema>(&mut self, name: &'static str) {
            self.0.push(name);
        }
    }
    let mut names = Names(Vec::new());
    linger_protocol::method::each_method(&mut names);
    names.0.into_iter().map(|name| (name, need::of(name).unwrap().token.right)).collect()
}

/// Whether the gate let a method through: what it answers then, to parameters that fit nothing, is not looked at.
async fn passes(lines: &mut Lines, method: &str) -> bool {
    let answer =
        lines.ask(method, json!({ "session": 7, "cwd": 7, "question": 7, "name": 7, "older_than_ms": "x" })).await;
    let code = answer["error"]["code"].as_i64();
    code != Some(Code::NotAllowed as i64) && code != Some(Code::Unauthorized as i64)
}

#[tokio::test]
async fn each_right_opens_its_methods_and_no_others() {
    let daemon = Daemon::start();
    for can in Can::ALL {
        let mut lines = daemon.with(json!({ "name": "one", "can": [can] })).await;
        for (method, need) in methods() {
            // It would end what the others need, and hello changes the connection.
            if ["daemon/stop", "daemon/hello"].contains(&method) {
                continue;
            }
            let expect = match need {
                Right::Open => true,
                Right::Can(needed) => can.includes(needed),
                Right::Either(one, other) => can.includes(one) || can.includes(other),
                Right::Users => false,
            };
            // A code that is unknown is an error of the same name.
            if method != "token/exchange" {
                assert_eq!(passes(&mut lines, method).await, expect, "{can}: {method}");
            }
        }
        assert_eq!(passes(&mut lines, "daemon/stop").await, can == Can::Administer, "{can}");
        if can == Can::Administer {
            break;
        }
    }
    daemon.running.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_unknown_token_is_refused_and_nothing_else_is_answered_until_a_good_one_comes() {
    let daemon = Daemon::start();
    let minted = daemon.person().await.ok("token/mint", json!({ "name": "phone" })).await;
    let mut lines = daemon.person().await;
    for bad in ["", "lng_", "lng_AAAA", minted["id"].as_str().unwrap()] {
        let error = lines.hello(json!({ "token": bad })).await.unwrap_err();
        assert_eq!(error["code"], Code::Unauthorized as i32, "{error}");
        for (method, _) in methods().into_iter().filter(|(method, _)| *method != "daemon/hello") {
            assert_eq!(lines.refused(method, json!({ "code": "x" })).await.0, Code::Unauthorized, "{method}");
        }
        assert_eq!(lines.refused("no/such", json!({})).await.0, Code::Unauthorized);
    }
    let welcome = lines.hello(json!({ "token": minted["token"] })).await.unwrap();
    assert_eq!(welcome["grant"], minted["grant"]);
    assert_eq!(welcome["grant"]["can"], json!(["observe", "speak"]));
    lines.ok("session/list", json!({})).await;
    // What was said cannot be taken back, and nothing else said.
    lines.hello(json!({})).await.unwrap();
    assert_eq!(lines.refused("token/list", json!({})).await.0, Code::NotAllowed);
    let other = daemon.person().await.ok("token/mint", json!({ "name": "other" })).await;
    for more in [json!({ "token": other["token"] }), json!({ "behind": {} })] {
        assert_eq!(lines.hello(more).await.unwrap_err()["code"], Code::NotAllowed as i32);
    }
    daemon.end().await;
}

#[tokio::test]
async fn a_request_behind_a_hello_that_was_not_answered_yet_has_the_token_already() {
    let daemon = Daemon::start();
    let minted = daemon.person().await.ok("token/mint", json!({ "name": "quick" })).await;
    let mut lines = daemon.person().await;
    let hello = json!({ "client": "x", "protocol": [1, 1], "token": minted["token"] });
    let batch = json!([
        { "jsonrpc": "2.0", "id": "a", "method": "daemon/hello", "params": hello },
        { "jsonrpc": "2.0", "id": "b", "method": "token/list", "params": {} },
    ]);
    lines.stream.write_all((batch.to_string() + "\n").as_bytes()).await.unwrap();
    let answers = lines.next().await.unwrap();
    let refused = answers.as_array().unwrap().iter().find(|it| it["id"] == "b").unwrap();
    assert_eq!(refused["error"]["code"], Code::NotAllowed as i32, "{answers}");
    daemon.end().await;
}

#[tokio::test]
async fn only_hashes_are_stored_and_a_token_outlives_the_daemon_until_it_is_revoked() {
    let daemon = Daemon::start();
    let mut person = daemon.person().await;
    let minted = person.ok("token/mint", json!({ "name": "phone", "can": ["speak", "observe", "speak"] })).await;
    let code = person.ok("token/mint", json!({ "name": "page", "once": true })).await;
    let (text, code) = (minted["token"].as_str().unwrap().to_owned(), code["token"].as_str().unwrap().to_owned());
    assert!(text.starts_with("lng_") && text.len() == 47, "{text}");
    let mut lines = daemon.hello(json!({ "token": text })).await;
    lines.create(daemon.path(), json!({})).await;
    let rows = person.ok("token/list", json!({})).await;
    assert!(
        rows.as_array().unwrap().iter().any(|row| row["grant"]["name"] == "phone" && row["used_at"].is_u64()),
        "{rows}"
    );
    assert!(!rows.to_string().contains(&text[4..]) && !rows.to_string().contains("hash"));
    let dir = daemon.end().await;
    for entry in ["data/linger.db", "data/linger.db-wal", "state/lingerd.log"] {
        let bytes = std::fs::read(dir.path().join(entry)).unwrap_or_default();
        for secret in [&text, &code] {
            let secret = &secret.as_bytes()[secret.len() - 43..];
            assert!(!bytes.windows(43).any(|window| window == secret), "{entry}");
        }
    }
    let daemon = Daemon::start_in(dir);
    let mut lines = daemon.hello(json!({ "token": text })).await;
    lines.ok("events/subscribe", json!({})).await;
    let mut person = daemon.person().await;
    assert_eq!(person.ok("daemon/status", json!({})).await["tokens"], 1);
    person.ok("token/revoke", json!({ "id": minted["id"] })).await;
    lines.closed().await;
    let again = daemon.person().await.hello(json!({ "token": text })).await.unwrap_err();
    assert_eq!(again["code"], Code::Unauthorized as i32);
    assert_eq!(person.refused("token/revoke", json!({ "id": minted["id"] })).await.0, Code::UnknownToken);
    let left: i64 = daemon
        .database()
        .query_row("SELECT count(*) FROM token WHERE code_until IS NULL", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
    daemon.end().await;
}

#[tokio::test]
async fn a_code_is_exchanged_once_and_is_no_token() {
    let daemon = Daemon::start();
    let mut person = daemon.person().await;
    let code = person.ok("token/mint", json!({ "name": "page", "once": true, "can": ["observe"] })).await;
    let refused = daemon.person().await.hello(json!({ "token": code["token"] })).await.unwrap_err();
    assert_eq!(refused["code"], Code::Unauthorized as i32, "a code is no token");
    // A face of a process of the user's.
    let behind = json!({ "pid": std::os::unix::process::parent_id() });
    let mut face = daemon.hello(json!({ "behind": behind })).await;
    assert_eq!(face.refused("session/list", json!({})).await.0, Code::Unauthorized, "nothing without a token");
    assert_eq!(face.refused("token/mint", json!({ "name": "x" })).await.0, Code::Unauthorized);
    let minted = face.ok("token/exchange", json!({ "code": code["token"] })).await;
    assert_eq!((&minted["id"], &minted["grant"]), (&code["id"], &code["grant"]));
    let again = face.refused("token/exchange", json!({ "code": code["token"] })).await;
    assert_eq!(again.0, Code::Unauthorized);
    assert_eq!(face.refused("token/exchange", json!({ "code": minted["token"] })).await.0, Code::Unauthorized);
    face.hello(json!({ "token": minted["token"], "behind": behind })).await.unwrap();
    face.ok("session/list", json!({})).await;
    // One that nobody took in time is forgotten; the clock is not waited for.
    let late = person.ok("token/mint", json!({ "name": "late", "once": true })).await;
    let dir = daemon.end().await;
    let daemon =
        Daemon { ..Daemon::start_in(age(dir, "UPDATE token SET code_until = 1 WHERE code_until IS NOT NULL")) };
    let refused = daemon.person().await.refused("token/exchange", json!({ "code": late["token"] })).await;
    assert_eq!(refused.0, Code::Unauthorized);
    assert_eq!(daemon.person().await.ok("token/list", json!({})).await.as_array().unwrap().len(), 1);
    daemon.end().await;
}

/// Changes what a daemon that has ended left in its database.
fn age(dir: tempfile::TempDir, sql: &str) -> tempfile::TempDir {
    let database = rusqlite::Connection::open(dir.path().join("data/linger.db")).unwrap();
    database.execute(sql, []).unwrap();
    drop(database);
    dir
}

#[tokio::test]
async fn an_expired_token_opens_nothing_and_ends_its_connections_with_the_next_event() {
    let mut daemon = Daemon::start();
    let minted = daemon.person().await.ok("token/mint", json!({ "name": "short" })).await;
    let token = json!({ "token": minted["token"] });
    let mut life = Duration::from_millis(1500);
    // It has to live until it is used, however long that takes here.
    let (ends_at, mut lines, mut idle) = loop {
        let ends_at = UNIX_EPOCH.elapsed().unwrap() + life;
        let sql = format!("UPDATE token SET allows = json_set(allows, '$.expires_at', {})", ends_at.as_millis());
        daemon = Daemon::start_in(age(daemon.end().await, &sql));
        let (mut lines, mut idle) = (daemon.person().await, daemon.person().await);
        let is_known = lines.hello(token.clone()).await.is_ok() && idle.hello(token.clone()).await.is_ok();
        let is_in_time = UNIX_EPOCH.elapsed().unwrap() + life / 2 < ends_at;
        if is_known && is_in_time && lines.ask("events/subscribe", json!({})).await.get("error").is_none() {
            break (ends_at, lines, idle);
        }
        life *= 2;
    };
    lines.event("caught_up").await;
    let mut person = daemon.person().await;
    // When it ends is a time, and nothing announces it.
    let is_over = ends_at + Duration::from_millis(1);
    tokio::time::sleep(is_over.saturating_sub(UNIX_EPOCH.elapsed().unwrap())).await;
    assert_eq!(idle.refused("session/list", json!({})).await.0, Code::Unauthorized);
    person.create(daemon.path(), json!({})).await;
    assert_eq!(lines.next().await, None, "an event after the end of the token");
    let refused = daemon.person().await.hello(token).await.unwrap_err();
    assert_eq!(refused["code"], Code::Unauthorized as i32);
    assert_eq!(person.ok("daemon/status", json!({})).await["tokens"], 0);
    daemon.end().await;
}
