//! `/output`: the whole output of a tool call, in the user's pager.

use std::collections::{HashMap, VecDeque};
use std::io::Write as _;
use std::process::{Command, Stdio};

use linger_protocol::event::{Event, EventBody, ToolFinished, ToolStarted};
use linger_protocol::id::CallId;
use linger_protocol::message::text_of;

use super::Repl;
use crate::error::{Exit, Failure};
use crate::terminal::{clean, lend};

/// Outputs that are kept: as far back as a person remembers.
const KEPT: usize = 20;

/// The bytes of one that are kept; the daemon bounds what the model reads well below this.
const MAX_OUTPUT: usize = 256 << 10;

/// The outputs of the last tool calls.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    /// What the running calls do.
    started: HashMap<CallId, String>,
    /// The finished calls: what they did, and their output.
    finished: VecDeque<(String, String)>,
}

impl Outputs {
    /// Keeps up with an event.
    pub(super) fn event(&mut self, event: &Event) {
        match &event.body {
            EventBody::ToolStarted(ToolStarted { call_id, tool, action, .. }) => {
                self.started.insert(call_id.clone(), format!("{tool}: {action}"));
            }
            EventBody::ToolFinished(ToolFinished { call_id, content, file, .. }) => {
                let Some(action) = self.started.remove(call_id) else { return };
                let mut text = text_of(content);
                let end = (0..=MAX_OUTPUT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
                text.truncate(end.unwrap_or_default());
                if let Some(file) = file {
                    text.push_str(&format!("\n[all of it is in {}]", file.display()));
                }
                self.finished.push_front((action, text));
                self.finished.truncate(KEPT);
            }
            EventBody::TurnFinished(_) => self.started.clear(),
            _ => {}
        }
    }
}

impl Repl {
    /// Shows the output of the last call, or of the `n`-th last.
    pub(super) fn output(&mut self, n: Option<usize>) -> Result<(), Failure> {
        let n = n.unwrap_or(1);
        let Some((action, text)) = self.outputs.finished.get(n - 1) else {
            return self.say(&match self.outputs.finished.len() {
                0 => "no tool has run since you attached; `linger log --full` has all of it".to_owned(),
                1 => "only the last output is here; `linger log` has all of it".to_owned(),
                most => format!("only the last {most} outputs are here; `linger log --full` has all of it"),
            });
        };
        let text = format!("{}\n\n{}\n", clean(action), clean(text));
        match page(&text) {
            Ok(()) => Ok(()),
            Err(failure) => self.complain(failure),
        }
    }
}

/// Shows a text in the user's pager. Fails if there is none.
pub(super) fn page(text: &str) -> Result<(), Failure> {
    let pager = std::env::var("PAGER").ok().filter(|pager| !pager.trim().is_empty());
    let pager = pager.unwrap_or_else(|| "less".to_owned());
    let failed = |error| Failure::new(Exit::FAILED, format!("{pager}: {error}")).hint("set PAGER to a pager you have");
    lend(|| {
        // As git has it: the pager may be a command with arguments.
        #[allow(clippy::disallowed_methods, reason = "the user's own pager, in the user's terminal")]
        let mut child = Command::new("/bin/sh").args(["-c", &pager]).stdin(Stdio::piped()).spawn()?;
        if let Some(mut to) = child.stdin.take() {
            // It may be left before it has read everything.
            let _ = to.write_all(text.as_bytes());
        }
        child.wait()
    })
    .map_err(failed)
    .and_then(|status| match status.success() {
        true => Ok(()),
        false => {
            Err(Failure::new(Exit::FAILED, format!("{pager} ended with {status}"))
                .hint("set PAGER to a pager you have"))
        }
    })
}
