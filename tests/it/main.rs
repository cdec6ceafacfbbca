//! linger end to end: the real programs, real sockets, a scripted model; one binary, a file an area.
//!
//! Each test has a daemon and a model server of its own. A test that ends well ends in `daemon.check(…)`: whatever it was
//! about, what must always hold is checked too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A panic is how a test speaks.

mod aimock;
mod batch;
mod beside_events;
mod blobs;
mod bounds;
mod catalogue;
mod cli;
mod client_survives;
mod compaction;
mod configuration;
mod corpus;
mod crash;
mod daemon_command;
mod damage;
mod docs;
mod full_disk;
mod hosted;
mod hostile;
mod idempotency;
mod keeper;
mod keys;
mod large;
mod lost_events;
mod lost_page;
mod manual;
mod matrix;
mod matrix_turns;
mod network;
mod no_file;
mod permission;
mod pictures;
mod power;
mod provider_faults;
mod providers;
mod question;
mod races;
mod replay;
mod retry;
mod schema;
mod slow_client;
mod space;
mod storage;
mod suspend;
mod terminal;
mod turn;
mod turn_cancel;
mod usage;
mod versions;
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
    request.after_tool()
}

/// The text of a user's last message.
fn last_words(request: &Recorded) -> String {
    request.last_words()
}

/// How often something is to be done: what the variable says, or as usual.
fn wanted(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// Answers a permission; gives what the daemon said.
async fn answer(client: &Client, permission: &str, decision: &str) -> Value {
    client.call("permission/answer", json!({ "permission": permission, "decision": decision })).await
}

/// What a client saw without a prompt's keys: kinds of durable events after the session came to be.
fn story(transcript: &Transcript, session: &str) -> Vec<String> {
    transcript.kinds(session).into_iter().filter(|kind| *kind != "session_created").map(str::to_owned).collect()
}
