//! The scripted model of the torture: what it answers depends on the request alone, so that a step which is repeated goes on.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::model::{Recorded, Reply};

/// Text in many deltas; then two calls that read; then one that appends a line of its own to `effects`; then an end.
pub(super) fn answers(effects: PathBuf) -> impl FnMut(&Recorded) -> Reply + Send + 'static {
    move |request| {
        let words = format!("answer {}: ", request.number) + &"a few words more, ".repeat(6);
        let reply = Reply::new().text_in_deltas(&words, 7);
        match results(&request.json) {
            0 => reply.and_tool("ls", json!({ "path": "." })).and_tool("read", json!({ "path": "notes.txt" })),
            2 => {
                let line = format!("line-{}", request.number);
                let command = format!("echo {line} >> {}; sleep 0.004; echo done", effects.display());
                reply.and_tool("bash", json!({ "command": command }))
            }
            _ => reply,
        }
    }
}

/// The results that a request ends in.
fn results(body: &Value) -> usize {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    messages.iter().rev().take_while(|message| message["role"] == "tool").count()
}
