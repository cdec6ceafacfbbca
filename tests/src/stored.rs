//! Rows that a test writes while no daemon runs, with the checksums that a daemon would give them.

use lingerd::session::state::State;
use lingerd::store::{FOLD, event_sum};
use rusqlite::{Connection, params};

/// Stores an event of kind `kind`; `stream` is the message or the call that it closes.
pub fn add_event(database: &Connection, session: &str, seq: i64, kind: &str, stream: Option<&str>, data: &str) {
    let sql = "INSERT INTO event (session, seq, at, kind, stream, data, sum) VALUES (?, ?, 0, ?, ?, ?, ?)";
    let sum = event_sum(session.as_bytes(), data);
    let mut insert = database.prepare_cached(sql).expect("the table of events");
    insert.execute(params![session, seq, kind, stream, data, sum]).expect("a row");
}

/// Changes the stored state of a session.
pub fn change_state(database: &Connection, session: &str, change: impl FnOnce(&mut State)) {
    let select = format!("SELECT {FOLD} FROM session WHERE id = ?");
    let fold: String = database.query_row(&select, [session], |row| row.get(0)).expect("the session's row");
    let mut state = State::from_stored(&fold).expect("a whole state");
    change(&mut state);
    let (head, rows) = state.to_rows().expect("a state");
    database.execute("UPDATE session SET fold = ? WHERE id = ?", params![head, session]).expect("a row");
    database.execute("DELETE FROM family WHERE session = ?", [session]).expect("the rows of the state");
    for (name, text) in rows.into_iter().filter_map(|(name, text)| Some((name, text?))) {
        let insert = "INSERT INTO family (session, name, data) VALUES (?, ?, ?)";
        database.execute(insert, params![session, name, text]).expect("a row");
    }
}
