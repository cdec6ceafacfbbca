//! Every method is called as each kind of caller; [`MAY`] has what comes of it. It is written by hand, and not made from the table in
//! `service/need`, so that a row cannot lose its check unseen.

use std::collections::BTreeMap;
use std::os::unix::process::parent_id;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::daemon::Hello;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::place::Places;
use linger_protocol::token::{Behind, Grant};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::connections::Connections;
use super::methods;
use crate::process::ledger::StartedFor;
use crate::process::server::{Server, Spawn};
use crate::service::{Authority, Services, Setup};
use crate::sys::peer::{self, Peer};

/// More than any answer takes; a hang fails the test.
const SOON: Duration = Duration::from_secs(60);

/// The code of a request whose parameters do not fit.
const INVALID_PARAMS: i32 = -32602;

/// The callers, in the order of the columns of [`MAY`].
const CALLERS: [&str; 10] = [
    "a user's process",
    "a tool of a session",
    "another process of the family",
    "an unknown process",
    "a session",
    "a token that may observe",
    "a token for one session that may all but administer",
    "a token that may all",
    "a face without a token",
    "an MCP server that may observe and speak",
];

/// The callers that are only asked whether they pass the gate: what they may do has effects.
const UNLIMITED: [usize; 2] = [0, 7];

/// For each method the outcome for each caller: `-` it is refused whatever the parameters are, `s` it is refused a session that is not
/// its own (or a directory, if the method names that), `y` it is not refused.
#[rustfmt::skip]
const MAY: &[(&str, &str)] = &[
    ("daemon/hello", "yyyyyyyyyy"),
    ("daemon/keys", "y---------"),
    ("daemon/status", "yy--yyyy-y"),
    ("daemon/stop", "y------y--"),
    ("daemon/check", "y------y--"),
    ("model/list", "y----yyy-y"),
    ("mode/list", "yyyyyyyy-y"),
    ("tool/list", "yssssysy-y"),
    ("session/create", "y---y--y-y"),
    ("session/list", "yy--yyyy-y"),
    ("session/attach", "ys--sysy-y"),
    ("session/detach", "yyyyyyyy-y"),
    ("session/env", "ys--sysy-y"),
    ("session/prompt", "y---s-sy-y"),
    ("session/cancel", "y---s-sy-y"),
    ("session/continue", "y---s-sy-y"),
    ("session/compact", "y---s-sy--"),
    ("session/unqueue", "y---s-sy-y"),
    ("session/undo", "y---s-sy--"),
    ("session/redo", "y---s-sy--"),
    ("session/diff", "ys--sysy-y"),
    ("session/fork", "y------y-s"),
    ("session/rewind", "y-----sy--"),
    ("session/prompts", "ys--sysy-y"),
    ("session/compaction", "ys--sysy-y"),
    ("session/uncompact", "y---s-sy--"),
    ("session/merge", "y------y--"),
    ("session/set", "y---s-sy--"),
    ("session/bin", "y---s--y--"),
    ("session/restore", "y---s--y--"),
    ("session/remove", "y---s--y--"),
    ("session/prune", "y------y--"),
    ("events/subscribe", "yy--yyyy-y"),
    ("events/unsubscribe", "yyyyyyyy-y"),
    ("session/search", "yy--yyyy-y"),
    ("completion/start", "y------y-y"),
    ("completion/cancel", "yyyyy-yy-y"),
    ("usage/list", "y----y-y-y"),
    ("blob/get", "yy--yyyy-y"),
    ("artifact/begin", "y-----yy-y"),
    ("artifact/write", "y-----yy-y"),
    ("artifact/finish", "y-----yy-y"),
    ("artifact/get", "y----yyy-y"),
    ("artifact/read", "y----yyy-y"),
    ("artifact/list", "y----yyy-y"),
    ("artifact/delete", "y-----yy-y"),
    ("key/list", "y------y--"),
    ("key/set", "y---------"),
    ("key/remove", "y---------"),
    ("config/get", "y------y--"),
    ("config/confirm", "y---------"),
    ("config/set", "y---------"),
    ("config/write", "y---------"),
    ("trust/get", "y------y--"),
    ("trust/confirm", "y---------"),
    ("trust/list", "y------y--"),
    ("trust/revoke", "y---------"),
    ("token/mint", "y---------"),
    ("token/exchange", "y--y-yyyy-"),
    ("token/list", "y---------"),
    ("token/revoke", "y---------"),
    ("skill/list", "y----ysy-y"),
    ("command/list", "y----ysy-y"),
    ("agent/list", "y----ysy-y"),
    ("tool/files", "y----ysy-y"),
    ("mcp/files", "y----ysy-y"),
    ("memory/list", "y----ysy-y"),
    ("memory/add", "y------y--"),
    ("memory/remove", "y------y--"),
    ("mcp/list", "yssssysy-y"),
    ("mcp/add", "y---------"),
    ("mcp/remove", "y---------"),
    ("mcp/restart", "y------y--"),
    ("mcp/logs", "y------y--"),
    ("mcp/test", "y---------"),
    ("mcp/login", "y---------"),
    ("mcp/finish_login", "y---------"),
    ("mcp/logout", "y---------"),
    ("mcp/resources", "yssss-sy-y"),
    ("mcp/resource", "y---s-sy-y"),
    ("mcp/prompts", "yssss-sy-y"),
    ("mcp/prompt", "y---s-sy-y"),
    ("permission/list", "yy--yyyy-y"),
    ("permission/answer", "y-----yy--"),
    ("permission/explain", "yssssysy-y"),
    ("permission/rules", "y------y--"),
    ("permission/remove", "y---------"),
    ("question/list", "yy--yyyy-y"),
    ("question/answer", "y-----yy--"),
];

/// A connection.
struct Wire {
    stream: BufReader<DuplexStream>,
    asked: u64,
}

impl Wire {
    async fn open(connections: &mut Connections, authority: Authority) -> Self {
        let (client, stream) = tokio::io::duplex(1 << 20);
        connections.add(stream, authority).await;
        Self { stream: BufReader::new(client), asked: 0 }
    }

    /// The error of a call, if it fails.
    async fn call(&mut self, method: &str, params: &Value) -> Option<Value> {
        self.answer(method, params).await.get_mut("error").map(Value::take)
    }

    async fn answer(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.asked, "method": method, "params": params });
        self.stream.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        loop {
            let mut line = String::new();
            let read = timeout(SOON, self.stream.read_line(&mut line)).await;
            assert!(read.is_ok_and(|read| read.is_ok_and(|bytes| bytes > 0)), "{method} is not answered");
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == self.asked {
                return answer;
            }
        }
    }
}

/// Parameters that fit a schema: those that are needed, and a session and a directory wherever one can be named.
struct Example<'a> {
    schema: &'a Value,
    session: &'a str,
    dir: &'a Path,
}

impl Example<'_> {
    fn of(&self, schema: &Value, name: &str) -> Value {
        if let Some(target) = schema["$ref"].as_str() {
            let known = &self.schema["$defs"][target.rsplit('/').next().unwrap()];
            return self.of(known, name);
        }
        if let Some(one) = schema.get("const").or_else(|| schema["enum"].get(0)) {
            return one.clone();
        }
        if let Some(one) = ["anyOf", "oneOf", "allOf"].iter().find_map(|of| schema[of].get(0)) {
            return self.of(one, name);
        }
        let kind = if schema["type"].is_array() { &schema["type"][0] } else { &schema["type"] };
        match kind.as_str().unwrap_or_default() {
            "string" if name == "session" => json!(self.session),
            "string" => json!(self.dir),
            "integer" => schema.get("minimum").cloned().unwrap_or(json!(1)),
            "boolean" => json!(false),
            "array" => {
                (0..schema["minItems"].as_u64().unwrap_or_default()).map(|_| self.of(&schema["items"], name)).collect()
            }
            _ => self.object(schema),
        }
    }

    fn object(&self, schema: &Value) -> Value {
        let needed: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let fields = schema["properties"].as_object().into_iter().flatten();
        let named =
            fields.filter(|(name, _)| needed.contains(&name.as_str()) || ["session", "cwd"].contains(&name.as_str()));
        named.map(|(name, schema)| (name.clone(), self.of(schema, name))).collect()
    }
}

async fn hello(wire: &mut Wire, token: Option<String>, behind: Option<Behind>) {
    let hello = Hello { client: "test".to_owned(), protocol: linger_protocol::PROTOCOL, token, behind, gateway: None };
    assert_eq!(wire.call("daemon/hello", &serde_json::to_value(hello).unwrap()).await, None);
}

fn process(pid: u32) -> Authority {
    Authority::Peer(Peer { pid: Some(pid), began: peer::started(pid), uid: peer::user(pid).unwrap() })
}

/// A child of the daemon that ends with its input.
async fn child(services: &Services, started_for: StartedFor) -> Server {
    let env = BTreeMap::from_iter([("PATH".to_owned(), std::env::var("PATH").unwrap())]);
    let children = services.env().calls.children.clone();
    let spawn = Spawn { cwd: "/".into(), env: Arc::new(env), children, started_for };
    spawn.server("cat", &[] as &[&str]).await.unwrap()
}

async fn create(user: &mut Wire, dir: &Path) -> SessionId {
    let created = user.answer("session/create", &json!({ "cwd": dir, "model": "demo" })).await;
    created["result"]["session"].as_str().unwrap().into()
}

fn is_refusal(error: &Value) -> bool {
    let code = error["code"].as_i64().unwrap();
    [Code::NotAllowed, Code::Unauthorized].iter().any(|refusal| *refusal as i64 == code)
        // Its answer to a wrong code.
        && !error["message"].as_str().unwrap().starts_with("the code is unknown")
}

#[tokio::test]
async fn each_method_takes_its_callers_and_refuses_all_others() {
    let dir = tempfile::tempdir().unwrap();
    let services = Services::open(Setup::of(Places::below(dir.path()).unwrap()), CancellationToken::new()).unwrap();
    drop(services.search.start(&services.store));
    let mut connections = Connections::new(services.clone(), methods(services.clone()).unwrap());
    let mut user = Wire::open(&mut connections, process(parent_id())).await;
    let (own, other) = (create(&mut user, dir.path()).await, create(&mut user, dir.path()).await);

    let tool = child(&services, StartedFor::Session(own.clone())).await;
    let grant = json!({ "name": "server", "can": ["observe", "speak"], "expires_at": u64::MAX });
    let grant: Grant = serde_json::from_value(grant).unwrap();
    let server = child(&services, StartedFor::Server(Arc::new(grant))).await;
    let unknown = Peer { pid: None, began: None, uid: 0 };
    let mut wires = vec![user];
    for authority in
        [process(tool.life.pid), process(std::process::id()), Authority::Peer(unknown), Authority::Session(own.clone())]
    {
        wires.push(Wire::open(&mut connections, authority).await);
    }
    for mint in [
        json!({ "name": "observer", "can": ["observe"] }),
        json!({ "name": "partial", "can": ["observe", "speak", "steer", "answer_edits", "answer_commands"], "sessions": [own] }),
        json!({ "name": "full", "can": ["observe", "speak", "steer", "answer_edits", "answer_commands", "administer"] }),
    ] {
        let mint = serde_json::from_value(mint).unwrap();
        let me = crate::service::Caller::new(Authority::Daemon);
        let token = crate::service::token::mint(&services, &me, mint).await.unwrap().token;
        let mut wire = Wire::open(&mut connections, process(parent_id())).await;
        hello(&mut wire, Some(token), None).await;
        wires.push(wire);
    }
    let mut face = Wire::open(&mut connections, process(parent_id())).await;
    hello(&mut face, None, Some(Behind { pid: Some(parent_id()), user: None })).await;
    let mut speaking = Wire::open(&mut connections, process(server.life.pid)).await;
    hello(&mut speaking, None, None).await;
    wires.extend([face, speaking]);

    let schema = linger_protocol::schema::protocol();
    let example = Example { schema: &schema, session: other.as_str(), dir: dir.path() };
    let mut found = String::new();
    for (method, types) in schema["methods"].as_object().unwrap() {
        let params = example.of(&types["params"], "");
        let mut row = String::new();
        for (at, wire) in wires.iter_mut().enumerate() {
            let gate = wire.call(method, &json!([7])).await.unwrap();
            let passes = gate["code"] == INVALID_PARAMS;
            assert!(passes || is_refusal(&gate), "{method} for {}: {gate}", CALLERS[at]);
            let is_limited = passes && !UNLIMITED.contains(&at);
            let is_refused = is_limited && wire.call(method, &params).await.is_some_and(|error| is_refusal(&error));
            row.push(if !passes {
                '-'
            } else if is_refused {
                's'
            } else {
                'y'
            });
        }
        found += &format!("    (\"{method}\", \"{row}\"),\n");
    }
    let expected: String = MAY.iter().map(|(method, row)| format!("    (\"{method}\", \"{row}\"),\n")).collect();
    assert!(found == expected, "the columns: {CALLERS:#?}\nthe table is\n{found}");
    connections.shutdown().await;
    services.registry.pause().await;
    services.store.close().await.unwrap();
}
