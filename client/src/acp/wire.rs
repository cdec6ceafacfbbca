//! The editor's side of the bridge: lines of JSON-RPC in on standard input, out on standard output.
//!
//! A thread reads the lines and sends them into the one channel of the process, at most [`AHEAD`] before they are worked
//! off. One line has one message; a batch is not read, as ACP has none.

use std::io::{self, BufRead as _, Read as _};
use std::sync::mpsc::{self, Receiver, Sender};

use agent_client_protocol_schema::v1::{Error, ErrorCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::error::Failure;
use crate::input::{Event, Line};
use crate::terminal::Terminal;

/// How many lines of the editor may wait.
const AHEAD: usize = 64;

/// The longest line, in bytes: a prompt with as many pictures as the daemon takes has less.
const LONGEST: u64 = 64 << 20;

/// A message of the editor.
#[derive(Debug, Deserialize)]
pub(super) struct Message {
    /// Its number: of a request, or of ours that is answered.
    #[serde(default)]
    pub(super) id: Option<Value>,
    /// The method of a request or a notification.
    #[serde(default)]
    pub(super) method: Option<String>,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    /// What came of a request of ours.
    #[serde(default)]
    pub(super) result: Option<Value>,
}

impl Message {
    /// The message in a line, or the error for one that is none.
    pub(super) fn read(line: &str) -> Result<Self, Error> {
        serde_json::from_str(line).map_err(|error| Error::new(ErrorCode::ParseError.into(), error.to_string()))
    }

    /// The params, or the error that says which field does not fit.
    pub(super) fn params<'de, T: Deserialize<'de>>(&'de self) -> Result<T, Error> {
        let params = self.params.as_deref().map_or("{}", RawValue::get);
        serde_json::from_str(params).map_err(|error| Error::new(ErrorCode::InvalidParams.into(), error.to_string()))
    }
}

/// Lets the reader go on by one line.
#[derive(Debug)]
pub(super) struct Taken(Receiver<()>);

impl Taken {
    /// A line was worked off.
    pub(super) fn one(&self) {
        let _none_was_sent = self.0.try_recv();
    }
}

/// Starts the thread that reads the editor's lines.
pub(super) fn read(sender: Sender<Event>) -> Taken {
    let (permits, taken) = mpsc::sync_channel(AHEAD);
    std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = input.by_ref().take(LONGEST).read_until(b'\n', &mut line);
            let event = match (read, String::from_utf8(line)) {
                (Ok(0) | Err(_), _) => Event::Line(Line::End),
                (Ok(_), Ok(text)) if text.ends_with('\n') && text.trim().is_empty() => continue,
                (Ok(_), Ok(text)) if text.ends_with('\n') || (text.len() as u64) < LONGEST => {
                    Event::Line(Line::Text { typed: text.clone(), text, steer: false, request: None })
                }
                // Too long, or no text: what follows cannot be told from the rest of it.
                _ => Event::Line(Line::Garbled),
            };
            let ends = matches!(event, Event::Line(Line::End | Line::Garbled));
            if permits.send(()).is_err() || sender.send(event).is_err() || ends {
                return;
            }
        }
    });
    Taken(taken)
}

/// Writes to the editor.
#[derive(Debug)]
pub(super) struct Editor {
    /// The number of our last request.
    last: u64,
}

impl Editor {
    pub(super) fn new() -> Self {
        Self { last: 0 }
    }

    /// Answers a request.
    pub(super) fn answer(&self, id: &Value, result: Result<Value, Error>) -> Result<(), Failure> {
        self.send(&match result {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        })
    }

    /// Sends a notification.
    pub(super) fn notify(&self, method: &str, params: &impl Serialize) -> Result<(), Failure> {
        self.send(&Call { jsonrpc: "2.0", id: None, method, params })
    }

    /// Sends a request and returns its number.
    pub(super) fn request(&mut self, method: &str, params: &impl Serialize) -> Result<u64, Failure> {
        self.last += 1;
        self.send(&Call { jsonrpc: "2.0", id: Some(self.last), method, params })?;
        Ok(self.last)
    }

    fn send(&self, message: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(message).map_err(io::Error::from)?;
        Ok(Terminal::new().data(&line)?)
    }
}

#[derive(Serialize)]
struct Call<'a, T> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: &'a T,
}
