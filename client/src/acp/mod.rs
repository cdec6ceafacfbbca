//! `linger acp`: an agent of the Agent Client Protocol (v1) over standard input and output, for editors.
//!
//! It is a client like any other. A session lives in the daemon: an editor that is closed, or a bridge that is killed,
//! leaves it at work, and `session/load` shows another one the same. One loop over the process' one channel; requests to the
//! daemon are answered at once, so the loop waits for them. What waits for long has a place in [`Bridge`]: prompts for the end
//! of their turn, `session/load` for the end of the replay, questions for the editor's answer. Deliberately absent: the
//! editor's `fs/*` and `terminal/*`, as a session outlives its editor.

mod arguments;
mod asking;
mod events;
mod opening;
mod options;
mod prompt;
mod question;
mod requests;
mod servers;
mod update;
mod wire;

use std::collections::HashMap;
use std::path::PathBuf;

use agent_client_protocol_schema::v1::{
    AuthenticateResponse, CancelNotification, Error, ErrorCode, PromptResponse, SessionNotification, SessionUpdate,
    StopReason,
};
use base64::Engine as _;
use linger_protocol::RpcError;
use linger_protocol::blob::Get;
use linger_protocol::error::Code;
use linger_protocol::id::{BlobId, Cursor, PromptId, SessionId};
use linger_protocol::mcp::SessionServer;
use linger_protocol::method::{BlobGet, Method, SessionCancel, SessionDetach, SessionUnqueue};
use linger_protocol::session::{Cancel, Info, Named, Unqueue};
use linger_protocol::transport::blocking::Incoming;
use serde::Serialize;
use serde_json::Value;

use crate::arguments::Acp;
use crate::connect::{Client, parse};
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::input::piped::{self, Taken};
use crate::input::{self, Event, InputLine};
use options::Choices;
use question::OpenQuestion;
use update::Shown;
use wire::{Editor, Message};

/// The largest blob that goes to an editor, in bytes: a file of a diff, or an image.
const MAX_BLOB: usize = 2 << 20;

/// Sessions on a page of `session/list`.
const PAGE: u32 = 100;

/// The name of the way to give linger a key, which is a command in a terminal.
const KEY: &str = "key";

/// Speaks ACP until the editor closes standard input.
pub(crate) fn run(args: Acp) -> Result<Exit, Failure> {
    let client = Client::open()?;
    let sender = client.sender();
    input::signals(sender.clone(), false)?;
    let taken = piped::read(sender);
    let mut bridge = Bridge {
        client,
        editor: Editor::new(),
        args,
        forms: false,
        sessions: HashMap::new(),
        questions: Vec::new(),
        choices: Choices::default(),
    };
    bridge.work(&taken)
}

/// A bridge between one editor and the daemon.
struct Bridge {
    client: Client,
    editor: Editor,
    args: Acp,
    /// Whether the editor takes forms.
    forms: bool,
    /// The sessions that the editor has open.
    sessions: HashMap<SessionId, Session>,
    /// The questions that the editor was asked.
    questions: Vec<OpenQuestion>,
    choices: Choices,
}

/// A session that the editor has open.
#[derive(Debug, Default)]
struct Session {
    cursor: Option<Cursor>,
    /// The last durable event that was seen.
    seq: u64,
    shown: Shown,
    /// The prompts of this editor, which shows them by itself.
    own: Vec<PromptId>,
    /// The prompts whose turn has not ended, with the editor's requests.
    open: Vec<(PromptId, Value)>,
    /// The prompt of the turn that runs.
    running: Option<PromptId>,
    /// The request that is answered when the replay is over.
    load: Option<(Value, Value)>,
    /// The notes and title that the editor gets once it has the session.
    opened: Option<Opened>,
    /// The MCP servers that the editor brought, with their values: another daemon needs those again.
    servers: Vec<SessionServer>,
}

/// The facts about a session that an editor is told once it has it.
#[derive(Debug)]
struct Opened {
    cwd: PathBuf,
    title: Option<String>,
    notes: Vec<String>,
}

impl Opened {
    fn of(row: &Info, notes: Vec<String>) -> Self {
        Self { cwd: row.cwd.clone(), title: row.name.clone().or_else(|| row.title.clone()), notes }
    }
}

type Answer = Result<Value, Error>;

impl Bridge {
    fn work(&mut self, taken: &Taken) -> Result<Exit, Failure> {
        loop {
            let Some(event) = self.client.next_event(None) else { continue };
            match event {
                Event::Line(InputLine::Text { text, .. }) => {
                    taken.one();
                    self.line(&text)?;
                }
                Event::Line(InputLine::Garbled) => {
                    return Err(Failure::usage("a line on standard input is too long"));
                }
                Event::Line(InputLine::End) | Event::Signal(_) => return Ok(Exit::GOOD),
                Event::Incoming(_, Incoming::Event(notification, _)) => self.take(&notification)?,
                Event::Lost(_) => self.reattach()?,
                Event::Refused(_, failure) => return Err(failure),
                Event::Incoming(_, Incoming::Response(..) | Incoming::Any(..) | Incoming::Completion(_))
                | Event::Line(InputLine::Picked(_) | InputLine::Ran(_) | InputLine::NotRun | InputLine::Stopped(_))
                | Event::Key(_)
                | Event::Hotkey(_) => {}
            }
        }
    }

    /// Connects again after a loss, and reads each session on from where it was.
    fn reattach(&mut self) -> Result<(), Failure> {
        if !self.client.reconnect_soon()? {
            self.client.reconnect_attached()?;
        }
        let sessions: Vec<_> = self.sessions.iter().map(|(id, session)| (id.clone(), session.cursor.clone())).collect();
        for (session, after) in sessions {
            let servers = self.sessions.get(&session).map(|opened| opened.servers.clone()).unwrap_or_default();
            let brought = self.bring_servers(&session, servers)?.map(drop);
            if let Err(error) = brought.and(self.attach(&session, after)?) {
                self.update(&session, update::note(&format!("session {session}: {}", error.message)))?;
                self.forget(&session, Err(error))?;
            }
        }
        Ok(())
    }

    /// Forgets a session that the editor can no longer use, and gives its open requests this answer.
    fn forget(&mut self, session: &SessionId, answer: Answer) -> Result<(), Failure> {
        let Some(gone) = self.sessions.remove(session) else { return Ok(()) };
        for id in gone.open.into_iter().map(|(_, id)| id).chain(gone.load.map(|(id, _)| id)) {
            self.editor.answer(&id, answer.clone())?;
        }
        self.forget_questions(session)?;
        let _detached = self.client.call_raw(&SessionDetach(Named { session: session.clone() }))?;
        Ok(())
    }

    fn line(&mut self, line: &str) -> Result<(), Failure> {
        if line.trim().is_empty() {
            return Ok(());
        }
        let message = match Message::read(line) {
            Ok(message) => message,
            Err(error) => return self.editor.answer(&Value::Null, Err(error)),
        };
        match (&message.method, &message.id) {
            (Some(method), Some(id)) => {
                let method = method.clone();
                match self.request(&method, id, &message) {
                    Ok(Some(answer)) => self.editor.answer(id, answer),
                    Ok(None) => Ok(()),
                    // The editor learns why, and may try again.
                    Err(failure) if !failure.interrupted => self.editor.answer(id, Err(rpc_error(failure))),
                    Err(failure) => Err(failure),
                }
            }
            (Some(method), None) => self.notified(&method.clone(), &message),
            (None, Some(_)) => self.answered(message),
            (None, None) => Ok(()),
        }
    }

    /// The answer to a request; `None` if it comes later.
    fn request(&mut self, method: &str, id: &Value, message: &Message) -> Result<Option<Answer>, Failure> {
        macro_rules! params {
            () => {
                match message.params() {
                    Ok(params) => params,
                    Err(error) => return Ok(Some(Err(error))),
                }
            };
        }
        macro_rules! opening {
            () => {
                match message.opening() {
                    Ok((request, servers)) if self.client.is_far() => (request, servers.without_programs()),
                    Ok(opening) => opening,
                    Err(error) => return Ok(Some(Err(error))),
                }
            };
        }
        Ok(Some(match method {
            "initialize" => Ok(self.initialize(&params!())),
            "authenticate" => value(&AuthenticateResponse::default()),
            "session/new" => {
                let (request, servers) = opening!();
                self.new_session(request, servers)?
            }
            "session/load" => {
                let (request, servers) = opening!();
                return self.load(id, request, servers);
            }
            "session/resume" => {
                let (request, servers) = opening!();
                self.resume(request, servers)?
            }
            "session/fork" => {
                let (request, servers) = opening!();
                self.fork(request, servers)?
            }
            "session/list" => self.list(params!())?,
            "session/close" => self.close(params!())?,
            "session/delete" => self.delete(params!())?,
            "session/prompt" => return self.prompt(id, params!()),
            "session/set_mode" => self.set_mode(params!())?,
            "session/set_config_option" => self.set_option(params!())?,
            _ => Err(Error::new(ErrorCode::MethodNotFound.into(), format!("unknown method {method}"))),
        }))
    }

    fn notified(&mut self, method: &str, message: &Message) -> Result<(), Failure> {
        match method {
            "session/cancel" => {
                let Ok(CancelNotification { session_id, .. }) = message.params() else { return Ok(()) };
                self.cancel(&SessionId(session_id.to_string()))
            }
            "$/cancel_request" => {
                let Ok(params) = message.params::<Value>() else { return Ok(()) };
                self.cancel_request(params.get("requestId").unwrap_or(&Value::Null))
            }
            _ => Ok(()),
        }
    }

    /// Cancels one prompt: its turn if that runs, else its place in the queue. Other requests are answered at once.
    fn cancel_request(&mut self, id: &Value) -> Result<(), Failure> {
        let prompt_of =
            |opened: &Session| opened.open.iter().find(|(_, open)| open == id).map(|(prompt, _)| prompt.clone());
        let found = self.sessions.iter().find_map(|(session, opened)| {
            let prompt = prompt_of(opened)?;
            let runs = opened.running.as_ref() == Some(&prompt);
            Some((session.clone(), prompt, runs))
        });
        let Some((session, prompt, runs)) = found else { return Ok(()) };
        if !runs && self.unqueue(&session, &prompt)? {
            return Ok(());
        }
        let cancel = Cancel { session, background: false, key: Some(key()?) };
        let _idle = self.client.call_raw(&SessionCancel(cancel))?;
        Ok(())
    }

    /// Takes a prompt of this editor out of the queue. False if it is not there.
    fn unqueue(&mut self, session: &SessionId, prompt: &PromptId) -> Result<bool, Failure> {
        let unqueue = Unqueue { session: session.clone(), prompt: Some(prompt.clone()), key: Some(key()?) };
        let is_out = self.client.call_raw(&SessionUnqueue(unqueue))?.is_ok();
        if is_out {
            self.settle(session, prompt, value(&PromptResponse::new(StopReason::Cancelled)))?;
        }
        Ok(is_out)
    }

    /// Cancels this editor's own work in a session, or else the running turn. A session without one is not an error.
    fn cancel(&mut self, session: &SessionId) -> Result<(), Failure> {
        let Some(opened) = self.sessions.get(session) else { return Ok(()) };
        let own: Vec<PromptId> = opened.open.iter().map(|(prompt, _)| prompt.clone()).collect();
        let running = opened.running.clone();
        for prompt in own.iter().filter(|prompt| running.as_ref() != Some(prompt)) {
            self.unqueue(session, prompt)?;
        }
        if !own.is_empty() && running.is_some_and(|running| !own.contains(&running)) {
            return Ok(());
        }
        let cancel = Cancel { session: session.clone(), background: false, key: Some(key()?) };
        let _idle = self.client.call_raw(&SessionCancel(cancel))?;
        Ok(())
    }

    /// Answers the editor's request for a prompt, if it is one.
    fn settle(&mut self, session: &SessionId, prompt: &PromptId, answer: Answer) -> Result<(), Failure> {
        let Some(opened) = self.sessions.get_mut(session) else { return Ok(()) };
        let Some(at) = opened.open.iter().position(|(open, _)| open == prompt) else { return Ok(()) };
        let (_, id) = opened.open.remove(at);
        self.editor.answer(&id, answer)
    }

    fn update(&self, session: &SessionId, update: SessionUpdate) -> Result<(), Failure> {
        self.editor.notify("session/update", &SessionNotification::new(session.to_string(), update))
    }

    /// The result of a method, or its refusal as an error for the editor.
    fn ask<M: Method>(&mut self, request: &M) -> Result<Result<M::Result, Error>, Failure> {
        Ok(match self.client.call_raw(request)? {
            Ok(raw) => Ok(parse::<M>(&raw)?),
            Err(error) => Err(refused(&error)),
        })
    }
}

/// A refusal of the daemon.
fn refused(error: &RpcError) -> Error {
    let code = match error.code() {
        Some(Code::KeyMissing | Code::NoModel) => ErrorCode::AuthRequired,
        Some(Code::UnknownSession) => ErrorCode::ResourceNotFound,
        Some(
            Code::BadPrompt
            | Code::NoWorkspace
            | Code::UnknownProvider
            | Code::BadName
            | Code::BadValue
            | Code::TooMuch,
        ) => ErrorCode::InvalidParams,
        _ => ErrorCode::InternalError,
    };
    let text =
        error.get_hint().map_or_else(|| error.message.to_string(), |hint| format!("{}; hint: {hint}", error.message));
    Error::new(code.into(), text)
}

/// A failure of this bridge.
fn rpc_error(failure: Failure) -> Error {
    let text = failure.message.unwrap_or_default();
    let text = failure.hint.map_or_else(|| text.clone(), |hint| format!("{text}; hint: {hint}"));
    Error::new(ErrorCode::InternalError.into(), text)
}

fn value(response: &impl Serialize) -> Answer {
    serde_json::to_value(response).map_err(|error| Error::new(ErrorCode::InternalError.into(), error.to_string()))
}

/// The bytes of a blob, unless they are more than [`MAX_BLOB`].
fn blob(client: &mut Client, blob: &BlobId) -> Option<Vec<u8>> {
    let (mut bytes, mut offset) = (Vec::new(), Some(0));
    while offset.is_some() {
        let piece = client.call(&BlobGet(Get { blob: blob.clone(), offset, length: None })).ok()?;
        bytes.extend(base64::engine::general_purpose::STANDARD.decode(piece.data).ok()?);
        offset = piece.next;
        if bytes.len() > MAX_BLOB {
            return None;
        }
    }
    Some(bytes)
}
