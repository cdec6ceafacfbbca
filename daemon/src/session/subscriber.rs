//! A subscriber: a cursor that reads a session's log at its own pace and turns it into lines for one client.
//!
//! Replay and live are the same loop: copy what lies after the cursor out of the tail (or, further back, out of the store),
//! send it, wait until the log grows. The task belongs to its connection, which aborts it; it reads a batch when there is room for it.

use std::collections::VecDeque;
use std::sync::Arc;

use linger_protocol::event::{Delta, Event, EventBody, Level, NoticeCode, OutputSegment, SESSION_EVENT};
use linger_protocol::id::{CallId, MessageId, SessionId, TurnId};
use linger_protocol::message::{ContentBlock, Role};
use linger_protocol::transport::outbox::{Gone, Outbox};
use linger_protocol::transport::room::LargeRoom;

use tokio::sync::watch;

use super::actor::Reading;
use super::cursor::Position;
use super::log::{Log, OpenStream, Piece, PieceKind, Stored};
use crate::clock;
use crate::fault;
use crate::store::{Store, StoreError};

/// How much of the log is read and sent at once, in bytes: a client that does not read holds a few of these.
const BATCH: usize = 16 << 10;

/// How many copies of a large event there are on its way to the socket: its text as a delta, itself, and both as bytes.
const COPIES: usize = 4;

/// The kind of what stands in the place of an event that was lost to damage.
const LOST: &str = "lost";

/// One client's view of one session.
pub struct Subscriber {
    log: Arc<Log>,
    store: Store,
    outbox: Outbox,
    deltas: bool,
    at: Position,
    changed: watch::Receiver<()>,
}

/// What lies after a cursor.
enum Batch {
    /// Events, and if they reach the head the streams that are open, and whether that is all of them.
    Here(Vec<Arc<Stored>>, Option<(Vec<OpenStream>, bool)>),
    /// The tail begins later than the cursor; what is missing goes up to this number.
    Behind(u64),
}

/// What comes next.
enum Next {
    /// Lines, and whether they reach the head.
    Lines(Vec<String>, bool),
    /// An event of so many bytes, for which there must be room first.
    Large(usize),
}

impl Subscriber {
    /// A subscriber that reads on from where the actor said.
    pub fn new(reading: Reading, store: Store, outbox: Outbox, deltas: bool) -> Self {
        let Reading { log, changed, at, .. } = reading;
        Self { log, store, outbox, deltas, at, changed }
    }

    /// Sends everything after the cursor, and goes on until the client or the session has gone.
    pub async fn run(mut self) {
        let (mut caught_up, mut told) = (false, false);
        // For the event that is read next, if it is large.
        let mut large: Option<LargeRoom> = None;
        loop {
            let Ok(room) = self.outbox.room().await else { return };
            let (lines, complete) = match self.next_lines(large.is_some()).await {
                Ok(Next::Lines(lines, complete)) => (lines, complete),
                Ok(Next::Large(size)) => {
                    // The answers that hold what is waited for may need the place in the outbox.
                    drop(room);
                    large = Some(self.outbox.large_room(size * COPIES).await);
                    continue;
                }
                Err(_) if self.log.removed() => {
                    drop(room);
                    // What was missing was meant to be.
                    self.store.found.mended(&self.log.session);
                    return self.say_removed().await;
                }
                Err(error) if error.is_damage() => {
                    drop(room);
                    return self.say_damaged(&error.0.to_string()).await;
                }
                Err(error) => {
                    drop(room);
                    tracing::error!(target: "attach", session = %self.log.session, %error, "replay failed");
                    let text = format!("the log cannot be read: {error}; attach again");
                    return self.say_last(Level::Error, None, text).await;
                }
            };
            fault::point("subscriber.before_send");
            match large.take() {
                _ if lines.is_empty() => drop(room),
                Some(large) => room.send_large(lines, large),
                None => room.send(lines),
            }
            fault::point("subscriber.sent");
            if !complete {
                continue;
            }
            if !caught_up {
                caught_up = true;
                let line = self.line(&EventBody::CaughtUp {}, clock::now());
                if self.outbox.send(vec![line]).await == Err(Gone) {
                    return;
                }
            }
            if self.log.removed() {
                return self.say_removed().await;
            }
            if self.log.given_up() {
                let text = self.store.found.of(&self.log.session).unwrap_or_default();
                return self.say_damaged(&text).await;
            }
            let trouble = self.log.trouble();
            if let Some(why) = trouble.as_ref().filter(|_| !told) {
                let line = self.line(&cannot_write(why), clock::now());
                if self.outbox.send(vec![line]).await == Err(Gone) {
                    return;
                }
            }
            told = trouble.is_some();
            tokio::select! {
                woken = self.changed.changed() => if woken.is_err() { return },
                () = self.outbox.gone() => return,
            }
        }
    }

    async fn say_removed(&self) {
        self.say_last(Level::Warning, Some(NoticeCode::Removed), "the session was removed".to_owned()).await;
    }

    async fn say_damaged(&self, text: &str) {
        let text = format!("the session is damaged: {text}; `linger doctor --repair` saves what can be read");
        self.say_last(Level::Error, Some(NoticeCode::Damaged), text).await;
    }

    /// The last line; if the client has gone it does not matter.
    async fn say_last(&self, level: Level, code: Option<NoticeCode>, text: String) {
        let line = self.line(&EventBody::Notice { level, code, text, until_at: None }, clock::now());
        let _last = self.outbox.send(vec![line]).await;
    }

    /// The next lines; those of a large event only if there is room for it.
    async fn next_lines(&mut self, has_room: bool) -> Result<Next, StoreError> {
        let mut lines = Vec::new();
        match self.batch() {
            Batch::Here(events, streams) => {
                events.iter().for_each(|event| self.event(event, &mut lines));
                let complete = streams.as_ref().is_some_and(|(_, whole)| *whole);
                let streams = streams.map(|(streams, _)| streams);
                streams.iter().flatten().for_each(|stream| self.open_stream(stream, &mut lines));
                Ok(Next::Lines(lines, complete))
            }
            Batch::Behind(until) => {
                let (session, after) = (&self.log.session, self.at.seq);
                let page = match self.store.events(session.clone(), after, until, BATCH, has_room).await? {
                    Ok(page) => page,
                    Err(size) => return Ok(Next::Large(size)),
                };
                if page.is_empty() {
                    return Err(StoreError::damage(format!("event {} is missing", self.at.seq + 1)));
                }
                if !has_room {
                    page.iter().for_each(|event| self.event(event, &mut lines));
                    return Ok(Next::Lines(lines, false));
                }
                // A large event takes a while to take apart: not on the thread that runs all sessions.
                let (session, deltas, mut at) = (self.log.session.clone(), self.deltas, self.at.clone());
                let making = tokio::task::spawn_blocking(move || {
                    page.iter().for_each(|event| push_event(&session, &mut at, deltas, event, &mut lines));
                    (lines, at)
                });
                let (lines, at) = making.await.map_err(|error| StoreError(error.to_string().into()))?;
                self.at = at;
                Ok(Next::Lines(lines, false))
            }
        }
    }

    fn batch(&self) -> Batch {
        let tail = self.log.tail();
        let first = tail.events.front().map_or(tail.head + 1, |event| event.seq);
        if self.at.seq + 1 < first {
            return Batch::Behind(first - 1);
        }
        let (mut events, mut bytes) = (Vec::new(), 0);
        for event in tail.events.iter().filter(|event| event.seq > self.at.seq) {
            if bytes >= BATCH {
                return Batch::Here(events, None);
            }
            bytes += event.data.len();
            events.push(event.clone());
        }
        let streams = if self.deltas { self.fresh(&tail.streams) } else { (Vec::new(), true) };
        Batch::Here(events, Some(streams))
    }

    /// The part of the open streams that lies after the cursor, as much as is sent at once; whether that is all of it.
    fn fresh(&self, streams: &[OpenStream]) -> (Vec<OpenStream>, bool) {
        let mut left = BATCH;
        let mut fresh = Vec::new();
        for stream in streams {
            let at = self.at.within(&stream.id);
            let mut pieces = VecDeque::new();
            let mut whole = true;
            for (piece, start) in stream.pieces.iter().filter_map(|piece| Some((piece, start_after(piece, at)?))) {
                let text = piece.text.get(start..).unwrap_or_default();
                let end = (0..=left.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
                whole = end == text.len();
                if end == 0 {
                    break;
                }
                left -= end;
                let text = text.get(..end).unwrap_or_default().to_owned();
                let (stream, offset) = (piece.stream.clone(), piece.offset + start as u64);
                pieces.push_back(Piece { stream, block: piece.block, offset, kind: piece.kind, text });
                if !whole {
                    break;
                }
            }
            if !pieces.is_empty() {
                fresh.push(OpenStream { id: stream.id.clone(), turn: stream.turn.clone(), pieces });
            }
            if !whole {
                return (fresh, false);
            }
        }
        (fresh, true)
    }

    fn event(&mut self, stored: &Stored, lines: &mut Vec<String>) {
        push_event(&self.log.session, &mut self.at, self.deltas, stored, lines);
    }

    fn open_stream(&mut self, stream: &OpenStream, lines: &mut Vec<String>) {
        let now = clock::now();
        for piece in &stream.pieces {
            push_piece(&self.log.session, &mut self.at, piece.clone(), now, stream.turn.as_ref(), lines);
        }
    }

    fn line(&self, body: &EventBody, at: u64) -> String {
        line(&self.log.session, &self.at, body, at, None)
    }
}

/// Why nothing comes: not stored, because nothing can be.
fn cannot_write(why: &str) -> EventBody {
    let text = format!(
        "nothing can be written: {why}; nothing is lost of what was shown, and the session goes on by itself when it can"
    );
    EventBody::Notice { level: Level::Error, code: Some(NoticeCode::Storage), text, until_at: None }
}

/// An event: first what is left of the stream that it closes, then the event itself, as it is stored. Moves `position` on.
fn push_event(session: &SessionId, position: &mut Position, deltas: bool, stored: &Stored, lines: &mut Vec<String>) {
    if let Some(stream) = &stored.stream {
        if deltas && !fault::bug("I3") {
            let at = position.within(stream);
            let (pieces, turn) = closed_pieces(stored);
            for piece in pieces.iter().filter_map(|piece| after(piece, at)) {
                push_piece(session, position, piece, stored.at, turn.as_ref(), lines);
            }
        }
        position.streams.remove(stream);
    }
    if stored.kind == LOST {
        // What would have closed them may be lost.
        position.streams.clear();
    }
    position.seq = stored.seq;
    lines.push(notification(session, position, &stored.data));
}

/// A piece of a stream. Moves `position` on.
fn push_piece(
    session: &SessionId,
    position: &mut Position,
    piece: Piece,
    at: u64,
    turn: Option<&TurnId>,
    lines: &mut Vec<String>,
) {
    position.advance(&piece.stream, piece.block, piece.end());
    let Piece { stream, block, offset, kind, text } = piece;
    let body = match kind {
        PieceKind::Text => EventBody::TextDelta(Delta { message: MessageId(stream), block, offset, text }),
        PieceKind::Thinking => EventBody::ThinkingDelta(Delta { message: MessageId(stream), block, offset, text }),
        PieceKind::Hosted(tool, part) => {
            let delta = Delta { message: MessageId(stream), block, offset, text };
            EventBody::HostedDelta { tool, part, delta }
        }
        PieceKind::Output => EventBody::ToolOutputDelta { call_id: CallId(stream), offset, text },
    };
    lines.push(line(session, position, &body, at, turn));
}

fn line(session: &SessionId, position: &Position, body: &EventBody, at: u64, turn: Option<&TurnId>) -> String {
    let event = Event { body: body.clone(), seq: None, at, turn: turn.cloned() };
    notification(session, position, &serde_json::to_string(&event).unwrap_or_default())
}

/// A whole notification around an event that is JSON already.
fn notification(session: &SessionId, at: &Position, event: &str) -> String {
    // Ids and cursors have no character that JSON would escape.
    let cursor = at.cursor();
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"{SESSION_EVENT}\",\"params\":{{\"session\":\"{session}\",\"cursor\":\"{cursor}\",\"event\":{event}}}}}"
    )
}

/// Where in its text the part of `piece` begins that lies after block and offset.
fn start_after(piece: &Piece, (block, offset): (u32, u64)) -> Option<usize> {
    if piece.block < block || (piece.block == block && piece.end() <= offset) {
        return None;
    }
    let before = if piece.block > block { 0 } else { offset.saturating_sub(piece.offset) };
    piece.text.is_char_boundary(before as usize).then_some(before as usize)
}

/// The part of `piece` that lies after block and offset.
fn after(piece: &Piece, at: (u32, u64)) -> Option<Piece> {
    let start = start_after(piece, at)?;
    let text = piece.text.get(start..)?.to_owned();
    Some(Piece {
        stream: piece.stream.clone(),
        block: piece.block,
        offset: piece.offset + start as u64,
        kind: piece.kind,
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
        EventBody::Message { role: Role::Assistant, content, .. } => (0u32..)
            .zip(content)
            .filter_map(|(block, content)| match content {
                ContentBlock::Text { text } => Some(piece(block, 0, PieceKind::Text, text)),
                ContentBlock::Thinking { text, .. } => Some(piece(block, 0, PieceKind::Thinking, text)),
                ContentBlock::Hosted { tool, part, text, .. } => {
                    Some(piece(block, 0, PieceKind::Hosted(*tool, *part), text))
                }
                _ => None,
            })
            .filter(|piece| !piece.text.is_empty())
            .collect(),
        EventBody::ToolFinished { content, output, .. } => output
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

/// Whether `at` is a position that this log gave out.
pub async fn known(log: &Log, store: &Store, at: &Position) -> Result<bool, StoreError> {
    let (head, open) = {
        let tail = log.tail();
        let open = |(stream, at): (&String, &(u32, u64))| {
            let stream = tail.streams.iter().find(|open| open.id == *stream)?;
            Some(reaches(stream.pieces.iter(), *at))
        };
        (tail.head, at.streams.iter().map(open).collect::<Vec<_>>())
    };
    if at.seq > head {
        return Ok(false);
    }
    for ((stream, position), open) in at.streams.iter().zip(open) {
        let reached = match open {
            Some(reached) => reached,
            None => match store.closing(log.session.clone(), stream.clone()).await? {
                // Output that was streamed need not be kept; text and thinking are.
                Some(stored) if stored.kind == "tool_finished" => stored.seq > at.seq,
                Some(stored) => stored.seq > at.seq && reaches(closed_pieces(&stored).0.iter(), *position),
                None => false,
            },
        };
        if !reached {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the stream goes as far as block and offset, and the offset lies between two characters.
fn reaches<'a>(mut pieces: impl Iterator<Item = &'a Piece>, (block, offset): (u32, u64)) -> bool {
    pieces.any(|piece| {
        let inside = piece.block == block && piece.end() >= offset;
        let whole = offset <= piece.offset || piece.text.is_char_boundary((offset - piece.offset) as usize);
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
        let got = after(&piece(1, 4, "abcd"), at).map(|piece| (piece.offset, piece.text));
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
        let reach = |offset| reaches(pieces.iter(), (0, offset));
        assert_eq!([0, 1, 2, 3, 4].map(reach), [true, true, false, true, false]);
    }
}
