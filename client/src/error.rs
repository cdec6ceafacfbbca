//! The end of a command: exit codes, and failures for people.
//!
//! A failure is printed once, by `main`, as `error: …` and `hint: …`.

use std::io;

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::message::StopReason;
use linger_protocol::place::PlaceError;

/// An exit code; the numbers are a promise to scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl Exit {
    /// The turn ended well, or nothing failed.
    pub(crate) const GOOD: Self = Self(0);
    /// The turn or the request failed.
    pub(crate) const FAILED: Self = Self(1);
    /// The command was used wrongly, or names something that does not exist.
    pub(crate) const USAGE: Self = Self(2);
    /// A question holds up the work and cannot be answered here.
    pub(crate) const QUESTION: Self = Self(3);
    /// The turn was cancelled.
    pub(crate) const CANCELLED: Self = Self(4);
    /// The daemon cannot be reached or was lost.
    pub(crate) const UNREACHABLE: Self = Self(5);
    /// `--timeout` passed; as `timeout(1)` has it.
    pub(crate) const TIMED_OUT: Self = Self(124);

    /// The exit code for the end of a turn.
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

/// Why a command failed.
#[derive(Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// The error in one line; `None` to end silently.
    pub(crate) message: Option<String>,
    /// The next thing to do.
    pub(crate) hint: Option<String>,
    /// Whether it may be over in a moment.
    pub(crate) passing: bool,
    /// Whether a signal caused it; the signal is the next event.
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

    /// Whether the daemon did not answer: it is unreachable, or took too long.
    pub(crate) fn is_no_answer(&self) -> bool {
        matches!(self.exit, Exit::UNREACHABLE | Exit::TIMED_OUT)
    }

    /// The same failure with a second message.
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
                | Code::UnknownQuestion
                | Code::UnknownOption
                | Code::UnknownServer
                | Code::BadValue
                | Code::NoModel
                | Code::UnknownProvider
                | Code::KeyMissing
                | Code::BadConfig
                | Code::NoWorkspace
                | Code::BadName
                | Code::BadPrompt
                | Code::BadSchema
                | Code::NotAKey
                | Code::BadRule
                | Code::UnknownCursor
                | Code::UnknownMessage
                | Code::UnknownToken
                | Code::UnknownArtifact,
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
        // The reader of our output has gone.
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { message: None, ..Self::new(Exit::GOOD, "") };
        }
        Self::new(Exit::FAILED, error.to_string())
    }
}

impl Failure {
    /// A request that no connection can carry, with the writer's error.
    pub(crate) fn unsendable(error: &io::Error) -> Self {
        let not_text = matches!(error.get_ref(), Some(inner) if inner.is::<serde_json::Error>());
        let hint = if not_text { "use a directory whose path is UTF-8" } else { "make the prompt shorter" };
        Self::usage(format!("the request cannot be sent: {error}")).hint(hint)
    }

    /// A connection that the daemon refuses, or whose input is malformed: another one would be no better.
    pub(crate) fn refused(error: io::Error) -> Self {
        match error.downcast::<RpcError>() {
            Ok(error) => {
                let passing = error.code() == Some(Code::TooMuch);
                Self { exit: Exit::UNREACHABLE, passing, ..Self::from(error) }
            }
            Err(error) => Self::unreachable(format!("cannot parse the daemon's message: {error}"))
                .hint("`linger doctor` says what is wrong"),
        }
    }
}

impl From<PlaceError> for Failure {
    fn from(error: PlaceError) -> Self {
        Self::unreachable(error.to_string()).hint(error.hint())
    }
}
