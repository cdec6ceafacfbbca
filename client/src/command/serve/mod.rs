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
use linger_protocol::mcp_revision::{Era, agreed, discovered, takes_forms};
use linger_protocol::method::EventsSubscribe;
use linger_protocol::transport::blocking::Incoming;
use linger_protocol::transport::both::Message;
use serde_json::{Value, json};

use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::input::{self, Event, InputLine, piped};
use server::{Answer, NO_JSON, Refusal, Server, UNKNOWN_METHOD, WRONG_PARAMS, Wait, words};

/// Serves until the host closes standard input.
pub(super) fn run(answer: bool) -> Result<Exit, Failure> {
    let client = Client::open()?;
    let sender = client.sender();
    input::signals(sender.clone(), false)?;
    let taken = piped::read(sender);
    let mut server = Server { client, answer, forms: false, waits: Vec::new(), questions: Vec::new(), last: 0 };
    server.subscribe()?;
    loop {
        let deadline = server.waits.iter().map(Wait::next_check).min();
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
        let kinds = [
            "turn_started",
            "turn_finished",
            "permission_requested",
            "permission_resolved",
            "question_asked",
            "question_resolved",
        ];
        let kinds = Some(kinds.map(str::to_owned).to_vec());
        let subscribe = EventsSubscribe(Subscribe { sessions: None, kinds, after: Some(Cursor(NOW.to_owned())) });
        self.ask(&subscribe).map(drop)
    }

    fn line(&mut self, line: &str) -> Result<(), Failure> {
        let message: Message = match serde_json::from_str(line) {
            Ok(message) => message,
            Err(error) => return self.respond(&Value::Null, Err(Refusal::new(NO_JSON, error.to_string()))),
        };
        match (message.method.as_deref(), message.id) {
            (Some(method), Some(id)) => match self.request(method, &id, &message.params) {
                Ok(Some(answer)) => self.respond(&id, answer),
                Ok(None) => Ok(()),
                Err(failure) if failure.interrupted => Err(failure),
                // The agent reads the reason and may try again.
                Err(failure) => self.respond(&id, Err(Refusal::new(i64::from(failure.exit.0), words(&failure)))),
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
        let era = match Era::of(params) {
            Ok(era) => era,
            Err(refused) => return Ok(Some(Err(refused.into()))),
        };
        let answer = match method {
            // A host that says its revision with each request has neither.
            "initialize" | "ping" if era == Era::PerRequest => unknown_method(method),
            "initialize" => Ok(self.initialize(params)),
            "ping" => Ok(json!({})),
            "server/discover" => Ok(discovered(&capabilities(), &info(), Some(&schema::instructions(self.answer)))),
            "tools/list" => Ok(era.listed(&json!(schema::tools(self.answer)))),
            "tools/call" => return self.call(era, id, params),
            "resources/list" => self.resources().map(Ok)?,
            "resources/templates/list" => Ok(schema::templates()),
            "resources/read" => match params["uri"].as_str().and_then(schema::session_of) {
                Some(session) => self.resource(session)?,
                None => Err(Refusal::new(WRONG_PARAMS, "the URI of a log is linger://session/SESSION/log")),
            },
            _ => unknown_method(method),
        };
        Ok(Some(answer.map(|result| era.complete(result))))
    }

    fn initialize(&mut self, params: &Value) -> Value {
        self.forms = takes_forms(params);
        json!({
            "protocolVersion": agreed(params),
            "capabilities": capabilities(),
            "serverInfo": info(),
            "instructions": schema::instructions(self.answer),
        })
    }
}

fn capabilities() -> Value {
    json!({ "tools": {}, "resources": {} })
}

fn info() -> Value {
    json!({ "name": "linger-sessions", "title": "linger", "version": linger_protocol::VERSION })
}

fn unknown_method(method: &str) -> Answer {
    Err(Refusal::new(UNKNOWN_METHOD, format!("unknown method {method}")))
}
