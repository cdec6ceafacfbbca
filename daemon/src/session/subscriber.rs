//! A subscriber: a cursor that reads a session's log at its own pace and turns it into lines for one client.
//!
//! Replay and live are the same loop: copy what lies after the cursor out of the tail (or, further back, out of the store),
//! send it, wait until the log grows. The task belongs to its connection, which aborts it; it holds one batch at most.

use std::sync::Arc;

use linger_protocol::event::{Delta, Event, EventBody, Level, NoticeCode, OutputSegment, SESSION_EVENT};
use linger_protocol::id::{CallId, MessageId, SessionId, TurnId};
use linger_protocol::message::{ContentBlock, Role};
use linger_protocol::transport::serve::{Gone, Outbox};

use tokio::sync::watch;

use super::actor::Reading;
use super::cursor::Position;
use super::log::{Log, OpenStream, Piece, PieceKind, Stored};
use crate::clock;
use crate::fault;
use crate::store::{Store, StoreError};

/// How much of the log is read and sent at once, in bytes.
const BATCH: usize = 64 << 10;

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
    /// Events, and the streams that are open if the events reach the head.
    Here(Vec<Arc<Stored>>, Option<Vec<OpenStream>>),
    /// The tail begins later than the cursor; what is missing goes up to this number.
    Behind(u64),
}

impl Subscriber {
    /// A subscriber that reads on from where the actor said.
    pub fn new(reading: Reading, store: Store, outbox: Outbox, deltas: bool) -> Self {
        let Reading { log, changed, at, .. } = reading;
        Self { log, store, outbox, deltas, at, changed }
    }

    /// Sends everything after the cursor, and goes on until the client or the session has gone.
    pub async fn run(mut self) {
        let mut caught_up = false;
        loop {
            let (lines, complete) = match self.next_lines().await {
                Ok(next) => next,
                Err(_) if self.log.removed() => {
                    // What was missing was meant to be.
                    self.store.found.mended(&self.log.session);
                    return self.say_removed().await;
                }
                Err(error) if error.is_damage() => return self.say_damaged(&error.0.to_string()).await,
                Err(error) => {
                    tracing::error!(target: "attach", session = %self.log.session, %error, "replay failed");
                    let text = format!("the log cannot be read: {error}; attach again");
                    return self.say_last(Level::Error, None, text).await;
                }
            };
            fault::point("subscriber.before_send");
            if fault::bug("I10") {
                let (outbox, lines) = (self.outbox.clone(), lines);
                tokio::spawn(async move { outbox.send(lines).await });
            } else if !lines.is_empty() && self.outbox.send(lines).await == Err(Gone) {
                return;
            }
            fault::point("subscriber.sent");
            if !complete {
                continue;
            }
            if !caught_up {
                caught_up = true;
                let line = self.line(&EventBody::CaughtUp {}, clock::now(), None);
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
        let line = self.line(&EventBody::Notice { level, code, text }, clock::now(), None);
        let _last = self.outbox.send(vec![line]).await;
    }

    /// The next lines, and whether they reach the head.
    async fn next_lines(&mut self) -> Result<(Vec<String>, bool), StoreError> {
        let mut lines = Vec::new();
        match self.batch() {
            Batch::Here(events, streams) => {
                events.iter().for_each(|event| self.event(event, &mut lines));
                let complete = streams.is_some();
                streams.iter().flatten().for_each(|stream| self.open_stream(stream, &mut lines));
                Ok((lines, complete))
            }
            Batch::Behind(until) => {
                let page = self.store.events(self.log.session.clone(), self.at.seq, until, BATCH).await?;
                if page.is_empty() {
                    return Err(StoreError::damage(format!("event {} is missing", self.at.seq + 1)));
                }
                page.iter().for_each(|event| self.event(event, &mut lines));
                Ok((lines, false))
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
        let streams = if self.deltas { self.fresh(&tail.streams) } else { Vec::new() };
        Batch::Here(events, Some(streams))
    }

    /// The part of the open streams that lies after the cursor.
    fn fresh(&self, streams: &[OpenStream]) -> Vec<OpenStream> {
        let fresh = |stream: &OpenStream| {
            let at = self.at.within(&stream.id);
            let pieces = stream.pieces.iter().filter_map(|piece| after(piece, at)).collect();
            OpenStream { id: stream.id.clone(), turn: stream.turn.clone(), pieces }
        };
        streams.iter().map(fresh).filter(|stream| !stream.pieces.is_empty()).collect()
    }

    /// An event: first what is left of the stream that it closes, then the event itself, as it is stored.
    fn event(&mut self, stored: &Stored, lines: &mut Vec<String>) {
        if let Some(stream) = &stored.stream {
            if self.deltas && !fault::bug("I3") {
                let at = self.at.within(stream);
                let (pieces, turn) = closed_pieces(stored);
                for piece in pieces.iter().filter_map(|piece| after(piece, at)) {
                    self.piece(piece, stored.at, turn.as_ref(), lines);
                }
            }
            self.at.streams.remove(stream);
        }
        self.at.seq = stored.seq;
        lines.push(notification(&self.log.session, &self.at, &stored.data));
    }

    fn open_stream(&mut self, stream: &OpenStream, lines: &mut Vec<String>) {
        let now = clock::now();
        for piece in &stream.pieces {
            self.piece(piece.clone(), now, stream.turn.as_ref(), lines);
        }
    }

    fn piece(&mut self, piece: Piece, at: u64, turn: Option<&TurnId>, lines: &mut Vec<String>) {
        self.at.advance(&piece.stream, piece.block, piece.end());
        let Piece { stream, block, offset, kind, text } = piece;
        let delta = |stream| Delta { message: MessageId(stream), block, offset, text: text.clone() };
        let body = match kind {
            PieceKind::Text => EventBody::TextDelta(delta(stream)),
            PieceKind::Thinking => EventBody::ThinkingDelta(delta(stream)),
            PieceKind::Output => EventBody::ToolOutputDelta { call_id: CallId(stream), offset, text },
        };
        lines.push(self.line(&body, at, turn));
    }

    fn line(&self, body: &EventBody, at: u64, turn: Option<&TurnId>) -> String {
        let event = Event { body: body.clone(), seq: None, at, turn: turn.cloned() };
        notification(&self.log.session, &self.at, &serde_json::to_string(&event).unwrap_or_default())
    }
}

/// A whole notification around an event that is JSON already.
fn notification(session: &SessionId, at: &Position, event: &str) -> String {
    // Ids and cursors have no character that JSON would escape.
    let cursor = at.cursor();
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"{SESSION_EVENT}\",\"params\":{{\"session\":\"{session}\",\"cursor\":\"{cursor}\",\"event\":{event}}}}}"
    )
}

/// The part of `piece` that lies after block and offset.
fn after(piece: &Piece, (block, offset): (u32, u64)) -> Option<Piece> {
    if piece.block < block || (piece.block == block && piece.end() <= offset) {
        return None;
    }
    if piece.block > block || piece.offset >= offset {
        return Some(piece.clone());
    }
    let text = piece.text.get((offset - piece.offset) as usize..)?.to_owned();
    Some(Piece { text, offset, ..piece.clone() })
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
