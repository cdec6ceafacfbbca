//! Streams of events, and what the decoder makes of them wherever they are cut: blocks, citations, hosted tools, ends good and bad.

use linger_protocol::message::{ContentBlock, HostedTool, Usage};

use super::super::super::support::{call, check_stream, text, thinking, thought};
use super::super::super::types::Response;
use super::super::Anthropic;
use super::*;

fn check(events: &[Value], expect: &[StreamEvent]) {
    let stream: String = events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default()))
        .collect();
    check_stream(&Anthropic::default(), &stream, expect);
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage":
        {"input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5, "output_tokens": 1}}})
}

fn end(reason: &str) -> [Value; 2] {
    let delta = json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": 42}});
    [delta, json!({"type": "message_stop"})]
}

fn block(index: u32, block: Value, deltas: &[Value]) -> Vec<Value> {
    let mut events = vec![json!({"type": "content_block_start", "index": index, "content_block": block})];
    events.extend(deltas.iter().map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})));
    events.push(json!({"type": "content_block_stop", "index": index}));
    events
}

const USAGE: Usage = Usage {
    input_tokens: 115,
    output_tokens: 42,
    cached_tokens: 100,
    cache_write_tokens: 5,
    reasoning_tokens: 0,
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
fn signed_thinking_text_and_two_calls() {
    let partial = |json: &str| json!({"type": "input_json_delta", "partial_json": json});
    let events = [
        vec![start(), json!({"type": "ping"})],
        block(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            &[
                json!({"type": "thinking_delta", "thinking": "Let me "}),
                json!({"type": "thinking_delta", "thinking": "see."}),
                json!({"type": "signature_delta", "signature": "EqQB"}),
                json!({"type": "signature_delta", "signature": "CgIY"}),
            ],
        ),
        block(1, json!({"type": "redacted_thinking", "data": "EmwK"}), &[]),
        block(2, json!({"type": "text", "text": ""}), &[]),
        block(3, json!({"type": "text", "text": ""}), &[json!({"type": "text_delta", "text": "Zwei: ä€😀"})]),
        block(
            4,
            json!({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}),
            &[partial(""), partial("{\"path\": \"ä"), partial("€😀.md\"}")],
        ),
        block(5, json!({"type": "tool_use", "id": "toolu_2", "name": "ls", "input": {}}), &[]),
        end("tool_use").to_vec(),
    ]
    .concat();
    let content = vec![
        thought("Let me see.", json!({"signature": "EqQBCgIY"})),
        ContentBlock::Opaque { native: json!({"type": "redacted_thinking", "data": "EmwK"}) },
        ContentBlock::text("Zwei: ä€😀"),
        call("", "read", json!({"path": "ä€😀.md"}), Some(json!({"id": "toolu_1"}))),
        call("", "ls", json!({}), Some(json!({"id": "toolu_2"}))),
    ];
    check(&events, &[thinking(0, "Let me see."), text(2, "Zwei: ä€😀"), done(content, Stop::End)]);
}

#[test]
fn a_block_that_could_not_go_back_is_not_kept() {
    let pieces = [json!({"type": "text_delta", "text": "a"})];
    let events = [
        vec![start()],
        block(0, json!({"cgntent": 1}), &pieces),
        block(1, json!({"type": "tool_result", "content": []}), &[]),
        end("end_turn").to_vec(),
    ];
    check(&events.concat(), &[text(0, "a"), done(vec![ContentBlock::text("a")], Stop::End)]);
}

#[test]
fn a_cut_call_keeps_what_the_model_wrote() {
    let delta = json!({"type": "input_json_delta", "partial_json": "{\"path\": \"a"});
    let events = [
        vec![start()],
        block(0, json!({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}), &[delta]),
        end("max_tokens").to_vec(),
    ];
    let content = vec![call("", "read", json!("{\"path\": \"a"), Some(json!({"id": "toolu_1"})))];
    check(&events.concat(), &[done(content, Stop::MaxTokens)]);
}

#[test]
fn stop_reasons() {
    let said = || block(0, json!({"type": "text", "text": "hi"}), &[]);
    for (reason, stop) in [
        ("end_turn", Stop::End),
        ("pause_turn", Stop::Paused),
        ("refusal", Stop::Refusal),
        ("max_tokens", Stop::MaxTokens),
    ] {
        let events = [vec![start()], said(), end(reason).to_vec()].concat();
        check(&events, &[text(0, "hi"), done(vec![ContentBlock::text("hi")], stop)]);
    }
    let full = || failed(FailureClass::TooLong, "the context fills the model's window");
    check(&[vec![start()], end("model_context_window_exceeded").to_vec()].concat(), &[full()]);
    let events = [vec![start()], said(), end("model_context_window_exceeded").to_vec()].concat();
    check(&events, &[text(0, "hi"), full()]);
}

fn saying(block: u32, tool: HostedTool, part: HostedPart, text: &str) -> StreamEvent {
    StreamEvent::Hosted { block, tool, part, text: text.to_owned() }
}

fn kept(tool: HostedTool, part: HostedPart, text: &str, native: &Value) -> ContentBlock {
    ContentBlock::Hosted { tool, part, text: text.to_owned(), native: Some(native.clone()) }
}

#[test]
fn a_search_is_said_and_what_rests_on_it_is_one_text() {
    use HostedPart::{Call, Error, Result};
    let web = HostedTool::WebSearch;
    let call = |id: &str, input: Value| json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": input, "caller": {"type": "direct"}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
        {"type": "web_search_result", "title": "Rust", "url": "https://rust-lang.org", "encrypted_content": "Eo8=", "page_age": null}]});
    let refused = json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_2",
        "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}});
    let cites = json!({"type": "web_search_result_location", "cited_text": "1.0", "url": "u", "title": "t", "encrypted_index": "Eo8="});
    let words = |text: &str| json!({"type": "text_delta", "text": text});
    let partial = |json: &str| json!({"type": "input_json_delta", "partial_json": json});
    let events = [
        vec![start()],
        block(0, call("srvtoolu_1", json!({})), &[partial("{\"query\": \"ru"), partial("st\"}")]),
        block(1, found.clone(), &[]),
        block(2, json!({"type": "text", "text": ""}), &[words("It is ")]),
        block(
            3,
            json!({"type": "text", "text": "", "citations": []}),
            &[words("öld"), json!({"type": "citations_delta", "citation": cites})],
        ),
        block(4, json!({"type": "text", "text": ""}), &[words(".")]),
        block(5, call("srvtoolu_2", json!({"query": "more"})), &[]),
        block(6, refused.clone(), &[]),
        end("end_turn").to_vec(),
    ]
    .concat();
    let cited = json!({"cited": [[6, null], [4, [cites]], [1, null]]});
    let content = vec![
        kept(web, Call, "rust", &call("srvtoolu_1", json!({"query": "rust"}))),
        kept(web, Result, "1 source\nRust: https://rust-lang.org", &found),
        ContentBlock::text("It is öld."),
        ContentBlock::Opaque { native: cited },
        kept(web, Call, "more", &call("srvtoolu_2", json!({"query": "more"}))),
        kept(web, Error, "max_uses_exceeded", &refused),
    ];
    let usage = Usage { cost_at_least: true, ..USAGE };
    let expect = [
        saying(0, web, Call, "rust"),
        saying(1, web, Result, "1 source\nRust: https://rust-lang.org"),
        text(2, "It is öld."),
        saying(4, web, Call, "more"),
        saying(5, web, Error, "max_uses_exceeded"),
        StreamEvent::Done(Response { content, stop: Stop::End, usage }),
    ];
    check(&events, &expect);
}

#[test]
fn code_runs_in_a_container_that_is_named() {
    use HostedPart::Call;
    let code = HostedTool::CodeExecution;
    let call =
        json!({"type": "server_tool_use", "id": "s1", "name": "bash_code_execution", "input": {"command": "ls"}});
    let mut end = end("pause_turn");
    end[0]["delta"]["container"] = json!({"id": "container_1", "expires_at": "2026-11-21T00:00:00Z"});
    let events = [vec![start()], block(0, call.clone(), &[]), end.to_vec()].concat();
    let content =
        vec![kept(code, Call, "ls", &call), ContentBlock::Opaque { native: json!({"container": "container_1"}) }];
    let usage = Usage { cost_at_least: true, ..USAGE };
    let done = StreamEvent::Done(Response { content, stop: Stop::Paused, usage });
    check(&events, &[saying(0, code, Call, "ls"), done]);
}

#[test]
fn errors_and_cuts_in_mid_stream_are_failures() {
    let said = || [vec![start()], block(0, json!({"type": "text", "text": "hi"}), &[])].concat();
    let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let events = [said(), vec![error], end("end_turn").to_vec()].concat();
    check(&events, &[text(0, "hi"), failed(FailureClass::Overloaded, "overloaded_error: Overloaded")]);
    check(&said(), &[text(0, "hi"), failed(FailureClass::Stream, "the answer broke off")]);
    check_stream(&Anthropic::default(), "", &[failed(FailureClass::Stream, "the answer broke off")]);
}

#[test]
fn bad_escapes_do_not_end_a_stream() {
    let mut stream = format!("data: {}\n\n", start());
    stream +=
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n";
    stream += "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\\ud800b\\u0000c\"}}\n\n";
    end("end_turn").iter().for_each(|event| stream += &format!("data: {event}\n\n"));
    let mended = "a\u{fffd}b\u{fffd}c";
    check_stream(&Anthropic::default(), &stream, &[text(0, mended), done(vec![ContentBlock::text(mended)], Stop::End)]);
}

#[test]
fn signed_thinking_that_came_with_bad_escapes_loses_its_signature() {
    let signed = |index: u64, text: &str, signature: &str| {
        let start = json!({"type": "content_block_start", "index": index, "content_block": {"type": "thinking", "thinking": ""}});
        let delta = |kind: &str, name: &str, text: &str| {
            let delta = format!("{{\"type\":\"{kind}\",\"{name}\":\"{text}\"}}");
            format!("data: {{\"type\":\"content_block_delta\",\"index\":{index},\"delta\":{delta}}}\n\n")
        };
        let deltas = delta("thinking_delta", "thinking", text) + &delta("signature_delta", "signature", signature);
        format!("data: {start}\n\n{deltas}")
    };
    let mut stream = format!("data: {}\n\n", start());
    stream += &signed(0, "a\\u0000b", "c2ln");
    stream += &signed(1, "whole", "c2ln");
    stream += &signed(2, "also whole", "c2\\u0000");
    stream += "data: {\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"redacted_thinking\",\"data\":\"x\\ud800\"}}\n\n";
    end("end_turn").iter().for_each(|event| stream += &format!("data: {event}\n\n"));
    let block = |text: &str, native: Option<Value>| ContentBlock::Thinking { text: text.to_owned(), native };
    let content = vec![
        block("a\u{fffd}b", None),
        block("whole", Some(json!({"signature": "c2ln"}))),
        block("also whole", None),
        ContentBlock::Opaque { native: json!({}) },
    ];
    let events = [(0, "a\u{fffd}b"), (1, "whole"), (2, "also whole")].map(|(block, text)| thinking(block, text));
    check_stream(&Anthropic::default(), &stream, &[&events[..], &[done(content, Stop::End)]].concat());
}

#[test]
fn blocks_that_are_begun_without_end_are_not_gathered() {
    let (mut decoder, mut out) = (MessagesDecoder::default(), Vec::new());
    let mut feed = |event: Value| decoder.feed("", &event.to_string(), &mut out);
    feed(start());
    for index in 0..1000 {
        feed(json!({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}));
    }
    // What was begun long ago is over.
    for index in [0, 999] {
        feed(json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": "hi"}}));
    }
    end("end_turn").into_iter().for_each(feed);
    let Some(StreamEvent::Done(response)) = out.pop() else { panic!("{out:?}") };
    assert_eq!((response.content, decoder.open.len()), (vec![ContentBlock::text("hi")], MAX_OPEN));
}

#[test]
fn an_error_without_a_type_keeps_its_reason() {
    for data in [
        json!({"code": 400, "message": "no room", "type": "invalid_request_error"}),
        json!({"error": {"code": 400, "message": "no room", "type": "invalid_request_error"}}),
    ] {
        let body = format!("event: error\ndata: {data}\n\n");
        let failure = Failure {
            class: FailureClass::Rejected,
            message: "invalid_request_error: no room".to_owned(),
            retry_after: None,
        };
        check_stream(&Anthropic::default(), &body, &[StreamEvent::Failed(failure)]);
    }
}

#[test]
fn text_and_thinking_that_come_after_a_call_has_begun_go_on_behind_it() {
    let delta = |index: u32, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let said = |text: &str| delta(1, json!({"type": "text_delta", "text": text}));
    let thought = |text: &str| delta(0, json!({"type": "thinking_delta", "thinking": text}));
    let begin =
        |index: u32, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let events = [
        vec![start(), begin(0, json!({"type": "thinking", "thinking": ""})), thought("h")],
        vec![begin(1, json!({"type": "text", "text": ""})), said("I lo")],
        vec![begin(2, json!({"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}}))],
        vec![said("ok."), delta(2, json!({"type": "input_json_delta", "partial_json": "{}"})), thought("m")],
        vec![delta(0, json!({"type": "signature_delta", "signature": "c2ln"})), said(" So.")],
        end("tool_use").to_vec(),
    ]
    .concat();
    let thinks = |text: &str| ContentBlock::Thinking { text: text.to_owned(), native: None };
    let content = vec![
        // Its signature is of all of it.
        thinks("h"),
        ContentBlock::text("I lo"),
        call("", "ls", json!({}), Some(json!({"id": "toolu_1"}))),
        ContentBlock::text("ok."),
        thinks("m"),
        ContentBlock::text(" So."),
    ];
    check(
        &events,
        &[
            thinking(0, "h"),
            text(1, "I lo"),
            text(3, "ok."),
            thinking(4, "m"),
            text(5, " So."),
            done(content, Stop::End),
        ],
    );
}
