//! Ollama's `/api/chat`: a line for each piece; calls come whole.

use serde_json::{Value, json};

use super::super::reply::Reply;
use super::{Out, Piece, Voice, object};

/// One response.
#[derive(Default)]
pub(super) struct Ollama;

fn line(out: &mut Out<'_>, data: &Value) {
    out.pieces.push(Piece::Bytes(format!("{data}\n").into_bytes()));
}

fn message(out: &mut Out<'_>, fields: Value) {
    let mut message = json!({ "role": "assistant", "content": "" });
    for (name, value) in fields.as_object().into_iter().flatten() {
        message[name] = value.clone();
    }
    let data = json!({ "model": out.model, "created_at": "2026-11-01T08:00:00.123456789Z", "message": message, "done": false });
    line(out, &data);
}

impl Voice for Ollama {
    fn begin(&mut self, _out: &mut Out<'_>, _reply: &Reply) {}

    fn text(&mut self, out: &mut Out<'_>, text: &str) {
        message(out, json!({ "content": text }));
    }

    fn thinking(&mut self, out: &mut Out<'_>, text: &str, _signature: Option<&str>) {
        out.issued.thinking.push((text.to_owned(), String::new()));
        message(out, json!({ "thinking": text }));
    }

    fn tool(&mut self, out: &mut Out<'_>, name: &str, arguments: &str) {
        let arguments = object(arguments);
        out.issue_call("", name, &arguments.to_string());
        message(out, json!({ "tool_calls": [{ "function": { "name": name, "arguments": arguments } }] }));
    }

    fn error(&mut self, out: &mut Out<'_>, _kind: &str, message: &str) {
        line(out, &json!({ "error": message }));
    }

    /// A call too ends in `stop`, and a refusal is not known.
    fn end(&mut self, out: &mut Out<'_>, reply: &Reply) {
        let reason = if reply.stop_reason() == "max_tokens" { "length" } else { "stop" };
        let usage = reply.usage;
        let data = json!({
            "model": out.model, "created_at": "2026-11-01T08:00:01.123456789Z", "message": { "role": "assistant", "content": "" },
            "done": true, "done_reason": reason, "total_duration": 1_000_000_000, "load_duration": 100_000_000,
            "prompt_eval_count": usage.prompt(), "prompt_eval_duration": 200_000_000, "eval_count": usage.output,
            "eval_duration": 700_000_000,
        });
        line(out, &data);
    }
}
