//! `/output`: the whole output of a tool call, in the user's pager.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::state::Repl;
use crate::error::{Exit, Failure};
use crate::terminal::{clean, lend};

impl Repl {
    /// Shows the output of the last call, or of the `n`-th last.
    pub(super) fn output(&mut self, n: Option<usize>) -> Result<(), Failure> {
        let n = n.unwrap_or(1);
        let Some((action, text)) = self.outputs.get(n - 1) else {
            return self.say(&match self.outputs.len() {
                0 => "no tool has run since you attached; `linger log --full` has earlier output".to_owned(),
                1 => "only the last output is kept here; `linger log --full` has the rest".to_owned(),
                most => format!("only the last {most} outputs are kept here; `linger log --full` has the rest"),
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
    .and_then(|status| {
        if status.success() {
            Ok(())
        } else {
            Err(Failure::new(Exit::FAILED, format!("{pager} ended with {status}"))
                .hint("set PAGER to a pager you have"))
        }
    })
}
