//! What must always hold (`DESIGN.md` section 7), checked on what was seen: one function for all kinds of test.
//!
//! [`check`] takes clients' transcripts, the database, the model server's complaints, a side-effect file and secrets, and gives
//! every violation that it finds. Pure but for reading the database and the files; an invariant that a trace has nothing to say
//! about passes.

mod database;
mod rules;
mod transcript;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

pub use database::{Folded, Row, Stored, read, read_folded};
pub(crate) use rules::streamed;
pub use transcript::{Assembled, Entry, Seen, Stream, Transcript, assemble};

/// What was seen of a run.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// What each client saw.
    pub clients: Vec<Transcript>,
    /// What is stored.
    pub stored: Stored,
    /// What the model server found wrong with what it was sent.
    pub model: Vec<String>,
    /// A file to which tools append lines, each of which may be there once.
    pub side_effects: Option<PathBuf>,
    /// Files in which no secret may be: database, log, spilled output.
    pub files: Vec<PathBuf>,
    /// Secrets.
    pub canaries: Vec<String>,
    /// Whether nothing should be under way any more.
    pub settled: bool,
    /// What is folded from the log, if it was read.
    pub folded: Option<Folded>,
    /// Processes that are there and should not be.
    pub left: Vec<String>,
    /// What the client printed on what may be a terminal, without colours of its own.
    pub printed: Vec<String>,
    /// How long each cancel took to end its turn.
    pub cancels: Vec<Duration>,
    /// Resident memory of the daemon in KiB, before and after it was given far more than it may keep.
    pub grown: Option<(u64, u64)>,
    /// Starts that were refused, and why.
    pub refused: Vec<String>,
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant, such as `I2`.
    pub invariant: &'static str,
    /// What was found.
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// Collects violations.
#[derive(Debug, Default)]
pub(crate) struct Found(Vec<Violation>);

impl Found {
    fn add(&mut self, invariant: &'static str, what: impl Into<String>) {
        self.0.push(Violation { invariant, what: what.into() });
    }

    fn unless(&mut self, good: bool, invariant: &'static str, what: impl FnOnce() -> String) {
        if !good {
            self.add(invariant, what());
        }
    }
}

/// Every violation in `trace`.
pub fn check(trace: &Trace) -> Vec<Violation> {
    let mut found = Found::default();
    let seen = trace.clients.iter().flat_map(Transcript::events).map(|seen| seen.session.clone());
    let sessions: BTreeSet<String> = trace.stored.0.keys().cloned().chain(seen).collect();
    for session in &sessions {
        let Some(stored) = trace.stored.0.get(session) else {
            if !rules::removed(&trace.clients, session) {
                found.add("I1", format!("session {session} was seen and is not in the database"));
            }
            continue;
        };
        rules::sequence(session, stored, &mut found);
        rules::prompts(session, stored, &mut found);
        rules::turns(session, stored, trace.settled, &mut found);
        rules::calls(session, stored, trace.settled, &mut found);
        rules::permissions(session, stored, &mut found);
        rules::questions(session, stored, &mut found);
        for client in &trace.clients {
            rules::seen_is_stored(session, client, stored, trace.settled, &mut found);
        }
    }
    rules::children(&trace.stored, &mut found);
    rules::acknowledged(&trace.clients, &trace.stored, &mut found);
    rules::winners(&trace.clients, &trace.stored, &mut found);
    rules::side_effects(trace, &mut found);
    rules::secrets(trace, &mut found);
    rules::folded(trace, &mut found);
    rules::limits(trace, &mut found);
    trace.model.iter().for_each(|what| found.add("I4", what.clone()));
    found.0
}

/// Panics with the violations in `trace`, and with events that the schema does not allow, if there are any.
pub fn assert_holds(trace: &Trace) {
    let mut found = Found(check(trace));
    rules::schema(&trace.clients, &mut found);
    let violations: Vec<String> = found.0.iter().map(ToString::to_string).collect();
    let seen: String = trace.clients.first().map(Transcript::outline).unwrap_or_default();
    assert!(
        violations.is_empty(),
        "{} violations:\n  {}\nthe first client saw:\n{seen}",
        violations.len(),
        violations.join("\n  ")
    );
}

#[cfg(test)]
mod tests;
