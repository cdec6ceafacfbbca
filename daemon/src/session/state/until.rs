//! The check of a turn: a command that has to pass before the turn ends well. Pure; `turn/check` runs it.
//!
//! The check is a call that no model made. It is checked, permitted, started and bounded like a call of `bash`, and a restart does
//! with it what it does with one: if it had started, its outcome is unknown and it is not repeated; the model is told so like of a
//! failure, and the check runs again once the model has answered.

use linger_protocol::event::Outcome;
use linger_protocol::id::CallId;
use linger_protocol::session::Until;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::tool::TIMEOUT_MAX_S;

/// The tool that runs checks.
pub const CHECKS_WITH: &str = "bash";

/// The longest command, in bytes: the state of the turn has it, and is written with each event.
const MAX_COMMAND: usize = 4 << 10;

/// The check of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UntilState {
    /// A command line, at most 4 KiB.
    pub command: String,
    /// How often its failure is the next prompt at most.
    pub tries: u32,
    /// How often it was.
    pub failed: u32,
    /// The call that checks the latest answer, once it was announced.
    pub call: Option<CallId>,
    /// How that ended.
    pub outcome: Option<Outcome>,
}

impl UntilState {
    /// The check that a prompt asks for.
    pub fn new(asked: Until) -> Self {
        Self { tries: asked.tries(), command: asked.command, ..Self::default() }
    }

    /// Whether the latest answer has no check yet.
    pub fn is_due(&self) -> bool {
        self.call.is_none() && self.outcome.is_none()
    }

    /// The model has answered, which is to be checked.
    pub fn answered(&mut self) {
        (self.call, self.outcome) = (None, None);
    }

    /// The check was announced as this call.
    pub fn started(&mut self, call: &CallId) {
        (self.call, self.outcome) = (Some(call.clone()), None);
    }

    /// A call has ended, which may be the check.
    pub fn finished(&mut self, call: &CallId, outcome: Outcome) {
        if self.call.as_ref() == Some(call) {
            self.outcome = Some(outcome);
        }
    }

    /// The model was told of the failure.
    pub fn count_failure(&mut self) {
        self.failed += 1;
    }

    /// Events are lost, which may have said that the check had started.
    pub fn lost(&mut self) {
        self.outcome = Some(Outcome::Unknown);
    }
}

/// The arguments of the call that checks: the longest time that any call may have, because tests take it.
pub fn check_input(command: &str) -> Value {
    json!({ "command": command, "timeout_s": TIMEOUT_MAX_S })
}

/// The arguments of the call of a command line that a prompt's command runs.
pub fn command_input(command: &str) -> Value {
    json!({ "command": command })
}

/// Checks what a prompt asks for.
pub fn may_check(asked: &Until) -> Result<(), String> {
    let command = &asked.command;
    if command.trim().is_empty() {
        return Err("the command of `until` is empty".to_owned());
    }
    if command.contains('\0') {
        return Err("the command of `until` has a NUL in it".to_owned());
    }
    if command.len() > MAX_COMMAND {
        return Err(format!("the command of `until` is longer than {MAX_COMMAND} bytes; put it into a script"));
    }
    if !(1..=Until::MAX_TRIES).contains(&asked.tries()) {
        return Err(format!("`tries` must be from 1 to {}", Until::MAX_TRIES));
    }
    Ok(())
}
