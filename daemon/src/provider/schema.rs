//! A user's JSON Schema: validation of the schema and of answers. The only user of the crate `boon`.
//!
//! Nothing is fetched: an external reference is an error. Patterns are matched in linear time.
//! Deliberately absent: how a model is held to a schema ([`crate::provider::output_schema`]).

use std::collections::HashMap;

use boon::{CompileError, Compiler, ErrorKind, SchemaIndex, Schemas, UrlLoader, ValidationError};
use linger_protocol::message::ContentBlock;
use regex::RegexBuilder;
use serde_json::Value;

use crate::provider::output_schema::{unwrap_answer, without_nulls};
use crate::provider::think_tags;

/// The largest schema, in bytes: it is part of each request of its turn. Providers have lower limits.
pub const MAX_SCHEMA: usize = 64 << 10;

/// The most applications of schemas to one value: chained references can double them at each link.
const MAX_WORK: u64 = 10_000;

/// The most patterns in a schema: compiling one may take milliseconds.
const MAX_PATTERNS: usize = 64;

/// The largest compiled pattern, in bytes: a class of all letters takes some 30,000.
const PATTERN: usize = 512 << 10;

/// The most errors that the model is told; more do not help it.
const FAULTS: usize = 5;

/// The largest error, in characters: it quotes the answer.
const FAULT: usize = 300;

/// The deepest nesting of a schema; validation recurses.
const DEPTH: usize = 64;

/// The base of relative references.
const NAME: &str = "schema:/";

/// A loader that fetches nothing.
struct Nowhere;

impl UrlLoader for Nowhere {
    fn load(&self, url: &str) -> Result<Value, Box<dyn std::error::Error>> {
        Err(format!("{url} lies outside of the schema").into())
    }
}

/// A schema that is compiled once, for checks of many values.
struct Validator {
    schemas: Schemas,
    whole: SchemaIndex,
}

/// Checks a schema; the error is one line.
pub fn check(schema: &Value) -> Result<(), String> {
    let size = crate::provider::wire::json_size(schema);
    if size > MAX_SCHEMA {
        return Err(format!("it has {size} bytes, and may have {MAX_SCHEMA}"));
    }
    match schema {
        Value::Object(_) => {}
        // Valid JSON Schema, but no provider takes it.
        Value::Bool(true) => return Err("it is `true`, and has to be an object; `{}` says the same".to_owned()),
        Value::Bool(false) => return Err("it is `false`, which no answer fits".to_owned()),
        _ => return Err("it is no JSON object, such as {\"type\": \"object\"}".to_owned()),
    }
    if depth(schema) > DEPTH {
        return Err(format!("it is nested deeper than {DEPTH}"));
    }
    if let Some(why) = endless(schema) {
        return Err(why);
    }
    let mut found = Vec::new();
    patterns(schema, &mut found);
    if found.len() > MAX_PATTERNS {
        return Err(format!("it has {} patterns, and may have {MAX_PATTERNS}", found.len()));
    }
    if let Some(large) = found.into_iter().find(|pattern| is_large(pattern)) {
        return Err(cut(&format!("the pattern {large:?} is too large")));
    }
    validator(schema).map(drop)
}

/// The value of an answer that fits, or its errors. It may be in a fenced code block, and in a wrapping object if that was
/// requested.
pub fn fit(schema: &Value, content: &[ContentBlock], wrapped: bool) -> Result<Value, String> {
    let validator = validator(schema)?;
    let texts: Vec<&str> =
        content.iter().filter_map(ContentBlock::as_text).filter(|text| !text.trim().is_empty()).collect();
    let (raw, whole) = (think_tags::text_with_tags(content), texts.concat());
    let last = texts.last().copied().unwrap_or_default();
    let mut wrong = None;
    for text in [raw.as_str(), whole.as_str(), last, fenced(last)] {
        match serde_json::from_str::<Value>(text) {
            Ok(value) => return fitting(schema, &validator, value, wrapped),
            Err(error) => drop(wrong.get_or_insert_with(|| format!("it is not JSON alone: {error}"))),
        }
    }
    Err(wrong.unwrap_or_default())
}

/// Fails with the reasons why a value does not fit.
pub fn fits(schema: &Value, value: &Value) -> Result<(), String> {
    faults(&validator(schema)?, value).map_or(Ok(()), Err)
}

/// The value that fits: out of its wrapping object, and without the nulls that strict schemas want for absent properties.
fn fitting(schema: &Value, validator: &Validator, value: Value, wrapped: bool) -> Result<Value, String> {
    let inner = if wrapped { unwrap_answer(value.clone()) } else { value.clone() };
    let Some(fault) = faults(validator, &inner) else { return Ok(inner) };
    let whole = without_nulls(inner, schema);
    // A wrapped answer may itself look like a wrapping object.
    let fits = [whole, value].into_iter().find(|value| faults(validator, value).is_none());
    fits.ok_or(fault)
}

fn validator(schema: &Value) -> Result<Validator, String> {
    let mut compiler = Compiler::new();
    compiler.use_loader(Box::new(Nowhere));
    let mut schemas = Schemas::new();
    let refused = |error| match error {
        CompileError::ValidationError { src, .. } => faults_of(&src, schema),
        CompileError::LoadUrlError { url, .. } | CompileError::UnsupportedUrlScheme { url } => {
            cut(&format!("{url} lies outside of the schema")) + "; nothing is fetched, so put it under $defs"
        }
        error => cut(&format!("{error:#}").replace(NAME, "")),
    };
    compiler.add_resource(NAME, schema.clone()).map_err(refused)?;
    let whole = compiler.compile(NAME, &mut schemas).map_err(refused)?;
    Ok(Validator { schemas, whole })
}

/// The errors of a value, in one line.
fn faults(validator: &Validator, value: &Value) -> Option<String> {
    validator.schemas.validate(value, validator.whole).err().map(|error| faults_of(&error, value))
}

fn faults_of(error: &ValidationError<'_, '_>, value: &Value) -> String {
    let mut lines = Vec::new();
    collect(error, value, &mut lines);
    lines.join("; ")
}

/// Collects the innermost errors, each with its location; for alternatives only that none fits.
fn collect(error: &ValidationError<'_, '_>, value: &Value, lines: &mut Vec<String>) {
    let is_choice = matches!(error.kind, ErrorKind::AnyOf | ErrorKind::OneOf(_) | ErrorKind::Not);
    if !is_choice && !error.causes.is_empty() {
        return error.causes.iter().for_each(|cause| collect(cause, value, lines));
    }
    let place = error.instance_location.to_string();
    for text in texts(&error.kind, value.pointer(&place).unwrap_or(value)) {
        if lines.len() < FAULTS {
            let text = cut(&text);
            lines.push(if place.is_empty() { text } else { format!("{place}: {text}") });
        }
    }
}

/// The errors of the `value` at a location, worded like common validators.
fn texts(kind: &ErrorKind<'_, '_>, value: &Value) -> Vec<String> {
    let names = |names: Vec<String>| names.join(", ");
    let text = match kind {
        ErrorKind::Required { want } => {
            return want.iter().map(|name| format!("{name:?} is a required property")).collect();
        }
        ErrorKind::Type { want, .. } => {
            let types = names(want.iter().map(|kind| format!("\"{kind}\"")).collect());
            format!("{value} is not of type {types}")
        }
        ErrorKind::AdditionalProperties { got } => {
            let names = names(got.iter().map(|name| format!("'{name}'")).collect());
            let verb = if got.len() == 1 { "was" } else { "were" };
            format!("additional properties are not allowed ({names} {verb} unexpected)")
        }
        ErrorKind::Enum { want } => {
            format!("{value} is not one of {}", names(want.iter().map(Value::to_string).collect()))
        }
        ErrorKind::Const { want } => format!("{value} is not {want}"),
        ErrorKind::AnyOf | ErrorKind::OneOf(None) => format!("{value} fits none of the alternatives"),
        ErrorKind::OneOf(Some(_)) => format!("{value} fits more than one of the alternatives"),
        ErrorKind::Not => format!("{value} is what it must not be"),
        ErrorKind::FalseSchema => format!("{value} is not allowed here"),
        kind => kind.to_string(),
    };
    vec![text]
}

fn cut(text: &str) -> String {
    if text.chars().count() <= FAULT {
        return text.to_owned();
    }
    text.chars().take(FAULT).chain(" …".chars()).collect()
}

/// The text between the first fence and the last.
fn fenced(text: &str) -> &str {
    let Some((_, after)) = text.split_once("```") else { return text };
    let Some((_, body)) = after.split_once('\n') else { return text };
    body.rsplit_once("```").map_or(text, |(body, _)| body.trim())
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// Collects all patterns.
fn patterns<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
    match schema {
        Value::Array(items) => items.iter().for_each(|item| patterns(item, found)),
        Value::Object(fields) => {
            found.extend(fields.get("pattern").and_then(Value::as_str));
            let names = fields.get("patternProperties").and_then(Value::as_object);
            found.extend(names.into_iter().flat_map(serde_json::Map::keys).map(String::as_str));
            fields.values().for_each(|inner| patterns(inner, found));
        }
        _ => {}
    }
}

/// Whether a compiled pattern exceeds [`PATTERN`]. Invalid ones are reported later.
fn is_large(pattern: &str) -> bool {
    matches!(RegexBuilder::new(pattern).size_limit(PATTERN).build(), Err(regex::Error::CompiledTooBig(_)))
}

/// Why validation would not end, or take too long: a reference cycle that does not descend into the value, or an explosion of
/// references.
fn endless(schema: &Value) -> Option<String> {
    /// How many schemas are applied to one value here; `known` is what the references come to that have been followed.
    fn walk<'a>(
        root: &'a Value,
        at: &'a Value,
        path: &mut Vec<&'a str>,
        known: &mut HashMap<&'a str, u64>,
    ) -> Result<u64, String> {
        let Some(fields) = at.as_object() else { return Ok(1) };
        let mut work = 1u64;
        if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
            if path.contains(&reference) {
                return Err(format!("{reference} leads back to itself, and nothing is checked on the way"));
            }
            if let Some(known) = known.get(reference) {
                work = work.saturating_add(*known);
            } else if let Some(target) = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) {
                path.push(reference);
                let found = walk(root, target, path, known)?;
                path.pop();
                known.insert(reference, found);
                work = work.saturating_add(found);
            }
        }
        // Words whose schemas are applied to the same value.
        let lists = ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|word| fields.get(word)?.as_array());
        let single = ["not", "if", "then", "else"].into_iter().filter_map(|word| fields.get(word));
        for inner in lists.flatten().chain(single) {
            work = work.saturating_add(walk(root, inner, path, known)?);
        }
        if work > MAX_WORK { Err(format!("it applies more than {MAX_WORK} schemas to one value")) } else { Ok(work) }
    }
    fn everywhere<'a>(root: &'a Value, at: &'a Value, known: &mut HashMap<&'a str, u64>) -> Result<(), String> {
        walk(root, at, &mut Vec::new(), known)?;
        match at {
            Value::Array(items) => items.iter().try_for_each(|inner| everywhere(root, inner, known)),
            Value::Object(fields) => fields.values().try_for_each(|inner| everywhere(root, inner, known)),
            _ => Ok(()),
        }
    }
    everywhere(schema, schema, &mut HashMap::new()).err()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn city() -> Value {
        json!({"type": "object", "properties": {"city": {"type": "string", "pattern": "^[A-Z]"}, "n": {"type": "integer"}},
            "required": ["city"], "additionalProperties": false})
    }

    #[test]
    fn a_bad_schema_is_named_and_nothing_is_fetched() {
        fn bad(schema: Value, expect: &str) {
            let error = check(&schema).unwrap_err();
            assert!(error.contains(expect), "{error}");
        }
        assert_eq!(check(&city()), Ok(()));
        assert_eq!(check(&json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}})), Ok(()));
        let tree = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
        assert_eq!(check(&tree), Ok(()));
        bad(json!({"type": "strnig"}), "strnig");
        bad(json!({"properties": {"a": {"type": "object", "required": "b"}}}), "/properties/a/required");
        bad(json!([]), "no JSON object");
        bad(json!(true), "`{}` says the same");
        bad(json!(false), "which no answer fits");
        bad(json!({"$ref": "http://127.0.0.1:1/x.json"}), "nothing is fetched");
        bad(json!({"$ref": "file:///etc/passwd"}), "nothing is fetched");
        bad(json!({"$ref": "other.json"}), "nothing is fetched");
        bad(json!({"$ref": "#/$defs/none"}), "none");
        bad(json!({"$ref": "#"}), "leads back to itself");
        bad(json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}}), "leads back");
        let mut doubling: serde_json::Map<String, Value> = (0..60)
            .map(|n| {
                let next = json!({"$ref": format!("#/$defs/a{}", n + 1)});
                (format!("a{n}"), json!({"allOf": [next, next]}))
            })
            .collect();
        doubling.insert("a60".to_owned(), json!({}));
        bad(json!({"$ref": "#/$defs/a0", "$defs": doubling}), "more than 10000 schemas to one value");
        bad(json!({"pattern": "("}), "(");
        bad(json!({"pattern": "\\p{L}{1,100}x"}), "\\p{L}{1,100}x");
        let many = |n: usize| (0..n).map(|i| (format!("a{i}"), json!({"pattern": "a"}))).collect::<Value>();
        assert_eq!(check(&json!({"properties": many(MAX_PATTERNS)})), Ok(()));
        bad(json!({"properties": many(MAX_PATTERNS + 1)}), "has 65 patterns, and may have 64");
        bad(json!({"patternProperties": many(MAX_PATTERNS + 1)}), "has 130 patterns");
        let mail = "^[\\p{L}\\d._%+-]+@[\\p{L}\\d.-]+\\.\\p{L}{2,10}$";
        assert_eq!(check(&json!({"pattern": mail})), Ok(()));
        bad(json!({"description": "x".repeat(MAX_SCHEMA)}), "may have 65536");
        let deep = (0..DEPTH).fold(json!({}), |inner, _| json!({"not": inner}));
        bad(deep, "nested deeper");
    }

    #[test]
    fn an_answer_fits_wherever_it_stands_and_what_is_wrong_is_said() {
        fn check(texts: &[&str], expect: Result<Value, &str>) {
            let content: Vec<ContentBlock> = texts.iter().map(|text| ContentBlock::text(*text)).collect();
            let fits = fit(&city(), &content, false);
            match expect {
                Ok(value) => assert_eq!(fits, Ok(value), "{texts:?}"),
                Err(part) => assert!(fits.as_ref().is_err_and(|fault| fault.contains(part)), "{texts:?}: {fits:?}"),
            }
        }
        let bern = || Ok(json!({"city": "Bern"}));
        check(&[r#" {"city": "Bern"} "#], bern());
        check(&["Here it is:", r#"{"city": "Bern"}"#], bern());
        check(&["```json\n{\"city\": \"Bern\"}\n```"], bern());
        check(&["Here it is:\n```\n{\"city\": \"Bern\"}\n```\nDone."], bern());
        check(&[r#"{"ci"#, r#"ty": "Bern"}"#], bern());
        check(&["Bern"], Err("not JSON alone"));
        check(&[], Err("not JSON alone"));
        check(&[r#"{"city": 1}"#], Err("/city: 1 is not of type \"string\""));
        check(&[r#"{"city": "bern"}"#], Err("/city"));
        check(&[r#"{}"#], Err("\"city\" is a required property"));
        check(&[r#"{"city": "Bern", "x": 1}"#], Err("'x' was unexpected"));
        let long = format!(r#"{{"city": "{}"}}"#, "x".repeat(2000));
        check(&[&long], Err(" …"));
    }
}
