//! Schemas of arguments, mended where a provider would refuse the tool.
//!
//! A server may write what JSON Schema allows and a provider does not take, or what only its own language takes for a schema. What
//! has the same meaning in another form gets that form in silence; what loses some of its meaning is noted.
//! Pure. Deliberately absent: limits of size, and names ([`super::listing`]).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::tool::text;

/// The longest word of a schema that a note repeats, in bytes.
const MAX_WORD: usize = 64;

/// A schema that providers take, and what its meaning lost on the way.
pub(super) fn mended(schema: Map<String, Value>) -> (Map<String, Value>, BTreeSet<String>) {
    let mut mending = Mending::default();
    let mut schema = mending.object(schema);
    inline_root(&mut schema);
    let mut root = Value::Object(schema);
    let whole = root.clone();
    mending.references(&mut root, &whole);
    let Value::Object(schema) = root else { return (Map::new(), mending.notes) };
    (schema, mending.notes)
}

#[derive(Default)]
struct Mending {
    notes: BTreeSet<String>,
}

/// A schema in the place of another.
enum Sub {
    Schema(Value),
    /// Nothing fits it.
    Never,
    /// It is no schema.
    Invalid,
}

impl Mending {
    fn note(&mut self, what: &str, word: &str) {
        self.notes.insert(format!("{what} `{}`", text::one_line(text::head(word, MAX_WORD))));
    }

    fn sub(&mut self, value: Value) -> Sub {
        match value {
            Value::Object(fields) => Sub::Schema(Value::Object(self.object(fields))),
            Value::Bool(true) | Value::Null => Sub::Schema(json!({})),
            Value::Array(items) if items.is_empty() => Sub::Schema(json!({})),
            Value::Bool(false) => Sub::Never,
            _ => Sub::Invalid,
        }
    }

    fn object(&mut self, fields: Map<String, Value>) -> Map<String, Value> {
        let mut out = Map::new();
        for (key, value) in fields {
            // Its value may be any.
            if matches!(key.as_str(), "default" | "const") {
                out.insert(key, value);
            } else if !value.is_null() {
                self.keyword(key, value, &mut out);
            }
        }
        exclusive(&mut out);
        let is_array = match out.get("type") {
            Some(Value::String(kind)) => kind == "array",
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
            _ => false,
        };
        if (is_array || out.contains_key("prefixItems")) && !out.contains_key("items") {
            out.insert("items".to_owned(), json!({}));
        }
        let known: Option<BTreeSet<String>> =
            out.get("properties").and_then(Value::as_object).map(|it| it.keys().cloned().collect());
        if let (Some(known), Some(Value::Array(required))) = (known, out.get_mut("required")) {
            required.retain(|name| name.as_str().is_some_and(|name| known.contains(name)));
        }
        out
    }

    fn keyword(&mut self, key: String, value: Value, out: &mut Map<String, Value>) {
        let kept = match key.as_str() {
            "$schema" => None,
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                self.named(&key, value)
            }
            "items" => match value {
                Value::Array(items) if !items.is_empty() => {
                    let items = self.list(items);
                    out.insert("prefixItems".to_owned(), items.into());
                    Some(json!({}))
                }
                Value::Bool(false) => Some(json!({})),
                value => self.schema(&key, value),
            },
            "additionalProperties" | "unevaluatedProperties" | "unevaluatedItems" | "additionalItems" => match value {
                Value::Bool(_) => Some(value),
                value => self.schema(&key, value),
            },
            "contains" | "propertyNames" | "contentSchema" => match value {
                Value::Bool(_) => None,
                value => self.schema(&key, value),
            },
            "not" | "if" | "then" | "else" => match value {
                Value::Bool(_) => {
                    self.note("a boolean in", &key);
                    None
                }
                value => self.schema(&key, value),
            },
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => {
                let items = match value {
                    Value::Array(items) => self.list(items),
                    value @ Value::Object(_) => self.list(vec![value]),
                    _ => Vec::new(),
                };
                (!items.is_empty()).then(|| items.into())
            }
            "type" => self.kinds(value),
            "enum" => match value {
                Value::Array(values) if !values.is_empty() => Some(once(values).into()),
                _ => {
                    self.note("an empty", &key);
                    None
                }
            },
            "required" => required(value),
            "description" | "title" => match value {
                Value::String(_) => Some(value),
                Value::Number(_) | Value::Bool(_) => Some(value.to_string().into()),
                _ => None,
            },
            "format" | "pattern" | "$ref" | "$dynamicRef" | "$id" | "$anchor" | "$comment" | "contentEncoding"
            | "contentMediaType" => Some(value).filter(Value::is_string),
            "exclusiveMinimum" | "exclusiveMaximum" if value.is_boolean() => Some(value),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => number(value),
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" | "minContains"
            | "maxContains" => number(value).filter(|size| size.as_f64().is_some_and(|size| size >= 0.0)),
            "uniqueItems" | "readOnly" | "writeOnly" | "deprecated" | "nullable" => {
                Some(value).filter(Value::is_boolean)
            }
            "examples" => Some(value).filter(Value::is_array),
            "dependentRequired" => Some(value).filter(Value::is_object),
            _ => Some(value),
        };
        if let Some(kept) = kept {
            out.insert(key, kept);
        }
    }

    /// A schema where one is due; what is none allows everything.
    fn schema(&mut self, key: &str, value: Value) -> Option<Value> {
        match self.sub(value) {
            Sub::Schema(schema) => Some(schema),
            Sub::Never | Sub::Invalid => {
                self.note("what is no schema in", key);
                None
            }
        }
    }

    /// Schemas by name. Some languages write an empty object as a list.
    fn named(&mut self, key: &str, value: Value) -> Option<Value> {
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Array(items) if items.is_empty() => return Some(json!({})),
            _ => {
                self.note("what is no object in", key);
                return None;
            }
        };
        let mut out = Map::new();
        for (name, value) in fields {
            match self.sub(value) {
                Sub::Schema(schema) => {
                    out.insert(name, schema);
                }
                Sub::Never => self.note("what may not be there,", &name),
                Sub::Invalid => {
                    self.note("what is no schema in", &name);
                    out.insert(name, json!({}));
                }
            }
        }
        Some(Value::Object(out))
    }

    fn list(&mut self, items: Vec<Value>) -> Vec<Value> {
        let schema = |item| match self.sub(item) {
            Sub::Schema(schema) => Some(schema),
            Sub::Never => None,
            Sub::Invalid => Some(json!({})),
        };
        items.into_iter().filter_map(schema).collect()
    }

    /// The types by the names of JSON Schema; one that it does not have is left out.
    fn kinds(&mut self, value: Value) -> Option<Value> {
        let mut kind = |value: &Value| match value.as_str() {
            Some(name) => {
                let known = kind(name);
                if known.is_none() {
                    self.note("the unknown type", name);
                }
                known
            }
            None => None,
        };
        match &value {
            Value::String(_) => kind(&value).map(Value::from),
            Value::Array(kinds) => {
                // With one that is unknown, any may fit.
                let known: Option<Vec<Value>> = kinds.iter().map(|it| kind(it).map(Value::from)).collect();
                known.map(once).filter(|kinds| !kinds.is_empty()).map(Value::from)
            }
            _ => None,
        }
    }

    /// Removes references to what is not there.
    fn references(&mut self, value: &mut Value, whole: &Value) {
        match value {
            Value::Object(fields) => {
                for key in ["$ref", "$dynamicRef"] {
                    let target = fields.get(key).and_then(Value::as_str);
                    if let Some(target) = target.filter(|target| target.starts_with('#') && !exists(target, whole)) {
                        self.note("a reference to nothing,", target);
                        fields.remove(key);
                    }
                }
                fields.values_mut().for_each(|value| self.references(value, whole));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.references(item, whole)),
            _ => {}
        }
    }
}

/// The type that a name stands for in one of many languages; `None` if any value may fit or it is unknown.
fn kind(name: &str) -> Option<&'static str> {
    let name = name.trim().to_ascii_lowercase();
    let name = name.split(['<', '[', '(']).next().unwrap_or_default();
    Some(match name {
        "string" | "str" | "text" | "char" | "varchar" | "date" | "time" | "datetime" | "date-time" | "timestamp"
        | "uuid" | "uri" | "url" | "email" | "file" | "path" | "binary" | "bytes" | "base64" | "enum" => "string",
        "integer" | "int" | "int8" | "int16" | "int32" | "int64" | "uint" | "uint8" | "uint16" | "uint32"
        | "uint64" | "long" | "short" | "bigint" => "integer",
        "number" | "float" | "float32" | "float64" | "double" | "decimal" | "numeric" | "real" => "number",
        "boolean" | "bool" => "boolean",
        "object" | "dict" | "map" | "record" | "struct" | "hash" => "object",
        "array" | "list" | "tuple" | "set" | "vec" => "array",
        "null" | "none" | "nil" | "nonetype" => "null",
        _ => return None,
    })
}

/// Each value once, in order.
fn once(values: Vec<Value>) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    values.into_iter().filter(|value| seen.insert(value.to_string())).collect()
}

/// The names of a list; one alone may stand without it.
fn required(value: Value) -> Option<Value> {
    match value {
        Value::Array(names) => Some(once(names.into_iter().filter(Value::is_string).collect()).into()),
        Value::String(_) => Some(json!([value])),
        _ => None,
    }
}

fn number(value: Value) -> Option<Value> {
    match value {
        Value::Number(_) => Some(value),
        Value::String(text) => serde_json::from_str(text.trim()).ok().filter(Value::is_number),
        _ => None,
    }
}

/// In draft 4 a boolean next to a limit makes it exclusive; providers take the number.
fn exclusive(fields: &mut Map<String, Value>) {
    for (limit, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        let Some(Value::Bool(is_exclusive)) = fields.get(exclusive) else { continue };
        let is_exclusive = *is_exclusive;
        fields.remove(exclusive);
        if let Some(number) = fields.get(limit).cloned().filter(|_| is_exclusive) {
            fields.remove(limit);
            fields.insert(exclusive.to_owned(), number);
        }
    }
}

/// A schema that is only a reference becomes what it refers to: providers want an object there.
fn inline_root(schema: &mut Map<String, Value>) {
    let target = schema.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'));
    let target = target.filter(|target| target.starts_with('/')).map(str::to_owned);
    let found = target.and_then(|target| Value::Object(schema.clone()).pointer(&target).cloned());
    if let Some(Value::Object(found)) = found {
        schema.remove("$ref");
        for (key, value) in found {
            schema.entry(key).or_insert(value);
        }
    }
}

/// Whether a reference within the schema leads to something.
fn exists(target: &str, whole: &Value) -> bool {
    match target.strip_prefix('#').unwrap_or_default() {
        "" => true,
        pointer if pointer.starts_with('/') => {
            let plain = pointer.replace("%24", "$").replace("%25", "%").replace("%20", " ");
            whole.pointer(pointer).or_else(|| whole.pointer(&plain)).is_some()
        }
        anchor => has_anchor(whole, anchor),
    }
}

fn has_anchor(value: &Value, anchor: &str) -> bool {
    match value {
        Value::Object(fields) => {
            let is_here = |key: &str| fields.get(key).is_some_and(|it| it == anchor);
            is_here("$anchor") || is_here("$dynamicAnchor") || fields.values().any(|it| has_anchor(it, anchor))
        }
        Value::Array(items) => items.iter().any(|item| has_anchor(item, anchor)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of the schema of one argument, with the notes.
    fn check(argument: Value, expect: Value, notes: &[&str]) {
        let schema = json!({ "type": "object", "properties": { "a": argument }, "$defs": { "there": {} } });
        let Value::Object(schema) = schema else { panic!() };
        let (mended, noted) = mended(schema);
        let noted: Vec<String> = noted.into_iter().collect();
        assert_eq!((&mended["properties"]["a"], noted), (&expect, notes.iter().map(|it| (*it).to_owned()).collect()));
    }

    #[test]
    fn a_good_schema_stays_as_it_is() {
        for schema in [
            json!({ "type": ["string", "null"], "default": null, "enum": ["a", null], "description": "x" }),
            json!({ "anyOf": [{ "$ref": "#/$defs/there" }, { "type": "null" }], "x-own": [true] }),
            json!({ "type": "object", "additionalProperties": false, "properties": { "type": { "type": "integer" } } }),
            json!({ "type": "object", "anyOf": [{ "required": ["b"] }, { "required": ["c"] }] }),
            json!({ "type": "array", "items": { "$ref": "#" }, "minItems": 1 }),
        ] {
            check(schema.clone(), schema, &[]);
        }
    }

    #[test]
    fn what_means_the_same_is_written_so_that_providers_take_it() {
        check(json!(true), json!({}), &[]);
        check(json!([]), json!({}), &[]);
        check(json!({ "type": "array" }), json!({ "type": "array", "items": {} }), &[]);
        check(
            json!({ "type": ["array", "null"], "items": true }),
            json!({ "type": ["array", "null"], "items": {} }),
            &[],
        );
        check(json!({ "type": "array", "items": null }), json!({ "type": "array", "items": {} }), &[]);
        check(
            json!({ "type": "array", "items": [{ "type": "str" }, true] }),
            json!({ "type": "array", "prefixItems": [{ "type": "string" }, {}], "items": {} }),
            &[],
        );
        check(json!({ "type": "Int64" }), json!({ "type": "integer" }), &[]);
        check(json!({ "type": ["STRING", "str", "None"] }), json!({ "type": ["string", "null"] }), &[]);
        check(json!({ "type": "list<str>" }), json!({ "type": "array", "items": {} }), &[]);
        check(json!({ "type": "object", "properties": [] }), json!({ "type": "object", "properties": {} }), &[]);
        check(json!({ "description": null, "title": 5, "type": null }), json!({ "title": "5" }), &[]);
        check(json!({ "required": true, "type": "string" }), json!({ "type": "string" }), &[]);
        check(
            json!({ "properties": { "b": true }, "required": ["b", "b", "gone"] }),
            json!({ "properties": { "b": {} }, "required": ["b"] }),
            &[],
        );
        check(json!({ "minimum": "3", "exclusiveMinimum": true }), json!({ "exclusiveMinimum": 3 }), &[]);
        check(json!({ "maximum": 3, "exclusiveMaximum": false }), json!({ "maximum": 3 }), &[]);
        check(json!({ "enum": [1, 1, "1"], "anyOf": [] }), json!({ "enum": [1, "1"] }), &[]);
        check(json!({ "anyOf": { "type": "string" } }), json!({ "anyOf": [{ "type": "string" }] }), &[]);
        check(json!({ "$schema": "http://json-schema.org/draft-07/schema#" }), json!({}), &[]);
    }

    #[test]
    fn what_loses_some_of_its_meaning_is_noted() {
        check(json!({ "type": "any" }), json!({}), &["the unknown type `any`"]);
        check(json!({ "type": ["string", "money"] }), json!({}), &["the unknown type `money`"]);
        check(
            json!({ "$ref": "#/$defs/gone", "description": "x" }),
            json!({ "description": "x" }),
            &["a reference to nothing, `#/$defs/gone`"],
        );
        check(json!({ "$ref": "#gone" }), json!({}), &["a reference to nothing, `#gone`"]);
        check(json!({ "properties": { "b": false } }), json!({ "properties": {} }), &["what may not be there, `b`"]);
        check(json!({ "enum": [] }), json!({}), &["an empty `enum`"]);
        check(json!({ "not": true }), json!({}), &["a boolean in `not`"]);
        check(json!(5), json!({}), &["what is no schema in `a`"]);
    }

    #[test]
    fn a_reference_at_the_top_becomes_what_it_refers_to() {
        let schema = json!({ "$ref": "#/definitions/In", "definitions": { "In": { "type": "object", "properties": { "x": {} } } } });
        let Value::Object(schema) = schema else { panic!() };
        let (mended, notes) = mended(schema);
        assert_eq!((&mended["properties"], mended.get("$ref"), notes.len()), (&json!({ "x": {} }), None, 0));
    }
}
