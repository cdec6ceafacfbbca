//! Names and arguments of calls that are right in all but their wrapping: what has one meaning only is taken. Pure.
//!
//! A model may put a prefix or a mark of its template around a name, a number or a list into a string, and all arguments into a
//! field of their own. Deliberately absent: JSON that is none (`provider`), and whether the arguments make sense (the tools).

use serde_json::{Map, Value};

/// Prefixes that models put before names.
const PREFIXES: [&str; 6] = ["functions.", "function.", "tools.", "tool.", "default_api.", "default_api:"];

/// Where a name ends and a mark of a template, or the arguments, begin.
const ENDS: [char; 10] = ['<', '{', '(', '[', ' ', '\n', '\t', '`', '"', '\''];

/// Fields that some models put all arguments in.
const WRAPPERS: [&str; 6] = ["arguments", "parameters", "args", "params", "input", "kwargs"];

/// Fields that models of other agents add to every call. They say why, and change nothing.
const REMARKS: [&str; 9] = [
    "description",
    "security_risk",
    "explanation",
    "reason",
    "reasoning",
    "rationale",
    "thought",
    "justification",
    "requires_approval",
];

/// The known name that a name means; `None` if there is none, or several.
pub(super) fn name<'a>(written: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let bare = written.trim().trim_matches(['"', '\'', '`']);
    let bare = PREFIXES.iter().find_map(|prefix| bare.strip_prefix(prefix)).unwrap_or(bare);
    let bare = bare.split(ENDS).next().unwrap_or_default();
    let exact = known.clone().find(|name| *name == bare);
    let mut alike = known.filter(|name| name.eq_ignore_ascii_case(bare));
    exact.or_else(|| alike.next().filter(|_| alike.next().is_none()))
}

/// The arguments as a schema wants them, where they are that in another wrapping.
pub(super) fn arguments(schema: &Value, input: Value) -> Value {
    let Value::Object(given) = input else { return input };
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Value::Object(given) };
    let mut given = unwrapped(given, properties);
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
        given.retain(|key, _| properties.contains_key(key) || !REMARKS.contains(&key.as_str()));
    }
    let fitted = given.into_iter().map(|(key, value)| match properties.get(&key) {
        Some(property) => (key, fitted(property, value)),
        None => (key, value),
    });
    Value::Object(fitted.collect())
}

/// The arguments in the only field, if that is no argument itself.
fn unwrapped(given: Map<String, Value>, properties: &Map<String, Value>) -> Map<String, Value> {
    let inner = match given.iter().next() {
        Some((key, value)) if given.len() == 1 && WRAPPERS.contains(&key.as_str()) && !properties.contains_key(key) => {
            value
        }
        _ => return given,
    };
    match inner {
        Value::Object(fields) => fields.clone(),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => fields,
            _ => given,
        },
        _ => given,
    }
}

/// A value as its schema wants it, if exactly one type makes sense of it.
fn fitted(schema: &Value, value: Value) -> Value {
    let kinds = kinds(schema);
    let value = if kinds.is_empty() || kinds.iter().any(|kind| is_of(&value, kind)) {
        value
    } else {
        let mut read: Vec<Value> = kinds.iter().filter_map(|kind| read(kind, schema, &value)).collect();
        read.dedup();
        match (read.pop(), read.is_empty()) {
            (Some(only), true) => only,
            _ => value,
        }
    };
    match (value, schema.get("items")) {
        (Value::Array(items), Some(each)) => items.into_iter().map(|item| fitted(each, item)).collect(),
        (value @ Value::Object(_), _) => arguments(schema, value),
        (value, _) => value,
    }
}

/// The types that a schema allows; none if it does not say.
fn kinds(schema: &Value) -> Vec<&str> {
    let own: Vec<&str> = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !own.is_empty() {
        return own;
    }
    let choices = ["anyOf", "oneOf"].iter().find_map(|key| schema.get(*key)?.as_array());
    let each: Option<Vec<&str>> =
        choices.into_iter().flatten().map(|choice| choice.get("type").and_then(Value::as_str)).collect();
    each.unwrap_or_default()
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        // A type that is not known allows anything.
        _ => true,
    }
}

/// The value of this type that another one stands for.
fn read(kind: &str, schema: &Value, value: &Value) -> Option<Value> {
    let text = value.as_str().map(str::trim);
    match (kind, value) {
        ("integer", Value::Number(number)) => whole(number.as_f64()?),
        ("integer", Value::String(_)) => match text?.parse::<i64>() {
            Ok(number) => Some(number.into()),
            Err(_) => whole(text?.parse().ok()?),
        },
        ("number", Value::String(_)) => serde_json::from_str(text?).ok().filter(Value::is_number),
        ("boolean", Value::String(_)) => text?.to_ascii_lowercase().parse::<bool>().ok().map(Value::from),
        ("null", Value::String(_)) => matches!(text?, "null" | "None").then_some(Value::Null),
        ("array" | "object", Value::String(_)) => {
            serde_json::from_str(text?).ok().filter(|inner: &Value| is_of(inner, kind))
        }
        // One alone may stand without its list.
        ("array", Value::Object(_)) => {
            let is_item = schema.pointer("/items/type").is_some_and(|kind| kind == "object");
            is_item.then(|| Value::Array(vec![value.clone()]))
        }
        _ => None,
    }
}

fn whole(number: f64) -> Option<Value> {
    (number.fract() == 0.0 && number.abs() < 9e15).then(|| (number as i64).into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_known_name_is_found_within_what_a_template_puts_around_it() {
        let known = ["bash", "read", "mcp__a__Get", "mcp__a__get"];
        let check = |written: &str, expect: Option<&str>| {
            assert_eq!(name(written, known.iter().copied()), expect, "{written}");
        };
        check("read", Some("read"));
        check(" read\n", Some("read"));
        check("Read", Some("read"));
        check("functions.read", Some("read"));
        check("tools.Bash", Some("bash"));
        check("read<|channel|>analysis", Some("read"));
        check("read {\"path\": \"a\"}", Some("read"));
        check("`bash`(", Some("bash"));
        check("mcp__a__Get", Some("mcp__a__Get"));
        check("mcp__a__GET", None);
        check("reader", None);
        check("write", None);
        check("", None);
    }

    #[test]
    fn what_is_right_in_another_wrapping_is_taken() {
        let edit = json!({ "type": "object", "properties": { "old": { "type": "string" }, "all": { "type": "boolean" } }, "additionalProperties": false });
        let schema = json!({ "type": "object", "additionalProperties": false, "properties": {
            "path": { "type": "string" }, "limit": { "type": "integer" }, "ratio": { "type": ["number", "null"] },
            "all": { "anyOf": [{ "type": "boolean" }, { "type": "null" }] }, "edits": { "type": "array", "items": edit },
            "either": { "type": ["string", "integer"] }, "any": {} } });
        let check = |given: Value, expect: Value| assert_eq!(arguments(&schema, given.clone()), expect, "{given}");
        let same = |given: Value| check(given.clone(), given);
        check(
            json!({ "limit": "5", "ratio": " 0.5", "all": "True" }),
            json!({ "limit": 5, "ratio": 0.5, "all": true }),
        );
        check(json!({ "limit": 5.0, "ratio": "null" }), json!({ "limit": 5, "ratio": null }));
        check(json!({ "limit": "7.0" }), json!({ "limit": 7 }));
        let expect = json!({ "edits": [{ "old": "a", "all": true }] });
        check(json!({ "edits": "[{\"old\": \"a\", \"all\": \"true\"}]" }), expect.clone());
        check(json!({ "edits": ["{\"old\": \"a\", \"all\": true}"] }), expect.clone());
        check(json!({ "edits": { "old": "a", "all": "true", "reason": "b" } }), expect);
        check(json!({ "arguments": { "limit": "5" } }), json!({ "limit": 5 }));
        check(json!({ "input": "{\"limit\": 5}" }), json!({ "limit": 5 }));
        check(json!({ "path": "a", "security_risk": "low", "description": "b" }), json!({ "path": "a" }));
        same(json!({ "path": "5", "either": "5", "any": "5" }));
        same(json!({ "path": 5, "limit": "five", "all": "yes", "edits": "none" }));
        same(json!({ "limit": "", "ratio": "NaN" }));
        same(json!({ "unknown": "5", "arguments": 5 }));
        same(json!("text"));
        // A tool that takes any field takes these too.
        let open = json!({ "type": "object", "properties": { "a": {} } });
        assert_eq!(arguments(&open, json!({ "reason": "b" })), json!({ "reason": "b" }));
    }
}
