//! The shape of an answer: how each wire format is asked for JSON that fits a schema, and what comes of it. Pure.
//!
//! What a server takes is data: [`Compat::json_schema`] and [`Compat::schema_with_tools`].
//! Deliberately absent: whether an answer fits, which [`crate::schema`] says, and what to do if not, which the turn does.

use std::borrow::Cow;

use linger_protocol::message::ContentBlock;
use serde_json::{Value, json};

use super::catalogue::Kind;
use super::compat::Compat;
use super::{Response, gemini};

/// The tool that an answer is given with, where a format has no other means.
pub const ANSWER: &str = "final_answer";

/// What a model is told about that tool.
const DESCRIPTION: &str =
    "Gives the final answer, and ends the turn. Call it once, alone, when everything else is done.";

/// What servers call the schema.
const NAME: &str = "answer";

/// The field of an object in which an answer comes that is none.
const INNER: &str = "answer";

/// Words of a schema that the strict kind of OpenAI's formats refuses.
const NOT_STRICT: &[&str] = &[
    "allOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "prefixItems",
    "propertyNames",
    "unevaluatedProperties",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "dependencies",
    "$dynamicRef",
    "$anchor",
    "$id",
];

/// The values of `format` that it takes (<https://platform.openai.com/docs/guides/structured-outputs>, supported schemas).
const FORMATS: &[&str] = &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// Words that only tell people something; beside a reference they are refused.
const TELLING: &[&str] =
    &["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"];

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

/// Whether a schema is of the kind that OpenAI's formats enforce to the letter: everything has a type, an array says of what, and
/// of each object every property is required, and no other allowed. Servers refuse others under `strict`.
pub(super) fn is_strict(schema: &Value) -> bool {
    let Some(fields) = schema.as_object() else { return false };
    if fields.keys().any(|word| NOT_STRICT.contains(&word.as_str())) {
        return false;
    }
    let has = |word: &str| fields.contains_key(word);
    if fields.get("format").is_some_and(|format| !FORMATS.iter().any(|known| format == known)) {
        return false;
    }
    let types = match fields.get("type") {
        Some(Value::Array(types)) => types.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None if has("anyOf") || has("$ref") => &[],
        None => return false,
    };
    let is = |name: &str| types.iter().any(|kind| kind == name);
    if is("array") && !has("items") {
        return false;
    }
    if is("object") || has("properties") {
        let required: Vec<&str> =
            fields.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let mut names = fields.get("properties").and_then(Value::as_object).into_iter().flat_map(|all| all.keys());
        let closed = fields.get("additionalProperties") == Some(&Value::Bool(false));
        // Of one that is required and not named, nothing would fit.
        let known = names.clone().count() >= required.len();
        if !closed || !known || !names.all(|name| required.contains(&name.as_str())) {
            return false;
        }
    }
    let maps = ["properties", "$defs", "definitions"].into_iter().filter_map(|word| fields.get(word)?.as_object());
    let alternatives = fields.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    maps.flat_map(|map| map.values()).chain(fields.get("items")).chain(alternatives).all(is_strict)
}

/// The tool that gives the answer.
pub(super) fn tool(schema: &Value) -> Value {
    json!({"name": ANSWER, "description": DESCRIPTION, "input_schema": of_object(schema)})
}

/// What OpenAI's formats are sent, one of them under a name of its own. What is strict but for the word that says so is sent with
/// that: an answer that fits then fits what was asked for. What may be left out has to be there and may be `null`, where that
/// makes it strict; [`without_nulls`] takes it out again.
pub(super) fn json_schema(schema: &Value) -> Value {
    let schema = of_object(schema);
    let closed = closed(&schema);
    if is_strict(&closed) {
        return json!({"name": NAME, "schema": closed, "strict": true});
    }
    let whole = whole(&closed);
    match is_strict(&whole) && !is_ambiguous(&schema) && refers_to_definitions(&schema) {
        true => json!({"name": NAME, "schema": whole, "strict": true}),
        false => json!({"name": NAME, "schema": schema, "strict": false}),
    }
}

/// The words of a schema that have schemas under names.
const MAPS: [&str; 3] = ["properties", "$defs", "definitions"];

/// The schema with all properties of its objects required, those that were not as `null` or what they are.
fn whole(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let mut fields = fields.clone();
    let required = required(schema).map(str::to_owned).collect::<Vec<_>>();
    for (word, value) in &mut fields {
        match (word.as_str(), value) {
            (word, Value::Object(all)) if MAPS.contains(&word) => {
                for (name, inner) in all {
                    *inner = whole(inner);
                    if word == "properties" && !required.contains(name) {
                        *inner = json!({"anyOf": [inner, {"type": "null"}]});
                    }
                }
            }
            ("anyOf", Value::Array(all)) => all.iter_mut().for_each(|inner| *inner = whole(inner)),
            ("items", inner) => *inner = whole(inner),
            _ => {}
        }
    }
    if let Some(Value::Object(all)) = fields.get("properties") {
        let names: Vec<&String> = all.keys().collect();
        let names = json!(names);
        fields.insert("required".to_owned(), names);
    }
    Value::Object(fields)
}

/// Whether all that a schema refers to stays where it is when properties become alternatives.
fn refers_to_definitions(schema: &Value) -> bool {
    let stays = |target: &str| {
        let name = target.strip_prefix("#/$defs/").or_else(|| target.strip_prefix("#/definitions/"));
        target == "#" || name.is_some_and(|name| !name.contains('/'))
    };
    match schema {
        Value::Object(fields) => {
            fields.get("$ref").and_then(Value::as_str).is_none_or(stays) && fields.values().all(refers_to_definitions)
        }
        Value::Array(items) => items.iter().all(refers_to_definitions),
        _ => true,
    }
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Whether a value may be of two kinds that have something in them: which of them it is would not be known of one with too many
/// nulls.
fn is_ambiguous(schema: &Value) -> bool {
    let Some(fields) = schema.as_object() else { return false };
    let alternatives = || fields.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    let maps = MAPS.into_iter().filter_map(|word| fields.get(word)?.as_object()).flat_map(|map| map.values());
    alternatives().filter(|one| !is_plain(one)).count() > 1
        || maps.chain(fields.get("items")).chain(alternatives()).any(is_ambiguous)
}

/// Whether a schema is of values with nothing in them.
fn is_plain(schema: &Value) -> bool {
    let plain = |kind: &Value| matches!(kind.as_str(), Some("string" | "number" | "integer" | "boolean" | "null"));
    match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().all(plain),
        Some(kind) => plain(kind),
        None => false,
    }
}

/// An answer without the nulls that stand for what may be left out.
pub fn without_nulls(mut answer: Value, schema: &Value) -> Value {
    if !is_ambiguous(schema) {
        prune(&mut answer, schema, schema, 0);
    }
    answer
}

/// How often a schema may lead on to another before a value is given up; a good one does not come near.
const DEPTH: usize = 128;

fn prune(value: &mut Value, schema: &Value, root: &Value, depth: usize) {
    if depth > DEPTH {
        return;
    }
    if let Some(target) = target(schema, root) {
        prune(value, target, root, depth + 1);
    }
    let alternatives = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    alternatives.filter(|one| !is_plain(one)).for_each(|one| prune(value, one, root, depth + 1));
    match value {
        Value::Object(fields) => {
            let Some(Value::Object(properties)) = schema.get("properties") else { return };
            for (name, inner) in properties {
                let given = required(schema).any(|required| required == name) || takes_null(inner, root, 0);
                if !given && fields.get(name).is_some_and(Value::is_null) {
                    fields.remove(name);
                } else if let Some(field) = fields.get_mut(name) {
                    prune(field, inner, root, depth + 1);
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = schema.get("items") else { return };
            items.iter_mut().for_each(|item| prune(item, inner, root, depth + 1));
        }
        _ => {}
    }
}

/// What a reference within the schema leads to.
fn target<'a>(schema: &Value, root: &'a Value) -> Option<&'a Value> {
    root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
}

fn takes_null(schema: &Value, root: &Value, depth: usize) -> bool {
    let null = |kind: &Value| kind == "null";
    let of_type = match (schema.get("type"), schema.get("enum").and_then(Value::as_array), schema.get("const")) {
        (Some(Value::Array(kinds)), ..) => kinds.iter().any(null),
        (Some(kind), ..) => null(kind),
        (None, Some(values), _) => values.iter().any(Value::is_null),
        (None, None, Some(value)) => value.is_null(),
        (None, None, None) => schema.get("anyOf").is_none() && schema.get("$ref").is_none(),
    };
    let mut alternatives = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    of_type
        || (depth < DEPTH && target(schema, root).is_some_and(|target| takes_null(target, root, depth + 1)))
        || (depth < DEPTH && alternatives.any(|one| takes_null(one, root, depth + 1)))
}

/// The schema with no properties in its objects but those that are named, wherever it leaves that open. Where more are named
/// elsewhere, closing an object would leave nothing that fits.
fn closed(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let mut fields = fields.clone();
    // It binds nobody, and some servers refuse it here.
    fields.remove("default");
    if fields.contains_key("$ref") {
        fields.retain(|word, _| !TELLING.contains(&word.as_str()));
    }
    if fields.contains_key("properties") && !fields.contains_key("anyOf") && !fields.contains_key("$ref") {
        fields.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    for (word, value) in &mut fields {
        match (word.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(all)) => {
                all.values_mut().for_each(|inner| *inner = closed(inner));
            }
            ("anyOf", Value::Array(all)) => all.iter_mut().for_each(|inner| *inner = closed(inner)),
            ("items", inner) => *inner = closed(inner),
            _ => {}
        }
    }
    Value::Object(fields)
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
    fn a_schema_is_strict_when_each_object_in_it_is_closed_and_whole() {
        let closed = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
        let inner = closed(json!({"b": {"type": "string"}}), json!(["b"]));
        assert!(is_strict(&closed(json!({"a": inner}), json!(["a"]))));
        assert!(is_strict(&closed(json!({"a": {"type": "array", "items": inner}}), json!(["a"]))));
        assert!(!is_strict(&object()));
        assert!(!is_strict(&closed(json!({"a": object()}), json!(["a"]))));
        assert!(!is_strict(&closed(json!({"a": {"type": "array", "items": object()}}), json!(["a"]))));
        assert!(!is_strict(&closed(json!({"a": {"anyOf": [object()]}}), json!(["a"]))));
        assert!(!is_strict(&closed(json!({"a": {"oneOf": []}}), json!(["a"]))));
        assert!(is_strict(&closed(json!({"a": {"type": ["string", "null"]}}), json!(["a"]))));
        assert!(is_strict(&closed(json!({"a": {"$ref": "#"}}), json!(["a"]))));
        assert!(!is_strict(&closed(json!({"a": {}}), json!(["a"]))));
        assert!(!is_strict(&closed(json!({"a": {"type": "array"}}), json!(["a"]))));
        assert!(!is_strict(&closed(json!({"a": {"type": ["object", "null"]}}), json!(["a"]))));
        assert!(!is_strict(&closed(json!({"a": {"type": "string"}}), json!([]))));
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

    #[test]
    fn a_schema_that_only_does_not_say_that_it_is_closed_is_sent_so() {
        let open = json!({"type": "object", "required": ["a", "b"], "$defs": {"c": object()}, "properties": {
            "a": {"type": "array", "items": object()}, "b": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/c"}]}}});
        let inner = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
            "additionalProperties": false});
        let shut = json!({"type": "object", "required": ["a", "b"], "$defs": {"c": inner}, "properties": {
            "a": {"type": "array", "items": inner}, "b": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/c"}]}},
            "additionalProperties": false});
        assert_eq!(json_schema(&open), json!({"name": "answer", "schema": shut, "strict": true}));
        // What is free stays as it was said.
        for schema in [
            json!({"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]}),
            json!({"type": "object", "properties": {}, "required": [], "additionalProperties": {"type": "string"}}),
            json!({"type": "object", "properties": {"enum": {"enum": [{"properties": 1}]}}, "required": ["enum"]}),
            json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "object", "required": ["kind"],
                "properties": {"kind": {"type": "string"}}, "anyOf": [object()]}}}),
            json!({"type": "object", "required": ["a"], "$defs": {"c": object()}, "properties": {"a": {"type": "object",
                "required": ["kind"], "properties": {"kind": {"type": "string"}}, "$ref": "#/$defs/c"}}}),
        ] {
            assert_eq!(json_schema(&schema), json!({"name": "answer", "schema": schema, "strict": false}));
        }
    }

    #[test]
    fn what_may_be_left_out_is_asked_for_as_null_and_is_left_out_of_the_answer() {
        let inner =
            json!({"type": "object", "properties": {"b": {"type": "string"}, "c": {"type": ["string", "null"]}}});
        let schema = json!({"type": "object", "required": ["a"], "$defs": {"d": inner}, "properties": {
            "a": {"type": "integer"}, "e": {"type": "array", "items": inner}, "f": {"anyOf": [{"$ref": "#/$defs/d"}, {"type": "null"}]}}});
        let optional = |schema: Value| json!({"anyOf": [schema, {"type": "null"}]});
        let nullable = json!({"type": "object", "additionalProperties": false, "required": ["b", "c"], "properties": {
            "b": optional(json!({"type": "string"})), "c": optional(json!({"type": ["string", "null"]}))}});
        let expect = json!({"type": "object", "additionalProperties": false, "required": ["a", "e", "f"],
            "$defs": {"d": nullable}, "properties": {
                "a": {"type": "integer"}, "e": optional(json!({"type": "array", "items": nullable})),
                "f": optional(json!({"anyOf": [{"$ref": "#/$defs/d"}, {"type": "null"}]}))}});
        assert_eq!(json_schema(&schema), json!({"name": "answer", "schema": expect, "strict": true}));
        let check = |came: Value, expect: Value| assert_eq!(without_nulls(came, &schema), expect);
        check(json!({"a": 1, "e": null, "f": null}), json!({"a": 1, "f": null}));
        check(
            json!({"a": 1, "e": [{"b": null, "c": null}], "f": {"b": null}}),
            json!({"a": 1, "e": [{"c": null}], "f": {}}),
        );
        check(json!({"a": null, "x": null}), json!({"a": null, "x": null}));
        // Of two that it may be, nobody knows which one lacks what.
        let two = json!({"type": "object", "properties": {"a": {"anyOf": [inner, object()]}}});
        assert_eq!(json_schema(&two)["strict"], false);
        // What leads to a property leads nowhere when that is an alternative.
        let path = json!({"type": "object", "properties": {"a": inner, "z": {"$ref": "#/properties/a"}}});
        assert_eq!(json_schema(&path)["strict"], false);
        let default = json!({"type": "object", "properties": {"a": {"type": "integer", "default": 1}}});
        assert_eq!(json_schema(&default)["schema"]["properties"]["a"], optional(json!({"type": "integer"})));
        // One that leads in circles comes to an end.
        let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}});
        assert_eq!(without_nulls(json!({"a": null}), &circle), json!({"a": null}));
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
