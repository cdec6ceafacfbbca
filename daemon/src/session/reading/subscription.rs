//! A subscription: a cursor that reads a session's log at its own pace.
//!
//! Replay and live are the same loop: copy what follows the cursor from the tail or the store, show it, wait until the log grows.
//! It holds a position and no queue, so a reader that does not read costs nothing.
//! Deliberately absent: lines, sockets and clients.

use std::collections::VecDeque;
use std::sync::Arc;

use linger_protocol::event::{
    Delta, Event, EventBody, Level, MessageAdded, Notice, NoticeCode, OutputSegment, ToolFinished,
};
use linger_protocol::id::{CallId, Cursor, MessageId, QuestionId, SessionId, TurnId};
use linger_protocol::message::{ContentBlock, Role};
use tokio::sync::watch;

use crate::fault;
use crate::log::cursor::Position;
use crate::log::{Health, Log, OpenStream, Piece, PieceKind, Stored};
use crate::provider::call_text;
use crate::session::messages::AttachPoint;
use crate::store::{LARGE, Store, StoreError};
use crate::sys::clock;
use crate::sys::task;

/// The size of a batch, in bytes: a client that does not read holds a few of these.
const BATCH: usize = 16 << 10;

/// The kind of the placeholder for an event lost to damage.
const LOST: &str = "lost";

/// The kinds of events that ask a question.
const ASKING: [&str; 2] = ["permission_requested", "question_asked"];

/// One reader's view of one session.
pub struct Subscription {
    log: Arc<Log>,
    store: Store,
    deltas: bool,
    /// The position after the last shown item.
    at: Position,
    changed: watch::Receiver<()>,
    phase: ReadPhase,
    /// The end of the log when it began, and the questions up to there that had no answer.
    past: (u64, Vec<QuestionId>),
    /// Whether `caught_up` was sent.
    caught_up: bool,
    /// Whether the current write error was sent.
    sent_write_error: bool,
    /// Items read ahead for [`Self::next`].
    read: VecDeque<Shown>,
    /// Held while a person reads along.
    _person: Option<watch::Receiver<()>>,
}

enum ReadPhase {
    /// There may be more after the cursor.
    Behind,
    /// Everything was shown; the log may grow.
    AtHead,
    /// The session is gone, or its log cannot be read.
    Ended,
}

/// One shown item, and the position after it.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The position to continue from.
    pub cursor: Cursor,
    /// Stored, or for this reader alone.
    pub what: ShownItem,
    /// Whether it is a question that had its answer, or was withdrawn, when the subscription began.
    pub answered: bool,
}

/// A part of a session's log, as a reader gets it.
#[derive(Clone, Debug)]
pub enum ShownItem {
    /// An event, as it is stored.
    Event(Arc<Stored>),
    /// A part of a message or of a tool's output.
    Delta(Event),
    /// For this reader only, not stored: `caught_up`, or a write error.
    Notice(Event),
}

impl Shown {
    /// Parses it as an event; fails if the stored event is malformed.
    pub fn into_event(self) -> Result<Event, serde_json::Error> {
        match self.what {
            ShownItem::Event(stored) => serde_json::from_str(&stored.data),
            ShownItem::Delta(event) | ShownItem::Notice(event) => Ok(event),
        }
    }
}

/// Items to show together.
#[derive(Debug)]
pub enum Batch {
    /// All available items, up to a bound; may be empty.
    Shown(Vec<Shown>),
    /// A large event of this many bytes; read it with `has_room`.
    Large(usize),
}

/// The part of the log after a cursor.
enum AfterCursor {
    /// Events; at the head also the open streams, and whether they are complete.
    Here(Vec<Arc<Stored>>, Option<(Vec<OpenStream>, bool)>),
    /// The tail begins after the cursor; the store has the events up to this seq.
    Behind(u64),
}

impl Subscription {
    /// Subscribes from the attach point; without `deltas` only whole events.
    pub fn new(reading: AttachPoint, store: Store, deltas: bool) -> Self {
        let AttachPoint { log, changed, at, head, open, missing: _, person: _person } = reading;
        let (phase, read) = (ReadPhase::Behind, VecDeque::new());
        Self {
            log,
            store,
            deltas,
            at,
            changed,
            phase,
            past: (head, open),
            caught_up: false,
            sent_write_error: false,
            read,
            _person,
        }
    }

    /// The session that it reads.
    pub fn session(&self) -> &SessionId {
        &self.log.session
    }

    /// The next item; `None` when the session is gone or its log is unreadable. Cancel safe.
    pub async fn next(&mut self) -> Option<Shown> {
        loop {
            if let Some(shown) = self.read.pop_front() {
                return Some(shown);
            }
            if !self.ready().await {
                return None;
            }
            if let Batch::Shown(shown) = self.take(true).await {
                self.read = shown.into();
            }
        }
    }

    /// Waits until there may be items; false if none can come any more. Cancel safe.
    pub async fn ready(&mut self) -> bool {
        match self.phase {
            ReadPhase::Behind => true,
            ReadPhase::Ended => false,
            ReadPhase::AtHead => {
                let grown = self.changed.changed().await.is_ok();
                self.phase = if grown { ReadPhase::Behind } else { ReadPhase::Ended };
                grown
            }
        }
    }

    /// The available items; a large event only with `has_room`. Cancel safe.
    pub async fn take(&mut self, has_room: bool) -> Batch {
        let before = self.at.seq;
        match self.read_on(has_room).await {
            Ok((Batch::Shown(mut shown), complete)) => {
                if before < self.past.0 {
                    shown.iter_mut().for_each(|shown| shown.answered = self.was_answered(&shown.what));
                }
                if complete {
                    self.phase = ReadPhase::AtHead;
                    self.at_head(&mut shown);
                }
                Batch::Shown(shown)
            }
            Ok((large, _)) => large,
            Err(error) => Batch::Shown(vec![self.failed(&error)]),
        }
    }

    /// Whether an item is a question that was closed when the subscription began.
    fn was_answered(&self, what: &ShownItem) -> bool {
        #[derive(serde::Deserialize)]
        struct AskedQuestion {
            #[serde(alias = "permission")]
            question: QuestionId,
        }
        let ShownItem::Event(stored) = what else { return false };
        let (until, open) = &self.past;
        ASKING.contains(&stored.kind.as_str())
            && stored.seq <= *until
            && serde_json::from_str::<AskedQuestion>(&stored.data).is_ok_and(|asking| !open.contains(&asking.question))
    }

    /// The notices for a reader that has everything.
    fn at_head(&mut self, shown: &mut Vec<Shown>) {
        if !std::mem::replace(&mut self.caught_up, true) {
            shown.push(self.notice(EventBody::CaughtUp {}));
        }
        if self.log.removed() {
            shown.push(self.removed());
        } else if self.log.health() == Health::Damaged {
            let text = self.store.found.of(&self.log.session).unwrap_or_default();
            shown.push(self.damaged(&text));
        } else {
            let write_error = self.log.write_error();
            shown.extend(
                write_error.as_ref().filter(|_| !self.sent_write_error).map(|why| self.notice(cannot_write(why))),
            );
            self.sent_write_error = write_error.is_some();
        }
    }

    fn failed(&mut self, error: &StoreError) -> Shown {
        if self.log.removed() {
            // The gap is the daemon's own.
            self.store.found.readable(&self.log.session);
            return self.removed();
        }
        if error.is_damage() {
            return self.damaged(&error.0.to_string());
        }
        tracing::error!(target: "attach", session = %self.log.session, %error, "replay failed");
        self.last(Level::Error, None, format!("cannot read the log: {error}; attach again"))
    }

    fn removed(&mut self) -> Shown {
        self.last(Level::Warning, Some(NoticeCode::Removed), "the session was removed".to_owned())
    }

    fn damaged(&mut self, text: &str) -> Shown {
        let text = format!("the session is damaged: {text}; run `linger doctor --repair`");
        self.last(Level::Error, Some(NoticeCode::Damaged), text)
    }

    fn last(&mut self, level: Level, code: Option<NoticeCode>, text: String) -> Shown {
        self.phase = ReadPhase::Ended;
        self.notice(EventBody::Notice(Notice { level, code, text, until_at: None, since_at: None }))
    }

    fn notice(&self, body: EventBody) -> Shown {
        let event = Event { body, seq: None, at: clock::now(), turn: None };
        Shown { cursor: self.at.cursor(), what: ShownItem::Notice(event), answered: false }
    }

    /// Reads after the cursor; true if it reaches the head. A large event only with `has_room`.
    async fn read_on(&mut self, has_room: bool) -> Result<(Batch, bool), StoreError> {
        let mut shown = Vec::new();
        match self.after_cursor() {
            AfterCursor::Here(events, streams) => {
                events.iter().for_each(|event| push_event(&mut self.at, self.deltas, event, &mut shown));
                let complete = streams.as_ref().is_some_and(|(_, whole)| *whole);
                let now = clock::now();
                for OpenStream { turn, pieces, .. } in streams.into_iter().flat_map(|(streams, _)| streams) {
                    for piece in pieces {
                        push_piece(&mut self.at, piece, now, turn.as_ref(), &mut shown);
                    }
                }
                Ok((Batch::Shown(shown), complete))
            }
            AfterCursor::Behind(until) => {
                let (session, after) = (&self.log.session, self.at.seq);
                let page = match self.store.events(session.clone(), after, until, BATCH, has_room).await? {
                    Ok(page) => page,
                    Err(size) => return Ok((Batch::Large(size), false)),
                };
                if page.is_empty() {
                    return Err(StoreError::damage(format!("event {} is missing", self.at.seq + 1)));
                }
                let (deltas, mut at) = (self.deltas, self.at.clone());
                let cut = move || {
                    let events = page.into_iter().map(Arc::new);
                    events.for_each(|event| push_event(&mut at, deltas, &event, &mut shown));
                    (shown, at)
                };
                // Cutting a large event takes long: not on the runtime thread.
                let cut = if has_room { task::spawn_blocking(cut).await } else { Ok(cut()) };
                let (shown, at) = cut.map_err(|error| StoreError(error.to_string().into()))?;
                self.at = at;
                Ok((Batch::Shown(shown), false))
            }
        }
    }

    fn after_cursor(&self) -> AfterCursor {
        let tail = self.log.tail();
        let first = tail.events.front().map_or(tail.head + 1, |event| event.seq);
        if self.at.seq + 1 < first {
            return AfterCursor::Behind(first - 1);
        }
        let (mut events, mut bytes) = (Vec::new(), 0);
        for event in tail.events.iter().filter(|event| event.seq > self.at.seq) {
            if bytes >= BATCH || (bytes > 0 && bytes + event.data.len() > LARGE) {
                return AfterCursor::Here(events, None);
            }
            bytes += event.data.len();
            events.push(event.clone());
        }
        let streams = if self.deltas { self.fresh(&tail.streams) } else { (Vec::new(), true) };
        AfterCursor::Here(events, Some(streams))
    }

    /// The part of the open streams after the cursor, up to a batch; true if that is all.
    fn fresh(&self, streams: &[OpenStream]) -> (Vec<OpenStream>, bool) {
        let mut left = BATCH;
        let mut fresh = Vec::new();
        for stream in streams {
            let (block, offset) = self.at.within(&stream.id);
            let mut pieces = VecDeque::new();
            let mut whole = true;
            let committed = stream.committed();
            for (piece, text, start) in
                committed.filter_map(|(piece, text)| Some((piece, text, start_after(piece, block, offset)?)))
            {
                let text = text.get(start..).unwrap_or_default();
                let end = (0..=left.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
                whole = end == text.len();
                if end == 0 {
                    break;
                }
                left -= end;
                let text = text.get(..end).unwrap_or_default().to_owned();
                let (stream, offset) = (piece.stream.clone(), piece.offset + start as u64);
                pieces.push_back(Piece { stream, block: piece.block, offset, kind: piece.kind.clone(), text });
                if !whole {
                    break;
                }
            }
            if !pieces.is_empty() {
                fresh.push(OpenStream { pieces, ..OpenStream::new(stream.id.clone(), stream.turn.as_ref()) });
            }
            if !whole {
                return (fresh, false);
            }
        }
        (fresh, true)
    }
}

/// The notice of a write error; never stored.
fn cannot_write(why: &str) -> EventBody {
    let text = format!(
        "cannot write to disk: {why}; nothing shown so far is lost, and the session resumes when writing works"
    );
    EventBody::Notice(Notice {
        level: Level::Error,
        code: Some(NoticeCode::Storage),
        text,
        until_at: None,
        since_at: None,
    })
}

/// Shows the rest of the stream that an event closes, then the event. Advances `position`.
fn push_event(position: &mut Position, deltas: bool, stored: &Arc<Stored>, shown: &mut Vec<Shown>) {
    if let Some(stream) = &stored.stream {
        if deltas && !fault::bug("I3") {
            let (block, offset) = position.within(stream);
            let (pieces, turn) = closed_pieces(stored);
            for piece in pieces.iter().filter_map(|piece| after(piece, block, offset)) {
                push_piece(position, piece, stored.at, turn.as_ref(), shown);
            }
        }
        position.streams.remove(stream);
    }
    if stored.kind == LOST {
        // Their closing events may be lost.
        position.streams.clear();
    }
    position.seq = stored.seq;
    shown.push(Shown { cursor: position.cursor(), what: ShownItem::Event(stored.clone()), answered: false });
}

/// Shows a piece of a stream. Advances `position`.
fn push_piece(position: &mut Position, piece: Piece, at: u64, turn: Option<&TurnId>, shown: &mut Vec<Shown>) {
    position.advance(&piece.stream, piece.block, piece.end());
    let Piece { stream, block, offset, kind, text } = piece;
    let body = match kind {
        PieceKind::Text => EventBody::TextDelta(Delta { message: MessageId(stream), block, offset, text }),
        PieceKind::Thinking => EventBody::ThinkingDelta(Delta { message: MessageId(stream), block, offset, text }),
        PieceKind::Call(call) => {
            let delta = Delta { message: MessageId(stream), block, offset, text };
            EventBody::ToolCallDelta { call_id: call.id.clone(), name: call.name.clone(), delta }
        }
        PieceKind::Hosted(tool, part) => {
            let delta = Delta { message: MessageId(stream), block, offset, text };
            EventBody::HostedDelta { tool, part, delta }
        }
        PieceKind::Output => EventBody::ToolOutputDelta { call_id: CallId(stream), offset, text },
    };
    let event = Event { body, seq: None, at, turn: turn.cloned() };
    shown.push(Shown { cursor: position.cursor(), what: ShownItem::Delta(event), answered: false });
}

/// The index in the text of `piece` that follows block and offset.
fn start_after(piece: &Piece, block: u32, offset: u64) -> Option<usize> {
    if piece.block < block || (piece.block == block && piece.end() <= offset) {
        return None;
    }
    let before = if piece.block > block { 0 } else { offset.saturating_sub(piece.offset) };
    piece.text.is_char_boundary(before as usize).then_some(before as usize)
}

/// The part of `piece` after block and offset.
fn after(piece: &Piece, block: u32, offset: u64) -> Option<Piece> {
    let start = start_after(piece, block, offset)?;
    let text = piece.text.get(start..)?.to_owned();
    Some(Piece {
        stream: piece.stream.clone(),
        block: piece.block,
        offset: piece.offset + start as u64,
        kind: piece.kind.clone(),
        text,
    })
}

/// The stream that a stored event closes, cut from the event.
fn closed_pieces(stored: &Stored) -> (Vec<Piece>, Option<TurnId>) {
    let Ok(event) = serde_json::from_str::<Event>(&stored.data) else { return (Vec::new(), None) };
    let stream = stored.stream.clone().unwrap_or_default();
    let piece = |block: u32, offset: u64, kind, text: &str| Piece {
        stream: stream.clone(),
        block,
        offset,
        kind,
        text: text.to_owned(),
    };
    let pieces = match &event.body {
        EventBody::Message(MessageAdded { role: Role::Assistant, content, .. }) => (0u32..)
            .zip(content)
            .filter_map(|(block, content)| match content {
                ContentBlock::Text { text } => Some(piece(block, 0, PieceKind::Text, text)),
                ContentBlock::Thinking { text, .. } => Some(piece(block, 0, PieceKind::Thinking, text)),
                ContentBlock::Hosted { tool, part, text, .. } => {
                    Some(piece(block, 0, PieceKind::Hosted(*tool, *part), text))
                }
                ContentBlock::ToolUse { call_id, name, input, .. } if call_text::is_shown(name) => {
                    Some(piece(block, 0, PieceKind::call(call_id.clone(), name), &call_text::of(input)))
                }
                ContentBlock::CutToolUse { call_id, name, text } => {
                    Some(piece(block, 0, PieceKind::call(call_id.clone(), name), text))
                }
                _ => None,
            })
            .filter(|piece| !piece.text.is_empty())
            .collect(),
        EventBody::ToolFinished(ToolFinished { content, output, .. }) => output
            .iter()
            .filter_map(|OutputSegment { block, offset }| {
                let text = content.get(*block as usize)?.as_text()?;
                Some(piece(0, *offset, PieceKind::Output, text))
            })
            .collect(),
        _ => Vec::new(),
    };
    (pieces, event.turn)
}

/// Whether `at` is a valid position of this log.
pub async fn known(log: &Log, store: &Store, at: &Position) -> Result<bool, StoreError> {
    let (head, open) = {
        let tail = log.tail();
        let open = |(stream, (block, offset)): (&String, &(u32, u64))| {
            let stream = tail.streams.iter().find(|open| open.id == *stream)?;
            Some(reaches(stream.committed(), *block, *offset))
        };
        (tail.head, at.streams.iter().map(open).collect::<Vec<_>>())
    };
    if at.seq > head {
        return Ok(false);
    }
    for ((stream, (block, offset)), open) in at.streams.iter().zip(open) {
        let reached = match open {
            Some(reached) => reached,
            None => match store.closing(log.session.clone(), stream.clone()).await? {
                // Streamed output may be gone; text and thinking are kept.
                Some(stored) if stored.kind == "tool_finished" => stored.seq > at.seq,
                Some(stored) => stored.seq > at.seq && reaches(whole(&closed_pieces(&stored).0), *block, *offset),
                None => false,
            },
        };
        if !reached {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Pieces with all of their text.
fn whole(pieces: &[Piece]) -> impl Iterator<Item = (&Piece, &str)> {
    pieces.iter().map(|piece| (piece, piece.text.as_str()))
}

/// Whether the stream reaches block and offset, at a character boundary.
fn reaches<'a>(mut pieces: impl Iterator<Item = (&'a Piece, &'a str)>, block: u32, offset: u64) -> bool {
    pieces.any(|(piece, text)| {
        // A call with one key twice has less text than was shown of it.
        let is_call = matches!(piece.kind, PieceKind::Call(_));
        let inside = piece.block == block && (is_call || piece.offset + text.len() as u64 >= offset);
        let whole = is_call || offset <= piece.offset || text.is_char_boundary((offset - piece.offset) as usize);
        inside && whole
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(block: u32, offset: u64, text: &str) -> Piece {
        Piece { stream: "m2".to_owned(), block, offset, kind: PieceKind::Text, text: text.to_owned() }
    }

    #[track_caller]
    fn check(at: (u32, u64), expect: Option<(u64, &str)>) {
        let got = after(&piece(1, 4, "abcd"), at.0, at.1).map(|piece| (piece.offset, piece.text));
        assert_eq!(got.as_ref().map(|(offset, text)| (*offset, text.as_str())), expect, "{at:?}");
    }

    #[test]
    fn a_piece_is_cut_at_the_cursor() {
        check((0, 0), Some((4, "abcd")));
        check((0, 99), Some((4, "abcd")));
        check((1, 0), Some((4, "abcd")));
        check((1, 4), Some((4, "abcd")));
        check((1, 6), Some((6, "cd")));
        check((1, 8), None);
        check((2, 0), None);
    }

    #[test]
    fn a_cursor_between_the_bytes_of_a_character_is_not_known() {
        let pieces = [piece(0, 0, "aé")];
        let reach = |offset| reaches(whole(&pieces), 0, offset);
        assert_eq!([0, 1, 2, 3, 4].map(reach), [true, true, false, true, false]);
    }
}
