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

/// The body of a conversation with two calls, and its list of messages.
fn conversation(format: Format) -> (Value, &'static str) {
    match format {
        Format::Responses => {
            let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "bash", "arguments": "{}" });
            let output = |id: &str| json!({ "type": "function_call_output", "call_id": id, "output": "x" });
            let reasoning = json!({ "type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "g" });
            let user = json!({ "role": "user", "content": [{ "type": "input_text", "text": "hi" }] });
            let input = json!([user, reasoning, call("a"), call("b"), output("a"), output("b")]);
            (json!({ "model": "m", "stream": true, "store": false, "input": input }), "input")
        }
        Format::Gemini => {
            let call = |name: &str| json!({ "functionCall": { "name": name, "args": {} } });
            let result = |name: &str| json!({ "functionResponse": { "name": name, "response": { "output": "x" } } });
            let contents = json!([
                { "role": "user", "parts": [{ "text": "hi" }] },
                { "role": "model", "parts": [call("ls"), call("bash")] },
                { "role": "user", "parts": [result("ls"), result("bash")] },
            ]);
            (json!({ "contents": contents }), "contents")
        }
        _ => {
            let call = |name: &str| json!({ "function": { "name": name, "arguments": {} } });
            let result = |name: &str| json!({ "role": "tool", "tool_name": name, "content": "x" });
            let messages = json!([
                { "role": "user", "content": "hi" },
                { "role": "assistant", "content": "", "tool_calls": [call("ls"), call("bash")] },
                result("ls"),
                result("bash"),
            ]);
            (json!({ "model": "m", "stream": true, "options": { "num_ctx": 32768 }, "messages": messages }), "messages")
        }
    }
}

/// What is broken, and what breaks it.
type Fault = (&'static str, fn(&mut Vec<Value>));

/// Each change of a good conversation is found.
fn planted(format: Format, faults: &[Fault]) {
    let (good, list) = conversation(format);
    assert_eq!(well_formed(format, good.to_string().as_bytes()), Vec::<String>::new());
    for (what, change) in faults {
        let mut bad = good.clone();
        change(bad[list].as_array_mut().unwrap());
        let found = well_formed(format, bad.to_string().as_bytes());
        assert!(found.iter().any(|wrong| wrong.contains(what)), "{what}: {found:?}");
    }
}

#[test]
fn each_planted_fault_is_found_in_responses() {
    let faults: [Fault; 8] = [
        ("has 0 results", |input| drop(input.pop())),
        ("has 2 results", |input| input[5] = input[4].clone()),
        ("used twice", |input| input[3] = input[2].clone()),
        ("has 0 results", |input| input.insert(5, json!({ "role": "user", "content": "x" }))),
        ("right after reasoning", |input| drop(input.drain(2..4))),
        ("not whole", |input| input[1]["encrypted_content"] = Value::Null),
        ("no object", |input| input[2]["arguments"] = json!({})),
        ("empty output", |input| input[4]["output"] = json!(" ")),
    ];
    planted(Format::Responses, &faults);
}

#[test]
fn each_planted_fault_is_found_in_gemini() {
    let faults: [Fault; 6] = [
        ("have no results", |contents| drop(contents.pop())),
        ("for the calls", |contents| contents[2]["parts"].as_array_mut().unwrap().swap(0, 1)),
        ("for the calls", |contents| contents[2]["parts"][0]["functionResponse"]["id"] = json!("x")),
        ("no object", |contents| contents[1]["parts"][0]["functionCall"]["args"] = json!("{}")),
        ("one role", |contents| contents.push(json!({ "role": "user", "parts": [{ "text": "x" }] }))),
        ("empty text", |contents| contents[0]["parts"][0]["text"] = json!("")),
    ];
    planted(Format::Gemini, &faults);
}

#[test]
fn each_planted_fault_is_found_in_ollama() {
    let faults: [Fault; 5] = [
        ("for the calls", |messages| drop(messages.pop())),
        ("for the calls", |messages| messages.swap(2, 3)),
        ("no object", |messages| messages[1]["tool_calls"][0]["function"]["arguments"] = json!("{}")),
        ("no content", |messages| messages[0]["content"] = json!([])),
        ("no content", |messages| messages[2]["content"] = json!("")),
    ];
    planted(Format::Ollama, &faults);
}

#[test]
fn what_a_format_signs_must_come_back_to_the_byte() {
    let check = |format: Format, issued: Issued, good: Value, bad: Value| {
        let mut continuity = Continuity::default();
        continuity.issue(issued);
        continuity.rewrites = true;
        assert_eq!(continuity.admit(format, "m", &good), Vec::<String>::new());
        let found = continuity.admit(format, "m", &bad);
        assert!(found[0].contains("thinking"), "{found:?}");
    };
    let item = |content: &str| json!({ "type": "reasoning", "id": "rs", "summary": [], "encrypted_content": content });
    let call = json!({ "type": "function_call", "call_id": "a", "name": "ls", "arguments": "{}" });
    let calls = vec![("a".to_owned(), "ls".to_owned(), "{}".to_owned())];
    let issued =
        Issued { thinking: vec![(item("g").to_string(), String::new())], calls: calls.clone(), ..Issued::default() };
    let input = |items: Value| json!({ "input": items });
    check(Format::Responses, issued.clone(), input(json!([item("g"), call])), input(json!([item("G"), call])));
    check(Format::Responses, issued, input(json!([item("g"), call])), input(json!([call])));
    let part = |signature: &str| {
        let call = json!({ "name": "ls", "args": {}, "id": "a" });
        json!({ "contents": [{ "role": "model", "parts": [{ "functionCall": call, "thoughtSignature": signature }] }] })
    };
    let call = json!({ "functionCall": { "name": "ls", "args": {}, "id": "a" } }).to_string();
    let issued = Issued { thinking: vec![(call, "c2ln".to_owned())], calls, ..Issued::default() };
    check(Format::Gemini, issued.clone(), part("c2ln"), part("Y2ln"));
    check(Format::Gemini, issued, part("c2ln"), part("skip_thought_signature_validator"));
}

#[test]
fn a_changed_prefix_is_found_and_a_moved_cache_breakpoint_is_not_one() {
    let body = |messages: Value| json!({ "model": "m", "system": "s", "messages": messages });
    let one = json!({ "role": "user", "content": [{ "type": "text", "text": "a", "cache_control": { "type": "ephemeral" } }] });
    let plain = json!({ "role": "user", "content": "a" });
    let said = json!({ "role": "assistant", "content": "b" });
    let next = json!({ "role": "user", "content": "c" });
    let mut continuity = Continuity::default();
    assert_eq!(continuity.admit(Format::Anthropic, "m", &body(json!([one]))), Vec::<String>::new());
    assert_eq!(continuity.admit(Format::Anthropic, "m", &body(json!([plain, said, next]))), Vec::<String>::new());
    let other = json!({ "role": "user", "content": "other" });
    assert_eq!(
        continuity.admit(Format::Anthropic, "m", &body(json!([other]))),
        Vec::<String>::new(),
        "another session"
    );
    let found =
        continuity.admit(Format::Anthropic, "m", &body(json!([{ "role": "user", "content": "A" }, said, next])));
    assert_eq!(found, Vec::<String>::new(), "an event may name the change");
    let unnamed: Vec<&String> = continuity.unnamed().collect();
    assert!(matches!(unnamed.as_slice(), [what] if what.contains("do not continue")), "{unnamed:?}");
    let mut continuity = Continuity::default();
    let setup = |digest: &str| json!({ "kind": "session_changed", "setup": { "kind": "anthropic", "digest": digest } });
    let asked = |system: &str| json!({ "model": "m", "system": system, "messages": [plain, said, next] });
    for system in ["s", "S", "s"] {
        assert_eq!(continuity.admit(Format::Anthropic, "m", &asked(system)), Vec::<String>::new());
    }
    let unnamed = |continuity: &Continuity| continuity.unnamed().filter(|what| what.contains("system prompt")).count();
    assert_eq!(unnamed(&continuity), 2);
    continuity.named(&[&json!({ "kind": "session_changed", "name": "s" })]);
    assert_eq!(unnamed(&continuity), 2, "an event that names something else");
    continuity.named(&[&setup("1")]);
    continuity.named(&[&setup("1")]);
    assert_eq!(unnamed(&continuity), 1, "an event excuses one change");
    continuity.named(&[&setup("1"), &setup("2")]);
    assert_eq!(unnamed(&continuity), 0);
}

#[test]
fn two_sessions_that_begin_with_the_same_words_each_go_on() {
    let user = json!({ "role": "user", "content": "a" });
    let mut continuity = Continuity::default();
    let mut admit = |day: &str, messages: Value| {
        let system = format!("s\nSession started: 2026-11-{day}\n");
        let body = json!({ "model": "m", "system": system, "messages": messages });
        assert_eq!(continuity.admit(Format::Anthropic, "m", &body), Vec::<String>::new());
        continuity.unnamed().count()
    };
    let said = |text: &str| json!([user, { "role": "assistant", "content": text }, { "role": "user", "content": "c" }]);
    assert_eq!(admit("25", json!([user])) + admit("25", json!([user])), 0);
    assert_eq!(admit("25", said("b")) + admit("25", said("B")), 0);
    // One before midnight, one after it.
    assert_eq!(admit("25", json!([user])) + admit("26", json!([user])), 0);
    assert_eq!(admit("25", said("d")) + admit("26", said("D")), 0);
    assert_eq!(admit("27", said("d")), 1, "no session gets another day");
}

#[test]
fn a_request_that_was_overtaken_is_none_to_go_on_from() {
    let user = |text: &str| json!({ "role": "user", "content": text });
    let said = |text: &str| json!({ "role": "assistant", "content": text });
    let mut continuity = Continuity::default();
    let mut admit = |messages: &[Value]| {
        let body = json!({ "model": "m", "tools": [{}], "messages": messages });
        assert_eq!(continuity.admit(Format::Anthropic, "m", &body), Vec::<String>::new());
        continuity.unnamed().count()
    };
    let before = [user("a"), said("b"), user("c"), said("d"), user("stop")];
    assert_eq!(admit(&before[..1]) + admit(&before) + admit(&before[..3]), 0);
    assert_eq!(admit(&[&before[..], &[said("e"), user("f")]].concat()), 0);
    assert_eq!(admit(&[&before[..3], &[said("x"), user("y")]].concat()), 1, "that had lost a message");
}

#[test]
fn a_changed_prefix_is_excused_by_the_event_that_names_the_change_and_by_no_other() {
    let user = |text: &str| json!({ "role": "user", "content": text });
    let said = |text: &str| json!({ "role": "assistant", "content": text });
    let summary = user("[The beginning of this session was replaced by this summary. x]\n\n## Goal\n\"x\"");
    let compacted = |summary: &str| json!({ "kind": "compacted", "summary": summary });
    let before = [user("a"), said("b"), user("c"), said("d"), user("e")];
    // Whether a request after those before it is excused by this event.
    let check = |after: Vec<Value>, event: Value, expect: bool| {
        let body = |messages: &[Value]| json!({ "model": "m", "tools": [{}], "messages": messages });
        let mut continuity = Continuity::default();
        assert!(continuity.admit(Format::Anthropic, "m", &body(&before[..1])).is_empty());
        assert!(continuity.admit(Format::Anthropic, "m", &body(&before)).is_empty());
        assert!(continuity.admit(Format::Anthropic, "m", &body(&after)).is_empty());
        assert_eq!(continuity.unnamed().count(), 1, "{after:?}");
        continuity.named(&[&event]);
        assert_eq!(continuity.unnamed().count() == 0, expect, "{event} and {after:?}");
    };
    let kept = vec![summary.clone(), user("c"), said("d"), user("e"), said("f"), user("g")];
    check(kept.clone(), compacted("## Goal\n\"x\""), true);
    check(kept.clone(), compacted("## Goal\n\"y\""), false);
    check(kept, json!({ "kind": "notice" }), false);
    check(vec![summary.clone(), user("new")], compacted("## Goal\n\"x\""), true);
    check(vec![summary.clone(), said("d"), user("E")], compacted("## Goal\n\"x\""), false);
    check(vec![summary, user("e"), said("d")], compacted("## Goal\n\"x\""), true);
    let left_out = user("[9 bytes of output were left out to make room; call]");
    let trimmed = |calls: Value| json!({ "kind": "trimmed", "calls": calls });
    let after = vec![user("a"), said("b"), left_out, said("d"), user("e"), said("f"), user("g")];
    check(after.clone(), trimmed(json!(["c1"])), true);
    check(after, trimmed(json!([])), false);
    check(vec![user("a"), said("b"), user("C"), said("d"), user("e")], trimmed(json!(["c1"])), false);
    let unseen = user("[an image was left out: the model did not take it]");
    let refused = |images: Value| json!({ "kind": "trimmed", "calls": [], "images": images });
    let after = vec![user("a"), said("b"), unseen, said("d"), user("e"), said("f"), user("g")];
    check(after.clone(), refused(json!(["m3"])), true);
    check(after.clone(), refused(json!([])), false);
    check(after, trimmed(json!(["c1"])), false);
}

/// What a request has in the place of messages, in a format: an answer as it came, its result, and another answer; and the same
/// with the first answer as another model reads it.
fn as_it_came_and_plain(format: Format) -> [Vec<Value>; 2] {
    let user = |text: &str| json!({ "role": "user", "content": text });
    let said = |text: &str| json!({ "role": "assistant", "content": text });
    let part = |role: &str, parts: Value| json!({ "role": role, "parts": parts });
    match format {
        Format::Anthropic => {
            let called = |id: &str| json!({ "type": "tool_use", "id": id, "name": "ls", "input": { "a": 1 } });
            let given = |id: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": [{ "type": "text", "text": "x" }] });
            let thought = json!({ "type": "thinking", "thinking": "hm", "signature": "sig" });
            let text = |text: &str| json!({ "type": "text", "text": text });
            let answer = |content: Value| json!({ "role": "assistant", "content": content });
            let results = |content: Value| json!({ "role": "user", "content": content });
            [
                vec![
                    user("a"),
                    answer(json!([thought, text("I "), text("look"), called("toolu_1")])),
                    results(json!([given("toolu_1")])),
                    said("so"),
                    user("b"),
                ],
                vec![
                    user("a"),
                    answer(json!([text("I look"), called("c1")])),
                    results(json!([given("c1")])),
                    said("so"),
                    user("b"),
                ],
            ]
        }
        Format::OpenAi => {
            let call = |id: &str, arguments: &str| json!([{ "id": id, "type": "function", "function": { "name": "ls", "arguments": arguments } }]);
            let result = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": "x" });
            let mut own = said("I look");
            (own["tool_calls"], own["reasoning_content"]) = (call("call_1", "{ \"a\": 1 }"), json!("hm"));
            let mut plain = said("I look");
            plain["tool_calls"] = call("c1", "{\"a\":1}");
            [
                vec![user("a"), own, result("call_1"), said("so"), user("b")],
                vec![user("a"), plain, result("c1"), said("so"), user("b")],
            ]
        }
        Format::Responses => {
            let call = |id: &str, arguments: &str| json!({ "type": "function_call", "call_id": id, "name": "ls", "arguments": arguments });
            let result = |id: &str| json!({ "type": "function_call_output", "call_id": id, "output": "x" });
            let thought = json!({ "type": "reasoning", "id": "rs_1", "encrypted_content": "gA", "summary": [] });
            let mut own = said("I look");
            own["phase"] = json!("commentary");
            let rest = [said("so"), user("b")];
            let all = |begin: Vec<Value>| begin.into_iter().chain(rest.clone()).collect();
            [
                all(vec![user("a"), thought, own, call("call_1", "{ \"a\": 1 }"), result("call_1")]),
                all(vec![user("a"), said("I look"), call("c1", "{\"a\":1}"), result("c1")]),
            ]
        }
        Format::Gemini => {
            let result = |id: Value| {
                part("user", json!([{ "functionResponse": { "name": "ls", "response": { "output": "x" }, "id": id } }]))
            };
            let call =
                json!({ "functionCall": { "name": "ls", "args": { "a": 1 }, "id": "x1" }, "thoughtSignature": "c2ln" });
            let plain = json!({ "functionCall": { "name": "ls", "args": { "a": 1 } }, "thoughtSignature": "skip_thought_signature_validator" });
            let thought = json!({ "text": "hm", "thought": true, "thoughtSignature": "c2ln" });
            let mut bare = result(json!(""));
            bare["parts"][0]["functionResponse"].as_object_mut().unwrap().shift_remove("id");
            let (a, b) = (part("user", json!([{ "text": "a" }])), part("user", json!([{ "text": "b" }])));
            let so = part("model", json!([{ "text": "so" }]));
            let signed = json!({ "text": "ook", "thoughtSignature": "dGV4dA==" });
            [
                vec![
                    a.clone(),
                    part("model", json!([thought, { "text": "I l" }, signed, call])),
                    result(json!("x1")),
                    so.clone(),
                    b.clone(),
                ],
                vec![a, part("model", json!([{ "text": "I look" }, plain])), bare, so, b],
            ]
        }
        Format::Ollama => {
            let calls = json!([{ "function": { "name": "ls", "arguments": { "a": 1 } } }]);
            let result = json!({ "role": "tool", "tool_name": "ls", "content": "x" });
            let mut plain = said("I look");
            plain["tool_calls"] = calls;
            let mut own = plain.clone();
            own["thinking"] = json!("hm");
            [
                vec![user("a"), own, result.clone(), said("so"), user("b")],
                vec![user("a"), plain, result, said("so"), user("b")],
            ]
        }
    }
}

#[test]
fn a_history_without_its_opaque_parts_is_excused_by_the_event_that_names_them_and_is_otherwise_the_same() {
    let refused = |native: Value| json!({ "kind": "trimmed", "calls": [], "native": native });
    for format in Format::ALL {
        let [before, plain] = as_it_came_and_plain(format);
        // Whether a request with these messages is excused by this event.
        let check = |after: &[Value], event: Value, expect: bool| {
            let name = ["messages", "input", "contents"][match format {
                Format::Responses => 1,
                Format::Gemini => 2,
                _ => 0,
            }];
            let body = |messages: &[Value]| json!({ "model": "m", "tools": [{}], name: messages });
            let mut continuity = Continuity::default();
            continuity.admit(format, "m", &body(&before[..1]));
            continuity.admit(format, "m", &body(&before));
            assert_eq!(continuity.unnamed().count(), 0, "{format:?}");
            continuity.admit(format, "m", &body(after));
            assert_eq!(continuity.unnamed().count(), 1, "{format:?}: {after:?}");
            continuity.named(&[&event]);
            assert_eq!(continuity.unnamed().count() == 0, expect, "{format:?}: {event} and {after:?}");
        };
        let more: Vec<Value> = plain.iter().cloned().chain([plain[0].clone()]).collect();
        check(&plain, refused(json!(["m2"])), true);
        check(&more, refused(json!(["m2", "m4"])), true);
        check(&plain, refused(json!([])), false);
        check(&plain, json!({ "kind": "trimmed", "calls": ["c1"] }), false);
        check(&plain[..plain.len() - 1], refused(json!(["m2"])), false);
        // Something else is different too: each word of what was said, called and given.
        for (word, other) in [("look", "see"), ("\"ls\"", "\"rm\""), ("1}", "2}"), ("\"x\"", "\"y\""), ("so", "no")] {
            let text = serde_json::to_string(&plain).unwrap();
            // Arguments in a string have their quotes escaped, and end alike.
            let changed = text.replacen(word, other, 1);
            assert_ne!(changed, text, "{format:?}: {word}");
            check(&serde_json::from_str::<Vec<Value>>(&changed).unwrap(), refused(json!(["m2", "m4"])), false);
        }
        // Of an answer whose parts are left out, none is left.
        let text = serde_json::to_string(&before).unwrap();
        for (secret, other) in
            [("\"sig\"", "\"SIG\""), ("\"hm\"", "\"HM\""), ("\"gA\"", "\"GA\""), ("\"c2ln\"", "\"C2LN\"")]
        {
            let changed = text.replacen(secret, other, 1);
            if changed != text {
                check(&serde_json::from_str::<Vec<Value>>(&changed).unwrap(), refused(json!(["m2"])), false);
            }
        }
    }
}

#[test]
fn thinking_and_arguments_that_come_back_changed_are_found() {
    let mut continuity = Continuity::default();
    let issued = Issued {
        thinking: vec![("hm".into(), "sig".into())],
        calls: vec![("t1".into(), "bash".into(), r#"{"b":1,"a":2}"#.into())],
        ..Issued::default()
    };
    continuity.issue(issued);
    let body = |signature: &str, input: Value| {
        let thinking = json!({ "type": "thinking", "thinking": "hm", "signature": signature });
        let call = json!({ "type": "tool_use", "id": "t1", "name": "bash", "input": input });
        json!({ "model": "m", "messages": [{ "role": "assistant", "content": [thinking, call] }] })
    };
    continuity.rewrites = true;
    assert_eq!(continuity.admit(Format::Anthropic, "m", &body("sig", json!({ "b": 1, "a": 2 }))), Vec::<String>::new());
    assert!(continuity.admit(Format::Anthropic, "m", &body("SIG", json!({ "b": 1, "a": 2 })))[0].contains("thinking"));
    assert!(continuity.admit(Format::Anthropic, "m", &body("sig", json!({ "a": 2, "b": 1 })))[0].contains("call t1"));
}

#[test]
fn what_ran_at_the_provider_must_come_back_to_the_byte_and_in_its_place() {
    let search = |id: &str| json!({ "type": "server_tool_use", "id": id, "name": "web_search", "input": {} });
    let found = |id: &str| json!({ "type": "web_search_tool_result", "tool_use_id": id, "content": [] });
    let said = json!({ "type": "text", "text": "so" });
    let user = |content: Value| json!({ "role": "user", "content": content });
    let assistant = |content: Value| json!({ "role": "assistant", "content": content });
    let check = |messages: Value, problem: &str| {
        let wrong = well_formed(Format::Anthropic, &claude(&messages));
        assert_eq!(wrong.is_empty(), problem.is_empty(), "{problem}: {wrong:?}");
        assert!(wrong.iter().any(|line| line.contains(problem)) || problem.is_empty(), "{problem}: {wrong:?}");
    };
    let (one, two) = ("srvtoolu_1", "srvtoolu_2");
    check(json!([user(json!("hi")), assistant(json!([search(one), found(one), said])), user(json!("on"))]), "");
    check(json!([user(json!("hi")), assistant(json!([said, search(one)]))]), "");
    let late = [user(json!("hi")), assistant(json!([search(one), call("a")])), user(json!([result("a")]))];
    check(json!(late), "");
    let then = |content: Value| json!([late[0], late[1], late[2], assistant(content), user(json!("on"))]);
    check(then(json!([found(one), said])), "");
    check(then(json!([said, found(one)])), "comes before the results");
    check(json!([user(json!("hi")), assistant(json!([search(one)])), user(json!("on"))]), "left open");
    check(json!([user(json!("hi")), assistant(json!([found(one)])), user(json!("on"))]), "which is not called");
    check(then(json!([found(two), said])), "which is not called");

    let mut continuity = Continuity { rewrites: true, ..Continuity::default() };
    continuity.issue(Issued { ran: vec![search(one).to_string()], ..Issued::default() });
    let body = |block: Value| json!({ "messages": [user(json!("hi")), assistant(json!([block]))] });
    assert_eq!(continuity.admit(Format::Anthropic, "m", &body(search(one))), Vec::<String>::new());
    let wrong = continuity.admit(Format::Anthropic, "m", &body(search(two)));
    assert!(wrong[0].contains("came back changed"), "{wrong:?}");
}
