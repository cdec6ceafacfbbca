//! Requests: contents of parts. Adjacent messages of one role are one content, as Vertex AI requires.

use linger_protocol::id::CallId;
use linger_protocol::message::{ContentBlock, Role};
use linger_protocol::session::Effort;
use serde_json::{Value, json};

use super::super::compat::Compat;
use super::super::encoding::{self, CallNames, Items};
use super::super::hosted::{Hosted, readable};
use super::super::kind::ProviderKind;
use super::super::think_decoder;
use super::super::types::{Encoder, HttpRequest, Images, Message, Request, ToolJson};
use super::super::{effort, wire};
use super::hosted;

/// In the `native` part of a block: the signature of its part.
pub(super) const SIGNATURE: &str = "thoughtSignature";

/// Beside a signature: the length of the signed part of the text before it, in bytes.
pub(super) const SIGNED_BYTES: &str = "signed_bytes";

/// In an opaque block: an opaque part.
pub(super) const PART: &str = "part";

/// The signature that Google documents for calls of other models.
const PLACEHOLDER: &str = "skip_thought_signature_validator";

/// The requests of one context.
#[derive(Debug)]
pub(super) struct GeminiEncoder {
    compat: Compat,
    contents: Contents,
    /// The number of encoded messages of the context.
    encoded: usize,
    names: CallNames,
}

/// Contents, of which the last may still grow.
#[derive(Debug, Default)]
struct Contents {
    closed: Items,
    open: Option<(Role, Items)>,
}

impl GeminiEncoder {
    pub(super) fn new(compat: Compat) -> Self {
        Self { compat, contents: Contents::default(), encoded: 0, names: CallNames::default() }
    }
}

impl Encoder for GeminiEncoder {
    fn encode(&mut self, request: &Request<'_>) -> HttpRequest {
        let placeholder = self.compat.signature_placeholder.unwrap_or_else(|| is_third(request.model));
        for message in request.messages.get(self.encoded..).unwrap_or_default() {
            let own = message.is_own(request);
            self.names.add(message, own);
            let message = &*think_decoder::with_original_text(message, own);
            let parts = match message.role {
                Role::User => user_parts(message, &self.names, request.images),
                Role::Assistant => model_parts(message, own, self.compat.hosted, placeholder, &self.names),
            };
            self.contents.add(message.role, &parts);
        }
        self.encoded = request.messages.len();
        let mut all = Items::default();
        let functions = request.tools.rendered(ProviderKind::Gemini, tool);
        all.push_text(&encoding::object(&json!({}), &[("functionDeclarations", &[functions])]));
        for tool in &hosted::tools(self.compat.hosted) {
            all.push(tool);
        }
        let (tools, last) = ([all.as_str()], self.contents.last());
        let comma = if self.contents.closed.is_empty() || last.is_empty() { "" } else { "," };
        let contents = [self.contents.closed.as_str(), comma, last.as_str()];
        let lists = [("tools", tools.as_slice()), ("contents", &contents)];
        let lists = if request.tools.is_empty() { &lists[1..] } else { &lists };
        let head = self.head(request);
        let body = encoding::object(&head, lists);
        let body = encoding::with_own_fields(body, head, lists, request.own_fields);
        HttpRequest { path: self.path(request.model), headers: Vec::new(), body }
    }
}

/// A tool as the format has it.
fn tool(tool: &ToolJson) -> String {
    let ToolJson { name, description, schema } = tool;
    format!(r#"{{"name":{name},"description":{description},"parametersJsonSchema":{schema}}}"#)
}

impl GeminiEncoder {
    fn path(&self, model: &str) -> String {
        let model = wire::path_segment(model.strip_prefix("models/").unwrap_or(model));
        let start = if self.compat.vertex == Some(true) { "/publishers/google" } else { "/v1beta" };
        format!("{start}/models/{model}:streamGenerateContent?alt=sse")
    }

    /// The fields before tools and contents.
    fn head(&self, request: &Request<'_>) -> Value {
        let mut head = json!({});
        if let Some(system) = wire::visible(request.system) {
            wire::set(&mut head, "systemInstruction", json!({"parts": [{"text": system}]}));
        }
        let mut generation = json!({});
        if request.max_tokens > 0 {
            wire::set(&mut generation, "maxOutputTokens", request.max_tokens);
        }
        let mut thinking = json!({});
        if self.compat.thinking == Some(true) {
            wire::set(&mut thinking, "includeThoughts", true);
        }
        if let Some(budget) = effort::budget(request.effort) {
            if effort::thinks(request.effort) && self.compat.thinking != Some(false) {
                wire::set(&mut thinking, "includeThoughts", true);
            }
            if self.compat.thinking_budget.unwrap_or_else(|| !is_third(request.model)) {
                wire::set(&mut thinking, "thinkingBudget", budget.max(least_budget(request.model)));
            } else {
                wire::set(&mut thinking, "thinkingLevel", level(request.effort));
            }
        }
        if thinking.as_object().is_some_and(|thinking| !thinking.is_empty()) {
            wire::set(&mut generation, "thinkingConfig", thinking);
        }
        if !self.compat.hosted.is_none() && !request.tools.is_empty() {
            wire::set(&mut head, "toolConfig", json!({"includeServerSideToolInvocations": true}));
        }
        if let Some(output_schema) = request.output_schema {
            wire::set(&mut generation, "responseMimeType", "application/json");
            wire::set(&mut generation, "responseJsonSchema", wire::without_nul_in(output_schema.schema));
        }
        if generation.as_object().is_some_and(|generation| !generation.is_empty()) {
            wire::set(&mut head, "generationConfig", generation);
        }
        head
    }
}

/// Whether a model is of the third generation or a later one. Earlier ones require no signatures, take
/// a thinking budget in tokens, and cannot be held to a schema while they have tools.
pub(super) fn is_third(model: &str) -> bool {
    let model = model.rsplit('/').next().unwrap_or_default();
    !["gemini-1", "gemini-2", "gemma"].iter().any(|family| model.starts_with(family))
}

/// The `thinkingLevel` of an effort, for models from the third generation on, which cannot be kept from thinking.
fn level(effort: Effort) -> &'static str {
    match effort {
        Effort::Auto | Effort::None | Effort::Minimal => "MINIMAL",
        Effort::Low => "LOW",
        Effort::Medium => "MEDIUM",
        Effort::High => "HIGH",
        Effort::Xhigh | Effort::Max => "XHIGH",
    }
}

/// The smallest thinking budget of a model: Gemini 2.5 Pro always thinks, and refuses less (ai.google.dev,
/// "Gemini thinking").
fn least_budget(model: &str) -> u32 {
    let model = model.rsplit('/').next().unwrap_or_default();
    if model.starts_with("gemini-2.5-pro") { 128 } else { 0 }
}

impl Contents {
    fn add(&mut self, role: Role, parts: &[Value]) {
        if parts.is_empty() {
            return;
        }
        if self.open.as_ref().is_some_and(|(before, _)| *before != role) {
            self.close();
        }
        let (_, open) = self.open.get_or_insert_with(|| (role, Items::default()));
        parts.iter().for_each(|part| open.push(part));
    }

    /// The text of the last content; empty if there is none.
    fn last(&self) -> String {
        let Some((role, parts)) = &self.open else { return String::new() };
        let name = if *role == Role::User { "user" } else { "model" };
        encoding::object(&json!({"role": name}), &[("parts", &[parts.as_str()])])
    }

    fn close(&mut self) {
        self.closed.push_text(&self.last());
        self.open = None;
    }
}

/// First the results, in the order of their calls, then the rest. Images of results follow them.
fn user_parts(message: &Message, names: &CallNames, images: &Images) -> Vec<Value> {
    let plain_part = |block: &ContentBlock| plain_part(block, images);
    let (mut results, mut others) = (Vec::new(), Vec::new());
    for block in &message.content {
        match block {
            ContentBlock::ToolResult { call_id, is_error, content } => {
                let blocks = wire::result_blocks(content);
                let mut texts: Vec<&str> = blocks.iter().filter_map(ContentBlock::as_text).collect();
                let images = blocks.iter().filter(|block| block.as_text().is_none()).filter_map(plain_part);
                let before = others.len();
                others.extend(images);
                if others.len() > before {
                    texts.push(wire::IMAGES_FOLLOW);
                }
                let field = if *is_error { "error" } else { "output" };
                let mut response = json!({"name": names.tool(call_id), "response": {field: texts.join("\n\n")}});
                identify(&mut response, call_id, names);
                results.push(json!({"functionResponse": response}));
            }
            block => others.extend(plain_part(block)),
        }
    }
    results.append(&mut others);
    if results.is_empty() {
        results.push(json!({"text": wire::NOTHING_SAID}));
    }
    results
}

fn plain_part(block: &ContentBlock, images: &Images) -> Option<Value> {
    match block {
        ContentBlock::Text { text } => Some(json!({"text": wire::visible(text)?})),
        ContentBlock::Image { media_type, source } => Some(match wire::image(source, images) {
            Ok(data) => json!({"inlineData": {"mimeType": media_type, "data": data}}),
            Err(lost) => json!({"text": lost}),
        }),
        _ => None,
    }
}

/// Sets the provider's own identifier of a call or result. Without one, name and position identify the call; Vertex AI refuses
/// invented ones.
fn identify(value: &mut Value, call_id: &CallId, names: &CallNames) {
    if let Some(id) = names.native(call_id) {
        wire::set(value, "id", id);
    }
}

fn model_parts(message: &Message, own: bool, on: Hosted, placeholder: bool, names: &CallNames) -> Vec<Value> {
    let mut parts = Vec::new();
    let mut first_call = true;
    for (n, block) in message.content.iter().enumerate() {
        match block {
            ContentBlock::Text { text } => {
                let signed = match message.content.get(n + 1) {
                    Some(ContentBlock::Opaque { native }) if own => Some(native),
                    _ => None,
                };
                let signed = signed.filter(|native| signed_bytes(native) > 0);
                parts.extend(signed_text(text, signed, &json!({})));
            }
            ContentBlock::Thinking { text, native } if own => {
                // Thoughts without a signature are ignored.
                let signed = native.as_ref().filter(|native| native.get(SIGNATURE).is_some());
                parts.extend(signed.into_iter().flat_map(|_| signed_text(text, signed, &json!({"thought": true}))));
            }
            ContentBlock::ToolUse { call_id, name, input, native } => {
                let mut call = json!({"name": wire::tool_name(name), "args": wire::arguments(input)});
                identify(&mut call, call_id, names);
                let mut part = json!({"functionCall": call});
                let signature = wire::native_str(native, SIGNATURE).filter(|_| own);
                // Of parallel calls, the first is signed.
                let signature = signature.or((placeholder && first_call).then_some(PLACEHOLDER));
                if let Some(signature) = signature {
                    wire::set(&mut part, SIGNATURE, signature);
                }
                first_call = false;
                parts.push(part);
            }
            ContentBlock::Hosted { tool, native: Some(native), .. } if own && on.has(*tool) => {
                parts.extend(native.get(PART).cloned())
            }
            ContentBlock::Hosted { .. } => parts.extend(readable(block).map(|said| json!({"text": said}))),
            ContentBlock::Opaque { native } if own => match (native.get(PART), native.get(SIGNATURE)) {
                (Some(part), _) => parts.push(part.clone()),
                (None, Some(signature)) if signed_bytes(native) == 0 => {
                    parts.push(json!({"text": "", SIGNATURE: signature}));
                }
                _ => {}
            },
            _ => {}
        }
    }
    // Signatures and thoughts alone are no answer.
    let says = |part: &Value| part.get("thought").is_none() && part.get("text").is_none_or(|text| text != "");
    if parts.iter().any(says) { parts } else { Vec::new() }
}

fn signed_bytes(native: &Value) -> usize {
    native.get(SIGNED_BYTES).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok()).unwrap_or_default()
}

/// Text as parts with `fields`: the signed text is a part of its own, as it came.
fn signed_text(text: &str, signed: Option<&Value>, fields: &Value) -> Vec<Value> {
    let part = |text: &str| {
        let mut part = json!({"text": wire::without_nul(text)});
        fields.as_object().into_iter().flatten().for_each(|(name, value)| wire::set(&mut part, name, value.clone()));
        part
    };
    let Some(native) = signed else { return wire::visible(text).map(|text| part(&text)).into_iter().collect() };
    let start = text.len().saturating_sub(signed_bytes(native));
    let (before, own) = text.split_at_checked(start).unwrap_or(("", text));
    let mut end = part(own);
    wire::set(&mut end, SIGNATURE, native.get(SIGNATURE).cloned().unwrap_or_default());
    wire::visible(before).map(|before| part(&before)).into_iter().chain([end]).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::support::{
        assistant, body, call, check_history, history_of, request, result, thought, user,
    };
    use super::super::super::types::Codec;
    use super::super::Gemini;
    use super::*;

    fn codec() -> Gemini {
        Gemini::new(Compat { signature_placeholder: Some(false), ..Compat::NONE })
    }

    fn opaque(native: Value) -> ContentBlock {
        ContentBlock::Opaque { native }
    }

    #[test]
    fn a_whole_request() {
        let image = || ContentBlock::image("image/png", "AAAA");
        let pictured = ContentBlock::ToolResult { call_id: "c2".into(), is_error: true, content: vec![image()] };
        let messages = [
            user(vec![ContentBlock::text("look"), image()]),
            assistant(
                "p/m",
                vec![
                    thought("hm", json!({"thoughtSignature": "c2ln", "signed_bytes": 1})),
                    ContentBlock::Thinking { text: "unsigned".to_owned(), native: None },
                    ContentBlock::text("I look."),
                    opaque(json!({"thoughtSignature": "dGV4dA==", "signed_bytes": 3})),
                    call("c1", "ls", json!({"a": 1}), Some(json!({"id": "x1", "thoughtSignature": "Y2FsbA=="}))),
                    call("c2", "read", json!("{bad"), None),
                    opaque(json!({"part": {"executableCode": {"code": "1"}}})),
                    opaque(json!({"thoughtSignature": "ZW5k", "signed_bytes": 0})),
                ],
            ),
            user(vec![result("c1", "one"), pictured]),
            user(vec![ContentBlock::text("and?")]),
        ];
        let data = json!({"inlineData": {"mimeType": "image/png", "data": "AAAA"}});
        let expect = json!({
            "systemInstruction": {"parts": [{"text": "be brief"}]},
            "generationConfig": {"maxOutputTokens": 100},
            "tools": [{"functionDeclarations": [{"name": "ls", "description": "lists", "parametersJsonSchema": {"type": "object"}}]}],
            "contents": [
                {"role": "user", "parts": [{"text": "look"}, data]},
                {"role": "model", "parts": [
                    {"text": "h", "thought": true},
                    {"text": "m", "thought": true, "thoughtSignature": "c2ln"},
                    {"text": "I lo"},
                    {"text": "ok.", "thoughtSignature": "dGV4dA=="},
                    {"functionCall": {"name": "ls", "args": {"a": 1}, "id": "x1"}, "thoughtSignature": "Y2FsbA=="},
                    {"functionCall": {"name": "read", "args": {"invalid_arguments": "{bad"}}},
                    {"executableCode": {"code": "1"}},
                    {"text": "", "thoughtSignature": "ZW5k"}]},
                {"role": "user", "parts": [
                    {"functionResponse": {"name": "ls", "response": {"output": "one"}, "id": "x1"}},
                    {"functionResponse": {"name": "read", "response": {"error": "(the images of this result follow)"}}},
                    data,
                    {"text": "and?"}]},
            ],
        });
        // The checker does not know opaque parts, so they are left out.
        assert_eq!(body(&codec(), &messages), expect);
    }

    #[test]
    fn another_models_calls_get_the_placeholder_where_the_model_insists() {
        let content = vec![
            thought("hm", json!({"thoughtSignature": "c2ln", "signed_bytes": 2})),
            ContentBlock::text("so"),
            opaque(json!({"thoughtSignature": "c2ln", "signed_bytes": 2})),
            call("c1", "ls", json!({}), Some(json!({"id": "x1", "thoughtSignature": "c2ln"}))),
            call("c2", "ls", json!({}), None),
        ];
        let messages = [
            user(vec![ContentBlock::text("hi")]),
            assistant("q/n", content),
            user(vec![result("c1", "1"), result("c2", "2")]),
        ];
        let parts = |compat, model| {
            let body = Gemini::new(compat).encoder().encode(&Request { model, ..request(&messages) }).body;
            let body: Value = serde_json::from_slice(&body).unwrap();
            body["contents"][1]["parts"].clone()
        };
        let bare = json!({"functionCall": {"name": "ls", "args": {}}});
        let mut first = bare.clone();
        let without = json!([{"text": "so"}, first, bare]);
        first["thoughtSignature"] = json!(PLACEHOLDER);
        let with = json!([{"text": "so"}, first, bare]);
        for model in ["gemini-3.8-flash", "gemini-flash-latest", "gemini-4-argon"] {
            assert_eq!(parts(Compat::NONE, model), with, "{model}");
        }
        for model in ["gemini-2.5-pro", "models/gemini-2.0-flash", "gemma-4"] {
            assert_eq!(parts(Compat::NONE, model), without, "{model}");
        }
        assert_eq!(parts(Compat { signature_placeholder: Some(true), ..Compat::NONE }, "gemini-2.5-pro"), with);
    }

    #[test]
    fn vertex_has_other_addresses_and_another_key() {
        fn check(compat: Compat, model: &str, path: &str, header: (&str, &str)) {
            let messages = [user(vec![ContentBlock::text("hi")])];
            let codec = Gemini::new(compat);
            let encoded = codec.encoder().encode(&Request { model, ..request(&messages) });
            assert_eq!(encoded.path, path);
            let (name, value) = codec.authorize(&crate::diagnostics::secret::Secret::new("k"));
            assert_eq!((name, value.as_str()), header);
        }
        let vertex = Compat { vertex: Some(true), ..Compat::NONE };
        let own = ("x-goog-api-key", "k");
        check(Compat::NONE, "gemini-x", "/v1beta/models/gemini-x:streamGenerateContent?alt=sse", own);
        check(Compat::NONE, "models/a?b/c", "/v1beta/models/a%3Fb%2Fc:streamGenerateContent?alt=sse", own);
        let path = "/publishers/google/models/gemini-x:streamGenerateContent?alt=sse";
        check(vertex, "gemini-x", path, ("authorization", "Bearer k"));
    }

    #[test]
    fn an_answer_of_thoughts_alone_goes_back_not_at_all() {
        let content = vec![
            thought("hm", json!({"thoughtSignature": "c2ln", "signed_bytes": 2})),
            opaque(json!({"thoughtSignature": "c2ln", "signed_bytes": 0})),
        ];
        let messages =
            [user(vec![ContentBlock::text("hi")]), assistant("p/m", content), user(vec![ContentBlock::text("on")])];
        let expect = json!([{"role": "user", "parts": [{"text": "hi"}, {"text": "on"}]}]);
        assert_eq!(body(&codec(), &messages)["contents"], expect);
    }

    proptest! {
        #[test]
        fn histories_are_well_formed_and_extend_each_other(messages in history_of(ProviderKind::Gemini), placeholder in any::<bool>()) {
            let compat = Compat { signature_placeholder: Some(placeholder), ..Compat::NONE };
            check_history(ProviderKind::Gemini, &Gemini::new(compat), &messages);
            let compat = Compat { hosted: Hosted::ALL, ..compat };
            check_history(ProviderKind::Gemini, &Gemini::new(compat), &messages);
        }
    }
}
