//! The thread that reads a connection, and how much of what it read may lie in this process: when nobody reads what we print
//! (`less`, Ctrl-S), the daemon is not read either, and keeps our place.
//!
//! It waits here for the thread that takes events out of the channel, and for the prompt that draws lines above itself. The first
//! never waits for it: while it is busy sending, which may need the daemon to get rid of what it says to us, or with an answer
//! that comes behind other things, everything is taken.

use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use linger_protocol::transport::blocking::{Incoming, Reader};

use crate::error::Failure;
use crate::input::Event;

/// What may lie unread, in bytes as they came, beside one message of any size: enough to keep both threads busy.
const MAX_UNREAD: usize = 1 << 20;

/// Room for what was read from a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Room(Arc<(Mutex<Unread>, Condvar)>);

#[derive(Debug, Default)]
struct Unread {
    /// Of what nobody has received.
    bytes: usize,
    /// Of lines that are not drawn yet.
    lines: usize,
    /// Whether whoever would make room is busy.
    busy: bool,
}

impl Unread {
    fn has_room(&self, bytes: usize) -> bool {
        let unread = self.bytes.saturating_add(self.lines);
        self.busy || unread == 0 || unread.saturating_add(bytes) <= MAX_UNREAD
    }
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for something, and takes it.
    pub(crate) fn take(&self, incoming: &Incoming) {
        let bytes = size(incoming);
        let unread = self.0.1.wait_while(self.lock(), |unread| !unread.has_room(bytes));
        unread.unwrap_or_else(PoisonError::into_inner).bytes += bytes;
    }

    /// Gives back the room of something.
    pub(crate) fn free(&self, incoming: &Incoming) {
        let mut unread = self.lock();
        unread.bytes = unread.bytes.saturating_sub(size(incoming));
        self.0.1.notify_all();
    }

    /// Takes room for lines, without waiting.
    pub(crate) fn take_lines(&self, bytes: usize) {
        self.lock().lines += bytes;
    }

    /// Gives back the room of lines.
    pub(crate) fn free_lines(&self, bytes: usize) {
        let mut unread = self.lock();
        unread.lines = unread.lines.saturating_sub(bytes);
        self.0.1.notify_all();
    }

    /// Whoever would make room is busy until what this gives is dropped; meanwhile there is room for everything.
    pub(crate) fn while_busy(&self) -> Busy {
        self.lock().busy = true;
        self.0.1.notify_all();
        Busy(self.clone())
    }
}

/// While it lives there is room for everything.
#[derive(Debug)]
pub(crate) struct Busy(Room);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.lock().busy = false;
    }
}

fn size(incoming: &Incoming) -> usize {
    match incoming {
        Incoming::Event(_, raw) | Incoming::Response(_, Ok(raw)) => raw.get().len(),
        Incoming::Response(_, Err(error)) => error.message.len(),
    }
}

/// Reads a connection to its end, in a thread of its own.
pub(crate) fn listen(mut reader: Reader, epoch: u32, sender: Sender<Event>, room: Room) {
    std::thread::spawn(move || {
        let end = loop {
            match reader.next_incoming() {
                Ok(Some(incoming)) => {
                    room.take(&incoming);
                    if sender.send(Event::Incoming(epoch, incoming)).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    break Event::Refused(epoch, Failure::refused(error));
                }
                // Whatever else ends the stream, to us the connection is lost: only a new one can help.
                Ok(None) | Err(_) => break Event::Lost(epoch),
            }
        };
        // Nobody is left to hear of it when the command has ended.
        let _ended = sender.send(end);
    });
}

#[cfg(test)]
impl Room {
    pub(crate) fn is_free(&self, bytes: usize) -> bool {
        self.lock().has_room(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::TryRecvError;

    use super::*;

    #[test]
    fn there_is_room_for_little_or_for_one_or_while_busy() {
        let unread = |bytes, lines, busy| Unread { bytes, lines, busy };
        assert!(unread(0, 0, false).has_room(64 << 20));
        assert!(unread(MAX_UNREAD - 20, 10, false).has_room(10));
        assert!(!unread(MAX_UNREAD - 20, 10, false).has_room(11));
        assert!(!unread(1, 0, false).has_room(64 << 20));
        assert!(!unread(0, 1, false).has_room(64 << 20));
        assert!(unread(MAX_UNREAD, MAX_UNREAD, true).has_room(64 << 20));
    }

    #[test]
    fn whoever_waits_for_room_goes_on_when_some_is_free_or_when_the_other_is_busy() {
        let answer = |bytes: usize| {
            let text = format!("\"{}\"", "x".repeat(bytes - 2));
            Incoming::Response(1, Ok(serde_json::value::RawValue::from_string(text).unwrap()))
        };
        let room = Room::default();
        let (next, asked) = std::sync::mpsc::channel::<usize>();
        let (sender, taken) = std::sync::mpsc::channel();
        let (full, reader) = (MAX_UNREAD, room.clone());
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
        room.free(&answer(full));
        assert_eq!(taken.recv(), Ok(1));
        next.send(2).unwrap();
        let busy = room.while_busy();
        assert_eq!(taken.recv(), Ok(2));
        // What is read after this finds nobody busy.
        room.take_lines(1);
        drop(busy);
        next.send(3).unwrap();
        (0..2).for_each(|_| room.free(&answer(full)));
        assert_eq!(taken.try_recv(), Err(TryRecvError::Empty));
        room.free_lines(1);
        assert_eq!(taken.recv(), Ok(3));
        drop(next);
        thread.join().unwrap();
        assert_eq!(room.lock().bytes, full);
    }
}
