//! OpenAI's Chat Completions, with the thinking of compatible servers.

use serde_json::{Value, json};

use super::super::reply::Reply;
use super::{Out, Piece, Voice, halves};

/// One response.
#[derive(Default)]
pub(super) struct Chat;

fn chunk(out: &mut Out<'_>, choices: Value, usage: Option<Value>) {
    let mut data = json!({
        "id": format!("chatcmpl-{:06}", out.number), "object": "chat.completion.chunk", "created": 1_760_000_000,
        "model": out.model, "service_tier": "default", "system_fingerprint": null, "choices": choices,
    });
    data["usage"] = usage.unwrap_or(Value::Null);
    out.data(&data);
}

fn delta(out: &mut Out<'_>, delta: Value) {
    chunk(out, json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": null }]), None);
}

impl Voice for Chat {
    fn begin(&mut self, out: &mut Out<'_>, _reply: &Reply) {
        delta(out, json!({ "role": "assistant", "content": "", "refusal": null }));
    }

    fn text(&mut self, out: &mut Out<'_>, text: &str) {
        delta(out, json!({ "content": text }));
    }

    fn thinking(&mut self, out: &mut Out<'_>, text: &str, _signature: Option<&str>) {
        out.issued.thinking.push((text.to_owned(), String::new()));
        delta(out, json!({ "reasoning_content": text }));
    }

    fn tool(&mut self, out: &mut Out<'_>, name: &str, arguments: &str) {
        let nth = out.calls();
        let id = format!("call_{:06}x{nth}", out.number);
        out.issue_call(&id, name, arguments);
        let function = json!({ "name": name, "arguments": "" });
        delta(out, json!({ "tool_calls": [{ "index": nth, "id": id, "type": "function", "function": function }] }));
        let (first, second) = halves(arguments);
        for piece in [first, second] {
            delta(out, json!({ "tool_calls": [{ "index": nth, "function": { "arguments": piece } }] }));
        }
    }

    fn error(&mut self, out: &mut Out<'_>, kind: &str, message: &str) {
        out.data(&json!({ "error": { "message": message, "type": kind, "code": kind } }));
    }

    fn end(&mut self, out: &mut Out<'_>, reply: &Reply) {
        let finish = match reply.stop_reason() {
            "tool_use" => "tool_calls",
            "max_tokens" => "length",
            "refusal" => "content_filter",
            _ => "stop",
        };
        chunk(out, json!([{ "index": 0, "delta": {}, "logprobs": null, "finish_reason": finish }]), None);
        let usage = reply.usage;
        let input = usage.prompt();
        let tokens = json!({
            "prompt_tokens": input, "completion_tokens": usage.output, "total_tokens": input + usage.output,
            "prompt_tokens_details": { "cached_tokens": usage.cached, "cache_write_tokens": usage.written },
            "completion_tokens_details": { "reasoning_tokens": usage.reasoning },
        });
        chunk(out, json!([]), Some(tokens));
        out.pieces.push(Piece::Bytes(b"data: [DONE]\n\n".to_vec()));
    }
}
