//! The thread that reads a connection, and how much of what it read may lie in this process: when nobody reads what we print
//! (`less`, Ctrl-S), the daemon is not read either, and keeps our place.
//!
//! It waits here for the thread that takes events out of the channel. That one never waits for it: while it is busy sending, which
//! may need the daemon to get rid of what it says to us, everything is taken.

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
    bytes: usize,
    /// Whether whoever would make room is busy.
    sending: bool,
}

impl Unread {
    fn has_room(&self, bytes: usize) -> bool {
        self.sending || self.bytes == 0 || self.bytes.saturating_add(bytes) <= MAX_UNREAD
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

    /// Sends something; meanwhile there is room for everything.
    pub(crate) fn while_sending<T>(&self, send: impl FnOnce() -> T) -> T {
        self.lock().sending = true;
        self.0.1.notify_all();
        let sent = send();
        self.lock().sending = false;
        sent
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
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_little_or_for_one_or_while_sending() {
        let unread = |bytes, sending| Unread { bytes, sending };
        assert!(unread(0, false).has_room(64 << 20));
        assert!(unread(MAX_UNREAD - 10, false).has_room(10));
        assert!(!unread(MAX_UNREAD - 10, false).has_room(11));
        assert!(!unread(1, false).has_room(64 << 20));
        assert!(unread(MAX_UNREAD, true).has_room(64 << 20));
    }

    #[test]
    fn whoever_waits_for_room_goes_on_when_some_is_free_or_when_the_other_sends() {
        let answer = |bytes: usize| {
            let text = format!("\"{}\"", "x".repeat(bytes - 2));
            Incoming::Response(1, Ok(serde_json::value::RawValue::from_string(text).unwrap()))
        };
        let room = Room::default();
        let (sender, taken) = std::sync::mpsc::channel();
        let (full, reader) = (MAX_UNREAD, room.clone());
        let thread = std::thread::spawn(move || {
            for n in 0..3 {
                reader.take(&answer(full));
                sender.send(n).unwrap();
            }
        });
        assert_eq!(taken.recv(), Ok(0));
        room.free(&answer(full));
        assert_eq!(taken.recv(), Ok(1));
        assert_eq!(room.while_sending(|| taken.recv()), Ok(2));
        thread.join().unwrap();
        assert_eq!(room.lock().bytes, 2 * full);
    }
}
