//! Encoding step after step: what was encoded of a context is kept, so that a step costs what it adds.
//!
//! An [`Encoding`] belongs to one context. It holds the encoder of the last request, and starts again when what comes before the
//! messages changes.
//! The encoders are built of the two things here: [`Items`], text that grows, and [`CallNames`].

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use linger_protocol::id::CallId;
use linger_protocol::message::{ContentBlock, Role};
use serde_json::{Map, Value};

use super::types::{Codec, Encoder, HttpRequest, Message, Request, RequestPrefix, ToolJson};
use super::{own_fields, wire};

/// The encoded part of one context, to which messages are only ever added. With another codec, model, system prompt or other
/// tools it starts again from the first message.
#[derive(Debug, Default)]
pub struct Encoding(Option<Current>);

#[derive(Debug)]
struct Current {
    prefix: PrefixHash,
    encoder: Box<dyn Encoder>,
    /// How many messages it has.
    messages: usize,
}

/// A hash of what requests must have in common for one to extend the other: the codec with its settings, `provider/model`, the
/// system prompt, and the tools.
#[derive(Debug, PartialEq, Eq)]
struct PrefixHash(u64);

impl PrefixHash {
    fn of(codec: &dyn Codec, prefix: &RequestPrefix<'_>) -> Self {
        let mut hasher = DefaultHasher::new();
        (format!("{codec:?}"), prefix.origin, prefix.system, prefix.tools.digest()).hash(&mut hasher);
        Self(hasher.finish())
    }
}

impl Encoding {
    /// How many messages need not be encoded again for a request that begins with `prefix`.
    pub fn encoded(&self, codec: &dyn Codec, prefix: &RequestPrefix<'_>) -> usize {
        if cfg!(debug_assertions) {
            return 0; // There all is encoded twice.
        }
        let prefix = PrefixHash::of(codec, prefix);
        self.0.as_ref().filter(|current| current.prefix == prefix).map_or(0, |current| current.messages)
    }

    /// The request, byte for byte as if nothing had been encoded before.
    pub fn encode(&mut self, codec: &dyn Codec, request: &Request<'_>) -> HttpRequest {
        let Request { origin, system, tools, .. } = *request;
        let prefix = PrefixHash::of(codec, &RequestPrefix { origin, system, tools });
        let kept = self.0.take().filter(|current| current.prefix == prefix);
        let current = self.0.insert(kept.unwrap_or_else(|| Current { prefix, encoder: codec.encoder(), messages: 0 }));
        let encoded = current.encoder.encode(request);
        current.messages = request.messages.len();
        debug_assert_eq!(encoded, codec.encoder().encode(request), "what was encoded before has changed");
        encoded
    }
}

/// JSON values, separated by commas.
#[derive(Clone, Debug, Default)]
pub(super) struct Items(String);

impl Items {
    /// Adds a value at the end.
    pub(super) fn push(&mut self, value: &Value) {
        self.push_text(&value.to_string());
    }

    /// Adds values that are text already.
    pub(super) fn push_text(&mut self, text: &str) {
        if !self.0.is_empty() && !text.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(text);
    }

    /// The same, `field` (which begins with a comma) at the end of the last value, an object.
    pub(super) fn with_last_field(mut self, field: &str) -> Self {
        if self.0.pop().is_some() {
            self.0.push_str(field);
            self.0.push('}');
        }
        self
    }

    /// The values as they stand in a list, without its brackets.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Value> for Items {
    fn from_iter<I: IntoIterator<Item = Value>>(values: I) -> Self {
        let mut items = Self::default();
        for value in values {
            items.push(&value);
        }
        items
    }
}

/// A tool as Chat Completions has it, and Ollama: a `function` with `parameters`.
pub(super) fn function(tool: &ToolJson) -> String {
    let ToolJson { name, description, schema } = tool;
    format!(r#"{{"type":"function","function":{{"name":{name},"description":{description},"parameters":{schema}}}}}"#)
}

/// The object `fields`, and after its fields the lists in `lists`: names and items, which may be cut anywhere.
pub(super) fn object(fields: &Value, lists: &[(&str, &[&str])]) -> String {
    let mut text = fields.to_string();
    let size = |parts: &[&str]| parts.iter().map(|part| part.len()).sum::<usize>();
    text.reserve_exact(lists.iter().map(|(name, items)| name.len() + size(items) + 6).sum());
    text.pop();
    for (name, items) in lists {
        let comma = if text.len() > 1 { "," } else { "" };
        [comma, "\"", name, "\":["].iter().chain(*items).chain(&["]"]).for_each(|part| text.push_str(part));
    }
    text.push('}');
    text
}

/// `body`, which was made of `head` and `lists`, with the user's own fields.
pub(super) fn with_own_fields(
    body: String,
    mut head: Value,
    lists: &[(&str, &[&str])],
    own: Option<&Map<String, Value>>,
) -> Vec<u8> {
    match (head.as_object_mut(), own.filter(|own| !own.is_empty())) {
        (Some(fields), Some(own)) => {
            own_fields::merge(fields, own);
            object(&head, lists).into_bytes()
        }
        _ => body.into_bytes(),
    }
}

/// The names of tool calls on the wire: the provider's own where they go back to it and are unique, ours otherwise.
#[derive(Debug, Default)]
pub(super) struct CallNames {
    /// Each call's name, and its tool's.
    names: HashMap<CallId, (String, String)>,
    taken: HashSet<String>,
    /// The calls whose names are the provider's own.
    own: HashSet<CallId>,
    /// Names are nine letters or digits.
    short: bool,
}

impl CallNames {
    /// Names for a server that wants nine letters or digits.
    pub(super) fn short() -> Self {
        Self { short: true, ..Self::default() }
    }

    /// Names the calls of the next message. First come, first served, so that what is appended renames nothing.
    pub(super) fn add(&mut self, message: &Message, own: bool) {
        if message.role != Role::Assistant {
            return;
        }
        for block in &message.content {
            let ContentBlock::ToolUse { call_id, name: tool, native, .. } = block else { continue };
            let native = wire::native_str(native, "id")
                .filter(|id| own && !id.is_empty() && !self.taken.contains(*id) && (!self.short || is_short(id)));
            if native.is_some() {
                self.own.insert(call_id.clone());
            }
            let mut name = native.unwrap_or(call_id.as_str()).to_owned();
            if self.short && native.is_none() {
                name = shortened(&name);
            }
            while !self.taken.insert(name.clone()) {
                name.push('_');
                if self.short {
                    name = shortened(&name);
                }
            }
            self.names.insert(call_id.clone(), (name, wire::tool_name(tool)));
        }
    }

    /// The name of `call`.
    pub(super) fn get<'a>(&'a self, call: &'a CallId) -> &'a str {
        self.names.get(call).map_or(call.as_str(), |(name, _)| name)
    }

    /// The name of `call`, if it is the provider's own.
    pub(super) fn native<'a>(&'a self, call: &CallId) -> Option<&'a str> {
        self.own.contains(call).then(|| self.names.get(call)).flatten().map(|(name, _)| name.as_str())
    }

    /// The tool of `call`.
    pub(super) fn tool(&self, call: &CallId) -> &str {
        self.names.get(call).map_or("unknown", |(_, tool)| tool)
    }
}

/// How long a short name is.
const SHORT: usize = 9;

fn is_short(name: &str) -> bool {
    name.len() == SHORT && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// A short name that is always the same for `name`: its FNV-1a hash in letters and digits.
fn shortened(name: &str) -> String {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (0..SHORT as u32).filter_map(|n| char::from_digit((hash / 36_u64.pow(n) % 36) as u32, 36)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::json;

    use super::super::anthropic::Anthropic;
    use super::super::catalogue;
    use super::super::compat::Compat;
    use super::super::gemini::Gemini;
    use super::super::hosted::Hosted;
    use super::super::kind::ProviderKind;
    use super::super::ollama::Ollama;
    use super::super::openai::OpenAi;
    use super::super::output_schema::{self, SchemaStrategy};
    use super::super::responses::Responses;
    use super::super::support::{KINDS, THEIRS, assistant, call, history, mixed_history, request, user};
    use super::super::types::{OutputSchema, ToolSpec, ToolSpecs};
    use super::super::wellformed::{extends, validate};
    use super::*;

    #[test]
    fn a_call_never_gets_the_name_of_another() {
        let call = |call_id: &str, id: &str| call(call_id, "ls", json!({}), Some(json!({ "id": id })));
        let mut names = CallNames::default();
        names.add(&assistant("p/m", vec![call("c1", "c2"), call("c2", "")]), true);
        names.add(&assistant("p/m", vec![call("c3", "x"), call("c4", "x")]), true);
        let names = ["c1", "c2", "c3", "c4", "c5"].map(|call| names.get(&call.into()).to_owned());
        assert_eq!(names, ["c2", "c2_", "x", "c4", "c5"]);
    }

    #[test]
    fn a_failed_result_is_one_in_each_format() {
        let failed = |is_error: bool| {
            let content = vec![ContentBlock::text("3 rows")];
            [
                user(vec![ContentBlock::text("hi")]),
                assistant("p/m", vec![call("c1", "ls", json!({}), None)]),
                user(vec![ContentBlock::ToolResult { call_id: "c1".into(), is_error, content }]),
            ]
        };
        for kind in KINDS {
            let codec = catalogue::codec(kind, Compat::NONE).unwrap();
            let body = |messages: &[Message]| {
                let encoded = Encoding::default().encode(codec.as_ref(), &request(messages));
                String::from_utf8(encoded.body).unwrap()
            };
            let (bad, good) = (body(&failed(true)), body(&failed(false)));
            let says = match kind {
                ProviderKind::Anthropic => "\"is_error\":true",
                ProviderKind::Gemini => "{\"error\":",
                _ => "[failed] 3 rows",
            };
            assert!(bad.contains(says) && !good.contains(says), "{}: {bad}", kind.name());
        }
    }

    #[test]
    fn short_names_are_nine_letters_or_digits_and_unique() {
        let call = |call_id: &str, id: &str| call(call_id, "ls", json!({}), Some(json!({ "id": id })));
        let mut names = CallNames::short();
        let calls = vec![call("c1", "AbC123xyz"), call("c2", "AbC123xyz"), call("c3", "call_1"), call("c4", "")];
        names.add(&assistant("p/m", calls), true);
        let names: Vec<String> = ["c1", "c2", "c3", "c4"].map(|call| names.get(&call.into()).to_owned()).into();
        assert!(names.iter().all(|name| is_short(name)), "{names:?}");
        assert_eq!(names[0], "AbC123xyz");
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 4, "{names:?}");
    }

    #[test]
    fn other_tools_and_another_system_prompt_are_sent_with_the_next_request_in_each_format() {
        let spec = |name: &str| {
            let (description, input_schema) = (format!("does {name}"), json!({"type": "object"}));
            ToolSpecs::new(vec![ToolSpec { name: name.to_owned(), description, input_schema }])
        };
        let (before, after) = (spec("removed"), spec("added"));
        let messages = [user(vec![ContentBlock::text("hi")]), assistant("p/m", vec![ContentBlock::text("ho")])];
        for kind in KINDS {
            let codec = catalogue::codec(kind, Compat::NONE).unwrap();
            let mut encoding = Encoding::default();
            let mut sent =
                |request: Request<'_>| String::from_utf8(encoding.encode(codec.as_ref(), &request).body).unwrap();
            let request = request(&messages);
            let first = sent(Request { tools: &before, ..request });
            assert!(first.contains("does removed") && first.contains("be brief"), "{first}");
            let second = sent(Request { tools: &after, ..request });
            assert!(second.contains("does added") && !second.contains("does removed"), "{second}");
            let third = sent(Request { tools: &after, system: "be long", ..request });
            assert!(third.contains("be long") && !third.contains("be brief"), "{third}");
            let alone = sent(Request { tools: ToolSpecs::none(), ..request });
            assert!(!alone.contains("does added"), "{alone}");
        }
    }

    /// Whether the answer to a request has to fit a schema, and whether it is due at once.
    fn due() -> impl Strategy<Value = Option<bool>> {
        prop::sample::select(vec![None, None, Some(false), Some(true)])
    }

    /// The request for an answer that fits, as a turn makes it.
    fn shaped<'a>(kind: ProviderKind, request: Request<'a>, schema: &'a Value, due: Option<bool>) -> Request<'a> {
        let Some(due) = due else { return request };
        let output_schema = Some(OutputSchema { schema, due });
        let codec = catalogue::codec(kind, Compat::NONE);
        match output_schema::schema_strategy(codec.as_deref(), Compat::NONE, request.model, schema) {
            SchemaStrategy::WithTools => Request { output_schema, ..request },
            SchemaStrategy::WithoutTools if due => Request { output_schema, tools: ToolSpecs::none(), ..request },
            SchemaStrategy::WithoutTools | SchemaStrategy::PromptOnly => request,
        }
    }

    proptest! {
        /// A session that goes from format to format, and begins anew in the middle, sends what each takes: its own opaque parts,
        /// nobody else's, what it was sent before unchanged at the beginning, and the schema of an answer that has to fit one.
        #[test]
        fn histories_of_all_formats_are_good_in_each(
            messages in mixed_history(),
            asked in prop::collection::vec((0..5usize, 0..3u8, due()), 40),
        ) {
            let mut encoding = Encoding::default();
            let mut sent: HashMap<(&str, Option<bool>), Value> = HashMap::new();
            let (mut kind, mut before_due) = (KINDS[0], None);
            let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
            for (n, (next, chance, due)) in (1..=messages.len()).zip(asked) {
                if chance == 0 {
                    kind = KINDS[next];
                } else if chance == 1 {
                    encoding = Encoding::default();
                }
                let is_call = |block: &ContentBlock| matches!(block, ContentBlock::ToolUse { .. });
                if messages[n - 1].content.iter().any(is_call) {
                    continue; // Nobody is asked before the results are there.
                }
                if due != before_due {
                    encoding = Encoding::default(); // A turn begins anew where an answer is asked for in another way.
                }
                before_due = due;
                let request = shaped(kind, Request { origin: kind.name(), ..request(&messages[..n]) }, &schema, due);
                let compat = Compat { hosted: Hosted::ALL, ..Compat::NONE };
                let codec = catalogue::codec(kind, compat).unwrap();
                let body: Value = serde_json::from_slice(&encoding.encode(codec.as_ref(), &request).body).unwrap();
                prop_assert_eq!(validate(kind.name(), &body), Ok(()), "{:#}", body);
                prop_assert_eq!(body.to_string().contains("\"n\":{"), request.output_schema.is_some(), "{:#}", body);
                if let Some(before) = sent.insert((kind.name(), due), body.clone()) {
                    prop_assert!(extends(&before, &body), "{:#}\n is no prefix of\n{:#}", before, body);
                }
                let text = body.to_string();
                prop_assert!(!text.contains(THEIRS), "{:?} has a secret of a model that is never asked: {}", kind, text);
                for (secret, of) in [("gAAA", ProviderKind::OpenaiResponses), ("Y2FsbA==", ProviderKind::Gemini), ("xyz", ProviderKind::Anthropic)] {
                    prop_assert!(of == kind || !text.contains(secret), "{:?} has a secret of {:?}: {}", kind, of, text);
                }
            }
        }
    }

    proptest! {
        /// Each step asks one of six servers, two of which speak one format in two ways, for one of two models.
        #[test]
        fn step_by_step_gives_the_same_bytes_as_all_at_once(
            messages in history(),
            asked in prop::collection::vec(
                (0..6usize, prop::sample::select(vec!["p/m", "q/n"]), any::<bool>(), due()),
                40,
            ),
        ) {
            let compat = Compat {
                reasoning_content: Some(true),
                short_call_ids: Some(true),
                assistant_after_tool: Some(true),
                assistant_after_user: Some(true),
                ..Compat::NONE
            };
            let codecs: [Arc<dyn Codec>; 6] = [
                Arc::new(Anthropic::new(Compat { hosted: Hosted::ALL, ..Compat::NONE })),
                Arc::new(OpenAi::new(Compat::NONE)),
                Arc::new(OpenAi::new(compat)),
                Arc::new(Responses::new(Compat::NONE)),
                Arc::new(Gemini::new(Compat::NONE)),
                Arc::new(Ollama::new(Compat::NONE)),
            ];
            let mut encoding = Encoding::default();
            let (mut whom, mut before_due) = ((0, "p/m"), None);
            let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
            for (n, (codec, origin, switch, due)) in (1..=messages.len()).zip(asked) {
                if switch {
                    whom = (codec, origin);
                }
                let is_call = |block: &ContentBlock| matches!(block, ContentBlock::ToolUse { .. });
                if messages[n - 1].content.iter().any(is_call) {
                    continue; // Nobody is asked before the results are there.
                }
                if due != before_due {
                    encoding = Encoding::default(); // A turn begins anew where an answer is asked for in another way.
                }
                before_due = due;
                let codec = codecs[whom.0].as_ref();
                let output_schema = due.map(|due| OutputSchema { schema: &schema, due });
                let request = Request { origin: whom.1, output_schema, ..request(&messages[..n]) };
                prop_assert_eq!(encoding.encode(codec, &request), codec.encoder().encode(&request));
            }
        }
    }
}
