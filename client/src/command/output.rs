//! Output that several commands share: rows and values as JSON, the note about queued prompts.

use linger_protocol::id::SessionId;
use linger_protocol::method::Method;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::terminal::Terminal;

/// The note about prompts that are queued behind a stopped turn; none if there are none.
pub(super) fn queued_note(queued: u32, session: &SessionId) -> Option<String> {
    let (prompts, them) = match queued {
        0 => return None,
        1 => ("1 prompt is".to_owned(), "it"),
        more => (format!("{more} prompts are"), "them"),
    };
    Some(format!("{prompts} still queued; `linger queue {session} --run` or a new prompt starts {them}"))
}

/// The sentence about a session's drafts; absent if it has none.
pub(super) fn drafts_note(drafts: u32, session: &SessionId) -> Option<String> {
    let (prompts, them) = match drafts {
        0 => return None,
        1 => ("1 queued prompt is a draft".to_owned(), "it"),
        more => (format!("{more} queued prompts are drafts"), "them"),
    };
    Some(format!("{prompts} after a cancel; `linger queue {session} --run` sends {them}"))
}

/// Prints each element of a result as it came, one a line.
pub(super) fn print_rows<M: Method>(client: &mut Client, request: &M) -> Result<(), Failure> {
    let raw = client.call_raw(request)??;
    let rows: Vec<Box<RawValue>> = serde_json::from_str(raw.get()).map_err(|error| {
        Failure::new(Exit::FAILED, format!("the daemon's answer to {} is no list: {error}", M::NAME))
    })?;
    let mut terminal = Terminal::new();
    for row in rows {
        terminal.data(row.get())?;
    }
    Ok(())
}

/// Prints one value as JSON, in a line.
pub(super) fn print_value(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value)
        .map_err(|error| Failure::new(Exit::FAILED, format!("the result cannot be printed: {error}")))?;
    Ok(Terminal::new().data(&line)?)
}
