//! Failures: their classes, which decide how to handle them, and parsing of providers' errors.
//!
//! Pure: a status with a body, or an error within a stream, becomes a [`Failure`]. Providers phrase the same error in many ways,
//! so the phrases are tables.
//! Deliberately absent: transport errors (`transport_error`), and retries (`retry`).

mod place;
mod window;
mod words;

use std::time::Duration;

use serde_json::Value;

use super::types::{Failure, FailureClass, Parameter};
use super::wire::with_good_escapes;
use words::{
    ALTERNATE, ALTERNATE_HINT, HISTORY, IMAGES, LENGTHS, LIMITS, NO_IMAGES, NOT_LENGTHS, NOUNS, QUOTA, REASONING,
    TOO_LONG,
};

/// The longest error text that is passed on.
const MAX_MESSAGE: usize = 600;

/// The longest text that is searched, in bytes: as much as is read of an error's body.
const MAX_TEXT: usize = 64 << 10;

/// After this word FastAPI echoes the request.
const INPUT: &str = "\"input\"";

impl Failure {
    /// The context window that the message names, in tokens.
    pub fn window(&self) -> Option<u64> {
        window::named(&self.message)
    }

    /// The failure of a response with `status`. `body` is JSON with an error in one of the usual places, or anything.
    pub(super) fn of_response(status: u16, body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let parsed: Value = serde_json::from_str(&with_good_escapes(&text)).unwrap_or_default();
        // Google's compatible endpoint wraps its error in a list.
        let parsed = parsed.get(0).unwrap_or(&parsed);
        let usual = parsed.get("error").unwrap_or(parsed);
        let flat = parsed.as_object().and_then(place::flat).filter(|_| error_text(usual).is_empty());
        let error = flat.as_ref().unwrap_or(usual);
        let said = error_text(error);
        // The body may echo the request, which may contain any phrase.
        let told = if said.is_empty() { text.split(INPUT).next().unwrap_or_default() } else { &said };
        let class = classify(Some(status), &kinds(error), told);
        let page = page_title(&text);
        let said = match page {
            Some("") => "",
            Some(title) => title,
            None if said.is_empty() => text.trim(),
            None => &said,
        };
        let message = match (kinds(error).first(), said.is_empty()) {
            (_, true) => format!("the provider answered {status} without a reason"),
            (None, false) if page.is_some() => format!("{status}: a web page, \"{}\"", one_line(said)),
            (None, false) => format!("{status}: {said}"),
            (Some(kind), false) => format!("{status} {kind}: {said}"),
        };
        Self { class, message: advised(whole_line(&message)), retry_after: asked_wait(error) }
    }

    /// The failure in a piece of a stream that is called so, or in a whole body without a name; `None` if there is none in it.
    pub(super) fn in_event(event: &str, data: &str) -> Option<Self> {
        place::error_in(event, data).map(|error| Self::in_stream(&error))
    }

    /// The failure of an error within a stream.
    pub(super) fn in_stream(error: &Value) -> Self {
        let (kinds, said) = (kinds(error), error_text(error));
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

/// The title of a web page, maybe empty; `None` if `text` is none.
pub(super) fn page_title(text: &str) -> Option<&str> {
    let page = text.trim_start().strip_prefix('<')?;
    let title = page.find("<title").and_then(|at| page.get(at..)?.split_once('>')?.1.split_once('<'));
    Some(title.map_or("", |(title, _)| title.trim()))
}

/// The wait in an error: Google has a field in the body, OpenAI and others a phrase besides the header.
fn asked_wait(error: &Value) -> Option<Duration> {
    let details = error.get("details").and_then(Value::as_array);
    let asked = details.into_iter().flatten().find_map(|detail| detail.get("retryDelay")?.as_str());
    asked.map_or_else(|| phrased_wait(&error_text(error)), spell)
}

/// The wait in "Please try again in 1m2.5s."
fn phrased_wait(said: &str) -> Option<Duration> {
    let (_, wait) = said.split_once("try again in ")?;
    spell(wait.split_whitespace().next()?.trim_end_matches(['.', ',']))
}

/// A time like `6m0s`, `1.5s` or `20ms`.
pub(super) fn spell(time: &str) -> Option<Duration> {
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

/// The names of an error, most exact first: Google's name is its `status`, because its code is a number; OpenAI's `code` is more
/// exact than its `type`.
fn kinds(error: &Value) -> Vec<&str> {
    let named = ["code", "status", "type"].map(|name| error.get(name).and_then(Value::as_str).unwrap_or_default());
    named.into_iter().filter(|kind| !kind.is_empty() && as_status(kind).is_none()).collect()
}

/// The status in the code of an error in a stream: a number, or with LiteLLM a number as a string.
fn status_of(error: &Value) -> Option<u16> {
    status_in(error.get("code")?)
}

fn status_in(code: &Value) -> Option<u16> {
    match code {
        Value::String(code) => as_status(code),
        code => as_status(&code.to_string()),
    }
}

fn as_status(code: &str) -> Option<u16> {
    code.parse().ok().filter(|status| (100..600).contains(status))
}

/// The message of an error object, or of an error that is a string.
fn error_text(error: &Value) -> String {
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    let said =
        error.as_str().unwrap_or_else(|| if text("message").is_empty() { text("detail") } else { text("message") });
    // OpenRouter's own message only says that an upstream provider failed.
    if let Some(raw) = error.pointer("/metadata/raw").and_then(Value::as_str) {
        return whole_line(&format!("{said}: {raw}"));
    }
    // FastAPI (vLLM, Mistral) has a list that echoes the request.
    let listed = ["/detail", "/message/detail"].iter().find_map(|at| error.pointer(at)?.as_array());
    let one = |detail: &Value| Some(format!("{}{}", place(detail), detail.get("msg")?.as_str()?));
    let told: Vec<String> = listed.into_iter().flatten().filter_map(one).collect();
    whole_line(&if said.is_empty() { told.join("; ") } else { said.to_owned() })
}

/// The position of an error of FastAPI.
fn place(detail: &Value) -> String {
    let step = |step: &Value| step.as_str().map_or_else(|| step.to_string(), str::to_owned);
    let steps: Vec<String> = detail.get("loc").and_then(Value::as_array).into_iter().flatten().map(step).collect();
    if steps.is_empty() { String::new() } else { format!("{}: ", steps.join(".")) }
}

/// The class of an error with these names and this text; `status` is the response's, or the code of an error in a stream.
fn classify(status: Option<u16>, kinds: &[&str], said: &str) -> FailureClass {
    let said = one_line(said).to_ascii_lowercase();
    let has = |text: &&str| said.contains(*text) || kinds.iter().any(|kind| kind.contains(*text));
    let is = |kind: &&str| kinds.contains(kind);
    if is(&"content_policy_violation") {
        return FailureClass::Rejected;
    }
    if status == Some(402) || QUOTA.iter().any(has) {
        return FailureClass::Quota;
    }
    let alone_too_large = status == Some(429) && said.contains("request too large for");
    let may_be = alone_too_large || !matches!(status, Some(401 | 403 | 404 | 429));
    if may_be && (TOO_LONG.iter().any(has) || is(&"request_too_large")) {
        return FailureClass::TooLong;
    }
    if may_be && said.contains(ALTERNATE) {
        return FailureClass::Rejected;
    }
    // Without a status, only a name tells that the request itself is refused.
    let invalid = status.is_none() && kinds.iter().any(|kind| class_of(kind) == Some(FailureClass::Rejected));
    let undecipherable = status.is_none() && is(&"invalid_encrypted_content");
    let says = |rows: &[&[&str]]| rows.iter().any(|row| row.iter().all(has));
    if (matches!(status, Some(400 | 422)) || invalid) && says(&REASONING) {
        return FailureClass::Reasoning;
    }
    if (matches!(status, Some(400 | 422)) || invalid || undecipherable) && says(&HISTORY) {
        return FailureClass::History;
    }
    if (matches!(status, Some(400 | 422)) || invalid || (status == Some(404) && said.contains("tool use")))
        && let Some(parameter) = Parameter::refused(&said)
    {
        return FailureClass::Parameter(parameter);
    }
    let refused = matches!(status, Some(400 | 415 | 422)) || invalid;
    if (refused && is_of_images(kinds, &said)) || (status == Some(500) && NO_IMAGES.iter().any(has)) {
        return FailureClass::Images;
    }
    let may_be = matches!(status, None | Some(400 | 413 | 422 | 500));
    if may_be && is_of_length(&said) {
        return FailureClass::PerhapsTooLong;
    }
    // Google answers a wrong key with 400.
    if said.contains("api key not valid") {
        return FailureClass::Auth;
    }
    match status {
        Some(401) => FailureClass::Auth,
        Some(403) => FailureClass::Forbidden,
        Some(404) => FailureClass::NotFound,
        Some(413) => FailureClass::TooLong,
        Some(429) => FailureClass::RateLimited,
        Some(408 | 409 | 425 | 500..) => FailureClass::Overloaded,
        Some(300..) => FailureClass::Rejected,
        _ => kinds.iter().find_map(|kind| class_of(kind)).unwrap_or(FailureClass::Stream),
    }
}

/// The class of an error by its name, if known.
fn class_of(kind: &str) -> Option<FailureClass> {
    match kind {
        "authentication_error" | "invalid_api_key" => Some(FailureClass::Auth),
        "permission_error" => Some(FailureClass::Forbidden),
        "not_found_error" | "model_not_found" => Some(FailureClass::NotFound),
        "invalid_request_error" | "invalid_prompt" | "bio_policy" | "misalignment_policy_violation" => {
            Some(FailureClass::Rejected)
        }
        "rate_limit_error" | "rate_limit_exceeded" => Some(FailureClass::RateLimited),
        "overloaded_error"
        | "api_error"
        | "timeout_error"
        | "server_error"
        | "internal_error"
        | "internal_server_error" => Some(FailureClass::Overloaded),
        _ => like(kind),
    }
}

/// The class of an error by a name that says the same in another spelling: `BadRequestError`, `ThrottlingException`.
fn like(kind: &str) -> Option<FailureClass> {
    let plain: String = kind.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let has = |words: &[&str]| words.iter().any(|word| plain.contains(word));
    if has(&["ratelimit", "throttl", "toomanyrequests", "resourceexhausted"]) {
        Some(FailureClass::RateLimited)
    } else if has(&["overload", "unavailable", "internalserver", "timeout"]) {
        Some(FailureClass::Overloaded)
    } else if has(&["authenticat", "unauthorized", "apikey"]) {
        Some(FailureClass::Auth)
    } else if has(&["accessdenied", "forbidden", "permissiondenied"]) {
        Some(FailureClass::Forbidden)
    } else if has(&["badrequest", "invalidparam", "invalidrequest", "invalidargument", "validation"]) {
        Some(FailureClass::Rejected)
    } else {
        None
    }
}

/// Whether a refusal that is in no table may be one of a context that is too long. `said` is in lower case.
fn is_of_length(said: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    has(&LENGTHS) && has(&LIMITS) && !has(&NOT_LENGTHS)
}

/// `message`, with advice about a setting in front, if one helps.
fn advised(message: String) -> String {
    if message.contains(ALTERNATE) { format!("{ALTERNATE_HINT}: {message}") } else { message }
}

/// Whether images are refused. `said` is in lower case. Names of models and tools do not count.
fn is_of_images(kinds: &[&str], said: &str) -> bool {
    if kinds.iter().any(|kind| kind.starts_with("model_")) || said.contains("schema") {
        return false;
    }
    let has = |word: &&str| if NOUNS.contains(word) { has_noun(said, word) } else { said.contains(*word) };
    kinds.iter().any(|kind| kind.contains("image")) || IMAGES.iter().any(|row| row.iter().all(has))
}

/// Whether `noun`, or its plural, is a word or a part of a field's name in `text`; not part of another word or a model's name.
fn has_noun(text: &str, noun: &str) -> bool {
    text.match_indices(noun).any(|(at, _)| {
        let (before, after) = (text.get(..at).unwrap_or_default(), text.get(at + noun.len()..).unwrap_or_default());
        let after = after.strip_prefix('s').unwrap_or(after);
        let is_part = |c: char| c.is_alphanumeric() || c == '-';
        !before.ends_with(|c| is_part(c) || c == '/') && !after.starts_with(is_part)
    })
}

/// `text` on one line, without control characters, cut to [`MAX_MESSAGE`]. Redact first: a secret across the cut would stay in part.
pub(super) fn one_line(text: &str) -> String {
    let line = whole_line(text);
    match line.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// `text` on one line, without control characters, long enough to be redacted before [`one_line`] cuts it.
pub(super) fn whole_line(text: &str) -> String {
    let end = text.char_indices().nth(MAX_TEXT).map_or(text.len(), |(end, _)| end);
    let text = text.get(..end).unwrap_or_default();
    let words: Vec<&str> = text.split(|c: char| c.is_control() || c == ' ').filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests;
