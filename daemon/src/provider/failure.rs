//! Failures: their classes, which decide what comes of one, and how the errors of providers are read.
//!
//! Pure: a status with a body, or an error within a stream, becomes a [`Failure`]. Providers tell the same thing in many ways, so
//! the words by which something is known are tables.
//! Deliberately absent: what goes wrong on the way (`trouble`), and whether it is tried again (`retry`).

mod words;

use std::time::Duration;

use serde_json::Value;

use super::wire::mended;
use words::{ALTERNATE, ALTERNATE_HINT, HISTORY, IMAGES, NO_IMAGES, NOUNS, REASONING, TOO_LONG};

/// The longest error text that is passed on.
const MAX_MESSAGE: usize = 600;

/// The longest one that is looked at: as much as is read of an error's body.
const MAX_TEXT: usize = 64 << 10;

/// After this word FastAPI gives back what it was sent.
const INPUT: &str = "\"input\"";

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// What kind of failure, which decides whether it is tried again.
    pub class: FailureClass,
    /// One line for people: what the provider said, without secrets.
    pub message: String,
    /// How long the provider asked to wait.
    pub retry_after: Option<Duration>,
}

/// Kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// Nobody answered: unreachable, no such host. Tried again.
    Connect,
    /// Nobody listens at the address. Tried again, but not for long.
    Refused,
    /// 408, 409, 425, 429, 5xx, overloaded, also in mid-stream. Tried again.
    Overloaded,
    /// Silence for longer than the provider's idle time. Tried again.
    Timeout,
    /// The stream was cut or made no sense. Tried again.
    Stream,
    /// The way is barred: a certificate that is not trusted, a proxy that wants a password.
    Network,
    /// 401, 403: the key is wrong.
    Auth,
    /// 404: no such model or address.
    NotFound,
    /// The context is larger than the model's window.
    TooLong,
    /// The model takes no images, or not one of these.
    Images,
    /// Something is wrong with what earlier messages bring back: signatures, identifiers, the order of calls and results.
    History,
    /// A call in the history lacks the thinking that came before it, be it an empty one: another model made it.
    Reasoning,
    /// Any other 4xx, no money left, policy.
    Rejected,
}

impl FailureClass {
    /// What a user can do about it.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Connect | Self::Refused => {
                "see whether the server runs and whether base_url is right, then prompt again"
            }
            Self::Overloaded | Self::Timeout | Self::Stream => "prompt again in a while, or choose another model",
            Self::Auth => "see whether the key is right: `linger key list` says where it comes from",
            Self::Network => "see [network] in config.toml and what `linger doctor` says, then prompt again",
            Self::NotFound => "see whether the model's name and base_url are right",
            Self::TooLong => {
                "choose a model with a larger window, or start a new session with what matters of this one"
            }
            Self::Images => "choose a model that takes images",
            Self::History => {
                "have a summary written with /compact, choose another model with /model, or start a new session"
            }
            Self::Reasoning => {
                "with kind openai set `reasoning_content = true` in [providers.NAME.compat], or choose another model with /model"
            }
            Self::Rejected => "see whether the model, its settings and its account are right, then prompt again",
        }
    }
}

impl Failure {
    /// What a response with `status` means. `body` is JSON with an error in one of the usual places, or anything.
    pub(super) fn of_response(status: u16, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let parsed: Value = serde_json::from_str(&mended(&text)).unwrap_or_default();
        // Google's compatible endpoint wraps its error in a list.
        let parsed = parsed.get(0).unwrap_or(&parsed);
        let error = parsed.get("error").unwrap_or(parsed);
        let said = said(error);
        // What was sent may be given back, and has any words.
        let told = if said.is_empty() { text.split(INPUT).next().unwrap_or_default() } else { &said };
        let class = classify(Some(status), &kinds(error), told);
        let said = if said.is_empty() && !text.trim_start().starts_with('<') { text.trim() } else { &said };
        let message = match (kinds(error).first(), said.is_empty()) {
            (_, true) => format!("the provider answered {status} without a reason"),
            (None, false) => format!("{status}: {said}"),
            (Some(kind), false) => format!("{status} {kind}: {said}"),
        };
        Self { class, message: advised(whole_line(&message)), retry_after: asked_wait(error) }
    }

    /// What an error inside a stream means.
    pub(super) fn in_stream(error: &Value) -> Self {
        let (kinds, said) = (kinds(error), said(error));
        let message = match (kinds.first(), said.is_empty()) {
            (None, true) => "the provider reported an error without a reason".to_owned(),
            (None, false) => said.clone(),
            (Some(kind), true) => (*kind).to_owned(),
            (Some(kind), false) => format!("{kind}: {said}"),
        };
        let class = classify(status_of(error), &kinds, &said);
        Self { class, message: advised(whole_line(&message)), retry_after: asked_wait(error) }
    }
}

/// How long an error asks to wait: Google says it in a field of the body, OpenAI and others in words as well as in the header.
fn asked_wait(error: &Value) -> Option<Duration> {
    let details = error.get("details").and_then(Value::as_array);
    let asked = details.into_iter().flatten().find_map(|detail| detail.get("retryDelay")?.as_str());
    asked.map_or_else(|| said_wait(&said(error)), spell)
}

/// The wait in "Please try again in 1m2.5s."
fn said_wait(said: &str) -> Option<Duration> {
    let (_, wait) = said.split_once("try again in ")?;
    spell(wait.split_whitespace().next()?.trim_end_matches(['.', ',']))
}

/// A time like `6m0s`, `1.5s` or `20ms`.
fn spell(time: &str) -> Option<Duration> {
    let mut seconds = 0.0;
    let mut rest = time;
    while let Some(end) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        let (number, more) = rest.split_at_checked(end)?;
        let unit = more.split(|c: char| !c.is_ascii_alphabetic()).next()?;
        let one = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * one;
        rest = more.get(unit.len()..)?;
    }
    let whole = rest.is_empty() && !time.is_empty();
    Duration::try_from_secs_f64(seconds).ok().filter(|_| whole)
}

/// What an error is called, the exact name first: Google's code is a number and its name the status; what OpenAI calls `type`
/// is less exact than its `code`.
fn kinds(error: &Value) -> Vec<&str> {
    let named = ["code", "status", "type"].map(|name| error.get(name).and_then(Value::as_str).unwrap_or_default());
    named.into_iter().filter(|kind| !kind.is_empty() && as_status(kind).is_none()).collect()
}

/// The status that an error in a stream has for its code: a number, and with LiteLLM a string of one.
fn status_of(error: &Value) -> Option<u16> {
    match error.get("code")? {
        Value::String(code) => as_status(code),
        code => as_status(&code.to_string()),
    }
}

fn as_status(code: &str) -> Option<u16> {
    code.parse().ok().filter(|status| (100..600).contains(status))
}

/// What an error object says, or an error that is only a string.
fn said(error: &Value) -> String {
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    let said =
        error.as_str().unwrap_or_else(|| if text("message").is_empty() { text("detail") } else { text("message") });
    // OpenRouter says itself only that somebody behind it failed.
    if let Some(raw) = error.pointer("/metadata/raw").and_then(Value::as_str) {
        return whole_line(&format!("{said}: {raw}"));
    }
    // FastAPI, which vLLM and Mistral have, gives a list, with what was sent in it.
    let listed = ["/detail", "/message/detail"].iter().find_map(|at| error.pointer(at)?.as_array());
    let one = |detail: &Value| Some(format!("{}{}", place(detail), detail.get("msg")?.as_str()?));
    let told: Vec<String> = listed.into_iter().flatten().filter_map(one).collect();
    whole_line(&if said.is_empty() { told.join("; ") } else { said.to_owned() })
}

/// Where FastAPI found something wrong.
fn place(detail: &Value) -> String {
    let step = |step: &Value| step.as_str().map_or_else(|| step.to_string(), str::to_owned);
    let steps: Vec<String> = detail.get("loc").and_then(Value::as_array).into_iter().flatten().map(step).collect();
    if steps.is_empty() { String::new() } else { format!("{}: ", steps.join(".")) }
}

/// The class of an error with these names and this text; `status` is that of the response, or what an error in a stream says.
fn classify(status: Option<u16>, kinds: &[&str], said: &str) -> FailureClass {
    let said = one_line(said).to_ascii_lowercase();
    let has = |text: &&str| said.contains(*text) || kinds.iter().any(|kind| kind.contains(*text));
    let is = |kind: &&str| kinds.contains(kind);
    if ["insufficient_quota", "billing_error", "content_policy_violation"].iter().any(is) {
        return FailureClass::Rejected;
    }
    let alone_too_large = status == Some(429) && said.contains("request too large for");
    let may_be = alone_too_large || !matches!(status, Some(401 | 403 | 404 | 429));
    if may_be && (TOO_LONG.iter().any(has) || is(&"request_too_large")) {
        return FailureClass::TooLong;
    }
    if may_be && said.contains(ALTERNATE) {
        return FailureClass::Rejected;
    }
    // Without a status a name has to say that it is the request which is refused.
    let invalid = status.is_none() && is(&"invalid_request_error");
    let undecipherable = status.is_none() && is(&"invalid_encrypted_content");
    let says = |rows: &[&[&str]]| rows.iter().any(|row| row.iter().all(has));
    if (matches!(status, Some(400 | 422)) || invalid) && says(&REASONING) {
        return FailureClass::Reasoning;
    }
    if (matches!(status, Some(400 | 422)) || invalid || undecipherable) && says(&HISTORY) {
        return FailureClass::History;
    }
    let refused = matches!(status, Some(400 | 415 | 422)) || invalid;
    if (refused && is_of_images(kinds, &said)) || (status == Some(500) && NO_IMAGES.iter().any(has)) {
        return FailureClass::Images;
    }
    // Google says 400 to a wrong key.
    if said.contains("api key not valid") {
        return FailureClass::Auth;
    }
    match status {
        Some(401 | 403) => FailureClass::Auth,
        Some(404) => FailureClass::NotFound,
        Some(413) => FailureClass::TooLong,
        Some(408 | 409 | 425 | 429 | 500..) => FailureClass::Overloaded,
        Some(300..) => FailureClass::Rejected,
        _ => kinds.iter().find_map(|kind| class_of(kind)).unwrap_or(FailureClass::Stream),
    }
}

/// The class of an error with this name, if that says it.
fn class_of(kind: &str) -> Option<FailureClass> {
    match kind {
        "authentication_error" | "permission_error" | "invalid_api_key" => Some(FailureClass::Auth),
        "not_found_error" | "model_not_found" => Some(FailureClass::NotFound),
        "invalid_request_error" | "invalid_prompt" | "bio_policy" | "misalignment_policy_violation" => {
            Some(FailureClass::Rejected)
        }
        "overloaded_error"
        | "rate_limit_error"
        | "rate_limit_exceeded"
        | "api_error"
        | "timeout_error"
        | "server_error"
        | "internal_error"
        | "internal_server_error" => Some(FailureClass::Overloaded),
        _ => None,
    }
}

/// What a setting can do about `message`, and `message`, which may be long.
fn advised(message: String) -> String {
    if message.contains(ALTERNATE) { format!("{ALTERNATE_HINT}: {message}") } else { message }
}

/// Whether what is refused are images. `said` is in lower case. What a model or a tool is called does not count.
fn is_of_images(kinds: &[&str], said: &str) -> bool {
    if kinds.iter().any(|kind| kind.starts_with("model_")) || said.contains("schema") {
        return false;
    }
    let has = |word: &&str| if NOUNS.contains(word) { has_noun(said, word) } else { said.contains(*word) };
    kinds.iter().any(|kind| kind.contains("image")) || IMAGES.iter().any(|row| row.iter().all(has))
}

/// Whether `noun`, or several of it, stands in `text` by itself or in a field's name, and not in another word or a model's name.
fn has_noun(text: &str, noun: &str) -> bool {
    text.match_indices(noun).any(|(at, _)| {
        let (before, after) = (text.get(..at).unwrap_or_default(), text.get(at + noun.len()..).unwrap_or_default());
        let after = after.strip_prefix('s').unwrap_or(after);
        let is_part = |c: char| c.is_alphanumeric() || c == '-';
        !before.ends_with(|c| is_part(c) || c == '/') && !after.starts_with(is_part)
    })
}

/// `text` on one line, without control characters, and not too long. Secrets have to be taken out before: of one that lies across
/// the end a part would be left.
pub(super) fn one_line(text: &str) -> String {
    let line = whole_line(text);
    match line.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// `text` on one line, without control characters, and with room for what is taken out of it before it becomes [`one_line`].
pub(super) fn whole_line(text: &str) -> String {
    let end = text.char_indices().nth(MAX_TEXT).map_or(text.len(), |(end, _)| end);
    let text = text.get(..end).unwrap_or_default();
    let words: Vec<&str> = text.split(|c: char| c.is_control() || c == ' ').filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests;
