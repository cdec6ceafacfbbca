//! Objects in OpenAI's form.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::face::gateway::reply::Failure;

/// A failure as OpenAI's clients expect it.
pub(super) fn error_value(failure: &Failure) -> Value {
    let kind = match failure.status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "server_error",
    };
    let message = match &failure.hint {
        Some(hint) => format!("{}; {hint}", failure.message),
        None => failure.message.clone(),
    };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": failure.code } })
}

/// The name of an object: a word of OpenAI's, and a random one.
pub(super) fn name(word: &str) -> String {
    /// The characters of the random one: 120 bits.
    const RANDOM: usize = 24;
    format!("{word}{}", crate::sys::clock::random_word(RANDOM))
}
