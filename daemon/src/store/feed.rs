//! Reading the events of all sessions in the order of their commits.
//!
//! A [`Place`] is the number of an event over all sessions with a mark of which event that is: in another database, such as one that
//! took the place of a damaged one, the same number with the same mark is not found.

use std::collections::{BTreeSet, HashMap};

use linger_protocol::id::{Cursor, SessionId};
use rusqlite::{Connection, OptionalExtension as _, params};
use tokio::sync::watch;

use super::damage::is_damage;
use super::error::StoreError;
use super::event_row::{EVENT, stored};
use super::handle::Store;
use super::read::LARGE;
use super::reader::Lane;
use super::scope::{self, Scope};
use crate::log::Stored;

/// The most rows that one page looks at: a fraction of a millisecond, whatever of them is wanted.
const ROWS: i64 = 512;

/// A position among the events of all sessions: right after one of them, or at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The number of the event; 0 at the beginning.
    n: i64,
    /// The CRC-32 of its session and seq.
    mark: u32,
}

impl Place {
    fn of(n: i64, session: &str, seq: i64) -> Self {
        let mut mark = crc32fast::Hasher::new();
        mark.update(session.as_bytes());
        mark.update(&seq.to_le_bytes());
        Self { n, mark: mark.finalize() }
    }

    /// Parses a cursor; `None` if it is malformed.
    pub fn parse(cursor: &Cursor) -> Option<Self> {
        let Some((n, mark)) = cursor.0.split_once('.') else { return (cursor.0 == "0").then(Self::default) };
        let (n, mark) = (n.parse().ok().filter(|n| *n > 0)?, u32::from_str_radix(mark, 16).ok()?);
        Some(Self { n, mark }).filter(|place| place.cursor() == *cursor)
    }

    /// The number of the event over all sessions; 0 at the beginning.
    pub fn number(self) -> i64 {
        self.n
    }

    /// How many events at most lie between it and an earlier one.
    pub fn distance(self, earlier: Self) -> u64 {
        u64::try_from(self.n - earlier.n).unwrap_or(0)
    }

    /// The position as text for clients.
    pub fn cursor(self) -> Cursor {
        match self.n {
            0 => Cursor("0".to_owned()),
            n => Cursor(format!("{n}.{:08x}", self.mark)),
        }
    }
}

/// Which events are wanted.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only these sessions.
    pub sessions: Option<BTreeSet<SessionId>>,
    /// Only these kinds.
    pub kinds: Option<BTreeSet<String>>,
    /// Only the sessions of this scope, those to come included.
    pub scope: Scope,
}

/// Some events, and how far was read.
#[derive(Debug, Default)]
pub struct FeedPage {
    /// The wanted events, each with the position after it.
    pub events: Vec<(Place, SessionId, Stored)>,
    /// The position after what was looked at.
    pub at: Place,
    /// Whether more may follow.
    pub more: bool,
    /// The size of the next wanted event, if it is large and there was no room for it.
    pub large: Option<usize>,
}

impl Store {
    /// Wakes after each commit with events, and after a removal.
    pub fn grown(&self) -> watch::Receiver<()> {
        self.grown.subscribe()
    }

    /// The position after the newest event.
    pub async fn newest(&self) -> Result<Place, StoreError> {
        self.read(|connection| {
            let newest = connection
                .prepare_cached("SELECT n, session, seq FROM event ORDER BY n DESC LIMIT 1")?
                .query_row([], |row| Ok(Place::of(row.get(0)?, row.get_ref(1)?.as_str()?, row.get(2)?)))
                .optional()?;
            Ok(newest.unwrap_or_default())
        })
        .await
    }

    /// Whether a position was given by this database. That of an event of a removed session is taken for one.
    pub async fn knows(&self, place: Place) -> Result<bool, StoreError> {
        if place.n == 0 {
            return Ok(true);
        }
        self.read(move |connection| {
            let there = connection
                .prepare_cached("SELECT session, seq FROM event WHERE n = ?")?
                .query_row([place.n], |row| Ok(Place::of(place.n, row.get_ref(0)?.as_str()?, row.get(1)?)))
                .optional()?;
            match there {
                Some(there) => Ok(there == place),
                None => connection
                    .prepare_cached(
                        "SELECT ? <= max((SELECT n FROM numbered), (SELECT coalesce(max(n), 0) FROM event))",
                    )?
                    .query_row([place.n], |row| row.get(0)),
            }
        })
        .await
    }

    /// The sessions among these that were removed.
    pub async fn gone(&self, sessions: Vec<SessionId>) -> Result<Vec<SessionId>, StoreError> {
        let sessions = serde_json::json!(sessions).to_string();
        self.read(move |connection| {
            connection
                .prepare_cached("SELECT value FROM json_each(?) WHERE value NOT IN (SELECT id FROM session)")?
                .query_map([sessions], |row| row.get(0).map(SessionId))?
                .collect()
        })
        .await
    }

    /// The event with this number over all sessions, if it is there and can be read. One at a time: each may be large.
    pub async fn numbered(&self, n: i64) -> Result<Option<(SessionId, Stored)>, StoreError> {
        let store = self.clone();
        self.read_in(Lane::Page, move |connection| {
            let session = connection
                .prepare_cached("SELECT session FROM event WHERE n = ?")?
                .query_row([n], |row| row.get(0).map(SessionId))
                .optional()?;
            let Some(session) = session else { return Ok(None) };
            if !is_there(connection, &session)? {
                return Ok(None);
            }
            let event = event(connection, &store, n, &session)?;
            Ok(event.map(|event| (session, event)))
        })
        .await
    }

    /// The wanted events after a position, about `bytes` of them. A large one only by itself, and only with `has_room`. An event
    /// that cannot be read makes its session damaged, and is left out.
    pub async fn feed(
        &self,
        after: Place,
        filter: Filter,
        bytes: usize,
        has_room: bool,
    ) -> Result<FeedPage, StoreError> {
        let store = self.clone();
        self.read_in(Lane::Page, move |connection| page(connection, &store, after, &filter, bytes, has_room)).await
    }
}

fn page(
    connection: &Connection,
    store: &Store,
    after: Place,
    filter: &Filter,
    bytes: usize,
    has_room: bool,
) -> rusqlite::Result<FeedPage> {
    // Which sessions of the page are in scope, as far as that was looked up.
    let mut in_scope: HashMap<SessionId, bool> = HashMap::new();
    let mut page = FeedPage { at: after, ..FeedPage::default() };
    // Without `data`: of what is not wanted it is not read.
    let mut scan = connection
        .prepare_cached("SELECT n, session, seq, kind, octet_length(data) FROM event WHERE n > ? ORDER BY n LIMIT ?")?;
    let mut rows = scan.query(params![after.n, ROWS])?;
    let (mut seen, mut size) = (0, 0);
    while let Some(row) = rows.next()? {
        let (n, session) = (row.get::<_, i64>(0)?, SessionId(row.get(1)?));
        let place = Place::of(n, session.as_str(), row.get(2)?);
        let is_wanted = {
            let kind = row.get_ref(3)?.as_str()?;
            filter.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind))
                && filter.sessions.as_ref().is_none_or(|sessions| sessions.contains(&session))
                && match in_scope.get(&session) {
                    Some(known) => *known,
                    None => {
                        let found = scope::has(connection, &filter.scope, &session)?;
                        in_scope.insert(session.clone(), found);
                        found
                    }
                }
                && is_there(connection, &session)?
        };
        if is_wanted {
            let length = row.get::<_, i64>(4)?.max(0) as usize;
            let is_large = length > LARGE;
            if !page.events.is_empty() && size + length > LARGE {
                page.more = true;
                return Ok(page);
            }
            if is_large && !has_room {
                page.large = Some(length);
                page.more = true;
                return Ok(page);
            }
            if let Some(event) = event(connection, store, n, &session)? {
                size += length;
                page.events.push((place, session, event));
            }
        }
        page.at = place;
        seen += 1;
        if size >= bytes {
            page.more = true;
            return Ok(page);
        }
    }
    page.more = seen == ROWS;
    Ok(page)
}

/// Whether a session was not removed; the rows of one that was are deleted later.
fn is_there(connection: &Connection, session: &SessionId) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM session WHERE id = ?")?.exists([session.as_str()])
}

/// An event by its number; absent if it cannot be read.
fn event(connection: &Connection, store: &Store, n: i64, session: &SessionId) -> rusqlite::Result<Option<Stored>> {
    let read =
        connection.prepare_cached(&format!("SELECT {EVENT} FROM event WHERE n = ?"))?.query_row([n], stored).optional();
    match read {
        Err(error) if is_damage(&error) => {
            store.met(session, &StoreError::from(error));
            Ok(None)
        }
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_comes_back_as_it_was_and_what_is_none_is_refused() {
        let place = Place::of(17, "s1", 3);
        assert_eq!(Place::parse(&place.cursor()), Some(place));
        assert_ne!(place, Place::of(17, "s2", 3));
        assert_eq!(Place::parse(&Cursor("0".to_owned())), Some(Place::default()));
        for text in ["", "x", "-1.00000000", "4", "4.", "4.xyz", "04.00000000", "4.1", "4.00000001 ", "4+m2.0.6", "now"]
        {
            assert_eq!(Place::parse(&Cursor(text.to_owned())), None, "{text}");
        }
    }
}
