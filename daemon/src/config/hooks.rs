//! Hooks: commands of the user that run before and after calls, and at other moments of a session. Parsed here, run by sessions.
//!
//! A hook can refuse, change and add; it allows nothing.

use std::time::Duration;

use serde::Deserialize;

use crate::question::permission::{Rule, RuleError};
use crate::tool::set::Names;

/// The most hooks: each matching one is a process before or after each call.
const MAX_HOOKS: usize = 64;

/// The longest command, in bytes: longer ones are scripts.
const MAX_COMMAND: usize = 4 << 10;

/// How long a hook may take, in seconds: a call waits for it.
const TIMEOUT_S: u64 = 10;

/// The longest time that a hook can be given, in seconds: compiling after an edit takes minutes.
const MAX_TIMEOUT_S: u64 = 600;

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// Before a call is decided on; it can refuse it or change its arguments.
    BeforeCall,
    /// After a call has ended; it can add to the result.
    AfterCall,
    /// Before a prompt is accepted; it can refuse it or add to it.
    Prompt,
    /// When a turn has ended.
    TurnFinished,
    /// When something waits for a person.
    Question,
}

impl HookEvent {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeCall => "before_call",
            Self::AfterCall => "after_call",
            Self::Prompt => "prompt",
            Self::TurnFinished => "turn_finished",
            Self::Question => "question",
        }
    }

    /// Its name in other programs, which scripts for them compare (`hook_event_name`).
    pub fn common_name(self) -> &'static str {
        match self {
            Self::BeforeCall => "PreToolUse",
            Self::AfterCall => "PostToolUse",
            Self::Prompt => "UserPromptSubmit",
            Self::TurnFinished => "Stop",
            Self::Question => "Notification",
        }
    }
}

/// One `[[hooks]]` table, as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with `event` and `command`")]
pub(super) struct HookWritten {
    pub(super) event: HookEvent,
    #[serde(default)]
    pub(super) matcher: Option<String>,
    pub(super) command: String,
    #[serde(default)]
    pub(super) timeout_s: Option<u64>,
}

/// A command of the shell that runs at an event.
#[derive(Clone, Debug)]
pub struct Hook {
    /// When it runs.
    pub event: HookEvent,
    /// The calls that it is about, as a rule in `deny`; all if absent.
    pub matcher: Option<Rule>,
    /// The command line, for the shell.
    pub command: String,
    /// How long it may take.
    pub timeout: Duration,
}

/// Checks hooks; fails with the index, the key and what is wrong with it.
pub(super) fn check(written: &[HookWritten], names: &Names) -> Result<Vec<Hook>, (usize, &'static str, String)> {
    if written.len() > MAX_HOOKS {
        return Err((MAX_HOOKS, "event", format!("there may be {MAX_HOOKS} hooks")));
    }
    let parse = |(at, hook): (usize, &HookWritten)| {
        let HookWritten { event, matcher, command, timeout_s } = hook;
        if command.trim().is_empty() || command.len() > MAX_COMMAND {
            return Err((at, "command", format!("must have from 1 to {MAX_COMMAND} bytes")));
        }
        let seconds = timeout_s.unwrap_or(TIMEOUT_S);
        if !(1..=MAX_TIMEOUT_S).contains(&seconds) {
            return Err((at, "timeout_s", format!("must be from 1 to {MAX_TIMEOUT_S}")));
        }
        let of_calls = matches!(event, HookEvent::BeforeCall | HookEvent::AfterCall);
        if matcher.is_some() && !of_calls {
            return Err((at, "matcher", format!("goes with calls, not with `{}`", event.name())));
        }
        let matcher = matcher.as_deref().map(|rule| Rule::parse(rule, names)).transpose();
        let matcher = matcher.map_err(|error: RuleError| (at, "matcher", error.to_string()))?;
        Ok(Hook { event: *event, matcher, command: command.clone(), timeout: Duration::from_secs(seconds) })
    };
    written.iter().enumerate().map(parse).collect()
}
