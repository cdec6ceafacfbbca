//! OpenAI's Responses: every event has its number, every item its beginning, its pieces and its end.

use serde_json::{Value, json};

use super::super::reply::{Ran, Reply, What};
use super::{Out, Voice, halves};

/// One response.
#[derive(Default)]
pub(super) struct Responses {
    /// The number of the next event.
    sequence: u64,
    /// The items that are whole.
    output: Vec<Value>,
    /// The text of the message that is open.
    open: Option<String>,
    /// What the last search found: what is said after it cites that.
    found: Option<(String, String)>,
}

impl Responses {
    fn event(&mut self, out: &mut Out<'_>, kind: &str, fields: Value) {
        let mut data = json!({ "type": kind });
        for (name, value) in fields.as_object().into_iter().flatten() {
            data[name] = value.clone();
        }
        data["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        out.event(kind, &data);
    }

    fn response(&self, out: &Out<'_>, status: &str, usage: Value) -> Value {
        json!({
            "id": format!("resp_{:06}", out.number), "object": "response", "created_at": 1_760_000_000, "status": status,
            "background": false, "error": null, "incomplete_details": null, "instructions": null, "max_output_tokens": null,
            "model": out.model, "output": self.output, "parallel_tool_calls": true, "previous_response_id": null,
            "reasoning": { "effort": "medium", "summary": null }, "service_tier": "default", "temperature": 1.0,
            "text": { "format": { "type": "text" } }, "tool_choice": "auto", "tools": [], "top_p": 1.0, "truncation": "disabled",
            "usage": usage, "user": null, "metadata": {},
        })
    }

    fn begin_item(&mut self, out: &mut Out<'_>, item: &Value) {
        let index = self.output.len();
        self.event(out, "response.output_item.added", json!({ "output_index": index, "item": item }));
    }

    fn end_item(&mut self, out: &mut Out<'_>, item: Value) {
        let index = self.output.len();
        self.event(out, "response.output_item.done", json!({ "output_index": index, "item": item }));
        self.output.push(item);
    }

    fn id(&self, out: &Out<'_>, what: &str) -> String {
        format!("{what}_{:06}x{}", out.number, self.output.len())
    }

    fn close(&mut self, out: &mut Out<'_>) {
        let Some(text) = self.open.take() else { return };
        let (id, index) = (self.id(out, "msg"), self.output.len());
        let place = json!({ "item_id": id, "output_index": index, "content_index": 0 });
        let with = |name: &str, value: Value| {
            let mut fields = place.clone();
            fields[name] = value;
            fields
        };
        let mut done = with("text", json!(text));
        done["logprobs"] = json!([]);
        self.event(out, "response.output_text.done", done);
        let mut annotations = json!([]);
        if let Some((title, url)) = &self.found {
            let cites = json!({ "type": "url_citation", "start_index": 0, "end_index": 1, "title": title, "url": url });
            let mut added = with("annotation", cites.clone());
            added["annotation_index"] = 0.into();
            self.event(out, "response.output_text.annotation.added", added);
            annotations = json!([cites]);
        }
        let part = json!({ "type": "output_text", "annotations": annotations, "logprobs": [], "text": text });
        self.event(out, "response.content_part.done", with("part", part.clone()));
        let item =
            json!({ "id": id, "type": "message", "status": "completed", "content": [part], "role": "assistant" });
        self.end_item(out, item);
    }
}

impl Voice for Responses {
    fn begin(&mut self, out: &mut Out<'_>, _reply: &Reply) {
        let response = self.response(out, "in_progress", Value::Null);
        self.event(out, "response.created", json!({ "response": response }));
        self.event(out, "response.in_progress", json!({ "response": response }));
    }

    fn text(&mut self, out: &mut Out<'_>, text: &str) {
        let (id, index) = (self.id(out, "msg"), self.output.len());
        if self.open.is_none() {
            let item =
                json!({ "id": id, "type": "message", "status": "in_progress", "content": [], "role": "assistant" });
            self.begin_item(out, &item);
            let part = json!({ "type": "output_text", "annotations": [], "logprobs": [], "text": "" });
            let fields = json!({ "item_id": id, "output_index": index, "content_index": 0, "part": part });
            self.event(out, "response.content_part.added", fields);
        }
        let fields = json!({ "item_id": id, "output_index": index, "content_index": 0, "delta": text, "logprobs": [] });
        self.event(out, "response.output_text.delta", fields);
        self.open.get_or_insert_default().push_str(text);
    }

    fn thinking(&mut self, out: &mut Out<'_>, text: &str, signature: Option<&str>) {
        self.close(out);
        let (id, index) = (self.id(out, "rs"), self.output.len());
        let encrypted = format!("gAAAAA{}", signature.unwrap_or("none"));
        self.begin_item(out, &json!({ "id": id, "type": "reasoning", "encrypted_content": "gAAAAA", "summary": [] }));
        let place = json!({ "item_id": id, "output_index": index, "summary_index": 0 });
        let with = |name: &str, value: Value| {
            let mut fields = place.clone();
            fields[name] = value;
            fields
        };
        let part = |text: &str| json!({ "type": "summary_text", "text": text });
        self.event(out, "response.reasoning_summary_part.added", with("part", part("")));
        self.event(out, "response.reasoning_summary_text.delta", with("delta", json!(text)));
        self.event(out, "response.reasoning_summary_text.done", with("text", json!(text)));
        self.event(out, "response.reasoning_summary_part.done", with("part", part(text)));
        let item = json!({ "id": id, "type": "reasoning", "encrypted_content": encrypted, "summary": [part(text)] });
        out.issued.thinking.push((item.to_string(), String::new()));
        self.end_item(out, item);
    }

    fn tool(&mut self, out: &mut Out<'_>, name: &str, arguments: &str) {
        self.close(out);
        let call = format!("call_{:06}x{}", out.number, out.calls());
        out.issue_call(&call, name, arguments);
        let (id, index) = (self.id(out, "fc"), self.output.len());
        let item = |arguments: &str, status: &str| json!({ "id": id, "type": "function_call", "status": status, "arguments": arguments, "call_id": call, "name": name });
        self.begin_item(out, &item("", "in_progress"));
        let (first, second) = halves(arguments);
        for piece in [first, second] {
            let fields = json!({ "item_id": id, "output_index": index, "delta": piece });
            self.event(out, "response.function_call_arguments.delta", fields);
        }
        let fields = json!({ "item_id": id, "output_index": index, "arguments": arguments });
        self.event(out, "response.function_call_arguments.done", fields);
        self.end_item(out, item(arguments, "completed"));
    }

    fn ran(&mut self, out: &mut Out<'_>, ran: &Ran) {
        self.close(out);
        let index = self.output.len();
        let (kind, id, states) = match &ran.what {
            What::Search(_) => ("web_search_call", format!("ws_{}", ran.id()), ["in_progress", "searching"]),
            What::Code(_) => ("code_interpreter_call", format!("ci_{}", ran.id()), ["in_progress", "interpreting"]),
        };
        let item = |status: &str, whole: bool| match &ran.what {
            What::Search(found) => {
                let sources: Vec<Value> = found.iter().map(|(_, url)| json!({ "type": "url", "url": url })).collect();
                let mut action = json!({ "type": "search" });
                if whole {
                    action =
                        json!({ "type": "search", "query": ran.asked, "queries": [ran.asked], "sources": sources });
                }
                json!({ "id": id, "type": kind, "status": status, "action": action })
            }
            What::Code(output) => {
                let outputs = if whole { json!([{ "type": "logs", "logs": output }]) } else { Value::Null };
                let code = if whole { ran.asked.as_str() } else { "" };
                json!({ "id": id, "type": kind, "status": status, "code": code, "container_id": "cntr_1", "outputs": outputs })
            }
        };
        self.begin_item(out, &item("in_progress", false));
        let place = || json!({ "item_id": id, "output_index": index });
        for state in states {
            self.event(out, &format!("response.{kind}.{state}"), place());
        }
        if let What::Code(_) = &ran.what {
            let mut fields = place();
            fields["delta"] = ran.asked.as_str().into();
            self.event(out, "response.code_interpreter_call_code.delta", fields);
            let mut fields = place();
            fields["code"] = ran.asked.as_str().into();
            self.event(out, "response.code_interpreter_call_code.done", fields);
        }
        self.event(out, &format!("response.{kind}.completed"), place());
        let item = item("completed", true);
        out.issued.ran.push(item.to_string());
        self.end_item(out, item);
        if let What::Search(found) = &ran.what {
            self.found = found.first().cloned();
        }
    }

    fn error(&mut self, out: &mut Out<'_>, kind: &str, message: &str) {
        // The words of this format for what the scripts say in Anthropic's.
        let code = match kind {
            "overloaded_error" | "api_error" => "server_error",
            "rate_limit_error" => "rate_limit_exceeded",
            other => other,
        };
        let mut response = self.response(out, "failed", Value::Null);
        response["error"] = json!({ "code": code, "message": message });
        self.event(out, "response.failed", json!({ "response": response }));
    }

    fn end(&mut self, out: &mut Out<'_>, reply: &Reply) {
        self.close(out);
        let usage = reply.usage;
        let input = usage.prompt();
        let tokens = json!({
            "input_tokens": input, "input_tokens_details": { "cached_tokens": usage.cached, "cache_write_tokens": usage.written },
            "output_tokens": usage.output, "output_tokens_details": { "reasoning_tokens": usage.reasoning },
            "total_tokens": input + usage.output,
        });
        let cut = match reply.stop_reason() {
            "max_tokens" => Some("max_output_tokens"),
            "refusal" => Some("content_filter"),
            _ => None,
        };
        let status = if cut.is_some() { "incomplete" } else { "completed" };
        let mut response = self.response(out, status, tokens);
        if let Some(reason) = cut {
            response["incomplete_details"] = json!({ "reason": reason });
        }
        self.event(out, &format!("response.{status}"), json!({ "response": response }));
    }
}
