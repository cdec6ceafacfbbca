//! The state of the server for one host, its requests to the daemon and its messages to the host.

use std::io;
use std::time::{Duration, Instant};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::{QuestionId, SessionId};
use linger_protocol::method::Method;
use serde_json::{Value, json};

use crate::connect::{Client, parse};
use crate::error::Failure;
use crate::terminal::Terminal;

/// Open calls of `session_wait`, at most; a host has a handful.
pub(super) const MAX_WAITS: usize = 64;

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
}

/// The server of one host.
pub(super) struct Server {
    pub(super) client: Client,
    /// Whether the agent may answer questions.
    pub(super) answer: bool,
    /// Whether the host can show forms to its user.
    pub(super) forms: bool,
    pub(super) waits: Vec<Wait>,
    /// Questions shown by the host, without an answer yet.
    pub(super) questions: Vec<Open>,
    /// The number of our last request to the host.
    pub(super) last: u64,
}

/// The outcome of a request: a result, or an error with its code.
pub(super) type Answer = Result<Value, (i64, String)>;

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
            Err((code, message)) => {
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
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
