//! A message of a client before it is known what it asks for: JSON-RPC 2.0, read without taking apart more than is needed.

use std::borrow::Cow;

use jsonrpsee::types::{Id, Params};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::MAX_BATCH;
use super::misfit::wrong_field;
use super::serve::INVALID_PARAMS;
use crate::error::ErrorData;

/// The requests of a batch; more than there may be are not even looked at.
pub(super) struct Entries<'a>(pub(super) Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Batch;
        impl<'de> Visitor<'de> for Batch {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "a batch")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = seq.next_element()? {
                    entries.push(entry);
                    if entries.len() > MAX_BATCH {
                        break;
                    }
                }
                let right = (1..=MAX_BATCH).contains(&entries.len());
                right.then_some(Entries(entries)).ok_or_else(|| A::Error::custom("a wrong number of requests"))
            }
        }
        deserializer.deserialize_seq(Batch)
    }
}

/// A request before it is known to be one.
#[derive(Deserialize)]
#[serde(expecting = "a request, which is an object")]
pub(super) struct Envelope<'a> {
    #[serde(borrow)]
    pub(super) jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) params: Option<&'a RawValue>,
}

/// Tells `"id": null`, which wants an answer, from no id, which wants none.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The longest number that may be an id, in bytes; a double has 24 at most.
const MAX_NUMBER: usize = 64;

/// Whose answer it is.
pub(super) enum AnswerTo {
    /// A request with an id that jsonrpsee knows: a string, a whole number that is not negative, null.
    Known(Id<'static>),
    /// A request whose id is any other number.
    Number(Box<RawValue>),
}

impl From<Id<'static>> for AnswerTo {
    fn from(id: Id<'static>) -> Self {
        Self::Known(id)
    }
}

impl AnswerTo {
    /// From an id as it stands in the request; nothing if it can be none.
    pub(super) fn of(id: &RawValue) -> Option<Self> {
        let text = id.get();
        match serde_json::from_str::<Id<'_>>(text) {
            Ok(id) => Some(Self::Known(id.into_owned())),
            Err(_) if text.len() <= MAX_NUMBER && text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
                Some(Self::Number(id.to_owned()))
            }
            Err(_) => None,
        }
    }

    /// The id under which jsonrpsee answers.
    pub(super) fn stand_in(&self) -> Id<'static> {
        match self {
            Self::Known(id) => id.clone(),
            Self::Number(_) => Id::Null,
        }
    }

    /// The answer under its id.
    pub(super) fn put_into(self, json: Box<RawValue>) -> Box<RawValue> {
        #[derive(Deserialize, Serialize)]
        struct Answer<'a> {
            #[serde(borrow)]
            jsonrpc: &'a RawValue,
            #[serde(borrow)]
            id: &'a RawValue,
            #[serde(borrow, skip_serializing_if = "Option::is_none")]
            result: Option<&'a RawValue>,
            #[serde(borrow, skip_serializing_if = "Option::is_none")]
            error: Option<&'a RawValue>,
        }
        let Self::Number(id) = self else { return json };
        let answer = serde_json::from_str::<Answer<'_>>(json.get());
        let answer = answer.and_then(|answer| serde_json::value::to_raw_value(&Answer { id: &id, ..answer }));
        answer.unwrap_or(json)
    }
}

/// The params as jsonrpsee takes them: an array with the one struct.
pub(super) fn params(raw: Option<&RawValue>) -> Option<Params<'static>> {
    let text = match raw.map(RawValue::get) {
        None | Some("null" | "[]") => "[{}]".to_owned(),
        Some(object) if object.starts_with('{') => format!("[{object}]"),
        Some(array) if array.starts_with('[') => array.to_owned(),
        Some(_) => return None,
    };
    Some(Params::new(Some(&text)).into_owned())
}

/// An answer whose error says what is wrong as all others do: jsonrpsee puts what it found wrong with parameters into `data`.
/// `params` are those of the request, unless they are large.
pub(super) fn plain(json: Box<RawValue>, params: Option<&str>) -> Box<RawValue> {
    #[derive(Deserialize)]
    struct Answer {
        id: Value,
        error: Wrong,
    }
    #[derive(Deserialize)]
    struct Wrong {
        data: String,
    }
    let Ok(Answer { id, error: Wrong { data } }) = serde_json::from_str(json.get()) else { return json };
    let hint = "`linger help schema` has the parameters of each method".to_owned();
    let (what, path) = wrong_field(params.unwrap_or_default(), &data);
    let data = ErrorData { hint: Some(hint), path: path.filter(|_| params.is_some()), ..ErrorData::default() };
    let error = json!({ "code": INVALID_PARAMS, "message": in_words(&what), "data": data });
    let answer = json!({ "jsonrpc": "2.0", "id": id, "error": error });
    serde_json::value::to_raw_value(&answer).unwrap_or(json)
}

/// Serde's complaint, without the names that types have in here.
fn in_words(found: &str) -> String {
    let Some((before, rest)) = found.split_once("struct ") else { return found.to_owned() };
    let name = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
    format!("{before}an object{}", rest.get(name..).unwrap_or_default())
}
