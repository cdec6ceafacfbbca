//! Room for what is large and waits to be read by clients: a bound on all connections together.
//!
//! Hundreds of clients that do not read must not hold hundreds of copies of a large event or answer. So whoever makes one takes
//! room for it before, and the room is free again when it is written. Who came last is served first: it is there and reads,
//! while those who do not read keep what they got until they are hung up ([`contended`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Room is counted in pieces of this size, in bytes; whatever is smaller needs none.
const PIECE: usize = 64 << 10;

/// How much room there is, in pieces: 64 MiB, one of the largest events.
const MAX_LARGE: usize = 1024;

static ROOMS: Mutex<Rooms> = Mutex::new(Rooms { free: MAX_LARGE, waiting: Vec::new() });

struct Rooms {
    free: usize,
    /// Who waits and for how much, the last one last.
    waiting: Vec<(usize, oneshot::Sender<LargeRoom>)>,
}

fn rooms() -> MutexGuard<'static, Rooms> {
    ROOMS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rooms {
    /// Gives what is free to those who wait.
    fn share(&mut self) {
        while let Some((pieces, waiting)) = self.waiting.pop_if(|(pieces, _)| *pieces <= self.free) {
            self.free -= pieces;
            if let Err(mut unwanted) = waiting.send(LargeRoom(pieces)) {
                self.free += std::mem::take(&mut unwanted.0);
            }
        }
    }
}

/// Room for something large that a client is to read, in pieces; taken before it is made, free again when this is dropped.
#[derive(Debug)]
pub struct LargeRoom(usize);

impl LargeRoom {
    /// Waits until there is room for about `bytes`; what is larger than all the room takes all of it.
    pub async fn of(bytes: usize) -> Self {
        let (room, given) = oneshot::channel();
        {
            let mut rooms = rooms();
            rooms.waiting.retain(|(_, waiting)| !waiting.is_closed());
            rooms.waiting.push((bytes.div_ceil(PIECE).clamp(1, MAX_LARGE), room));
            rooms.share();
        }
        // Whoever waits is given room in the end: the senders live in a static.
        given.await.unwrap_or(Self(0))
    }
}

impl Drop for LargeRoom {
    fn drop(&mut self) {
        if self.0 > 0 {
            let mut rooms = rooms();
            rooms.free += self.0;
            rooms.share();
        }
    }
}

/// Whether anybody waits for room.
pub(super) fn contended() -> bool {
    rooms().waiting.iter().any(|(_, waiting)| !waiting.is_closed())
}

/// Where a handler leaves the room that its answer takes; in the extensions of each request.
#[derive(Clone, Debug, Default)]
pub struct AnswerRoom(Arc<Mutex<Option<LargeRoom>>>);

impl AnswerRoom {
    /// Keeps room for the answer until that is written.
    pub fn keep(&self, room: LargeRoom) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(room);
    }

    pub(super) fn take(&self) -> Option<LargeRoom> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn the_last_one_is_served_first_and_nothing_is_lost() {
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = |room: std::pin::Pin<&mut dyn Future<Output = LargeRoom>>| match room.poll(&mut context) {
            Poll::Ready(room) => Some(room.0),
            Poll::Pending => None,
        };
        let all = LargeRoom(MAX_LARGE);
        rooms().free = 0;
        let (mut first, mut last) = (pin!(LargeRoom::of(PIECE + 1)), pin!(LargeRoom::of(usize::MAX)));
        assert_eq!((poll(first.as_mut()), poll(last.as_mut())), (None, None));
        {
            let mut gone = Box::pin(LargeRoom::of(1));
            assert_eq!(poll(gone.as_mut()), None);
        }
        assert!(contended());
        drop(all);
        assert_eq!(poll(first.as_mut()), None, "who came last has everything");
        assert_eq!(poll(last.as_mut()), Some(MAX_LARGE));
        // `poll` dropped it.
        assert_eq!(poll(first.as_mut()), Some(2));
        assert!(!contended());
        assert_eq!(rooms().free, MAX_LARGE);
    }
}
