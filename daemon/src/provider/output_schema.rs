//! Output schemas: how each wire format requests JSON that fits a schema, and how the answer is read back. Pure.
//!
//! The abilities of servers are data: [`Compat::json_schema`] and [`Compat::schema_with_tools`].
//! `strict` has the schemas that are enforced strictly.
//! Deliberately absent: validation of answers ([`crate::provider::schema`]), and repairs (the turn).

mod strict;

use std::borrow::Cow;

use linger_protocol::message::ContentBlock;
use serde_json::{Value, json};

use super::compat::Compat;
pub use super::types::OutputSchema;
use super::types::{Codec, Response};
pub use strict::without_nulls;

/// The tool that carries the answer where a format has no other means.
pub const ANSWER: &str = "final_answer";

/// Its description for the model.
const DESCRIPTION: &str =
    "Gives the final answer, and ends the turn. Call it once, alone, when everything else is done.";

/// The name of the schema on the wire.
const NAME: &str = "answer";

/// The field of the wrapping object, for answers that are no objects.
const INNER: &str = "answer";

/// How a server can be held to a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaStrategy {
    /// Only by words in the prompt.
    PromptOnly,
    /// By a request without tools.
    WithoutTools,
    /// Together with tools, in every step.
    WithTools,
}

/// The strategy for a `model` and a `schema` at a server with these flags; `codec` is absent for the scripted model.
pub fn schema_strategy(codec: Option<&dyn Codec>, compat: Compat, model: &str, schema: &Value) -> SchemaStrategy {
    // The scripted model always complies.
    let Some(codec) = codec else { return SchemaStrategy::WithTools };
    let is_unenforceable = wraps(codec, schema) && has_references(schema);
    if is_unenforceable || compat.json_schema == Some(false) {
        SchemaStrategy::PromptOnly
    } else if codec.takes_schema_with_tools(model) {
        SchemaStrategy::WithTools
    } else {
        SchemaStrategy::WithoutTools
    }
}

/// Whether answers for `schema` are wrapped in an object.
pub fn wraps(codec: &dyn Codec, schema: &Value) -> bool {
    codec.takes_only_objects() && !is_object(schema)
}

/// The schema itself if it is of an object, else the schema of the wrapping object.
fn as_object_schema(schema: &Value) -> Cow<'_, Value> {
    if is_object(schema) {
        return Cow::Borrowed(schema);
    }
    let properties = json!({ INNER: schema });
    Cow::Owned(json!({"type": "object", "properties": properties, "required": [INNER], "additionalProperties": false}))
}

/// Takes the answer out of its wrapping object, if it is in one.
pub fn unwrap_answer(answer: Value) -> Value {
    match answer {
        Value::Object(mut fields) if fields.len() == 1 && fields.contains_key(INNER) => {
            fields.remove(INNER).unwrap_or_default()
        }
        other => other,
    }
}

/// Whether a schema has references, which wrapping would break.
fn has_references(schema: &Value) -> bool {
    const NAMES: [&str; 5] = ["$ref", "$dynamicRef", "$recursiveRef", "$id", "$anchor"];
    match schema {
        Value::Object(fields) => {
            fields.iter().any(|(word, value)| NAMES.contains(&word.as_str()) || has_references(value))
        }
        Value::Array(items) => items.iter().any(has_references),
        _ => false,
    }
}

/// Whether a schema is plainly of an object, as those of tool arguments are.
fn is_object(schema: &Value) -> bool {
    let has = |word: &str| schema.get(word).is_some();
    schema.get("type").is_some_and(|kind| kind == "object") && !["oneOf", "anyOf", "allOf", "$ref"].into_iter().any(has)
}

/// The tool that carries the answer.
pub(super) fn tool(schema: &Value) -> Value {
    json!({"name": ANSWER, "description": DESCRIPTION, "input_schema": as_object_schema(schema)})
}

/// The schema for OpenAI's formats. It is marked strict where [`strict`] can make it so: optional properties become required and
/// may be `null`, and [`without_nulls`] removes those nulls from the answer.
pub(super) fn json_schema(schema: &Value, compat: &Compat) -> Value {
    let schema = as_object_schema(schema);
    if compat.strict_schema == Some(false) {
        return json!({"name": NAME, "schema": schema});
    }
    match strict::strict_version(&schema) {
        Some(schema) => json!({"name": NAME, "schema": schema, "strict": true}),
        None => json!({"name": NAME, "schema": schema, "strict": false}),
    }
}

/// Turns the tool call that carries the answer into text, which is what the history keeps for every format.
pub fn answer_call_to_text(response: &mut Response) {
    for block in &mut response.content {
        if let ContentBlock::ToolUse { name, input, .. } = block
            && name == ANSWER
        {
            let text = match input.take() {
                // Not JSON.
                Value::String(raw) => raw,
                object => object.to_string(),
            };
            *block = ContentBlock::text(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use linger_protocol::session::Effort;

    use super::super::codecs::codec;
    use super::super::kind::ProviderKind;
    use super::super::support::{KINDS, request, user};
    use super::super::types::Request;
    use super::super::wellformed::validate;
    use super::*;
    use crate::diagnostics::secret::Secret;

    fn object() -> Value {
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    }

    #[test]
    fn each_format_is_asked_in_its_way() {
        fn check(kind: ProviderKind, compat: Compat, model: &str, schema: &Value, expect: SchemaStrategy) {
            let codec = codec(kind, compat);
            assert_eq!(schema_strategy(codec.as_deref(), compat, model, schema), expect, "{kind:?} {model} {schema}");
        }
        let (list, none) = (json!({"type": "array"}), Compat::NONE);
        check(ProviderKind::Anthropic, none, "m", &object(), SchemaStrategy::WithTools);
        check(ProviderKind::Anthropic, none, "m", &list, SchemaStrategy::WithTools);
        check(
            ProviderKind::Openai,
            none,
            "m",
            &json!({"type": "array", "items": {"$ref": "#"}}),
            SchemaStrategy::PromptOnly,
        );
        check(
            ProviderKind::Gemini,
            none,
            "gemini-3.8-flash",
            &json!({"type": "array", "items": {"$ref": "#"}}),
            SchemaStrategy::WithTools,
        );
        check(ProviderKind::Openai, none, "m", &object(), SchemaStrategy::WithTools);
        check(ProviderKind::OpenaiResponses, none, "m", &object(), SchemaStrategy::WithTools);
        check(
            ProviderKind::OpenaiResponses,
            none,
            "m",
            &json!({"anyOf": [object()], "type": "object"}),
            SchemaStrategy::WithTools,
        );
        check(ProviderKind::Gemini, none, "gemini-3.8-flash", &list, SchemaStrategy::WithTools);
        check(ProviderKind::Gemini, none, "gemini-2.5-pro", &list, SchemaStrategy::WithoutTools);
        check(ProviderKind::Ollama, none, "m", &list, SchemaStrategy::WithoutTools);
        let apart = Compat { schema_with_tools: Some(false), ..none };
        check(ProviderKind::Openai, apart, "m", &object(), SchemaStrategy::WithoutTools);
        let words = Compat { json_schema: Some(false), ..none };
        check(ProviderKind::Openai, words, "m", &object(), SchemaStrategy::PromptOnly);
        check(ProviderKind::Ollama, words, "m", &object(), SchemaStrategy::PromptOnly);
    }

    #[test]
    fn an_answer_that_is_no_object_is_asked_for_within_one() {
        let list = json!({"type": "array", "items": {"type": "string"}});
        let around = json!({"type": "object", "properties": {"answer": list}, "required": ["answer"],
            "additionalProperties": false});
        assert_eq!(json_schema(&list, &Compat::NONE), json!({"name": "answer", "schema": around, "strict": true}));
        assert_eq!(tool(&list)["input_schema"], around);
        assert_eq!(tool(&object())["input_schema"], object());
        let is_wrapped = |schema: &Value| KINDS.map(|kind| wraps(codec(kind, Compat::NONE).unwrap().as_ref(), schema));
        assert_eq!((is_wrapped(&list), is_wrapped(&object())), ([true, true, true, false, false], [false; 5]));
        for (came, expect) in [
            (json!({"answer": ["a"]}), json!(["a"])),
            (json!(["a"]), json!(["a"])),
            (json!({"answer": 1, "more": 2}), json!({"answer": 1, "more": 2})),
            (json!({"answer": null}), json!(null)),
        ] {
            assert_eq!(unwrap_answer(came), expect);
        }
    }

    /// What a request has beyond one without shape and effort, but for the messages.
    fn added(
        kind: ProviderKind,
        compat: Compat,
        model: &str,
        output_schema: Option<OutputSchema<'_>>,
        effort: Effort,
    ) -> Value {
        let messages = [user(vec![ContentBlock::text("hi")])];
        let body = |compat, output_schema, effort| -> Value {
            let codec = codec(kind, compat).unwrap();
            let request = Request { model, output_schema, effort, max_tokens: 9000, ..request(&messages) };
            let body: Value = serde_json::from_slice(&codec.encoder().encode(&request).body).unwrap();
            assert_eq!(validate(kind.name(), &body), Ok(()), "{body:#}");
            body
        };
        let bare = body(Compat { thinking: None, ..compat }, None, Effort::Auto);
        let body = body(compat, output_schema, effort);
        let new = body.as_object().unwrap().iter().filter(|(name, value)| bare.get(name) != Some(value));
        Value::Object(new.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    #[test]
    fn a_shape_is_asked_for_in_the_words_of_each_format() {
        fn check(kind: ProviderKind, due: bool, expect: Value) {
            let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
            let output_schema = Some(OutputSchema { schema: &schema, due });
            assert_eq!(added(kind, Compat::NONE, "m", output_schema, Effort::Auto), expect, "{kind:?}");
        }
        let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
        let named = json!({"name": "answer", "schema": schema, "strict": true});
        let tools = json!([{"name": "ls", "description": "lists", "input_schema": {"type": "object"}}, tool(&schema)]);
        check(ProviderKind::Anthropic, false, json!({"tool_choice": {"type": "any"}, "tools": tools}));
        check(
            ProviderKind::Anthropic,
            true,
            json!({"tool_choice": {"type": "tool", "name": "final_answer"}, "tools": tools}),
        );
        check(ProviderKind::Openai, false, json!({"response_format": {"type": "json_schema", "json_schema": named}}));
        let mut format = named;
        format["type"] = json!("json_schema");
        check(ProviderKind::OpenaiResponses, false, json!({"text": {"format": format}}));
        let generation =
            json!({"maxOutputTokens": 9000, "responseMimeType": "application/json", "responseJsonSchema": schema});
        check(ProviderKind::Gemini, false, json!({"generationConfig": generation}));
        check(ProviderKind::Ollama, true, json!({"format": schema}));
    }

    #[test]
    fn an_effort_is_asked_for_in_the_words_of_each_format() {
        fn check(kind: ProviderKind, compat: Compat, model: &str, effort: Effort, expect: Value) {
            assert_eq!(added(kind, compat, model, None, effort), expect, "{kind:?} {model} {effort}");
        }
        let (none, budget) = (Compat::NONE, Compat { thinking_budget: Some(true), ..Compat::NONE });
        let shown = json!({"type": "adaptive", "display": "summarized"});
        let adaptive = json!({"thinking": shown, "output_config": {"effort": "xhigh"}});
        check(ProviderKind::Anthropic, none, "m", Effort::Xhigh, adaptive);
        check(ProviderKind::Anthropic, none, "m", Effort::None, json!({"thinking": {"type": "disabled"}}));
        let enabled = |tokens: u32| json!({"thinking": {"type": "enabled", "budget_tokens": tokens}});
        check(ProviderKind::Anthropic, budget, "m", Effort::Low, enabled(4096));
        check(ProviderKind::Anthropic, budget, "m", Effort::Max, enabled(6750));
        check(ProviderKind::Anthropic, none, "claude-haiku-4-5-20251001", Effort::Low, enabled(4096));
        check(ProviderKind::Anthropic, none, "claude-3-5-haiku-latest", Effort::High, json!({}));
        check(ProviderKind::Anthropic, none, "claude-3-5-haiku-latest", Effort::None, json!({}));
        check(ProviderKind::Anthropic, budget, "claude-opus-5", Effort::Low, enabled(4096));
        let adaptive = Compat { thinking_budget: Some(false), ..none };
        let low = json!({"thinking": shown, "output_config": {"effort": "low"}});
        check(ProviderKind::Anthropic, adaptive, "claude-sonnet-4-5", Effort::Low, low);
        let high = json!({"thinking": shown, "output_config": {"effort": "high"}});
        check(ProviderKind::Anthropic, none, "claude-opus-4-6", Effort::Xhigh, high);
        check(
            ProviderKind::Anthropic,
            none,
            "claude-opus-5-5",
            Effort::None,
            json!({"output_config": {"effort": "low"}}),
        );
        let between = json!({"thinking": {"type": "between_tools"}});
        check(ProviderKind::Anthropic, none, "claude-sonnet-5-5", Effort::None, between);
        let flag = |thinking: bool| Compat { thinking: Some(thinking), ..Compat::NONE };
        check(ProviderKind::Anthropic, flag(true), "m", Effort::Auto, json!({ "thinking": shown }));
        check(ProviderKind::Anthropic, flag(true).or(budget), "m", Effort::Auto, enabled(6750));
        let silent = json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}});
        check(ProviderKind::Anthropic, flag(false), "m", Effort::Low, silent);
        check(ProviderKind::Anthropic, flag(false), "m", Effort::Auto, json!({}));
        check(ProviderKind::Openai, none, "m", Effort::Minimal, json!({"reasoning_effort": "minimal"}));
        check(ProviderKind::Openai, Compat { reasoning_effort: Some(false), ..none }, "m", Effort::High, json!({}));
        check(ProviderKind::Openai, none, "m", Effort::Max, json!({"reasoning_effort": "max"}));
        check(ProviderKind::OpenaiResponses, none, "m", Effort::Xhigh, json!({"reasoning": {"effort": "xhigh"}}));
        check(ProviderKind::OpenaiResponses, none, "m", Effort::Max, json!({"reasoning": {"effort": "max"}}));
        let gemini =
            |thinking: Value| json!({"generationConfig": {"maxOutputTokens": 9000, "thinkingConfig": thinking}});
        let high = gemini(json!({"includeThoughts": true, "thinkingLevel": "HIGH"}));
        check(ProviderKind::Gemini, none, "gemini-3.8-flash", Effort::High, high);
        check(ProviderKind::Gemini, none, "gemini-2.5-flash", Effort::None, gemini(json!({"thinkingBudget": 0})));
        // It thinks in any case, and says so to fewer.
        check(
            ProviderKind::Gemini,
            none,
            "models/gemini-2.5-pro",
            Effort::None,
            gemini(json!({"thinkingBudget": 128})),
        );
        check(ProviderKind::Ollama, none, "m", Effort::None, json!({"think": false}));
        check(ProviderKind::Ollama, none, "m", Effort::Max, json!({"think": "high"}));
    }

    #[test]
    fn fields_of_the_users_own_are_merged_into_each_body() {
        let messages = [user(vec![ContentBlock::text("hi")])];
        let own = json!({"temperature": 0.5, "options": {"top_k": 5}, "generationConfig": {"topK": 5}, "text": {"verbosity": "low"}});
        for kind in KINDS {
            let codec = codec(kind, Compat::NONE).unwrap();
            let plain = Request { max_tokens: 9000, ..request(&messages) };
            let body = |own_fields| -> Value {
                let encoded = codec.encoder().encode(&Request { own_fields, ..plain });
                serde_json::from_slice(&encoded.body).unwrap()
            };
            let (without, with) = (body(None), body(own.as_object()));
            let mut expect = without.as_object().unwrap().clone();
            crate::provider::own_fields::merge(&mut expect, own.as_object().unwrap());
            assert_eq!((&with, &with["temperature"]), (&Value::Object(expect), &json!(0.5)), "{kind:?}");
            assert_eq!(without["messages"], with["messages"], "{kind:?}");
        }
    }

    #[test]
    fn claude_on_vertex_ai_has_its_model_in_the_path_and_its_version_in_the_body() {
        let messages = [user(vec![ContentBlock::text("hi")])];
        let codec = codec(ProviderKind::Anthropic, Compat { vertex: Some(true), ..Compat::NONE }).unwrap();
        let request = Request { model: "claude-sonnet-5@20260101", ..request(&messages) };
        let encoded = codec.encoder().encode(&request);
        assert_eq!(encoded.path, "/publishers/anthropic/models/claude-sonnet-5@20260101:streamRawPredict");
        let body: Value = serde_json::from_slice(&encoded.body).unwrap();
        assert_eq!((body.get("model"), &body["anthropic_version"]), (None, &json!("vertex-2023-10-16")));
        assert_eq!(codec.authorize(&Secret::new("k")), ("authorization", "Bearer k".to_owned()));
        assert!(codec.listing().is_none());
    }

    #[test]
    fn no_call_is_demanded_of_a_model_that_thinks() {
        let schema = object();
        let anthropic = |model, due, effort| {
            let body = added(
                ProviderKind::Anthropic,
                Compat::NONE,
                model,
                Some(OutputSchema { schema: &schema, due }),
                effort,
            );
            [body["thinking"]["type"].clone(), body["tool_choice"]["type"].clone()]
        };
        assert_eq!(anthropic("m", false, Effort::High), [json!("adaptive"), Value::Null]);
        assert_eq!(anthropic("m", true, Effort::High), [Value::Null, json!("tool")]);
        assert_eq!(anthropic("claude-haiku-4-5", false, Effort::High), [json!("enabled"), Value::Null]);
        // Those that always think cannot be made to call anything.
        for effort in [Effort::Auto, Effort::None] {
            assert_eq!(anthropic("claude-opus-5-5", false, effort), [Value::Null, Value::Null]);
            assert_eq!(anthropic("claude-opus-5-5", true, effort), [Value::Null, Value::Null]);
            assert_eq!(anthropic("claude-fable-5", true, effort), [Value::Null, json!("tool")]);
        }
    }

    #[test]
    fn a_call_that_gives_the_answer_becomes_its_words_in_its_place() {
        let call = |name: &str, input: Value| ContentBlock::ToolUse {
            call_id: "".into(),
            name: name.to_owned(),
            input,
            native: None,
        };
        let content = vec![ContentBlock::text("so"), call("ls", json!({})), call(ANSWER, json!({"b": 1, "a": 2}))];
        let mut response = Response { content, ..Response::default() };
        answer_call_to_text(&mut response);
        let expect = vec![ContentBlock::text("so"), call("ls", json!({})), ContentBlock::text(r#"{"b":1,"a":2}"#)];
        assert_eq!(response.content, expect);
        let content = vec![call(ANSWER, json!({"answer": "Bern"})), call(ANSWER, json!("{cut"))];
        let mut response = Response { content, ..Response::default() };
        answer_call_to_text(&mut response);
        assert_eq!(response.content, [ContentBlock::text(r#"{"answer":"Bern"}"#), ContentBlock::text("{cut")]);
    }
}
