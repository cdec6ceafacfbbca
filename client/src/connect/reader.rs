//! The thread that reads a connection to its end, as fast as its events are taken.

use std::io;
use std::sync::mpsc::Sender;

use linger_protocol::transport::blocking::Reader;

use crate::capacity::Capacity;
use crate::error::Failure;
use crate::input::Event;

/// Starts the thread; its last event is [`Event::Lost`] or [`Event::Refused`].
pub(super) fn listen(mut reader: Reader, epoch: u32, sender: Sender<Event>, capacity: Capacity) {
    std::thread::spawn(move || {
        let end = loop {
            match reader.next_incoming() {
                Ok(Some(incoming)) => {
                    capacity.take(&incoming);
                    if sender.send(Event::Incoming(epoch, incoming)).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    break Event::Refused(epoch, Failure::refused(error));
                }
                // Any other end of the stream is a lost connection: only a new one can help.
                Ok(None) | Err(_) => break Event::Lost(epoch),
            }
        };
        // Fails once the command has ended.
        let _ended = sender.send(end);
    });
}
