//! What the tests of the codecs share: feeding recorded streams, and making up histories.

use std::sync::LazyLock;

use linger_protocol::message::{ContentBlock, HostedPart, HostedTool, Role};
use linger_protocol::session::Effort;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::call_text;
use super::kind::ProviderKind;
use super::sse::Framer;
use super::types::ToolSpecs;
use super::types::{Codec, Images, Message, Request, Response, StreamEvent, ToolSpec};
use super::wellformed::{extends, validate};

/// The events of `body`, received in pieces of at most `size` bytes; adjacent pieces of one block are joined.
pub(super) fn decode(codec: &dyn Codec, body: &str, size: usize) -> Vec<StreamEvent> {
    let mut framer = Framer::new(codec.framing());
    let mut decoder = codec.decoder();
    let mut out = Vec::new();
    for chunk in body.as_bytes().chunks(size) {
        framer.push(chunk, &mut |event, data| decoder.feed(event, data, &mut out)).unwrap();
    }
    framer.finish(&mut |event, data| decoder.feed(event, data, &mut out));
    decoder.finish(&mut out);
    out
}

/// `body` gives `expect`, wherever it is cut.
pub(super) fn check_stream(codec: &dyn Codec, body: &str, expect: &[StreamEvent]) {
    let size = body.len().max(1);
    let all = decode(codec, body, size);
    let but_calls = |mut events: Vec<StreamEvent>| {
        events.retain(|event| !matches!(event, StreamEvent::Call { .. }));
        events
    };
    assert_eq!(but_calls(all.clone()), expect);
    for size in 1..size.min(200) {
        assert_eq!(decode(codec, body, size), all, "in pieces of {size} bytes");
    }
    shown_is_kept(&all);
}

/// What was shown of a block is what the response begins it with, no block is shown after a later one, and the end comes once.
pub(super) fn shown_is_kept(events: &[StreamEvent]) {
    let (last, before) = events.split_last().expect("a terminal event");
    let StreamEvent::Done(Response { content, .. }) = last else {
        assert!(matches!(last, StreamEvent::Failed(_)));
        return;
    };
    for (n, block) in content.iter().enumerate() {
        let ContentBlock::ToolUse { name, input, .. } = block else { continue };
        let of_it = before.iter().filter_map(|event| match event {
            StreamEvent::Call { block, name: called, text } if *block as usize == n && called == name => {
                Some(text.as_str())
            }
            _ => None,
        });
        let shown: String = of_it.collect();
        let whole = call_text::of(input);
        assert!(whole == shown || (shown == call_text::BEGIN && whole == "{}"), "{shown} was shown of {whole}");
    }
    let blocks = before.iter().filter_map(|event| match event {
        StreamEvent::Text { block, .. }
        | StreamEvent::Thinking { block, .. }
        | StreamEvent::Hosted { block, .. }
        | StreamEvent::Call { block, .. } => Some(block),
        _ => None,
    });
    assert!(blocks.is_sorted(), "readers have a position in one block: {before:?}");
    for event in before {
        match event {
            StreamEvent::Call { block, .. } => {
                assert!(matches!(content[*block as usize], ContentBlock::ToolUse { .. }), "{content:?}");
            }
            StreamEvent::Hosted { block, text, .. } => {
                let ContentBlock::Hosted { text: kept, .. } = &content[*block as usize] else { panic!("{content:?}") };
                assert_eq!(kept, text);
            }
            StreamEvent::Text { block, text } => {
                assert!(content[*block as usize].as_text().is_some_and(|kept| kept.contains(text.as_str())));
            }
            StreamEvent::Thinking { block, text } => {
                let ContentBlock::Thinking { text: kept, .. } = &content[*block as usize] else {
                    panic!("{content:?}")
                };
                assert!(kept.contains(text.as_str()));
            }
            other => panic!("{other:?} is not the last"),
        }
    }
}

pub(super) fn text(block: u32, text: &str) -> StreamEvent {
    StreamEvent::Text { block, text: text.to_owned() }
}

pub(super) fn thinking(block: u32, text: &str) -> StreamEvent {
    StreamEvent::Thinking { block, text: text.to_owned() }
}

pub(super) fn thought(text: &str, native: Value) -> ContentBlock {
    ContentBlock::Thinking { text: text.to_owned(), native: Some(native) }
}

pub(super) fn unshown(text: &str) -> ContentBlock {
    ContentBlock::Opaque { native: json!({"content": text}) }
}

pub(super) fn call(call_id: &str, name: &str, input: Value, native: Option<Value>) -> ContentBlock {
    ContentBlock::ToolUse { call_id: call_id.into(), name: name.to_owned(), input, native }
}

pub(super) fn result(call_id: &str, text: &str) -> ContentBlock {
    ContentBlock::ToolResult { call_id: call_id.into(), is_error: false, content: vec![ContentBlock::text(text)] }
}

pub(super) fn user(content: Vec<ContentBlock>) -> Message {
    Message { role: Role::User, content, origin: None }
}

pub(super) fn assistant(origin: &str, content: Vec<ContentBlock>) -> Message {
    Message { role: Role::Assistant, content, origin: Some(origin.to_owned()) }
}

/// A request with `messages` to the model `p/m`.
pub(crate) fn request(messages: &[Message]) -> Request<'_> {
    static TOOLS: LazyLock<ToolSpecs> = LazyLock::new(|| {
        let input_schema = json!({"type": "object"});
        ToolSpecs::new(vec![ToolSpec { name: "ls".to_owned(), description: "lists".to_owned(), input_schema }])
    });
    static NO_IMAGES: Images = Images::new();
    Request {
        model: "m",
        origin: "p/m",
        system: "be brief",
        tools: &TOOLS,
        messages,
        max_tokens: 100,
        cache_key: "s1",
        images: &NO_IMAGES,
        output_schema: None,
        effort: Effort::Auto,
        own_fields: None,
    }
}

/// The body that `messages` are sent in.
pub(super) fn body(codec: &dyn Codec, messages: &[Message]) -> Value {
    let body = serde_json::from_slice(&codec.encoder().encode(&request(messages)).body).unwrap();
    assert_eq!(validate(codec.kind().name(), &body), Ok(()), "{body:#}");
    body
}

/// What a format keeps of its provider's: with thinking, with a call, and by itself.
fn natives(kind: ProviderKind) -> (Vec<Value>, Vec<Value>, Vec<Value>) {
    match kind {
        ProviderKind::OpenaiResponses => {
            let item = |id: &str, content: Value| json!({"item": {"type": "reasoning", "id": id, "summary": [], "encrypted_content": content}});
            let search = json!({"item": {"type": "file_search_call", "id": "ws_1", "status": "completed"}});
            (
                vec![
                    item("rs_1", json!("gAAA")),
                    item("rs_2", json!("gAAB")),
                    item("rs_3", json!(null)),
                    json!({"field": "content"}),
                ],
                vec![json!({"id": "same"}), json!({"id": "other", "arguments": "{ }"})],
                vec![search, json!({"phase": "commentary"}), json!({"content": "</think>\n\n"})],
            )
        }
        ProviderKind::Gemini => {
            let signed = |n: usize| json!({"thoughtSignature": "c2ln", "signed_bytes": n});
            (
                vec![signed(1), signed(0), signed(99), json!({"field": "content"})],
                vec![json!({"id": "same"}), json!({"id": "other", "thoughtSignature": "Y2FsbA=="})],
                vec![
                    signed(0),
                    signed(2),
                    signed(99),
                    json!({"part": {"fileData": {"fileUri": "executable"}}}),
                    json!({"content": "</think>\n\n"}),
                ],
            )
        }
        _ => (
            vec![json!({"signature": "sig"}), json!({"field": "reasoning"}), json!({"field": "content"})],
            vec![json!({"id": "same"}), json!({"id": "other", "arguments": "{ }"})],
            vec![json!({"type": "redacted_thinking", "data": "xyz"}), json!({"content": "</think>\n\n"})],
        ),
    }
}

pub(super) fn hosted(part: HostedPart, text: &str, native: Option<Value>) -> ContentBlock {
    ContentBlock::Hosted { tool: HostedTool::WebSearch, part, text: text.to_owned(), native }
}

/// What tools of its provider may leave in an answer: calls with their results, some of which come late or never.
fn hosted_natives(kind: ProviderKind) -> Vec<Vec<ContentBlock>> {
    use HostedPart::{Call, Result};
    let cut = vec![hosted(Call, "cut", None), hosted(Result, "", None)];
    let (call, result) = match kind {
        ProviderKind::OpenaiResponses => (
            json!({"item": {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}}),
            json!({}),
        ),
        ProviderKind::Gemini => (
            json!({"part": {"toolCall": {"id": "same"}, "thoughtSignature": "c2ln"}}),
            json!({"part": {"toolResponse": {"id": "same"}, "thoughtSignature": "c2ln"}}),
        ),
        ProviderKind::Anthropic => {
            let found = json!([{"type": "web_search_result", "title": "t", "url": "u", "encrypted_content": "xyz"}]);
            (
                json!({"type": "server_tool_use", "id": "same", "name": "web_search", "input": {"query": "q"}}),
                json!({"type": "web_search_tool_result", "tool_use_id": "same", "content": found}),
            )
        }
        // A format without any.
        _ => return vec![cut],
    };
    let (call, result) = (hosted(Call, "q", Some(call)), hosted(Result, "1 source\nu", Some(result)));
    vec![vec![call.clone(), result.clone()], vec![call], vec![result], cut, Vec::new()]
}

/// What happens in a step of a made-up history.
fn step(kind: ProviderKind, origins: Vec<&'static str>) -> impl Strategy<Value = Vec<Message>> {
    let or_none = |natives: Vec<Value>| natives.into_iter().map(Some).chain([None]).collect::<Vec<_>>();
    let (of_thoughts, of_calls, opaque) = natives(kind);
    let hosted = prop::sample::select(hosted_natives(kind));
    // What comes late comes first, and what is asked for may be asked for at the same time as what a tool of ours does.
    let hosted = (hosted.clone(), hosted);
    let words = prop::sample::select(vec!["hello", " ", "", "a\0b", "ä€😀", "</think>", "x\ny"]);
    let texts = prop::collection::vec(words.prop_map(ContentBlock::text), 0..3);
    let origin = prop::sample::select(origins);
    let native = prop::sample::select(or_none(of_thoughts));
    let thought = native.prop_map(|native| ContentBlock::Thinking { text: "hm".to_owned(), native });
    let opaque = prop::sample::select(opaque).prop_map(|native| ContentBlock::Opaque { native });
    let thoughts = prop::collection::vec(prop_oneof![thought, opaque], 0..3);
    let input = prop::sample::select(vec![json!({}), json!({"a": "x\0"}), json!("{\"cut"), json!([1])]);
    let call_native = prop::sample::select(or_none(of_calls));
    let name = prop::sample::select(vec!["ls", "no such\ntool", ""]);
    let calls = prop::collection::vec((name, input, call_native, texts.clone(), any::<bool>()), 0..3);
    let image = ContentBlock::image("image/png", "AAAA");
    let prompt = (texts.clone(), any::<bool>()).prop_map(move |(mut content, with_image)| {
        content.extend(with_image.then(|| image.clone()));
        content
    });
    (prompt, origin, thoughts.clone(), (texts, hosted), calls, thoughts, any::<bool>()).prop_map(
        |(prompt, origin, before, (texts, (first, then)), calls, after, answered)| {
            let mut step = vec![user(prompt)];
            let mut content = [first, before].concat();
            content.extend(texts);
            content.extend(then);
            let mut results = Vec::new();
            for (name, input, native, said, is_error) in calls {
                let call_id = linger_protocol::id::CallId::default(); // Named by `numbered`.
                content.push(ContentBlock::ToolUse { call_id: call_id.clone(), name: name.to_owned(), input, native });
                results.push(ContentBlock::ToolResult { call_id, is_error, content: said });
            }
            content.extend(after);
            if answered || !results.is_empty() {
                step.push(assistant(origin, content));
            }
            if !results.is_empty() {
                step.push(user(results));
            }
            step
        },
    )
}

/// A history of a few steps, with its calls numbered.
pub(super) fn history() -> impl Strategy<Value = Vec<Message>> {
    history_of(ProviderKind::Anthropic)
}

/// A history whose own answers are of a provider of this kind, others of another's.
pub(super) fn history_of(kind: ProviderKind) -> impl Strategy<Value = Vec<Message>> {
    prop::collection::vec(step(kind, vec!["p/m", "q/n"]), 0..6).prop_map(numbered)
}

/// The formats that need a network, each the origin of its answers by its name.
pub(crate) const KINDS: [ProviderKind; 5] = [
    ProviderKind::Anthropic,
    ProviderKind::Openai,
    ProviderKind::OpenaiResponses,
    ProviderKind::Gemini,
    ProviderKind::Ollama,
];

/// A history to which each of the formats has contributed, with answers that broke off.
pub(crate) fn mixed_history() -> impl Strategy<Value = Vec<Message>> {
    let kinds = || prop::sample::select(KINDS.to_vec());
    let own = kinds().prop_flat_map(|kind| step(kind, vec![kind.name()]));
    let theirs = kinds().prop_flat_map(|kind| step(kind, vec!["x/theirs"])).prop_map(disguised);
    let broken = prop::sample::select(KINDS.to_vec()).prop_map(|kind| {
        let thought = ContentBlock::Thinking { text: "half a tho".to_owned(), native: None };
        vec![
            user(vec![ContentBlock::text("go")]),
            assistant(kind.name(), vec![thought, ContentBlock::text("half an ans")]),
        ]
    });
    prop::collection::vec(prop_oneof![3 => own, 1 => theirs, 1 => broken], 0..8).prop_map(numbered)
}

/// What stands in [`mixed_history`] for everything opaque of a model that is never asked.
pub(super) const THEIRS: &str = "Zm9yZWlnbg==";

/// The messages with other secrets.
fn disguised(mut messages: Vec<Message>) -> Vec<Message> {
    for block in messages.iter_mut().flat_map(|message| &mut message.content) {
        let native = match block {
            ContentBlock::Thinking { native: Some(native), .. }
            | ContentBlock::Hosted { native: Some(native), .. }
            | ContentBlock::ToolUse { native: Some(native), .. } => native,
            ContentBlock::Opaque { native } => native,
            _ => continue,
        };
        let secrets = ["c2ln", "Y2FsbA==", "gAAA", "gAAB", "xyz", "ws_1", "\"sig\"", "same", "other", "executable"];
        let text = secrets.iter().fold(native.to_string(), |text, secret| {
            if secret.starts_with('"') {
                text.replace(secret, &format!("\"{THEIRS}\""))
            } else {
                text.replace(secret, THEIRS)
            }
        });
        *native = serde_json::from_str(&text).unwrap();
    }
    messages
}

/// The steps as one history, in which each call has a name and each result that of its call.
fn numbered(steps: Vec<Vec<Message>>) -> Vec<Message> {
    let mut messages = vec![user(vec![ContentBlock::text("begin")])];
    messages.extend(steps.into_iter().flatten());
    for (n, message) in messages.iter_mut().enumerate() {
        for (k, block) in message.content.iter_mut().enumerate() {
            if let ContentBlock::ToolUse { call_id, .. } = block {
                *call_id = format!("c{n}-{k}").into();
            }
        }
    }
    for n in 1..messages.len() {
        let calls = |block: &ContentBlock| match block {
            ContentBlock::ToolUse { call_id, .. } => Some(call_id.clone()),
            _ => None,
        };
        let mut ids: Vec<_> = messages[n - 1].content.iter().filter_map(calls).collect();
        ids.reverse();
        for block in &mut messages[n].content {
            if let ContentBlock::ToolResult { call_id, .. } = block {
                *call_id = ids.pop().unwrap();
            }
        }
    }
    messages
}

/// Every beginning of `messages` gives a good body, which the next one extends.
pub(super) fn check_history(kind: ProviderKind, codec: &dyn Codec, messages: &[Message]) {
    let complete = |n: &usize| {
        let is_call = |block: &ContentBlock| matches!(block, ContentBlock::ToolUse { .. });
        !messages[n - 1].content.iter().any(is_call)
    };
    let bodies: Vec<Value> = (1..=messages.len()).filter(complete).map(|n| body(codec, &messages[..n])).collect();
    for body in &bodies {
        assert_eq!(validate(kind.name(), body), Ok(()), "{body:#}");
    }
    for pair in bodies.windows(2) {
        assert!(extends(&pair[0], &pair[1]), "{:#}\n is no prefix of\n{:#}", pair[0], pair[1]);
    }
}
