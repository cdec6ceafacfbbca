//! The state of the server for one host, its requests to the daemon and its messages to the host.

use std::io;
use std::time::{Duration, Instant};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::{QuestionId, SessionId};
use linger_protocol::mcp_revision::{self, Era};
use linger_protocol::method::Method;
use linger_protocol::session::State;
use serde_json::{Value, json};

use crate::connect::{Client, parse};
use crate::error::Failure;
use crate::terminal::Terminal;

/// Open calls of `session_wait`, at most; a host has a handful.
pub(super) const MAX_WAITS: usize = 64;

/// The time between two notifications of progress.
const PROGRESS: Duration = Duration::from_secs(10);

/// Error codes of JSON-RPC.
pub(super) const UNKNOWN_METHOD: i64 = -32601;
pub(super) const WRONG_PARAMS: i64 = -32602;
pub(super) const NO_JSON: i64 = -32700;

/// An open call of `session_wait`.
pub(super) struct Wait {
    /// The id of the host's request.
    pub(super) id: Value,
    pub(super) session: SessionId,
    pub(super) until: Instant,
    /// Whether the host's user left a question unanswered, which ends the wait.
    pub(super) refused: bool,
    /// The host's era, and whether it can show forms to its user.
    pub(super) era: Era,
    pub(super) forms: bool,
    /// Progress, if the host wants any.
    pub(super) progress: Option<WaitProgress>,
}

impl Wait {
    /// When to check it, if nothing happens before.
    pub(super) fn next_check(&self) -> Instant {
        self.progress.as_ref().map_or(self.until, |progress| progress.due.min(self.until))
    }
}

/// The progress of a wait, which keeps the host from giving up.
#[derive(Debug)]
pub(super) struct WaitProgress {
    /// The host's token for it.
    token: Value,
    /// Notifications sent.
    sent: u64,
    /// The text of the last one.
    told: String,
    /// When the next one is due although nothing changed.
    due: Instant,
}

impl WaitProgress {
    /// For the token in a request's params, if there is one.
    pub(super) fn of(params: &Value) -> Option<Self> {
        let token = params.pointer("/_meta/progressToken").filter(|token| token.is_string() || token.is_number())?;
        Some(Self { token: token.clone(), sent: 0, told: String::new(), due: Instant::now() })
    }

    /// The notification for the state of a session, if it has changed or one is due.
    pub(super) fn next(&mut self, state: State, questions: usize, now: Instant) -> Option<Value> {
        let waiting = match questions {
            0 => String::new(),
            1 => ", 1 question".to_owned(),
            more => format!(", {more} questions"),
        };
        let message = format!("{}{waiting}", state_name(state));
        if message == self.told && now < self.due {
            return None;
        }
        self.sent += 1;
        self.due = now + PROGRESS;
        self.told.clone_from(&message);
        let params = json!({ "progressToken": self.token, "progress": self.sent, "message": message });
        Some(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }))
    }
}

/// A state as JSON names it.
fn state_name(state: State) -> String {
    json!(state).as_str().unwrap_or_default().to_owned()
}

/// The server of one host.
pub(super) struct Server {
    pub(super) client: Client,
    /// Whether the agent may answer questions.
    pub(super) answer: bool,
    /// Whether the host of a handshake can show forms to its user.
    pub(super) forms: bool,
    pub(super) waits: Vec<Wait>,
    /// Questions shown by the host, without an answer yet.
    pub(super) questions: Vec<Open>,
    /// The number of our last request to the host.
    pub(super) last: u64,
}

/// The outcome of a request.
pub(super) type Answer = Result<Value, Refusal>;

/// The error that answers a request.
#[derive(Debug)]
pub(super) struct Refusal {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl Refusal {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

impl From<mcp_revision::RefusedRevision> for Refusal {
    fn from(refused: mcp_revision::RefusedRevision) -> Self {
        Self { code: refused.code, message: refused.message, data: refused.data }
    }
}

/// A question shown by the host.
pub(super) struct Open {
    /// The id of our request.
    pub(super) request: u64,
    pub(super) question: QuestionId,
    pub(super) digest: String,
    pub(super) is_form: bool,
}

impl Server {
    /// Sends a request to the daemon; a refusal to a tool's process gets a hint.
    pub(super) fn ask<M: Method>(&mut self, request: &M) -> Result<M::Result, Failure> {
        match self.client.call_raw(request)? {
            Ok(raw) => parse::<M>(&raw),
            Err(error) => Err(refusal(error, self.client.has_token())),
        }
    }

    pub(super) fn respond(&self, id: &Value, answer: Answer) -> Result<(), Failure> {
        self.send(&match answer {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(Refusal { code, message, data: None }) => {
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
            }
            Err(Refusal { code, message, data }) => {
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message, "data": data } })
            }
        })
    }

    pub(super) fn send(&self, message: &Value) -> Result<(), Failure> {
        let line = serde_json::to_string(message).map_err(io::Error::from)?;
        Ok(Terminal::new().data(&line)?)
    }
}

/// A refusal by the daemon, with a hint for the agent. With a token, the daemon's own hint is enough.
fn refusal(error: RpcError, has_token: bool) -> Failure {
    let is_family = error.code() == Some(Code::NotAllowed) && !has_token;
    let failure = Failure::from(error);
    if !is_family {
        return failure;
    }
    failure.hint(
        "the daemon started this server, so it can only read its own session and that session's children; `can` in \
         [mcp.NAME] of config.toml grants more to a configured server",
    )
}

/// A failure as text for the agent.
pub(super) fn words(failure: &Failure) -> String {
    let message = failure.message.clone().unwrap_or_default();
    match &failure.hint {
        Some(hint) => format!("error: {message}\nhint: {hint}"),
        None => format!("error: {message}"),
    }
}

/// The instant `seconds` from now, at most `most`.
pub(super) fn from_now(seconds: u64, most: Duration) -> Instant {
    Instant::now() + Duration::from_secs(seconds).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_at_once_when_something_changes_and_every_ten_seconds() {
        let mut progress = WaitProgress::of(&json!({ "_meta": { "progressToken": "p" } })).unwrap();
        let now = Instant::now();
        let mut told = |state, questions, seconds| {
            let next = progress.next(state, questions, now + Duration::from_secs(seconds))?;
            assert_eq!(next["params"]["progressToken"], "p");
            Some((next["params"]["progress"].as_u64().unwrap(), next["params"]["message"].as_str().unwrap().to_owned()))
        };
        assert_eq!(told(State::Running, 0, 0), Some((1, "running".to_owned())));
        assert_eq!(told(State::Running, 0, 9), None);
        assert_eq!(told(State::Running, 0, 10), Some((2, "running".to_owned())));
        assert_eq!(told(State::Waiting, 1, 11), Some((3, "waiting, 1 question".to_owned())));
        assert_eq!(told(State::Waiting, 2, 12), Some((4, "waiting, 2 questions".to_owned())));
        assert_eq!(told(State::Waiting, 2, 21), None);
    }

    #[test]
    fn a_host_without_a_token_wants_no_progress() {
        for params in [json!({}), json!({ "_meta": {} }), json!({ "_meta": { "progressToken": null } })] {
            assert!(WaitProgress::of(&params).is_none(), "{params}");
        }
        assert!(WaitProgress::of(&json!({ "_meta": { "progressToken": 0 } })).is_some());
    }
}
