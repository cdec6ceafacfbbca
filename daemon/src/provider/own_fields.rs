//! Headers, query parameters and body fields of the user's own: `headers`, `query` and `body` in `[providers.NAME]` and
//! `[models."…"]`. Pure.
//!
//! A value from a variable or a command is a secret with a key's rules: it stays in memory, goes only to its provider, and is
//! removed from messages. linger's own parts of a request cannot be replaced.
//! Deliberately absent: obtaining the values ([`super::key_source`]), and sending them (the driver, the encoders).

use std::collections::BTreeMap;

use reqwest::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::keys::KeySource;
use super::types::Codec;

/// The most fields of one table: far more than any server wants.
const MAX_FIELDS: usize = 64;

/// The longest plain value, in bytes.
const MAX_VALUE: usize = 4 << 10;

/// The largest `body`, as JSON, in bytes: it is part of every request.
const MAX_BODY: usize = 64 << 10;

/// Headers that linger or its HTTP library sets.
const HEADERS: [&str; 16] = [
    "authorization",
    "x-api-key",
    "x-goog-api-key",
    "anthropic-version",
    "content-type",
    "content-length",
    "content-encoding",
    "transfer-encoding",
    "accept-encoding",
    "host",
    "connection",
    "te",
    "upgrade",
    "expect",
    "proxy-authorization",
    "cookie2",
];

/// Parts of a header's or parameter's name whose value is a secret, in lower case.
const SECRET: [&str; 7] = ["key", "token", "secret", "password", "credential", "auth", "cookie"];

/// The setting that does what a field of linger's own would.
fn instead(field: &str) -> &'static str {
    match field.rsplit('.').next().unwrap_or(field) {
        "authorization" | "x-api-key" | "x-goog-api-key" => "; `api_key_env` or `api_key_command` names the key",
        "model" => "; the model is chosen by its name",
        "max_tokens" | "max_completion_tokens" | "max_output_tokens" | "maxOutputTokens" | "num_predict" => {
            "; `max_tokens` in [providers.NAME] limits answers"
        }
        "num_ctx" => "; `num_ctx` in [providers.NAME.compat] sets it",
        "thinking" | "think" | "thinkingConfig" | "reasoning_effort" | "effort" | "summary" => {
            "; `effort` in [models.\"PROVIDER/MODEL\"] and `thinking` in compat set it"
        }
        "stream" => "; `streaming = false` in [providers.NAME.compat] asks for whole answers",
        "prompt_cache_key" | "cache_control" | "stream_options" => {
            "; a flag in [providers.NAME.compat] decides about it"
        }
        _ => "",
    }
}

/// The value of a header or query parameter, as written.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, deny_unknown_fields, expecting = "write a string, { env = \"VARIABLE\" } or { command = \"…\" }")]
pub enum FieldValue {
    /// The value itself; no secret.
    Plain(String),
    /// The variable that holds it.
    Variable {
        /// The name of an environment variable.
        env: String,
    },
    /// The command that prints it.
    Command {
        /// For the user's shell.
        command: String,
    },
}

/// `headers` and `query`, as written: values by name.
pub type Fields = BTreeMap<String, FieldValue>;

/// The part of a request that a field belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldPlace {
    /// One of the request's HTTP headers.
    Header,
    /// A query parameter.
    Query,
}

/// A field of a provider or model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The part of the request that carries it.
    pub part: FieldPlace,
    /// The name of the header or parameter, as written.
    pub name: String,
    /// Its value, or the source of it.
    pub value: FieldSource,
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldSource {
    /// The value itself.
    Plain(String),
    /// The value comes from this source, and is a secret.
    Secret(KeySource),
}

/// The variables of these fields.
pub fn variables(fields: &Fields) -> impl Iterator<Item = &str> {
    fields.values().filter_map(|value| match value {
        FieldValue::Variable { env } => Some(env.as_str()),
        FieldValue::Plain(_) | FieldValue::Command { .. } => None,
    })
}

/// Fails with the bad key and the reason. `codec` is the provider's wire format; absent for the scripted model.
pub fn check(
    codec: Option<&dyn Codec>,
    headers: &Fields,
    query: &Fields,
    body: &Map<String, Value>,
) -> Result<(), (&'static str, String)> {
    let Some(codec) = codec else {
        let is_empty = headers.is_empty() && query.is_empty() && body.is_empty();
        return if is_empty { Ok(()) } else { Err(("kind", "the kind demo sends no requests".to_owned())) };
    };
    for (key, fields) in [("headers", headers), ("query", query)] {
        if fields.len() > MAX_FIELDS {
            return Err((key, format!("at most {MAX_FIELDS} fields")));
        }
        for (name, value) in fields {
            check_field(key, name, value).map_err(|problem| (key, format!("{name}: {problem}")))?;
        }
    }
    if super::wire::json_size(body) > MAX_BODY {
        return Err(("body", format!("has more than {MAX_BODY} bytes")));
    }
    for field in codec.own_fields() {
        let pointer = format!("/{}", field.replace('.', "/"));
        let (first, nested) = field.split_once('.').map_or((*field, false), |(first, _)| (first, true));
        let is_object = body.get(first).is_none_or(Value::is_object);
        if nested && !is_object {
            return Err(("body", format!("{first} must be a table: linger sets {field} in it")));
        }
        if at(body, &pointer) {
            return Err(("body", format!("linger sets {field} itself{}", instead(field))));
        }
    }
    Ok(())
}

/// Whether `body` has something at a JSON pointer.
fn at(body: &Map<String, Value>, pointer: &str) -> bool {
    let mut steps = pointer.split('/').skip(1);
    let first = steps.next().and_then(|step| body.get(step));
    steps.fold(first, |value, step| value?.get(step)).is_some()
}

fn check_field(key: &str, name: &str, value: &FieldValue) -> Result<(), String> {
    let lower = name.to_lowercase();
    if key == "headers" {
        HeaderName::try_from(name).map_err(|_| "is not the name of a header".to_owned())?;
        if HEADERS.contains(&lower.as_str()) {
            return Err(format!("linger sets this header itself{}", instead(&lower)));
        }
    } else if name.is_empty() || lower == "alt" {
        return Err("linger sets this parameter itself".to_owned());
    }
    match value {
        FieldValue::Plain(_) if SECRET.iter().any(|word| lower.contains(word)) => {
            Err("a secret is never written here: { env = \"VARIABLE\" } or { command = \"…\" } names its source"
                .to_owned())
        }
        FieldValue::Plain(text) if text.len() > MAX_VALUE => Err(format!("has more than {MAX_VALUE} bytes")),
        FieldValue::Plain(text) if key == "headers" && HeaderValue::try_from(text).is_err() => {
            Err("has characters that no header can carry".to_owned())
        }
        FieldValue::Variable { env } if !is_variable(env) => Err("env is not the name of a variable".to_owned()),
        FieldValue::Command { command } if command.trim().is_empty() => Err("command is empty".to_owned()),
        _ => Ok(()),
    }
}

fn is_variable(name: &str) -> bool {
    let valid = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    valid && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// `first`'s fields, and `second`'s in place of those with the same name; header names ignore case.
pub fn merged(first: &Fields, second: &Fields) -> Fields {
    let replaced = |name: &String| second.keys().any(|other| other.eq_ignore_ascii_case(name));
    let kept = first.iter().filter(|(name, _)| !replaced(name));
    kept.chain(second).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Adds `own` to `body`; objects are merged, everything else is replaced.
pub fn merge(body: &mut Map<String, Value>, own: &Map<String, Value>) {
    for (name, value) in own {
        match (body.get_mut(name), value) {
            (Some(Value::Object(before)), Value::Object(fields)) => merge(before, fields),
            _ => drop(body.insert(name.clone(), value.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::codecs::codec;
    use super::super::compat::Compat;
    use super::super::kind::ProviderKind;
    use super::*;

    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Written {
        headers: Fields,
        query: Fields,
        body: Map<String, Value>,
    }

    fn written(kind: ProviderKind, text: &str) -> Result<(), String> {
        let written: Written = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        let codec = codec(kind, Compat::NONE);
        check(codec.as_deref(), &written.headers, &written.query, &written.body)
            .map_err(|(key, why)| format!("{key}: {why}"))
    }

    #[test]
    fn fields_of_ones_own_are_taken_and_lingers_are_refused() {
        fn good(kind: ProviderKind, text: &str) {
            assert_eq!(written(kind, text), Ok(()), "{text}");
        }
        fn bad(kind: ProviderKind, text: &str, expect: &str) {
            let problem = written(kind, text).unwrap_err();
            assert!(problem.contains(expect), "{text}: {problem}");
        }
        good(ProviderKind::Openai, "headers = { 'x-title' = 'linger', 'api-key' = { env = 'AZURE_KEY' } }");
        good(ProviderKind::Openai, "query = { 'api-version' = '2024-10-21', sig = { command = 'sign' } }");
        good(
            ProviderKind::Openai,
            "body = { temperature = 0.2, provider = { order = ['x'] }, reasoning = { enabled = true } }",
        );
        good(ProviderKind::Gemini, "body = { generationConfig = { temperature = 0.2 } }");
        good(ProviderKind::Ollama, "body = { options = { top_k = 5 }, keep_alive = '1h' }");
        good(ProviderKind::OpenaiResponses, "body = { text = { verbosity = 'low' }, service_tier = 'flex' }");
        bad(ProviderKind::Openai, "headers = { Authorization = { env = 'X' } }", "`api_key_env`");
        bad(ProviderKind::Openai, "headers = { 'Content-Type' = 'text/plain' }", "linger sets this header itself");
        bad(ProviderKind::Openai, "headers = { 'x-team-token' = 'hunter2' }", "a secret is never written here");
        bad(ProviderKind::Openai, "headers = { 'a b' = 'c' }", "not the name of a header");
        bad(ProviderKind::Openai, "headers = { 'x' = { env = '$X' } }", "not the name of a variable");
        bad(ProviderKind::Openai, "headers = { 'x' = { file = 'y' } }", "write a string");
        bad(ProviderKind::Openai, "query = { 'api_key' = 'x' }", "a secret is never written here");
        bad(ProviderKind::Gemini, "query = { alt = 'json' }", "linger sets this parameter itself");
        bad(ProviderKind::Openai, "body = { stream = false }", "`streaming = false`");
        bad(ProviderKind::Anthropic, "body = { max_tokens = 5 }", "`max_tokens` in [providers.NAME]");
        bad(
            ProviderKind::Gemini,
            "body = { generationConfig = { maxOutputTokens = 5 } }",
            "generationConfig.maxOutputTokens",
        );
        bad(ProviderKind::Gemini, "body = { generationConfig = 5 }", "must be a table");
        bad(ProviderKind::Ollama, "body = { options = { num_ctx = 5 } }", "`num_ctx`");
        bad(ProviderKind::Demo, "body = { a = 5 }", "sends no requests");
    }

    #[test]
    fn a_models_fields_replace_its_providers_and_objects_are_merged() {
        let fields = |text: &str| toml::from_str::<Fields>(text).unwrap();
        let merged = merged(&fields("'X-A' = '1'\nb = '2'"), &fields("'x-a' = '3'"));
        assert_eq!(merged, fields("'x-a' = '3'\nb = '2'"));
        let mut body = json!({"a": {"b": 1, "c": 2}, "d": 3}).as_object().unwrap().clone();
        merge(&mut body, json!({"a": {"c": {"e": 4}}, "d": [5], "f": null}).as_object().unwrap());
        assert_eq!(Value::Object(body), json!({"a": {"b": 1, "c": {"e": 4}}, "d": [5], "f": null}));
    }
}
