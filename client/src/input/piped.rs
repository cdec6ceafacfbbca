//! Lines of another program on standard input, for a bridge: an editor's, or an agent's that calls tools.
//!
//! A thread reads them and sends them into the one channel of the process, at most [`AHEAD`] before they are worked off.

use std::io::{self, BufRead as _, Read as _};
use std::sync::mpsc::{self, Receiver, Sender};

use super::{Event, InputLine};

/// How many lines of the other program may wait.
const AHEAD: usize = 64;

/// The longest line, in bytes: a prompt with as many pictures as the daemon takes has less.
const LONGEST: u64 = 64 << 20;

/// Lets the reader read one more line.
#[derive(Debug)]
pub(crate) struct Taken(Receiver<()>);

impl Taken {
    /// A line was worked off.
    pub(crate) fn one(&self) {
        let _none_was_sent = self.0.try_recv();
    }
}

/// A line with bytes that are no UTF-8, made one that no JSON parser takes: its sender is told, and nothing of it is carried out
/// with other characters than were meant.
fn text_of(bytes: &[u8]) -> String {
    format!("\u{fffd}{}", String::from_utf8_lossy(bytes))
}

/// Starts the thread that reads the lines.
pub(crate) fn read(sender: Sender<Event>) -> Taken {
    let (permits, taken) = mpsc::sync_channel(AHEAD);
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = input.by_ref().take(LONGEST).read_until(b'\n', &mut line);
            let is_whole = line.ends_with(b"\n") || (line.len() as u64) < LONGEST;
            // Bytes that are no UTF-8 are replaced: the line answers for itself, and the next one is read.
            let text = String::from_utf8(line).unwrap_or_else(|error| text_of(error.as_bytes()));
            let event = match read {
                Ok(0) | Err(_) => Event::Line(InputLine::End),
                Ok(_) if text.ends_with('\n') && text.trim().is_empty() => continue,
                Ok(_) if is_whole => {
                    Event::Line(InputLine::Text { typed: text.clone(), text, steer: false, request: None })
                }
                // What follows cannot be told from the rest of it.
                Ok(_) => Event::Line(InputLine::Garbled),
            };
            let ends = matches!(event, Event::Line(InputLine::End | InputLine::Garbled));
            if permits.send(()).is_err() || sender.send(event).is_err() || ends {
                return;
            }
        }
    });
    Taken(taken)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_line_with_bytes_that_are_no_utf8_is_no_json_whatever_else_it_has() {
        for line in [&b"{\"id\":1,\"method\":\"\xe9\"}\n"[..], b"1\xff\n", b"\xff1\n", b"\"\xc3\"\n"] {
            assert!(serde_json::from_str::<Value>(&text_of(line)).is_err(), "{line:?}");
        }
    }
}
