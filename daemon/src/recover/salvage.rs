//! Reading what can be read of a session.
//!
//! A session is its events: its state is folded from them again ([`State::apply`]) and whatever else is stored of it follows from
//! both. What counts is which events can be read ([`examine`]); the same walk tells a session of which only something else is
//! damaged, which is made anew. Each event keeps its number: one that cannot be read gets a `lost` in its place, so that
//! cursors, and the numbers that the state has, mean what they meant.
//! The state that is stored knows what the lost events did. Where it can be read, and nothing is lost that it counts on, the session
//! goes on from it ([`Examined::goes_on`]); else what can be told is folded from the rest, and nothing goes on by itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use linger_protocol::event::{Event, EventBody};
use linger_protocol::id::{BlobId, CallId, QuestionId, SessionId};
use linger_protocol::message::{ContentBlock, Role};
use linger_protocol::question::PendingQuestion;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use crate::fault;
use crate::session::state::{State, Turn};
use crate::session::{actor, recovery};
use crate::store::damage::unreadable;
use crate::store::event_row::{Reading, stored};
use crate::store::read::{self, Page, SessionRow, Waiting};
use crate::store::{Fold, Store, StoreError, write};

/// Events that are read at once, in bytes.
pub const PAGE: usize = 256 << 10;

/// Sessions that are looked for: a damaged table may lead in circles.
const MAX_IDS: usize = 1_000_000;

/// Events of one session that may be lost before what follows them is given up too: each has one in its place.
const MAX_LOST: u64 = 100_000;

/// A session as far as it can be read.
#[derive(Debug)]
pub struct Examined {
    /// Its row, as it is stored, if it has one.
    pub row: Result<Option<SessionRow>, String>,
    /// How many events can be read.
    pub events: u64,
    /// How many there are known to be.
    pub known: u64,
    /// The number of the last of which something is known: that it can be read, or that it is lost.
    pub head: u64,
    /// The events up to there that are lost, first and last of those in a row.
    pub lost: Vec<(u64, u64)>,
    /// Where it stands: what is stored, if that can be trusted, or what is folded from its events.
    pub state: State,
    /// Whether the session can go on from that state, whatever is lost.
    pub goes_on: bool,
    /// The variables of its tools.
    pub env: BTreeMap<String, String>,
    /// Results of calls that are not in a message yet.
    pub results: HashMap<CallId, ContentBlock>,
    /// Why not all events are there, if there should be others.
    pub broken: Option<String>,
    /// Whether the state that is stored is not that of the events.
    pub stale: bool,
    /// Whether what starts and lists look at beside the state, which is good, is not what it says.
    pub beside: bool,
    /// Whether the size that is stored is not that of its events and blobs.
    pub miscounted: bool,
    /// Blobs that its events name and that it does not use: they were lost and given up, or only the rows that say so are.
    pub unused: BTreeSet<BlobId>,
    /// The questions that its events ask and leave open.
    asked: BTreeMap<QuestionId, PendingQuestion>,
}

/// A session's state and variables, folded from its events; on a connection of its own, as there may be many.
pub async fn of_store(store: &Store, id: SessionId) -> Result<Examined, StoreError> {
    let (path, session) = (store.path.clone(), id.clone());
    let read = move || {
        fault::store()?;
        let connection = Connection::open_with_flags(&*path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut examined = examine(&connection, session.as_str(), stored);
        examined.broken.take().map_or(Ok(examined), |text| Err(unreadable(text)))
    };
    let examined = tokio::task::spawn_blocking(read).await.map_err(|error| StoreError(error.to_string().into()))?;
    examined.map_err(StoreError::from).inspect_err(|error| store.met(&id, error))
}

/// Reads a session that is in use from its first event on.
pub fn look(connection: &Connection, id: &str) -> Examined {
    examine(connection, id, stored)
}

/// Reads a session from its first event on.
pub(crate) fn examine(connection: &Connection, id: &str, reading: Reading) -> Examined {
    // All of it as it is now: the session may be at work. Without this its state may seem to be older than its events.
    let _now = connection.unchecked_transaction();
    let row = read::session(connection, id).map_err(|error| StoreError::from(error).0.to_string());
    let columns = row.as_ref().ok().and_then(Option::as_ref);
    let fold: Option<State> = columns.and_then(|row| State::from_stored(&row.fold));
    let env: Option<BTreeMap<String, String>> = columns.and_then(|row| serde_json::from_str(&row.env).ok());
    let found_by = columns.map(|row| (row.state.clone(), row.name.clone(), row.cwd.clone()));
    let mut session = Examined {
        row,
        events: 0,
        known: 0,
        head: 0,
        lost: Vec::new(),
        state: State::default(),
        goes_on: false,
        env: env.clone().unwrap_or_default(),
        results: HashMap::new(),
        broken: None,
        stale: false,
        beside: false,
        miscounted: false,
        unused: BTreeSet::new(),
        asked: BTreeMap::new(),
    };
    let last = read::last(connection, id);
    let head = fold.as_ref().map_or(0, |fold| fold.head);
    let until = last.as_ref().map_or(head, |last| head.max(*last));
    session.known = until;
    session.broken = last.err().filter(|_| fold.is_none()).map(|error| format!("its end cannot be found: {error}"));
    while session.head < until && session.known_lost() < MAX_LOST {
        let (page, error) = read::page(connection, id, session.head, until, (PAGE, usize::MAX), reading);
        for stored in &page {
            if let Err(text) = session.take(id, &stored.data, stored.seq) {
                session.broken.get_or_insert(text);
                session.lose(stored.seq);
            }
        }
        session.unused.extend(blobs(&page).into_iter().filter(|blob| is_unused(connection, id, blob)));
        if let Some(error) = error.filter(|_| page.is_empty()) {
            session.broken.get_or_insert_with(|| StoreError::from(error).0.to_string());
            let last = before_next(connection, id, session.head + 1, until);
            if session.known_lost() + (last - session.head) > MAX_LOST {
                break;
            }
            session.lose(last);
        }
    }
    if session.events == 0 && session.broken.is_none() {
        session.broken = Some("it has no events".to_owned());
    }
    if let Ok(Some(row)) = &session.row
        && session.state.cwd.as_os_str().is_empty()
    {
        // Its first event is lost, and its state too.
        session.state.cwd = row.cwd.clone().into();
        session.state.name = session.state.name.take().or_else(|| row.name.clone());
    }
    session.stale = fold.as_ref().is_none_or(|fold| fold.head != session.head) || env.is_none();
    session.beside = !session.stale
        && found_by.zip(fold.as_ref()).is_some_and(|((state, name, cwd), fold)| {
            state != fold.stored_name()
                || name != fold.name
                || cwd != fold.cwd.to_string_lossy()
                || read::waiting(connection, id).is_ok_and(|stored| !are_all(&stored, &session.asked))
        });
    session.miscounted = is_miscounted(connection, id);
    if session.broken.is_none() && fold.is_none() && session.miscounted {
        // Had it gone on, a call that has run might run again.
        let head = session.head;
        session.broken = Some(format!(
            "its state cannot be read, its size is not that of {head} events, and nobody can tell what came after them"
        ));
    }
    session.goes_on = session.broken.is_none();
    if let Some(fold) =
        fold.filter(|fold| session.broken.is_some() && fold.head == session.head && session.head == until)
    {
        session.trust(fold);
    }
    session
}

/// Whether no row says that a session uses a blob.
fn is_unused(connection: &Connection, id: &str, blob: &BlobId) -> bool {
    let row = connection.prepare_cached("SELECT 1 FROM blob WHERE session = ? AND hash = ?");
    row.and_then(|mut row| row.exists([id, blob.as_str()])).is_ok_and(|used| !used)
}

/// Whether its row has another size than its events and blobs.
fn is_miscounted(connection: &Connection, id: &str) -> bool {
    let sql = format!("SELECT size != {} FROM session WHERE id = ?1", write::SIZE);
    connection.query_row(&sql, [id], |row| row.get(0)).unwrap_or(false)
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

impl Examined {
    fn known_lost(&self) -> u64 {
        self.head - self.events
    }

    /// Whether this event is lost.
    pub fn is_lost(&self, seq: u64) -> bool {
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
                let pending = PendingQuestion::of_event(&session.into(), &event);
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

/// What is kept of questions beside the events that speak of them.
pub fn questions(session: &str, page: &Page) -> Vec<Fold> {
    let events = page.iter().filter_map(|stored| serde_json::from_str::<Event>(&stored.data).ok());
    events.filter_map(|event| actor::question_fold(&session.into(), &event)).collect()
}

/// Whether these are what is stored of the questions that wait: all of them, and as they were asked.
pub fn are_all(stored: &Waiting, asked: &BTreeMap<QuestionId, PendingQuestion>) -> bool {
    let is = |(id, stored): (&QuestionId, &Option<PendingQuestion>)| stored.as_ref() == asked.get(id);
    stored.len() == asked.len() && stored.iter().all(is)
}

/// What these events add to their days.
pub fn spent(page: &Page) -> Vec<Fold> {
    let events = page.iter().filter_map(|stored| serde_json::from_str::<Event>(&stored.data).ok());
    events.filter_map(|event| actor::spent(&event)).collect()
}

/// The blobs that these events name.
pub fn blobs(page: &Page) -> BTreeSet<BlobId> {
    fn named(content: &[ContentBlock], found: &mut BTreeSet<BlobId>) {
        for block in content {
            found.extend(block.blob().cloned());
            if let ContentBlock::ToolResult { content, .. } = block {
                named(content, found);
            }
        }
    }
    let mut found = BTreeSet::new();
    for event in page.iter().filter_map(|stored| serde_json::from_str::<Event>(&stored.data).ok()) {
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

/// The ids of all sessions that can be found, by every way there is to them; the latest first where that is known.
pub fn ids(connection: &Connection) -> Vec<String> {
    all_ids(connection).0
}

/// The same, and whether the table of sessions could be read to its end, so that there are no others.
pub fn all_ids(connection: &Connection) -> (Vec<String>, bool) {
    let (mut found, mut all) = (Vec::new(), false);
    let ways = [
        "SELECT id FROM session INDEXED BY session_updated ORDER BY updated_at DESC",
        "SELECT id FROM session INDEXED BY session_updated ORDER BY updated_at",
        "SELECT id FROM session NOT INDEXED ORDER BY id",
        "SELECT id FROM session NOT INDEXED ORDER BY id DESC",
    ];
    for way in ways {
        // An error ends this way; what lies behind it is found from the other end.
        let mut walk = || -> rusqlite::Result<bool> {
            let mut statement = connection.prepare(way)?;
            let mut rows = statement.query([])?;
            let mut whole = true;
            for _ in 0..MAX_IDS {
                let Some(row) = rows.next()? else { return Ok(whole) };
                let id = row.get::<_, String>(0);
                whole &= id.is_ok();
                found.extend(id);
            }
            Ok(false)
        };
        // The index may be whole where the table is not, and the other way round.
        all |= walk().unwrap_or(false) && way.contains("NOT INDEXED");
    }
    for (next, start) in [
        ("SELECT session FROM event WHERE session > ? ORDER BY session LIMIT 1", ""),
        ("SELECT session FROM event WHERE session < ? ORDER BY session DESC LIMIT 1", "\u{10ffff}"),
    ] {
        let (mut at, mut met) = (start.to_owned(), BTreeSet::new());
        let next_id = |at: &str| -> rusqlite::Result<String> {
            connection.prepare_cached(next)?.query_row([at], |row| row.get(0))
        };
        while met.len() < MAX_IDS
            && let Ok(id) = next_id(&at)
            && met.insert(id.clone())
        {
            at.clone_from(&id);
            found.push(id);
        }
    }
    let mut seen = BTreeSet::new();
    found.retain(|id| seen.insert(id.clone()));
    (found, all)
}
