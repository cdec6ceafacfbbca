//! The log of one session as its readers see it: the committed tail, the streams that are open, and a wake-up.
//!
//! The actor numbers events and queues them at the store; the store's writing thread publishes here what it has committed.
//! Readers are cursors ([`super::subscriber`]): they copy out what lies after theirs and go on at their own pace, so that a
//! slow one holds a position and nothing else. What the tail no longer has, they read from the store.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// What came so far: for a message everything, with one piece a block; for output the latest, in order.
    pub pieces: VecDeque<Piece>,
}

impl OpenStream {
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
            let mut stream = OpenStream { id: piece.stream.clone(), turn: turn.cloned(), pieces: VecDeque::new() };
            stream.push(piece);
            streams.push(stream);
        }
    }
}

/// What readers see.
#[derive(Debug, Default)]
pub struct Tail {
    /// The number of the last committed event.
    pub head: u64,
    /// The last committed events, in order and without a gap up to `head`.
    pub events: VecDeque<Arc<Stored>>,
    /// Streams that are open.
    pub streams: Vec<OpenStream>,
    bytes: usize,
}

/// One session's log; shared by its actor, the store and its readers.
#[derive(Debug)]
pub struct Log {
    /// The session.
    pub session: SessionId,
    tail: Mutex<Tail>,
    changed: watch::Sender<()>,
    /// A write failed: numbers that the actor gave out do not exist. Nothing more is written; the actor starts anew.
    failed: AtomicBool,
    /// Wakes the actor then.
    broke: Notify,
    /// Why nothing can be written just now, until something is; readers are told.
    trouble: Mutex<Option<Arc<str>>>,
    /// The session is no more.
    removed: AtomicBool,
    /// Nobody writes or mends this log any more: what is stored of the session is damaged.
    given_up: AtomicBool,
}

impl Log {
    /// A log that ends at `head` with these streams open.
    pub fn new(session: SessionId, head: u64, streams: Vec<OpenStream>) -> Arc<Self> {
        let tail = Tail { head, streams, ..Tail::default() };
        Arc::new(Self {
            session,
            tail: Mutex::new(tail),
            changed: watch::channel(()).0,
            failed: AtomicBool::new(false),
            broke: Notify::new(),
            trouble: Mutex::default(),
            removed: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
        })
    }

    /// What readers see, locked; never held across an await.
    pub fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Wakes when the log has grown or failed.
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
    pub fn publish(&self, turn: Option<&TurnId>, pieces: Vec<Piece>, events: Vec<Arc<Stored>>) {
        {
            let mut tail = self.tail();
            for piece in pieces {
                push_piece(&mut tail.streams, turn, piece);
            }
            for event in events {
                tail.push(event);
            }
        }
        self.changed.send_replace(());
    }

    /// Refuses every write until [`Self::mend`].
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.broke.notify_one();
    }

    /// Refuses every write until [`Self::mend`], because of `why`, which readers are told; whether that is new. The actor finds the
    /// reason when it hears of this, and who reads it and asks for something is refused.
    pub fn fail_for_now(&self, why: &str) -> bool {
        let new = self.troubled().is_none();
        if new {
            *self.troubled() = Some(why.into());
        }
        self.fail();
        if new {
            self.changed.send_replace(());
        }
        new
    }

    /// Something was written again.
    pub fn is_well(&self) {
        *self.troubled() = None;
    }

    /// Why nothing can be written just now.
    pub fn trouble(&self) -> Option<Arc<str>> {
        self.troubled().clone()
    }

    fn troubled(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.trouble.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits until a write fails.
    pub async fn broken(&self) {
        while !self.failed() {
            self.broke.notified().await;
        }
    }

    /// Whether a write failed.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Takes writes again: the actor has started anew from what is stored, which ends at `head`, and nothing of before is queued.
    pub fn mend(&self, head: u64) {
        let mut tail = self.tail();
        if tail.head != head {
            // Readers find in the store what this log has not seen.
            *tail = Tail { head, ..Tail::default() };
        }
        self.failed.store(false, Ordering::Release);
    }

    /// The session is no more: refuses every write, and ends its readers.
    pub fn remove(&self) {
        self.fail();
        self.removed.store(true, Ordering::Release);
        self.changed.send_replace(());
    }

    /// What is stored is damaged: refuses every write, and ends its readers.
    pub fn give_up(&self) {
        self.fail();
        self.given_up.store(true, Ordering::Release);
        self.changed.send_replace(());
    }

    /// Whether nothing comes any more because of damage.
    pub fn given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Whether the session is no more.
    pub fn removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }
}

impl Tail {
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
