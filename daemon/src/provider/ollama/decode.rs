//! Responses: lines, each with the next piece of the message; calls come in one piece.

use linger_protocol::message::Usage;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::super::compat::Compat;
use super::super::response_builder::{BlockBuilder, ResponseBuilder};
use super::super::think_tags::ThinkTags;
use super::super::types::{Decoder, Failure, Stop, StreamEvent};
use super::super::wire::{self, Text};

/// One response.
#[derive(Debug, Default)]
pub(super) struct OllamaDecoder {
    answer: ResponseBuilder,
    /// Models that the server does not list as thinking have their thinking in the text.
    think: ThinkTags,
}

#[derive(Deserialize)]
struct ResponseLine<'a> {
    #[serde(borrow)]
    message: Option<ResponseMessage<'a>>,
    done: Option<bool>,
    #[serde(borrow)]
    done_reason: Option<Text<'a>>,
    /// A number.
    prompt_eval_count: Option<Value>,
    /// A number.
    eval_count: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct ResponseMessage<'a> {
    #[serde(borrow)]
    content: Option<Text<'a>>,
    #[serde(borrow)]
    thinking: Option<Text<'a>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<FunctionCall<'a>>>,
}

#[derive(Deserialize)]
struct FunctionCall<'a> {
    #[serde(borrow)]
    function: Function<'a>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    /// An object.
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl Decoder for OllamaDecoder {
    fn feed(&mut self, _event: &str, data: &str, out: &mut Vec<StreamEvent>) {
        if self.answer.ended {
            return;
        }
        let data = wire::with_good_escapes(data);
        let line: ResponseLine<'_> = match serde_json::from_str(&data) {
            Ok(line) => line,
            Err(error) => match Failure::in_event("", &data) {
                Some(failure) => return self.answer.fail(failure, out),
                None => return self.answer.unreadable("a line", &error, &data, out),
            },
        };
        // Such a line has nothing else.
        let may_fail = line.error.is_some() || (line.message.is_none() && line.done.is_none());
        if let Some(failure) = may_fail.then(|| Failure::in_event("", &data)).flatten() {
            return self.answer.fail(failure, out);
        }
        if let Some(message) = line.message {
            self.message(message, out);
        }
        if line.done == Some(true) {
            wire::count(&mut self.answer.usage.input_tokens, &line.prompt_eval_count.unwrap_or_default(), "");
            wire::count(&mut self.answer.usage.output_tokens, &line.eval_count.unwrap_or_default(), "");
            // Also `stop` with tool calls.
            if line.done_reason.is_some_and(|reason| reason.0 == "length") {
                self.answer.stop = Stop::MaxTokens;
            }
            self.pause(out);
            self.answer.done(out);
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

impl OllamaDecoder {
    /// A decoder for a server with these flags.
    pub(super) fn new(compat: Compat) -> Self {
        Self { think: ThinkTags::new(compat.think_open == Some(true)), ..Self::default() }
    }

    fn message(&mut self, message: ResponseMessage<'_>, out: &mut Vec<StreamEvent>) {
        if let Some(Text(piece)) = message.thinking.filter(|piece| !piece.0.is_empty()) {
            self.pause(out);
            self.answer.thinking(None, &piece, out);
        }
        if let Some(Text(piece)) = message.content {
            for piece in self.think.push(&piece) {
                piece.append_to(&mut self.answer, out);
            }
        }
        for call in message.tool_calls.unwrap_or_default() {
            self.pause(out);
            let name = call.function.name.unwrap_or_default().0.into_owned();
            let place = self.answer.open(BlockBuilder::Whole { name, arguments: String::new(), native: None });
            let raw = call.function.arguments.map_or("", RawValue::get);
            self.answer.append_arguments(place, if raw == "null" { "" } else { raw }, out);
        }
    }

    /// Releases text that was held back, because something else follows.
    fn pause(&mut self, out: &mut Vec<StreamEvent>) {
        if let Some(piece) = self.think.pause() {
            piece.append_to(&mut self.answer, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use linger_protocol::message::ContentBlock;
    use serde_json::json;

    use super::super::super::support::{call, check_stream, decode, text, thinking, unshown};
    use super::super::super::types::{Failure, FailureClass, Response};
    use super::super::Ollama;
    use super::*;

    fn check(lines: &[Value], expect: &[StreamEvent]) {
        let stream: String = lines.iter().map(|line| format!("{line}\n")).collect();
        check_stream(&Ollama::default(), &stream, expect);
    }

    fn line(message: Value) -> Value {
        json!({"model": "m", "created_at": "2026-11-01T00:00:00.123456789Z", "message": message, "done": false})
    }

    fn content(text: &str) -> Value {
        line(json!({"role": "assistant", "content": text}))
    }

    fn end(reason: &str) -> Value {
        json!({"model": "m", "created_at": "2026-11-01T00:00:01Z", "message": {"role": "assistant", "content": ""},
            "done": true, "done_reason": reason, "total_duration": 5_000_000_000_u64, "load_duration": 1,
            "prompt_eval_count": 90, "prompt_eval_duration": 2, "eval_count": 7, "eval_duration": 3})
    }

    fn done(content: Vec<ContentBlock>, stop: Stop) -> StreamEvent {
        let usage = Usage { input_tokens: 90, output_tokens: 7, ..Usage::default() };
        StreamEvent::Done(Response { content, stop, usage })
    }

    fn failed(class: FailureClass, message: &str) -> StreamEvent {
        StreamEvent::Failed(Failure { class, message: message.to_owned(), retry_after: None })
    }

    fn thought(text: &str) -> ContentBlock {
        ContentBlock::Thinking { text: text.to_owned(), native: None }
    }

    fn within(text: &str) -> ContentBlock {
        ContentBlock::Thinking { text: text.to_owned(), native: Some(json!({"field": "content"})) }
    }

    #[test]
    fn thinking_text_and_two_calls() {
        let calls = json!([
            {"function": {"name": "read", "arguments": {"path": "ä€😀.md"}}},
            {"function": {"index": 1, "name": "ls", "arguments": {}}},
        ]);
        let lines = [
            line(json!({"role": "assistant", "content": "", "thinking": "Let me "})),
            line(json!({"role": "assistant", "content": "", "thinking": "see."})),
            content("Zwei: "),
            content("ä€😀"),
            line(json!({"role": "assistant", "content": "", "tool_calls": calls})),
            line(
                json!({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "ls", "arguments": null}}]}),
            ),
            end("stop"),
        ];
        let blocks = vec![
            thought("Let me see."),
            ContentBlock::text("Zwei: ä€😀"),
            call("", "read", json!({"path": "ä€😀.md"}), None),
            call("", "ls", json!({}), None),
            call("", "ls", json!({}), None),
        ];
        check(&lines, &[thinking(0, "Let me see."), text(1, "Zwei: ä€😀"), done(blocks, Stop::End)]);
    }

    #[test]
    fn thinking_may_hide_in_the_text() {
        let lines: Vec<Value> = "<think>hm</think>\nso".chars().map(|c| content(&c.to_string())).collect();
        let blocks = vec![unshown("<think>"), within("hm"), unshown("</think>\n"), ContentBlock::text("so")];
        check(&[lines, vec![end("stop")]].concat(), &[thinking(1, "hm"), text(3, "so"), done(blocks, Stop::End)]);
    }

    #[test]
    fn ends_good_and_bad() {
        let said = || vec![ContentBlock::text("hi")];
        for (reason, stop) in [("stop", Stop::End), ("length", Stop::MaxTokens), ("load", Stop::End)] {
            check(&[content("hi"), end(reason)], &[text(0, "hi"), done(said(), stop)]);
        }
        let mut bare = end("stop");
        bare.as_object_mut().unwrap().retain(|name, _| name == "done");
        let response = Response { content: said(), ..Response::default() };
        let response = || StreamEvent::Done(response.clone());
        check(&[content("hi"), bare], &[text(0, "hi"), response()]);
        let mut begun = content("hi");
        begun["done"] = Value::Null;
        let odd = json!({"done": true, "prompt_eval_count": null, "eval_count": -1});
        check(&[begun, odd], &[text(0, "hi"), response()]);
        let cut = failed(FailureClass::Stream, "the answer broke off");
        check(&[content("hi")], &[text(0, "hi"), cut.clone()]);
        check(&[], &[cut]);
        let error = json!({"error": "an error was encountered while running the model"});
        let stopped = failed(FailureClass::Stream, "an error was encountered while running the model");
        check(&[content("hi"), error, end("stop")], &[text(0, "hi"), stopped]);
        let events = decode(&Ollama::default(), "oops\n", 100);
        assert!(
            matches!(&events[..], [StreamEvent::Failed(Failure { class: FailureClass::Stream, .. })]),
            "{events:?}"
        );
    }

    #[test]
    fn thinking_that_has_no_opening_tag() {
        let lines = [content("hm</th"), content("ink>so"), end("stop")];
        let (mark, so) = (unshown("</think>"), ContentBlock::text("so"));
        let blocks = vec![ContentBlock::text("hm"), mark.clone(), so.clone()];
        check(&lines, &[text(0, "hm"), text(2, "so"), done(blocks, Stop::End)]);
        let open = Ollama::new(Compat { think_open: Some(true), ..Compat::NONE });
        let stream: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let blocks = vec![within("hm"), mark, so];
        check_stream(&open, &stream, &[thinking(0, "hm"), text(2, "so"), done(blocks, Stop::End)]);
    }
}
