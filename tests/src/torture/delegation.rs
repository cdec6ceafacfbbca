//! Delegation: what a hub's model says, and what those of its children say.
//!
//! A prompt whose first word is `delegate` is answered with two calls of `delegate`; each child runs a command that appends its task
//! to the file of side effects, and answers in the form that is asked for.

use std::path::Path;

use serde_json::json;

use super::questions::steps;
use crate::model::{Recorded, Reply};

/// The first word of a child's task, by which its requests are known.
const TASK: &str = "task";

/// What a model says to a prompt that makes it delegate, and as a child; nothing for any other prompt.
pub(super) fn delegates(effects: &Path, request: &Recorded) -> Option<Reply> {
    let words = request.last_words();
    let line = words.lines().next().unwrap_or_default();
    let steps = steps(&request.json);
    match line.split(' ').next().unwrap_or_default() {
        "delegate" if steps == 0 => {
            let task = |side: &str| json!({ "agent": "general", "task": format!("{TASK} {side} of {line}") });
            Some(Reply::tool("delegate", task("left")).and_tool("delegate", task("right")))
        }
        "delegate" => Some(Reply::text("both are in")),
        TASK if steps == 0 => {
            let command = format!("echo {} >> {}; sleep 0.004; echo done", line.replace(' ', "-"), effects.display());
            Some(Reply::tool("bash", json!({ "command": command })))
        }
        TASK => {
            let answer = json!({ "answer": line, "sources": [], "confidence": "high", "caveats": [] });
            Some(Reply::text(answer.to_string()))
        }
        _ => None,
    }
}
