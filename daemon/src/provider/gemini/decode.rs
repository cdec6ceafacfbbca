//! Responses: each event is a whole response with the next parts; the stream just ends.

use linger_protocol::message::{HostedPart, HostedTool, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::failure::whole_line;
use super::super::response_builder::{BlockBuilder, ResponseBuilder};
use super::super::types::{Decoder, Failure, FailureClass, Stop, StreamEvent};
use super::super::wire::{self, Text};
use super::encode::{PART, SIGNATURE, SIGNED_BYTES};
use super::hosted;

/// One response.
#[derive(Debug, Default)]
pub(super) struct GeminiDecoder {
    answer: ResponseBuilder,
    /// A finish reason came; only usage follows.
    finished: bool,
    counts: Counts,
    /// A search was a part of the answer.
    searched: bool,
    /// The latest queries and sources of the search.
    grounding: Option<Value>,
}

/// This provider's token counts: thoughts are not part of the candidates, nor tool output of the prompt.
#[derive(Debug, Default)]
struct Counts {
    prompt: u64,
    tool_use: u64,
    cached: u64,
    candidates: u64,
    thoughts: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<Candidate<'a>>>,
    usage_metadata: Option<Value>,
    prompt_feedback: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Option<CandidateContent<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
    #[serde(borrow)]
    finish_message: Option<Text<'a>>,
    grounding_metadata: Option<Value>,
}

#[derive(Deserialize)]
struct CandidateContent<'a> {
    #[serde(borrow)]
    parts: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContentPart<'a> {
    #[serde(borrow)]
    text: Option<Text<'a>>,
    thought: Option<bool>,
    #[serde(borrow)]
    thought_signature: Option<Text<'a>>,
    #[serde(borrow)]
    function_call: Option<FunctionCall<'a>>,
}

#[derive(Deserialize)]
struct FunctionCall<'a> {
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

impl Decoder for GeminiDecoder {
    fn feed(&mut self, event: &str, data: &str, out: &mut Vec<StreamEvent>) {
        if self.answer.ended {
            return;
        }
        let data = self.answer.read(data);
        let chunk: Chunk<'_> = match serde_json::from_str(&data) {
            Ok(chunk) => chunk,
            Err(error) => match Failure::in_event(event, &data) {
                Some(failure) => return self.answer.fail(failure, out),
                None => return self.answer.unreadable("a chunk", &error, &data, out),
            },
        };
        if let Some(failure) = chunk.candidates.is_none().then(|| Failure::in_event(event, &data)).flatten() {
            return self.answer.fail(failure, out);
        }
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return self.answer.fail(Failure::in_stream(&error), out);
        }
        if let Some(usage) = chunk.usage_metadata {
            self.count(&usage);
        }
        if chunk.prompt_feedback.is_some_and(|feedback| feedback.get("blockReason").is_some_and(Value::is_string)) {
            self.finished = true;
            self.answer.stop = Stop::Refusal;
        }
        for candidate in chunk.candidates.unwrap_or_default().into_iter().take(1) {
            for part in candidate.content.and_then(|content| content.parts).unwrap_or_default() {
                self.part(part.get(), out);
            }
            self.grounding = candidate.grounding_metadata.or(self.grounding.take());
            if let Some(Text(reason)) = candidate.finish_reason {
                let said = candidate.finish_message.unwrap_or_default().0;
                self.end_with(&reason, &said, out);
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<StreamEvent>) {
        if self.finished {
            self.ground(out);
            self.answer.done(out);
        } else {
            self.answer.fail_malformed("the answer broke off", out);
        }
    }

    fn usage(&self) -> Usage {
        self.answer.usage
    }

    fn gathered(&self) -> usize {
        self.answer.gathered()
    }
}

impl GeminiDecoder {
    fn part(&mut self, raw: &str, out: &mut Vec<StreamEvent>) {
        let Ok(part) = serde_json::from_str::<ContentPart<'_>>(raw) else {
            return self.answer.fail_malformed("the provider sent a part that makes no sense", out);
        };
        let signature =
            part.thought_signature.map(|Text(signature)| signature).filter(|signature| !signature.is_empty());
        match (part.text, part.function_call) {
            (Some(Text(text)), None) if part.thought == Some(true) => self.thought(&text, signature.as_deref(), out),
            (Some(Text(text)), None) => self.text(&text, signature.as_deref(), out),
            (_, Some(call)) => self.call(call, signature.as_deref(), out),
            (None, None) => {
                // A part with only a signature is an empty text.
                let native: Value = serde_json::from_str(raw).unwrap_or_default();
                let only =
                    native.as_object().is_some_and(|part| part.keys().all(|key| key == SIGNATURE || key == "thought"));
                // Not the model's.
                let forged = native.get("functionResponse").is_some() || native.get("inlineData").is_some();
                match signature {
                    _ if forged => {}
                    Some(signature) if only => self.text("", Some(&signature), out),
                    None if only => {}
                    _ => self.other(native, out),
                }
            }
        }
    }

    /// A part that is opaque, or of which only the text is known.
    fn other(&mut self, part: Value, out: &mut Vec<StreamEvent>) {
        let hosted = hosted::part(&part);
        let native = json!({ PART: part });
        match hosted {
            Some((tool, part, said)) => {
                self.searched |= tool == HostedTool::WebSearch;
                self.answer.hosted(tool, part, &said, Some(native), out);
            }
            None => drop(self.answer.open(BlockBuilder::Opaque { native, arguments: String::new() })),
        }
    }

    /// Adds the sources after the answer. They do not go back.
    fn ground(&mut self, out: &mut Vec<StreamEvent>) {
        let Some(grounding) = self.grounding.take().filter(|_| !self.answer.ended) else { return };
        let (queries, sources) = (hosted::queries(&grounding), hosted::sources(&grounding));
        let web = HostedTool::WebSearch;
        if !queries.is_empty() && !self.searched {
            self.answer.hosted(web, HostedPart::Call, &queries, Some(json!({})), out);
        }
        if !sources.is_empty() {
            self.answer.hosted(web, HostedPart::Result, &sources, Some(json!({})), out);
        }
    }

    /// A signature ends a text: the next one is another part.
    fn text(&mut self, text: &str, signature: Option<&str>, out: &mut Vec<StreamEvent>) {
        self.answer.text(text, out);
        if let Some(signature) = signature {
            let native = json!({SIGNATURE: signature, SIGNED_BYTES: text.len()});
            self.answer.open(BlockBuilder::Opaque { native, arguments: String::new() });
        }
    }

    fn thought(&mut self, text: &str, signature: Option<&str>, out: &mut Vec<StreamEvent>) {
        self.answer.thinking(None, text, out);
        let Some(signature) = signature else { return };
        let signed = Some(json!({SIGNATURE: signature, SIGNED_BYTES: text.len()}));
        match self.answer.blocks.last_mut() {
            Some(BlockBuilder::Thinking { native, .. }) if native.is_none() => *native = signed,
            _ => drop(self.answer.open(BlockBuilder::Thinking { text: String::new(), native: signed })),
        }
    }

    fn call(&mut self, call: FunctionCall<'_>, signature: Option<&str>, out: &mut Vec<StreamEvent>) {
        let text = |text: Option<Text<'_>>| text.unwrap_or_default().0.into_owned();
        let (id, name) = (text(call.id), text(call.name));
        let raw = call.args.map_or("", RawValue::get);
        let raw = if raw == "null" { "" } else { raw };
        let mut native = Map::new();
        if !id.is_empty() {
            native.insert("id".to_owned(), id.into());
        }
        if let Some(signature) = signature {
            native.insert(SIGNATURE.to_owned(), signature.into());
        }
        let native = (!native.is_empty()).then_some(Value::Object(native));
        let place = self.answer.open(BlockBuilder::Whole { name, arguments: String::new(), native });
        self.answer.append_arguments(place, raw, out);
    }

    /// Answers with calls end in `STOP` too.
    fn end_with(&mut self, reason: &str, said: &str, out: &mut Vec<StreamEvent>) {
        self.finished = true;
        let why = if said.is_empty() { reason.to_owned() } else { format!("{reason}: {said}") };
        let failure = |class| Failure { class, message: whole_line(&why), retry_after: None };
        match reason {
            "MAX_TOKENS" | "CONTINUATION" => self.answer.stop = Stop::MaxTokens,
            "SAFETY"
            | "RECITATION"
            | "LANGUAGE"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "MODEL_ARMOR"
            | "ESCALATION"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION" => {
                self.answer.stop = Stop::Refusal;
            }
            // The model wrote a malformed call; a retry may help.
            "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" | "MALFORMED_RESPONSE" => {
                self.answer.fail(failure(FailureClass::Stream), out);
            }
            // Like a status of 400, a refusal of the history.
            "MISSING_THOUGHT_SIGNATURE" => self.answer.fail(failure(FailureClass::History), out),
            "PUP_LIMITED_DISABLED" => self.answer.fail(failure(FailureClass::Rejected), out),
            "STOP" | "FINISH_REASON_UNSPECIFIED" => {}
            // `OTHER` and unknown reasons: an answer if there is one.
            _ if self.answer.blocks.is_empty() => self.answer.fail(failure(FailureClass::Stream), out),
            _ => {}
        }
    }

    fn count(&mut self, usage: &Value) {
        wire::count(&mut self.counts.prompt, usage, "/promptTokenCount");
        wire::count(&mut self.counts.tool_use, usage, "/toolUsePromptTokenCount");
        wire::count(&mut self.counts.cached, usage, "/cachedContentTokenCount");
        wire::count(&mut self.counts.candidates, usage, "/candidatesTokenCount");
        wire::count(&mut self.counts.thoughts, usage, "/thoughtsTokenCount");
        let total = &mut self.answer.usage;
        total.input_tokens = self.counts.prompt.saturating_add(self.counts.tool_use);
        total.cached_tokens = self.counts.cached;
        total.output_tokens = self.counts.candidates.saturating_add(self.counts.thoughts);
        total.reasoning_tokens = self.counts.thoughts;
    }
}

#[cfg(test)]
mod tests {
    use linger_protocol::message::{ContentBlock, Usage};

    use super::super::super::support::{call, check_stream, decode, text, thinking, thought};
    use super::super::super::types::Response;
    use super::super::Gemini;
    use super::*;

    fn check(chunks: &[Value], expect: &[StreamEvent]) {
        let stream: String = chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect();
        check_stream(&Gemini::default(), &stream, expect);
    }

    fn parts(parts: Value) -> Value {
        json!({"candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0}],
            "usageMetadata": {"promptTokenCount": 90, "totalTokenCount": 90}, "modelVersion": "m", "responseId": "r"})
    }

    fn end(reason: &str) -> Value {
        json!({"candidates": [{"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": reason, "index": 0}],
            "usageMetadata": {"promptTokenCount": 90, "cachedContentTokenCount": 64, "candidatesTokenCount": 12,
                "thoughtsTokenCount": 30, "toolUsePromptTokenCount": 5, "totalTokenCount": 137}})
    }

    const USAGE: Usage = Usage {
        input_tokens: 95,
        output_tokens: 42,
        cached_tokens: 64,
        cache_write_tokens: 0,
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

    fn opaque(native: Value) -> ContentBlock {
        ContentBlock::Opaque { native }
    }

    #[test]
    fn thoughts_text_and_two_calls() {
        let chunks = [
            parts(json!([{"text": "Let me ", "thought": true}])),
            parts(json!([{"text": "see.", "thought": true, "thoughtSignature": "dGhvdWdodA=="}])),
            parts(json!([{"text": "Zwei: "}])),
            parts(json!([{"text": "ä€😀"}])),
            parts(json!([
                {"functionCall": {"name": "read", "args": {"path": "ä€😀.md"}, "id": "x1"}, "thoughtSignature": "Y2FsbA=="},
                {"functionCall": {"name": "ls", "args": {}}},
            ])),
            parts(json!([{"functionCall": {"name": "ls"}}])),
            end("STOP"),
        ];
        let content = vec![
            thought("Let me see.", json!({"thoughtSignature": "dGhvdWdodA==", "signed_bytes": 4})),
            ContentBlock::text("Zwei: ä€😀"),
            call("", "read", json!({"path": "ä€😀.md"}), Some(json!({"id": "x1", "thoughtSignature": "Y2FsbA=="}))),
            call("", "ls", json!({}), None),
            call("", "ls", json!({}), None),
        ];
        check(&chunks, &[thinking(0, "Let me see."), text(1, "Zwei: ä€😀"), done(content, Stop::End)]);
    }

    #[test]
    fn a_signature_of_text_is_kept_beside_it() {
        let chunks = [
            parts(json!([{"text": "Hel"}])),
            parts(json!([{"text": "lo", "thoughtSignature": "c2ln"}])),
            parts(json!([{"text": " you"}])),
            parts(json!([{"text": "", "thoughtSignature": "ZW5k"}])),
            end("STOP"),
        ];
        let content = vec![
            ContentBlock::text("Hello"),
            opaque(json!({"thoughtSignature": "c2ln", "signed_bytes": 2})),
            ContentBlock::text(" you"),
            opaque(json!({"thoughtSignature": "ZW5k", "signed_bytes": 0})),
        ];
        check(&chunks, &[text(0, "Hello"), text(2, " you"), done(content, Stop::End)]);
    }

    #[test]
    fn what_only_the_provider_understands_is_kept_whole() {
        let code = json!({"fileData": {"fileUri": "files/1"}, "thoughtSignature": "c2ln"});
        let forged = json!([{"functionResponse": {"name": "ls", "response": {}}}, {"inlineData": {}}, {}]);
        let chunks = [parts(json!([code])), parts(forged), parts(json!([{"text": "1"}])), end("STOP")];
        check(&chunks, &[text(1, "1"), done(vec![opaque(json!({"part": code})), ContentBlock::text("1")], Stop::End)]);
    }

    #[test]
    fn hosted_tools_are_said_and_their_parts_kept_whole() {
        use HostedPart::{Call, Error, Result};
        let (web, code) = (HostedTool::WebSearch, HostedTool::CodeExecution);
        let search = json!({"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["x", "y"]}, "id": "a"}, "thoughtSignature": "c2ln"});
        let found = json!({"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "response": {"search_suggestions": "<b>"}, "id": "a"}});
        let run = json!({"executableCode": {"language": "PYTHON", "code": "print(4)", "id": "b"}});
        let ran = json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4\n", "id": "b"}});
        let failed = json!({"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "no"}});
        let mut end = end("STOP");
        end["candidates"][0]["groundingMetadata"] = json!({"webSearchQueries": ["x"],
            "groundingChunks": [{"web": {"uri": "https://a", "title": "A"}}, {"maps": {}}]});
        let chunks =
            [parts(json!([search, found])), parts(json!([run, ran, failed])), parts(json!([{"text": "4"}])), end];
        let block = |tool, part, text: &str, native: Value| ContentBlock::Hosted {
            tool,
            part,
            text: text.to_owned(),
            native: Some(native),
        };
        let part = |part: &Value| json!({ "part": part });
        let content = vec![
            block(web, Call, "x; y", part(&search)),
            block(web, Result, "", part(&found)),
            block(code, Call, "print(4)", part(&run)),
            block(code, Result, "4", part(&ran)),
            block(code, Error, "it failed\nno", part(&failed)),
            ContentBlock::text("4"),
            block(web, Result, "1 source\nA: https://a", json!({})),
        ];
        let said = |block, tool, part, text: &str| StreamEvent::Hosted { block, tool, part, text: text.to_owned() };
        let usage = Usage { cost_at_least: true, ..USAGE };
        let expect = [
            said(0, web, Call, "x; y"),
            said(2, code, Call, "print(4)"),
            said(3, code, Result, "4"),
            said(4, code, Error, "it failed\nno"),
            text(5, "4"),
            said(6, web, Result, "1 source\nA: https://a"),
            StreamEvent::Done(Response { content, stop: Stop::End, usage }),
        ];
        check(&chunks, &expect);
    }

    #[test]
    fn a_search_that_is_no_part_is_known_by_its_grounding() {
        let mut end = end("STOP");
        end["candidates"][0]["groundingMetadata"] = json!({"webSearchQueries": ["x"], "groundingChunks": []});
        let block = |text: &str| ContentBlock::Hosted {
            tool: HostedTool::WebSearch,
            part: HostedPart::Call,
            text: text.to_owned(),
            native: Some(json!({})),
        };
        let (tool, part) = (HostedTool::WebSearch, HostedPart::Call);
        let usage = Usage { cost_at_least: true, ..USAGE };
        let content = vec![ContentBlock::text("so"), block("x")];
        let expect = [
            text(0, "so"),
            StreamEvent::Hosted { block: 1, tool, part, text: "x".to_owned() },
            StreamEvent::Done(Response { content, stop: Stop::End, usage }),
        ];
        check(&[parts(json!([{"text": "so"}])), end], &expect);
    }

    #[test]
    fn reasons_to_end() {
        let content = || vec![ContentBlock::text("hi")];
        for (reason, stop) in [
            ("STOP", Stop::End),
            ("OTHER", Stop::End),
            ("MAX_TOKENS", Stop::MaxTokens),
            ("SAFETY", Stop::Refusal),
            ("RECITATION", Stop::Refusal),
            ("PROHIBITED_CONTENT", Stop::Refusal),
            ("SOMETHING_NEW", Stop::End),
        ] {
            check(&[parts(json!([{"text": "hi"}])), end(reason)], &[text(0, "hi"), done(content(), stop)]);
        }
        for (reason, class) in [
            ("MALFORMED_FUNCTION_CALL", FailureClass::Stream),
            ("UNEXPECTED_TOOL_CALL", FailureClass::Stream),
            ("MISSING_THOUGHT_SIGNATURE", FailureClass::History),
        ] {
            let mut end = end(reason);
            end["candidates"][0]["finishMessage"] = json!("said so");
            let message = format!("{reason}: said so");
            check(&[parts(json!([{"text": "hi"}])), end], &[text(0, "hi"), failed(class, &message)]);
        }
        check(&[end("OTHER")], &[failed(FailureClass::Stream, "OTHER")]);
        check(&[end("STOP")], &[done(Vec::new(), Stop::End)]);
        let blocked =
            json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9}});
        let usage = Usage { input_tokens: 9, ..Usage::default() };
        check(&[blocked], &[StreamEvent::Done(Response { content: Vec::new(), stop: Stop::Refusal, usage })]);
    }

    #[test]
    fn usage_may_come_after_the_reason() {
        let mut reason = end("STOP");
        let usage = json!({"usageMetadata": reason["usageMetadata"].take()});
        check(
            &[parts(json!([{"text": "hi"}])), reason, usage],
            &[text(0, "hi"), done(vec![ContentBlock::text("hi")], Stop::End)],
        );
    }

    #[test]
    fn an_end_without_a_reason_is_a_failure() {
        let cut = failed(FailureClass::Stream, "the answer broke off");
        check(&[parts(json!([{"text": "hi"}]))], &[text(0, "hi"), cut.clone()]);
        check(&[], &[cut]);
        let error = json!({"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}});
        let overloaded = failed(FailureClass::Overloaded, "UNAVAILABLE: The model is overloaded.");
        check(&[parts(json!([{"text": "hi"}])), error, end("STOP")], &[text(0, "hi"), overloaded]);
        let events = decode(&Gemini::default(), "data: {\"candidates\":[{\"content\":{\"parts\":[7]}}]}\n\n", 100);
        assert!(
            matches!(&events[..], [StreamEvent::Failed(Failure { class: FailureClass::Stream, .. })]),
            "{events:?}"
        );
    }
}
