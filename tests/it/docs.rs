//! The examples of `protocol/README.md` are true.
//!
//! Its blocks marked `jsonl` are one conversation: each line that begins with `→ ` is sent to a real daemon as it stands, and
//! each that begins with `← ` is awaited, an answer by its `id`, an event by its kind. What comes must have every field that is
//! shown, with a value of the same type; `kind`, `method`, `code`, `outcome`, `stop_reason` and the like must be equal.
//! Values that the daemon gives (`s1`, `q1`) and the directory (`/home/u/p`) are replaced as the conversation goes on.
//! Its blocks marked `json` are single events, which must be known to the types.

use std::collections::{BTreeMap, BTreeSet};

use linger_protocol::event::{Event, EventBody};
use linger_protocol::method::{Visitor, each_method};
use linger_tests::harness::{Daemon, Raw};
use linger_tests::model::ModelServer;
use linger_tests::wire::{fields_once, fits_schema};
use serde_json::Value;
use tokio::time::timeout;

/// Fields whose value matters, not only its type.
const EXACT: &[&str] = &[
    "kind",
    "method",
    "jsonrpc",
    "code",
    "type",
    "role",
    "outcome",
    "stop_reason",
    "decision",
    "mode",
    "when",
    "state",
    "tool",
    "action",
    "name",
    "text",
    "seq",
    "prompt",
    "message",
    "call_id",
    "turn",
    "by",
    "grant",
    "options",
    "steps",
];

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocol/README.md");
    std::fs::read_to_string(path).unwrap()
}

/// The bodies of the fenced blocks with this mark.
fn blocks<'a>(document: &'a str, mark: &str) -> Vec<&'a str> {
    let open = format!("```{mark}\n");
    document.split(&open).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// What stands for what: what the document says, what the daemon said.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    fn put_in(&self, text: &str) -> String {
        self.0
            .iter()
            .fold(text.to_owned(), |text, (said, real)| text.replace(&format!("\"{said}\""), &format!("\"{real}\"")))
    }

    /// Holds what came against what is shown; says where they differ.
    fn fits(&mut self, shown: &Value, came: &Value, at: &str) -> Result<(), String> {
        let differ = || Err(format!("{at}: the document shows {shown}, the daemon sent {came}"));
        match (shown, came) {
            (Value::Object(shown), Value::Object(came)) => shown.iter().try_for_each(|(key, shown)| {
                let at = format!("{at}.{key}");
                let Some(came) = came.get(key) else { return Err(format!("{at} is missing")) };
                self.fits(shown, came, &at)
            }),
            (Value::Array(shown), Value::Array(came)) => match shown.first() {
                None => Ok(()),
                Some(_) if at.ends_with(".env") || at.ends_with(".keys") => {
                    if shown.iter().all(|name| came.contains(name)) { Ok(()) } else { differ() }
                }
                Some(first) => match came.first() {
                    Some(row) => self.fits(first, row, &format!("{at}[0]")),
                    None => differ(),
                },
            },
            (Value::String(said), Value::String(real)) => {
                let field = at.rsplit('.').next().unwrap_or_default();
                if at.ends_with("event.text") && real.starts_with(said.as_str()) {
                    // A machine that is busy shows two deltas as one.
                    return Ok(());
                }
                let given = ["session", "permission", "question"].contains(&field);
                if given {
                    let known = self.0.entry(said.clone()).or_insert_with(|| real.clone());
                    return if known == real { Ok(()) } else { differ() };
                }
                let exact = EXACT.contains(&field) && !said.contains('…') && !at.contains("error");
                if !exact || self.put_in(&format!("\"{said}\"")) == format!("\"{real}\"") { Ok(()) } else { differ() }
            }
            (Value::Number(said), Value::Number(real)) => {
                let field = at.rsplit('.').next().unwrap_or_default();
                if EXACT.contains(&field) && said != real { differ() } else { Ok(()) }
            }
            (Value::Bool(_), Value::Bool(_)) | (Value::Null, _) => Ok(()),
            _ => differ(),
        }
    }
}

/// Whether `came` is what `shown` waits for: the answer with its id, or an event of its kind.
fn is_awaited(shown: &Value, came: &Value) -> bool {
    match &shown["id"] {
        Value::Null => {
            let (shown, came) = (&shown["params"]["event"], &came["params"]["event"]);
            came.is_object() && shown["kind"] == came["kind"] && (shown["seq"].is_null() || shown["seq"] == came["seq"])
        }
        id => *id == came["id"],
    }
}

#[tokio::test]
async fn the_examples_of_the_protocol_are_true() {
    let model = ModelServer::start();
    let daemon = Daemon::start_with(&model, Default::default()).await;
    let mut raw = Raw::connect(&daemon.dirs.socket()).await;
    let mut names = Names::default();
    names.0.insert("/home/u/p".to_owned(), daemon.workspace().canonicalize().unwrap().to_string_lossy().into_owned());
    let document = document();
    let (mut waiting, mut sent) = (Vec::new(), BTreeSet::new());
    for line in blocks(&document, "jsonl").concat().lines() {
        fields_once(line.trim_start_matches(['→', '←'])).unwrap_or_else(|problem| panic!("{problem} in {line}"));
        if let Some(request) = line.strip_prefix("→ ") {
            let request = names.put_in(request);
            fits_schema(&serde_json::from_str(&request).unwrap()).unwrap();
            sent.insert(serde_json::from_str::<Value>(&request).unwrap()["method"].as_str().unwrap().to_owned());
            raw.send(format!("{request}\n")).await;
        } else if let Some(shown) = line.strip_prefix("← ") {
            let shown: Value = serde_json::from_str(shown).unwrap_or_else(|error| panic!("{error}: {shown}"));
            let came = loop {
                if let Some(at) = waiting.iter().position(|came| is_awaited(&shown, came)) {
                    break waiting.remove(at);
                }
                let next = timeout(linger_tests::TIMEOUT, raw.any_line()).await;
                let next = next.ok().flatten();
                waiting.push(next.unwrap_or_else(|| panic!("nothing like this came: {shown}\nbut {waiting:#?}")));
            };
            fits_schema(&came).unwrap();
            names.fits(&shown, &came, "").unwrap_or_else(|problem| panic!("{problem}\nin {shown}\nand {came}"));
        }
    }
    assert_eq!(sent, every_method(), "the document shows every method");
}

fn every_method() -> BTreeSet<String> {
    struct Collect(BTreeSet<String>);
    impl Visitor for Collect {
        fn method<P: schemars::JsonSchema, R: schemars::JsonSchema>(&mut self, name: &'static str) {
            self.0.insert(name.to_owned());
        }
    }
    let mut collect = Collect(BTreeSet::new());
    each_method(&mut collect);
    collect.0
}

/// Whether this machine has a program.
#[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
fn has(program: &str) -> bool {
    let found = std::process::Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

#[tokio::test]
#[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
async fn the_conversation_of_the_readme_works_with_nc_and_jq() {
    if !(has("nc") && has("jq")) {
        assert!(std::env::var_os("CI").is_none(), "install nc (netcat-openbsd) and jq");
        eprintln!("not run: this machine has no nc or no jq");
        return;
    }
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
    let script = blocks(&readme, "sh").into_iter().find(|block| block.contains("nc -U")).expect("a conversation");
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let programs = linger_tests::harness::programs().client.parent().unwrap().to_path_buf();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut bash = tokio::process::Command::new("bash");
    bash.args(["-c", script]).current_dir(daemon.workspace()).env_clear().envs(daemon.dirs.env()).env("PATH", path);
    let output = timeout(linger_tests::TIMEOUT, bash.kill_on_drop(true).output()).await.expect("it ends").unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let kinds: Vec<String> = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok()?["kind"].as_str().map(str::to_owned))
        .collect();
    let expect = ["session_created", "caught_up", "prompt_accepted", "turn_started", "message", "text_delta"];
    assert!(expect.iter().all(|kind| kinds.iter().any(|seen| seen == kind)), "{said}\n{complained}");
    assert_eq!(kinds.last().map(String::as_str), Some("turn_finished"), "{said}\n{complained}");
}

#[tokio::test]
#[allow(clippy::disallowed_methods)] // Tests own the processes that they start.
async fn the_background_block_of_the_readme_works_as_it_stands() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
    let script = blocks(&readme, "sh").into_iter().find(|block| block.contains("linger run -d")).expect("a block");
    let model = ModelServer::start();
    let daemon = Daemon::start(&model).await;
    let programs = linger_tests::harness::programs().client.parent().unwrap().to_path_buf();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let script = format!("set -x\n{script}");
    let mut bash = tokio::process::Command::new("bash");
    bash.args(["-c", &script]).current_dir(daemon.workspace()).env_clear().envs(daemon.dirs.env()).env("PATH", path);
    let output = timeout(linger_tests::TIMEOUT, bash.kill_on_drop(true).output()).await.expect("it ends").unwrap();
    let (printed, messages) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !messages.contains("error:"), "{printed}\n{messages}");
    assert!(printed.contains("sleep 2; date") && messages.contains("allowed"), "{printed}\n{messages}");
}

#[test]
fn every_kind_of_event_is_shown_and_known_to_the_types() {
    let document = document();
    let mut shown = BTreeSet::new();
    let live = blocks(&document, "jsonl").concat();
    let live = live.lines().filter_map(|line| line.strip_prefix("← ")).filter_map(|line| {
        let line = serde_json::from_str::<Value>(line).unwrap();
        // A completion belongs to no session, and its events are of their own types.
        let event = line["params"]["event"].clone();
        (event.is_object() && line["method"] != "completion/event").then_some(event)
    });
    let single = blocks(&document, "json").concat();
    let single = single.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    for event in live.chain(single) {
        let typed: Event = serde_json::from_value(event.clone()).unwrap_or_else(|error| panic!("{error}: {event}"));
        assert!(typed.body != EventBody::Unknown, "{event}");
        let again = serde_json::to_value(&typed).unwrap();
        let mut names = Names::default();
        names.fits(&event, &again, "").unwrap_or_else(|problem| panic!("the types lose something: {problem}"));
        shown.insert(event["kind"].as_str().unwrap().to_owned());
    }
    let table = document.split("| kind | fields |").nth(1).expect("a table of kinds");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let kinds = rows
        .flat_map(|row| row.split('|').nth(1).unwrap().split(',').map(|kind| kind.trim().trim_matches('`').to_owned()));
    assert_eq!(kinds.collect::<BTreeSet<_>>(), shown, "the table and the examples show the same kinds");
}

#[test]
fn the_table_of_events_names_every_field_of_the_types() {
    let document = document();
    let table = document.split("| kind | fields |").nth(1).expect("a table of kinds");
    let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    let schema = linger_protocol::schema::protocol();
    let types = &schema["$defs"];
    let fields = |variant: &Value| -> Vec<String> {
        let more = variant["$ref"].as_str().map(|name| &types[name.rsplit('/').next().unwrap_or_default()]);
        let all = [Some(variant), more].into_iter().flatten();
        all.flat_map(|it| it["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone())).collect()
    };
    let mut missing = Vec::new();
    for variant in types["Event"]["oneOf"].as_array().expect("kinds of event") {
        let Some(kind) = variant["properties"]["kind"]["const"].as_str().filter(|kind| *kind != "unknown") else {
            continue;
        };
        let row =
            rows.iter().find(|row| row.split('|').nth(1).is_some_and(|kinds| kinds.contains(&format!("`{kind}`"))));
        // What is the same as in the row above is not said again.
        let said =
            row.map_or_else(String::new, |row| row.replace("the same, and", "`message`, `block`, `offset`, `text`,"));
        let named = |field: &str| said.contains(&format!("`{field}`")) || said.contains(&format!("`{field}?`"));
        let unnamed = fields(variant).into_iter().filter(|field| field != "kind" && !named(field));
        missing.extend(unnamed.map(|field| format!("{kind}.{field}")));
    }
    assert!(missing.is_empty(), "{missing:?}");
}

/// All Rust sources of the workspace's members, one after the other.
fn sources() -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let dirs = ["daemon/src", "daemon/tests", "client/src", "client/tests", "protocol/src", "protocol/tests", "tests"];
    let (mut sources, mut left) = (String::new(), dirs.map(|dir| root.join(dir)).to_vec());
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
    sources
}

#[test]
fn the_tests_that_answer_a_complaint_are_there() {
    let read = |path: &str| std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let readme = read("README.md");
    let section = |title: &str| readme.split(title).nth(1).unwrap().split("\n## ").next().unwrap();
    let complaints = section("## What users of other agents complain about");
    let mut named: Vec<&str> = complaints.split('`').skip(1).step_by(2).filter(|name| !name.contains(' ')).collect();
    let findings = section("## What attack, bug reports and strangers' programs have shown");
    let columns = findings.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").nth(2));
    named.extend(columns.flat_map(|names| names.split('`').skip(1).step_by(2)));
    let tests = sources();
    let missing: Vec<_> = named.iter().filter(|name| !tests.contains(&format!("fn {name}("))).collect();
    assert!(named.len() > 300 && missing.is_empty(), "{} are named, and there is no {missing:?}", named.len());
}

#[test]
fn the_tests_that_hold_an_invariant_are_there() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = std::fs::read_to_string(root.join("daemon/README.md")).unwrap();
    let section = readme.split("\n## Invariants\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let named: Vec<&str> = section
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Tests: "))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect();
    let invariants = section.lines().filter(|line| line.starts_with("- ")).count();
    let sources = sources();
    let missing: Vec<_> = named.iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
    assert!(named.len() >= invariants && missing.is_empty(), "{} are named, and there is no {missing:?}", named.len());
}
