//! The conformance suite of MCP's authors, in both roles and both eras of the protocol.
//!
//! The suite runs a server for each of its scenarios and a program that is told its address ([`Scenario`]). That program asks this
//! test, which has a daemon use the server as a person would: a login, a turn with a call of each tool, the answer to a question.
//! `data/conformance.yml` has the failures that are expected, with the reason for each; one that passes fails the test.

use std::io::BufRead as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::rc::Rc;

use linger_tests::harness::{Client, Daemon, Dirs, Setup, profile, programs};
use linger_tests::model::{ModelServer, Recorded, Reply};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::task::{LocalSet, spawn_local};

/// How many scenarios have a daemon at once; the suite begins all of them together.
const AT_ONCE: usize = 2;

/// How long a scenario may take, in milliseconds, with those that it waits for.
const LIMIT_MS: &str = "300000";

/// How often a person logs in again because a server wants more.
const LOGINS: usize = 3;

/// Extensions of the protocol that linger does not have; the suite counts none of them.
const EXTENSIONS: [&str; 6] = [
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "auth/enterprise-managed-authorization",
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/wif-jwt-bearer",
];

/// The scenarios for servers that ask for what `linger mcp serve` has: tools of its own, and neither the suite's nor resources and
/// prompts. What a scenario wants of HTTP is that of a bridge, `data/bridge.py`.
const OF_SERVERS: [(&str, &str); 7] = [
    ("server-initialize", "2025-11-25"),
    ("server-session-lifecycle", "2025-11-25"),
    ("ping", "2025-11-25"),
    ("tools-list", "2025-11-25"),
    ("tools-list", "2026-07-28"),
    ("server-stateless", "2026-07-28"),
    ("caching", "2026-07-28"),
];

/// A scenario whose server runs.
#[derive(Deserialize)]
struct Scenario {
    scenario: String,
    /// Where its server is.
    url: String,
    /// The revision of the protocol that it speaks.
    protocol: String,
    /// What a person would know: a registered client, the arguments of calls.
    context: Value,
}

/// Where `.ci/run` puts the suite; nothing where it is not, which is said.
fn installed() -> Option<PathBuf> {
    let place = std::env::var_os("LINGER_MCP_CONFORMANCE").map(PathBuf::from);
    let place = place.unwrap_or_else(|| profile().parent().unwrap().join("mcp-conformance"));
    if place.join("installed").exists() {
        return Some(place);
    }
    assert!(std::env::var_os("CI").is_none(), "{} is not there: see tests/README.md", place.display());
    eprintln!("not run: {} is not there; tests/README.md says how to install it", place.display());
    None
}

/// Runs the suite, with what is expected to fail.
#[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
async fn suite(place: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(place.join("node"));
    command.arg(place.join("node_modules/@modelcontextprotocol/conformance/dist/index.js")).args(args);
    command.args(["--timeout", LIMIT_MS, "--expected-failures"]);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/data/conformance.yml"));
    if let Some(results) = std::env::var_os("LINGER_CONFORMANCE_RESULTS") {
        command.arg("--output-dir").arg(results);
    }
    command.env("NO_COLOR", "1").kill_on_drop(true).stdin(Stdio::null());
    command.output().await.unwrap()
}

/// Panics with the end of what the suite said, unless all went as expected.
#[track_caller]
fn passed(run: &Output) {
    let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    let lines: Vec<&str> = said.lines().collect();
    assert!(run.status.success(), "{}", lines[lines.len().saturating_sub(80)..].join("\n"));
}

/// The scenarios for clients that this revision of the protocol requires.
async fn client_scenarios(revision: &str) {
    let Some(place) = installed() else { return };
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("test");
    let listener = UnixListener::bind(&socket).unwrap();
    let serving = async move {
        let places = Rc::new(Semaphore::new(AT_ONCE));
        while let Ok((stream, _)) = listener.accept().await {
            let places = places.clone();
            spawn_local(async move {
                let _place = places.acquire().await;
                answer(stream).await;
            });
        }
    };
    let command =
        format!("python3 {} {}", concat!(env!("CARGO_MANIFEST_DIR"), "/data/conformance.py"), socket.display());
    let args = ["client", "--requirements", revision, "--command", &command];
    LocalSet::new()
        .run_until(async {
            spawn_local(serving);
            passed(&suite(&place, &args).await);
        })
        .await;
}

/// Tells the suite's program why a scenario failed, if it did.
async fn answer(stream: UnixStream) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    let scenario: Scenario = serde_json::from_str(&line).unwrap();
    // A panic of the test is a client that failed.
    let ended = spawn_local(run(scenario)).await;
    let why = ended.err().map(|error| error.to_string()).unwrap_or_default();
    // The suite may have given up.
    let _gone = stream.get_mut().write_all(why.as_bytes()).await;
}

/// Uses the server of a scenario.
async fn run(Scenario { scenario, url, protocol, context }: Scenario) {
    if EXTENSIONS.contains(&scenario.as_str()) {
        return;
    }
    let planned = context["toolCalls"].clone();
    let model = ModelServer::scripted(move |request| next_call(request, &planned));
    let client_of = |key: &str| context[key].as_str().map(|value| format!("{key} = {value:?}\n")).unwrap_or_default();
    let registered = if scenario.ends_with("-cimd") {
        // The suite knows this one.
        "client_id = \"https://conformance-test.local/client-metadata.json\"\n".to_owned()
    } else {
        ["client_id", "client_secret", "issuer"].into_iter().map(client_of).collect()
    };
    let oauth = if registered.is_empty() { registered } else { format!("[mcp.c.oauth]\n{registered}") };
    let config = format!("[mcp.c]\nurl = {url:?}\nprotocol = {protocol:?}\n{oauth}");
    let daemon = Daemon::start_with(&model, Setup { mode: "auto", config, ..Setup::default() }).await;
    let browser = browser(&daemon);
    let row = async || daemon.cli(&["mcp", "list", "--json"]).run().await.exits(0).json()[0].clone();
    daemon.cli(&["mcp", "test", "c"]).run().await;
    for _ in 0..LOGINS {
        let wants = row().await;
        if wants["state"] == "needs_login" {
            // The suite knows whether it should have failed.
            daemon.cli(&["mcp", "login", "c"]).env("BROWSER", &browser).run().await;
        }
        let client = daemon.client().await;
        turn(&client).await;
        if row().await["state"] != "needs_login" {
            break;
        }
    }
}

/// A turn in a new session; each question is answered with what it suggests.
async fn turn(client: &Client) {
    let session = client.session().await;
    client.prompt(&session, "go").await;
    let mut asked = 0;
    loop {
        let next = client.wait("a question or the end", |seen| {
            let ended = seen.of("turn_finished").any(|seen| seen.session == session);
            let question = seen.of("question_asked").filter(|seen| seen.session == session).nth(asked);
            if ended { Some(None) } else { question.map(|seen| Some(seen.event["question"].clone())) }
        });
        let Some(question) = next.await else { break };
        asked += 1;
        client.call("question/answer", json!({ "question": question, "answer": "accept", "value": {} })).await;
    }
}

/// Calls each tool of the server once, one after the other.
fn next_call(request: &Recorded, planned: &Value) -> Reply {
    let done = request.list().iter().filter(|message| message["role"] == "tool").count();
    let tools = request.json["tools"].as_array().into_iter().flatten().map(|tool| &tool["function"]);
    let tools: Vec<&Value> =
        tools.filter(|tool| tool["name"].as_str().unwrap_or_default().starts_with("mcp__c__")).collect();
    let Some(tool) = tools.get(done) else { return Reply::text("done") };
    let name = tool["name"].as_str().unwrap();
    let own = name.trim_start_matches("mcp__c__");
    let arguments = planned.as_array().into_iter().flatten().find(|call| call["name"] == own);
    let arguments = arguments.map_or_else(|| some(&tool["parameters"]), |call| call["arguments"].clone());
    Reply::tool(name, arguments)
}

/// Arguments of the types that the schema wants.
fn some(schema: &Value) -> Value {
    let value = |schema: &Value| match schema["type"].as_str() {
        Some("number" | "integer") => json!(2),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        Some("null") => Value::Null,
        _ => json!("x"),
    };
    let properties = schema["properties"].as_object().into_iter().flatten();
    Value::Object(properties.map(|(name, schema)| (name.clone(), value(schema))).collect::<Map<_, _>>())
}

/// A browser whose user agrees to everything.
fn browser(daemon: &Daemon) -> String {
    let path = daemon.dirs.root().join("browser");
    let script = "#!/usr/bin/env python3\nimport sys, urllib.request\nurllib.request.urlopen(sys.argv[1]).read()\n";
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn lingers_tools_as_a_server_of_both_revisions() {
    let Some(place) = installed() else { return };
    let bridge = Bridge::start();
    for (scenario, revision) in OF_SERVERS {
        let args = ["server", "--url", &bridge.url, "--scenario", scenario, "--spec-version", revision];
        passed(&suite(&place, &args).await);
    }
}

/// `linger mcp serve` behind HTTP; both end when dropped.
struct Bridge {
    url: String,
    child: std::process::Child,
    _dirs: Dirs,
}

impl Bridge {
    #[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
    fn start() -> Self {
        let dirs = Dirs::default();
        let mut command = std::process::Command::new("python3");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/data/bridge.py")).arg(&programs().client);
        command.args(["mcp", "serve"]).env_clear().envs(dirs.env()).current_dir(dirs.workspace());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { url: url.trim().to_owned(), child, _dirs: dirs }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

#[tokio::test]
async fn a_client_of_2025_11_25() {
    client_scenarios("2025-11-25").await;
}

#[tokio::test]
async fn a_client_of_2026_07_28() {
    client_scenarios("2026-07-28").await;
}
