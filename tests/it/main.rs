//! linger end to end: the real programs, real sockets, a scripted model; one binary, a file an area.
//!
//! Each test has a daemon and a model server of its own. A test that ends well ends in `daemon.check(…)`: whatever it was
//! about, what must always hold is checked too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A panic is how a test speaks.

mod cli;
mod crash;
mod docs;
mod idempotency;
mod permission;
mod provider_faults;
mod replay;
mod slow_client;
mod space;
mod storage;
mod terminal;
mod turn;
mod turn_cancel;
mod wire;

use linger_tests::check::Transcript;
use linger_tests::harness::Client;
use linger_tests::model::{Recorded, Reply};
use serde_json::{Value, json};

/// A call of `bash`.
fn bash(command: &str) -> Reply {
    Reply::tool("bash", json!({ "command": command }))
}

/// Whether the last message of a request is the result of a tool.
fn after_tool(request: &Recorded) -> bool {
    let last = request.json["messages"].as_array().and_then(|messages| messages.last()).cloned().unwrap_or_default();
    last["role"] == "tool" || last["content"][0]["type"] == "tool_result"
}

/// The text of a user's last message.
fn last_words(request: &Recorded) -> String {
    let messages = request.json["messages"].as_array().cloned().unwrap_or_default();
    let last = messages.iter().rev().find(|message| message["role"] == "user").cloned().unwrap_or_default();
    match &last["content"] {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.last().and_then(|block| block["text"].as_str()).unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

/// Answers a permission; gives what the daemon said.
async fn answer(client: &Client, permission: &str, decision: &str) -> Value {
    client.call("permission/answer", json!({ "permission": permission, "decision": decision })).await
}

/// What a client saw without a prompt's keys: kinds of durable events after the session came to be.
fn story(transcript: &Transcript, session: &str) -> Vec<String> {
    transcript.kinds(session).into_iter().filter(|kind| *kind != "session_created").map(str::to_owned).collect()
}
