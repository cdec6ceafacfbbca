//! Writes what the server was sent and said to the file that `LINGER_RECORD` names, a JSON value a line, for `sdk_types.py`.
//!
//! Only whole responses are written: what a test breaks on purpose is no fault of ours.

use std::fs::OpenOptions;
use std::io::Write;

use serde_json::{Value, json};

use super::reply::{Part, Reply};
use super::wire::{Format, Piece};

/// A request's body.
pub(super) fn request(format: Format, body: &Value) {
    write(&json!({ "kind": format.kind(), "body": body }));
}

/// A response.
pub(super) fn response(format: Format, reply: &Reply, pieces: &[Piece]) {
    if reply.parts.iter().any(|part| matches!(part, Part::Raw(_) | Part::Cut | Part::Stall)) {
        return;
    }
    let mut stream = Vec::new();
    for piece in pieces {
        if let Piece::Bytes(bytes) = piece {
            stream.extend(bytes);
        }
    }
    write(&json!({ "kind": format.kind(), "stream": String::from_utf8_lossy(&stream) }));
}

fn write(line: &Value) {
    let Some(path) = std::env::var_os("LINGER_RECORD") else { return };
    let file = OpenOptions::new().create(true).append(true).open(path);
    // One write, so that the lines of tests that run side by side do not mix.
    file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())).expect("the record can be written");
}
