//! Strict schemas of OpenAI's formats: recognising them, converting to them, and reading their answers. Pure.

use serde_json::{Value, json};

/// Keywords that strict schemas may not have.
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

/// The allowed values of `format` (<https://platform.openai.com/docs/guides/structured-outputs>, supported schemas).
const FORMATS: &[&str] = &["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// Annotations; refused beside a reference.
const TELLING: &[&str] =
    &["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"];

/// A strict version of the schema, or `None`. Answers that fit it fit the original, once [`without_nulls`] has removed their
/// nulls.
pub(super) fn strict_version(schema: &Value) -> Option<Value> {
    let closed = closed(schema);
    if is_strict(&closed) {
        return Some(closed);
    }
    let whole = whole(&closed);
    let can_be = is_strict(&whole) && !is_ambiguous(schema) && refers_only_to_definitions(schema);
    can_be.then_some(whole)
}

/// Whether a schema is strict: everything has a type, arrays have `items`, and objects require every property and allow no
/// other. Servers refuse other schemas with `strict`.
fn is_strict(schema: &Value) -> bool {
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
        // Nothing fits a required property without a schema.
        let known = names.clone().count() >= required.len();
        if !closed || !known || !names.all(|name| required.contains(&name.as_str())) {
            return false;
        }
    }
    let maps = ["properties", "$defs", "definitions"].into_iter().filter_map(|word| fields.get(word)?.as_object());
    let alternatives = fields.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    maps.flat_map(|map| map.values()).chain(fields.get("items")).chain(alternatives).all(is_strict)
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
fn refers_only_to_definitions(schema: &Value) -> bool {
    let stays = |target: &str| {
        let name = target.strip_prefix("#/$defs/").or_else(|| target.strip_prefix("#/definitions/"));
        target == "#" || name.is_some_and(|name| !name.contains('/'))
    };
    match schema {
        Value::Object(fields) => {
            fields.get("$ref").and_then(Value::as_str).is_none_or(stays)
                && fields.values().all(refers_only_to_definitions)
        }
        Value::Array(items) => items.iter().all(refers_only_to_definitions),
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

/// The schema that a reference within `schema` leads to.
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{Compat, json_schema};
    use super::*;

    fn object() -> Value {
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
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
    fn a_schema_that_only_does_not_say_that_it_is_closed_is_sent_so() {
        let open = json!({"type": "object", "required": ["a", "b"], "$defs": {"c": object()}, "properties": {
            "a": {"type": "array", "items": object()}, "b": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/c"}]}}});
        let inner = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
            "additionalProperties": false});
        let shut = json!({"type": "object", "required": ["a", "b"], "$defs": {"c": inner}, "properties": {
            "a": {"type": "array", "items": inner}, "b": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/c"}]}},
            "additionalProperties": false});
        assert_eq!(json_schema(&open, &Compat::NONE), json!({"name": "answer", "schema": shut, "strict": true}));
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
            assert_eq!(
                json_schema(&schema, &Compat::NONE),
                json!({"name": "answer", "schema": schema, "strict": false})
            );
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
        assert_eq!(json_schema(&schema, &Compat::NONE), json!({"name": "answer", "schema": expect, "strict": true}));
        let check = |came: Value, expect: Value| assert_eq!(without_nulls(came, &schema), expect);
        check(json!({"a": 1, "e": null, "f": null}), json!({"a": 1, "f": null}));
        check(
            json!({"a": 1, "e": [{"b": null, "c": null}], "f": {"b": null}}),
            json!({"a": 1, "e": [{"c": null}], "f": {}}),
        );
        check(json!({"a": null, "x": null}), json!({"a": null, "x": null}));
        // Of two that it may be, nobody knows which one lacks what.
        let two = json!({"type": "object", "properties": {"a": {"anyOf": [inner, object()]}}});
        assert_eq!(json_schema(&two, &Compat::NONE)["strict"], false);
        // What leads to a property leads nowhere when that is an alternative.
        let path = json!({"type": "object", "properties": {"a": inner, "z": {"$ref": "#/properties/a"}}});
        assert_eq!(json_schema(&path, &Compat::NONE)["strict"], false);
        let default = json!({"type": "object", "properties": {"a": {"type": "integer", "default": 1}}});
        assert_eq!(
            json_schema(&default, &Compat::NONE)["schema"]["properties"]["a"],
            optional(json!({"type": "integer"}))
        );
        // One that leads in circles comes to an end.
        let circle = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}});
        assert_eq!(without_nulls(json!({"a": null}), &circle), json!({"a": null}));
    }
}
