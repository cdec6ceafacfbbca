//! JSON helpers of the codecs: text and values that both ends accept, and parts of messages that all formats have.
//!
//! Pure, and on the ground of the room: it imports nothing else of it.
//! Deliberately absent: building the response (`response_builder`), and errors (`failure`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use linger_protocol::id::BlobId;
use linger_protocol::message::{ContentBlock, ImageSource};
use serde::Deserialize;
use serde_json::{Value, json};

/// The largest plausible token count: a thousand times the largest window.
const MAX_TOKENS: u64 = 1_000_000_000;

/// The text of an otherwise empty tool result.
const NO_OUTPUT: &str = "(no output)";

/// The beginning of a failed result in formats that cannot say so otherwise.
const FAILED: &str = "[failed] ";

/// How results begin that say by themselves that the call failed or was not run, in lower case.
const SAYS_FAILED: [&str; 8] =
    ["[failed", "error", "fail", "not run", "[timed out", "interrupted", "[the tool failed", "denied"];

/// The text of an otherwise empty user message.
pub(super) const NOTHING_SAID: &str = "(an empty message)";

/// The text in place of an unreadable image.
const LOST_IMAGE: &str = "(an image that is lost)";

/// The text of a result whose images follow it, because its format cannot hold them.
pub(super) const IMAGES_FOLLOW: &str = "(the images of this result follow)";

/// A string of JSON, borrowed where it has no escapes.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// `data` with bad escapes replaced by U+FFFD: lone surrogates, which no Rust string can hold, and NUL, which no provider takes
/// back. `None` if there are none.
pub(super) fn replace_bad_escapes(data: &str) -> Option<String> {
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

/// `data` with bad escapes replaced.
pub(crate) fn with_good_escapes(data: &str) -> Cow<'_, str> {
    replace_bad_escapes(data).map_or(Cow::Borrowed(data), Cow::Owned)
}

/// `text` with each NUL replaced by U+FFFD.
pub(super) fn without_nul(text: &str) -> Cow<'_, str> {
    if memchr::memchr(0, text.as_bytes()).is_some() { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

/// `value` without NUL in any string.
pub(super) fn without_nul_in(value: &Value) -> Value {
    match value {
        Value::String(text) => without_nul(text).into(),
        Value::Array(items) => items.iter().map(without_nul_in).collect(),
        Value::Object(fields) => Value::Object(
            fields.iter().map(|(name, value)| (without_nul(name).into_owned(), without_nul_in(value))).collect(),
        ),
        other => other.clone(),
    }
}

/// The text of a block for a provider: without NUL; `None` if blank.
pub(super) fn visible(text: &str) -> Option<Cow<'_, str>> {
    (!text.trim().is_empty()).then(|| without_nul(text))
}

/// A tool's name with characters that every provider takes: a model may have invented it.
pub(super) fn tool_name(name: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let name: String = name.chars().map(fits).take(64).collect();
    if name.is_empty() { "unknown".to_owned() } else { name }
}

/// The arguments of a call as an object; anything else is wrapped.
pub(super) fn arguments(input: &Value) -> Value {
    match input {
        Value::Object(_) => without_nul_in(input),
        Value::String(raw) => match unwrapped_arguments(raw) {
            Some(object) => without_nul_in(&object),
            None => json!({ "invalid_arguments": without_nul(raw) }),
        },
        other => json!({ "invalid_arguments": other.to_string() }),
    }
}

/// A string in `native`, such as a signature or the provider's id.
pub(super) fn native_str<'a>(native: &'a Option<Value>, name: &str) -> Option<&'a str> {
    native.as_ref()?.get(name)?.as_str()
}

/// `model` as a segment of a path.
pub(super) fn path_segment(model: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~@".contains(&byte);
    model.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Sets a field of an object.
pub(super) fn set(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(name.to_owned(), value.into());
    }
}

/// The texts and images of a tool result; never empty.
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

/// The same for a format that has no field for failures: a failed result begins with a word that says so.
pub(super) fn marked_result_blocks(content: &[ContentBlock], is_error: bool) -> Vec<ContentBlock> {
    let mut blocks = result_blocks(content);
    if !is_error {
        return blocks;
    }
    match blocks.iter_mut().find_map(|block| if let ContentBlock::Text { text } = block { Some(text) } else { None }) {
        Some(text) => {
            let start: String = text.trim_start().chars().take(20).collect::<String>().to_ascii_lowercase();
            if !SAYS_FAILED.iter().any(|words| start.starts_with(words)) {
                text.insert_str(0, FAILED);
            }
        }
        None => blocks.insert(0, ContentBlock::text(FAILED.trim_end())),
    }
    blocks
}

/// The bytes of an image in base64, or the text for the model if they are lost.
pub(super) fn image<'a>(
    source: &'a ImageSource,
    images: &'a BTreeMap<BlobId, String>,
) -> Result<&'a str, &'static str> {
    match source {
        ImageSource::Data { data } => Ok(data),
        ImageSource::Blob { blob, .. } => images.get(blob).map(String::as_str).ok_or(LOST_IMAGE),
    }
}

/// The size of a value as JSON, in bytes.
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
    // Counting cannot fail.
    let _counted = serde_json::to_writer(&mut count, value);
    count.0
}

/// A model's arguments: an object, or a string with the original text.
pub(super) fn parse_arguments(raw: &str) -> Value {
    if raw.trim().is_empty() {
        return json!({});
    }
    match serde_json::from_str(&with_good_escapes(raw)) {
        Ok(object @ Value::Object(_)) => object,
        Ok(Value::Null) => json!({}),
        _ => raw.into(),
    }
}

/// The object that a model's arguments are in all but their wrapping: as JSON in a string or in a list of its own, in a code fence,
/// with raw line ends in strings, or the same twice.
pub(crate) fn unwrapped_arguments(raw: &str) -> Option<Value> {
    unwrapped(raw, MAX_WRAPPINGS)
}

/// The most wrappings around arguments.
const MAX_WRAPPINGS: usize = 4;

fn unwrapped(raw: &str, left: usize) -> Option<Value> {
    let text = raw.trim().trim_start_matches('\u{feff}');
    if text.is_empty() {
        return Some(json!({}));
    }
    let left = left.checked_sub(1)?;
    if let Some(inner) = in_fence(text) {
        return unwrapped(inner, left);
    }
    let good = with_good_escapes(text);
    let escaped = with_escaped_controls(&good);
    match serde_json::from_str(&good).or_else(|_| serde_json::from_str(&escaped)) {
        Ok(object @ Value::Object(_)) => Some(object),
        Ok(Value::Null) => Some(json!({})),
        Ok(Value::String(inner)) if inner.trim_start().starts_with(['{', '"', '[']) => unwrapped(&inner, left),
        Ok(Value::Array(items)) => match &items[..] {
            [object @ Value::Object(_)] => Some(object.clone()),
            _ => None,
        },
        Ok(_) => None,
        Err(_) => repeated(&escaped),
    }
}

/// The text in a code fence that is all there is.
pub(super) fn in_fence(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("```")?.strip_suffix("```")?;
    let (first, rest) = inner.split_once('\n')?;
    let is_language = first.trim().chars().all(|c| c.is_ascii_alphanumeric());
    Some(if is_language { rest } else { inner })
}

/// The object that a text consists of several times, or that only tags of a model's template follow.
fn repeated(text: &str) -> Option<Value> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let first = values.next()?.ok().filter(Value::is_object)?;
    loop {
        let rest = text.get(values.byte_offset()..)?.trim();
        if rest.is_empty() || is_tag(rest) {
            return Some(first);
        }
        if values.next()?.ok()? != first {
            return None;
        }
    }
}

/// Whether a text is the end of a template: `</tool_call>`, `<|im_end|>`.
fn is_tag(text: &str) -> bool {
    let inner = text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
    inner.is_some_and(|inner| inner.starts_with(['/', '|']) && !inner.contains(['<', '{', '"']))
}

/// `text`, JSON, with control characters in its strings as escapes.
fn with_escaped_controls(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte < b' ') {
        return text.into();
    }
    let (mut out, mut in_string, mut is_escaped) = (String::with_capacity(text.len()), false, false);
    for c in text.chars() {
        match c {
            '\0'..='\x1f' if in_string => out.push_str(&format!("\\u{:04x}", c as u32)),
            _ => out.push(c),
        }
        (in_string, is_escaped) = match c {
            _ if is_escaped => (in_string, false),
            '\\' if in_string => (true, true),
            '"' => (!in_string, false),
            _ => (in_string, false),
        };
    }
    out.into()
}

/// Raises `total` to the count at `pointer`: counts only grow within a response.
pub(super) fn count(total: &mut u64, fields: &Value, pointer: &str) {
    let said = fields.pointer(pointer).and_then(|n| n.as_u64().or_else(|| n.as_f64().map(|n| n as u64)));
    *total = (*total).max(said.unwrap_or_default().min(MAX_TOKENS));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_an_object_however_they_are_wrapped() {
        let object = json!({"a": "x\ny", "b": [1]});
        let plain = object.to_string();
        for raw in [
            plain.clone(),
            Value::from(plain.as_str()).to_string(),
            Value::from(Value::from(plain.as_str()).to_string()).to_string(),
            format!("```json\n{plain}\n```"),
            format!("```\n{plain}```"),
            format!("[{plain}]"),
            "{\"a\": \"x\ny\", \"b\": [1]}".to_owned(),
            format!("{plain}{plain}"),
            format!("{plain}\n{plain}\n{plain}"),
            format!("{plain}</tool_call>"),
            format!("{plain}<|im_end|>"),
        ] {
            assert_eq!(unwrapped_arguments(&raw), Some(object.clone()), "{raw}");
            assert_eq!(arguments(&parse_arguments(&raw)), object, "{raw}");
        }
        for raw in ["", " ", "null", "{}", "\"{}\""] {
            assert_eq!(unwrapped_arguments(raw), Some(json!({})), "{raw}");
        }
        for raw in [
            "{\"a\": 1}{\"a\": 2}",
            "{\"a\": \"cut",
            "[1]",
            "[{},{}]",
            "\"text\"",
            "\"\"",
            "5",
            "ls -l",
            "{\"a\": 1} and so on",
        ] {
            assert_eq!(unwrapped_arguments(raw), None, "{raw}");
        }
    }

    #[test]
    fn a_failed_result_says_so_where_the_format_does_not() {
        let check = |text: &str, expect: &str| {
            let content: Vec<ContentBlock> = (!text.is_empty()).then(|| ContentBlock::text(text)).into_iter().collect();
            assert_eq!(marked_result_blocks(&content, true), [ContentBlock::text(expect)]);
            assert_eq!(marked_result_blocks(&content, false), result_blocks(&content));
        };
        check("", "[failed] (no output)");
        check("3 rows", "[failed] 3 rows");
        check("Error: no rows", "Error: no rows");
        check("not run: denied", "not run: denied");
    }

    #[test]
    fn bad_escapes_are_mended_and_good_ones_left() {
        fn check(input: &str, expect: Option<&str>) {
            assert_eq!(replace_bad_escapes(input).as_deref(), expect, "{input}");
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
}
