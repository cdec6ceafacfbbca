//! The log of one session as its readers see it: the committed tail, the open streams, and a wake-up.
//!
//! The actor numbers events and queues them at the store; the store's writing thread publishes them here after the commit.
//! Readers are cursors: each copies what follows its position at its own pace, so a slow one holds only a position. They read
//! older events from the store.
//! The log does no I/O and knows no session, store or client.

pub mod cursor;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use linger_protocol::id::{CallId, SessionId, TurnId};
use linger_protocol::message::{HostedPart, HostedTool};
use tokio::sync::{Notify, watch};

use crate::fault;

/// How much of the log is kept in memory for readers that are nearly up to date, in bytes; the store has the rest.
const TAIL: usize = 32 << 10;

/// How much of a running tool's output is kept for readers, in bytes; they miss older output.
pub const OUTPUT_KEPT: usize = 64 << 10;

/// An event as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its number in the session.
    pub seq: u64,
    /// Unix milliseconds.
    pub at: u64,
    /// The event kind of the wire.
    pub kind: String,
    /// The message or call whose stream it closes.
    pub stream: Option<String>,
    /// The event as JSON, as sent to clients.
    pub data: String,
}

/// A call that the model writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallHead {
    /// The id that it will have.
    pub id: CallId,
    /// The tool.
    pub name: String,
}

/// The kind of a piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// A model's text.
    Text,
    /// A model's thinking.
    Thinking,
    /// The arguments of a call.
    Call(Arc<CallHead>),
    /// A call or result of a tool that the provider runs.
    Hosted(HostedTool, HostedPart),
    /// A tool's output.
    Output,
}

/// The names of hosted kinds in the database.
const HOSTED: [(&str, HostedTool, HostedPart); 6] = [
    ("web_search call", HostedTool::WebSearch, HostedPart::Call),
    ("web_search result", HostedTool::WebSearch, HostedPart::Result),
    ("web_search error", HostedTool::WebSearch, HostedPart::Error),
    ("code_execution call", HostedTool::CodeExecution, HostedPart::Call),
    ("code_execution result", HostedTool::CodeExecution, HostedPart::Result),
    ("code_execution error", HostedTool::CodeExecution, HostedPart::Error),
];

impl PieceKind {
    /// The name in the database.
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Text => "text".into(),
            Self::Thinking => "thinking".into(),
            Self::Call(call) => format!("call {} {}", call.id, call.name).into(),
            Self::Hosted(tool, part) => {
                let known = HOSTED.iter().find(|(_, of, is)| (of, is) == (tool, part));
                known.map_or("hosted", |(name, ..)| name).into()
            }
            Self::Output => "output".into(),
        }
    }

    /// The kind of the arguments of a call.
    pub fn call(id: CallId, name: &str) -> Self {
        Self::Call(Arc::new(CallHead { id, name: name.to_owned() }))
    }

    /// The kind of a name in the database; text if unknown.
    pub fn from_name(name: &str) -> Self {
        match name {
            "thinking" => Self::Thinking,
            "output" => Self::Output,
            "hosted" => Self::Hosted(HostedTool::Unknown, HostedPart::Unknown),
            name if name.starts_with("call ") => {
                let mut words = name.splitn(3, ' ').skip(1);
                let mut word = || words.next().unwrap_or_default();
                Self::call(CallId(word().to_owned()), word())
            }
            name => match HOSTED.iter().find(|(known, ..)| *known == name) {
                Some((_, tool, part)) => Self::Hosted(*tool, *part),
                None => Self::Text,
            },
        }
    }
}

/// A piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The id of the message or call.
    pub stream: String,
    /// The index of the content block; 0 for a tool's output.
    pub block: u32,
    /// Where it begins in its block, in bytes.
    pub offset: u64,
    /// The kind of its text.
    pub kind: PieceKind,
    /// A part of the block's text.
    pub text: String,
}

impl Piece {
    /// Where it ends in its block, in bytes.
    pub fn end(&self) -> u64 {
        self.offset + self.text.len() as u64
    }
}

/// A stream that no event has closed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenStream {
    /// The id of the message or call.
    pub id: String,
    /// Absent outside a turn.
    pub turn: Option<TurnId>,
    /// Its pieces in order: all of a message, the latest [`OUTPUT_KEPT`] bytes of a tool's output.
    pub pieces: VecDeque<Piece>,
    /// How many bytes at its end are queued at the store and not committed; readers do not see them.
    pub uncommitted: usize,
    /// Whether the event that closes it is queued at the store.
    pub closing: bool,
}

impl OpenStream {
    /// An empty stream.
    pub fn new(id: String, turn: Option<&TurnId>) -> Self {
        Self { id, turn: turn.cloned(), pieces: VecDeque::new(), uncommitted: 0, closing: false }
    }

    /// The committed pieces, each with the committed part of its text.
    pub fn committed(&self) -> impl Iterator<Item = (&Piece, &str)> {
        let mut hidden = self.uncommitted;
        // Only the last pieces can be partly uncommitted.
        let mut ends = Vec::new();
        for piece in self.pieces.iter().rev() {
            if hidden == 0 {
                break;
            }
            ends.push(piece.text.len().saturating_sub(hidden));
            hidden = hidden.saturating_sub(piece.text.len());
        }
        let whole = self.pieces.len() - ends.len();
        let ends = std::iter::repeat_n(usize::MAX, whole).chain(ends.into_iter().rev());
        let shown = self.pieces.iter().zip(ends);
        shown.map(|(piece, end)| (piece, piece.text.get(..end.min(piece.text.len())).unwrap_or_default()))
    }

    /// Where a block ends, in bytes.
    fn end(&self, block: u32) -> u64 {
        self.pieces.iter().rev().find(|piece| piece.block == block).map_or(0, Piece::end)
    }

    /// Appends a piece, joining it with the last where possible.
    pub fn push(&mut self, piece: Piece) {
        match self.pieces.back_mut() {
            Some(last) if last.block == piece.block && last.end() == piece.offset && !last.is_full() => {
                last.text.push_str(&piece.text);
            }
            _ => self.pieces.push_back(piece),
        }
        let output = |piece: &Piece| piece.kind == PieceKind::Output;
        while self.pieces.len() > 1
            && self.pieces.front().is_some_and(output)
            && self.pieces.iter().map(|piece| piece.text.len()).sum::<usize>() > OUTPUT_KEPT
        {
            self.pieces.pop_front();
        }
    }
}

impl Piece {
    /// Output is kept in pieces of this size, so that old ones can be dropped.
    fn is_full(&self) -> bool {
        self.kind == PieceKind::Output && self.text.len() >= OUTPUT_KEPT / 4
    }
}

/// Adds `piece` to its stream, which is opened if needed.
pub fn push_piece(streams: &mut Vec<OpenStream>, turn: Option<&TurnId>, piece: Piece) {
    match streams.iter_mut().find(|stream| stream.id == piece.stream) {
        Some(stream) => stream.push(piece),
        None => {
            let mut stream = OpenStream::new(piece.stream.clone(), turn);
            stream.push(piece);
            streams.push(stream);
        }
    }
}

/// Whether a log takes writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It takes writes.
    #[default]
    Ok,
    /// A write failed, so seqs that the actor assigned do not exist: writes are refused until [`Log::retry`].
    Failed {
        /// The reason for readers; absent if it is permanent.
        why: Option<Arc<str>>,
    },
    /// The actor has reloaded the stored state, and its first write is under way.
    Retrying {
        /// The reason of the last failure, still shown to readers.
        why: Option<Arc<str>>,
    },
    /// The session was removed: writes are refused, and readers end.
    Removed,
    /// The stored session is damaged: writes are refused, and readers end.
    Damaged,
}

/// The end of the log, in memory.
#[derive(Debug, Default)]
pub struct Tail {
    /// The seq of the last committed event.
    pub head: u64,
    /// The last committed events, in order and without a gap up to `head`.
    pub events: VecDeque<Arc<Stored>>,
    /// The open streams: the only copy of their text. The actor adds pieces as it queues them at the store; readers see
    /// committed ones.
    pub streams: Vec<OpenStream>,
    /// The size of `events`, in bytes.
    bytes: usize,
    health: Health,
}

/// One session's log; shared by its actor, the store and its readers.
#[derive(Debug)]
pub struct Log {
    /// The owner of the events.
    pub session: SessionId,
    tail: Mutex<Tail>,
    changed: watch::Sender<()>,
    /// Each attached terminal of a person holds a receiver.
    people: watch::Sender<()>,
    /// Wakes the actor when writes are refused.
    refused: Notify,
}

impl Log {
    /// A log that ends at `head` with these streams open.
    pub fn new(session: SessionId, head: u64, streams: Vec<OpenStream>) -> Arc<Self> {
        let tail = Mutex::new(Tail { head, streams, ..Tail::default() });
        let (changed, people) = (watch::channel(()).0, watch::channel(()).0);
        Arc::new(Self { session, tail, changed, people, refused: Notify::new() })
    }

    /// Locks the tail; never held across an await.
    pub fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Wakes when the log has grown or its health has changed.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The number of readers.
    pub fn readers(&self) -> usize {
        self.changed.receiver_count()
    }

    /// Waits until there are no readers.
    pub async fn unwatched(&self) {
        self.changed.closed().await;
    }

    /// A person reads along while this lives.
    pub fn person(&self) -> watch::Receiver<()> {
        self.people.subscribe()
    }

    /// How many terminals of people are attached.
    pub fn people(&self) -> usize {
        self.people.receiver_count()
    }

    /// Waits until no terminal of a person is attached.
    pub async fn unattended(&self) {
        self.people.closed().await;
    }

    /// Makes committed pieces and events visible. Readers look at them once [`Self::wake`] is called, or a little earlier.
    pub fn publish(&self, pieces: &[Piece], events: Vec<Arc<Stored>>) {
        let mut tail = self.tail();
        for piece in pieces {
            if let Some(stream) = tail.streams.iter_mut().find(|open| open.id == piece.stream) {
                stream.uncommitted = stream.uncommitted.saturating_sub(piece.text.len());
            }
        }
        for event in events {
            tail.push(event);
        }
    }

    /// Wakes readers.
    pub fn wake(&self) {
        self.changed.send_replace(());
    }

    /// Whether the log takes writes.
    pub fn health(&self) -> Health {
        self.tail().health.clone()
    }

    /// Whether writes are refused.
    pub fn failed(&self) -> bool {
        !matches!(self.tail().health, Health::Ok | Health::Retrying { .. })
    }

    /// Why writes fail at the moment.
    pub fn write_error(&self) -> Option<Arc<str>> {
        match &self.tail().health {
            Health::Failed { why } | Health::Retrying { why } => why.clone(),
            _ => None,
        }
    }

    /// Whether the session was removed.
    pub fn removed(&self) -> bool {
        self.tail().health == Health::Removed
    }

    /// Waits until writes are refused.
    pub async fn broken(&self) {
        while !self.failed() {
            self.refused.notified().await;
        }
    }

    /// Refuses every write until [`Self::retry`].
    pub fn fail(&self) {
        {
            let mut tail = self.tail();
            if let Health::Ok | Health::Retrying { .. } = tail.health {
                let why = tail.health.why();
                tail.health = Health::Failed { why };
            }
        }
        self.refused.notify_one();
    }

    /// As [`Self::fail`], with a temporary reason for readers; true if they had none before.
    /// Wakes the actor before the readers, so that it refuses their next request.
    pub fn fail_for_now(&self, why: &str) -> bool {
        let new = {
            let mut tail = self.tail();
            let passes = !matches!(tail.health, Health::Removed | Health::Damaged);
            let known = tail.health.why();
            let new = passes && known.is_none();
            if passes {
                tail.health = Health::Failed { why: known.or_else(|| Some(why.into())) };
            }
            new
        };
        self.refused.notify_one();
        if new {
            self.changed.send_replace(());
        }
        new
    }

    /// Takes writes again, after the actor has reloaded the stored state, which ends at `head`. Nothing older may be queued.
    pub fn retry(&self, head: u64) {
        let mut tail = self.tail();
        let health = match std::mem::take(&mut tail.health) {
            Health::Failed { why } => Health::Retrying { why },
            other => other,
        };
        if tail.head == head {
            tail.health = health;
        } else {
            // Readers find events that this log missed in the store.
            *tail = Tail { head, health, ..Tail::default() };
        }
    }

    /// Ends [`Health::Retrying`] after a successful write.
    pub fn write_succeeded(&self) {
        let mut tail = self.tail();
        if let Health::Retrying { .. } = tail.health {
            tail.health = Health::Ok;
        }
    }

    /// Refuses writes and ends readers, because the session was removed.
    pub fn remove(&self) {
        self.end(Health::Removed);
    }

    /// Refuses writes and ends readers, because the stored session is damaged.
    pub fn damaged(&self) {
        self.end(Health::Damaged);
    }

    fn end(&self, health: Health) {
        self.tail().health = health;
        self.refused.notify_one();
        self.changed.send_replace(());
    }
}

impl Health {
    /// Takes the reason of a failure.
    fn why(&mut self) -> Option<Arc<str>> {
        match self {
            Self::Failed { why } | Self::Retrying { why } => why.take(),
            _ => None,
        }
    }
}

impl Tail {
    /// Appends text to a stream and returns the piece to queue at the store. It goes to the end of its block unless `offset` is
    /// given.
    pub fn queue(
        &mut self,
        turn: Option<&TurnId>,
        stream: String,
        block: u32,
        kind: PieceKind,
        offset: Option<u64>,
        text: String,
    ) -> Piece {
        let at = match self.streams.iter().position(|open| open.id == stream) {
            Some(at) => at,
            None => {
                self.streams.push(OpenStream::new(stream.clone(), turn));
                self.streams.len() - 1
            }
        };
        let mut piece = Piece { stream, block, offset: offset.unwrap_or_default(), kind, text };
        if let Some(open) = self.streams.get_mut(at) {
            piece.offset = offset.unwrap_or_else(|| open.end(block));
            open.uncommitted += piece.text.len();
            open.push(piece.clone());
        }
        piece
    }

    /// Marks a stream whose closing event is queued at the store.
    pub fn close(&mut self, stream: &str) {
        self.streams.iter_mut().filter(|open| open.id == stream).for_each(|open| open.closing = true);
    }

    /// The streams without a queued closing event, including uncommitted text.
    pub fn open(&self) -> Vec<OpenStream> {
        self.streams.iter().filter(|open| !open.closing).cloned().collect()
    }

    /// The open stream with this id.
    pub fn stream(&self, id: &str) -> Option<&OpenStream> {
        self.streams.iter().find(|open| open.id == id)
    }

    fn push(&mut self, event: Arc<Stored>) {
        if let Some(stream) = &event.stream {
            self.streams.retain(|open| open.id != *stream);
        }
        self.head = event.seq;
        self.bytes += event.data.len();
        self.events.push_back(event);
        while self.bytes > TAIL
            && !fault::bug("I10")
            && let Some(oldest) = self.events.pop_front()
        {
            self.bytes -= oldest.data.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_piece_has_a_name_of_its_own_in_the_database() {
        let hosted = HOSTED.map(|(_, tool, part)| PieceKind::Hosted(tool, part));
        let unknown = PieceKind::Hosted(HostedTool::Unknown, HostedPart::Unknown);
        let calls = ["edit", "two words", ""].map(|name| PieceKind::call("c12".into(), name));
        let kinds = [PieceKind::Text, PieceKind::Thinking, PieceKind::Output, unknown];
        for kind in kinds.into_iter().chain(hosted).chain(calls) {
            assert_eq!(PieceKind::from_name(&kind.name()), kind);
        }
    }
}
