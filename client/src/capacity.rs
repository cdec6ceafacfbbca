//! How much of the daemon's output may be unread or undrawn in this process.
//!
//! While our own output is not read (`less`, Ctrl-S), the daemon is not read either; it keeps our
//! place. The reading thread waits here for two consumers: the thread that takes events out of the
//! channel, and the prompt that draws lines above itself. The first one never waits for the reader:
//! while it is busy with a request or its answer, everything is taken.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use linger_protocol::transport::blocking::Incoming;

/// The most unread bytes, as they came over the wire, apart from one message of any size: enough to
/// keep both threads busy.
const MAX_UNREAD: usize = 1 << 20;

/// The capacity for input that was read from a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Capacity(Arc<(Mutex<Unread>, Condvar)>);

#[derive(Debug, Default)]
struct Unread {
    /// Bytes that are still in the channel.
    bytes: usize,
    /// Bytes of lines that are not drawn yet.
    lines: usize,
    /// Whether the consumer of events is busy.
    busy: bool,
}

impl Unread {
    fn has_capacity(&self, bytes: usize) -> bool {
        let unread = self.bytes.saturating_add(self.lines);
        self.busy || unread == 0 || unread.saturating_add(bytes) <= MAX_UNREAD
    }
}

impl Capacity {
    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `incoming` has room, and takes it.
    pub(crate) fn take(&self, incoming: &Incoming) {
        let bytes = size(incoming);
        let unread = self.0.1.wait_while(self.lock(), |unread| !unread.has_capacity(bytes));
        unread.unwrap_or_else(PoisonError::into_inner).bytes += bytes;
    }

    /// Gives back what [`Capacity::take`] took.
    pub(crate) fn free(&self, incoming: &Incoming) {
        let mut unread = self.lock();
        unread.bytes = unread.bytes.saturating_sub(size(incoming));
        self.0.1.notify_all();
    }

    /// Takes capacity for lines, without waiting.
    pub(crate) fn take_lines(&self, bytes: usize) {
        self.lock().lines += bytes;
    }

    /// Gives back the capacity of lines.
    pub(crate) fn free_lines(&self, bytes: usize) {
        let mut unread = self.lock();
        unread.lines = unread.lines.saturating_sub(bytes);
        self.0.1.notify_all();
    }

    /// While the guard lives, the consumer counts as busy and everything is taken.
    pub(crate) fn while_busy(&self) -> Busy {
        self.lock().busy = true;
        self.0.1.notify_all();
        Busy(self.clone())
    }
}

/// While it lives, the consumer counts as busy.
#[derive(Debug)]
pub(crate) struct Busy(Capacity);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.lock().busy = false;
    }
}

fn size(incoming: &Incoming) -> usize {
    match incoming {
        Incoming::Event(_, raw) | Incoming::Any(_, raw) | Incoming::Response(_, Ok(raw)) => raw.get().len(),
        Incoming::Response(_, Err(error)) => error.message.len(),
        // Only short answers are asked for.
        Incoming::Completion(_) => 0,
    }
}

#[cfg(test)]
impl Capacity {
    pub(crate) fn is_free(&self, bytes: usize) -> bool {
        self.lock().has_capacity(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::TryRecvError;

    use super::*;

    #[test]
    fn little_is_taken_or_one_message_or_anything_while_busy() {
        let unread = |bytes, lines, busy| Unread { bytes, lines, busy };
        assert!(unread(0, 0, false).has_capacity(64 << 20));
        assert!(unread(MAX_UNREAD - 20, 10, false).has_capacity(10));
        assert!(!unread(MAX_UNREAD - 20, 10, false).has_capacity(11));
        assert!(!unread(1, 0, false).has_capacity(64 << 20));
        assert!(!unread(0, 1, false).has_capacity(64 << 20));
        assert!(unread(MAX_UNREAD, MAX_UNREAD, true).has_capacity(64 << 20));
    }

    #[test]
    fn a_waiting_reader_continues_when_there_is_capacity_or_the_consumer_is_busy() {
        let answer = |bytes: usize| {
            let text = format!("\"{}\"", "x".repeat(bytes - 2));
            Incoming::Response(1, Ok(serde_json::value::RawValue::from_string(text).unwrap()))
        };
        let capacity = Capacity::default();
        let (next, asked) = std::sync::mpsc::channel::<usize>();
        let (sender, taken) = std::sync::mpsc::channel();
        let (full, reader) = (MAX_UNREAD, capacity.clone());
        let thread = std::thread::spawn(move || {
            for n in asked {
                reader.take(&answer(full));
                sender.send(n).unwrap();
            }
        });
        next.send(0).unwrap();
        assert_eq!(taken.recv(), Ok(0));
        next.send(1).unwrap();
        assert_eq!(taken.try_recv(), Err(TryRecvError::Empty));
        capacity.free(&answer(full));
        assert_eq!(taken.recv(), Ok(1));
        next.send(2).unwrap();
        let busy = capacity.while_busy();
        assert_eq!(taken.recv(), Ok(2));
        // From here on the consumer is not busy.
        capacity.take_lines(1);
        drop(busy);
        next.send(3).unwrap();
        (0..2).for_each(|_| capacity.free(&answer(full)));
        assert_eq!(taken.try_recv(), Err(TryRecvError::Empty));
        capacity.free_lines(1);
        assert_eq!(taken.recv(), Ok(3));
        drop(next);
        thread.join().unwrap();
        assert_eq!(capacity.lock().bytes, full);
    }
}
