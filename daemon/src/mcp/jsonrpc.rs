//! Messages of servers, read as leniently as their meaning allows.
//!
//! `null` means absent, a batch is its messages, `NaN` is `null`, a byte order mark is skipped, an id is a number however it is
//! written, and an error is whatever the server put there. [`Assembler`] joins a message that was printed over several lines.
//! Pure. Deliberately absent: which request a message belongs to ([`super::peer`]).

use std::borrow::Cow;

use linger_protocol::transport::both;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::lines::MAX_MESSAGE;
use crate::provider::with_good_escapes;
use crate::tool::text;

/// The most bytes of an error's `data` that are shown: a list of what is wrong with the arguments.
const MAX_DATA: usize = 2 << 10;

/// The longest line that is searched for its brackets although it ends with one: larger ones are messages.
const SHORT: usize = 4 << 10;

/// A byte order mark, which some consoles write before each line.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// The fields of a message; another one in an answer means that it is none.
const FIELDS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// A message of a server.
#[derive(Debug)]
pub(super) struct Incoming {
    /// As it is written; absent in a notification.
    pub(super) id: Option<Value>,
    /// Absent in an answer.
    pub(super) method: Option<String>,
    pub(super) params: Value,
    pub(super) result: Option<Box<RawValue>>,
    /// Any JSON except `null`; an empty error next to a result counts as absent.
    pub(super) error: Option<Value>,
    /// It has a field that no message has.
    pub(super) has_others: bool,
}

/// The messages in a text: one, or those of a batch. `None` if it holds none.
pub(super) fn read(text: &str) -> Option<Vec<Incoming>> {
    let text = text.trim_start_matches(|c: char| c == '\u{feff}' || c.is_whitespace());
    let text = with_good_escapes(text);
    // Serde would read a list as fields in their order.
    if text.starts_with('{')
        && let Ok(message) = serde_json::from_str::<both::Message<Box<RawValue>, Value>>(&text)
    {
        let both::Message { id, method, params, result, error } = message;
        let is_odd = method.is_none() && result.is_none() && error.is_none();
        let has_others = is_odd && serde_json::from_str(&text).is_ok_and(|value: Value| has_others(&value));
        return Some(vec![Incoming { id, method, params, result, error, has_others }.settled()]);
    }
    match serde_json::from_str(&mended(&text)).ok()? {
        Value::Array(items) => {
            let messages: Vec<Incoming> = items.into_iter().filter_map(of_value).collect();
            (!messages.is_empty()).then_some(messages)
        }
        value => Some(vec![of_value(value)?]),
    }
}

fn of_value(value: Value) -> Option<Incoming> {
    let has_others = has_others(&value);
    let Value::Object(mut fields) = value else { return None };
    let mut take = |name: &str| fields.remove(name).filter(|value| !value.is_null());
    let method = take("method").and_then(|method| method.as_str().map(str::to_owned));
    let result = take("result").and_then(|result| to_raw_value(&result).ok());
    let params = take("params").unwrap_or_default();
    Some(Incoming { id: take("id"), method, params, result, error: take("error"), has_others }.settled())
}

fn has_others(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| fields.keys().any(|key| !FIELDS.contains(&key.as_str())))
}

impl Incoming {
    /// Some servers write an empty error next to each result.
    fn settled(mut self) -> Self {
        if self.result.is_some() {
            self.error = self.error.filter(|error| !is_empty(error));
        }
        self
    }
}

fn is_empty(error: &Value) -> bool {
    match error {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

/// The number of a request: some servers write it as text, or with a fraction.
pub(super) fn number(id: &Value) -> Option<u64> {
    let of_float = |number: f64| (number >= 0.0 && number.fract() == 0.0 && number < 9e15).then_some(number as u64);
    match id {
        Value::Number(number) => number.as_u64().or_else(|| of_float(number.as_f64()?)),
        Value::String(text) => {
            let text = text.trim();
            text.parse().ok().or_else(|| of_float(text.parse().ok()?))
        }
        _ => None,
    }
}

/// The code and the text of an error, whatever it is; the text has its `data` too, and is never empty.
pub(super) fn described(error: &Value) -> (i64, String) {
    let Value::Object(fields) = error else {
        return (0, Some(shown(error)).filter(|text| !text.trim().is_empty()).unwrap_or_else(without_reason));
    };
    let field = |name: &str| fields.get(name).filter(|value| !value.is_null());
    let (code, word) = match field("code") {
        Some(Value::Number(code)) => (code.as_i64().or_else(|| code.as_f64().map(|code| code as i64)), None),
        Some(Value::String(word)) => match word.trim().parse() {
            Ok(code) => (Some(code), None),
            Err(_) => (None, Some(word.clone())),
        },
        _ => (None, None),
    };
    let said = ["message", "msg", "detail", "reason"].into_iter().filter_map(field).map(shown);
    let message = said.into_iter().find(|said| !said.trim().is_empty());
    let data = field("data").filter(|data| !is_empty(data)).map(shown);
    let data = data.filter(|data| message.as_ref().is_none_or(|message| !message.contains(data.as_str())));
    let data = data.map(|data| text::head(&data, MAX_DATA).to_owned());
    let mut parts: Vec<String> = word.into_iter().chain(message).chain(data).collect();
    if parts.is_empty() {
        let others = fields.keys().any(|key| key != "code");
        parts.push(if others { shown(error) } else { without_reason() });
    }
    (code.unwrap_or_default(), parts.join(": "))
}

fn without_reason() -> String {
    "the server gave no reason".to_owned()
}

/// A string as it is, anything else as JSON.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The number after `"id":` in a text that cannot be read.
pub(super) fn id_in(text: &str) -> Option<u64> {
    let mut places = text.match_indices("\"id\"");
    places.find_map(|(at, found)| {
        let rest = text.get(at + found.len()..)?.trim_start().strip_prefix(':')?.trim_start();
        let rest = rest.strip_prefix('"').unwrap_or(rest);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end)?.parse().ok()
    })
}

/// JSON with the deviations of some languages corrected: `NaN` and infinities become `null`, control characters in strings are escaped.
fn mended(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let (mut copied, mut at) = (0, 0);
    let (mut in_string, bytes) = (false, text.as_bytes());
    while let Some(&byte) = bytes.get(at) {
        let (skipped, put) = match (in_string, byte) {
            (true, b'\\') => (2, None),
            (_, b'"') => {
                in_string = !in_string;
                (1, None)
            }
            (true, 0..=0x1f) => (1, Some(format!("\\u{byte:04x}"))),
            (false, b'-' | b'N' | b'I' | b'u') => {
                let rest = bytes.get(at..).unwrap_or_default();
                let words: [&[u8]; 4] = [b"NaN", b"-Infinity", b"Infinity", b"undefined"];
                match words.into_iter().find(|word| rest.starts_with(word)) {
                    Some(word) => (word.len(), Some("null".to_owned())),
                    None => (1, None),
                }
            }
            _ => (1, None),
        };
        if let Some(put) = put {
            out.push_str(text.get(copied..at).unwrap_or_default());
            out.push_str(&put);
            copied = at + skipped;
        }
        at += skipped;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(out)
}

/// Joins the lines of a message that a server printed over several.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    held: Vec<u8>,
    brackets: Brackets,
}

/// The brackets that are open at the end of a text.
#[derive(Debug, Default)]
struct Brackets {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Brackets {
    fn read(&mut self, text: &[u8]) {
        for byte in text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' if !self.in_string => self.depth += 1,
                b'}' | b']' if !self.in_string => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }
}

impl Assembler {
    /// Takes a line; gives the texts that are complete, in order.
    pub(super) fn push(&mut self, line: Vec<u8>) -> Vec<Vec<u8>> {
        let trimmed = line.trim_ascii_start();
        let trimmed = trimmed.strip_prefix(BOM).unwrap_or(trimmed).trim_ascii();
        if self.held.is_empty() {
            let ends = trimmed.ends_with(b"}") || trimmed.ends_with(b"]");
            if !trimmed.starts_with(b"{") && !trimmed.starts_with(b"[") || ends && trimmed.len() > SHORT {
                return vec![line];
            }
            self.brackets = Brackets::default();
            self.brackets.read(trimmed);
            if self.brackets.depth == 0 {
                return vec![line];
            }
            self.held = line;
            return Vec::new();
        }
        // What was held is no beginning of a message if another one follows.
        if trimmed.starts_with(b"{\"jsonrpc\"") {
            let mut all = vec![std::mem::take(&mut self.held)];
            all.extend(self.push(line));
            return all;
        }
        self.brackets.read(b"\n");
        self.brackets.read(&line);
        self.held.push(b'\n');
        self.held.extend_from_slice(&line);
        let is_done = self.brackets.depth == 0 || self.held.len() > MAX_MESSAGE;
        if is_done { self.take().into_iter().collect() } else { Vec::new() }
    }

    /// Whether the beginning of a message is held.
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Gives up waiting for the rest.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        Some(std::mem::take(&mut self.held)).filter(|held| !held.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn one(text: &str) -> Incoming {
        read(text).unwrap_or_else(|| panic!("{text}")).remove(0)
    }

    #[test]
    fn null_is_absent_in_every_field() {
        let message = one(r#"{"jsonrpc":null,"id":4,"method":null,"params":null,"result":{"a":1},"error":null}"#);
        assert_eq!((message.id, message.method, message.error), (Some(json!(4)), None, None));
        assert_eq!(message.result.unwrap().get(), r#"{"a":1}"#);
        let notified = one(r#"{"id":null,"method":"notifications/x","params":null,"result":null}"#);
        assert_eq!(
            (notified.id, notified.method.as_deref(), notified.params),
            (None, Some("notifications/x"), json!(null))
        );
    }

    #[test]
    fn what_is_json_in_all_but_details_is_read() {
        for text in [
            "\u{feff}{\"id\":1,\"result\":{\"x\":null}}",
            r#"{"id":1,"result":{"x":NaN}}"#,
            r#"{"id":1,"result":{"x":-Infinity}}"#,
            r#"{"id":1,"id":1,"result":{"x":undefined}}"#,
            "{\n  \"id\": 1,\n  \"result\": {\n    \"x\": Infinity\n  }\n}",
            r#"[{"id":1,"result":{"x":null}}]"#,
            r#"{"id":1,"result":{"x":null},"error":{}}"#,
            r#"{"id":1,"result":{"x":null},"error":[]}"#,
        ] {
            let message = one(text);
            assert_eq!((message.result.unwrap().get(), message.error), (r#"{"x":null}"#, None), "{text}");
        }
        let raw = one("{\"id\":1,\"result\":{\"x\":\"NaN\ttab \\\"Infinity\\\"\"}}");
        assert_eq!(raw.result.unwrap().get(), r#"{"x":"NaN\ttab \"Infinity\""}"#);
        assert!(one(r#"{"id":1,"code":5}"#).has_others && !one(r#"{"id":1}"#).has_others);
        for text in ["7", "[]", "[1]", "hello", "{\"id\":1", ""] {
            assert!(read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn an_id_is_a_number_however_it_is_written() {
        let ids = [json!(3), json!("3"), json!(3.0), json!("3.0"), json!(" 3 "), json!(-1), json!(3.5), json!("x")];
        let expect = [Some(3), Some(3), Some(3), Some(3), Some(3), None, None, None];
        assert_eq!(ids.each_ref().map(number), expect);
        let ids = [r#"{"id": 12, "result"#, r#"{"a":"id","id":"7",x"#, r#"{"id":null}"#, "none"].map(id_in);
        assert_eq!(ids, [Some(12), Some(7), None, None]);
    }

    #[test]
    fn an_error_of_any_form_has_a_code_and_a_text() {
        let check =
            |error: Value, code: i64, text: &str| assert_eq!(described(&error), (code, text.to_owned()), "{error}");
        check(json!("out of ink"), 0, "out of ink");
        check(json!({ "code": -32000, "message": null, "data": "out of ink" }), -32000, "out of ink");
        check(json!({ "code": -32000.0, "message": "out of ink" }), -32000, "out of ink");
        check(json!({ "code": "-32000", "message": "out of ink" }), -32000, "out of ink");
        check(json!({ "code": "E_INK", "message": "out of ink" }), 0, "E_INK: out of ink");
        check(json!({ "message": { "why": "ink" } }), 0, r#"{"why":"ink"}"#);
        check(json!({ "code": -32602, "message": "bad", "data": { "at": "x" } }), -32602, r#"bad: {"at":"x"}"#);
        check(json!({ "message": "bad x", "data": "bad x" }), 0, "bad x");
        check(json!(["a", 1]), 0, r#"["a",1]"#);
        check(json!(true), 0, "true");
        check(json!({ "code": 5 }), 5, "the server gave no reason");
        check(json!({ "why": "ink" }), 0, r#"{"why":"ink"}"#);
        check(json!(""), 0, "the server gave no reason");
        let (_, long) = described(&json!({ "message": "m", "data": "d".repeat(MAX_DATA + 9) }));
        assert_eq!(long.len(), MAX_DATA + 3);
    }

    #[test]
    fn a_message_over_several_lines_is_joined_and_what_is_none_holds_up_no_other() {
        let pushed = |lines: &[&str]| {
            let mut assembler = Assembler::default();
            let texts = lines.iter().flat_map(|line| assembler.push(line.as_bytes().to_vec())).collect::<Vec<_>>();
            let texts: Vec<String> = texts.into_iter().map(|text| String::from_utf8(text).unwrap()).collect();
            (texts, assembler.take().map(|held| String::from_utf8(held).unwrap()))
        };
        let check = |lines: &[&str], expect: &[&str], held: Option<&str>| {
            let (texts, left) = pushed(lines);
            assert_eq!(
                (texts, left.as_deref()),
                (expect.iter().map(|it| (*it).to_owned()).collect(), held),
                "{lines:?}"
            );
        };
        check(&["hello", "{\"id\":1}"], &["hello", "{\"id\":1}"], None);
        check(&["{", "  \"a\": \"}\\\"{\"", "}", "x"], &["{\n  \"a\": \"}\\\"{\"\n}", "x"], None);
        check(&["[", "{\"id\":1}", "]"], &["[\n{\"id\":1}\n]"], None);
        check(&["{ starting", "{\"jsonrpc\":\"2.0\"}"], &["{ starting", "{\"jsonrpc\":\"2.0\"}"], None);
        check(&["[info] up", "{\"t\": \"one", "two\"}"], &["[info] up", "{\"t\": \"one\ntwo\"}"], None);
        check(&["\u{feff}{", "  \"id\": 1", "}"], &["\u{feff}{\n  \"id\": 1\n}"], None);
        check(&["{ never"], &[], Some("{ never"));
    }
}
