//! The text of streams that no event has closed yet, so that a daemon that is killed loses nothing that somebody saw.
//!
//! It comes a few bytes at a time, of many sessions at once. Each piece is added to the end of one table (`recent`), so that a
//! commit changes a page or two; by session it would change a page for each. Once there are [`RECENT`] pieces, they are joined
//! and moved to the table by session (`scratch`), and those of streams that are closed by then are left out.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row, params};

use crate::log::{OpenStream, Piece, PieceKind, push_piece};

/// Pieces that are kept one by one, some 400 kB: to move as many takes a few milliseconds.
const RECENT: usize = 4096;

/// How many pieces there are in `recent`.
pub(super) struct Recent(usize);

impl Default for Recent {
    /// What an earlier daemon has left is moved before anything is added.
    fn default() -> Self {
        Self(RECENT)
    }
}

impl Recent {
    /// Makes room for `new` pieces if need be; what this gives counts once the transaction is committed.
    pub(super) fn make_room(&self, connection: &Connection, new: usize) -> rusqlite::Result<Self> {
        if new == 0 || self.0 < RECENT {
            return Ok(Self(self.0 + new));
        }
        settle(connection)?;
        Ok(Self(new))
    }
}

/// Writes a piece down.
pub(super) fn add(connection: &Connection, session: &str, piece: &Piece) -> rusqlite::Result<()> {
    let sql = "INSERT INTO recent (session, stream, block, offset, kind, text) VALUES (?, ?, ?, ?, ?, ?)";
    let Piece { stream, block, offset, kind, text } = piece;
    let offset = offset.cast_signed();
    connection.prepare_cached(sql)?.execute(params![session, stream, block, offset, kind.as_str(), text])?;
    Ok(())
}

/// Moves what is in `recent` to `scratch`.
pub(super) fn settle(connection: &Connection) -> rusqlite::Result<()> {
    let mut sessions: BTreeMap<String, Vec<OpenStream>> = BTreeMap::new();
    let mut recent =
        connection.prepare_cached("SELECT stream, block, offset, kind, text, session FROM recent ORDER BY n")?;
    let mut rows = recent.query([])?;
    while let Some(row) = rows.next()? {
        push_piece(sessions.entry(row.get(5)?).or_default(), None, piece(row)?);
    }
    let closed = "SELECT 1 FROM event WHERE session = ? AND stream = ?";
    let moved = "INSERT OR REPLACE INTO scratch (session, stream, block, offset, kind, text) VALUES (?, ?, ?, ?, ?, ?)";
    let (mut closed, mut moved) = (connection.prepare_cached(closed)?, connection.prepare_cached(moved)?);
    for (session, streams) in &sessions {
        for OpenStream { id, pieces, .. } in streams {
            if closed.exists([session, id])? {
                continue;
            }
            for Piece { block, offset, kind, text, .. } in pieces {
                moved.execute(params![session, id, block, offset.cast_signed(), kind.as_str(), text])?;
            }
        }
    }
    connection.execute("DELETE FROM recent", [])?;
    Ok(())
}

/// The text of a session's open streams, each in order. A database of the first schema has it in one table.
pub(crate) fn pieces(connection: &Connection, session: &str) -> rusqlite::Result<Vec<Piece>> {
    let mut pieces = pieces_in(connection, "scratch", session)?;
    if connection.table_exists(None, "recent")? {
        pieces.extend(pieces_in(connection, "recent", session)?);
    }
    pieces.sort_by(|a, b| (&a.stream, a.block, a.offset).cmp(&(&b.stream, b.block, b.offset)));
    Ok(pieces)
}

fn pieces_in(connection: &Connection, table: &str, session: &str) -> rusqlite::Result<Vec<Piece>> {
    let sql = format!(
        "SELECT stream, block, offset, kind, text FROM {table} AS open WHERE session = ?1
         AND NOT EXISTS (SELECT 1 FROM event WHERE event.session = ?1 AND event.stream = open.stream)"
    );
    connection.prepare_cached(&sql)?.query_map([session], piece)?.collect()
}

fn piece(row: &Row<'_>) -> rusqlite::Result<Piece> {
    let kind: String = row.get(3)?;
    Ok(Piece {
        stream: row.get(0)?,
        block: row.get(1)?,
        offset: row.get::<_, i64>(2)?.cast_unsigned(),
        kind: PieceKind::from_name(&kind),
        text: row.get(4)?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::migrate::{self, SCHEMA};
    use super::*;

    fn database() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&migrate::sql(0, SCHEMA)).unwrap();
        connection
    }

    fn text(stream: &str, offset: u64, text: &str) -> Piece {
        Piece { stream: stream.to_owned(), block: 0, offset, kind: PieceKind::Text, text: text.to_owned() }
    }

    fn count(connection: &Connection, table: &str) -> i64 {
        connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    }

    fn close(connection: &Connection, session: &str, stream: &str) {
        let sql =
            "INSERT INTO event (session, seq, at, kind, stream, data, sum) VALUES (?, 1, 0, 'message', ?, '{}', 0)";
        connection.execute(sql, [session, stream]).unwrap();
    }

    #[test]
    fn what_is_moved_is_joined_and_reads_as_before() {
        let connection = database();
        for offset in 0..10 {
            for session in ["a", "b", "c"] {
                add(&connection, session, &text("m1", offset, "x")).unwrap();
            }
        }
        let output = Piece { kind: PieceKind::Output, ..text("c1", 100, "late") };
        add(&connection, "a", &output).unwrap();
        add(&connection, "a", &Piece { offset: 500, ..output.clone() }).unwrap();
        close(&connection, "b", "m1");
        let joined = vec![output.clone(), Piece { offset: 500, ..output }, text("m1", 0, "xxxxxxxxxx")];
        assert_eq!(pieces(&connection, "a").unwrap().len(), 12);
        settle(&connection).unwrap();
        assert_eq!((count(&connection, "recent"), count(&connection, "scratch")), (0, 4));
        assert_eq!(pieces(&connection, "a").unwrap(), joined);
        assert_eq!(pieces(&connection, "b").unwrap(), []);
        // What comes then follows what was moved.
        add(&connection, "c", &text("m1", 10, "y")).unwrap();
        assert_eq!(pieces(&connection, "c").unwrap(), [text("m1", 0, "xxxxxxxxxx"), text("m1", 10, "y")]);
        close(&connection, "c", "m1");
        assert_eq!(pieces(&connection, "c").unwrap(), [], "what no event has closed yet, and nothing else");
    }

    #[test]
    fn there_are_never_many_more_pieces_than_are_kept_one_by_one() {
        let connection = database();
        let mut recent = Recent::default();
        for offset in 0..RECENT as u64 * 2 + 10 {
            recent = recent.make_room(&connection, 1).unwrap();
            add(&connection, "a", &text("m1", offset, "x")).unwrap();
            assert!(recent.0 <= RECENT);
        }
        assert_eq!((count(&connection, "recent"), count(&connection, "scratch")), (10, 2));
        let whole: String = pieces(&connection, "a").unwrap().into_iter().map(|piece| piece.text).collect();
        assert_eq!(whole.len(), RECENT * 2 + 10);
    }
}
