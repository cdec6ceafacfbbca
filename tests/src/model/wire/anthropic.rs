//! Anthropic's Messages.

use serde_json::{Value, json};

use super::super::reply::{Ran, Reply, What};
use super::{Out, Voice, halves};

/// One response: blocks, of which text blocks stay open for more.
#[derive(Default)]
pub(super) struct Messages {
    open: bool,
    blocks: usize,
    /// What the last search found: what is said after it cites that.
    found: Option<Value>,
    searches: usize,
    /// Code ran in a container.
    ran_code: bool,
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
        if let Some(citation) = self.found.clone() {
            self.close(out);
            self.start(out, json!({ "type": "text", "text": "", "citations": [] }));
            self.delta(out, json!({ "type": "text_delta", "text": text }));
            self.delta(out, json!({ "type": "citations_delta", "citation": citation }));
            return self.stop(out);
        }
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

    fn ran(&mut self, out: &mut Out<'_>, ran: &Ran) {
        self.close(out);
        let id = format!("srvtoolu_{}", ran.id());
        let (name, argument) = match &ran.what {
            What::Search(_) => ("web_search", "query"),
            What::Code(_) => ("bash_code_execution", "command"),
        };
        if ran.call {
            let block = |input: Value| json!({ "type": "server_tool_use", "id": id, "name": name, "input": input, "caller": { "type": "direct" } });
            self.start(out, block(json!({})));
            let input = json!({ argument: ran.asked });
            let arguments = input.to_string();
            let (first, second) = halves(&arguments);
            for piece in ["", first, second] {
                self.delta(out, json!({ "type": "input_json_delta", "partial_json": piece }));
            }
            self.stop(out);
            out.issued.ran.push(block(input).to_string());
            self.searches += usize::from(name == "web_search");
        }
        if !ran.result {
            return;
        }
        let content = match &ran.what {
            What::Search(found) => {
                let page = |(title, url): &(String, String)| json!({ "type": "web_search_result", "title": title, "url": url, "encrypted_content": ran.secret(), "page_age": null });
                self.found = found.first().map(|(title, url)| {
                    json!({ "type": "web_search_result_location", "cited_text": "so it is", "url": url, "title": title,
                        "encrypted_index": ran.secret() })
                });
                found.iter().map(page).collect::<Value>()
            }
            What::Code(output) => {
                self.ran_code = true;
                json!({ "type": "bash_code_execution_result", "stdout": output, "stderr": "", "return_code": 0, "content": [] })
            }
        };
        let block = json!({ "type": format!("{name}_tool_result"), "tool_use_id": id, "content": content });
        out.issued.ran.push(block.to_string());
        self.start(out, block);
        self.stop(out);
    }

    fn error(&mut self, out: &mut Out<'_>, kind: &str, message: &str) {
        out.event("error", &json!({ "type": "error", "error": { "type": kind, "message": message } }));
    }

    fn end(&mut self, out: &mut Out<'_>, reply: &Reply) {
        self.close(out);
        let mut usage = json!({ "input_tokens": reply.usage.input, "cache_read_input_tokens": reply.usage.cached,
            "output_tokens": reply.usage.output,
            "output_tokens_details": { "thinking_tokens": reply.usage.reasoning } });
        if self.searches > 0 {
            usage["server_tool_use"] = json!({ "web_search_requests": self.searches, "web_fetch_requests": 0 });
        }
        let mut delta = json!({ "stop_reason": reply.stop_reason(), "stop_sequence": null });
        if self.ran_code {
            delta["container"] =
                json!({ "id": format!("container_{:06}", out.number), "expires_at": "2026-12-21T00:00:00Z" });
        }
        out.event(
            "message_delta",
            &json!({
                "type": "message_delta", "delta": delta,
                "usage": usage,
            }),
        );
        out.event("message_stop", &json!({ "type": "message_stop" }));
    }
}
