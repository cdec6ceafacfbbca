//! Runs the tools and reads the resources.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use linger_protocol::id::SessionId;
use linger_protocol::mcp_revision::{Era, takes_forms};
use linger_protocol::method::{QuestionAnswer, QuestionList, SessionCancel, SessionCreate, SessionList, SessionPrompt};
use linger_protocol::permission::Mode;
use linger_protocol::prompt::PromptContent;
use linger_protocol::question::{self, PendingQuestion};
use linger_protocol::session::{Cancel, Create, Info, List, Prompt, State, When};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::server::{Answer, MAX_WAITS, Refusal, Server, WRONG_PARAMS, Wait, WaitProgress, from_now, words};
use super::{ask, read, schema};
use crate::command::find::resolve;
use crate::command::wait::settled;
use crate::environment::{umask, working_directory};
use crate::error::Failure;
use crate::idempotency::key;

/// Seconds that `session_wait` waits by default; `MAX_WAIT` is the limit. The official SDKs of MCP end a request after 60 s.
const WAIT: u64 = 45;
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// Entries and rows: the default and the limit.
const ENTRIES: [usize; 2] = [50, 500];
const ROWS: [u32; 2] = [20, 200];

/// Entries of a resource, at most: an agent reads all of them at once.
const LOG_ENTRIES: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionOnly {
    session: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Creating {
    directory: Option<PathBuf>,
    model: Option<String>,
    mode: Option<Mode>,
    agent: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Prompting {
    session: String,
    prompt: String,
    when: Option<When>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Waiting {
    session: String,
    timeout_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reading {
    session: String,
    after: Option<u64>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    directory: Option<PathBuf>,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answering {
    question: String,
    digest: String,
    answer: String,
    reason: Option<String>,
    value: Option<Value>,
}

/// A session as agents see it.
#[derive(Serialize)]
struct SessionRow<'a> {
    session: &'a SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    title: &'a str,
    directory: &'a std::path::Path,
    model: &'a str,
    mode: Mode,
    state: State,
    queued: u32,
    questions: usize,
}

impl<'a> From<&'a Info> for SessionRow<'a> {
    fn from(info: &'a Info) -> Self {
        Self {
            session: &info.session,
            name: info.name.as_deref(),
            title: info.title.as_deref().unwrap_or_default(),
            directory: &info.cwd,
            model: &info.model,
            mode: info.mode,
            state: info.state,
            queued: info.queued,
            questions: info.questions.len(),
        }
    }
}

/// The end of a call of `session_wait`.
enum WaitEnd {
    /// The session is done, stuck, or the time is over.
    Over(Value),
    /// The host is to ask its user, and to call again.
    Asks(Value),
}

impl Server {
    /// `tools/call`. A failure is a result that the model can read.
    pub(super) fn call(&mut self, era: Era, id: &Value, params: &Value) -> Result<Option<Answer>, Failure> {
        let name = params["name"].as_str().unwrap_or_default();
        let arguments = params.get("arguments").cloned().unwrap_or_else(|| json!({}));
        let known = schema::tools(self.answer).iter().any(|tool| tool["name"] == name);
        if !known {
            return Ok(Some(Err(Refusal::new(WRONG_PARAMS, format!("unknown tool {name}")))));
        }
        let called = if name == "session_wait" {
            self.wait(era, id, params, arguments).map(|()| None)
        } else {
            self.tool(name, arguments)
        };
        match called {
            Ok(Some(value)) => Ok(Some(Ok(era.complete(result(&value, false))))),
            Ok(None) => Ok(None),
            Err(failure) if failure.interrupted => Err(failure),
            Err(failure) => Ok(Some(Ok(era.complete(result(&Value::String(words(&failure)), true))))),
        }
    }

    /// Begins a wait; its answer comes later.
    fn wait(&mut self, era: Era, id: &Value, params: &Value, arguments: Value) -> Result<(), Failure> {
        let Waiting { session, timeout_s } = read_arguments(arguments)?;
        if self.waits.len() >= MAX_WAITS {
            return Err(Failure::usage(format!("{MAX_WAITS} calls of session_wait are already open")));
        }
        let session = resolve(&mut self.client, &session)?.session;
        let refused = self.answered_with(params)?;
        let forms = if era == Era::PerRequest { takes_forms(params) } else { self.forms };
        let until = from_now(timeout_s.unwrap_or(WAIT), MAX_WAIT);
        let progress = WaitProgress::of(params);
        self.waits.push(Wait { id: id.clone(), session, until, refused, era, forms, progress });
        self.check_waits()
    }

    fn tool(&mut self, name: &str, arguments: Value) -> Result<Option<Value>, Failure> {
        Ok(Some(match name {
            "session_create" => self.create(read_arguments(arguments)?)?,
            "session_prompt" => {
                let Prompting { session, prompt, when } = read_arguments(arguments)?;
                let session = resolve(&mut self.client, &session)?.session;
                let (content, env) = (PromptContent::Text(prompt), self.client.brought_env());
                let (key, session_id) = (Some(key()?), session.clone());
                let prompt = Prompt {
                    session: session_id,
                    content,
                    when,
                    schema: None,
                    until: None,
                    expand: false,
                    awaited: true,
                    env,
                    key,
                };
                let accepted = self.ask(&SessionPrompt(prompt))?;
                json!({ "session": session, "prompt": accepted.prompt, "seq": accepted.seq })
            }
            "session_read" => {
                let Reading { session, after, limit } = read_arguments(arguments)?;
                let info = resolve(&mut self.client, &session)?;
                let limit = limit.unwrap_or(ENTRIES[0]).min(ENTRIES[1]);
                let entries = read::entries(&info.session, None, after.unwrap_or_default(), limit)?;
                json!({ "session": info.session, "state": info.state, "entries": entries })
            }
            "session_list" => {
                let Listing { directory, limit } = read_arguments(arguments)?;
                let limit = limit.unwrap_or(ROWS[0]).min(ROWS[1]);
                let rows = self.rows(directory, limit)?;
                let mut listed = json!({ "sessions": rows.iter().map(SessionRow::from).collect::<Vec<_>>() });
                if let (Some(note), Some(fields)) = (self.started_note(), listed.as_object_mut()) {
                    fields.insert("note".to_owned(), note.into());
                }
                listed
            }
            "session_cancel" => {
                let SessionOnly { session } = read_arguments(arguments)?;
                let session = resolve(&mut self.client, &session)?.session;
                self.ask(&SessionCancel(Cancel { session: session.clone(), background: false, key: Some(key()?) }))?;
                json!({ "session": session, "cancelled": true })
            }
            _ => {
                let Answering { question, digest, answer, reason, value } = read_arguments(arguments)?;
                let (question, digest, key) = (question.as_str().into(), Some(digest), Some(key()?));
                let rules = Vec::new();
                self.ask(&QuestionAnswer(question::Answer { question, answer, value, reason, digest, rules, key }))?;
                json!({ "answered": true })
            }
        }))
    }

    fn create(&mut self, asked: Creating) -> Result<Value, Failure> {
        let Creating { directory, model, mode, agent, name } = asked;
        // A caller without the right to answer must not choose a mode that asks less.
        if !self.answer && matches!(mode, Some(Mode::Edit | Mode::Auto)) {
            return Err(Failure::usage("this server can only start sessions in the modes ask and plan")
                .hint("`linger mcp serve --sessions --answer` allows more"));
        }
        let cwd = match directory {
            Some(directory) => directory,
            None => working_directory()?,
        };
        let (env, login_env) = (self.client.session_env(), self.client.lacks_env());
        let (umask, key) = (Some(umask()), Some(key()?));
        let create = Create { cwd, model, mode, agent, name, env, login_env, umask, key, ..Create::default() };
        let made = self.ask(&SessionCreate(create))?;
        Ok(json!(made))
    }

    fn rows(&mut self, cwd: Option<PathBuf>, limit: u32) -> Result<Vec<Info>, Failure> {
        self.ask(&SessionList(List { cwd, limit: Some(limit), ..List::default() }))
    }

    /// Checks every open wait: it may be over, or its session may have a new question.
    pub(super) fn check_waits(&mut self) -> Result<(), Failure> {
        for mut wait in std::mem::take(&mut self.waits) {
            let era = wait.era;
            match self.outcome(&mut wait) {
                Ok(Some(WaitEnd::Over(value))) => self.respond(&wait.id, Ok(era.complete(result(&value, false))))?,
                Ok(Some(WaitEnd::Asks(wanted))) => self.respond(&wait.id, Ok(wanted))?,
                Ok(None) => self.waits.push(wait),
                Err(failure) if failure.interrupted => return Err(failure),
                Err(failure) => {
                    let text = Value::String(words(&failure));
                    self.respond(&wait.id, Ok(era.complete(result(&text, true))))?;
                }
            }
        }
        Ok(())
    }

    /// The result of a wait; `None` while it continues.
    fn outcome(&mut self, wait: &mut Wait) -> Result<Option<WaitEnd>, Failure> {
        // Questions first: the row read afterwards then includes them.
        let questions = self.pending(&wait.session)?;
        let info = self.client.session_info(&wait.session)?;
        let done = settled(&info);
        let now = Instant::now();
        let is_over = now >= wait.until;
        let mut asked = false;
        if !self.answer && wait.forms && self.client.may_answer() && !wait.refused && !is_over {
            if wait.era == Era::PerRequest
                && let Some(wanted) = ask::input_required(&questions)
            {
                return Ok(Some(WaitEnd::Asks(wanted)));
            }
            for question in questions.iter().filter(|_| wait.era == Era::Handshake) {
                asked |= self.put(question)?;
            }
        }
        let stuck = info.state == State::Offered || (!questions.is_empty() && !asked);
        if done.is_none() && !stuck && !is_over || asked && !is_over {
            let progress = wait.progress.as_mut().and_then(|it| it.next(info.state, questions.len(), now));
            if let Some(notification) = progress {
                self.send(&notification)?;
            }
            return Ok(None);
        }
        let answer = match done {
            Some(_) => read::answer(&info.session, &info.turn_cursor)?,
            None => None,
        };
        Ok(Some(WaitEnd::Over(json!({
            "session": info.session,
            "state": info.state,
            "stop_reason": done,
            "timed_out": is_over && done.is_none() && !stuck,
            "answer": answer,
            "questions": questions,
        }))))
    }

    /// Which daemon the sessions are of, if this server had to start it: a host may give its servers another environment than the
    /// user's shell has.
    fn started_note(&self) -> Option<String> {
        let places = &self.client.places;
        self.client.started.then(|| {
            format!(
                "this server started a daemon, whose state directory is {}; if your sessions are elsewhere, give this server \
                 your XDG_STATE_HOME, XDG_DATA_HOME and XDG_CONFIG_HOME, or LINGER_SOCKET, in the host's `env` for it",
                places.state.display()
            )
        })
    }

    /// The waiting questions of a session and its children.
    fn pending(&mut self, session: &SessionId) -> Result<Vec<PendingQuestion>, Failure> {
        self.ask(&QuestionList(question::List { session: Some(session.clone()), ..question::List::default() }))
    }

    /// `resources/list`: the logs of the latest sessions.
    pub(super) fn resources(&mut self) -> Result<Value, Failure> {
        let rows = self.rows(None, ROWS[0])?;
        let resource = |info: &Info| {
            let title = info.name.clone().or_else(|| info.title.clone()).unwrap_or_else(|| info.session.to_string());
            json!({ "uri": schema::log_of(info.session.as_str()), "name": info.session, "title": title, "mimeType": "text/plain" })
        };
        Ok(json!({ "resources": rows.iter().map(resource).collect::<Vec<_>>() }))
    }

    /// `resources/read`: the log of a session.
    pub(super) fn resource(&mut self, session: &str) -> Result<Answer, Failure> {
        let info = match resolve(&mut self.client, session) {
            Ok(info) => info,
            Err(failure) if failure.interrupted => return Err(failure),
            Err(failure) => return Ok(Err(Refusal::new(WRONG_PARAMS, words(&failure)))),
        };
        let text = read::text(&read::entries(&info.session, None, 0, LOG_ENTRIES)?);
        let content = json!({ "uri": schema::log_of(info.session.as_str()), "mimeType": "text/plain", "text": text });
        Ok(Ok(json!({ "contents": [content] })))
    }
}

fn read_arguments<T: DeserializeOwned>(arguments: Value) -> Result<T, Failure> {
    serde_json::from_value(arguments).map_err(|error| Failure::usage(format!("wrong arguments: {error}")))
}

/// A result of a tool, as text and as a value.
fn result(value: &Value, is_error: bool) -> Value {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let content = json!([{ "type": "text", "text": text }]);
    if value.is_object() {
        json!({ "content": content, "isError": is_error, "structuredContent": value })
    } else {
        json!({ "content": content, "isError": is_error })
    }
}
