//! What the tests of programs and those within their own process share. `crate::Daemon` is the kind of daemon that they have.

pub(crate) mod batch;
pub(crate) mod compaction;
pub(crate) mod configuration;
pub(crate) mod hosted;
pub(crate) mod matrix_turns;
pub(crate) mod mcp;
pub(crate) mod permission;
pub(crate) mod provider_faults;
pub(crate) mod providers;
pub(crate) mod replay;
pub(crate) mod schema;
pub(crate) mod storage;
pub(crate) mod turn_cancel;
pub(crate) mod usage;
pub(crate) mod wire;

use linger_tests::check::Transcript;
use linger_tests::harness::Client;
use linger_tests::model::{Recorded, Reply};
use serde_json::{Value, json};

/// A call of `bash`.
pub(crate) fn bash(command: &str) -> Reply {
    Reply::tool("bash", json!({ "command": command }))
}

/// Whether the last message of a request is the result of a tool.
pub(crate) fn after_tool(request: &Recorded) -> bool {
    request.after_tool()
}

/// The text of a user's last message.
pub(crate) fn last_words(request: &Recorded) -> String {
    request.last_words()
}

/// How often something is to be done: what the variable says, or as usual.
pub(crate) fn wanted(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// Answers a permission; gives what the daemon said.
pub(crate) async fn answer(client: &Client, permission: &str, decision: &str) -> Value {
    client.call("permission/answer", json!({ "permission": permission, "decision": decision })).await
}

/// What a client saw without a prompt's keys: kinds of durable events after the session came to be.
pub(crate) fn story(transcript: &Transcript, session: &str) -> Vec<String> {
    transcript.kinds(session).into_iter().filter(|kind| *kind != "session_created").map(str::to_owned).collect()
}
