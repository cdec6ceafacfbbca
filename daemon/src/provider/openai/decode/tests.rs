//! Streams as many servers send them, and what the decoder makes of them wherever they are cut; what each server counts and charges.

use super::super::super::support::{call, check_stream, text, thinking, thought, unshown};
use super::super::super::types::{Codec as _, FailureClass};
use super::super::OpenAi;
use super::*;

fn codec() -> OpenAi {
    OpenAi::default()
}

fn check(chunks: &[Value], tail: &str, expect: &[StreamEvent]) {
    let stream: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    check_stream(&codec(), &(stream + tail), expect);
}

const DONE: &str = "data: [DONE]\n\n";

fn delta(delta: Value) -> Value {
    json!({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn content(text: &str) -> Value {
    delta(json!({"content": text}))
}

fn end(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn done(content: Vec<ContentBlock>) -> StreamEvent {
    StreamEvent::Done(Response { content, ..Response::default() })
}

fn failed(class: FailureClass, message: &str) -> StreamEvent {
    StreamEvent::Failed(Failure { class, message: message.to_owned(), retry_after: None })
}

#[test]
fn usage_is_counted_in_every_servers_own_way() {
    fn check(compat: Compat, said: Value, expect: (u64, u64, u64, u64, Option<u64>)) {
        let chunk = json!({"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}], "usage": said});
        let mut decoder = ChatDecoder::new(compat);
        decoder.feed("", &chunk.to_string(), &mut Vec::new());
        let got = decoder.usage();
        let Usage { input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost_micros, .. } = got;
        let got = (input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost_micros);
        assert_eq!(got, expect, "{said}");
    }
    let xai = json!({"prompt_tokens": 37, "completion_tokens": 530, "total_tokens": 800,
        "completion_tokens_details": {"reasoning_tokens": 233}});
    check(Compat::NONE, xai, (37, 763, 0, 233, None));
    let openai = json!({"prompt_tokens": 37, "completion_tokens": 530, "total_tokens": 567,
        "completion_tokens_details": {"reasoning_tokens": 233}});
    check(Compat::NONE, openai, (37, 530, 0, 233, None));
    let deepseek = json!({"prompt_tokens": 90, "completion_tokens": 5, "total_tokens": 95,
        "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 26});
    check(Compat::NONE, deepseek, (90, 5, 64, 0, None));
    check(Compat::NONE, json!({"prompt_tokens": 9, "completion_tokens": 1, "cached_tokens": 8}), (9, 1, 8, 0, None));
    let router = Compat { usage_cost: Some(true), ..Compat::NONE };
    let paid = json!({"prompt_tokens": 9, "completion_tokens": 1, "cost": 0.00125, "is_byok": false});
    check(router, paid.clone(), (9, 1, 0, 0, Some(1250)));
    check(Compat::NONE, paid, (9, 1, 0, 0, None));
    let own_key = json!({"prompt_tokens": 9, "completion_tokens": 1, "cost": 0.0001, "is_byok": true,
        "cost_details": {"upstream_inference_cost": 0.002}});
    check(router, own_key, (9, 1, 0, 0, Some(2100)));
    check(router, json!({"prompt_tokens": 9, "completion_tokens": 1, "cost": -1.0}), (9, 1, 0, 0, None));
    check(router, json!({"prompt_tokens": 9, "completion_tokens": 1, "cost": null}), (9, 1, 0, 0, None));
    check(Compat::NONE, json!({"prompt_tokens": u64::MAX, "completion_tokens": -3}), (1_000_000_000, 0, 0, 0, None));
}

#[test]
fn older_shapes_are_read() {
    let message = |message: Value| json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]});
    check(&[message(json!({"content": "hi"}))], DONE, &[text(0, "hi"), done(vec![ContentBlock::text("hi")])]);
    // A last chunk with the whole message adds nothing to what was streamed.
    let expect = [text(0, "hi"), done(vec![ContentBlock::text("hi")])];
    check(&[content("hi"), message(json!({"content": "hi"}))], DONE, &expect);
    let ls = call("", "ls", json!({"a": 1}), Some(json!({"arguments": "{\"a\": 1}"})));
    let pieces = [
        delta(json!({"function_call": {"name": "ls", "arguments": ""}})),
        delta(json!({"function_call": {"arguments": "{\"a\""}})),
        delta(json!({"function_call": {"arguments": ": 1}"}})),
        end("function_call"),
    ];
    check(&pieces, DONE, &[done(vec![ls.clone()])]);
    let whole = message(json!({"content": null, "function_call": {"name": "ls", "arguments": "{\"a\": 1}"}}));
    check(&[whole], DONE, &[done(vec![ls])]);
}

#[test]
fn after_a_failure_nothing_comes_that_was_held_back() {
    let expect = [failed(
        FailureClass::Stream,
        "the provider sent a chunk that makes no sense: expected ident at line 1 column 2: nonsense",
    )];
    check(&[content("<think"), end("stop")], "data: nonsense\n\n", &expect);
}

#[test]
fn text_and_usage() {
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 90, "completion_tokens": 7, "total_tokens": 97,
        "prompt_tokens_details": {"cached_tokens": 64}, "completion_tokens_details": {"reasoning_tokens": 3}}});
    let chunks =
        [delta(json!({"role": "assistant", "content": ""})), content("Guten "), content("Täg"), end("stop"), usage];
    let usage = Usage {
        input_tokens: 90,
        output_tokens: 7,
        cached_tokens: 64,
        cache_write_tokens: 0,
        reasoning_tokens: 3,
        cost_micros: None,
        cost_at_least: false,
    };
    let response = Response { content: vec![ContentBlock::text("Guten Täg")], stop: Stop::End, usage };
    check(&chunks, DONE, &[text(0, "Guten Täg"), StreamEvent::Done(response.clone())]);
    check(&chunks, ": keep-alive\n\n", &[text(0, "Guten Täg"), StreamEvent::Done(response)]);
}

fn piece(index: Option<u32>, id: Option<&str>, name: Option<&str>, arguments: &str) -> Value {
    let mut piece = json!({"function": {"arguments": arguments}});
    index.into_iter().for_each(|index| piece["index"] = index.into());
    id.into_iter().for_each(|id| piece["id"] = id.into());
    name.into_iter().for_each(|name| piece["function"]["name"] = name.into());
    delta(json!({"content": null, "tool_calls": [piece]}))
}

fn read(id: Option<&str>) -> ContentBlock {
    call("", "read", json!({"path": "ä€😀"}), id.map(|id| json!({"id": id})))
}

fn ls(id: Option<&str>) -> ContentBlock {
    call("", "ls", json!({}), id.map(|id| json!({"id": id})))
}

#[test]
fn parallel_calls_however_servers_number_them() {
    let one = |index, again: Option<&str>| {
        [
            piece(index, Some("a"), Some("read"), ""),
            piece(index, again, None, "{\"path\":\"ä"),
            piece(index, again, None, "€😀\"}"),
        ]
    };
    let both = [done(vec![read(Some("a")), ls(Some("b"))])];
    for (first, second) in [(Some(0), Some(1)), (Some(0), Some(0)), (None, None)] {
        for again in [None, Some("a")] {
            let rest = [piece(second, Some("b"), Some("ls"), "{}"), end("tool_calls")];
            check(&[one(first, again).as_slice(), &rest].concat(), DONE, &both);
        }
    }
    // Whole calls in one piece, without ids.
    for index in [None, Some(0)] {
        let whole = piece(index, None, Some("read"), "{\"path\":\"ä€😀\"}");
        check(
            &[whole.clone(), piece(index, None, Some("ls"), ""), end("stop")],
            DONE,
            &[done(vec![read(None), ls(None)])],
        );
        check(&[whole.clone(), whole, end("stop")], DONE, &[done(vec![read(None), read(None)])]);
    }
    let bare = |id| piece(Some(0), Some(id), Some("ls"), "");
    check(&[bare("a"), bare("b"), end("stop")], DONE, &[done(vec![ls(Some("a")), ls(Some("b"))])]);
    // The name in every piece.
    let named = |arguments| piece(Some(0), None, Some("read"), arguments);
    check(&[named(""), named("{\"path\":\""), named("ä€😀\"}"), end("stop")], DONE, &[done(vec![read(None)])]);
    // Arguments that are an object.
    let object =
        delta(json!({"tool_calls": [{"index": 0, "function": {"name": "read", "arguments": {"path": "ä€😀"}}}]}));
    check(&[object, end("stop")], DONE, &[done(vec![read(None)])]);
}

#[test]
fn a_piece_with_an_id_of_its_own_goes_on_with_its_call() {
    let chunks = [
        piece(Some(0), Some("a"), Some("read"), ""),
        piece(Some(0), Some("b"), None, "{\"path\":\""),
        piece(Some(0), Some("c"), None, "ä€😀\"}"),
        piece(Some(0), Some("d"), Some("ls"), "{}"),
        end("tool_calls"),
    ];
    check(&chunks, DONE, &[done(vec![read(Some("a")), ls(Some("d"))])]);
}

#[test]
fn what_is_odd_beside_an_answer_does_not_spoil_it() {
    for error in [json!(false), json!(""), json!({}), Value::Null] {
        let mut chunk = content("hi");
        chunk["error"] = error;
        check(&[chunk, end("stop")], DONE, &[text(0, "hi"), done(vec![ContentBlock::text("hi")])]);
    }
    for index in [json!("0"), json!(-1), json!(0.0), Value::Null] {
        let mut chunk = piece(None, None, Some("ls"), "{}");
        chunk["choices"][0]["delta"]["tool_calls"][0]["index"] = index;
        check(&[chunk, end("stop")], DONE, &[done(vec![ls(None)])]);
    }
    check(
        &[delta(json!({"tool_calls": [null], "content": "a"})), end("stop")],
        DONE,
        &[text(0, "a"), done(vec![ContentBlock::text("a")])],
    );
    let odd = delta(json!({"reasoning_details": {"type": "x"}, "content": "a"}));
    check(&[odd, end("stop")], DONE, &[text(0, "a"), done(vec![ContentBlock::text("a")])]);
    check(&[piece(Some(0), None, Some("ls"), "null"), end("stop")], DONE, &[done(vec![ls(None)])]);
}

#[test]
fn arguments_are_kept_as_written_where_they_are_not_canonical() {
    let native = json!({"id": "a", "arguments": "{ \"a\": 1 }"});
    let chunks =
        [piece(Some(0), Some("a"), Some("ls"), "{ \"a\""), piece(Some(0), None, None, ": 1 }"), end("tool_calls")];
    check(&chunks, DONE, &[done(vec![call("", "ls", json!({"a": 1}), Some(native))])]);
    let chunks = [piece(Some(0), Some("a"), Some("ls"), "{\"a\":"), end("length")];
    let response = Response {
        content: vec![call("", "ls", json!("{\"a\":"), Some(json!({"id": "a"})))],
        stop: Stop::MaxTokens,
        ..Response::default()
    };
    check(&chunks, DONE, &[StreamEvent::Done(response)]);
}

#[test]
fn thinking_wherever_servers_put_it() {
    for field in ["reasoning_content", "reasoning"] {
        let chunks =
            [delta(json!({field: "h"})), delta(json!({field: "m", "content": null})), content("so"), end("stop")];
        let blocks = vec![thought("hm", json!({"field": field})), ContentBlock::text("so")];
        check(&chunks, DONE, &[thinking(0, "hm"), text(1, "so"), done(blocks)]);
    }
    let both = [thinking(1, "h<m</"), text(3, "so <think>")];
    let within = |text| thought(text, json!({"field": "content"}));
    let so = ContentBlock::text("so <think>");
    let blocks = vec![unshown("\n<think>"), within("h<m</"), unshown("</think>\n\n"), so];
    let expect = [both.as_slice(), &[done(blocks)]].concat();
    let whole = "\n<think>h<m</</think>\n\nso <think>";
    check(&[content(whole), end("stop")], DONE, &expect);
    let letters: Vec<Value> = whole.chars().map(|c| content(&c.to_string())).chain([end("stop")]).collect();
    check(&letters, DONE, &expect);
    let blocks = vec![unshown("<think>"), within("cut</thi")];
    check(
        &[content("<think>cut</thi"), end("length")],
        DONE,
        &[
            thinking(1, "cut</thi"),
            StreamEvent::Done(Response { content: blocks, stop: Stop::MaxTokens, ..Response::default() }),
        ],
    );
    let parts =
        json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "so"}]);
    let blocks = vec![thought("hm", json!({"field": "parts"})), ContentBlock::text("so")];
    check(&[delta(json!({"content": parts})), end("stop")], DONE, &[thinking(0, "hm"), text(1, "so"), done(blocks)]);
}

#[test]
fn thinking_that_has_no_opening_tag() {
    let said = "h<m\n</think>\n\nso `</think>`";
    let chunks: Vec<Value> = said.chars().map(|c| content(&c.to_string())).chain([end("stop")]).collect();
    // What was shown stays text; what follows is the last block, which a schema is held against.
    let (mark, so) = (unshown("</think>\n\n"), ContentBlock::text("so `</think>`"));
    let blocks = vec![ContentBlock::text("h<m\n"), mark.clone(), so.clone()];
    check(&chunks, DONE, &[text(0, "h<m\n"), text(2, "so `</think>`"), done(blocks)]);
    let open = OpenAi::new(Compat { think_open: Some(true), ..Compat::NONE });
    let stream: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    let blocks = vec![thought("h<m\n", json!({"field": "content"})), mark, so];
    check_stream(&open, &(stream + DONE), &[thinking(0, "h<m\n"), text(2, "so `</think>`"), done(blocks)]);
}

#[test]
fn what_is_held_back_of_the_text_stands_before_what_comes_next() {
    let asked = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "ls", "arguments": "{}"}}]});
    let ls = call("", "ls", json!({}), Some(json!({"id": "a"})));
    let blocks = vec![ContentBlock::text("if a <"), ls];
    check(&[content("if a <"), delta(asked), end("stop")], DONE, &[text(0, "if a <"), done(blocks)]);
    let blocks =
        vec![ContentBlock::text("a <"), thought("hm", json!({"field": "reasoning"})), ContentBlock::text("/think>")];
    let chunks = [content("a <"), delta(json!({"reasoning": "hm"})), content("/think>"), end("stop")];
    check(&chunks, DONE, &[text(0, "a <"), thinking(1, "hm"), text(2, "/think>"), done(blocks)]);
}

#[test]
fn openrouter_comments_details_and_errors() {
    let detail = |detail: Value| delta(json!({"content": "", "reasoning": "h", "reasoning_details": [detail]}));
    let chunks = [
        detail(json!({"type": "reasoning.text", "text": "h", "format": "anthropic-claude-v1", "index": 0})),
        detail(
            json!({"type": "reasoning.text", "text": "m", "signature": null, "format": "anthropic-claude-v1", "index": 0}),
        ),
        detail(json!({"type": "reasoning.text", "signature": "c2ln", "index": 0})),
        detail(
            json!({"type": "reasoning.encrypted", "data": "eA==", "id": "rs_1", "format": "openai-responses-v1", "index": 1}),
        ),
        content("so"),
        end("stop"),
    ];
    let details = json!([
        {"type": "reasoning.text", "text": "hm", "format": "anthropic-claude-v1", "index": 0, "signature": "c2ln"},
        {"type": "reasoning.encrypted", "data": "eA==", "id": "rs_1", "format": "openai-responses-v1", "index": 1},
    ]);
    let blocks = vec![
        thought("hhhh", json!({"field": "reasoning"})),
        ContentBlock::text("so"),
        ContentBlock::Opaque { native: json!({"reasoning_details": details}) },
    ];
    check(&chunks, DONE, &[thinking(0, "hhhh"), text(1, "so"), done(blocks)]);
    let comment = ": OPENROUTER PROCESSING\n\n";
    let error = json!({"id": "x", "error": {"code": "server_error", "message": "Provider disconnected"},
        "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]});
    let stream = format!("{comment}data: {}\n\n{comment}data: {error}\n\n{DONE}", content("hi"));
    let failed = failed(FailureClass::Overloaded, "server_error: Provider disconnected");
    check_stream(&codec(), &stream, &[text(0, "hi"), failed]);
}

#[test]
fn a_signature_beside_a_call_is_kept_with_it() {
    let extra = json!({"google": {"thought_signature": "c2ln"}});
    let chunk = delta(json!({"tool_calls": [
        {"index": 0, "id": "a", "function": {"name": "ls", "arguments": "{}"}, "extra_content": extra},
        {"index": 1, "id": "b", "function": {"name": "ls", "arguments": "{}"}}]}));
    let first = call("", "ls", json!({}), Some(json!({"id": "a", "extra_content": extra})));
    check(&[chunk, end("tool_calls")], DONE, &[done(vec![first, ls(Some("b"))])]);
}

#[test]
fn usage_may_come_with_every_chunk_or_never() {
    let usage = |n: u64| json!({"prompt_tokens": 90, "completion_tokens": n});
    let with = |mut chunk: Value, n| {
        chunk["usage"] = usage(n);
        chunk
    };
    let said = vec![ContentBlock::text("hi")];
    let counted = Usage { input_tokens: 90, output_tokens: 3, ..Usage::default() };
    let response = Response { content: said.clone(), usage: counted, ..Response::default() };
    let chunks = [with(content("h"), 1), with(content("i"), 2), with(end("stop"), 3)];
    check(&chunks, DONE, &[text(0, "hi"), StreamEvent::Done(response)]);
    check(&[content("h"), content("i"), end("stop")], DONE, &[text(0, "hi"), done(said)]);
    // An answer without choices in between, and one whose reason never comes.
    let empty = json!({"choices": []});
    let null = json!({"choices": null, "usage": null});
    check(&[empty.clone(), content("hi"), null, empty], DONE, &[text(0, "hi"), done(vec![ContentBlock::text("hi")])]);
}

#[test]
fn a_plain_key_error_is_no_riddle() {
    let failure = codec().failure(401, b"{\"error\":{\"message\":\"Incorrect API key\",\"code\":\"invalid_api_key\"}}");
    assert_eq!(
        (failure.class, failure.message.as_str()),
        (FailureClass::Auth, "401 invalid_api_key: Incorrect API key")
    );
}

#[test]
fn what_only_looks_like_a_tag_is_text() {
    for said in ["<thin", "<b>bold</b>", "  <think", "a <think>b</think>"] {
        check(&[content(said), end("stop")], DONE, &[text(0, said), done(vec![ContentBlock::text(said)])]);
    }
}

#[test]
fn ends_good_and_bad() {
    let hi = || vec![text(0, "hi")];
    let good = [hi(), vec![done(vec![ContentBlock::text("hi")])]].concat();
    check(&[content("hi")], DONE, &good);
    check(&[content("hi"), end("stop")], "", &good);
    let cut = failed(FailureClass::Stream, "the answer broke off");
    check(&[content("hi")], "", &[hi(), vec![cut.clone()]].concat());
    check(&[], "", &[cut]);
    check(&[], DONE, &[failed(FailureClass::Stream, "the provider ended the stream without an answer")]);
    let error = json!({"error": {"code": 502, "message": "upstream"}, "choices": []});
    check(&[content("hi"), error], DONE, &[hi(), vec![failed(FailureClass::Overloaded, "upstream")]].concat());
    let refused = Response { content: vec![ContentBlock::text("no")], stop: Stop::Refusal, ..Response::default() };
    check(&[delta(json!({"refusal": "no"})), end("stop")], DONE, &[text(0, "no"), StreamEvent::Done(refused)]);
}

#[test]
fn a_chunk_that_is_no_json_is_a_failure_but_a_bad_escape_is_not() {
    let bad = "data: {\"choices\":[{\"delta\":{\"content\":\"a\\udc00\"},\"finish_reason\":\"stop\"}]}\n\n";
    check(&[], bad, &[text(0, "a\u{fffd}"), done(vec![ContentBlock::text("a\u{fffd}")])]);
    let events = super::super::super::support::decode(&codec(), "data: oops\n\n", 100);
    assert!(matches!(&events[..], [StreamEvent::Failed(Failure { class: FailureClass::Stream, .. })]), "{events:?}");
}

#[test]
fn calls_without_end_end_the_answer_and_are_not_gathered() {
    let calls: Vec<Value> = (0..600).map(|n| json!({"index": n, "id": format!("c{n}")})).collect();
    let (mut decoder, mut out) = (ChatDecoder::new(Compat::NONE), Vec::new());
    decoder.feed("", &delta(json!({"tool_calls": calls})).to_string(), &mut out);
    assert_eq!(out, [failed(FailureClass::Rejected, "the answer has more than 512 blocks")]);
    assert_eq!(decoder.calls.len(), 513);
}

#[test]
fn a_choice_that_is_null_is_none_and_one_with_an_error_says_why() {
    let null = json!({"choices": [null]});
    let stopped = done(vec![ContentBlock::text("hi")]);
    check(&[null.clone(), content("hi"), null, end("stop")], DONE, &[text(0, "hi"), stopped]);
    let error = json!({"code": 503, "message": "no worker is free"});
    let broken = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": error}]});
    check(&[broken], DONE, &[failed(FailureClass::Overloaded, "no worker is free")]);
}

#[test]
fn calls_that_are_announced_and_not_there_are_told() {
    let stops = |stop: Stop| {
        StreamEvent::Done(Response { content: vec![ContentBlock::text("I look.")], stop, ..Response::default() })
    };
    for reason in ["tool_calls", "function_call"] {
        check(&[content("I look."), end(reason)], DONE, &[text(0, "I look."), stops(Stop::NoCalls)]);
    }
    check(&[content("I look."), end("stop")], DONE, &[text(0, "I look."), stops(Stop::End)]);
}
