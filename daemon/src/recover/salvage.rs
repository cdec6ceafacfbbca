//! Reading what can be read of a session.
//!
//! A session is its events: its state is folded from them ([`State::apply`]), and all other rows follow from both. Each event keeps
//! its number: an unreadable one is replaced by a `lost`, so that cursors and the numbers in the state stay valid.
//! The stored state knows what the lost events did. If it is readable and nothing that it needs is lost, the session continues
//! from it ([`Examined::goes_on`]); otherwise the state is folded from the other events, and nothing continues by itself.
//! A state that the events give and that was not stored so may be what another program wrote: it permits nothing
//! ([`Examined::rebuilt`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linger_protocol::event::{Event, EventBody, MessageAdded, SessionCreated};
use linger_protocol::id::CallId;
use linger_protocol::message::{ContentBlock, Role};
use linger_protocol::path;
use rusqlite::Connection;

use crate::session::state::recovery;
use crate::session::state::{State, Turn};
use crate::store::{StoreError, read, was_empty, write};

/// Bytes of events that are read at once.
pub(super) const PAGE: usize = 256 << 10;

/// The most lost events of one session, each of which gets a `lost`; the events after more of them are given up.
const MAX_LOST: u64 = 100_000;

/// A session as far as it can be read.
#[derive(Debug, Default)]
pub(super) struct Examined {
    /// How many events can be read.
    pub(super) events: u64,
    /// How many it is known to have.
    pub(super) known: u64,
    /// The number of the last event that was read or is lost.
    pub(super) head: u64,
    /// The lost events up to there: the first and the last of each gap.
    pub(super) lost: Vec<(u64, u64)>,
    /// The stored state if it can be trusted, else the fold of its events.
    pub(super) state: State,
    /// Whether the session can continue from that state.
    pub(super) goes_on: bool,
    /// Whether the stored state does not say that what it permits was permitted.
    pub(super) rebuilt: bool,
    /// The variables of its tools.
    pub(super) env: BTreeMap<String, String>,
    /// Results of calls that are not in a message yet.
    pub(super) results: HashMap<CallId, ContentBlock>,
    /// Why events are missing, if any are.
    pub(super) broken: Option<String>,
    /// Why its row or its stored state cannot be used, if they cannot.
    pub(super) wrong: Option<String>,
}

/// Reads a session from its first event on; in a transaction, if the database is in use.
pub(super) fn examine(connection: &Connection, id: &str) -> Examined {
    let mut session = Examined::default();
    let row = read::session(connection, id).unwrap_or_else(|error| {
        session.wrong = Some(StoreError::from(error).0.to_string());
        read::session_alone(connection, id).ok().flatten()
    });
    if row.is_none() {
        session.wrong.get_or_insert_with(|| "its row is missing".to_owned());
    }
    let stored = row.as_ref().and_then(|row| State::from_stored(&row.fold));
    let env = row.as_ref().and_then(|row| serde_json::from_str(&row.env).ok());
    let has_env = env.is_some();
    session.env = env.unwrap_or_default();
    session.read_events(connection, id, stored.as_ref());
    if let Some(row) = row.filter(|_| session.state.identity.cwd.as_os_str().is_empty()) {
        // Its first event and its state are lost.
        session.state.stand_in(path::from_text(&row.cwd), row.name);
    }
    if !has_env || stored.as_ref().is_none_or(|stored| stored.progress.head != session.head) {
        session.wrong.get_or_insert_with(|| "its state cannot be read, or is not that of its last event".to_owned());
    }
    let size = format!("SELECT size = {} FROM session WHERE id = ?1", write::SIZE);
    let is_size_right = || connection.query_row(&size, [id], |row| row.get(0)).unwrap_or(false);
    if session.broken.is_none() && stored.is_none() && !is_size_right() {
        // If it continued, a call that has run might run again.
        let why = session.wrong.as_deref().unwrap_or_default();
        session.broken = Some(format!("{why}, and events after {} may be missing", session.head));
    }
    session.rebuilt = stored
        .as_ref()
        .is_none_or(|stored| stored.progress.head != session.head || !permits_the_same(stored, &session.state));
    session.goes_on = session.broken.is_none() && !(session.rebuilt && has_allowed(&session.state));
    if let Some(stored) =
        stored.filter(|stored| !session.goes_on && [session.head, session.known] == [stored.progress.head; 2])
    {
        session.trust(stored);
    }
    session
}

impl Examined {
    fn read_events(&mut self, connection: &Connection, id: &str, stored: Option<&State>) {
        let last = read::last(connection, id);
        let head = stored.map_or(0, |stored| stored.progress.head);
        self.known = last.as_ref().map_or(head, |last| head.max(*last));
        let until = self.known;
        self.broken = last.err().filter(|_| stored.is_none()).map(|error| format!("its end cannot be found: {error}"));
        while self.head < until && self.head - self.events < MAX_LOST {
            let (page, error) = read::page(connection, id, self.head, until, PAGE, usize::MAX);
            for stored in &page {
                let taken = if was_empty(stored) {
                    Err(format!("event {} is empty: a file name in it could not be written", stored.seq))
                } else {
                    self.take(&stored.data, stored.seq)
                };
                if let Err(text) = taken {
                    self.broken.get_or_insert(text);
                    self.lose();
                }
            }
            if let Some(error) = error.filter(|_| page.is_empty()) {
                self.broken.get_or_insert_with(|| StoreError::from(error).0.to_string());
                self.lose();
            }
        }
        if self.events == 0 && self.broken.is_none() {
            self.broken = Some("it has no events".to_owned());
        }
    }

    /// Whether this event is lost.
    fn is_lost(&self, seq: u64) -> bool {
        self.lost.iter().any(|(first, last)| (*first..=*last).contains(&seq))
    }

    /// Counts the next event as lost.
    fn lose(&mut self) {
        let seq = self.head + 1;
        let body = EventBody::Lost { first: seq, last: seq };
        self.state.apply(&Event { body, seq: Some(seq), at: self.state.progress.updated_at, turn: None });
        self.head = seq;
        match self.lost.last_mut().filter(|gap| gap.1 + 1 == seq) {
            Some(gap) => gap.1 = seq,
            None => self.lost.push((seq, seq)),
        }
    }

    /// Uses the stored state, which has what the lost events did.
    fn trust(&mut self, mut state: State) {
        // The content of a queued prompt is in its event.
        state.retain_prompts(|seq| !self.is_lost(seq));
        let of_turn = |turn: &Turn| {
            let asked = turn.demands.output_schema.as_ref().is_none_or(|asked| !self.is_lost(asked.seq));
            asked && self.lost.iter().all(|(_, last)| *last <= state.progress.before_turn)
        };
        self.goes_on = state.turn.as_ref().is_none_or(of_turn);
        self.rebuilt = false;
        self.state = state;
    }

    fn take(&mut self, data: &str, seq: u64) -> Result<(), String> {
        let event: Event =
            serde_json::from_str(data).map_err(|error| format!("event {seq} cannot be understood: {error}"))?;
        if event.seq != Some(seq) {
            return Err(format!("event {seq} has another number inside"));
        }
        self.state.apply(&event);
        match &event.body {
            EventBody::SessionCreated(SessionCreated { env, .. }) if self.env.is_empty() => self.env.clone_from(env),
            EventBody::Message(MessageAdded { role: Role::User, .. }) => self.results.clear(),
            body => self.results.extend(recovery::result_of(body)),
        }
        (self.events, self.head) = (self.events + 1, seq);
        Ok(())
    }
}

/// Whether both states permit the same.
fn permits_the_same(one: &State, other: &State) -> bool {
    let answers = |state: &State| -> Vec<_> {
        let asked = state.turn.iter().flat_map(|turn| &turn.questions);
        asked.map(|asked| (asked.id.clone(), asked.digest.clone(), asked.answer.clone())).collect()
    };
    let (set, other_set) = (&*one.settings, &*other.settings);
    set.mode == other_set.mode
        && set.grants == other_set.grants
        && set.directories == other_set.directories
        && set.tools == other_set.tools
        && one.daemon == other.daemon
        && answers(one) == answers(other)
}

/// Whether a question has its answer, and the call that it holds up has not begun.
fn has_allowed(state: &State) -> bool {
    let Some(turn) = &*state.turn else { return false };
    let waits = |call: &CallId| turn.calls.iter().any(|it| it.id == *call && !it.started && !it.finished);
    turn.questions.iter().any(|asked| asked.answer.is_some() && asked.call.as_ref().is_none_or(waits))
}

/// The ids of `known` and all other sessions, without those that the user has removed and that still have events.
pub(super) fn sessions(connection: &Connection, mut known: Vec<String>) -> Vec<String> {
    let sql = "SELECT session FROM removed WHERE session NOT IN (SELECT id FROM session)";
    let removed = || -> rusqlite::Result<BTreeSet<String>> {
        connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
    };
    let mut seen = removed().unwrap_or_default();
    known.extend(ids(connection).0);
    known.retain(|id| seen.insert(id.clone()));
    known
}

/// The ids of all sessions that can be found, the latest first where that is known; and whether the table of sessions was read to
/// its end, so that no others exist.
pub(super) fn ids(connection: &Connection) -> (Vec<String>, bool) {
    let mut found = Vec::new();
    let mut walk = |sql| -> rusqlite::Result<()> {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            found.push(row.get(0)?);
        }
        Ok(())
    };
    // An error ends a walk. A damaged table may have a cycle.
    let all = walk("SELECT id FROM session NOT INDEXED ORDER BY updated_at DESC LIMIT 1000000").is_ok();
    let _as_far_as_it_goes = walk("SELECT id FROM session INDEXED BY session_updated LIMIT 1000000");
    let _as_far_as_it_goes = walk("SELECT DISTINCT session FROM event INDEXED BY event_seq LIMIT 1000000");
    let mut seen = BTreeSet::new();
    found.retain(|id: &String| seen.insert(id.clone()));
    (found, all)
}
