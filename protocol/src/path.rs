//! Paths in messages: any name that a disk can have, as text that gives it back byte for byte.
//!
//! JSON is UTF-8, and names on Unix are bytes. A path of valid UTF-8 is written as it is. In any other one, each byte that belongs
//! to no character becomes U+FFFD and two hexadecimal digits (`caf\xe9` becomes `caf` U+FFFD `e9`), and so does each byte of a
//! U+FFFD that is part of the name. A reader that only shows the text needs to know nothing of this.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer};
use serde::ser::{SerializeMap as _, Serializer};

/// The sign in front of the digits of a byte: U+FFFD, which decoders put where text cannot be read.
const SIGN: char = char::REPLACEMENT_CHARACTER;

/// The text of a path in a message.
pub fn text(path: &Path) -> Cow<'_, str> {
    match path.to_str() {
        Some(name) if !name.contains(SIGN) => Cow::Borrowed(name),
        _ => Cow::Owned(escaped(path, |text, byte| {
            let _infallible = write!(text, "{SIGN}{byte:02x}");
        })),
    }
}

/// The path of a text in a message. A [`SIGN`] without two digits after it stands for itself.
pub fn from_text(text: &str) -> PathBuf {
    if !text.contains(SIGN) {
        return PathBuf::from(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(SIGN) {
        bytes.extend_from_slice(before.as_bytes());
        // Only bytes that are no ASCII are written so: a separator or a NUL never is.
        rest = match after.get(..2).and_then(byte).filter(|byte| !byte.is_ascii()) {
            Some(byte) => {
                bytes.push(byte);
                after.get(2..).unwrap_or_default()
            }
            None => {
                bytes.extend_from_slice(SIGN.encode_utf8(&mut [0; 4]).as_bytes());
                after
            }
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    PathBuf::from(OsString::from_vec(bytes))
}

/// A path for people, on one line: bytes that are no text are written as `\xe9`, and so are control characters.
pub fn shown(path: &Path) -> String {
    let shown = escaped(path, |text, byte| {
        let _infallible = write!(text, "\\x{byte:02x}");
    });
    if !shown.contains(char::is_control) {
        return shown;
    }
    let each = |sign: char| if sign.is_control() { sign.escape_default().to_string() } else { sign.to_string() };
    shown.chars().map(each).collect()
}

/// The path as text, in which `escape` writes each byte that is none, and those of a [`SIGN`] in the name.
fn escaped(path: &Path, escape: impl Fn(&mut String, u8)) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for sign in chunk.valid().chars() {
            match sign {
                SIGN => sign.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| escape(&mut text, byte)),
                sign => text.push(sign),
            }
        }
        chunk.invalid().iter().for_each(|byte| escape(&mut text, *byte));
    }
    text
}

/// The byte of two lower-case hexadecimal digits.
fn byte(digits: &str) -> Option<u8> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits.bytes().all(is_digit).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// How a field with paths is written and read: `#[serde(with = "crate::path::PathText::<PathBuf>")]`.
pub struct PathText<T>(PhantomData<T>);

impl<T: PathField> PathText<T> {
    /// Writes the field.
    pub fn serialize<S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        value.write(serializer)
    }

    /// Reads the field.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        T::read(deserializer)
    }
}

impl<T: JsonSchema> JsonSchema for PathText<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }

    fn _schemars_private_non_optional_json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::_schemars_private_non_optional_json_schema(generator)
    }

    fn _schemars_private_is_option() -> bool {
        T::_schemars_private_is_option()
    }
}

/// A type of a field with paths.
pub trait PathField: Sized {
    /// Writes the paths as text.
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;

    /// Reads them from text.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

impl PathField for PathBuf {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&text(self))
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| from_text(&text))
    }
}

impl PathField for Vec<PathBuf> {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(|path| text(path)))
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        Ok(texts.iter().map(|text| from_text(text)).collect())
    }
}

impl PathField for Option<PathBuf> {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Some(path) => serializer.serialize_some(&text(path)),
            None => serializer.serialize_none(),
        }
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(|text| from_text(&text)))
    }
}

impl PathField for Option<Vec<PathBuf>> {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Some(paths) => paths.write(serializer),
            None => serializer.serialize_none(),
        }
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = Option::<Vec<String>>::deserialize(deserializer)?;
        Ok(texts.map(|texts| texts.iter().map(|text| from_text(text)).collect()))
    }
}

impl<V: serde::Serialize + serde::de::DeserializeOwned> PathField for BTreeMap<PathBuf, V> {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (path, value) in self {
            map.serialize_entry(&text(path), value)?;
        }
        map.end()
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = BTreeMap::<String, V>::deserialize(deserializer)?;
        Ok(texts.into_iter().map(|(text, value)| (from_text(&text), value)).collect())
    }
}

impl<V: serde::Serialize + serde::de::DeserializeOwned> PathField for Option<BTreeMap<PathBuf, V>> {
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Some(paths) => paths.write(serializer),
            None => serializer.serialize_none(),
        }
    }

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = Option::<BTreeMap<String, V>>::deserialize(deserializer)?;
        Ok(texts.map(|texts| texts.into_iter().map(|(text, value)| (from_text(&text), value)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};

    use super::*;

    fn path(bytes: &[u8]) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(bytes))
    }

    #[test]
    fn names_of_any_bytes_come_back_and_ordinary_ones_are_written_as_they_are() {
        for (bytes, written, seen) in [
            (&b"/a/caf\xc3\xa9.txt"[..], "/a/caf\u{e9}.txt", "/a/caf\u{e9}.txt"),
            (b"caf\xe9.txt", "caf\u{fffd}e9.txt", "caf\\xe9.txt"),
            (b"d\xe9/\xff\xfe", "d\u{fffd}e9/\u{fffd}ff\u{fffd}fe", "d\\xe9/\\xff\\xfe"),
            (b"cut\xe2\x82", "cut\u{fffd}e2\u{fffd}82", "cut\\xe2\\x82"),
            ("a\u{fffd}e9".as_bytes(), "a\u{fffd}ef\u{fffd}bf\u{fffd}bde9", "a\\xef\\xbf\\xbde9"),
            (b"a\nb\x1b[31m", "a\nb\u{1b}[31m", "a\\nb\\u{1b}[31m"),
        ] {
            let name = path(bytes);
            assert_eq!((&*text(&name), &*shown(&name)), (written, seen));
            assert_eq!(from_text(written), name);
        }
        // What another program has decoded stays what it is.
        for text in [
            "a\u{fffd}2fb",
            "\u{fffd}2e\u{fffd}2e",
            "a\u{fffd}00",
            "caf\u{fffd}2024",
            "\u{fffd}",
            "a\u{fffd}E9",
            "\u{fffd}\u{fffd}",
            "\u{fffd}e",
            "\u{fffd}\u{20ac}",
        ] {
            assert_eq!(from_text(text), PathBuf::from(text));
        }
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Fields {
        #[serde(with = "PathText::<PathBuf>")]
        one: PathBuf,
        #[serde(default, skip_serializing_if = "Option::is_none", with = "PathText::<Option<PathBuf>>")]
        none: Option<PathBuf>,
        #[serde(with = "PathText::<Vec<PathBuf>>")]
        list: Vec<PathBuf>,
        #[serde(default, with = "PathText::<Option<Vec<PathBuf>>>")]
        some: Option<Vec<PathBuf>>,
        #[serde(with = "PathText::<BTreeMap<PathBuf, u32>>")]
        map: BTreeMap<PathBuf, u32>,
    }

    #[test]
    fn each_kind_of_field_takes_every_name() {
        let odd = path(b"\xe9\n");
        let (one, list) = (odd.clone(), vec![odd.clone(), path(b"b")]);
        let fields =
            Fields { one, none: None, list: list.clone(), some: Some(list), map: [(odd, 1)].into_iter().collect() };
        let written = serde_json::to_string(&fields).unwrap();
        assert_eq!(serde_json::from_str::<Fields>(&written).unwrap(), fields);
    }

    proptest! {
        #[test]
        fn every_name_comes_back(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let name = path(&bytes);
            prop_assert_eq!(from_text(&text(&name)), name.clone());
            prop_assert!(!shown(&name).contains(char::is_control));
        }

        #[test]
        fn every_text_is_a_path(text in ".{0,40}") {
            let _path = from_text(&text);
        }
    }
}
