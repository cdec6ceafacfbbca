//! The shape of an answer: how each wire format is asked for JSON that fits a schema, and what comes of it. Pure.
//!
//! What a server takes is data: [`Compat::json_schema`] and [`Compat::schema_with_tools`].
//! Which schemas are enforced to the letter is in `strict`.
//! Deliberately absent: whether an answer fits, which [`crate::provider::schema`] says, and what to do if not, which the turn does.

mod strict;

use std::borrow::Cow;

use linger_protocol::message::ContentBlock;
use serde_json::{Value, json};

use super::catalogue::Kind;
use super::compat::Compat;
use super::{Response, gemini};
pub use strict::without_nulls;

/// The tool that an answer is given with, where a format has no other means.
pub const ANSWER: &str = "final_answer";

/// What a model is told about that tool.
const DESCRIPTION: &str =
    "Gives the final answer, and ends the turn. Call it once, alone, when everything else is done.";

/// What servers call the schema.
const NAME: &str = "answer";

/// The field of an object in which an answer comes that is none.
const INNER: &str = "answer";

/// What the answer to a request has to fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape<'a> {
    /// JSON Schema.
    pub schema: &'a Value,
    /// The answer is due, and no other tool may be called before it, where the format can say so.
    pub due: bool,
}

/// How a server can be asked for a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shaping {
    /// In words alone.
    Words,
    /// By a request without tools.
    Apart,
    /// Beside tools, at every step.
    Together,
}

/// How a server with these flags is asked for answers of `model` that fit `schema`.
pub fn shaping(kind: Kind, compat: Compat, model: &str, schema: &Value) -> Shaping {
    let with_tools = match kind {
        // The scripted model does as it is told.
        Kind::Demo => return Shaping::Together,
        _ if takes_objects(kind) && !is_object(schema) && refers(schema) => return Shaping::Words,
        // The answer is a call here.
        Kind::Anthropic => true,
        Kind::Openai | Kind::OpenaiResponses => compat.schema_with_tools.unwrap_or(true),
        Kind::Gemini => compat.schema_with_tools.unwrap_or_else(|| gemini::is_third(model)),
        // Its grammar leaves no way to call anything.
        Kind::Ollama => compat.schema_with_tools.unwrap_or(false),
    };
    match (compat.json_schema, with_tools) {
        (Some(false), _) => Shaping::Words,
        (_, true) => Shaping::Together,
        (_, false) => Shaping::Apart,
    }
}

/// Whether a format holds only objects to a schema. An answer of another kind is then asked for as the one field of an object.
fn takes_objects(kind: Kind) -> bool {
    matches!(kind, Kind::Anthropic | Kind::Openai | Kind::OpenaiResponses)
}

/// Whether answers that fit `schema` come as the field of an object.
pub fn wraps(kind: Kind, schema: &Value) -> bool {
    takes_objects(kind) && !is_object(schema)
}

/// The schema of an object: this one, or that of an object around it.
fn of_object(schema: &Value) -> Cow<'_, Value> {
    if is_object(schema) {
        return Cow::Borrowed(schema);
    }
    let properties = json!({ INNER: schema });
    Cow::Owned(json!({"type": "object", "properties": properties, "required": [INNER], "additionalProperties": false}))
}

/// The answer in the object that was asked for around it, if it came so.
pub fn unwrapped(answer: Value) -> Value {
    match answer {
        Value::Object(mut fields) if fields.len() == 1 && fields.contains_key(INNER) => {
            fields.remove(INNER).unwrap_or_default()
        }
        other => other,
    }
}

/// Whether a schema names places of itself, which are elsewhere when another is around it.
fn refers(schema: &Value) -> bool {
    const NAMES: [&str; 5] = ["$ref", "$dynamicRef", "$recursiveRef", "$id", "$anchor"];
    match schema {
        Value::Object(fields) => fields.iter().any(|(word, value)| NAMES.contains(&word.as_str()) || refers(value)),
        Value::Array(items) => items.iter().any(refers),
        _ => false,
    }
}

/// Whether a schema is of an object and nothing else, as the arguments of a tool are.
fn is_object(schema: &Value) -> bool {
    let has = |word: &str| schema.get(word).is_some();
    schema.get("type").is_some_and(|kind| kind == "object") && !["oneOf", "anyOf", "allOf", "$ref"].into_iter().any(has)
}

/// The tool that gives the answer.
pub(super) fn tool(schema: &Value) -> Value {
    json!({"name": ANSWER, "description": DESCRIPTION, "input_schema": of_object(schema)})
}

/// What OpenAI's formats are sent, one of them under a name of its own. What is strict but for the word that says so is sent with
/// that: an answer that fits then fits what was asked for. What may be left out has to be there and may be `null`, where that
/// makes it strict ([`strict`]); [`without_nulls`] takes it out again.
pub(super) fn json_schema(schema: &Value) -> Value {
    let schema = of_object(schema);
    match strict::made(&schema) {
        Some(schema) => json!({"name": NAME, "schema": schema, "strict": true}),
        None => json!({"name": NAME, "schema": schema, "strict": false}),
    }
}

/// Turns a call that gives the answer into its words; they are what the history has, whatever format it is told in next.
pub fn spoken(response: &mut Response) {
    for block in &mut response.content {
        if let ContentBlock::ToolUse { name, input, .. } = block
            && name == ANSWER
        {
            let text = match input.take() {
                // It is no JSON.
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

    use super::super::support::{KINDS, request, user};
    use super::super::wellformed::validate;
    use super::super::{Request, catalogue};
    use super::*;

    fn object() -> Value {
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    }

    #[test]
    fn each_format_is_asked_in_its_way() {
        fn check(kind: Kind, compat: Compat, model: &str, schema: &Value, expect: Shaping) {
            assert_eq!(shaping(kind, compat, model, schema), expect, "{kind:?} {model} {schema}");
        }
        let (list, none) = (json!({"type": "array"}), Compat::NONE);
        check(Kind::Anthropic, none, "m", &object(), Shaping::Together);
        check(Kind::Anthropic, none, "m", &list, Shaping::Together);
        check(Kind::Openai, none, "m", &json!({"type": "array", "items": {"$ref": "#"}}), Shaping::Words);
        check(
            Kind::Gemini,
            none,
            "gemini-3.8-flash",
            &json!({"type": "array", "items": {"$ref": "#"}}),
            Shaping::Together,
        );
        check(Kind::Openai, none, "m", &object(), Shaping::Together);
        check(Kind::OpenaiResponses, none, "m", &object(), Shaping::Together);
        check(Kind::OpenaiResponses, none, "m", &json!({"anyOf": [object()], "type": "object"}), Shaping::Together);
        check(Kind::Gemini, none, "gemini-3.8-flash", &list, Shaping::Together);
        check(Kind::Gemini, none, "gemini-2.5-pro", &list, Shaping::Apart);
        check(Kind::Ollama, none, "m", &list, Shaping::Apart);
        let apart = Compat { schema_with_tools: Some(false), ..none };
        check(Kind::Openai, apart, "m", &object(), Shaping::Apart);
        let words = Compat { json_schema: Some(false), ..none };
        check(Kind::Openai, words, "m", &object(), Shaping::Words);
        check(Kind::Ollama, words, "m", &object(), Shaping::Words);
    }

    #[test]
    fn an_answer_that_is_no_object_is_asked_for_within_one() {
        let list = json!({"type": "array", "items": {"type": "string"}});
        let around = json!({"type": "object", "properties": {"answer": list}, "required": ["answer"],
            "additionalProperties": false});
        assert_eq!(json_schema(&list), json!({"name": "answer", "schema": around, "strict": true}));
        assert_eq!(tool(&list)["input_schema"], around);
        assert_eq!(tool(&object())["input_schema"], object());
        let wrapped = KINDS.map(|kind| wraps(kind, &list));
        assert_eq!((wrapped, KINDS.map(|kind| wraps(kind, &object()))), ([true, true, true, false, false], [false; 5]));
        for (came, expect) in [
            (json!({"answer": ["a"]}), json!(["a"])),
            (json!(["a"]), json!(["a"])),
            (json!({"answer": 1, "more": 2}), json!({"answer": 1, "more": 2})),
            (json!({"answer": null}), json!(null)),
        ] {
            assert_eq!(unwrapped(came), expect);
        }
    }

    /// What a request has beyond one without shape and effort, but for the messages.
    fn added(kind: Kind, compat: Compat, model: &str, shape: Option<Shape<'_>>, effort: Effort) -> Value {
        let messages = [user(vec![ContentBlock::text("hi")])];
        let body = |compat, shape, effort| -> Value {
            let codec = catalogue::codec(kind, compat).unwrap();
            let request = Request { model, shape, effort, max_tokens: 9000, ..request(&messages) };
            let body: Value = serde_json::from_slice(&codec.encoder().encode(&request).body).unwrap();
            assert_eq!(validate(kind, &body), Ok(()), "{body:#}");
            body
        };
        let bare = body(Compat { thinking: None, ..compat }, None, Effort::Auto);
        let body = body(compat, shape, effort);
        let new = body.as_object().unwrap().iter().filter(|(name, value)| bare.get(name) != Some(value));
        Value::Object(new.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    #[test]
    fn a_shape_is_asked_for_in_the_words_of_each_format() {
        fn check(kind: Kind, due: bool, expect: Value) {
            let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
            let shape = Some(Shape { schema: &schema, due });
            assert_eq!(added(kind, Compat::NONE, "m", shape, Effort::Auto), expect, "{kind:?}");
        }
        let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
        let named = json!({"name": "answer", "schema": schema, "strict": true});
        let tools = json!([{"name": "ls", "description": "lists", "input_schema": {"type": "object"}}, tool(&schema)]);
        check(Kind::Anthropic, false, json!({"tool_choice": {"type": "any"}, "tools": tools}));
        check(Kind::Anthropic, true, json!({"tool_choice": {"type": "tool", "name": "final_answer"}, "tools": tools}));
        check(Kind::Openai, false, json!({"response_format": {"type": "json_schema", "json_schema": named}}));
        let mut format = named;
        format["type"] = json!("json_schema");
        check(Kind::OpenaiResponses, false, json!({"text": {"format": format}}));
        let generation =
            json!({"maxOutputTokens": 9000, "responseMimeType": "application/json", "responseJsonSchema": schema});
        check(Kind::Gemini, false, json!({"generationConfig": generation}));
        check(Kind::Ollama, true, json!({"format": schema}));
    }

    #[test]
    fn an_effort_is_asked_for_in_the_words_of_each_format() {
        fn check(kind: Kind, compat: Compat, model: &str, effort: Effort, expect: Value) {
            assert_eq!(added(kind, compat, model, None, effort), expect, "{kind:?} {model} {effort}");
        }
        let (none, budget) = (Compat::NONE, Compat { thinking_budget: Some(true), ..Compat::NONE });
        let shown = json!({"type": "adaptive", "display": "summarized"});
        let adaptive = json!({"thinking": shown, "output_config": {"effort": "xhigh"}});
        check(Kind::Anthropic, none, "m", Effort::Xhigh, adaptive);
        check(Kind::Anthropic, none, "m", Effort::None, json!({"thinking": {"type": "disabled"}}));
        let enabled = |tokens: u32| json!({"thinking": {"type": "enabled", "budget_tokens": tokens}});
        check(Kind::Anthropic, budget, "m", Effort::Low, enabled(4096));
        check(Kind::Anthropic, budget, "m", Effort::Max, enabled(6750));
        check(Kind::Anthropic, none, "claude-haiku-4-5-20251001", Effort::Low, enabled(4096));
        check(Kind::Anthropic, none, "claude-3-5-haiku-latest", Effort::High, json!({}));
        check(Kind::Anthropic, none, "claude-3-5-haiku-latest", Effort::None, json!({}));
        check(Kind::Anthropic, budget, "claude-opus-5", Effort::Low, enabled(4096));
        let adaptive = Compat { thinking_budget: Some(false), ..none };
        let low = json!({"thinking": shown, "output_config": {"effort": "low"}});
        check(Kind::Anthropic, adaptive, "claude-sonnet-4-5", Effort::Low, low);
        let high = json!({"thinking": shown, "output_config": {"effort": "high"}});
        check(Kind::Anthropic, none, "claude-opus-4-6", Effort::Xhigh, high);
        check(Kind::Anthropic, none, "claude-opus-5-5", Effort::None, json!({"output_config": {"effort": "low"}}));
        let between = json!({"thinking": {"type": "between_tools"}});
        check(Kind::Anthropic, none, "claude-sonnet-5-5", Effort::None, between);
        let flag = |thinking: bool| Compat { thinking: Some(thinking), ..Compat::NONE };
        check(Kind::Anthropic, flag(true), "m", Effort::Auto, json!({ "thinking": shown }));
        check(Kind::Anthropic, flag(true).or(budget), "m", Effort::Auto, enabled(6750));
        let silent = json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}});
        check(Kind::Anthropic, flag(false), "m", Effort::Low, silent);
        check(Kind::Anthropic, flag(false), "m", Effort::Auto, json!({}));
        check(Kind::Openai, none, "m", Effort::Minimal, json!({"reasoning_effort": "minimal"}));
        check(Kind::Openai, Compat { reasoning_effort: Some(false), ..none }, "m", Effort::High, json!({}));
        check(Kind::Openai, none, "m", Effort::Max, json!({"reasoning_effort": "max"}));
        check(Kind::OpenaiResponses, none, "m", Effort::Xhigh, json!({"reasoning": {"effort": "xhigh"}}));
        check(Kind::OpenaiResponses, none, "m", Effort::Max, json!({"reasoning": {"effort": "max"}}));
        let gemini =
            |thinking: Value| json!({"generationConfig": {"maxOutputTokens": 9000, "thinkingConfig": thinking}});
        let high = gemini(json!({"includeThoughts": true, "thinkingLevel": "HIGH"}));
        check(Kind::Gemini, none, "gemini-3.8-flash", Effort::High, high);
        check(Kind::Gemini, none, "gemini-2.5-flash", Effort::None, gemini(json!({"thinkingBudget": 0})));
        // It thinks in any case, and says so to fewer.
        check(Kind::Gemini, none, "models/gemini-2.5-pro", Effort::None, gemini(json!({"thinkingBudget": 128})));
        check(Kind::Ollama, none, "m", Effort::None, json!({"think": false}));
        check(Kind::Ollama, none, "m", Effort::Max, json!({"think": "high"}));
    }

    #[test]
    fn no_call_is_demanded_of_a_model_that_thinks() {
        let schema = object();
        let anthropic = |model, due, effort| {
            let body = added(Kind::Anthropic, Compat::NONE, model, Some(Shape { schema: &schema, due }), effort);
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
        spoken(&mut response);
        let expect = vec![ContentBlock::text("so"), call("ls", json!({})), ContentBlock::text(r#"{"b":1,"a":2}"#)];
        assert_eq!(response.content, expect);
        let content = vec![call(ANSWER, json!({"answer": "Bern"})), call(ANSWER, json!("{cut"))];
        let mut response = Response { content, ..Response::default() };
        spoken(&mut response);
        assert_eq!(response.content, [ContentBlock::text(r#"{"answer":"Bern"}"#), ContentBlock::text("{cut")]);
    }
}
