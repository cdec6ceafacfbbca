//! The arguments of a call as text while they stream: canonical JSON, piece by piece.
//!
//! A model writes JSON with its own blanks, escapes and numbers, and the log stores a value. So that a client that reads along sees
//! the same text as one that gets it cut from the stored message, each piece is rewritten as `serde_json` writes the value.
//! Where what the model writes stops being a JSON object, the text stops. Only an object that has one key twice has a text that
//! differs from its value's.
//! Pure; it needs no more memory than the longest number, and a byte for each open bracket.

use std::fmt::Write as _;

use serde_json::Value;

/// How every text begins: a call has an object, and is announced with this before any of its arguments came.
pub const BEGIN: &str = "{";

/// The most bytes of a name that is shown while its call streams; providers take 64.
const MAX_NAME: usize = 128;

/// The most bytes of a number or literal.
const MAX_TOKEN: usize = 512;

/// The most open brackets; `serde_json` reads no more either.
const MAX_DEPTH: usize = 128;

/// Whether a call of this name is shown while it streams.
pub fn is_shown(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME
}

/// The whole text of a call with these arguments.
pub fn of(input: &Value) -> String {
    match input {
        Value::Object(_) => input.to_string(),
        Value::String(raw) => {
            let mut text = BEGIN.to_owned();
            CallText::default().push(raw, &mut text);
            text
        }
        _ => BEGIN.to_owned(),
    }
}

/// Rewrites the arguments of one call.
#[derive(Debug, Default)]
pub struct CallText {
    at: At,
    /// The open brackets, innermost last.
    open: Vec<Bracket>,
    /// A number or literal, or the digits of an escape.
    token: String,
    /// The first half of a character that takes two escapes.
    high: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bracket {
    Object,
    Array,
}

/// The part of an object that is expected next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// The first brace.
    #[default]
    Start,
    /// A key, or the end of an empty object.
    FirstKey,
    Key,
    Colon,
    /// A value, or the end of an empty array.
    FirstItem,
    Value,
    /// The rest of a number or literal.
    Token,
    /// The rest of a string, which may be a key.
    String(bool),
    Escape(bool),
    Digits(bool),
    /// A comma or a closing bracket.
    Next,
    /// Nothing: the object is complete.
    End,
    /// It is no object; nothing more is shown.
    Broken,
}

impl CallText {
    /// Takes a piece of what the model writes, and adds to `out` what follows [`BEGIN`] of it.
    pub fn push(&mut self, piece: &str, out: &mut String) {
        for c in piece.chars() {
            if self.at == At::Broken {
                return;
            }
            if self.step(c, out).is_none() {
                self.at = At::Broken;
            }
        }
    }

    /// `None` if it is no JSON.
    fn step(&mut self, c: char, out: &mut String) -> Option<()> {
        match self.at {
            At::String(is_key) => return self.in_string(c, is_key, out),
            At::Escape(is_key) => return self.escape(c, is_key, out),
            At::Digits(is_key) => return self.digit(c, is_key, out),
            At::Token if c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.') => {
                self.token.push(c);
                return (self.token.len() <= MAX_TOKEN).then_some(());
            }
            At::Token => {
                let value: Value = serde_json::from_str(&std::mem::take(&mut self.token)).ok()?;
                out.push_str(&value.to_string());
                self.at = At::Next;
            }
            _ => {}
        }
        if matches!(c, ' ' | '\t' | '\n' | '\r') {
            return Some(());
        }
        self.at = match (self.at, c) {
            // It is in `BEGIN`.
            (At::Start, '{') => {
                self.open.push(Bracket::Object);
                At::FirstKey
            }
            (At::FirstKey | At::Key, '"') => self.quote(true, out),
            (At::Colon, ':') => {
                out.push(':');
                At::Value
            }
            (At::Value | At::FirstItem, '"') => self.quote(false, out),
            (At::Value | At::FirstItem, '{' | '[') if self.open.len() < MAX_DEPTH => {
                out.push(c);
                let is_object = c == '{';
                self.open.push(if is_object { Bracket::Object } else { Bracket::Array });
                if is_object { At::FirstKey } else { At::FirstItem }
            }
            (At::Next | At::FirstKey, '}') => self.close(Bracket::Object, c, out)?,
            (At::Next | At::FirstItem, ']') => self.close(Bracket::Array, c, out)?,
            (At::Next, ',') => {
                out.push(',');
                if self.open.last() == Some(&Bracket::Object) { At::Key } else { At::Value }
            }
            (At::Value | At::FirstItem, '-' | '0'..='9' | 't' | 'f' | 'n') => {
                self.token.push(c);
                At::Token
            }
            _ => return None,
        };
        Some(())
    }

    fn quote(&self, is_key: bool, out: &mut String) -> At {
        out.push('"');
        At::String(is_key)
    }

    fn close(&mut self, bracket: Bracket, c: char, out: &mut String) -> Option<At> {
        if self.open.pop() != Some(bracket) {
            return None;
        }
        out.push(c);
        Some(if self.open.is_empty() { At::End } else { At::Next })
    }

    fn in_string(&mut self, c: char, is_key: bool, out: &mut String) -> Option<()> {
        match c {
            '\\' => self.at = At::Escape(is_key),
            '\0'..='\x1f' => return None,
            '"' => {
                self.lone(out);
                out.push('"');
                self.at = if is_key { At::Colon } else { At::Next };
            }
            c => {
                self.lone(out);
                out.push(c);
            }
        }
        Some(())
    }

    fn escape(&mut self, c: char, is_key: bool, out: &mut String) -> Option<()> {
        self.at = At::String(is_key);
        let meant = match c {
            'u' => {
                self.at = At::Digits(is_key);
                return Some(());
            }
            '"' | '\\' | '/' => c,
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            _ => return None,
        };
        self.lone(out);
        character(meant, out);
        Some(())
    }

    fn digit(&mut self, c: char, is_key: bool, out: &mut String) -> Option<()> {
        self.token.push(char::from_digit(c.to_digit(16)?, 16)?);
        if self.token.len() < 4 {
            return Some(());
        }
        let unit = u16::from_str_radix(&std::mem::take(&mut self.token), 16).ok()?;
        self.at = At::String(is_key);
        if let (Some(high), 0xdc00..=0xdfff) = (self.high, unit) {
            self.high = None;
            let pair = char::decode_utf16([high, unit]).next()?.ok()?;
            character(pair, out);
            return Some(());
        }
        self.lone(out);
        match unit {
            0xd800..=0xdbff => self.high = Some(unit),
            // As in the value: neither has a place in a text.
            0 | 0xdc00..=0xdfff => out.push('\u{fffd}'),
            unit => character(char::from_u32(u32::from(unit))?, out),
        }
        Some(())
    }

    /// Half a character, whose other half did not come.
    fn lone(&mut self, out: &mut String) {
        if self.high.take().is_some() {
            out.push('\u{fffd}');
        }
    }
}

/// Writes a character of a string as `serde_json` does.
fn character(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        // Writing to a string cannot fail.
        '\0'..='\x1f' => _ = write!(out, "\\u{:04x}", u32::from(c)),
        c => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::wire::parse_arguments;
    use super::*;

    /// The text of what a model wrote, in pieces of `size` characters.
    fn streamed(raw: &str, size: usize) -> String {
        let (mut text, mut out) = (CallText::default(), BEGIN.to_owned());
        let chars: Vec<char> = raw.chars().collect();
        chars.chunks(size).for_each(|piece| text.push(&piece.iter().collect::<String>(), &mut out));
        out
    }

    #[test]
    fn what_streams_is_the_text_of_the_value() {
        fn check(raw: &str, expect: &str) {
            for size in [1, 2, 7, 1000] {
                assert_eq!(streamed(raw, size), expect, "{raw}");
            }
            assert_eq!(of(&parse_arguments(raw)), expect, "{raw}");
        }
        check("{}", "{}");
        check(" { \n} ", "{}");
        check(
            r#"{"path": "a.txt", "n" : [ 1 , -2.50, 1e2, true,null ,[], {}]}"#,
            r#"{"path":"a.txt","n":[1,-2.5,100.0,true,null,[],{}]}"#,
        );
        check(r#"{"a":"\u00e4\/\"\n\u0001\ud83d\ude00 \\"}"#, "{\"a\":\"ä/\\\"\\n\\u0001😀 \\\\\"}");
        check(r#"{"a":"\ud83dx\ude00\u0000\ud83d"}"#, "{\"a\":\"\u{fffd}x\u{fffd}\u{fffd}\u{fffd}\"}");
        check(
            r#"{"big":123456789012345678901234567890,"z":-0}"#,
            &json!({"big": 123456789012345678901234567890u128 as f64, "z": -0.0}).to_string(),
        );
        // What is no object.
        check(r#"{"path": "half"#, r#"{"path":"half"#);
        check(r#"{"n": 12"#, r#"{"n":"#);
        check(r#"{"a": 1} x"#, r#"{"a":1}"#);
        check("{\"a\": \"tab\there\"}", r#"{"a":"tab"#);
        check("{'a': 1}", "{");
        check("[1]", "{");
        check("no", "{");
    }

    #[test]
    fn it_begins_alike_for_what_becomes_an_empty_object() {
        for raw in ["", "  ", "null"] {
            assert!(of(&parse_arguments(raw)).starts_with(&streamed(raw, 1)));
        }
        assert_eq!(of(&json!([1])), BEGIN);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<String>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(|n| json!(n)),
            any::<bool>().prop_map(Value::from),
            Just(Value::Null),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4).prop_map(|fields| json!(fields)),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_object_streams_as_its_value(
            fields in prop::collection::btree_map(any::<String>(), value(), 0..4),
            size in 1usize..9,
            is_pretty in any::<bool>(),
        ) {
            let value = json!(fields);
            let raw = if is_pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
            // NUL is replaced in both.
            prop_assert_eq!(streamed(&raw, size), of(&parse_arguments(&raw)));
        }

        #[test]
        fn anything_streams_without_a_panic_and_the_same_in_any_pieces(raw in r#"[{}\[\]",:\\ a-u0-9.\-]{0,40}"#, size in 1usize..9) {
            prop_assert_eq!(streamed(&raw, size), streamed(&raw, 1000));
        }
    }
}
