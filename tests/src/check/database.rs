//! Reads what the daemon stored, from outside: read-only, with a connection of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

/// One row of the table `event`.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The column `seq`.
    pub seq: u64,
    /// The column `kind`.
    pub kind: String,
    /// The event, byte for byte as it is sent.
    pub raw: String,
    /// The same, read.
    pub event: Value,
}

impl Row {
    /// A row of this event, as the daemon would store it.
    pub fn new(raw: &str) -> Self {
        let event: Value = serde_json::from_str(raw).unwrap_or_default();
        let kind = event["kind"].as_str().unwrap_or_default().to_owned();
        Self { seq: event["seq"].as_u64().unwrap_or_default(), kind, raw: raw.to_owned(), event }
    }

    /// A field that is a string; empty when it is absent.
    pub fn str(&self, field: &str) -> &str {
        self.event[field].as_str().unwrap_or_default()
    }
}

/// The logs of all sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored(pub BTreeMap<String, Vec<Row>>);

impl Stored {
    /// Whether each turn that started has ended.
    pub fn rests(&self) -> bool {
        let count = |rows: &[Row], kind: &str| rows.iter().filter(|row| row.kind == kind).count();
        self.0.values().all(|rows| count(rows, "turn_started") == count(rows, "turn_finished"))
    }
}

/// What the daemon keeps beside the logs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folded {
    /// The column `state` of each session.
    pub states: BTreeMap<String, String>,
    /// Sessions and streams of scratch rows.
    pub scratch: BTreeSet<(String, String)>,
    /// Questions, and their answer once there is one.
    pub questions: BTreeMap<String, Option<String>>,
    /// What each session that was not removed has paid for: answers, and tokens of requests.
    pub paid: BTreeMap<String, (u64, u64)>,
    /// Sessions whose size is not that of their events and blobs, with it.
    pub miscounted: BTreeMap<String, i64>,
}

/// Reads what is folded from the logs in the database at `path`.
pub fn read_folded(path: &Path) -> anyhow::Result<Folded> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(crate::TIMEOUT)?;
    let mut states = connection.prepare("SELECT id, state FROM session")?;
    let mut scratch = connection.prepare("SELECT session, stream FROM scratch")?;
    let mut questions = connection.prepare("SELECT id, answer FROM question")?;
    let mut paid =
        connection.prepare("SELECT session, sum(answers), sum(input) FROM usage WHERE session <> '' GROUP BY 1")?;
    let mut miscounted = connection.prepare(
        "SELECT id, size FROM session
         WHERE size <> (SELECT coalesce(sum(octet_length(data)), 0) FROM event WHERE session = id)
                       + (SELECT coalesce(sum(size), 0) FROM blob WHERE session = id)",
    )?;
    let sums = |row: &rusqlite::Row<'_>| {
        Ok((row.get(0)?, (row.get::<_, i64>(1)?.cast_unsigned(), row.get::<_, i64>(2)?.cast_unsigned())))
    };
    let decision = |row: &rusqlite::Row<'_>| {
        let json: Option<String> = row.get(1)?;
        // One without a name was withdrawn.
        let name =
            |json: String| if json == "null" { "cancelled".to_owned() } else { json.trim_matches('"').to_owned() };
        Ok((row.get(0)?, json.map(name)))
    };
    Ok(Folded {
        states: states.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?,
        scratch: scratch.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?,
        questions: questions.query_map([], decision)?.collect::<rusqlite::Result<_>>()?,
        paid: paid.query_map([], sums)?.collect::<rusqlite::Result<_>>()?,
        miscounted: miscounted.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?,
    })
}

/// Reads the database at `path`.
pub fn read(path: &Path) -> anyhow::Result<Stored> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(crate::TIMEOUT)?;
    let mut stored = Stored::default();
    let mut sessions = connection.prepare("SELECT id FROM session")?;
    for id in sessions.query_map([], |row| row.get::<_, String>(0))? {
        stored.0.insert(id?, Vec::new());
    }
    // Of a session that was removed, what is left is on its way out; the first schema deleted all at once.
    let removed = connection.prepare("SELECT 1 FROM sqlite_master WHERE name = 'removed'")?.exists([])?;
    let there = if removed { "WHERE session NOT IN (SELECT session FROM removed)" } else { "" };
    let mut events =
        connection.prepare(&format!("SELECT session, seq, kind, data FROM event {there} ORDER BY session, seq"))?;
    let mut rows = events.query([])?;
    while let Some(row) = rows.next()? {
        let raw: String = row.get(3)?;
        let event = serde_json::from_str(&raw)?;
        let row_of = Row { seq: row.get::<_, i64>(1)?.try_into()?, kind: row.get(2)?, raw, event };
        stored.0.entry(row.get(0)?).or_default().push(row_of);
    }
    drop(rows);
    share(&connection, &mut stored)?;
    Ok(stored)
}

/// Puts the events that forks share before their own.
fn share(connection: &Connection, stored: &mut Stored) -> anyhow::Result<()> {
    let mut known = connection.prepare("SELECT 1 FROM sqlite_master WHERE name = 'shared'")?;
    if !known.exists([])? {
        return Ok(());
    }
    let mut shared = connection.prepare("SELECT session, source, last FROM shared ORDER BY session, last DESC")?;
    let mut events = connection
        .prepare("SELECT seq, kind, data FROM event WHERE session = ? AND seq > ? AND seq <= ? ORDER BY seq")?;
    let parts = shared.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let parts: Vec<(String, String, i64)> = parts.collect::<rusqlite::Result<_>>()?;
    for (n, (session, source, last)) in parts.iter().enumerate() {
        let before = parts.get(n + 1).filter(|(of, ..)| of == session).map_or(0, |(_, _, last)| *last);
        let mut all = Vec::new();
        let mut rows = events.query(rusqlite::params![source, before, last])?;
        while let Some(row) = rows.next()? {
            let raw: String = row.get(2)?;
            let event = serde_json::from_str(&raw)?;
            all.push(Row { seq: row.get::<_, i64>(0)?.try_into()?, kind: row.get(1)?, raw, event });
        }
        let own = stored.0.entry(session.clone()).or_default();
        own.splice(0..0, all);
    }
    Ok(())
}
