//! Responses: events, each about one item.

use std::borrow::Cow;
use std::collections::BTreeMap;

use linger_protocol::message::{HostedPart, Usage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::response_builder::{BlockBuilder, ResponseBuilder};
use super::super::types::{Decoder, Failure, Stop, StreamEvent};
use super::super::wire::{self, Text};
use super::encode::{ITEM, PHASE};
use super::hosted::{self, HostedItem};

/// One response.
#[derive(Debug, Default)]
pub(super) struct ResponsesDecoder {
    answer: ResponseBuilder,
    /// The items so far, by the provider's index.
    items: BTreeMap<u64, OutputItem>,
}

/// An item of the answer.
#[derive(Debug, Default)]
struct OutputItem {
    /// Its block; text and thinking get one with their first piece.
    place: Option<usize>,
    /// The latest part of its summary or text.
    part: Option<u64>,
    /// It is complete.
    done: bool,
}

/// Every event: the other fields depend on `type`.
#[derive(Deserialize)]
struct ResponsesEvent<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    output_index: Option<u64>,
    summary_index: Option<u64>,
    content_index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Text<'a>>,
    item: Option<Value>,
    response: Option<Value>,
    code: Option<Value>,
    message: Option<Value>,
    error: Option<Value>,
}

impl Decoder for ResponsesDecoder {
    fn feed(&mut self, name: &str, data: &str, out: &mut Vec<StreamEvent>) {
        // Some servers end this format like Chat Completions.
        if self.answer.ended || data.trim() == "[DONE]" {
            return;
        }
        let data = self.answer.read(data);
        let event: ResponsesEvent<'_> = match serde_json::from_str(&data) {
            Ok(event) => event,
            Err(error) => match Failure::in_event(name, &data) {
                Some(failure) => return self.answer.fail(failure, out),
                None => return self.answer.unreadable("an event", &error, &data, out),
            },
        };
        let (index, delta) = (event.output_index.unwrap_or_default(), event.delta.unwrap_or_default().0);
        match event.kind.as_ref() {
            "response.output_item.added" => self.begin(index, &event.item.unwrap_or_default(), out),
            "response.output_text.delta" => self.text(index, &delta, out),
            "response.refusal.delta" => {
                self.answer.stop = Stop::Refusal;
                self.text(index, &delta, out);
            }
            "response.reasoning_summary_text.delta" => self.thinking(index, event.summary_index, &delta, out),
            "response.reasoning_text.delta" => self.thinking(index, event.content_index, &delta, out),
            "response.function_call_arguments.delta" => {
                if let Some(place) = self.item(index).place {
                    self.answer.append_arguments(place, &delta, out);
                }
            }
            "response.output_item.done" => self.whole(index, event.item.unwrap_or_default(), out),
            "response.completed" | "response.incomplete" => self.end(&event.response.unwrap_or_default(), out),
            "response.failed" => {
                let response = event.response.unwrap_or_default();
                self.count(&response);
                self.answer.fail(Failure::in_stream(response.get("error").unwrap_or(&Value::Null)), out);
            }
            "error" => {
                let flat = json!({"code": event.code, "message": event.message});
                self.answer.fail(Failure::in_stream(&event.error.unwrap_or(flat)), out);
            }
            // llama.cpp's errors have no `type`.
            kind if kind.is_empty() || name == "error" => {
                if let Some(failure) = Failure::in_event(name, &data) {
                    self.answer.fail(failure, out);
                }
            }
            // Created, queued, in progress, ends of parts, and later additions.
            _ => {}
        }
    }

    fn finish(&mut self, out: &mut Vec<StreamEvent>) {
        self.answer.fail_malformed("the answer broke off", out);
    }

    fn usage(&self) -> Usage {
        self.answer.usage
    }

    fn gathered(&self) -> usize {
        self.answer.gathered()
    }
}

impl ResponsesDecoder {
    /// The item with this index, created if new.
    fn item(&mut self, index: u64) -> &mut OutputItem {
        self.items.entry(index).or_default()
    }

    fn begin(&mut self, index: u64, item: &Value, out: &mut Vec<StreamEvent>) {
        if item.get("type").and_then(Value::as_str) == Some("function_call") && self.item(index).place.is_none() {
            let field = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            // The arguments here come again, in pieces or at the item's end.
            let (id, name, arguments) = (field("call_id"), field("name"), String::new());
            let place = self.answer.open(BlockBuilder::Call { id, name, arguments, keep_raw: true });
            self.answer.announce(place, out);
            self.item(index).place = Some(place);
        } else {
            self.item(index);
        }
    }

    fn text(&mut self, index: u64, piece: &str, out: &mut Vec<StreamEvent>) {
        if piece.is_empty() {
            return;
        }
        let known = self.item(index).place;
        let place = known.unwrap_or_else(|| self.answer.open(BlockBuilder::Text(String::new())));
        self.item(index).place = Some(place);
        self.answer.append(place, piece, out);
    }

    /// Parts of a summary are separated by an empty line.
    fn thinking(&mut self, index: u64, part: Option<u64>, piece: &str, out: &mut Vec<StreamEvent>) {
        if piece.is_empty() {
            return;
        }
        let known = self.item(index).place;
        let place =
            known.unwrap_or_else(|| self.answer.open(BlockBuilder::Thinking { text: String::new(), native: None }));
        let item = self.item(index);
        let before = std::mem::replace(&mut item.part, part);
        item.place = Some(place);
        if known.is_some() && before != part {
            self.answer.append(place, "\n\n", out);
        }
        self.answer.append(place, piece, out);
    }

    /// The item is complete: takes from it what did not come in pieces.
    fn whole(&mut self, index: u64, item: Value, out: &mut Vec<StreamEvent>) {
        if std::mem::replace(&mut self.item(index).done, true) {
            return;
        }
        let place = self.item(index).place;
        match item.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message" => {
                if place.is_none() {
                    for part in item.get("content").and_then(Value::as_array).into_iter().flatten() {
                        let refusal = part.get("refusal").and_then(Value::as_str);
                        if refusal.is_some() {
                            self.answer.stop = Stop::Refusal;
                        }
                        let text = part.get("text").and_then(Value::as_str).or(refusal);
                        self.text(index, text.unwrap_or_default(), out);
                    }
                }
                // The server wants `phase` back with its text.
                if let Some(phase) =
                    item.get(PHASE).filter(|phase| phase.is_string() && self.item(index).place.is_some())
                {
                    self.answer
                        .open(BlockBuilder::Opaque { native: json!({ PHASE: phase }), arguments: String::new() });
                }
            }
            "reasoning" => {
                if place.is_none() {
                    for (name, n) in ["summary", "content"].into_iter().zip(0..) {
                        for part in item.get(name).and_then(Value::as_array).into_iter().flatten() {
                            let text = part.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
                            self.thinking(index, Some(n), &text, out);
                        }
                    }
                }
                let native = Some(json!({ ITEM: item }));
                let place = self.item(index).place;
                if let Some(place) = place {
                    self.answer.touch(place);
                }
                match place.and_then(|place| self.answer.blocks.get_mut(place)) {
                    Some(BlockBuilder::Thinking { native: known, .. }) => *known = native,
                    _ => drop(self.answer.open(BlockBuilder::Thinking { text: String::new(), native })),
                }
            }
            "function_call" => {
                self.begin(index, &item, out);
                let whole = item.get("arguments").and_then(Value::as_str).unwrap_or_default();
                if let Some(place) = self.item(index).place
                    && let Some(BlockBuilder::Call { arguments, .. }) = self.answer.blocks.get(place)
                    && arguments.is_empty()
                {
                    self.answer.append_arguments(place, whole, out);
                }
            }
            "web_search_call" | "code_interpreter_call" => self.hosted(item, out),
            // Tools that the server ran. Items of users and tools are ignored.
            kind if !kind.is_empty() && kind != "function_call_output" && item.get("role").is_none() => {
                self.answer.open(BlockBuilder::Opaque { native: json!({ ITEM: item }), arguments: String::new() });
            }
            _ => {}
        }
    }

    /// The item goes back with the call; the result is only shown.
    fn hosted(&mut self, item: Value, out: &mut Vec<StreamEvent>) {
        let Some(HostedItem { tool, call, result, whole }) = hosted::hosted_item(&item) else { return };
        let rest = whole.then(|| json!({}));
        self.answer.hosted(tool, HostedPart::Call, &call, whole.then(|| json!({ ITEM: item })), out);
        if let Some((part, said)) = result {
            self.answer.hosted(tool, part, &said, rest, out);
        }
    }

    fn end(&mut self, response: &Value, out: &mut Vec<StreamEvent>) {
        // Some servers send items only here.
        for (item, index) in response.get("output").and_then(Value::as_array).into_iter().flatten().zip(0..) {
            if !self.items.contains_key(&index) {
                self.whole(index, item.clone(), out);
            }
        }
        self.count(response);
        match response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
            Some("max_output_tokens") => self.answer.stop = Stop::MaxTokens,
            Some("content_filter") => self.answer.stop = Stop::Refusal,
            // Compatible servers may end with `response.completed` and no reason: the answer was cut.
            None if response["status"] == "incomplete" => self.answer.stop = Stop::MaxTokens,
            _ => {}
        }
        self.answer.done(out);
    }

    fn count(&mut self, response: &Value) {
        let total = &mut self.answer.usage;
        wire::count(&mut total.input_tokens, response, "/usage/input_tokens");
        wire::count(&mut total.output_tokens, response, "/usage/output_tokens");
        wire::count(&mut total.cached_tokens, response, "/usage/input_tokens_details/cached_tokens");
        wire::count(&mut total.cache_write_tokens, response, "/usage/input_tokens_details/cache_write_tokens");
        wire::count(&mut total.reasoning_tokens, response, "/usage/output_tokens_details/reasoning_tokens");
    }
}

#[cfg(test)]
mod tests {
    use linger_protocol::message::{ContentBlock, HostedTool, Usage};

    use super::super::super::support::{call, check_stream, text, thinking, thought};
    use super::super::super::types::{Failure, FailureClass, Response};
    use super::super::Responses;
    use super::*;

    /// The events with their numbers, as the server sends them.
    fn check(events: &[Value], expect: &[StreamEvent]) {
        let mut stream = String::new();
        for (event, n) in events.iter().zip(0..) {
            let mut event = event.clone();
            event["sequence_number"] = n.into();
            stream += &format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
        }
        check_stream(&Responses::default(), &stream, expect);
    }

    fn begun() -> Vec<Value> {
        let response =
            json!({"id": "resp_1", "object": "response", "status": "in_progress", "output": [], "usage": null});
        vec![
            json!({"type": "response.created", "response": response}),
            json!({"type": "response.in_progress", "response": response}),
        ]
    }

    fn added(index: u64, item: Value) -> Value {
        json!({"type": "response.output_item.added", "output_index": index, "item": item})
    }

    fn whole(index: u64, item: Value) -> Value {
        json!({"type": "response.output_item.done", "output_index": index, "item": item})
    }

    fn delta(kind: &str, index: u64, piece: &str) -> Value {
        json!({"type": format!("response.{kind}.delta"), "item_id": "x", "output_index": index, "content_index": 0, "delta": piece, "logprobs": []})
    }

    fn summary(index: u64, part: u64, piece: &str) -> Value {
        json!({"type": "response.reasoning_summary_text.delta", "item_id": "x", "output_index": index, "summary_index": part, "delta": piece})
    }

    fn message(text: &str) -> Value {
        json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}]})
    }

    fn said(index: u64, pieces: &[&str]) -> Vec<Value> {
        let mut events = vec![added(
            index,
            json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}),
        )];
        events.extend(pieces.iter().map(|piece| delta("output_text", index, piece)));
        events.push(whole(index, message(&pieces.concat())));
        events
    }

    fn called(index: u64, id: &str, name: &str, pieces: &[&str]) -> Vec<Value> {
        let item = |arguments: &str, status: &str| json!({"id": format!("fc_{index}"), "type": "function_call", "call_id": id, "name": name, "arguments": arguments, "status": status});
        let mut events = vec![added(index, item("", "in_progress"))];
        events.extend(pieces.iter().map(|piece| delta("function_call_arguments", index, piece)));
        let arguments = pieces.concat();
        events.push(json!({"type": "response.function_call_arguments.done", "item_id": "x", "output_index": index, "name": name, "arguments": arguments}));
        events.push(whole(index, item(&arguments, "completed")));
        events
    }

    fn ended(kind: &str, details: Value) -> Value {
        let usage = json!({"input_tokens": 90, "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 8},
            "output_tokens": 42, "output_tokens_details": {"reasoning_tokens": 30}, "total_tokens": 132});
        json!({"type": format!("response.{kind}"), "response": {"id": "resp_1", "status": kind, "output": [], "incomplete_details": details, "usage": usage}})
    }

    fn completed() -> Vec<Value> {
        vec![ended("completed", Value::Null)]
    }

    const USAGE: Usage = Usage {
        input_tokens: 90,
        output_tokens: 42,
        cached_tokens: 64,
        cache_write_tokens: 8,
        reasoning_tokens: 30,
        cost_micros: None,
        cost_at_least: false,
    };

    fn done(content: Vec<ContentBlock>, stop: Stop) -> StreamEvent {
        StreamEvent::Done(Response { content, stop, usage: USAGE })
    }

    fn failed(class: FailureClass, message: &str) -> StreamEvent {
        StreamEvent::Failed(Failure { class, message: message.to_owned(), retry_after: None })
    }

    #[test]
    fn reasoning_text_and_two_calls() {
        let item = json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "gAAAAB",
            "summary": [{"type": "summary_text", "text": "Let me see."}, {"type": "summary_text", "text": "Hm."}]});
        let silent = json!({"id": "rs_2", "type": "reasoning", "encrypted_content": "gAAAAC", "summary": []});
        let mut remark = message("Zwei: ä€😀");
        remark["phase"] = json!("commentary");
        let mut text_events = said(1, &["Zwei: ", "ä€😀"]);
        text_events.pop();
        text_events.push(whole(1, remark));
        let events = [
            begun(),
            vec![
                added(0, json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "gAA", "summary": []})),
                json!({"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0, "part": {"type": "summary_text", "text": ""}}),
                summary(0, 0, "Let me "),
                summary(0, 0, "see."),
                summary(0, 1, "Hm."),
                whole(0, item.clone()),
            ],
            text_events,
            vec![added(2, silent.clone()), whole(2, silent.clone())],
            called(3, "call_1", "read", &["{\"path\": \"ä", "€😀.md\"}"]),
            called(4, "call_2", "ls", &["{}"]),
            completed(),
        ]
        .concat();
        let content = vec![
            thought("Let me see.\n\nHm.", json!({"item": item})),
            ContentBlock::text("Zwei: ä€😀"),
            ContentBlock::Opaque { native: json!({"phase": "commentary"}) },
            thought("", json!({"item": silent})),
            call(
                "",
                "read",
                json!({"path": "ä€😀.md"}),
                Some(json!({"id": "call_1", "arguments": "{\"path\": \"ä€😀.md\"}"})),
            ),
            call("", "ls", json!({}), Some(json!({"id": "call_2"}))),
        ];
        check(&events, &[thinking(0, "Let me see.\n\nHm."), text(1, "Zwei: ä€😀"), done(content, Stop::End)]);
    }

    #[test]
    fn what_did_not_come_in_pieces_is_taken_from_the_whole() {
        let call_item = json!({"type": "function_call", "call_id": "call_1", "name": "ls", "arguments": "{\"a\":1}"});
        let content = || vec![ContentBlock::text("hi"), call("", "ls", json!({"a": 1}), Some(json!({"id": "call_1"})))];
        let events = [begun(), vec![whole(0, message("hi")), whole(1, call_item.clone())], completed()].concat();
        check(&events, &[text(0, "hi"), done(content(), Stop::End)]);
        let mut end = completed();
        end[0]["response"]["output"] = json!([message("hi"), call_item]);
        check(&[begun(), end.clone()].concat(), &[text(0, "hi"), done(content(), Stop::End)]);
        // What came in pieces is not taken again.
        let events = [begun(), said(0, &["h", "i"]), called(1, "call_1", "ls", &["{\"a\"", ":1}"]), end].concat();
        check(&events, &[text(0, "hi"), done(content(), Stop::End)]);
    }

    #[test]
    fn what_only_the_server_understands_is_kept() {
        let search = json!({"id": "fs_1", "type": "file_search_call", "status": "completed", "queries": ["x"]});
        let forged = [
            json!({}),
            json!({"type": "x", "role": "user"}),
            json!({"type": "function_call_output", "call_id": "a", "output": "x"}),
        ];
        let forged: Vec<Value> = forged.into_iter().zip(7..).map(|(item, index)| whole(index, item)).collect();
        let ran = vec![added(0, search.clone()), whole(0, search.clone())];
        let events = [begun(), ran, said(1, &["hi"]), forged, completed()].concat();
        let content = vec![ContentBlock::Opaque { native: json!({"item": search}) }, ContentBlock::text("hi")];
        check(&events, &[text(1, "hi"), done(content, Stop::End)]);
    }

    #[test]
    fn a_search_is_said_and_its_item_kept_whole() {
        let (tool, text) = (HostedTool::WebSearch, "x".to_owned());
        let action = json!({"type": "search", "query": "x", "sources": [{"type": "url", "url": "https://a"}]});
        let item = json!({"id": "ws_1", "type": "web_search_call", "status": "completed", "action": action});
        let found = "1 source\nhttps://a".to_owned();
        let block = |part, text, native| ContentBlock::Hosted { tool, part, text, native: Some(native) };
        let content = vec![
            block(HostedPart::Call, text.clone(), json!({ "item": item })),
            block(HostedPart::Result, found.clone(), json!({})),
        ];
        let usage = Usage { cost_at_least: true, ..USAGE };
        let expect = [
            StreamEvent::Hosted { block: 0, tool, part: HostedPart::Call, text },
            StreamEvent::Hosted { block: 1, tool, part: HostedPart::Result, text: found },
            StreamEvent::Done(Response { content, stop: Stop::End, usage }),
        ];
        check(
            &[begun(), vec![added(0, json!({"type": "web_search_call"})), whole(0, item)], completed()].concat(),
            &expect,
        );
    }

    #[test]
    fn ends_good_and_bad() {
        let hi = || [begun(), said(0, &["hi"])].concat();
        let content = || vec![ContentBlock::text("hi")];
        for (reason, stop) in
            [("max_output_tokens", Stop::MaxTokens), ("content_filter", Stop::Refusal), ("max_messages", Stop::End)]
        {
            let events = [hi(), vec![ended("incomplete", json!({"reason": reason}))]].concat();
            check(&events, &[text(0, "hi"), done(content(), stop)]);
        }
        let mut quiet = completed();
        quiet[0]["response"]["status"] = json!("incomplete");
        check(&[hi(), quiet].concat(), &[text(0, "hi"), done(content(), Stop::MaxTokens)]);
        let cut = failed(FailureClass::Stream, "the answer broke off");
        check(&hi(), &[text(0, "hi"), cut.clone()]);
        check(&[], &[cut]);
        let fails = |code: &str, class, said: &str| {
            let error = json!({"code": code, "message": "sorry"});
            let event = json!({"type": "response.failed", "response": {"status": "failed", "error": error}});
            check(&[hi(), vec![event], completed()].concat(), &[text(0, "hi"), failed(class, said)]);
        };
        fails("server_error", FailureClass::Overloaded, "server_error: sorry");
        fails("rate_limit_exceeded", FailureClass::RateLimited, "rate_limit_exceeded: sorry");
        fails("context_length_exceeded", FailureClass::TooLong, "context_length_exceeded: sorry");
        fails("insufficient_quota", FailureClass::Quota, "insufficient_quota: sorry");
        fails("invalid_prompt", FailureClass::Rejected, "invalid_prompt: sorry");
        for error in [
            json!({"type": "error", "code": "server_error", "message": "sorry", "param": null}),
            json!({"type": "error", "error": {"type": "server_error", "message": "sorry"}}),
        ] {
            let failed = failed(FailureClass::Overloaded, "server_error: sorry");
            check(&[hi(), vec![error]].concat(), &[text(0, "hi"), failed]);
        }
        let llamacpp = json!({"error": {"code": 400, "message": "no room", "type": "invalid_request_error"}});
        let failed_so = [failed(FailureClass::Rejected, "invalid_request_error: no room")];
        check_stream(&Responses::default(), &format!("data: {llamacpp}\n\n"), &failed_so);
        let bare = json!({"type": "error", "code": null, "message": "sorry", "param": null});
        check(&[bare], &[failed(FailureClass::Stream, "sorry")]);
    }

    #[test]
    fn a_refusal_is_shown_and_is_one() {
        let refused = json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [{"type": "refusal", "refusal": "no"}]});
        let expect = [text(0, "no"), done(vec![ContentBlock::text("no")], Stop::Refusal)];
        let events =
            [begun(), vec![delta("refusal", 0, "n"), delta("refusal", 0, "o"), whole(0, refused.clone())], completed()];
        check(&events.concat(), &expect);
        check(&[begun(), vec![whole(0, refused)], completed()].concat(), &expect);
    }

    #[test]
    fn a_cut_call_keeps_what_the_model_wrote() {
        let mut events = [begun(), called(0, "call_1", "read", &["{\"path\": \"a"])].concat();
        events.push(ended("incomplete", json!({"reason": "max_output_tokens"})));
        let content = vec![call("", "read", json!("{\"path\": \"a"), Some(json!({"id": "call_1"})))];
        check(&events, &[done(content, Stop::MaxTokens)]);
    }
}
