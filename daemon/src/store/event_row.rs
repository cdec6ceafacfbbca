//! An event's row, and whether it is still what was written.

use rusqlite::Row;

use super::damage::unreadable;
use crate::log::Stored;

/// Consecutive events.
pub type Page = Vec<Stored>;

/// The columns of an event.
pub(crate) const EVENT: &str = "seq, at, kind, stream, data, session, sum";

/// The event of a row. Fails if its checksum is wrong.
pub(crate) fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    let seq = row.get::<_, i64>(0)? as u64;
    let data: String = row.get(4).map_err(|error| unreadable(format!("event {seq} cannot be read: {error}")))?;
    let (session, written): (_, i64) = (row.get_ref(5)?.as_bytes()?, row.get(6)?);
    if written != sum(session, &data) {
        return Err(unreadable(format!(
            "event {seq} cannot be read: it is not what was written, as its checksum says"
        )));
    }
    Ok(Stored { seq, at: row.get::<_, i64>(1)? as u64, kind: row.get(2)?, stream: row.get(3)?, data })
}

/// The checksum of an event.
pub fn sum(session: &[u8], data: &str) -> i64 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(session);
    sum.update(b"\0");
    sum.update(data.as_bytes());
    i64::from(sum.finalize())
}
