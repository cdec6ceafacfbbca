//! The editor's side of the bridge: lines of JSON-RPC in on standard input, out on standard output.
//!
//! `input::piped` reads the lines. One line has one message; a batch is not read, as ACP has none.

use std::io;

use agent_client_protocol_schema::v1::{Error, ErrorCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::servers::EditorServers;
use crate::error::Failure;
use crate::terminal::Terminal;

/// A message of the editor.
#[derive(Debug, Deserialize)]
pub(super) struct Message {
    /// The number of a request, or of our request that it answers.
    #[serde(default)]
    pub(super) id: Option<Value>,
    /// The method of a request or a notification.
    #[serde(default)]
    pub(super) method: Option<String>,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    /// The outcome of a request of ours.
    #[serde(default)]
    pub(super) result: Option<Value>,
    /// Why a request of ours failed.
    #[serde(default)]
    pub(super) error: Option<Value>,
}

impl Message {
    /// Parses a line as a message, or returns the error to answer with.
    pub(super) fn read(line: &str) -> Result<Self, Error> {
        serde_json::from_str(line).map_err(|error| Error::new(ErrorCode::ParseError.into(), error.to_string()))
    }

    /// The params, or the error that says which field does not fit.
    pub(super) fn params<'de, T: Deserialize<'de>>(&'de self) -> Result<T, Error> {
        let params = self.params.as_deref().map_or("{}", RawValue::get);
        serde_json::from_str(params).map_err(invalid)
    }

    /// The params of a request that opens a session, and the MCP servers among them: those are read one by one, so that
    /// none of them fails the request.
    pub(super) fn opening<T: DeserializeOwned>(&self) -> Result<(T, EditorServers), Error> {
        let mut params: Value = self.params()?;
        let servers = EditorServers::take(&mut params);
        Ok((serde_json::from_value(params).map_err(invalid)?, servers))
    }
}

fn invalid(error: serde_json::Error) -> Error {
    Error::new(ErrorCode::InvalidParams.into(), error.to_string())
}

/// Writes to the editor.
#[derive(Debug)]
pub(super) struct Editor {
    /// The number of our last request.
    last: u64,
}

impl Editor {
    pub(super) fn new() -> Self {
        Self { last: 0 }
    }

    pub(super) fn answer(&self, id: &Value, result: Result<Value, Error>) -> Result<(), Failure> {
        self.send(&match result {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        })
    }

    pub(super) fn notify(&self, method: &str, params: &impl Serialize) -> Result<(), Failure> {
        self.send(&OutgoingCall { jsonrpc: "2.0", id: None, method, params })
    }

    /// Sends a request and returns its number.
    pub(super) fn request(&mut self, method: &str, params: &impl Serialize) -> Result<u64, Failure> {
        self.last += 1;
        self.send(&OutgoingCall { jsonrpc: "2.0", id: Some(self.last), method, params })?;
        Ok(self.last)
    }

    fn send(&self, message: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(message).map_err(io::Error::from)?;
        Ok(Terminal::new().data(&line)?)
    }
}

#[derive(Serialize)]
struct OutgoingCall<'a, T> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    method: &'a str,
    params: &'a T,
}
