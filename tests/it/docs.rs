//! The examples of `protocol/README.md` are true: they are sent to a real daemon.
//!
//! The format: the document has a line `<!-- examples -->`, and after it fenced blocks that open with three backticks and
//! `json`. In a block each line that begins with `→ ` is sent as it stands (`jsonrpc` is added when it is left out), and each
//! line that begins with `← ` is expected: with an `id` the answer to that request, without one a notification, which may come
//! later than others. What is expected is compared by the keys that it has: an object must have each of them with a value that
//! fits, a list must be as long and fit item by item, a string or a number must be equal. `"…"` fits anything.
//! `E{…}` stands for `{"method":"session/event","params":{…}}` and `$NAME` (in a string, whole or in part) for a value:
//! expected for the first time it takes what comes, later it must be the same, and in what is sent it is put in.
//! `$CWD` is a directory that exists. Other lines are for people. Blocks share one connection and the values of names.
//! The model answers each prompt with `Good day`, or with a call of `bash` when the prompt contains `run`.

use std::collections::BTreeMap;

use linger_tests::harness::{Daemon, Raw};
use linger_tests::model::{ModelServer, Reply};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{after_tool, bash, last_words};

/// Where the examples begin.
const MARKER: &str = "<!-- examples -->";

/// A line of an example.
#[derive(Debug, PartialEq)]
enum Line {
    Send(Value),
    Expect(Value),
}

/// The blocks of examples in a document.
fn blocks(document: &str) -> Vec<Vec<Line>> {
    let (_, examples) =
        document.split_once(MARKER).unwrap_or_else(|| panic!("protocol/README.md has no line {MARKER}"));
    let mut blocks = Vec::new();
    for block in examples.split("```json\n").skip(1) {
        let body = block.split("```").next().unwrap_or_default();
        let lines: Vec<Line> = body.lines().filter_map(line).collect();
        if !lines.is_empty() {
            blocks.push(lines);
        }
    }
    blocks
}

fn line(line: &str) -> Option<Line> {
    if let Some(text) = line.strip_prefix("→ ") {
        return Some(Line::Send(read(text)));
    }
    let text = line.strip_prefix("← ")?;
    let Some(event) = text.strip_prefix('E').filter(|rest| rest.starts_with('{')) else {
        return Some(Line::Expect(read(text)));
    };
    Some(Line::Expect(json!({ "method": "session/event", "params": read(event) })))
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("an example is not JSON: {error}: {text}"))
}

type Names = BTreeMap<String, Value>;

/// Puts the values of names in.
fn fill(value: &Value, names: &Names) -> Value {
    match value {
        Value::String(text) => names.iter().fold(value.clone(), |filled, (name, known)| match (&filled, known) {
            _ if text == name => known.clone(),
            (Value::String(text), Value::String(known)) => Value::String(text.replace(name.as_str(), known)),
            _ => filled,
        }),
        Value::Array(items) => items.iter().map(|item| fill(item, names)).collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), fill(value, names))).collect(),
        _ => value.clone(),
    }
}

/// Whether `got` is what is expected; takes the values of new names.
fn fits(want: &Value, got: &Value, names: &mut Names) -> bool {
    match want {
        Value::String(text) if text == "…" => true,
        Value::String(text) if text.starts_with('$') => names.entry(text.clone()).or_insert_with(|| got.clone()) == got,
        Value::Array(items) => {
            let Value::Array(others) = got else { return false };
            items.len() == others.len() && items.iter().zip(others).all(|(a, b)| fits(a, b, names))
        }
        Value::Object(fields) => {
            fields.iter().all(|(key, value)| got.get(key).is_some_and(|got| fits(value, got, names)))
        }
        _ => want == got,
    }
}

#[tokio::test]
async fn the_examples_of_the_protocol_are_true() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocol/README.md");
    let document =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("protocol/README.md cannot be read: {error}"));
    let blocks = blocks(&document);
    assert!(!blocks.is_empty(), "protocol/README.md has no examples after {MARKER}");
    let model = ModelServer::scripted(|request| {
        let run = last_words(request).contains("run") && !after_tool(request);
        if run { bash("echo ran") } else { Reply::text("Good d").and_text("ay") }
    });
    let daemon = Daemon::start(&model).await;
    let mut raw = Raw::connect(&daemon.dirs.socket()).await;
    let mut names = Names::from([("$CWD".to_owned(), json!(daemon.workspace()))]);
    let mut came: Vec<Value> = Vec::new();
    for line in blocks.iter().flatten() {
        match line {
            Line::Send(request) => {
                let mut request = fill(request, &names);
                request["jsonrpc"] = json!("2.0");
                raw.send(format!("{request}\n")).await;
            }
            Line::Expect(want) => expect(want, &mut raw, &mut came, &mut names).await,
        }
    }
}

/// Reads until something fits; what came before it is kept for the expectations that follow.
async fn expect(want: &Value, raw: &mut Raw, came: &mut Vec<Value>, names: &mut Names) {
    let want = fill(want, names);
    loop {
        let known = came.iter().position(|got| fits(&want, got, &mut names.clone()));
        if let Some(at) = known {
            fits(&want, &came.remove(at), names);
            return;
        }
        let Ok(next) = timeout(linger_tests::TIMEOUT, raw.any_line()).await else {
            panic!("expected {want}; what came:\n{}", came.iter().map(|got| format!("  {got}\n")).collect::<String>());
        };
        let next = next.unwrap_or_else(|| panic!("the daemon hung up before {want}"));
        let answers = want.get("id").is_some() && next.get("id") == want.get("id");
        assert!(!answers || fits(&want, &next, &mut names.clone()), "expected {want}, came {next}");
        came.push(next);
    }
}

#[test]
fn examples_are_read_as_they_are_described() {
    let document = format!(
        "→ not yet\n{MARKER}\ntext\n```json\n→ {{\"id\":1}}\nwords\n← E{{\"cursor\":\"…\"}}\n```\n```sh\n→ no\n```\n```json\n← {{\"id\":1}}\n```\n"
    );
    let event = json!({ "method": "session/event", "params": { "cursor": "…" } });
    let want = vec![vec![Line::Send(json!({ "id": 1 })), Line::Expect(event)], vec![Line::Expect(json!({ "id": 1 }))]];
    assert_eq!(blocks(&document), want);
    let mut names = Names::new();
    assert!(fits(&json!({ "a": "$A", "b": "…" }), &json!({ "a": 1, "b": [2], "c": 3 }), &mut names));
    assert!(!fits(&json!({ "a": "$A" }), &json!({ "a": 2 }), &mut names));
    assert!(!fits(&json!([1]), &json!([1, 2]), &mut names));
    assert_eq!(fill(&json!({ "x": ["$A", "n$A"] }), &names), json!({ "x": [1, "n$A"] }));
}
