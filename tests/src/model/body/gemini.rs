//! Gemini's contents, as its server would look at them.

use serde_json::{Value, json};

use super::{Said, Wrong, blank, text};

/// What stands for the signature of a call that another model made.
pub(super) const PLACEHOLDER: &str = "skip_thought_signature_validator";

pub(super) fn check(contents: &[Value], wrong: &mut Wrong) {
    wrong.unless(contents.first().is_some_and(|c| c["role"] == "user"), || {
        "the first content is not a user's".to_owned()
    });
    wrong
        .unless(contents.last().is_some_and(|c| c["role"] == "user"), || "the last content is not a user's".to_owned());
    let mut open: Vec<(String, String)> = Vec::new();
    let key = |call: &Value| (text(&call["name"]), text(&call["id"]));
    for (n, pair) in contents.windows(2).enumerate() {
        wrong.unless(pair[0]["role"] != pair[1]["role"], || format!("contents {n} and the next have one role"));
    }
    for (n, content) in contents.iter().enumerate() {
        let parts = content["parts"].as_array().cloned().unwrap_or_default();
        wrong.unless(!parts.is_empty(), || format!("content {n} has no parts"));
        let model = content["role"] == "model";
        wrong.unless(model || content["role"] == "user", || format!("content {n} has role {}", content["role"]));
        let of =
            |name: &'static str| parts.iter().filter(move |part| part[name].is_object()).map(move |part| &part[name]);
        let answered: Vec<_> = of("functionResponse").map(key).collect();
        wrong.unless(answered == open, || format!("content {n}: results of {answered:?} for the calls {open:?}"));
        let leading = parts.iter().take_while(|part| part["functionResponse"].is_object()).count();
        wrong.unless(leading == answered.len(), || format!("content {n}: results are not first"));
        wrong.unless(!model || answered.is_empty(), || format!("content {n}: a model's content has results"));
        wrong.unless(of("functionResponse").all(|result| result["response"].is_object()), || {
            format!("content {n}: a response is no object")
        });
        open = of("functionCall").map(key).collect();
        wrong.unless(model || open.is_empty(), || format!("content {n}: a user calls"));
        wrong.unless(of("functionCall").all(|call| call["args"].is_object()), || {
            format!("content {n}: args are no object")
        });
        let empty = parts
            .iter()
            .any(|part| part["text"].is_string() && blank(&part["text"]) && part["thoughtSignature"].is_null());
        wrong.unless(!empty, || format!("content {n} has empty text"));
    }
    wrong.unless(open.is_empty(), || format!("calls {open:?} have no results"));
}

/// Signed parts must come back to the byte; of a call, what was signed is the part without its signature.
pub(super) fn answers(contents: &[Value]) -> Vec<Said> {
    let own = contents.iter().filter(|content| content["role"] == "model");
    own.map(|content| {
        let parts = content["parts"].as_array().cloned().unwrap_or_default();
        let signed =
            parts.iter().filter(|part| part["thoughtSignature"].is_string() && part["thoughtSignature"] != PLACEHOLDER);
        let thinking = signed.map(|part| {
            if part["functionCall"].is_object() {
                (json!({ "functionCall": ordered(&part["functionCall"]) }).to_string(), text(&part["thoughtSignature"]))
            } else {
                (part.to_string(), String::new())
            }
        });
        let calls = parts.iter().filter(|part| part["functionCall"].is_object()).map(|part| {
            let call = &part["functionCall"];
            (text(&call["id"]), text(&call["name"]), call["args"].to_string())
        });
        (thinking.collect(), calls.collect())
    })
    .collect()
}

/// A call with its fields in the order in which the server writes them.
fn ordered(call: &Value) -> Value {
    let mut ordered = json!({});
    for name in ["name", "args", "id"] {
        if !call[name].is_null() {
            ordered[name] = call[name].clone();
        }
    }
    ordered
}
