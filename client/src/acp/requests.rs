//! Requests of an editor: the list of sessions, prompts, and options. `opening` has those that open a session.

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AgentCapabilities, AuthMethod, AuthMethodAgent, CloseSessionRequest, CloseSessionResponse, DeleteSessionRequest,
    DeleteSessionResponse, ElicitationCapabilities, Error, ErrorCode, Implementation, InitializeRequest,
    InitializeResponse, ListSessionsRequest, ListSessionsResponse, McpCapabilities, PromptCapabilities, PromptRequest,
    PromptResponse, SessionAdditionalDirectoriesCapabilities, SessionCapabilities, SessionCloseCapabilities,
    SessionDeleteCapabilities, SessionForkCapabilities, SessionInfo, SessionListCapabilities,
    SessionResumeCapabilities, SetSessionConfigOptionRequest, SetSessionConfigOptionResponse, SetSessionModeRequest,
    SetSessionModeResponse, StopReason,
};
use linger_protocol::id::SessionId;
use linger_protocol::method::{SessionBin, SessionList, SessionPrompt, SessionSet};
use linger_protocol::permission::Mode;
use linger_protocol::session::{Before, Bin, Effort, Info, List, Prompt, Set};
use serde_json::{Value, json};

use super::{Answer, Bridge, KEY, PAGE, options, prompt, value};
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
            .fork(SessionForkCapabilities::new())
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
        let Some(opened) = self.sessions.get(&session) else {
            return Ok(Err(not_open(&session)));
        };
        if !opened.open.is_empty() {
            self.cancel(&session)?;
        }
        self.forget(&session, value(&PromptResponse::new(StopReason::Cancelled)))?;
        Ok(value(&CloseSessionResponse::new()))
    }

    /// Puts a session into the bin, where it stays for 30 days.
    pub(super) fn delete(&mut self, request: DeleteSessionRequest) -> Result<Answer, Failure> {
        let session = SessionId(request.session_id.to_string());
        let bin = Bin { session: session.clone(), force: true, key: Some(key()?) };
        let binned = self.ask(&SessionBin(bin))?;
        if binned.is_ok() {
            self.forget(&session, value(&PromptResponse::new(StopReason::Cancelled)))?;
        }
        Ok(binned.and_then(|_| value(&DeleteSessionResponse::new())))
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
            awaited: true,
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
            options::MODE => match chosen.parse::<Mode>() {
                Ok(mode) => Set { mode: Some(mode), ..set },
                Err(_) => return Ok(Err(invalid(format!("unknown mode '{}'", chosen.escape_default())))),
            },
            options::MODEL if chosen.is_empty() => {
                return Ok(Err(invalid("no model is named; the option has those that can be chosen".to_owned())));
            }
            options::MODEL => Set { model: Some(chosen), ..set },
            options::EFFORT => match Effort::ALL.into_iter().find(|effort| effort.name() == chosen) {
                Some(effort) => Set { effort: Some(effort), ..set },
                None => return Ok(Err(invalid(format!("unknown effort '{}'", chosen.escape_default())))),
            },
            other => return Ok(Err(invalid(format!("unknown option '{}'", other.escape_default())))),
        };
        if let Err(error) = self.ask(&SessionSet(set))? {
            return Ok(Err(error));
        }
        let row = self.client.session_info(&session)?;
        Ok(value(&SetSessionConfigOptionResponse::new(self.options(&row)?)))
    }

    /// The row of a session that the editor names.
    pub(super) fn row(&mut self, session: &str) -> Result<Result<Info, Error>, Failure> {
        let list = List { matching: Some(session.to_owned()), ..List::default() };
        let rows = self.client.call(&SessionList(list))?;
        let row = rows.into_iter().find(|row| row.session.as_str() == session);
        let unknown = || format!("unknown session {session}; `linger ls` lists the sessions");
        Ok(row.ok_or_else(|| Error::new(ErrorCode::ResourceNotFound.into(), unknown())))
    }
}

fn invalid(text: String) -> Error {
    Error::new(ErrorCode::InvalidParams.into(), text)
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
