//! What the codecs share: mending bad JSON, gathering an answer, and reading errors.

use std::borrow::Cow;
use std::time::Duration;

use linger_protocol::id::CallId;
use linger_protocol::message::{ContentBlock, HostedPart, HostedTool, ImageSource, Usage};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Failure, FailureClass, Images, Message, Request, Response, Stop, StreamEvent};

/// The most bytes of arguments in one answer: far above any file that a model writes, and a bound on what it can make us hold.
pub(super) const MAX_ARGUMENTS: usize = 8 << 20;

/// The most bytes of text and thinking in one answer: thirty times what the longest answers have.
const MAX_TEXT: usize = 16 << 20;

/// The most tokens of one kind that an answer is believed to have: a thousand times the largest window.
const MAX_TOKENS: u64 = 1_000_000_000;

/// The most blocks in one answer; models write a handful, and a few dozen calls at most.
const MAX_BLOCKS: usize = 512;

/// How large an answer may be in all, in bytes of JSON: it is one event, with room to spare below what a client takes.
const MAX_ANSWER: usize = linger_protocol::transport::MAX_EVENT / 2;

/// The longest error text that is passed on.
const MAX_MESSAGE: usize = 600;

/// What a tool result says that would otherwise be empty.
const NO_OUTPUT: &str = "(no output)";

/// What a user's message says that would otherwise be empty.
pub(super) const NOTHING_SAID: &str = "(an empty message)";

/// What stands for an image whose file cannot be read any more.
const LOST_IMAGE: &str = "(an image that is lost)";

/// What a result says whose images its format cannot hold, so that they come after it.
pub(super) const IMAGES_FOLLOW: &str = "(the images of this result follow)";

/// A string of JSON, borrowed where it has no escapes.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// `data` without the two escapes that break what reads it next, each replaced by U+FFFD: halves of surrogate pairs, which no Rust
/// string can hold, and NUL, which no provider takes back. `None` if there are none.
pub(super) fn mend(data: &str) -> Option<String> {
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', data.as_bytes().get(at..)?) {
        let start = at + found;
        at = start + 2;
        let Some(unit) = escaped(data, start) else { continue };
        at = start + 6;
        match unit {
            0xd800..=0xdbff if matches!(escaped(data, at), Some(0xdc00..=0xdfff)) => at += 6,
            0 | 0xd800..=0xdfff => {
                out.push_str(data.get(copied..start)?);
                out.push('\u{fffd}');
                copied = at;
            }
            _ => {}
        }
    }
    if copied == 0 {
        return None;
    }
    out.push_str(data.get(copied..)?);
    Some(out)
}

/// The code unit of the escape `\uXXXX` that begins at `at`, if one does.
fn escaped(data: &str, at: usize) -> Option<u16> {
    let digits = data.get(at..at + 6)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}

/// `data`, mended where it must be.
pub(super) fn mended(data: &str) -> Cow<'_, str> {
    mend(data).map_or(Cow::Borrowed(data), Cow::Owned)
}

/// `text` without NUL.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    if memchr::memchr(0, text.as_bytes()).is_some() { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

/// `value` without NUL in any string.
pub(super) fn clean_value(value: &Value) -> Value {
    match value {
        Value::String(text) => clean(text).into(),
        Value::Array(items) => items.iter().map(clean_value).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (clean(name).into_owned(), clean_value(value))).collect())
        }
        other => other.clone(),
    }
}

/// The text of a block that a provider may be sent: cleaned, and `None` if there is nothing to see in it.
pub(super) fn visible(text: &str) -> Option<Cow<'_, str>> {
    (!text.trim().is_empty()).then(|| clean(text))
}

/// A tool's name as every provider takes it: a model may have made one up.
pub(super) fn tool_name(name: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = name.chars().map(fits).take(64).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// The arguments of a call as an object; what is none is wrapped, never guessed at.
pub(super) fn arguments(input: &Value) -> Value {
    match input {
        Value::Object(_) => clean_value(input),
        Value::String(raw) => json!({ "invalid_arguments": clean(raw) }),
        other => json!({ "invalid_arguments": other.to_string() }),
    }
}

/// Whether the opaque parts of `message` may go back.
pub(super) fn is_own(message: &Message, request: &Request<'_>) -> bool {
    message.origin.as_deref() == Some(request.origin)
}

/// A string in `native`, such as a signature or the provider's id.
pub(super) fn native_str<'a>(native: &'a Option<Value>, name: &str) -> Option<&'a str> {
    native.as_ref()?.get(name)?.as_str()
}

/// Sets a field of an object.
pub(super) fn set(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(name.to_owned(), value.into());
    }
}

/// What a tool result says, as texts and images; never empty.
pub(super) fn result_blocks(content: &[ContentBlock]) -> Vec<ContentBlock> {
    let mut blocks: Vec<ContentBlock> = content
        .iter()
        .filter_map(|block| match block {
            ContentBlock::Text { text } => visible(text).map(ContentBlock::text),
            ContentBlock::Image { .. } => Some(block.clone()),
            _ => None,
        })
        .collect();
    if blocks.is_empty() {
        blocks.push(ContentBlock::text(NO_OUTPUT));
    }
    blocks
}

/// The bytes of an image in base64; or, when they are lost, what the model is told.
pub(super) fn image<'a>(source: &'a ImageSource, images: &'a Images) -> Result<&'a str, &'static str> {
    match source {
        ImageSource::Data { data } => Ok(data),
        ImageSource::Blob { blob, .. } => images.get(blob).map(String::as_str).ok_or(LOST_IMAGE),
    }
}

/// An answer that is being received.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Becomes [`Response::content`], one to one: a block is only made when there is something in it.
    pub(super) blocks: Vec<Draft>,
    pub(super) stop: Stop,
    pub(super) usage: Usage,
    /// A terminal event was given.
    pub(super) ended: bool,
    /// Bytes of arguments so far.
    arguments: usize,
    /// Bytes of text and thinking so far.
    text: usize,
    /// It has more than [`MAX_BLOCKS`].
    overfull: bool,
}

/// A block that is being received.
#[derive(Debug)]
pub(super) enum Draft {
    Text(String),
    Thinking {
        text: String,
        native: Option<Value>,
    },
    Call {
        id: String,
        name: String,
        arguments: String,
        keep_raw: bool,
    },
    Opaque {
        native: Value,
        arguments: String,
    },
    /// What a hosted tool was asked, or gave.
    Hosted {
        tool: HostedTool,
        part: HostedPart,
        text: String,
        native: Option<Value>,
        arguments: String,
    },
    /// A call that came whole, with what the provider wants back.
    Whole {
        name: String,
        arguments: String,
        native: Option<Value>,
    },
}

impl Answer {
    /// Adds a block and gives its index.
    pub(super) fn open(&mut self, draft: Draft) -> usize {
        if self.blocks.len() >= MAX_BLOCKS {
            // What comes next fails.
            self.overfull = true;
        } else {
            self.blocks.push(draft);
        }
        self.blocks.len() - 1
    }

    /// Adds `piece` to the text at the end, or begins one.
    pub(super) fn text(&mut self, piece: &str, out: &mut Vec<StreamEvent>) {
        if piece.is_empty() {
            return;
        }
        let place = match self.blocks.len().checked_sub(1) {
            Some(last) if matches!(self.blocks.last(), Some(Draft::Text(_))) => last,
            _ => self.open(Draft::Text(String::new())),
        };
        self.append(place, piece, out);
    }

    /// Adds `piece` to the thinking at the end if it has this `native`, or begins one.
    pub(super) fn thinking(&mut self, native: Option<Value>, piece: &str, out: &mut Vec<StreamEvent>) {
        if piece.is_empty() {
            return;
        }
        let place = match (self.blocks.len().checked_sub(1), self.blocks.last()) {
            (Some(last), Some(Draft::Thinking { native: known, .. })) if *known == native => last,
            _ => self.open(Draft::Thinking { text: String::new(), native }),
        };
        self.append(place, piece, out);
    }

    /// Ends the answer if it is larger than any answer should be.
    fn check_size(&mut self, out: &mut Vec<StreamEvent>) {
        let message = if self.overfull {
            format!("the answer has more than {MAX_BLOCKS} blocks")
        } else if self.text > MAX_TEXT {
            format!("the model wrote more than {} MiB of text", MAX_TEXT >> 20)
        } else if self.arguments > MAX_ARGUMENTS {
            format!("the model wrote more than {} MiB of tool arguments", MAX_ARGUMENTS >> 20)
        } else {
            return;
        };
        self.fail(Failure { class: FailureClass::Rejected, message, retry_after: None }, out);
    }

    /// Adds `piece` to a text or thinking block; after the end nothing is added.
    pub(super) fn append(&mut self, index: usize, piece: &str, out: &mut Vec<StreamEvent>) {
        if self.ended {
            return;
        }
        let block = index as u32;
        self.text += piece.len();
        self.check_size(out);
        if self.ended {
            return;
        }
        match self.blocks.get_mut(index) {
            Some(Draft::Text(text)) if !piece.is_empty() => {
                text.push_str(piece);
                match out.last_mut() {
                    Some(StreamEvent::Text { block: last, text }) if *last == block => text.push_str(piece),
                    _ => out.push(StreamEvent::Text { block, text: piece.to_owned() }),
                }
            }
            Some(Draft::Thinking { text, .. }) if !piece.is_empty() => {
                text.push_str(piece);
                match out.last_mut() {
                    Some(StreamEvent::Thinking { block: last, text }) if *last == block => text.push_str(piece),
                    _ => out.push(StreamEvent::Thinking { block, text: piece.to_owned() }),
                }
            }
            _ => {}
        }
    }

    /// Adds `piece` to the arguments of a call.
    pub(super) fn append_arguments(&mut self, index: usize, piece: &str, out: &mut Vec<StreamEvent>) {
        self.arguments += piece.len();
        self.check_size(out);
        if self.ended {
            return;
        }
        if let Some(
            Draft::Call { arguments, .. }
            | Draft::Opaque { arguments, .. }
            | Draft::Whole { arguments, .. }
            | Draft::Hosted { arguments, .. },
        ) = self.blocks.get_mut(index)
        {
            arguments.push_str(piece);
        }
    }

    /// Adds what a hosted tool was asked or gave; `native` is what the provider wants back of it.
    pub(super) fn hosted(
        &mut self,
        tool: HostedTool,
        part: HostedPart,
        text: &str,
        native: Option<Value>,
        out: &mut Vec<StreamEvent>,
    ) -> usize {
        if part == HostedPart::Call {
            // Providers charge for what they run, and count it nowhere that all would agree on.
            self.usage.cost_at_least = true;
        }
        let place = self.open(Draft::Hosted { tool, part, text: String::new(), native, arguments: String::new() });
        self.say(place, text, out);
        place
    }

    /// Says what a hosted tool was asked or gave, once.
    pub(super) fn say(&mut self, index: usize, said: &str, out: &mut Vec<StreamEvent>) {
        if self.ended || said.is_empty() {
            return;
        }
        self.text += said.len();
        self.check_size(out);
        if let Some(Draft::Hosted { tool, part, text, .. }) = self.blocks.get_mut(index)
            && !self.ended
            && text.is_empty()
        {
            text.push_str(said);
            out.push(StreamEvent::Hosted { block: index as u32, tool: *tool, part: *part, text: said.to_owned() });
        }
    }

    /// Ends well.
    pub(super) fn done(&mut self, out: &mut Vec<StreamEvent>) {
        self.check_size(out);
        if !self.ended {
            let content: Vec<ContentBlock> = std::mem::take(&mut self.blocks).into_iter().map(Draft::close).collect();
            if json_size(&content) > MAX_ANSWER {
                let message = format!("the answer is larger than {} MiB", MAX_ANSWER >> 20);
                return self.fail(Failure { class: FailureClass::Rejected, message, retry_after: None }, out);
            }
            self.ended = true;
            out.push(StreamEvent::Done(Response { content, stop: self.stop, usage: self.usage }));
        }
    }

    /// Ends badly.
    pub(super) fn fail(&mut self, failure: Failure, out: &mut Vec<StreamEvent>) {
        if !std::mem::replace(&mut self.ended, true) {
            out.push(StreamEvent::Failed(failure));
        }
    }

    /// Ends because the stream made no sense.
    pub(super) fn broken(&mut self, message: impl Into<String>, out: &mut Vec<StreamEvent>) {
        self.fail(Failure { class: FailureClass::Stream, message: message.into(), retry_after: None }, out);
    }
}

/// How many bytes of JSON a value takes.
pub(crate) fn json_size(value: &impl serde::Serialize) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // What cannot be written takes no room; counting cannot fail.
    let _counted = serde_json::to_writer(&mut count, value);
    count.0
}

impl Draft {
    fn close(self) -> ContentBlock {
        match self {
            Self::Text(text) => ContentBlock::Text { text },
            Self::Thinking { text, native } => ContentBlock::Thinking { text, native },
            Self::Call { id, name, arguments, keep_raw } => {
                let input = parse_arguments(&arguments);
                let mut native = Map::new();
                if !id.is_empty() {
                    native.insert("id".to_owned(), id.into());
                }
                let canonical = input.to_string();
                if keep_raw && input.is_object() && !arguments.trim().is_empty() && canonical != arguments {
                    native.insert("arguments".to_owned(), mended(&arguments).into());
                }
                let native = (!native.is_empty()).then_some(Value::Object(native));
                ContentBlock::ToolUse { call_id: CallId::default(), name, input, native }
            }
            Self::Hosted { tool, part, text, mut native, arguments } => {
                if let (Some(native), Ok(input)) = (&mut native, serde_json::from_str::<Value>(&mended(&arguments))) {
                    set(native, "input", input);
                }
                ContentBlock::Hosted { tool, part, text, native }
            }
            Self::Opaque { mut native, arguments } => {
                if let Ok(input) = serde_json::from_str::<Value>(&arguments) {
                    set(&mut native, "input", input);
                }
                ContentBlock::Opaque { native }
            }
            Self::Whole { name, arguments, native } => {
                ContentBlock::ToolUse { call_id: CallId::default(), name, input: parse_arguments(&arguments), native }
            }
        }
    }
}

/// The arguments that a model wrote: an object, or a string of what it wrote instead.
pub(super) fn parse_arguments(raw: &str) -> Value {
    if raw.trim().is_empty() {
        return json!({});
    }
    match serde_json::from_str(&mended(raw)) {
        Ok(object @ Value::Object(_)) => object,
        _ => raw.into(),
    }
}

/// Takes the larger of what is there and what `fields` says under `pointer`: counts only grow within a response.
pub(super) fn count(total: &mut u64, fields: &Value, pointer: &str) {
    let said = fields.pointer(pointer).and_then(|n| n.as_u64().or_else(|| n.as_f64().map(|n| n as u64)));
    *total = (*total).max(said.unwrap_or_default().min(MAX_TOKENS));
}

/// What a response with `status` means. `body` is JSON with an error in one of the usual places, or anything.
pub(super) fn failure(status: u16, body: &[u8]) -> Failure {
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
    Failure { class, message: one_line(&message), retry_after: asked_wait(error) }
}

/// How long an error asks to wait: Google says it in the body.
fn asked_wait(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let asked = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    let seconds: f64 = asked.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// What an error inside a stream means.
pub(super) fn stream_failure(error: &Value) -> Failure {
    let (kind, said) = error_of(error);
    let status = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let message = match (kind.is_empty(), said.is_empty()) {
        (true, true) => "the provider reported an error without a reason".to_owned(),
        (true, false) => said.clone(),
        (false, true) => kind.clone(),
        (false, false) => format!("{kind}: {said}"),
    };
    Failure { class: classify(status, &kind, &said), message: one_line(&message), retry_after: asked_wait(error) }
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
    use super::*;

    #[test]
    fn bad_escapes_are_mended_and_good_ones_left() {
        fn check(input: &str, expect: Option<&str>) {
            assert_eq!(mend(input).as_deref(), expect, "{input}");
        }
        check(r#""\ud800""#, Some("\"\u{fffd}\""));
        check(r#""a\udc00b\ud83d\ude00c""#, Some("\"a\u{fffd}b\\ud83d\\ude00c\""));
        check(r#""\ud83d\ud83d\ude00""#, Some("\"\u{fffd}\\ud83d\\ude00\""));
        check(r#""\u0000""#, Some("\"\u{fffd}\""));
        check(r#""\\ud800 \\u0000""#, None);
        check(r#""\ud83d\ude00\n\u00e4""#, None);
        check(r#""\"#, None);
        check(r#""\ud8"#, None);
        check("\"\\uä\"", None);
    }

    #[test]
    fn failures_have_the_class_that_decides_about_them() {
        fn check(status: u16, body: &str, class: FailureClass, message: &str) {
            let failure = failure(status, body.as_bytes());
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
            assert_eq!(failure(status, body.as_bytes()).class, class, "{said}");
            if class == FailureClass::TooLong && status == 400 {
                assert_eq!(stream_failure(&json!({"message": said})).class, class, "{said}, in a stream");
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
            let failure = failure(429, body.to_string().as_bytes());
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
            assert_eq!(stream_failure(&error).class, class, "{error}");
        }
        check(json!({"type": "overloaded_error", "message": "Overloaded"}), FailureClass::Overloaded);
        check(json!({"code": 502, "message": "upstream"}), FailureClass::Overloaded);
        check(json!({"code": 401, "message": "key"}), FailureClass::Auth);
        check(json!({"message": "the request exceeds the available context size"}), FailureClass::TooLong);
        check(json!("something"), FailureClass::Stream);
        let nothing = stream_failure(&json!({"message": "\u{7f}"})).message;
        assert_eq!(nothing, "the provider reported an error without a reason");
    }

    /// The end of an answer that `fill` makes.
    fn ended(fill: impl FnOnce(&mut Answer, &mut Vec<StreamEvent>)) -> Result<usize, String> {
        let (mut answer, mut out) = (Answer::default(), Vec::new());
        fill(&mut answer, &mut out);
        answer.done(&mut out);
        match out.pop() {
            Some(StreamEvent::Done(response)) => Ok(response.content.len()),
            Some(StreamEvent::Failed(failure)) => Err(failure.message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_that_is_too_large_fails_and_says_why() {
        let blocks = |n: usize| ended(|answer, _| (0..n).for_each(|_| _ = answer.open(Draft::Text(String::new()))));
        assert_eq!(blocks(MAX_BLOCKS), Ok(MAX_BLOCKS));
        assert_eq!(blocks(MAX_BLOCKS + 1), Err("the answer has more than 512 blocks".to_owned()));
        let text = |bytes: usize| {
            ended(|answer, out| {
                let place = answer.open(Draft::Text(String::new()));
                answer.append(place, &"x".repeat(bytes), out);
            })
        };
        assert_eq!(text(MAX_TEXT), Ok(1));
        assert_eq!(text(MAX_TEXT + 1), Err("the model wrote more than 16 MiB of text".to_owned()));
        let arguments = ended(|answer, out| {
            let call =
                Draft::Call { id: String::new(), name: String::new(), arguments: String::new(), keep_raw: false };
            let place = answer.open(call);
            answer.append_arguments(place, &"x".repeat(MAX_ARGUMENTS + 1), out);
        });
        assert_eq!(arguments, Err("the model wrote more than 8 MiB of tool arguments".to_owned()));
        let opaque = ended(|answer, _| {
            let native = json!("x".repeat(MAX_ANSWER));
            answer.open(Draft::Opaque { native, arguments: String::new() });
        });
        assert_eq!(opaque, Err("the answer is larger than 32 MiB".to_owned()));
    }
}
