//! The scripted model of the torture: what it answers depends on the request alone, so that a step which is repeated goes on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{delegation, questions};
use crate::model::{Recorded, Reply};

/// What [`questions::asks`] or [`delegation::delegates`] says; else text in many deltas; then two calls that read; then one that appends a line of its own to `effects`; then an end.
pub(super) fn answers(effects: PathBuf) -> impl FnMut(&Recorded) -> Reply + Send + 'static {
    move |request| {
        let asked = questions::asks(request).or_else(|| delegation::delegates(&effects, request));
        asked.unwrap_or_else(|| step(&effects, request))
    }
}

/// As [`answers`], and what a prompt asks for by its first word: `plain` has no calls, `cut` breaks off the first time, `stall`
/// stops in mid-stream unless `open`, `loud` has so much output that it is too long, and no summary but where output is left out.
pub(super) fn on_request(effects: PathBuf, open: Arc<AtomicBool>) -> impl FnMut(&Recorded) -> Reply + Send + 'static {
    let mut cut = BTreeSet::new();
    move |request| {
        let words = last_words(&request.json);
        if request.is_summary() {
            let summary = "## Goal\nto be summarised";
            return if words.contains("loud") { Reply::new() } else { Reply::new().text_in_deltas(summary, 4) };
        }
        match words.split(' ').next().unwrap_or_default() {
            "plain" => Reply::new().text_in_deltas("as you like", 4),
            "cut" if cut.insert(words.clone()) => Reply::new().text_in_deltas("half of an answ", 4).cut(),
            "cut" => Reply::new().text_in_deltas("half of an answer and the other half", 4),
            "loud" if results(&request.json) == 0 => Reply::tool("read", json!({ "path": "loud.txt" })),
            "loud" if request.messages().contains("left out to make room") => Reply::text("that is it"),
            "loud" => {
                Reply::status(400).body(r#"{"error":{"code":"context_length_exceeded","message":"it is too long"}}"#)
            }
            "stall" if !open.load(Ordering::Relaxed) => Reply::new().text_in_deltas("well, ", 3).stall(),
            "stall" => Reply::new().text_in_deltas("well, that is it", 3),
            _ => step(&effects, request),
        }
    }
}

fn step(effects: &Path, request: &Recorded) -> Reply {
    // Where the step stands in the history: a step that is repeated asks for the same, and its effect must be there once.
    let place = request.json["messages"].as_array().map_or(0, Vec::len);
    let words = format!("answer {place}: ") + &"a few words more, ".repeat(6);
    let reply = Reply::new().text_in_deltas(&words, 7);
    match results(&request.json) {
        0 => reply.and_tool("ls", json!({ "path": "." })).and_tool("read", json!({ "path": "notes.txt" })),
        2 => {
            let command = format!("echo line-{place} >> {}; sleep 0.004; echo done", effects.display());
            reply.and_tool("bash", json!({ "command": command }))
        }
        _ => reply,
    }
}

/// The results that a request ends in.
fn results(body: &Value) -> usize {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    messages.iter().rev().take_while(|message| message["role"] == "tool").count()
}

/// What the user said last.
fn last_words(body: &Value) -> String {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let last = messages.iter().rev().find(|message| message["role"] == "user").map(|message| &message["content"]);
    match last {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            blocks.last().and_then(|block| block["text"].as_str()).unwrap_or_default().to_owned()
        }
        _ => String::new(),
    }
}
