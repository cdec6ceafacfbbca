//! Requests of an editor: sessions, prompts, and their options.

use std::path::{Path, PathBuf};

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AgentCapabilities, AuthMethod, AuthMethodAgent, AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate,
    CloseSessionRequest, CloseSessionResponse, DeleteSessionRequest, DeleteSessionResponse, ElicitationCapabilities,
    Error, ErrorCode, Implementation, InitializeRequest, InitializeResponse, ListSessionsRequest, ListSessionsResponse,
    LoadSessionRequest, LoadSessionResponse, McpCapabilities, NewSessionRequest, NewSessionResponse,
    PromptCapabilities, PromptRequest, PromptResponse, ResumeSessionRequest, ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities, SessionCapabilities, SessionCloseCapabilities, SessionConfigOption,
    SessionDeleteCapabilities, SessionInfo, SessionListCapabilities, SessionModeState, SessionResumeCapabilities,
    SessionUpdate, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse, SetSessionModeRequest,
    SetSessionModeResponse, StopReason, UnstructuredCommandInput,
};
use linger_protocol::agent::{self, Status};
use linger_protocol::daemon::{Empty, Models};
use linger_protocol::id::SessionId;
use linger_protocol::method::{
    CommandList, ModeList, ModelList, QuestionList, SessionBin, SessionCreate, SessionDetach, SessionList,
    SessionPrompt, SessionSet, SkillList,
};
use linger_protocol::permission::Mode;
use linger_protocol::question as pending;
use linger_protocol::session::{Before, Bin, Create, Effort, Info, List, Named, Prompt, Set};
use serde_json::{Value, json};

use super::servers::servers;
use super::{Answer, Bridge, KEY, PAGE, Session, options, prompt, value};
use crate::environment::umask;
use crate::error::Failure;
use crate::idempotency::key;

impl Bridge {
    pub(super) fn initialize(&mut self, request: &InitializeRequest) -> Value {
        let elicitation = request.client_capabilities.elicitation.as_ref();
        self.forms = elicitation.is_some_and(ElicitationCapabilities::supports_form);
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .delete(SessionDeleteCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .close(SessionCloseCapabilities::new())
            .additional_directories(SessionAdditionalDirectoriesCapabilities::new());
        let capabilities = AgentCapabilities::new()
            .load_session(true)
            .mcp_capabilities(McpCapabilities::new().http(true))
            .prompt_capabilities(PromptCapabilities::new().image(true).embedded_context(true))
            .session_capabilities(sessions);
        let method = AuthMethodAgent::new(KEY, "Provider key").description(
            "In a terminal: `linger key set PROVIDER` stores a key in the keychain; or set its variable where the editor is started",
        );
        let response = InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(capabilities)
            .auth_methods(vec![AuthMethod::Agent(method)])
            .agent_info(Implementation::new("linger", linger_protocol::VERSION).title("linger"));
        json!(response)
    }

    pub(super) fn new_session(&mut self, request: NewSessionRequest) -> Result<Answer, Failure> {
        let servers = match servers(request.mcp_servers) {
            Ok(servers) => servers,
            Err(error) => return Ok(Err(error)),
        };
        let create = Create {
            cwd: request.cwd.clone(),
            model: self.args.model.clone(),
            mode: self.args.mode,
            additional_directories: request.additional_directories,
            mcp_servers: servers.clone(),
            agent: self.args.agent.clone(),
            env: self.client.session_env(),
            umask: Some(umask()),
            key: Some(key()?),
            effort: self.args.effort.unwrap_or_default(),
            ..blank(request.cwd)
        };
        let created = match self.ask(&SessionCreate(create))? {
            Ok(created) => created,
            Err(error) => return Ok(Err(error)),
        };
        let session = created.session;
        let row = self.client.session_info(&session)?;
        self.sessions.insert(session.clone(), Session { servers, ..Session::default() });
        if let Err(error) = self.attach(&session, None)? {
            return Ok(Err(error));
        }
        let (modes, options) = self.choices(&row)?;
        self.commands(&session, &row.cwd)?;
        Ok(value(&NewSessionResponse::new(session.to_string()).modes(modes).config_options(options)))
    }

    pub(super) fn load(&mut self, id: &Value, request: LoadSessionRequest) -> Result<Option<Answer>, Failure> {
        let opened = self.row(&request.session_id.to_string())?;
        let (row, servers) = match opened.and_then(|row| Ok((row, servers(request.mcp_servers)?))) {
            Ok(opened) => opened,
            Err(error) => return Ok(Some(Err(error))),
        };
        if let Err(error) = self.bring_servers(&row.session, servers.clone())? {
            return Ok(Some(Err(error)));
        }
        let (modes, options) = self.choices(&row)?;
        let response = json!(LoadSessionResponse::new().modes(modes).config_options(options));
        let session = row.session.clone();
        let before = self.sessions.remove(&session);
        let was_open = before.is_some();
        let Session { open, load, .. } = before.unwrap_or_default();
        if let Some((earlier, response)) = load {
            self.editor.answer(&earlier, Ok(response))?;
        }
        let opened = Session { open, load: Some((id.clone(), response)), servers, ..Session::default() };
        // Open already: the connection forgets it first, so that the replay starts from the beginning.
        self.sessions.insert(session.clone(), opened);
        if was_open {
            self.forget_questions(&session)?;
            let _detached = self.client.call_raw(&SessionDetach(Named { session: session.clone() }))?;
        }
        match self.attach(&session, None)? {
            Ok(()) => self.commands(&session, &row.cwd).map(|()| None),
            Err(error) => {
                self.sessions.remove(&session);
                Ok(Some(Err(error)))
            }
        }
    }

    pub(super) fn resume(&mut self, request: ResumeSessionRequest) -> Result<Answer, Failure> {
        let opened = self.row(&request.session_id.to_string())?;
        let (row, servers) = match opened.and_then(|row| Ok((row, servers(request.mcp_servers)?))) {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error)),
        };
        let session = row.session.clone();
        if let Err(error) = self.bring_servers(&session, servers.clone())? {
            return Ok(Err(error));
        }
        if let Some(opened) = self.sessions.get_mut(&session).filter(|_| !servers.is_empty()) {
            opened.servers.clone_from(&servers);
        }
        if !self.sessions.contains_key(&session) {
            self.sessions
                .insert(session.clone(), Session { cursor: Some(row.cursor.clone()), servers, ..Session::default() });
            if let Err(error) = self.attach(&session, Some(row.cursor.clone()))? {
                self.sessions.remove(&session);
                return Ok(Err(error));
            }
            let list = pending::List { session: Some(session.clone()), after: None };
            for question in self.client.call(&QuestionList(list))? {
                self.put(&session, &question, &[], &[])?;
            }
        }
        let (modes, options) = self.choices(&row)?;
        self.commands(&session, &row.cwd)?;
        Ok(value(&ResumeSessionResponse::new().modes(modes).config_options(options)))
    }

    pub(super) fn list(&mut self, request: ListSessionsRequest) -> Result<Answer, Failure> {
        let before = match request.cursor.as_deref().map(|cursor| cursor.split_once(':')) {
            None => None,
            Some(Some((at, session))) if at.parse::<u64>().is_ok() => {
                Some(Before { updated_at: at.parse().unwrap_or_default(), session: SessionId(session.to_owned()) })
            }
            Some(_) => return Ok(Err(Error::new(ErrorCode::InvalidParams.into(), "unknown cursor"))),
        };
        let list = List { cwd: request.cwd, lasting: true, limit: Some(PAGE), before, ..List::default() };
        let rows = match self.ask(&SessionList(list))? {
            Ok(rows) => rows,
            Err(error) => return Ok(Err(error)),
        };
        let next = rows.last().filter(|_| rows.len() >= PAGE as usize);
        let next = next.map(|row| format!("{}:{}", row.updated_at, row.session));
        let info = |row: Info| {
            SessionInfo::new(row.session.to_string(), row.cwd)
                .title(row.name.or(row.title))
                .updated_at(timestamp(row.updated_at))
                .additional_directories(row.additional_directories)
        };
        Ok(value(&ListSessionsResponse::new(rows.into_iter().map(info).collect()).next_cursor(next)))
    }

    /// Closes a session and cancels this editor's own work in it; another client's turn continues.
    pub(super) fn close(&mut self, request: CloseSessionRequest) -> Result<Answer, Failure> {
        let session = SessionId(request.session_id.to_string());
        let Some(opened) = self.sessions.remove(&session) else {
            return Ok(Err(not_open(&session)));
        };
        if !opened.open.is_empty() {
            self.cancel(&session)?;
        }
        for (_, id) in opened.open {
            self.editor.answer(&id, value(&PromptResponse::new(StopReason::Cancelled)))?;
        }
        self.forget_questions(&session)?;
        let _detached = self.client.call_raw(&SessionDetach(Named { session }))?;
        Ok(value(&CloseSessionResponse::new()))
    }

    /// Puts a session into the bin, where it stays for 30 days.
    pub(super) fn delete(&mut self, request: DeleteSessionRequest) -> Result<Answer, Failure> {
        let session = SessionId(request.session_id.to_string());
        let bin = Bin { session: session.clone(), force: true, key: Some(key()?) };
        Ok(self.ask(&SessionBin(bin))?.and_then(|_| value(&DeleteSessionResponse::new())))
    }

    pub(super) fn prompt(&mut self, id: &Value, request: PromptRequest) -> Result<Option<Answer>, Failure> {
        let session = SessionId(request.session_id.to_string());
        if !self.sessions.contains_key(&session) {
            return Ok(Some(Err(not_open(&session))));
        }
        let content = match prompt::content(request.prompt) {
            Ok(content) => content,
            Err(what) => return Ok(Some(Err(Error::new(ErrorCode::InvalidParams.into(), what)))),
        };
        let prompt = Prompt {
            session: session.clone(),
            content,
            when: None,
            schema: None,
            until: None,
            expand: true,
            env: self.client.secret_env(),
            key: Some(key()?),
        };
        match self.ask(&SessionPrompt(prompt))? {
            Ok(accepted) => {
                if let Some(opened) = self.sessions.get_mut(&session) {
                    opened.own.push(accepted.prompt.clone());
                    opened.open.push((accepted.prompt, id.clone()));
                }
                Ok(None)
            }
            Err(error) => Ok(Some(Err(error))),
        }
    }

    pub(super) fn set_mode(&mut self, request: SetSessionModeRequest) -> Result<Answer, Failure> {
        let Ok(mode) = request.mode_id.to_string().parse::<Mode>() else {
            return Ok(Err(Error::new(ErrorCode::InvalidParams.into(), format!("unknown mode {}", request.mode_id))));
        };
        let set = Set { session: SessionId(request.session_id.to_string()), mode: Some(mode), ..keyed()? };
        Ok(self.ask(&SessionSet(set))?.and_then(|_| value(&SetSessionModeResponse::new())))
    }

    pub(super) fn set_option(&mut self, request: SetSessionConfigOptionRequest) -> Result<Answer, Failure> {
        let session = SessionId(request.session_id.to_string());
        let chosen = request.value.as_value_id().map(ToString::to_string).unwrap_or_default();
        let set = Set { session: session.clone(), ..keyed()? };
        let set = match &*request.config_id.to_string() {
            options::MODEL => Set { model: Some(chosen), ..set },
            options::EFFORT => match Effort::ALL.into_iter().find(|effort| effort.name() == chosen) {
                Some(effort) => Set { effort: Some(effort), ..set },
                None => {
                    return Ok(Err(Error::new(ErrorCode::InvalidParams.into(), format!("unknown effort {chosen}"))));
                }
            },
            other => return Ok(Err(Error::new(ErrorCode::InvalidParams.into(), format!("unknown option {other}")))),
        };
        if let Err(error) = self.ask(&SessionSet(set))? {
            return Ok(Err(error));
        }
        let row = self.client.session_info(&session)?;
        Ok(value(&SetSessionConfigOptionResponse::new(self.options(&row)?)))
    }

    /// The commands and skills of a directory, as updates of a session.
    fn commands(&mut self, session: &SessionId, cwd: &Path) -> Result<(), Failure> {
        let list = || agent::List { cwd: cwd.to_path_buf(), path: None, text: false };
        let mut items = self.client.call(&CommandList(list()))?;
        items.extend(self.client.call(&SkillList(list()))?);
        let active = items.into_iter().filter(|item| item.status == Status::Active);
        let command = |item: agent::Item| {
            AvailableCommand::new(item.name, item.description.unwrap_or_default())
                .input(AvailableCommandInput::Unstructured(UnstructuredCommandInput::new("what to do")))
        };
        let update = AvailableCommandsUpdate::new(active.map(command).collect());
        self.update(session, SessionUpdate::AvailableCommandsUpdate(update))
    }

    fn choices(&mut self, row: &Info) -> Result<(SessionModeState, Vec<SessionConfigOption>), Failure> {
        self.models = self.client.call(&ModelList(Models::default()))?;
        let modes = self.client.call(&ModeList(Empty {}))?;
        Ok((options::modes(row.mode, modes), self.options(row)?))
    }

    /// The options of a session, with the efforts that its model takes.
    pub(super) fn options(&mut self, row: &Info) -> Result<Vec<SessionConfigOption>, Failure> {
        let model = Some(row.model.clone());
        let rows = self.client.call(&ModelList(Models { all: false, model }))?;
        let efforts: Vec<Effort> = rows.into_iter().flat_map(|row| row.efforts).collect();
        Ok(options::options(row, &self.models, &efforts))
    }

    /// The row of a session that the editor names.
    fn row(&mut self, session: &str) -> Result<Result<Info, Error>, Failure> {
        let list = List { matching: Some(session.to_owned()), ..List::default() };
        let rows = self.client.call(&SessionList(list))?;
        let row = rows.into_iter().find(|row| row.session.as_str() == session);
        let unknown = || format!("unknown session {session}; `linger ls` lists the sessions");
        Ok(row.ok_or_else(|| Error::new(ErrorCode::ResourceNotFound.into(), unknown())))
    }
}

/// A request to create a session in which nothing is said yet.
fn blank(cwd: PathBuf) -> Create {
    Create {
        cwd,
        model: None,
        mode: None,
        effort: Effort::Auto,
        patience: None,
        fallback: None,
        unattended: None,
        budget: linger_protocol::budget::Budget::default(),
        additional_directories: Vec::new(),
        mcp_servers: Vec::new(),
        tools: None,
        agent: None,
        allow: Vec::new(),
        system: None,
        name: None,
        one_shot: false,
        env: std::collections::BTreeMap::new(),
        umask: None,
        key: None,
    }
}

fn keyed() -> Result<Set, Failure> {
    Ok(Set { key: Some(key()?), ..Set::default() })
}

fn not_open(session: &SessionId) -> Error {
    let text = format!("session {session} is not open here; `session/load` or `session/resume` opens it");
    Error::new(ErrorCode::ResourceNotFound.into(), text)
}

/// Unix milliseconds as RFC 3339, in UTC.
fn timestamp(at: u64) -> String {
    let days = i64::try_from(at / 86_400_000).unwrap_or_default();
    let (second, milli) = (at / 1000 % 86_400, at % 1000);
    // The civil calendar from days, for years after 1970: eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * month_index + 2) / 5 + 1, (month_index + 2) % 12 + 1);
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{milli:03}Z", second % 60)
}
