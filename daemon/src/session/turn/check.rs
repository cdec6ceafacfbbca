//! The check of a turn's answer: run as a call of `bash`, its failure is the next prompt.
//!
//! The state knows how far it is, so a resumed turn continues with the permission, the result or the message that is due.

use std::collections::HashMap;

use linger_protocol::event::{Asks, Outcome};
use linger_protocol::message::ContentBlock;

use super::commands::lines_of;
use super::step::Step;
use super::{Turn, TurnEnded};
use crate::session::state::until::{CHECKS_WITH, UntilState, check_input};
use crate::tool::text::tail;

/// How much of a check's output the model reads, in bytes: the end of it has the verdict, and the whole is with the call.
const MAX_OUTPUT: usize = 16 << 10;

/// The hint when the check still fails.
pub(super) const HINT: &str = "look at what it says, and prompt again to continue";

/// The result of a check.
pub(super) enum CheckResult {
    /// It passed, or there is none.
    Passed,
    /// It failed, and the model was told.
    Again,
    /// The turn ends with this, because it still fails or could not run.
    Ends(String),
}

impl Turn {
    /// Checks the latest answer, if its prompt wants that.
    pub(super) async fn check(&mut self, step: &mut Step) -> Result<CheckResult, TurnEnded> {
        let Some(mut until) = self.emit.check().await? else { return Ok(CheckResult::Passed) };
        let result = match (&until.call, until.outcome) {
            (Some(call), None) => {
                let (name, input) = (CHECKS_WITH.to_owned(), check_input(&until.command));
                let call = ContentBlock::ToolUse { call_id: call.clone(), name, input, native: None };
                let mut results = self.runner().run(vec![call], HashMap::new(), &HashMap::new(), false).await?;
                // How it ended is in the state.
                until = self.emit.check().await?.unwrap_or(until);
                results.pop()
            }
            (Some(call), Some(_)) => step.context.results.remove(call),
            (None, _) => None,
        };
        let (is_error, output) = match &result {
            Some(ContentBlock::ToolResult { is_error, content, .. }) => (*is_error, lines_of(content)),
            _ => (true, "[its result is lost; it may have run]".to_owned()),
        };
        let output = tail(&output, MAX_OUTPUT);
        let UntilState { command, tries, failed, outcome, .. } = &until;
        match outcome {
            Some(Outcome::Ran) if !is_error => return Ok(CheckResult::Passed),
            Some(Outcome::Ran | Outcome::TimedOut | Outcome::Unknown) => {}
            Some(Outcome::Denied | Outcome::Invalid | Outcome::Cancelled) | None => {
                let why = output.strip_prefix("not run: ").unwrap_or(output);
                return Ok(CheckResult::Ends(format!("the check `{command}` was not run: {why}")));
            }
        }
        if failed >= tries {
            let times = if *tries == 1 { "1 try".to_owned() } else { format!("{tries} tries") };
            return Ok(CheckResult::Ends(format!("the check `{command}` still fails after {times}")));
        }
        let (now, what) = (failed + 1, describe(*outcome));
        let text = format!(
            "[This is not the user, but the check of your work: `{command}` {what}. Mend what it found; it runs again when \
             you are done (try {now} of {tries}). The end of its output:]\n{output}"
        );
        self.say(Asks::Check, text, step).await?;
        Ok(CheckResult::Again)
    }
}

/// The description of a check that did not pass.
fn describe(outcome: Option<Outcome>) -> &'static str {
    match outcome {
        Some(Outcome::TimedOut) => "took too long and was ended",
        Some(Outcome::Unknown) => "was interrupted, and whether it passes is unknown",
        _ => "failed",
    }
}
