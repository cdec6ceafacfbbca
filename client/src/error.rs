//! How a command ends: the exit codes, and failures as people read them.
//!
//! A failure is printed once, by `main`, as `error: …` and `hint: …`.

use std::io;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::message::StopReason;
use linger_protocol::place::PlaceError;

/// What the process tells its parent; the numbers are a promise to scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl Exit {
    /// The turn ended well, or there was nothing to fail.
    pub(crate) const GOOD: Self = Self(0);
    /// The turn or the request failed.
    pub(crate) const FAILED: Self = Self(1);
    /// The command was used wrongly, or names something that does not exist.
    pub(crate) const USAGE: Self = Self(2);
    /// A permission waits and cannot be answered here.
    pub(crate) const PERMISSION: Self = Self(3);
    /// The turn was cancelled.
    pub(crate) const CANCELLED: Self = Self(4);
    /// The daemon cannot be reached or was lost.
    pub(crate) const UNREACHABLE: Self = Self(5);
    /// `--timeout` passed; as `timeout(1)` has it.
    pub(crate) const TIMED_OUT: Self = Self(124);

    /// What the end of a turn means to a script.
    pub(crate) fn of(stop_reason: StopReason) -> Self {
        match stop_reason {
            StopReason::EndTurn => Self::GOOD,
            StopReason::Cancelled => Self::CANCELLED,
            StopReason::MaxTokens
            | StopReason::MaxSteps
            | StopReason::Refusal
            | StopReason::Error
            | StopReason::Unknown => Self::FAILED,
        }
    }
}

/// Why a command could not do what it was asked to.
#[derive(Debug, PartialEq)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    /// What is wrong, in one line; nothing to leave without a word.
    pub(crate) message: Option<String>,
    /// What to do next.
    pub(crate) hint: Option<String>,
    /// It may be over in a moment.
    pub(crate) passing: bool,
    /// It is the signal's doing that is the next thing to happen.
    pub(crate) interrupted: bool,
}

impl Failure {
    /// A failure without a hint.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: Some(message.into()), hint: None, passing: false, interrupted: false }
    }

    /// Wrong usage.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::USAGE, message)
    }

    /// The daemon cannot be reached or was lost.
    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self::new(Exit::UNREACHABLE, message)
    }

    /// Whether the daemon has not answered: it is not there, or took too long.
    pub(crate) fn is_no_answer(&self) -> bool {
        matches!(self.exit, Exit::UNREACHABLE | Exit::TIMED_OUT)
    }

    /// The same failure, and what else is to be known.
    pub(crate) fn and_also(mut self, more: String) -> Self {
        self.message = Some(self.message.map_or_else(|| more.clone(), |message| format!("{message}; {more}")));
        self
    }

    /// The same failure with the next thing to do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        let exit = match error.code() {
            Some(
                Code::UnknownSession
                | Code::UnknownPermission
                | Code::NoModel
                | Code::UnknownProvider
                | Code::KeyMissing
                | Code::BadConfig
                | Code::NoWorkspace
                | Code::BadName
                | Code::BadPrompt
                | Code::BadSchema
                | Code::NotAKey,
            ) => Exit::USAGE,
            Some(Code::Ending | Code::Version) => Exit::UNREACHABLE,
            _ => Exit::FAILED,
        };
        let hint = error.get_hint().map(str::to_owned);
        Self { hint, ..Self::new(exit, error.message) }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        // Whoever read our output has gone, and wants to hear no more of it.
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { message: None, ..Self::new(Exit::GOOD, "") };
        }
        Self::new(Exit::FAILED, error.to_string())
    }
}

impl Failure {
    /// A request that no connection can carry, from what the writer says of it.
    pub(crate) fn unsendable(error: &io::Error) -> Self {
        let not_text = matches!(error.get_ref(), Some(inner) if inner.is::<serde_json::Error>());
        let hint = if not_text { "use a directory whose path is UTF-8" } else { "make the prompt shorter" };
        Self::usage(format!("the request cannot be sent: {error}")).hint(hint)
    }

    /// A connection that the daemon refuses, or on which it cannot be understood: another would be no better.
    pub(crate) fn refused(error: io::Error) -> Self {
        match error.downcast::<RpcError>() {
            Ok(error) => {
                let passing = error.code() == Some(Code::TooMuch);
                Self { exit: Exit::UNREACHABLE, passing, ..Self::from(error) }
            }
            Err(error) => Self::unreachable(format!("what the daemon sent is not understood: {error}"))
                .hint("`linger doctor` looks at everything"),
        }
    }
}

impl From<PlaceError> for Failure {
    fn from(error: PlaceError) -> Self {
        Self::unreachable(error.to_string()).hint(error.hint())
    }
}
