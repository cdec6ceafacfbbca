//! The log of one session as its readers see it: the committed tail, the streams that are open, and a wake-up.
//!
//! The actor numbers events and queues them at the store; the store's writing thread publishes here what it has committed.
//! Readers are cursors: they copy out what lies after theirs and go on at their own pace, so that a
//! slow one holds a position and nothing else. What the tail no longer has, they read from the store.
//! The log itself neither reads nor writes the database, and knows no session, store or client.

pub mod cursor;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use linger_protocol::id::{SessionId, TurnId};
use linger_protocol::message::{HostedPart, HostedTool};
use tokio::sync::{Notify, watch};

use crate::fault;

/// How much of the log is kept in memory for readers that are nearly up to date, in bytes; the rest is read from the store.
const TAIL: usize = 32 << 10;

/// How much of a tool's output that is still coming is kept for readers, in bytes; older output is left out for them.
pub const OUTPUT_KEPT: usize = 64 << 10;

/// An event as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its number in the session.
    pub seq: u64,
    /// When it happened, in Unix milliseconds.
    pub at: u64,
    /// Its kind.
    pub kind: String,
    /// The message or call whose deltas it closes.
    pub stream: Option<String>,
    /// The event as it goes over the wire.
    pub data: String,
}

/// What a piece of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// A model's text.
    Text,
    /// A model's thinking.
    Thinking,
    /// What is said of a tool that a provider runs itself.
    Hosted(HostedTool, HostedPart),
    /// A tool's output.
    Output,
}

/// The names in the database of what is said of hosted tools.
const HOSTED: [(&str, HostedTool, HostedPart); 6] = [
    ("web_search call", HostedTool::WebSearch, HostedPart::Call),
    ("web_search result", HostedTool::WebSearch, HostedPart::Result),
    ("web_search error", HostedTool::WebSearch, HostedPart::Error),
    ("code_execution call", HostedTool::CodeExecution, HostedPart::Call),
    ("code_execution result", HostedTool::CodeExecution, HostedPart::Result),
    ("code_execution error", HostedTool::CodeExecution, HostedPart::Error),
];

impl PieceKind {
    /// Its name in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Thinking => "thinking",
            Self::Hosted(tool, part) => {
                let said = HOSTED.iter().find(|(_, of, is)| (of, is) == (&tool, &part));
                said.map_or("hosted", |(name, ..)| name)
            }
            Self::Output => "output",
        }
    }

    /// The kind with this name in the database.
    pub fn from_name(name: &str) -> Self {
        match name {
            "thinking" => Self::Thinking,
            "output" => Self::Output,
            "hosted" => Self::Hosted(HostedTool::Unknown, HostedPart::Unknown),
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
    /// The message or the call.
    pub stream: String,
    /// The content block; 0 for a tool's output.
    pub block: u32,
    /// Where it begins in its block, in bytes.
    pub offset: u64,
    /// What it is.
    pub kind: PieceKind,
    /// The text.
    pub text: String,
}

impl Piece {
    /// Where it ends in its block.
    pub fn end(&self) -> u64 {
        self.offset + self.text.len() as u64
    }
}

/// A stream that no event has closed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenStream {
    /// The message or the call.
    pub id: String,
    /// The turn that it is a part of.
    pub turn: Option<TurnId>,
    /// What came so far, in the order in which it came: for a message everything, for output the latest.
    pub pieces: VecDeque<Piece>,
    /// How many bytes at the end of it are queued at the store and not committed: readers do not see them.
    pub uncommitted: usize,
    /// The event that closes it is queued at the store.
    pub closing: bool,
}

impl OpenStream {
    /// One of which nothing came yet.
    pub fn new(id: String, turn: Option<&TurnId>) -> Self {
        Self { id, turn: turn.cloned(), pieces: VecDeque::new(), uncommitted: 0, closing: false }
    }

    /// What is committed of it, each piece with as much of its text.
    pub fn committed(&self) -> impl Iterator<Item = (&Piece, &str)> {
        let mut hidden = self.uncommitted;
        // Only the last pieces can be in part uncommitted.
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

    /// Where a block ends.
    fn end(&self, block: u32) -> u64 {
        self.pieces.iter().rev().find(|piece| piece.block == block).map_or(0, Piece::end)
    }

    /// Takes the next piece.
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
    /// Output is kept in pieces of this size, so that old ones can be left out.
    fn is_full(&self) -> bool {
        self.kind == PieceKind::Output && self.text.len() >= OUTPUT_KEPT / 4
    }
}

/// Adds `piece` to the stream it belongs to, opening it if need be.
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
    /// It does.
    #[default]
    Ok,
    /// A write failed, so numbers that the actor gave out do not exist: every write is refused until
    /// [`Log::retry`]. `why` is what readers are told; absent when the reason does not pass.
    Failed {
        /// The reason.
        why: Option<Arc<str>>,
    },
    /// The actor has reloaded what is stored, and its first write is under way; readers are still told `why`.
    Retrying {
        /// The reason of the failure before.
        why: Option<Arc<str>>,
    },
    /// The session was removed: every write is refused, and readers end.
    Removed,
    /// What is stored of the session is damaged: every write is refused, and readers end.
    Damaged,
}

/// What readers see.
#[derive(Debug, Default)]
pub struct Tail {
    /// The number of the last committed event.
    pub head: u64,
    /// The last committed events, in order and without a gap up to `head`.
    pub events: VecDeque<Arc<Stored>>,
    /// Streams that are open: the one place where the text so far is kept. The actor adds to it what it queues
    /// at the store; readers see what is committed.
    pub streams: Vec<OpenStream>,
    /// The length of `events`, in bytes.
    bytes: usize,
    health: Health,
}

/// One session's log; shared by its actor, the store and its readers.
#[derive(Debug)]
pub struct Log {
    /// The session.
    pub session: SessionId,
    tail: Mutex<Tail>,
    changed: watch::Sender<()>,
    /// Wakes the actor when writes are refused.
    broke: Notify,
}

impl Log {
    /// A log that ends at `head` with these streams open.
    pub fn new(session: SessionId, head: u64, streams: Vec<OpenStream>) -> Arc<Self> {
        let tail = Mutex::new(Tail { head, streams, ..Tail::default() });
        Arc::new(Self { session, tail, changed: watch::channel(()).0, broke: Notify::new() })
    }

    /// What readers see, locked; never held across an await.
    pub fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Wakes when the log has grown or its health has changed.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// How many readers there are.
    pub fn readers(&self) -> usize {
        self.changed.receiver_count()
    }

    /// Waits until nobody reads.
    pub async fn unwatched(&self) {
        self.changed.closed().await;
    }

    /// Shows what has been committed.
    pub fn publish(&self, pieces: &[Piece], events: Vec<Arc<Stored>>) {
        {
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
        self.changed.send_replace(());
    }

    /// Whether it takes writes.
    pub fn health(&self) -> Health {
        self.tail().health.clone()
    }

    /// Whether writes are refused.
    pub fn failed(&self) -> bool {
        !matches!(self.tail().health, Health::Ok | Health::Retrying { .. })
    }

    /// Why writes fail at the moment.
    pub fn trouble(&self) -> Option<Arc<str>> {
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
            self.broke.notified().await;
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
        self.broke.notify_one();
    }

    /// As [`Self::fail`], for a reason that may pass, which readers are told; whether they did not know one.
    /// The actor is woken before the readers: a request of theirs is then refused.
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
        self.broke.notify_one();
        if new {
            self.changed.send_replace(());
        }
        new
    }

    /// Takes writes again: the actor has reloaded what is stored, which ends at `head`, and nothing of before is queued.
    pub fn retry(&self, head: u64) {
        let mut tail = self.tail();
        let health = match std::mem::take(&mut tail.health) {
            Health::Failed { why } => Health::Retrying { why },
            other => other,
        };
        if tail.head == head {
            tail.health = health;
        } else {
            // Readers find in the store what this log has not seen.
            *tail = Tail { head, health, ..Tail::default() };
        }
    }

    /// A write succeeded again.
    pub fn is_well(&self) {
        let mut tail = self.tail();
        if let Health::Retrying { .. } = tail.health {
            tail.health = Health::Ok;
        }
    }

    /// The session was removed.
    pub fn remove(&self) {
        self.end(Health::Removed);
    }

    /// What is stored of the session is damaged.
    pub fn damaged(&self) {
        self.end(Health::Damaged);
    }

    fn end(&self, health: Health) {
        self.tail().health = health;
        self.broke.notify_one();
        self.changed.send_replace(());
    }
}

impl Health {
    /// Takes the reason of a failure out.
    fn why(&mut self) -> Option<Arc<str>> {
        match self {
            Self::Failed { why } | Self::Retrying { why } => why.take(),
            _ => None,
        }
    }
}

impl Tail {
    /// The next text of a stream, as the piece that is queued at the store; at the end of its block unless
    /// there is an `offset`.
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

    /// The event that closes this stream is queued at the store.
    pub fn close(&mut self, stream: &str) {
        self.streams.iter_mut().filter(|open| open.id == stream).for_each(|open| open.closing = true);
    }

    /// The streams that nothing closes yet, with what is queued of them.
    pub fn open(&self) -> Vec<OpenStream> {
        self.streams.iter().filter(|open| !open.closing).cloned().collect()
    }

    /// The open stream with this name.
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
        let kinds = [PieceKind::Text, PieceKind::Thinking, PieceKind::Output, unknown];
        for kind in kinds.into_iter().chain(hosted) {
            assert_eq!(PieceKind::from_name(kind.as_str()), kind);
        }
    }
}
