//! The body checker against bodies that were made up: good ones pass, every planted fault is found.

use serde_json::json;

use super::*;

fn claude(messages: &Value) -> Vec<u8> {
    json!({ "model": "m", "stream": true, "max_tokens": 9, "messages": messages }).to_string().into_bytes()
}

fn gpt(messages: &Value) -> Vec<u8> {
    json!({ "model": "m", "stream": true, "messages": messages }).to_string().into_bytes()
}

fn call(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "bash", "input": {} })
}

fn result(id: &str) -> Value {
    json!({ "type": "tool_result", "tool_use_id": id, "content": "x" })
}

#[test]
fn a_good_conversation_passes_in_both_formats() {
    let body = claude(&json!([
        { "role": "user", "content": "hi" },
        { "role": "assistant", "content": [{ "type": "text", "text": "so" }, call("a"), call("b")] },
        { "role": "user", "content": [result("a"), result("b"), { "type": "text", "text": "and" }] },
    ]));
    assert_eq!(well_formed(Format::Anthropic, &body), Vec::<String>::new());
    let calls = json!([{ "id": "a", "type": "function", "function": { "name": "bash", "arguments": "{}" } }]);
    let body = gpt(&json!([
        { "role": "system", "content": "you" },
        { "role": "user", "content": "hi" },
        { "role": "assistant", "content": null, "tool_calls": calls },
        { "role": "tool", "tool_call_id": "a", "content": "x" },
    ]));
    assert_eq!(well_formed(Format::OpenAi, &body), Vec::<String>::new());
}

#[test]
fn each_planted_fault_is_found_in_anthropic_messages() {
    let user = json!({ "role": "user", "content": "hi" });
    let asked = json!({ "role": "assistant", "content": [call("a")] });
    let planted = [
        ("has 0 results", json!([user, asked, { "role": "user", "content": "no" }])),
        ("has 2 results", json!([user, asked, { "role": "user", "content": [result("a"), result("a")] }])),
        ("has no call", json!([user, asked, { "role": "user", "content": [result("a"), result("b")] }])),
        (
            "not first",
            json!([user, asked, { "role": "user", "content": [{ "type": "text", "text": "x" }, result("a")] }]),
        ),
        ("first message", json!([asked, { "role": "user", "content": [result("a")] }])),
        ("no content", json!([{ "role": "user", "content": [] }])),
        ("empty text", json!([{ "role": "user", "content": " " }])),
        ("NUL", json!([{ "role": "user", "content": "a\u{0}" }])),
        (
            "used twice",
            json!([user, asked, { "role": "user", "content": [result("a")] }, asked, { "role": "user", "content": [result("a")] }]),
        ),
        ("last message", json!([user, { "role": "assistant", "content": "x" }])),
        (
            "signature",
            json!([user, { "role": "assistant", "content": [{ "type": "thinking", "thinking": "x" }] }, user]),
        ),
    ];
    for (what, messages) in planted {
        let found = well_formed(Format::Anthropic, &claude(&messages));
        assert!(found.iter().any(|wrong| wrong.contains(what)), "{what}: {found:?}");
    }
    assert_eq!(well_formed(Format::Anthropic, b"{\"a\xff\":1}"), ["the body is not UTF-8"]);
    assert!(well_formed(Format::Anthropic, br#"{"a":"\ud800"}"#)[0].contains("not JSON"));
}

#[test]
fn each_planted_fault_is_found_in_chat_completions() {
    let user = json!({ "role": "user", "content": "hi" });
    let calls = json!([{ "id": "a", "type": "function", "function": { "name": "bash", "arguments": "{}" } }]);
    let asked = json!({ "role": "assistant", "content": null, "tool_calls": calls });
    let done = json!({ "role": "tool", "tool_call_id": "a", "content": "x" });
    let planted = [
        ("has 0 results", json!([user, asked, user])),
        ("has 0 results", json!([user, asked, user, done])),
        ("has 2 results", json!([user, asked, done, done])),
        ("has no call", json!([user, done])),
        ("no content", json!([user, { "role": "assistant", "content": null }, user])),
        ("tool_calls is empty", json!([user, { "role": "assistant", "content": "x", "tool_calls": [] }, user])),
        ("first message", json!([{ "role": "assistant", "content": "x" }, user])),
    ];
    for (what, messages) in planted {
        let found = well_formed(Format::OpenAi, &gpt(&messages));
        assert!(found.iter().any(|wrong| wrong.contains(what)), "{what}: {found:?}");
    }
}

#[test]
fn a_changed_prefix_is_found_and_a_moved_cache_breakpoint_is_not_one() {
    let body = |messages: Value| json!({ "model": "m", "system": "s", "messages": messages });
    let one = json!({ "role": "user", "content": [{ "type": "text", "text": "a", "cache_control": { "type": "ephemeral" } }] });
    let plain = json!({ "role": "user", "content": "a" });
    let said = json!({ "role": "assistant", "content": "b" });
    let next = json!({ "role": "user", "content": "c" });
    let mut continuity = Continuity::default();
    assert_eq!(continuity.admit(Format::Anthropic, &body(json!([one]))), Vec::<String>::new());
    assert_eq!(continuity.admit(Format::Anthropic, &body(json!([plain, said, next]))), Vec::<String>::new());
    let other = json!({ "role": "user", "content": "other" });
    assert_eq!(continuity.admit(Format::Anthropic, &body(json!([other]))), Vec::<String>::new(), "another session");
    let found = continuity.admit(Format::Anthropic, &body(json!([{ "role": "user", "content": "A" }, said, next])));
    assert!(found[0].contains("do not continue"), "{found:?}");
    let changed = json!({ "model": "m", "system": "S", "messages": [plain, said, next, said, next] });
    assert!(continuity.admit(Format::Anthropic, &changed)[0].contains("system prompt or tools changed"));
}

#[test]
fn thinking_and_arguments_that_come_back_changed_are_found() {
    let mut continuity = Continuity::default();
    let issued = Issued {
        thinking: vec![("hm".into(), "sig".into())],
        calls: vec![("t1".into(), "bash".into(), r#"{"b":1,"a":2}"#.into())],
    };
    continuity.issue(issued);
    let body = |signature: &str, input: Value| {
        let thinking = json!({ "type": "thinking", "thinking": "hm", "signature": signature });
        let call = json!({ "type": "tool_use", "id": "t1", "name": "bash", "input": input });
        json!({ "model": "m", "messages": [{ "role": "assistant", "content": [thinking, call] }] })
    };
    continuity.rewrites = true;
    assert_eq!(continuity.admit(Format::Anthropic, &body("sig", json!({ "b": 1, "a": 2 }))), Vec::<String>::new());
    assert!(continuity.admit(Format::Anthropic, &body("SIG", json!({ "b": 1, "a": 2 })))[0].contains("thinking"));
    assert!(continuity.admit(Format::Anthropic, &body("sig", json!({ "a": 2, "b": 1 })))[0].contains("call t1"));
}
