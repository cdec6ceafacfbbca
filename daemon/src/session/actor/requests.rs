//! Requests of clients: attach, cancel, continue, set, remove; each is checked, queued, and answered by its commit.

use linger_protocol::event::SessionChanged;
use std::path::PathBuf;

use linger_protocol::mcp::SessionServer;
use linger_protocol::permission::Mode;
use linger_protocol::session::PrefixFingerprint;
use linger_protocol::variable::MAX_VALUE;

use super::*;
use crate::diagnostics::secret::Secret;
use crate::provider::catalogue::Resolved;
use crate::provider::tools::{is_among, only};
use crate::sys::task;
use crate::tool::SessionTraits;
use crate::tool::added::MAX_ADDED;
/// The MCP servers that a client brought; they are kept while this lives.
#[derive(Default)]
pub(super) struct ClientServers(Option<Loaded>);

impl Actor {
    pub(super) async fn attach(
        &mut self,
        after: Option<Cursor>,
        person: bool,
        env: &BTreeMap<String, String>,
    ) -> Result<AttachPoint, RpcError> {
        let head = self.log.tail().head;
        let changed = self.log.subscribe();
        let at = match &after {
            None => Position::default(),
            Some(cursor) => {
                let unknown = || {
                    RpcError::new(Code::UnknownCursor, format!("unknown cursor '{cursor}' for session {}", self.id))
                        .hint("attach without a cursor to read from the beginning")
                };
                let position = Position::parse(cursor).ok_or_else(unknown)?;
                if !subscription::known(&self.log, &self.env.store, &position).await? {
                    return Err(unknown());
                }
                position
            }
        };
        fault::point("actor.attach");
        let open = self.state.open_questions().map(|asked| asked.id.clone()).collect();
        self.take_variables(env);
        let missing = self.environment().missing;
        let person = person.then(|| self.person_attached());
        Ok(AttachPoint { log: self.log.clone(), changed, at, head, open, missing, person })
    }

    /// Takes a client's values of the session's secret variables, and the address of its desktop.
    pub(super) fn take_variables(&mut self, env: &BTreeMap<String, String>) {
        if env.is_empty() {
            return;
        }
        self.attendance.set_desktop(env);
        let Ok(config) = self.env.config.current() else { return };
        let (secret, _) = self.workspace.secrets.names(&self.workspace.env);
        for (name, value) in env.iter().filter(|(name, value)| secret.contains(name) && value.len() <= MAX_VALUE) {
            if config.env.pass.contains(name) && config.env.withheld(name, value).is_none() {
                self.workspace.secrets.put(name, Secret::new(value));
            }
        }
    }

    /// The tools, mode and rules that decide about the session's calls.
    pub(super) fn call_basis(&self) -> CallBasis {
        CallBasis {
            tools: self.env.toolbox.tools_of(
                &self.state.settings.model,
                self.workspace.rules_root(),
                &self.id,
                self.state.settings.tools.as_deref(),
                self.offered(),
            ),
            mode: self.state.settings.mode,
            grants: self.state.settings.grants.clone(),
            denied: self.state.settings.denied.clone(),
            workspace: self.workspace.clone(),
            role: self.state.identity.role.clone(),
            model: self.state.settings.model.clone(),
            is_busy: self.state.turn.is_some() || !self.state.queue.prompts.is_empty(),
            limits: self.state.turn.as_ref().map(|turn| turn.demands.limits.clone()).unwrap_or_default(),
        }
    }

    /// The names of the variables of its tools.
    pub(super) fn environment(&self) -> Environment {
        let (secret, missing) = self.workspace.secrets.names(&self.workspace.env);
        let is_own = |name: &String| name.starts_with("LINGER_");
        let names = self.workspace.env.keys().filter(|name| !secret.contains(name) && !is_own(name));
        let variables = names.cloned().collect();
        Environment { variables, secret, missing }
    }

    pub(super) async fn cancel(&mut self, background: bool, asked: KeyedReply) {
        // A repeated request refers to the turn that it ended, not to the next one.
        let Some(asked) = self.first_time(asked).await else { return };
        fault::point("actor.cancel");
        let ended_some =
            self.cancel_prepared() | (background && (self.background.kill_all(ENDED_BY_USER) | self.call_off()));
        let is_behind_git = self.has_prompt_behind_git();
        match &mut self.phase {
            Phase::Stopping(_, Then::Cancel(all)) => all.push(asked),
            Phase::Stopping(_, then @ Then::Interrupt) => *then = Then::Cancel(vec![asked]),
            Phase::Running(_) if fault::bug("I13") => respond(asked.reply, Ok(())),
            Phase::Running(_) => self.stop(Then::Cancel(vec![asked])),
            Phase::Idle if self.state.turn.is_some() => self.close_turn(vec![asked]),
            Phase::Git(_) if is_behind_git => self.cancel_behind_git(asked),
            Phase::Idle | Phase::Git(_) if ended_some => self.cancelled_without_turn(asked),
            _ => {
                let idle = RpcError::new(Code::Idle, format!("session {} has no running turn", self.id));
                // The end of the last turn may not be committed yet, and a crash would undo it.
                let written = self.flush();
                task::spawn(async move {
                    let written = settled(written).await;
                    respond(asked.reply, Err(written.map_or_else(RpcError::from, |()| idle)));
                });
            }
        }
    }

    /// Answers a cancel that has ended something other than a turn.
    pub(super) fn cancelled_without_turn(&mut self, asked: KeyedReply) {
        let outcome = self.remember(asked.key, &());
        let committed = self.append_synced(Vec::new(), outcome);
        respond_when(asked.reply, committed, ());
    }

    /// Resumes an offered turn, starts held prompts, or sends all drafts; a turn that waits for its provider tries at once.
    pub(super) async fn resume(&mut self, by: &Author, asked: KeyedReply) {
        let Some(KeyedReply { key, reply }) = self.first_time(asked).await else { return };
        if let (Phase::Running(running), true) = (&self.phase, self.state.waits_for_provider()) {
            running.nudge();
            if self.state.queue.drafts.is_empty() {
                return respond(reply, Ok(()));
            }
        }
        let is_unfinished = matches!(self.phase, Phase::Idle) && self.state.turn.is_some();
        if !is_unfinished && !self.state.queue.drafts.is_empty() {
            let drafts = self.state.queue.drafts.iter().map(|draft| draft.prompt.clone()).collect();
            return self.send_drafts(drafts, key, by, reply);
        }
        if !matches!(self.phase, Phase::Idle) || (self.state.turn.is_none() && self.state.queue.prompts.is_empty()) {
            let idle = RpcError::new(Code::Idle, format!("session {} has nothing to continue", self.id));
            return respond(reply, Err(idle));
        }
        if let Err(error) = self.env.providers.usable(&self.state.settings.model) {
            return respond(reply, Err(error));
        }
        let outcome: Vec<Fold> = self.remember(key, &()).into_iter().collect();
        let committed =
            if self.state.turn.is_some() { self.resume_interrupted(outcome) } else { self.start_first(outcome, true) };
        respond_when(reply, committed, ());
    }

    /// Resumes a turn that waited for a configuration; held prompts wait for the user.
    pub(super) fn configured(&mut self) {
        let waits = self.state.turn.as_ref().is_some_and(|turn| turn.wait.unconfigured);
        if waits && matches!(self.phase, Phase::Idle) && self.env.providers.usable(&self.state.settings.model).is_ok() {
            drop(self.resume_interrupted(Vec::new()));
        }
    }

    pub(super) fn resume_interrupted(&mut self, folds: Vec<Fold>) -> Committed {
        let notice = notice(Level::Info, NoticeCode::Continued, "the turn resumes");
        let drafts = recovery::supersede(&self.state).into_iter().chain([self.in_turn(notice)]).collect();
        let committed = self.append_synced(drafts, folds);
        self.spawn_turn();
        committed
    }

    pub(super) async fn set(&mut self, set: session::Set, may_add_tools: Result<(), RpcError>, asked: KeyedReply) {
        // Also if it was done before: the daemon that did it may have ended with the values.
        self.env.toolbox.servers.bring(self.id.as_str(), set.mcp_servers.as_deref().unwrap_or_default());
        let Some(KeyedReply { key, reply }) = self.first_time(asked).await else { return };
        let meant = |spec: &str| self.env.providers.model_in_session(&self.state.settings.model, spec);
        let model = match set.model.as_deref().map(meant).transpose() {
            Ok(meant) => meant,
            Err(error) => return respond(reply, Err(error)),
        };
        let fallback = match set.fallback.as_deref().map(|models| self.env.providers.fallbacks(models)).transpose() {
            Ok(fallback) => fallback,
            Err(error) => return respond(reply, Err(error)),
        };
        let named = match &set.name {
            Some(name) => match self.env.names.take(&self.env.store, name, Some(&self.id)).await {
                Ok(named) => Some(named),
                Err(error) => return respond(reply, Err(error)),
            },
            None => None,
        };
        let directories = match self.directories(&set) {
            Ok(directories) => directories,
            Err(error) => return respond(reply, Err(error)),
        };
        if let Err(error) = self.may_have_tools(set.tools.as_deref(), may_add_tools) {
            return respond(reply, Err(error));
        }
        let moved = match &set.cwd {
            Some(cwd) => match self.move_to(cwd).await {
                Ok(moved) => moved,
                Err(error) => return respond(reply, Err(error)),
            },
            None => None,
        };
        let tools = set.tools.clone().filter(|named| only(named) != self.state.settings.tools);
        let now = tools.as_deref().map_or_else(|| self.state.settings.tools.clone(), only);
        let mcp_servers =
            set.mcp_servers.as_deref().map(|servers| servers.iter().map(SessionServer::without_values).collect());
        let mcp_servers = mcp_servers.filter(|servers| *servers != self.state.settings.mcp_servers);
        let (waits_otherwise, is_moved) = (fallback.is_some(), set.cwd.is_some());
        let outcome = self.remember(key, &());
        let idle = self.idle_effort(&set, model.as_ref()).map(|text| Draft::new(idle_effort(text)));
        let (model, mut setup) = model.map(|model| (model.origin.clone(), self.setup(&model, now.as_deref()))).unzip();
        if set.cwd.is_some() && setup.is_none() {
            // Another workspace may have other tools.
            let same = self.env.providers.model(Some(&self.state.settings.model)).ok();
            setup = same.map(|model| self.setup(&model, now.as_deref()));
        }
        let warning = model.as_deref().and_then(|model| self.env.providers.warning(model));
        let warning = warning.map(|warning| Draft::new(unknown_model(&warning)));
        let changed = EventBody::SessionChanged(SessionChanged {
            model,
            mode: set.mode,
            effort: set.effort,
            name: set.name,
            instructions: None,
            skills: None,
            memory: None,
            agent: None,
            setup,
            stands_in_for: None,
            patience: set.patience,
            fallback,
            unattended: set.unattended,
            budget: (!set.budget.is_empty()).then(|| self.state.progress.budget.size.changed(set.budget)),
            additional_directories: directories,
            tools,
            mcp_servers,
            binned: None,
            by_retention: false,
            cwd: set.cwd,
            moved,
            title: None,
            title_cost: None,
        });
        if set.mode.is_some_and(|mode| mode != Mode::Plan) {
            self.withdraw_plan("the mode is another one");
        }
        let drafts = std::iter::once(Draft::new(changed)).chain(warning).chain(idle).collect();
        let committed = self.append_synced(drafts, outcome);
        respond_holding(reply, committed, (), named);
        // The turn may wait for the key of the old model.
        self.env.providers.changed.send_replace(());
        if let (Phase::Running(running), true) = (&self.phase, set.patience.is_some() || waits_otherwise) {
            running.nudge();
        }
        self.review_budget();
        self.review();
        if is_moved {
            self.configure_servers();
            self.ask_for_trust().await;
        }
    }

    /// The traits on which optional tools depend: skills, notes, and whether it may delegate.
    pub(super) fn offered(&self) -> SessionTraits<'static> {
        self.env.toolbox.offered(self.state.has_skills(), self.state.task.depth())
    }

    /// The prefix fingerprint of requests to this model with `only` these tools.
    pub(super) fn setup(&self, resolved: &Resolved, only: Option<&[String]>) -> PrefixFingerprint {
        self.env.toolbox.setup(resolved, self.workspace.rules_root(), &self.id, only, self.offered())
    }

    /// Configures the MCP servers that a client brought.
    pub(super) fn configure_servers(&mut self) {
        let (root, given) = (self.workspace.rules_root(), &self.state.settings.mcp_servers);
        self.servers.0 = self.env.toolbox.servers.configure_session(self.id.as_str(), root, given);
    }

    /// Fails if the session cannot have only these tools.
    fn may_have_tools(&self, named: Option<&[String]>, may_add: Result<(), RpcError>) -> Result<(), RpcError> {
        let Some(named) = named else { return Ok(()) };
        let wrong = |text: String| Err(RpcError::new(Code::UnknownOption, text).hint("`linger tools` lists them"));
        if named.is_empty() {
            // Not every provider takes a conversation with calls and no tools.
            return wrong("a session keeps one tool at least".to_owned());
        }
        if let Some(unknown) = self.env.toolbox.tools.unknown(named) {
            return wrong(unknown);
        }
        let has = self.state.settings.tools.as_deref();
        if named.iter().all(|tool| is_among(has, tool)) { Ok(()) } else { may_add }
    }

    /// The added directories, if a request changes them; its paths are absolute and without links.
    fn directories(&self, set: &session::Set) -> Result<Option<Vec<PathBuf>>, RpcError> {
        let mut all = self.state.settings.directories.clone();
        if let Some(unknown) = set.remove_directories.iter().find(|dir| !all.contains(dir)) {
            let text = format!("{} is not an added directory of session {}", unknown.display(), self.id);
            return Err(RpcError::new(Code::UnknownOption, text)
                .hint("`/add-dir` and `additional_directories` of `linger ls --json` list them"));
        }
        all.retain(|dir| !set.remove_directories.contains(dir));
        add_directories(&mut all, &set.add_directories)?;
        Ok(Some(all).filter(|all| *all != self.state.settings.directories))
    }

    /// A warning about the effort, if it or the model changes.
    fn idle_effort(&self, set: &session::Set, model: Option<&Resolved>) -> Option<String> {
        match (model, set.effort) {
            (Some(model), effort) => model.idle_effort(effort.unwrap_or(self.state.settings.thinking)),
            (None, Some(effort)) => {
                self.env.providers.model(Some(&self.state.settings.model)).ok()?.idle_effort(effort)
            }
            (None, None) => None,
        }
    }

    /// Deletes the session unless it has been used since `before`.
    pub(super) async fn prune(&mut self, before: u64, force: bool, reply: Reply<()>) {
        if self.state.progress.updated_at >= before || (self.state.has_due_prompt() && !force) {
            return respond(reply, Err(RpcError::new(Code::Busy, format!("session {} is in use", self.id))));
        }
        self.remove(force, KeyedReply { key: None, reply }).await;
    }

    pub(super) async fn remove(&mut self, force: bool, asked: KeyedReply) {
        let Some(asked) = self.first_time(asked).await else { return };
        if !force && matches!(self.phase, Phase::Failed(..)) {
            // The state here differs from the stored one, which may have a turn.
            let error = RpcError::new(Code::Storage, format!("cannot write session {} at the moment", self.id));
            let hint = "free disk space, or remove it by force: it may have an unfinished turn";
            return respond(asked.reply, Err(error.hint(hint)));
        }
        if let Some(busy) = self.git_is_busy().filter(|_| !force) {
            return respond(asked.reply, Err(busy));
        }
        if self.state.turn.is_some() && !force {
            let busy = RpcError::new(Code::Busy, format!("session {} has a running turn", self.id))
                .hint("cancel it first, or remove it by force");
            return respond(asked.reply, Err(busy));
        }
        self.stop(Then::Remove(vec![asked]));
    }

    /// Passes on a new request; replies to a repeated one.
    pub(super) async fn first_time(&mut self, asked: KeyedReply) -> Option<KeyedReply> {
        let KeyedReply { key, reply } = asked;
        let reply = self.if_new(key.as_ref(), reply).await?;
        Some(KeyedReply { key, reply })
    }
}

/// Adds directories that are not there yet.
pub fn add_directories(all: &mut Vec<PathBuf>, more: &[PathBuf]) -> Result<(), RpcError> {
    for dir in more {
        if !all.contains(dir) {
            all.push(dir.clone());
        }
    }
    if all.len() > MAX_ADDED {
        return Err(RpcError::new(Code::TooMuch, format!("a session may have {MAX_ADDED} added directories")));
    }
    Ok(())
}
