//! `linger mcp serve --sessions`: serves sessions to another agent, over MCP on standard input and output.
//!
//! A client like any other: it has the rights of its process, and sessions continue without it. One loop reads one channel. Requests
//! to the daemon are answered at once, so the loop waits for them; long waits are kept in [`Server`]: `session_wait` for a session,
//! and questions for the host's user. A subscription to all sessions says when to check them. Deliberately absent: answers, unless
//! `--answer` was given. Without it, questions go to the host's user, if the host can show forms.

mod ask;
mod read;
mod schema;
mod server;
mod tools;

use linger_protocol::events::{NOW, Subscribe};
use linger_protocol::id::Cursor;
use linger_protocol::method::EventsSubscribe;
use linger_protocol::transport::blocking::Incoming;
use linger_protocol::transport::both::Message;
use serde_json::{Value, json};

use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::input::{self, Event, InputLine, piped};
use server::{Answer, NO_JSON, Server, UNKNOWN_METHOD, WRONG_PARAMS, words};

/// Supported revisions of MCP (those with a handshake), newest first.
const REVISIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// Serves until the host closes standard input.
pub(super) fn run(answer: bool) -> Result<Exit, Failure> {
    let client = Client::open()?;
    let sender = client.sender();
    input::signals(sender.clone(), false)?;
    let taken = piped::read(sender);
    let mut server = Server { client, answer, forms: false, waits: Vec::new(), questions: Vec::new(), last: 0 };
    server.subscribe()?;
    loop {
        let deadline = server.waits.iter().map(|wait| wait.until).min();
        match server.client.next_event(deadline) {
            Some(Event::Line(InputLine::Text { text, .. })) => {
                taken.one();
                server.line(&text)?;
            }
            Some(Event::Line(InputLine::Garbled)) => {
                return Err(Failure::usage("standard input has a line that is too long"));
            }
            Some(Event::Line(InputLine::End) | Event::Signal(_)) => return Ok(Exit::GOOD),
            Some(Event::Incoming(_, Incoming::Any(..))) | None => server.check_waits()?,
            Some(Event::Lost(_)) => {
                if !server.client.reconnect_soon()? {
                    server.client.reconnect_attached()?;
                }
                server.subscribe()?;
                server.check_waits()?;
            }
            Some(Event::Refused(_, failure)) => return Err(failure),
            Some(_) => {}
        }
    }
}

impl Server {
    /// Subscribes to events from now on. Each wait checks earlier ones when it begins.
    fn subscribe(&mut self) -> Result<(), Failure> {
        let kinds =
            ["turn_finished", "permission_requested", "permission_resolved", "question_asked", "question_resolved"];
        let kinds = Some(kinds.map(str::to_owned).to_vec());
        let subscribe = EventsSubscribe(Subscribe { sessions: None, kinds, after: Some(Cursor(NOW.to_owned())) });
        self.ask(&subscribe).map(drop)
    }

    fn line(&mut self, line: &str) -> Result<(), Failure> {
        let message: Message = match serde_json::from_str(line) {
            Ok(message) => message,
            Err(error) => return self.respond(&Value::Null, Err((NO_JSON, error.to_string()))),
        };
        match (message.method.as_deref(), message.id) {
            (Some(method), Some(id)) => match self.request(method, &id, &message.params) {
                Ok(Some(answer)) => self.respond(&id, answer),
                Ok(None) => Ok(()),
                Err(failure) if failure.interrupted => Err(failure),
                // The agent reads the reason and may try again.
                Err(failure) => self.respond(&id, Err((i64::from(failure.exit.0), words(&failure)))),
            },
            (Some("notifications/cancelled"), None) => {
                let cancelled = message.params.get("requestId");
                self.waits.retain(|wait| Some(&wait.id) != cancelled);
                Ok(())
            }
            (None, Some(id)) => self.answered(&id, message.result),
            _ => Ok(()),
        }
    }

    /// The answer to a request; `None` if it comes later.
    fn request(&mut self, method: &str, id: &Value, params: &Value) -> Result<Option<Answer>, Failure> {
        Ok(Some(match method {
            "initialize" => Ok(self.initialize(params)),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({ "tools": schema::tools(self.answer) })),
            "tools/call" => return self.call(id, params),
            "resources/list" => self.resources().map(Ok)?,
            "resources/templates/list" => Ok(schema::templates()),
            "resources/read" => match params["uri"].as_str().and_then(schema::session_of) {
                Some(session) => self.resource(session)?,
                None => Err((WRONG_PARAMS, "the URI of a log is linger://session/SESSION/log".to_owned())),
            },
            _ => Err((UNKNOWN_METHOD, format!("unknown method {method}"))),
        }))
    }

    fn initialize(&mut self, params: &Value) -> Value {
        let asked = params["protocolVersion"].as_str().unwrap_or_default();
        let spoken = REVISIONS.iter().find(|revision| **revision == asked).unwrap_or(&REVISIONS[0]);
        // A host with elicitation takes forms unless it says otherwise.
        let elicitation = params.pointer("/capabilities/elicitation").and_then(Value::as_object);
        self.forms = elicitation.is_some_and(|kinds| kinds.is_empty() || kinds.contains_key("form"));
        json!({
            "protocolVersion": spoken,
            "capabilities": { "tools": {}, "resources": {} },
            "serverInfo": { "name": "linger-sessions", "title": "linger", "version": linger_protocol::VERSION },
            "instructions": schema::instructions(self.answer),
        })
    }
}
