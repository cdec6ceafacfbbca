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
    let at = row.get::<_, i64>(1)? as u64;
    let data = if data.is_empty() { stand_in(seq, at) } else { data };
    Ok(Stored { seq, at, kind: row.get(2)?, stream: row.get(3)?, data })
}

/// The event that is read where an earlier version stored an empty one, because it could not encode a file name. The column `kind`
/// still has the kind of the one that is missing.
fn stand_in(seq: u64, at: u64) -> String {
    format!("{{\"kind\":\"lost\",\"first\":{seq},\"last\":{seq},\"seq\":{seq},\"at\":{at}}}")
}

/// Whether an event was stored empty.
pub fn was_empty(stored: &Stored) -> bool {
    stored.kind != "lost" && stored.data == stand_in(stored.seq, stored.at)
}

/// The checksum of an event.
pub fn sum(session: &[u8], data: &str) -> i64 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(session);
    sum.update(b"\0");
    sum.update(data.as_bytes());
    i64::from(sum.finalize())
}
