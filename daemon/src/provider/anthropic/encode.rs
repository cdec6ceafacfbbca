//! Encoding: adjacent messages of the same role become one.
//!
//! The cache markers move from request to request; everything else of a request is a prefix of the next.

use linger_protocol::message::{ContentBlock, Role};
use serde_json::{Value, json};

use super::super::compat::Compat;
use super::super::encoding::{self, CallNames, Items};
use super::super::hosted::{Hosted, readable};
use super::super::kind::ProviderKind;
use super::super::think_decoder;
use super::super::types::{Encoder, HttpRequest, Images, Message, Request, ToolJson};
use super::super::{output_schema, wire};
use super::hosted::{self, OpenCalls};
use super::thinking;

/// The bound for an unknown model; the format requires one.
const MAX_TOKENS: u32 = 32_000;

/// The version of the format on Vertex AI (Google's documentation, "Use Anthropic's Claude models").
const VERTEX_VERSION: &str = "vertex-2023-10-16";

/// A cache marker, at the end of a block.
const MARKER: &str = ",\"cache_control\":{\"type\":\"ephemeral\"}";

/// The ends of block, list and message after the fields of a message's last block.
const AFTER_BLOCK: usize = "}]}".len();

/// The requests of one context.
#[derive(Debug, Default)]
pub(super) struct MessagesEncoder {
    compat: Compat,
    /// The system prompt; absent before the first request.
    system: Option<Items>,
    messages: Messages,
    /// How many messages of the context are encoded.
    encoded: usize,
    names: CallNames,
    /// Calls of hosted tools that have no result yet.
    waiting: OpenCalls,
    /// The container of the current turn's code.
    container: Option<String>,
}

/// Messages; adjacent ones of the same role are joined, results first.
#[derive(Debug, Default)]
struct Messages {
    /// The final ones.
    closed: Items,
    /// Where in `closed` the last block of each of the last two user messages ends, in bytes.
    ends: [Option<usize>; 2],
    /// The last message, which may still grow: role, results, other blocks.
    open: Option<(Role, Items, Items)>,
}

impl MessagesEncoder {
    pub(super) fn new(compat: Compat) -> Self {
        Self { compat, ..Self::default() }
    }
}

impl Encoder for MessagesEncoder {
    fn encode(&mut self, request: &Request<'_>) -> HttpRequest {
        let system = self.system.get_or_insert_with(|| system(request));
        let tools = tools(&self.compat, request, system.is_empty());
        for message in request.messages.get(self.encoded..).unwrap_or_default() {
            let own = message.is_own(request);
            self.names.add(message, own);
            let message = &*think_decoder::with_original_text(message, own);
            let blocks = match message.role {
                Role::User => {
                    let blocks = user_blocks(message, &self.names, request.images);
                    self.messages.add(Role::Assistant, &self.waiting.interrupted(&blocks));
                    if blocks.iter().any(|block| block["type"] != "tool_result") {
                        // The container may expire before the next prompt.
                        self.container = None;
                    }
                    blocks
                }
                Role::Assistant => {
                    let blocks = assistant_blocks(message, own, self.compat.hosted, &self.names, &self.waiting);
                    self.messages.add(Role::Assistant, &self.waiting.answered(&blocks));
                    self.container = hosted::container(message).filter(|_| own).or(self.container.take());
                    blocks
                }
            };
            self.messages.add(message.role, &blocks);
        }
        self.encoded = request.messages.len();
        let last = self.messages.last();
        let (system, tools, messages) = ([system.as_str()], [tools.as_str()], self.messages.marked(&last));
        let lists = [("system", system.as_slice()), ("tools", &tools), ("messages", &messages)];
        let lists: Vec<_> = lists.into_iter().filter(|(_, items)| *items != [""]).collect();
        let mut head = head(&self.compat, request);
        if let Some(container) = self.container.as_deref().filter(|_| self.compat.hosted.code_execution) {
            wire::set(&mut head, "container", container);
        }
        let body = encoding::object(&head, &lists);
        if self.compat.vertex == Some(true) {
            let path = format!("/publishers/anthropic/models/{}:streamRawPredict", wire::path_segment(request.model));
            let body = encoding::object(&on_vertex(head.clone()), &lists);
            let body = encoding::with_own_fields(body, on_vertex(head), &lists, request.own_fields);
            return HttpRequest { path, headers: Vec::new(), body };
        }
        let body = encoding::with_own_fields(body, head, &lists, request.own_fields);
        HttpRequest { path: "/v1/messages".to_owned(), headers: headers(), body }
    }
}

/// The fields as on Vertex AI: the model is in the path, and the version in the body.
fn on_vertex(mut head: Value) -> Value {
    if let Some(fields) = head.as_object_mut() {
        fields.remove("model");
    }
    wire::set(&mut head, "anthropic_version", VERTEX_VERSION);
    head
}

/// The fields before system prompt, tools and messages.
fn head(compat: &Compat, request: &Request<'_>) -> Value {
    let max_tokens = if request.max_tokens == 0 { MAX_TOKENS } else { request.max_tokens };
    let mut head = json!({"model": request.model, "max_tokens": max_tokens, "stream": true});
    thinking::add(&mut head, compat, request, max_tokens);
    head
}

/// The headers of every request.
pub(super) fn headers() -> Vec<(&'static str, String)> {
    vec![("anthropic-version", "2023-06-01".to_owned())]
}

/// The system prompt, marked: the tools come before it in the provider's cache, so one marker covers both.
fn system(request: &Request<'_>) -> Items {
    let mark = json!({"type": "ephemeral"});
    let block = |text| json!({"type": "text", "text": text, "cache_control": mark});
    wire::visible(request.system).map(block).into_iter().collect()
}

/// A tool as the format has it.
fn tool(tool: &ToolJson) -> String {
    let ToolJson { name, description, schema } = tool;
    format!(r#"{{"name":{name},"description":{description},"input_schema":{schema}}}"#)
}

/// The tools; the last one is marked if there is no system prompt.
fn tools(compat: &Compat, request: &Request<'_>, marked: bool) -> Items {
    let answer =
        request.output_schema.map(|output_schema| wire::without_nul_in(&output_schema::tool(output_schema.schema)));
    // A request without tools must be answered without calls.
    let hosted = if request.tools.is_empty() { Vec::new() } else { hosted::tools(compat.hosted) };
    let mut tools = Items::default();
    tools.push_text(request.tools.rendered(ProviderKind::Anthropic, tool));
    for tool in hosted.iter().chain(&answer) {
        tools.push(tool);
    }
    if marked { tools.with_last_field(MARKER) } else { tools }
}

impl Messages {
    fn add(&mut self, role: Role, blocks: &[Value]) {
        if blocks.is_empty() {
            return;
        }
        if self.open.as_ref().is_some_and(|(before, ..)| *before != role) {
            self.close();
        }
        let (_, results, others) = self.open.get_or_insert_with(|| (role, Items::default(), Items::default()));
        for block in blocks {
            let place = if block["type"] == "tool_result" { &mut *results } else { &mut *others };
            place.push(block);
        }
    }

    /// The text of the last message; empty if there is none.
    fn last(&self) -> String {
        let Some((role, results, others)) = &self.open else { return String::new() };
        let mut content = results.clone();
        content.push_text(others.as_str());
        let name = if *role == Role::User { "user" } else { "assistant" };
        encoding::object(&json!({"role": name}), &[("content", &[content.as_str()])])
    }

    fn close(&mut self) {
        self.closed.push_text(&self.last());
        if self.open.take().is_some_and(|(role, ..)| role == Role::User) {
            self.ends = [self.ends[1], self.closed.as_str().len().checked_sub(AFTER_BLOCK)];
        }
    }

    /// The text of the messages with markers, in parts. The provider looks for a cached prefix at each marker and 20 blocks before
    /// it; many parallel calls are more than that, so the place where the previous request ended is marked too.
    fn marked<'a>(&'a self, last: &'a str) -> Vec<&'a str> {
        let asks = self.open.as_ref().is_some_and(|(role, ..)| *role == Role::User);
        let before = self.ends.iter().skip(usize::from(asks)).flatten().copied();
        let mut parts = marked_at(self.closed.as_str(), before);
        if !self.closed.is_empty() && !last.is_empty() {
            parts.push(",");
        }
        parts.extend(marked_at(last, last.len().checked_sub(AFTER_BLOCK).filter(|_| asks)));
        parts
    }
}

/// `text` with a marker at each of `places`, which are sorted.
fn marked_at(text: &str, places: impl IntoIterator<Item = usize>) -> Vec<&str> {
    let (mut parts, mut rest, mut at) = (Vec::new(), text, 0);
    for place in places {
        let Some((part, after)) = rest.split_at_checked(place - at) else { break };
        parts.extend([part, MARKER]);
        (rest, at) = (after, place);
    }
    parts.push(rest);
    parts
}

fn user_blocks(message: &Message, names: &CallNames, images: &Images) -> Vec<Value> {
    let plain_block = |block: &ContentBlock| plain_block(block, images);
    let blocks = message.content.iter().filter_map(|block| match block {
        ContentBlock::ToolResult { call_id, is_error, content } => {
            let content: Vec<Value> = wire::result_blocks(content).iter().filter_map(plain_block).collect();
            let mut result = json!({"type": "tool_result", "tool_use_id": names.get(call_id), "content": content});
            if *is_error {
                wire::set(&mut result, "is_error", true);
            }
            Some(result)
        }
        block => plain_block(block),
    });
    let mut blocks: Vec<Value> = blocks.collect();
    if blocks.is_empty() {
        blocks.push(json!({"type": "text", "text": wire::NOTHING_SAID}));
    }
    blocks
}

fn plain_block(block: &ContentBlock, images: &Images) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => Some(json!({"type": "text", "text": wire::visible(text)?})),
        ContentBlock::Image { media_type, source } => Some(match wire::image(source, images) {
            Ok(data) => {
                json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}})
            }
            Err(lost) => json!({"type": "text", "text": lost}),
        }),
        _ => None,
    }
}

fn assistant_blocks(message: &Message, own: bool, on: Hosted, names: &CallNames, waiting: &OpenCalls) -> Vec<Value> {
    let plain = |text: &str| Some(json!({"type": "text", "text": wire::visible(text)?}));
    let mut at_provider = waiting.next();
    let mut blocks: Vec<Value> = Vec::new();
    for (n, block) in message.content.iter().enumerate() {
        let next = message.content.get(n + 1).filter(|_| own);
        if let ContentBlock::Text { text } = block
            && let Some(parts) = hosted::divided(text, next)
        {
            blocks.extend(parts);
            continue;
        }
        blocks.extend(match block {
            ContentBlock::Text { text } => plain(text),
            ContentBlock::Hosted { tool, native: Some(native), .. } if own && on.has(*tool) => {
                let good = at_provider.take(native, &blocks);
                if good { Some(native.clone()) } else { readable(block).and_then(|said| plain(&said)) }
            }
            ContentBlock::Hosted { .. } => readable(block).and_then(|said| plain(&said)),
            ContentBlock::Thinking { text, native } if own => wire::native_str(native, "signature")
                .map(|signature| json!({"type": "thinking", "thinking": text, "signature": signature})),
            ContentBlock::ToolUse { call_id, name, input, .. } => Some(json!({
                "type": "tool_use",
                "id": names.get(call_id),
                "name": wire::tool_name(name),
                "input": wire::arguments(input),
            })),
            ContentBlock::Opaque { native } if own && native.get("type").is_some() => {
                let good = !hosted::is_at_provider(native) || at_provider.take(native, &blocks);
                good.then(|| native.clone())
            }
            _ => None,
        });
    }
    // An interrupted answer may end in thinking of some kind, which the provider refuses.
    while blocks.pop_if(|last| last["type"].as_str().is_some_and(|kind| kind.ends_with("thinking"))).is_some() {}
    blocks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::support::{assistant, body, call, check_history, history, result, thought, user};
    use super::super::Anthropic;
    use super::*;

    #[test]
    fn a_whole_request() {
        let messages = [
            user(vec![ContentBlock::text("first"), ContentBlock::text(" ")]),
            user(vec![ContentBlock::image("image/png", "AAAA")]),
            assistant(
                "p/m",
                vec![
                    thought("hm", json!({"signature": "sig"})),
                    ContentBlock::Thinking { text: "unsigned".to_owned(), native: None },
                    ContentBlock::text("I look."),
                    call("c1", "ls", json!({}), Some(json!({"id": "toolu_1"}))),
                    call("c2", "ls", json!("{bad"), Some(json!({"id": "toolu_1"}))),
                ],
            ),
            user(vec![result("c1", "a\0b"), result("c2", "")]),
            user(vec![ContentBlock::text("and this")]),
        ];
        let expect = json!({
            "model": "m",
            "max_tokens": 100,
            "stream": true,
            "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "ls", "description": "lists", "input_schema": {"type": "object"}}],
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "first"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
                     "cache_control": {"type": "ephemeral"}}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {}},
                    {"type": "tool_use", "id": "c2", "name": "ls", "input": {"invalid_arguments": "{bad"}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "a\u{fffd}b"}]},
                    {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "(no output)"}]},
                    {"type": "text", "text": "and this", "cache_control": {"type": "ephemeral"}}]},
            ],
        });
        assert_eq!(body(&Anthropic::default(), &messages), expect);
    }

    #[test]
    fn another_models_secrets_stay_with_it() {
        let opaque = ContentBlock::Opaque { native: json!({"type": "redacted_thinking", "data": "x"}) };
        let content = vec![
            thought("hm", json!({"signature": "sig"})),
            opaque,
            call("c1", "ls", json!({}), Some(json!({"id": "theirs"}))),
        ];
        let messages =
            [user(vec![ContentBlock::text("hi")]), assistant("p/other", content), user(vec![result("c1", "ok")])];
        let expect =
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "ls", "input": {}}]});
        assert_eq!(body(&Anthropic::default(), &messages)["messages"][1], expect);
    }

    #[test]
    fn an_answer_that_ends_in_thinking_goes_back_without_it() {
        let content = vec![ContentBlock::text("so"), thought("hm", json!({"signature": "sig"}))];
        let messages =
            [user(vec![ContentBlock::text("hi")]), assistant("p/m", content), user(vec![ContentBlock::text("on")])];
        let expect = json!({"role": "assistant", "content": [{"type": "text", "text": "so"}]});
        assert_eq!(body(&Anthropic::default(), &messages)["messages"][1], expect);
    }

    proptest! {
        #[test]
        fn histories_are_well_formed_and_extend_each_other(messages in history()) {
            check_history(ProviderKind::Anthropic, &Anthropic::default(), &messages);
            let compat = Compat { hosted: Hosted::ALL, ..Compat::NONE };
            check_history(ProviderKind::Anthropic, &Anthropic::new(compat), &messages);
        }
    }
}
