//! Failures: their classes, which decide what comes of one, and how the errors of providers are read.
//!
//! Pure: a status with a body, or an error within a stream, becomes a [`Failure`]. Providers tell the same thing in many ways, so
//! the words by which something is known are tables.
//! Deliberately absent: what goes wrong on the way (`trouble`), and whether it is tried again (`retry`).

use std::time::Duration;

use serde_json::Value;

use super::wire::mended;

/// The longest error text that is passed on.
const MAX_MESSAGE: usize = 600;

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
        let (kind, said) = error_of(error);
        let class = classify(Some(status), &kind, if said.is_empty() { &text } else { &said });
        let said = if said.is_empty() && !text.trim_start().starts_with('<') { text.trim() } else { &said };
        let message = match (kind.is_empty(), said.is_empty()) {
            (_, true) => format!("the provider answered {status} without a reason"),
            (true, false) => format!("{status}: {said}"),
            (false, false) => format!("{status} {kind}: {said}"),
        };
        Self { class, message: one_line(&message), retry_after: asked_wait(error) }
    }

    /// What an error inside a stream means.
    pub(super) fn in_stream(error: &Value) -> Self {
        let (kind, said) = error_of(error);
        let status = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        let message = match (kind.is_empty(), said.is_empty()) {
            (true, true) => "the provider reported an error without a reason".to_owned(),
            (true, false) => said.clone(),
            (false, true) => kind.clone(),
            (false, false) => format!("{kind}: {said}"),
        };
        Self { class: classify(status, &kind, &said), message: one_line(&message), retry_after: asked_wait(error) }
    }
}

/// How long an error asks to wait: Google says it in the body.
fn asked_wait(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let asked = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    let seconds: f64 = asked.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Kind and text of an error object, or of an error that is only a string.
fn error_of(error: &Value) -> (String, String) {
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    // Google's code is a number and its kind the status; what OpenAI calls `type` is less exact than its `code`.
    let kind = ["code", "status", "type"].map(text).into_iter().find(|kind| !kind.is_empty()).unwrap_or_default();
    let said = error.as_str().unwrap_or_else(|| {
        let said = text("message");
        if said.is_empty() { text("detail") } else { said }
    });
    (one_line(kind), one_line(said))
}

/// How providers say that the context does not fit, in lower case.
const TOO_LONG: [&str; 27] = [
    // Anthropic, and Bedrock with its models.
    "prompt is too long",
    "input is too long",
    "input length and `max_tokens` exceed",
    "model_context_window_exceeded",
    // OpenAI and those who took over its words: vLLM, DeepSeek, OpenRouter, Together.
    "maximum context length",
    "context_length_exceeded",
    "context length exceeded",
    "exceeds the context window",
    "string_above_max_length",
    // Gemini.
    "input token count exceeds",
    "exceeds the maximum number of tokens",
    // Ollama.
    "prompt too long",
    "exceeds the context length",
    "input length exceeds",
    // llama.cpp, LM Studio, vLLM and SGLang.
    "exceed_context_size",
    "exceeds the available context",
    "greater than the context length",
    "longer than the maximum model length",
    "longer than the model's context length",
    // xAI, Mistral, Groq, Moonshot, MiniMax, GitHub and Cohere.
    "maximum prompt length",
    "too large for model with",
    "reduce the length of the messages",
    "exceeded model token limit",
    "context window exceeds",
    "prompt token count of",
    "too many tokens: total",
    // A rate limit that one request exceeds will not be met by waiting.
    "request too large for",
];

/// What is said of images where a request is refused for them: vendors have a dozen ways to say so.
const IMAGES: [&str; 5] = ["image", "vision", "multimodal", "multi-modal", "must be a string"];

/// How servers of one's own say so, with a status that means something else: llama.cpp, Ollama, vLLM.
const NO_IMAGES: [&str; 3] = ["image input", "not support image", "images are not supported"];

/// The class of an error with this kind and text; `status` is that of the response, or what an error in a stream says.
fn classify(status: Option<u16>, kind: &str, said: &str) -> FailureClass {
    let said = said.to_ascii_lowercase();
    let has = |text: &&str| said.contains(*text) || kind.contains(*text);
    if matches!(kind, "insufficient_quota" | "billing_error" | "content_policy_violation") {
        return FailureClass::Rejected;
    }
    let alone_too_large = status == Some(429) && said.contains("request too large for");
    let may_be = alone_too_large || !matches!(status, Some(401 | 403 | 404 | 429));
    if may_be && (TOO_LONG.iter().any(has) || kind == "request_too_large") {
        return FailureClass::TooLong;
    }
    let refused = matches!(status, Some(400 | 415 | 422)) || (status.is_none() && kind == "invalid_request_error");
    if (refused && IMAGES.iter().any(has)) || (status == Some(500) && NO_IMAGES.iter().any(has)) {
        return FailureClass::Images;
    }
    // Google says 400 to a wrong key.
    if said.contains("api key not valid") {
        return FailureClass::Auth;
    }
    match status {
        Some(401 | 403) => return FailureClass::Auth,
        Some(404) => return FailureClass::NotFound,
        Some(413) => return FailureClass::TooLong,
        Some(408 | 409 | 425 | 429 | 500..) => return FailureClass::Overloaded,
        Some(300..) => return FailureClass::Rejected,
        _ => {}
    }
    match kind {
        "authentication_error" | "permission_error" | "invalid_api_key" => FailureClass::Auth,
        "not_found_error" | "model_not_found" => FailureClass::NotFound,
        "invalid_request_error" | "invalid_prompt" | "bio_policy" | "misalignment_policy_violation" => {
            FailureClass::Rejected
        }
        "overloaded_error"
        | "rate_limit_error"
        | "rate_limit_exceeded"
        | "api_error"
        | "timeout_error"
        | "server_error"
        | "internal_error"
        | "internal_server_error" => FailureClass::Overloaded,
        _ => FailureClass::Stream,
    }
}

/// `text` on one line, without control characters, and not too long.
pub(super) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split(|c: char| c.is_control() || c == ' ').filter(|word| !word.is_empty()).collect();
    let line = words.join(" ");
    match line.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn failures_have_the_class_that_decides_about_them() {
        fn check(status: u16, body: &str, class: FailureClass, message: &str) {
            let failure = Failure::of_response(status, body.as_bytes());
            assert_eq!((failure.class, failure.message.as_str()), (class, message));
        }
        use FailureClass::*;
        check(
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            Overloaded,
            "529 overloaded_error: Overloaded",
        );
        check(
            400,
            r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8 maximum"}}"#,
            TooLong,
            "400 invalid_request_error: prompt is too long: 9 tokens > 8 maximum",
        );
        check(
            400,
            r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#,
            TooLong,
            "400 context_length_exceeded: x",
        );
        check(
            429,
            r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#,
            Rejected,
            "429 insufficient_quota: pay",
        );
        check(401, r#"{"error":"no"}"#, Auth, "401: no");
        check(
            400,
            r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}"#,
            Auth,
            "400 INVALID_ARGUMENT: API key not valid. Please pass a valid API key.",
        );
        check(
            400,
            r#"{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8).","status":"INVALID_ARGUMENT"}}"#,
            TooLong,
            "400 INVALID_ARGUMENT: The input token count (9) exceeds the maximum number of tokens allowed (8).",
        );
        check(404, r#"[{"error":{"message":"gone"}}]"#, NotFound, "404: gone");
        check(502, "<html>bad gateway</html>", Overloaded, "the provider answered 502 without a reason");
        check(422, r#"{"detail":"extra\nfields"}"#, Rejected, "422: extra fields");
        check(500, "boom\u{7}\x1b[31m", Overloaded, "500: boom [31m");
        check(302, "", Rejected, "the provider answered 302 without a reason");
    }

    #[test]
    fn a_context_that_does_not_fit_is_known_by_the_words_of_each_provider() {
        fn check(status: u16, said: &str, class: FailureClass) {
            let body = json!({"error": {"message": said}}).to_string();
            assert_eq!(Failure::of_response(status, body.as_bytes()).class, class, "{said}");
            if class == FailureClass::TooLong && status == 400 {
                assert_eq!(Failure::in_stream(&json!({"message": said})).class, class, "{said}, in a stream");
            }
        }
        for said in [
            "prompt is too long: 213462 tokens > 200000 maximum",
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            "Input is too long for requested model.",
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
            "This endpoint's maximum context length is 128000 tokens. However, you requested about 140000 tokens",
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            "prompt too long; exceeded max context length by 4 tokens",
            "the input length exceeds the context length",
            "the request exceeds the available context size, try increasing it",
            "The number of tokens to keep from the initial prompt is greater than the context length",
            "The decoder prompt (length 9) is longer than the maximum model length of 8.",
            "The input (9 tokens) is longer than the model's context length (8 tokens).",
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            "Prompt contains 140000 tokens, too large for model with 131072 maximum context length",
            "Please reduce the length of the messages or completion.",
            "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
            "invalid params, context window exceeds limit",
            "prompt token count of 70000 exceeds the limit of 64000",
            "too many tokens: total number of tokens in the prompt cannot exceed 128000",
        ] {
            check(400, said, FailureClass::TooLong);
        }
        check(413, "", FailureClass::TooLong);
        check(
            429,
            "Request too large for gpt-5 on tokens per min (TPM): Limit 10000, Requested 15000.",
            FailureClass::TooLong,
        );
        check(429, "Rate limit reached: too many tokens in the last minute", FailureClass::Overloaded);
        check(400, "max_tokens is larger than this model can write", FailureClass::Rejected);
        for said in [
            "Invalid content type. image_url is only supported by certain models.",
            "messages[1]: unknown variant `image_url`, expected `text`",
            "Image input modality is not enabled for models/x",
            "messages.0.content.1.image.source.base64: Could not process image",
            "'messages.0' : for 'role:user' the following must be satisfied[('messages.0.content' : value must be a string)]",
            "x is not a multimodal model",
        ] {
            check(400, said, FailureClass::Images);
        }
        check(500, "image input is not supported - hint: you may need to provide the mmproj", FailureClass::Images);
        check(500, "the image registry is down", FailureClass::Overloaded);
        check(401, "no key for image models", FailureClass::Auth);
        check(429, "images per minute exceeded", FailureClass::Overloaded);
    }

    #[test]
    fn a_wait_may_be_asked_for_in_the_body() {
        fn check(delay: &str, expect: Option<u64>) {
            let info = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay});
            let body =
                json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "x", "details": [{}, info]}});
            let failure = Failure::of_response(429, body.to_string().as_bytes());
            assert_eq!(
                (failure.class, failure.retry_after),
                (FailureClass::Overloaded, expect.map(Duration::from_millis))
            );
        }
        check("34.5s", Some(34_500));
        check("0s", Some(0));
        check("-1s", None);
        check("soon", None);
    }

    #[test]
    fn errors_in_a_stream_are_tried_again_unless_they_say_what_is_wrong() {
        fn check(error: Value, class: FailureClass) {
            assert_eq!(Failure::in_stream(&error).class, class, "{error}");
        }
        check(json!({"type": "overloaded_error", "message": "Overloaded"}), FailureClass::Overloaded);
        check(json!({"code": 502, "message": "upstream"}), FailureClass::Overloaded);
        check(json!({"code": 401, "message": "key"}), FailureClass::Auth);
        check(json!({"message": "the request exceeds the available context size"}), FailureClass::TooLong);
        check(json!("something"), FailureClass::Stream);
        let nothing = Failure::in_stream(&json!({"message": "\u{7f}"})).message;
        assert_eq!(nothing, "the provider reported an error without a reason");
    }
}
