//! Anthropic's Messages.

use serde_json::{Value, json};

use super::super::reply::Reply;
use super::{Out, Voice, halves};

/// One response: blocks, of which text blocks stay open for more.
#[derive(Default)]
pub(super) struct Messages {
    open: bool,
    blocks: usize,
}

impl Messages {
    fn start(&mut self, out: &mut Out<'_>, block: Value) {
        let index = self.blocks;
        out.event(
            "content_block_start",
            &json!({ "type": "content_block_start", "index": index, "content_block": block }),
        );
    }

    fn delta(&mut self, out: &mut Out<'_>, delta: Value) {
        let index = self.blocks;
        out.event("content_block_delta", &json!({ "type": "content_block_delta", "index": index, "delta": delta }));
    }

    fn stop(&mut self, out: &mut Out<'_>) {
        let index = self.blocks;
        out.event("content_block_stop", &json!({ "type": "content_block_stop", "index": index }));
        self.blocks += 1;
    }

    fn close(&mut self, out: &mut Out<'_>) {
        if std::mem::take(&mut self.open) {
            self.stop(out);
        }
    }
}

impl Voice for Messages {
    fn begin(&mut self, out: &mut Out<'_>, reply: &Reply) {
        let usage = json!({
            "input_tokens": reply.usage.input, "cache_creation_input_tokens": reply.usage.written,
            "cache_read_input_tokens": reply.usage.cached, "output_tokens": 1, "service_tier": "standard",
        });
        let message = json!({
            "id": format!("msg_{:06}", out.number), "type": "message", "role": "assistant", "model": out.model,
            "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage,
        });
        out.event("message_start", &json!({ "type": "message_start", "message": message }));
        out.event("ping", &json!({ "type": "ping" }));
    }

    fn text(&mut self, out: &mut Out<'_>, text: &str) {
        if !std::mem::replace(&mut self.open, true) {
            self.start(out, json!({ "type": "text", "text": "" }));
        }
        self.delta(out, json!({ "type": "text_delta", "text": text }));
    }

    fn thinking(&mut self, out: &mut Out<'_>, text: &str, signature: Option<&str>) {
        out.issued.thinking.push((text.to_owned(), signature.unwrap_or_default().to_owned()));
        self.close(out);
        self.start(out, json!({ "type": "thinking", "thinking": "", "signature": "" }));
        self.delta(out, json!({ "type": "thinking_delta", "thinking": text }));
        if let Some(signature) = signature {
            self.delta(out, json!({ "type": "signature_delta", "signature": signature }));
        }
        self.stop(out);
    }

    fn tool(&mut self, out: &mut Out<'_>, name: &str, arguments: &str) {
        let id = format!("toolu_{:06}x{}", out.number, out.calls());
        out.issue_call(&id, name, arguments);
        self.close(out);
        self.start(out, json!({ "type": "tool_use", "id": id, "name": name, "input": {} }));
        let (first, second) = halves(arguments);
        for piece in ["", first, second] {
            self.delta(out, json!({ "type": "input_json_delta", "partial_json": piece }));
        }
        self.stop(out);
    }

    fn error(&mut self, out: &mut Out<'_>, kind: &str, message: &str) {
        out.event("error", &json!({ "type": "error", "error": { "type": kind, "message": message } }));
    }

    fn end(&mut self, out: &mut Out<'_>, reply: &Reply) {
        self.close(out);
        let usage = reply.usage;
        out.event(
            "message_delta",
            &json!({
                "type": "message_delta", "delta": { "stop_reason": reply.stop_reason(), "stop_sequence": null },
                "usage": { "input_tokens": usage.input, "cache_read_input_tokens": usage.cached,
                    "output_tokens": usage.output, "output_tokens_details": { "thinking_tokens": usage.reasoning } },
            }),
        );
        out.event("message_stop", &json!({ "type": "message_stop" }));
    }
}
