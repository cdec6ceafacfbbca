//! An event's row: how it becomes an event again, and whether it is still what was written.

use std::borrow::Cow;

use rusqlite::Row;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::damage::unreadable;
use crate::log::Stored;

/// What an event says of itself that its row says too.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    seq: u64,
    #[serde(borrow)]
    role: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    call_id: Option<&'a RawValue>,
}

impl Head<'_> {
    /// The stream that the event closes.
    fn stream(&self) -> Option<&str> {
        fn text(value: Option<&RawValue>) -> &str {
            value.map_or("", |value| value.get().trim_matches('"'))
        }
        match &*self.kind {
            "message" if text(self.role) == "assistant" => Some(text(self.message)),
            "tool_finished" => Some(text(self.call_id)),
            _ => None,
        }
    }
}

/// The columns of an event.
pub(crate) const EVENT: &str = "seq, at, kind, stream, data, session, sum";

/// How a row becomes an event.
pub(crate) type Reading = fn(&Row<'_>) -> rusqlite::Result<Stored>;

/// The text of an event, if it is what was written.
fn text(row: &Row<'_>, seq: u64) -> rusqlite::Result<String> {
    let data: String = row.get(4).map_err(|error| unreadable(format!("event {seq} cannot be read: {error}")))?;
    let (session, written): (_, i64) = (row.get_ref(5)?.as_bytes()?, row.get(6)?);
    if written != sum(session, &data) {
        return Err(unreadable(format!(
            "event {seq} cannot be read: it is not what was written, as its checksum says"
        )));
    }
    Ok(data)
}

/// The checksum of an event.
pub fn sum(session: &[u8], data: &str) -> i64 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(session);
    sum.update(b"\0");
    sum.update(data.as_bytes());
    i64::from(sum.finalize())
}

/// An event whose row says of it what it says itself.
pub(crate) fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    let seq = row.get::<_, i64>(0)? as u64;
    let data = text(row, seq)?;
    // It goes over the wire as it is: a client would not understand the line.
    let head: Head<'_> =
        serde_json::from_str(&data).map_err(|error| unreadable(format!("event {seq} cannot be read: {error}")))?;
    let (kind, stream): (String, Option<String>) = (row.get(2)?, row.get(3)?);
    if head.seq != seq || head.kind != kind {
        let (of, other) = (head.kind, head.seq);
        return Err(unreadable(format!("event {seq}, of kind {kind}, says that it is event {other}, of kind {of}")));
    }
    if stream.as_deref().is_some_and(|stream| head.stream() != Some(stream)) {
        return Err(unreadable(format!("event {seq} closes another message or call than it says")));
    }
    Ok(Stored { seq, at: row.get::<_, i64>(1)? as u64, kind, stream, data })
}

/// As [`stored`], taking the event at its own word: its row is only for finding it. Where they do not say the same of the stream
/// that it closes, nobody can tell which is right, and it is found by none.
pub(crate) fn said(row: &Row<'_>) -> rusqlite::Result<Stored> {
    let seq = row.get::<_, i64>(0)? as u64;
    let data = text(row, seq)?;
    let head: Head<'_> = serde_json::from_str(&data).map_err(unreadable)?;
    if head.seq != seq {
        return Err(unreadable(format!("event {seq} says that it is event {}", head.seq)));
    }
    let stream: Option<String> = row.get(3).unwrap_or_default();
    let stream = stream.filter(|stream| head.stream() == Some(stream));
    let (kind, at) = (head.kind.to_string(), row.get::<_, i64>(1).unwrap_or_default() as u64);
    Ok(Stored { seq, at, kind, stream, data })
}
