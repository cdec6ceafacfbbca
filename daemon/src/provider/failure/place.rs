//! The error in a piece of a stream or in a body, wherever a vendor puts it. Pure.
//!
//! Most have it under `error`. The others have it flat, under names of their own, in a list, or as a plain text after
//! `event: error`.

use serde_json::{Map, Value, json};

/// Fields with the text of an error that no answer has, the most specific first.
const TEXTS: [&str; 8] =
    ["error_message", "error_msg", "errorMessage", "error_description", "message", "Message", "msg", "detail"];

/// Fields with a status or a name.
const CODES: [&str; 8] =
    ["status_code", "statusCode", "http_status", "code", "error_code", "errorCode", "status", "StatusCode"];

/// Fields with a name.
const NAMES: [&str; 5] = ["error_type", "errorType", "type", "error_code", "code"];

/// Fields that only an answer has.
const ANSWERS: [&str; 8] = ["choices", "candidates", "output", "content", "delta", "content_block", "response", "item"];

/// MiniMax's numbers and the statuses that they stand for: a rate limit, a key, the account.
const MINIMAX: [(i64, u16); 6] = [(1000, 500), (1002, 429), (1004, 401), (1008, 402), (1013, 500), (2049, 401)];

/// The error in a piece of a stream with this event's name, or in a whole body without one; `None` if it is none.
pub(super) fn error_in(event: &str, data: &str) -> Option<Value> {
    let is_named = event == "error";
    let Ok(value) = serde_json::from_str::<Value>(data) else {
        return (is_named && !data.trim().is_empty()).then(|| data.trim().into());
    };
    // Google's compatible endpoint wraps its error in a list.
    let value = match value {
        Value::Array(mut items) if !items.is_empty() => items.swap_remove(0),
        value => value,
    };
    let found = value.as_object().and_then(flat);
    found.or_else(|| is_named.then_some(value))
}

/// The error in an object, as an object with `message`, and `code` and `type` where it has them.
pub(super) fn flat(fields: &Map<String, Value>) -> Option<Value> {
    let field = |name: &str| fields.get(name).filter(|value| !is_nothing(value));
    let text = || TEXTS.iter().find_map(|name| text_of(field(name)?));
    if let Some(error) = field("error") {
        // A name with the text next to it.
        let named = error.as_str().and_then(|name| Some(json!({ "message": text()?, "type": name })));
        return Some(with_status(&named.unwrap_or_else(|| error.clone()), fields));
    }
    if let Some(Value::Array(errors)) = field("errors") {
        return errors.first().map(|error| with_status(error, fields));
    }
    if let Some(Value::Object(said)) = field("base_resp") {
        let number = said.get("status_code").and_then(Value::as_i64).unwrap_or_default();
        let status = MINIMAX.iter().find(|(known, _)| *known == number).map_or(400, |(_, status)| *status);
        let message = said.get("status_msg").cloned().unwrap_or_default();
        return (number != 0).then(|| json!({ "message": message, "code": status, "type": number.to_string() }));
    }
    let is_answer = ANSWERS.iter().any(|name| field(name).is_some());
    if is_answer {
        return None;
    }
    // AWS has one field, called like the exception.
    if let Some((name, Value::Object(inner))) = fields.iter().next().filter(|_| fields.len() == 1)
        && (name.ends_with("Exception") || name.ends_with("Error"))
    {
        let message = ["message", "Message"].iter().find_map(|key| inner.get(*key)).cloned().unwrap_or_default();
        return Some(json!({ "message": message, "type": name }));
    }
    if let Some(list @ Value::Array(_)) = field("detail") {
        return Some(with_status(&json!({ "detail": list }), fields));
    }
    let is_marked = field("object").is_some_and(|kind| kind == "error")
        || fields.get("success").is_some_and(|success| *success == false);
    match text() {
        Some(text) => Some(with_status(&text.into(), fields)),
        None => is_marked.then(|| with_status(&Value::Null, fields)),
    }
}

/// An error with the status and the name of its surrounding object, where it has none.
fn with_status(error: &Value, beside: &Map<String, Value>) -> Value {
    let mut error = match error {
        Value::Object(fields) => fields.clone(),
        Value::String(text) => Map::from_iter([("message".to_owned(), text.as_str().into())]),
        Value::Null => Map::new(),
        other => Map::from_iter([("message".to_owned(), other.to_string().into())]),
    };
    let status = CODES.iter().find_map(|name| super::status_in(beside.get(*name)?));
    let has_status = error.get("code").is_some_and(|code| super::status_in(code).is_some());
    if let Some(status) = status.filter(|_| !has_status) {
        // A name is kept beside it.
        if let Some(name @ Value::String(_)) = error.remove("code") {
            error.entry("type").or_insert(name);
        }
        error.insert("code".to_owned(), status.into());
    }
    let is_name = |value: &&Value| match value {
        Value::String(name) => !name.is_empty() && name != "error",
        Value::Number(_) => super::status_in(value).is_none(),
        _ => false,
    };
    let name = NAMES.iter().find_map(|name| beside.get(*name).filter(is_name));
    if let Some(name) = name.filter(|_| !error.contains_key("type")) {
        let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
        error.insert("type".to_owned(), name.into());
    }
    Value::Object(error)
}

/// The text in a field: itself, or that of the first of a list, or that within an object.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => {
            let told: Vec<String> = items.iter().filter_map(text_of).collect();
            (!told.is_empty()).then(|| told.join("; "))
        }
        // That of an answer has a role.
        Value::Object(fields) if !fields.contains_key("role") => {
            ["message", "msg", "error", "detail"].iter().find_map(|name| text_of(fields.get(*name)?))
        }
        _ => None,
    }
}

/// Some servers send an empty error with each chunk.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Failure;
    use super::super::FailureClass::{self, *};
    use crate::provider::StreamEvent;
    use crate::provider::catalogue;
    use crate::provider::compat::Compat;
    use crate::provider::support::KINDS;

    /// The class and the text of the failure in a piece; an empty text if there is none in it.
    fn check(event: &str, data: &str, class: FailureClass, text: &str) {
        let failure = Failure::in_event(event, data);
        let found = failure.map_or((class, String::new()), |failure| (failure.class, failure.message));
        assert_eq!(found, (class, text.to_owned()), "{data}");
    }

    #[test]
    fn an_error_is_found_wherever_a_vendor_puts_it() {
        check("", r#"{"error":{"message":"no","code":429}}"#, RateLimited, "no");
        check("", r#"{"error":"no","status_code":401}"#, Auth, "no");
        check("", r#"{"error":"Unauthorized","message":"bad key","statusCode":401}"#, Auth, "Unauthorized: bad key");
        check(
            "",
            r#"{"choices":null,"error_type":"RateLimitError","error_message":"slow"}"#,
            RateLimited,
            "RateLimitError: slow",
        );
        check(
            "",
            r#"{"object":"error","message":"slow","type":"TooManyRequests","code":429}"#,
            RateLimited,
            "TooManyRequests: slow",
        );
        check(
            "",
            r#"{"choices":[],"code":"Throttling.RateQuota","message":"slow"}"#,
            RateLimited,
            "Throttling.RateQuota: slow",
        );
        check("", r#"{"error_code":336003,"error_msg":"bad"}"#, Stream, "336003: bad");
        check(
            "",
            r#"{"base_resp":{"status_code":1004,"status_msg":"login fail"},"choices":[{}]}"#,
            Auth,
            "1004: login fail",
        );
        check("", r#"{"detail":"no such model","status":404}"#, NotFound, "no such model");
        check("", r#"{"detail":[{"loc":["body","x"],"msg":"bad"}],"code":400}"#, Rejected, "body.x: bad");
        check("", r#"{"errors":[{"code":10000,"message":"denied"}],"success":false}"#, Stream, "denied");
        check("", r#"{"throttlingException":{"message":"slow"}}"#, RateLimited, "throttlingException: slow");
        check("", r#"{"success":false,"msg":"bad","code":500}"#, Overloaded, "bad");
        check(
            "",
            r#"[{"error":{"message":"no","status":"RESOURCE_EXHAUSTED","code":429}}]"#,
            RateLimited,
            "RESOURCE_EXHAUSTED: no",
        );
        check("error", "slow down, please", Stream, "slow down, please");
        check("error", r#""slow down""#, Stream, "slow down");
        check("error", r#"{"code":503}"#, Overloaded, "the provider reported an error without a reason");
    }

    #[test]
    fn every_format_has_the_reason_of_an_error_in_its_stream() {
        for (event, data, class) in [
            ("", r#"{"object":"error","message":"too many input tokens","code":400}"#, TooLong),
            ("", r#"{"error_type":"RateLimitError","error_message":"slow"}"#, RateLimited),
            ("", r#"{"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}"#, Quota),
            ("", r#"{"detail":"bad key","status_code":401}"#, Auth),
            (
                "",
                r#"{"validationException":{"message":"The prompt is longer than the limit of 9000"}}"#,
                PerhapsTooLong,
            ),
            ("error", r#"{"message":"slow","code":429}"#, RateLimited),
        ] {
            for kind in KINDS {
                let codec = catalogue::codec(kind, Compat::NONE).unwrap();
                let (mut decoder, mut out) = (codec.decoder(), Vec::new());
                // Lines of JSON have no names.
                if event.is_empty() || kind.name() != "ollama" {
                    decoder.feed(event, data, &mut out);
                    decoder.finish(&mut out);
                    let [StreamEvent::Failed(failure)] = &out[..] else { panic!("{}: {out:?}", kind.name()) };
                    assert_eq!(failure.class, class, "{}: {data}", kind.name());
                }
            }
        }
    }

    #[test]
    fn an_answer_is_no_error() {
        for data in [
            r#"{"choices":[],"usage":{"total_tokens":5},"error":null}"#,
            r#"{"choices":[{"message":{"role":"assistant","content":"hi"}}],"base_resp":{"status_code":0,"status_msg":""}}"#,
            r#"{"choices":[],"error":{}}"#,
            r#"{"message":{"role":"assistant","content":"hi"},"done":false}"#,
            r#"{"output":[],"error":null,"status":"completed"}"#,
            r#"{"type":"message","content":[{"type":"text","text":"hi"}]}"#,
            "slow down",
            "[]",
            "",
        ] {
            check("", data, Stream, "");
        }
    }
}
