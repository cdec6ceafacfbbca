//! Reading what can be read of a session.
//!
//! A session is its events: its state is folded from them again ([`State::apply`]), and whatever else is stored of it follows
//! from both. Each event keeps its number: one that cannot be read gets a `lost` in its place, so that cursors, and the numbers in
//! the state, mean what they meant.
//! The stored state knows what the lost events did. Where it can be read, and it counts on nothing that is lost, the session goes
//! on from it ([`Examined::goes_on`]); else what can be told is folded from the rest, and nothing goes on by itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linger_protocol::event::{Event, EventBody};
use linger_protocol::id::{BlobId, CallId, QuestionId, SessionId};
use linger_protocol::message::{ContentBlock, Role};
use linger_protocol::question::PendingQuestion;
use rusqlite::{Connection, OptionalExtension as _};

use crate::session::recovery;
use crate::session::state::{State, Turn};
use crate::store::event_row::Reading;
use crate::store::read::{self, Page, SessionRow};
use crate::store::{StoreError, write};

/// Events that are read at once, in bytes.
pub(super) const PAGE: usize = 256 << 10;

/// Events of one session that may be lost before what follows them is given up too: each has one in its place.
const MAX_LOST: u64 = 100_000;

/// A session as far as it can be read.
#[derive(Debug, Default)]
pub(crate) struct Examined {
    /// Its row, if it has one that can be read.
    pub(crate) row: Option<SessionRow>,
    /// How many events can be read.
    pub(crate) events: u64,
    /// How many there are known to be.
    pub(crate) known: u64,
    /// The number of the last of which something is known: that it can be read, or that it is lost.
    pub(crate) head: u64,
    /// The events up to there that are lost, first and last of those in a row.
    pub(crate) lost: Vec<(u64, u64)>,
    /// Where it stands: what is stored, if that can be trusted, or what is folded from its events.
    pub(crate) state: State,
    /// Whether the session can go on from that state, whatever is lost.
    pub(crate) goes_on: bool,
    /// The variables of its tools.
    pub(crate) env: BTreeMap<String, String>,
    /// Results of calls that are not in a message yet.
    pub(crate) results: HashMap<CallId, ContentBlock>,
    /// Why not all events are there, if there should be others.
    pub(crate) broken: Option<String>,
    /// What of the rest of it is not as its events have it.
    pub(crate) wrong: Option<String>,
    /// Whether the stored state is lost, or not that of the events.
    pub(crate) stale: bool,
    /// Blobs that its events name and that no row says it uses: given up earlier, or the rows are lost.
    pub(crate) unused: BTreeSet<BlobId>,
    /// The questions that its events ask and leave open.
    asked: BTreeMap<QuestionId, PendingQuestion>,
}

/// Reads a session from its first event on. All of it must be as it is at one moment: in a transaction, if it is in use.
pub(crate) fn examine(connection: &Connection, id: &str, reading: Reading) -> Examined {
    let mut session = Examined::default();
    match read::session(connection, id) {
        Ok(Some(row)) => session.row = Some(row),
        Ok(None) => session.wrong = Some("the row that says where it stands is missing".to_owned()),
        Err(error) => session.wrong = Some(text_of(error)),
    }
    let stored = session.row.as_ref().and_then(|row| State::from_stored(&row.fold));
    let env = session.row.as_ref().and_then(|row| serde_json::from_str(&row.env).ok());
    let has_env = env.is_some();
    session.env = env.unwrap_or_default();
    session.read_events(connection, id, stored.as_ref(), reading);
    if let Some(row) = &session.row
        && session.state.cwd.as_os_str().is_empty()
    {
        // Its first event is lost, and its state too.
        session.state.cwd = row.cwd.clone().into();
        session.state.name = session.state.name.take().or_else(|| row.name.clone());
    }
    session.stale = !has_env || stored.as_ref().is_none_or(|stored| stored.head != session.head);
    session.compare(connection, id, stored.as_ref());
    session.goes_on = session.broken.is_none();
    if let Some(stored) =
        stored.filter(|stored| session.broken.is_some() && stored.head == session.head && session.head == session.known)
    {
        session.trust(stored);
    }
    session
}

impl Examined {
    fn read_events(&mut self, connection: &Connection, id: &str, stored: Option<&State>, reading: Reading) {
        let last = read::last(connection, id);
        let head = stored.map_or(0, |stored| stored.head);
        self.known = last.as_ref().map_or(head, |last| head.max(*last));
        let until = self.known;
        self.broken = last.err().filter(|_| stored.is_none()).map(|error| format!("its end cannot be found: {error}"));
        while self.head < until && self.head - self.events < MAX_LOST {
            let (page, error) = read::page(connection, id, self.head, until, (PAGE, usize::MAX), reading);
            for stored in &page {
                if let Err(text) = self.take(id, &stored.data, stored.seq) {
                    self.broken.get_or_insert(text);
                    self.lose(stored.seq);
                }
            }
            self.unused.extend(blobs(&page).into_iter().filter(|blob| is_unused(connection, id, blob)));
            if let Some(error) = error.filter(|_| page.is_empty()) {
                self.broken.get_or_insert_with(|| text_of(error));
                let last = before_next(connection, id, self.head + 1, until);
                if last - self.events > MAX_LOST {
                    break;
                }
                self.lose(last);
            }
        }
        if self.events == 0 && self.broken.is_none() {
            self.broken = Some("it has no events".to_owned());
        }
    }

    /// Notes what of the rest is not as the events have it.
    fn compare(&mut self, connection: &Connection, id: &str, stored: Option<&State>) {
        let size = format!("SELECT size != {} FROM session WHERE id = ?1", write::SIZE);
        let miscounted: bool = connection.query_row(&size, [id], |row| row.get(0)).unwrap_or(false);
        let Some(row) = &self.row else { return };
        let found_by = |stored: &State| {
            row.state == stored.stored_name() && row.name == stored.name && row.cwd == stored.cwd.to_string_lossy()
        };
        let waits = || {
            read::waiting(connection, id).is_ok_and(|stored| {
                let is_as_asked = |(id, stored): (&QuestionId, &Option<_>)| stored.as_ref() == self.asked.get(id);
                stored.len() == self.asked.len() && stored.iter().all(is_as_asked)
            })
        };
        let text = if self.stale {
            "its state cannot be read, or is not that of its last event"
        } else if !stored.is_some_and(found_by) || !waits() {
            "what it does and what waits for an answer is not written down where it is looked for"
        } else if miscounted {
            UNCOUNTED
        } else {
            return;
        };
        if self.broken.is_none() && stored.is_none() && miscounted {
            // Had it gone on, a call that has run might run again.
            let head = self.head;
            self.broken = Some(format!(
                "its state cannot be read, its size is not that of {head} events, and nobody can tell what came after them"
            ));
        }
        self.wrong = Some(text.to_owned());
    }

    /// Whether this event is lost.
    fn is_lost(&self, seq: u64) -> bool {
        self.lost.iter().any(|(first, last)| (*first..=*last).contains(&seq))
    }

    /// Takes the next events, up to `last`, as lost.
    fn lose(&mut self, last: u64) {
        let first = self.head + 1;
        for seq in first..=last {
            let body = EventBody::Lost { first, last };
            self.state.apply(&Event { body, seq: Some(seq), at: self.state.updated_at, turn: None });
        }
        self.head = last;
        match self.lost.last_mut().filter(|before| before.1 + 1 == first) {
            Some(before) => before.1 = last,
            None => self.lost.push((first, last)),
        }
    }

    /// Takes the state that is stored: it has what the lost events did.
    fn trust(&mut self, mut state: State) {
        // A prompt that waits has its words in its event.
        state.queue.retain(|queued| !self.is_lost(queued.seq));
        let of_turn = |turn: &Turn| {
            let asked = turn.shape.as_ref().is_none_or(|shape| !self.is_lost(shape.seq));
            asked && self.lost.iter().all(|(_, last)| *last <= state.before_turn)
        };
        self.goes_on = state.turn.as_ref().is_none_or(of_turn);
        self.state = state;
    }

    fn take(&mut self, session: &str, data: &str, seq: u64) -> Result<(), String> {
        let event: Event =
            serde_json::from_str(data).map_err(|error| format!("event {seq} cannot be understood: {error}"))?;
        if event.seq != Some(seq) {
            return Err(format!("event {seq} has another number inside"));
        }
        self.state.apply(&event);
        match &event.body {
            EventBody::PermissionRequested { .. } | EventBody::QuestionAsked { .. } => {
                let pending = PendingQuestion::of_event(&SessionId::from(session), &event);
                self.asked.extend(pending.map(|pending| (pending.question.clone(), pending)));
            }
            EventBody::PermissionResolved { permission: question, .. }
            | EventBody::QuestionResolved { question, .. } => drop(self.asked.remove(question)),
            EventBody::SessionCreated { env, .. } if self.env.is_empty() => self.env.clone_from(env),
            EventBody::Message { role: Role::User, .. } => self.results.clear(),
            body => self.results.extend(recovery::result_of(body)),
        }
        (self.events, self.head) = (self.events + 1, seq);
        Ok(())
    }
}

/// What is said of a session whose size or blobs are wrong.
pub(super) const UNCOUNTED: &str =
    "its size, or which images and outputs it uses, is not written down as its events have it";

fn text_of(error: rusqlite::Error) -> String {
    StoreError::from(error).0.to_string()
}

/// Whether no row says that a session uses a blob.
fn is_unused(connection: &Connection, id: &str, blob: &BlobId) -> bool {
    let row = connection.prepare_cached("SELECT 1 FROM blob WHERE session = ? AND hash = ?");
    row.and_then(|mut row| row.exists([id, blob.as_str()])).is_ok_and(|used| !used)
}

/// The number of the event before the next one that can be reached, where `lost` cannot be read.
fn before_next(connection: &Connection, id: &str, lost: u64, until: u64) -> u64 {
    let sql = "SELECT seq FROM event WHERE session = ? AND seq > ? ORDER BY seq LIMIT 1";
    let next = || -> rusqlite::Result<Option<i64>> {
        connection.prepare_cached(sql)?.query_row(rusqlite::params![id, lost as i64], |row| row.get(0)).optional()
    };
    match next() {
        Ok(Some(next)) => (next as u64).saturating_sub(1).clamp(lost, until),
        Ok(None) => until,
        // The way there is lost too; the one after may have another.
        Err(_) => lost,
    }
}

/// The events of a page, as far as they can be understood.
pub(super) fn understood(page: &Page) -> impl Iterator<Item = Event> {
    page.iter().filter_map(|stored| serde_json::from_str(&stored.data).ok())
}

/// The blobs that these events name.
pub(crate) fn blobs(page: &Page) -> BTreeSet<BlobId> {
    fn named(content: &[ContentBlock], found: &mut BTreeSet<BlobId>) {
        for block in content {
            found.extend(block.blob().cloned());
            if let ContentBlock::ToolResult { content, .. } = block {
                named(content, found);
            }
        }
    }
    let mut found = BTreeSet::new();
    for event in understood(page) {
        match event.body {
            EventBody::PromptAccepted { content, .. } | EventBody::Message { content, .. } => {
                named(&content, &mut found)
            }
            EventBody::ToolFinished { content, blob, .. } => {
                named(&content, &mut found);
                found.extend(blob);
            }
            _ => {}
        }
    }
    found
}

/// Sessions that the user has removed, of which there still are events.
pub(super) fn removed(connection: &Connection) -> rusqlite::Result<BTreeSet<String>> {
    let sql = "SELECT session FROM removed WHERE session NOT IN (SELECT id FROM session)";
    connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
}

/// The ids of all sessions that can be found, the latest first where that is known; and whether the table of sessions could be
/// read to its end, so that there are no others.
pub(crate) fn ids(connection: &Connection) -> (Vec<String>, bool) {
    let mut found = Vec::new();
    let mut walk = |sql| -> rusqlite::Result<()> {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            found.push(row.get(0)?);
        }
        Ok(())
    };
    // An error ends a walk: what lies behind it is found page by page. A damaged table may lead in circles.
    let all = walk("SELECT id FROM session NOT INDEXED ORDER BY updated_at DESC LIMIT 1000000").is_ok();
    let _as_far_as_it_goes = walk("SELECT id FROM session INDEXED BY session_updated LIMIT 1000000");
    let _as_far_as_it_goes = walk("SELECT DISTINCT session FROM event INDEXED BY event_seq LIMIT 1000000");
    let mut seen = BTreeSet::new();
    found.retain(|id: &String| seen.insert(id.clone()));
    (found, all)
}
