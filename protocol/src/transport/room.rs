//! Room for what is large and waits to be read by clients: a bound on all connections together.
//!
//! Hundreds of clients that do not read must not hold hundreds of copies of a large event or answer. So
//! room is taken before one is made, and is free again when it is written. The latest waiter is served
//! first: its client is reading, while clients that do not read keep their room until they are closed
//! ([`Capacity::contended`]).
//!
//! A holder of room never waits for more: if earlier answers of a batch wait to be written with it, an
//! answer without room is an error ([`Full`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedMutexGuard, Semaphore, oneshot, watch};

use crate::error::{Code, RpcError};

/// Room is counted in pieces of this size, in bytes; whatever is smaller needs none.
const PIECE: usize = 64 << 10;

/// How much room there is, in pieces: 64 MiB, one of the largest events.
const MAX_LARGE: usize = 1024;

/// How much of large requests all connections may hold together, in pieces of 64 KiB: 64 MiB, which is a few of the largest.
/// Without it a few hundred clients that each send most of a request would take gigabytes.
const MAX_REQUESTS: usize = 1024;

/// The memory that the connections of one daemon may hold together.
#[derive(Clone, Debug)]
pub struct Capacity {
    rooms: Arc<Mutex<Rooms>>,
    /// Room for large requests, in pieces of 64 KiB.
    pub(super) requests: Arc<Semaphore>,
}

impl Default for Capacity {
    fn default() -> Self {
        let rooms = Arc::new(Mutex::new(Rooms { free: MAX_LARGE, waiting: Vec::new() }));
        Self { rooms, requests: Arc::new(Semaphore::new(MAX_REQUESTS)) }
    }
}

impl Capacity {
    /// How much room there is, in bytes.
    pub const LARGE: usize = MAX_LARGE * PIECE;

    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there are waiters.
    pub(super) fn contended(&self) -> bool {
        self.rooms().waiting.iter().any(|waiting| !waiting.given.is_closed())
    }
}

#[derive(Debug)]
struct Rooms {
    free: usize,
    /// Waiters, newest last.
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    pieces: usize,
    holder: Holder,
    given: oneshot::Sender<LargeRoom>,
}

impl Rooms {
    /// Gives free room to the waiters.
    fn share(&mut self) {
        while let Some(waiting) = self.waiting.pop_if(|waiting| waiting.pieces <= self.free) {
            let room = self.take(waiting.pieces, waiting.holder);
            if let Err(mut unwanted) = waiting.given.send(room) {
                self.free += unwanted.empty();
            }
        }
    }

    fn take(&mut self, pieces: usize, holder: Holder) -> LargeRoom {
        self.free -= pieces;
        holder.held.send_modify(|held| *held += pieces);
        LargeRoom { pieces, holder }
    }
}

/// Counts the room that one connection holds, in pieces.
#[derive(Clone, Debug)]
pub struct Holder {
    held: Arc<watch::Sender<usize>>,
    /// The room that it is taken of.
    pub(super) capacity: Capacity,
}

impl Holder {
    /// One that holds none.
    pub(super) fn of(capacity: Capacity) -> Self {
        Self { held: Arc::new(watch::channel(0).0), capacity }
    }

    /// How much it holds, in bytes.
    pub(super) fn bytes(&self) -> usize {
        *self.held.borrow() * PIECE
    }

    /// Waits until it holds some.
    pub(super) async fn holds(&self) {
        // Fails when the sender has gone, which is here.
        let _ = self.held.subscribe().wait_for(|held| *held > 0).await;
    }
}

/// Room for something large that a client is to read; taken before it is made, free again when this is dropped.
#[derive(Debug)]
pub struct LargeRoom {
    pieces: usize,
    holder: Holder,
}

impl LargeRoom {
    /// Waits until there is room for about `bytes`; what is larger than all the room takes all of it.
    pub async fn of(bytes: usize, holder: &Holder) -> Self {
        let (given, room) = oneshot::channel();
        {
            let mut rooms = holder.capacity.rooms();
            rooms.waiting.retain(|waiting| !waiting.given.is_closed());
            rooms.waiting.push(Waiting { pieces: pieces(bytes), holder: holder.clone(), given });
            rooms.share();
        }
        // A waiter is given room in the end: the holder keeps the senders alive.
        room.await.unwrap_or_else(|_| Self { pieces: 0, holder: holder.clone() })
    }

    /// Room for about `bytes`, if there is some now.
    fn at_once(bytes: usize, holder: &Holder) -> Option<Self> {
        let (mut rooms, pieces) = (holder.capacity.rooms(), pieces(bytes));
        (pieces <= rooms.free).then(|| rooms.take(pieces, holder.clone()))
    }

    /// Gives back what something of `bytes` does not need; whether anything is left.
    fn shrink(&mut self, bytes: usize) -> bool {
        self.give_back(self.pieces.saturating_sub(bytes / PIECE));
        self.pieces > 0
    }

    fn give_back(&mut self, pieces: usize) {
        if pieces > 0 {
            self.pieces -= pieces;
            self.holder.held.send_modify(|held| *held -= pieces);
            let mut rooms = self.holder.capacity.rooms();
            rooms.free += pieces;
            rooms.share();
        }
    }

    /// Takes out the pieces, while the rooms are locked.
    fn empty(&mut self) -> usize {
        self.holder.held.send_modify(|held| *held -= self.pieces);
        std::mem::take(&mut self.pieces)
    }
}

impl Drop for LargeRoom {
    fn drop(&mut self) {
        self.give_back(self.pieces);
    }
}

fn pieces(bytes: usize) -> usize {
    bytes.div_ceil(PIECE).clamp(1, MAX_LARGE)
}

/// There is no room for an answer together with the rest of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl From<Full> for RpcError {
    fn from(Full: Full) -> Self {
        Self::new(Code::TooMuch, "there is no room for this answer together with the others of its batch")
            .hint("send the request alone")
    }
}

/// The answers that go out together: all of a batch, or one.
#[derive(Debug, Default)]
pub(super) struct Together {
    /// Held by the one that makes a large answer.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Whether one that is finished holds room.
    holds: AtomicBool,
}

/// Where a handler leaves the room that its answer takes; in the extensions of each request.
#[derive(Clone, Debug)]
pub struct AnswerRoom {
    holder: Holder,
    together: Arc<Together>,
    made: Arc<Mutex<Option<Made>>>,
}

/// Room for an answer that is being made, and the turn to make one.
type Made = (LargeRoom, OwnedMutexGuard<()>);

impl AnswerRoom {
    pub(super) fn of(holder: Holder, together: Arc<Together>) -> Self {
        Self { holder, together, made: Arc::default() }
    }

    /// Waits for room for an answer of at most about `bytes`, which takes it until it is written; once a request.
    pub async fn make(&self, bytes: usize) -> Result<(), Full> {
        let turn = self.together.turn.clone().lock_owned().await;
        let room = if self.together.holds.load(Ordering::Relaxed) {
            LargeRoom::at_once(bytes, &self.holder).ok_or(Full)?
        } else {
            LargeRoom::of(bytes, &self.holder).await
        };
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some((room, turn));
        Ok(())
    }

    /// The room that an answer of `bytes` keeps until it is written.
    pub(super) fn finish(&self, bytes: usize) -> Option<LargeRoom> {
        let (mut room, _turn) = self.made.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let kept = room.shrink(bytes).then_some(room);
        self.together.holds.fetch_or(kept.is_some(), Ordering::Relaxed);
        kept
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_last_one_is_served_first_and_nothing_is_lost() {
        let capacity = Capacity::default();
        let holder = Holder::of(capacity.clone());
        let of = |bytes| LargeRoom::of(bytes, &holder);
        let all = poll(pin!(of(usize::MAX))).unwrap();
        let (mut first, mut last) = (pin!(of(PIECE + 1)), pin!(of(usize::MAX)));
        assert!(poll(first.as_mut()).is_none() && poll(last.as_mut()).is_none());
        assert!(poll(pin!(of(1))).is_none(), "and is gone");
        assert!(capacity.contended());
        drop(all);
        assert!(poll(first.as_mut()).is_none(), "the latest waiter has everything");
        assert_eq!(poll(last.as_mut()).map(|room| room.pieces), Some(MAX_LARGE));
        assert_eq!(poll(first.as_mut()).map(|room| room.pieces), Some(2));
        assert!(!capacity.contended());
        assert_eq!((capacity.rooms().free, *holder.held.borrow()), (MAX_LARGE, 0));
    }

    #[test]
    fn a_batch_does_not_wait_while_it_holds_what_others_wait_for() {
        let capacity = Capacity::default();
        let holder = Holder::of(capacity.clone());
        let together = Arc::<Together>::default();
        let answer = || AnswerRoom::of(holder.clone(), together.clone());
        let (small, large, late) = (answer(), answer(), answer());
        assert_eq!(poll(pin!(small.make(4 * PIECE))), Some(Ok(())));
        let mut making = pin!(large.make(MAX_LARGE * PIECE));
        assert_eq!(poll(making.as_mut()), None, "one of a batch at a time");
        assert!(small.finish(PIECE - 1).is_none(), "what turns out to be small takes nothing");
        assert_eq!(poll(making), Some(Ok(())));
        let kept = large.finish(3 * PIECE).unwrap();
        assert_eq!((kept.pieces, *holder.held.borrow(), capacity.rooms().free), (3, 3, MAX_LARGE - 3));
        assert_eq!(poll(pin!(late.make(MAX_LARGE * PIECE))), Some(Err(Full)));
        assert_eq!(poll(pin!(late.make(PIECE))), Some(Ok(())));
        drop((late.finish(PIECE), kept));
        assert_eq!((capacity.rooms().free, *holder.held.borrow()), (MAX_LARGE, 0));
    }
}
