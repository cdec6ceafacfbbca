//! Sessions that an editor opens: new ones, loaded, resumed and forked ones.
//!
//! Commands, notes and the title follow once the session has caught up, so that the editor knows the session by then.

use std::path::Path;

use agent_client_protocol_schema::v1::{
    AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, Error, ErrorCode, ForkSessionRequest,
    ForkSessionResponse, LoadSessionRequest, LoadSessionResponse, NewSessionRequest, NewSessionResponse,
    ResumeSessionRequest, ResumeSessionResponse, SessionConfigOption, SessionInfoUpdate, SessionModeState,
    SessionUpdate, UnstructuredCommandInput,
};
use linger_protocol::agent::{self, Status};
use linger_protocol::daemon::{Empty, Models};
use linger_protocol::id::{Cursor, SessionId};
use linger_protocol::mcp::SessionServer;
use linger_protocol::method::{
    CommandList, ModeList, ModelList, QuestionList, SessionAttach, SessionCreate, SessionDetach, SessionFork,
    SessionSet, SkillList,
};
use linger_protocol::question as pending;
use linger_protocol::session::{Attach, Create, Effort, Info, Named, Set};
use linger_protocol::tree::Fork;
use serde_json::{Value, json};

use super::options::{self, Choices};
use super::servers::{EditorServers, left_out};
use super::{Answer, Bridge, Opened, Session, update, value};
use crate::environment::umask;
use crate::error::Failure;
use crate::idempotency::key;

impl Bridge {
    pub(super) fn new_session(
        &mut self,
        request: NewSessionRequest,
        brought: EditorServers,
    ) -> Result<Answer, Failure> {
        let EditorServers { usable: mut servers, mut notes } = brought;
        let create = Create {
            cwd: request.cwd,
            model: self.args.model.clone(),
            mode: self.args.mode,
            additional_directories: request.additional_directories,
            mcp_servers: servers.clone(),
            agent: self.args.agent.clone(),
            env: self.client.session_env(),
            login_env: self.client.lacks_env(),
            umask: Some(umask()),
            key: Some(key()?),
            effort: self.args.effort.unwrap_or_default(),
            ..Create::default()
        };
        let mut created = self.ask(&SessionCreate(create.clone()))?;
        // A server may be at fault: then the session opens without it.
        if !servers.is_empty() && created.as_ref().is_err_and(is_invalid) {
            created = self.ask(&SessionCreate(Create { mcp_servers: Vec::new(), key: Some(key()?), ..create }))?;
            if let Ok(created) = &created {
                match self.bring_servers(&created.session, servers)? {
                    Ok(brought) => {
                        servers = brought.usable;
                        notes.extend(brought.notes);
                    }
                    Err(error) => return Ok(Err(error)),
                }
            }
        }
        let session = match created {
            Ok(created) => created.session,
            Err(error) => return Ok(Err(error)),
        };
        let row = self.client.session_info(&session)?;
        let opened = Some(Opened { title: None, ..Opened::of(&row, notes) });
        self.sessions.insert(session.clone(), Session { servers, opened, ..Session::default() });
        if let Err(error) = self.attach(&session, None)? {
            self.sessions.remove(&session);
            return Ok(Err(error));
        }
        let (modes, options) = self.choices(&row)?;
        Ok(value(&NewSessionResponse::new(session.to_string()).modes(modes).config_options(options)))
    }

    pub(super) fn load(
        &mut self,
        id: &Value,
        request: LoadSessionRequest,
        brought: EditorServers,
    ) -> Result<Option<Answer>, Failure> {
        let row = match self.row(&request.session_id.to_string())? {
            Ok(row) => row,
            Err(error) => return Ok(Some(Err(error))),
        };
        let session = row.session.clone();
        let EditorServers { usable: servers, notes } = match self.bring_to(&row, &request.cwd, brought)? {
            Ok(brought) => brought,
            Err(error) => return Ok(Some(Err(error))),
        };
        let (modes, options) = self.choices(&row)?;
        let response = json!(LoadSessionResponse::new().modes(modes).config_options(options));
        let before = self.sessions.remove(&session);
        let was_open = before.is_some();
        let Session { open, load, .. } = before.unwrap_or_default();
        if let Some((earlier, response)) = load {
            self.editor.answer(&earlier, Ok(response))?;
        }
        let (load, opened) = (Some((id.clone(), response)), Some(Opened::of(&row, notes)));
        self.sessions.insert(session.clone(), Session { open, load, servers, opened, ..Session::default() });
        if was_open {
            // The connection forgets it first, so that the replay starts from the beginning.
            self.forget_questions(&session)?;
            let _detached = self.client.call_raw(&SessionDetach(Named { session: session.clone() }))?;
        }
        match self.attach(&session, None)? {
            Ok(()) => Ok(None),
            Err(error) => {
                self.sessions.remove(&session);
                Ok(Some(Err(error)))
            }
        }
    }

    pub(super) fn resume(&mut self, request: ResumeSessionRequest, brought: EditorServers) -> Result<Answer, Failure> {
        let row = match self.row(&request.session_id.to_string())? {
            Ok(row) => row,
            Err(error) => return Ok(Err(error)),
        };
        let brought = match self.bring_to(&row, &request.cwd, brought)? {
            Ok(brought) => brought,
            Err(error) => return Ok(Err(error)),
        };
        let after = row.cursor.clone();
        self.open_at(&row, after, brought)
    }

    /// Forks a session where it is: the fork has all of its finished steps. It works in the directory of its origin.
    pub(super) fn fork(&mut self, request: ForkSessionRequest, brought: EditorServers) -> Result<Answer, Failure> {
        let origin = match self.row(&request.session_id.to_string())? {
            Ok(row) => row,
            Err(error) => return Ok(Err(error)),
        };
        let fork = Fork { session: origin.session, key: Some(key()?), ..Fork::default() };
        let made = match self.ask(&SessionFork(fork))? {
            Ok(made) => made,
            Err(error) => return Ok(Err(error)),
        };
        let row = self.client.session_info(&made.session)?;
        let brought = match self.bring_to(&row, &request.cwd, brought)? {
            Ok(brought) => brought,
            Err(error) => return Ok(Err(error)),
        };
        let after = row.cursor.clone();
        let answer = self.open_at(&row, after, brought)?;
        let (modes, options) = match answer {
            Ok(_) => self.choices(&row)?,
            Err(error) => return Ok(Err(error)),
        };
        Ok(value(&ForkSessionResponse::new(row.session.to_string()).modes(modes).config_options(options)))
    }

    /// Opens a session whose history the editor does not ask for, with the questions that wait in it.
    fn open_at(&mut self, row: &Info, after: Cursor, brought: EditorServers) -> Result<Answer, Failure> {
        let (session, EditorServers { usable: servers, notes }) = (row.session.clone(), brought);
        let opened = Some(Opened::of(row, notes));
        if let Some(known) = self.sessions.get_mut(&session) {
            known.opened = opened;
            if !servers.is_empty() {
                known.servers = servers;
            }
            self.introduce(&session)?;
        } else {
            let new = Session { cursor: Some(after.clone()), servers, opened, ..Session::default() };
            self.sessions.insert(session.clone(), new);
            if let Err(error) = self.attach(&session, Some(after))? {
                self.sessions.remove(&session);
                return Ok(Err(error));
            }
            let list = pending::List { session: Some(session.clone()), after: None };
            for question in self.client.call(&QuestionList(list))? {
                self.put(&session, &question, &[], &[])?;
            }
        }
        let (modes, options) = self.choices(row)?;
        Ok(value(&ResumeSessionResponse::new().modes(modes).config_options(options)))
    }

    /// Tells the editor what it should know about a session that it has just got: commands, title, notes.
    pub(super) fn introduce(&mut self, session: &SessionId) -> Result<(), Failure> {
        let Some(opened) = self.sessions.get_mut(session).and_then(|known| known.opened.take()) else { return Ok(()) };
        self.commands(session, &opened.cwd)?;
        if let Some(title) = opened.title {
            let update = SessionUpdate::SessionInfoUpdate(SessionInfoUpdate::new().title(title));
            self.update(session, update)?;
        }
        opened.notes.iter().try_for_each(|note| self.update(session, update::note(note)))
    }

    /// Gives an existing session the editor's servers. The notes also say where the session works, if that is elsewhere.
    fn bring_to(
        &mut self,
        row: &Info,
        cwd: &Path,
        mut brought: EditorServers,
    ) -> Result<Result<EditorServers, Error>, Failure> {
        if !is_same_place(&row.cwd, cwd) {
            let (own, asked) = (row.cwd.display(), cwd.display());
            brought.notes.push(format!("this session works in {own}, not in {asked}"));
        }
        let EditorServers { usable, mut notes } = brought;
        Ok(self.bring_servers(&row.session, usable)?.map(|brought| {
            notes.extend(brought.notes);
            EditorServers { usable: brought.usable, notes }
        }))
    }

    /// Gives a session the editor's MCP servers, without those that the daemon refuses. An editor without any leaves those that
    /// the session has.
    pub(super) fn bring_servers(
        &mut self,
        session: &SessionId,
        servers: Vec<SessionServer>,
    ) -> Result<Result<EditorServers, Error>, Failure> {
        if servers.is_empty() {
            return Ok(Ok(EditorServers::default()));
        }
        match self.set_servers(session, servers.clone())? {
            Ok(()) => return Ok(Ok(EditorServers { usable: servers, notes: Vec::new() })),
            Err(error) if !is_invalid(&error) => return Ok(Err(error)),
            Err(_) => {}
        }
        let mut brought = EditorServers::default();
        for server in servers {
            let name = server.server.clone();
            let with: Vec<SessionServer> = brought.usable.iter().cloned().chain([server]).collect();
            match self.set_servers(session, with.clone())? {
                Ok(()) => brought.usable = with,
                Err(error) => brought.notes.push(left_out(&name, &error.message)),
            }
        }
        Ok(Ok(brought))
    }

    fn set_servers(&mut self, session: &SessionId, servers: Vec<SessionServer>) -> Result<Result<(), Error>, Failure> {
        let (session, key) = (session.clone(), Some(key()?));
        let set = Set { session, mcp_servers: Some(servers), key, ..Set::default() };
        Ok(self.ask(&SessionSet(set))?.map(|_| ()))
    }

    pub(super) fn attach(&mut self, session: &SessionId, after: Option<Cursor>) -> Result<Result<(), Error>, Failure> {
        let env = self.client.secret_env();
        let attach = Attach { session: session.clone(), after, deltas: None, person: true, env };
        Ok(self.ask(&SessionAttach(attach))?.map(|_| ()))
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
        let models = self.client.call(&ModelList(Models { known: true, ..Models::default() }))?;
        let modes = self.client.call(&ModeList(Empty {}))?;
        self.choices = Choices { modes, models };
        Ok((options::modes(row.mode, &self.choices.modes), self.options(row)?))
    }

    /// The options of a session, with the efforts that its model takes.
    pub(super) fn options(&mut self, row: &Info) -> Result<Vec<SessionConfigOption>, Failure> {
        let model = Some(row.model.clone());
        let rows = self.client.call(&ModelList(Models { model, ..Models::default() }))?;
        let efforts: Vec<Effort> = rows.into_iter().flat_map(|row| row.efforts).collect();
        Ok(options::options(row, &self.choices, &efforts))
    }
}

fn is_invalid(error: &Error) -> bool {
    error.code == ErrorCode::InvalidParams
}

/// Whether two directories are the same, whatever links lead to them.
fn is_same_place(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    one == other || real(one) == real(other)
}
