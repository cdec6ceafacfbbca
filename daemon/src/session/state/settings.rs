//! The settings of a session, by users, answers and the daemon, with the rules for its calls.

use std::path::PathBuf;

use linger_protocol::event::{SessionChanged, SessionCreated};
use linger_protocol::mcp::SessionServer;
use linger_protocol::patience::Patience;
use linger_protocol::permission::Mode;
use linger_protocol::session::Effort;
use linger_protocol::tree::Forked;
use linger_protocol::unattended::Unattended;
use serde::{Deserialize, Serialize};

use super::is_default;
use crate::config::Settled;
use crate::provider::tools::only;

/// The settings of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// A unique name; absent until a user gives one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `provider/model`.
    pub model: String,
    /// Patience and fallbacks while its provider cannot answer.
    #[serde(skip_serializing_if = "is_default")]
    pub outage: OutagePolicy,
    /// The permission mode.
    pub mode: Mode,
    /// The policy for questions that no person answers.
    #[serde(skip_serializing_if = "Unattended::holds")]
    pub unattended: Unattended,
    /// The only tools that it has; absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The effort for the model.
    #[serde(skip_serializing_if = "Effort::is_auto")]
    pub thinking: Effort,
    /// The directories that a user added, without links.
    #[serde(skip_serializing_if = "Vec::is_empty", with = "linger_protocol::path::PathText::<Vec<PathBuf>>")]
    pub directories: Vec<PathBuf>,
    /// The MCP servers that a client brought for it, without values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<SessionServer>,
    /// Rules that answers added for this session.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// Rules that refuse, which answers added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
    /// When it was put into the bin, in Unix milliseconds; absent while it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binned_at: Option<u64>,
    /// Whether `retention` put it there.
    #[serde(skip_serializing_if = "super::is_default")]
    pub by_retention: bool,
}

/// The policy while a session's provider cannot answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutagePolicy {
    /// How long a turn waits; absent for the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<Patience>,
    /// The models that stand in; absent for the configuration's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Vec<String>>,
    /// The session's own model, while another one stands in for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_model: Option<String>,
}

impl Settings {
    /// Mode and rules, for the permission policy.
    pub fn settled(&self) -> Settled<'_> {
        Settled { mode: self.mode, grants: &self.grants, denied: &self.denied }
    }

    pub(super) fn create(&mut self, made: &SessionCreated) {
        self.name.clone_from(&made.name);
        self.model.clone_from(&made.model);
        self.mode = made.mode;
        self.tools.clone_from(&made.tools);
        self.thinking = made.effort;
        self.grants.clone_from(&made.allow);
    }

    /// The settings of a fork, which its first event has.
    pub(super) fn of_fork(begun: &Forked) -> Self {
        Self {
            name: begun.name.clone(),
            model: begun.model.clone(),
            outage: OutagePolicy { patience: begun.patience, fallback: begun.fallback.clone(), own_model: None },
            mode: begun.mode,
            unattended: begun.unattended,
            tools: begun.tools.clone(),
            thinking: begun.effort,
            directories: begun.additional_directories.clone(),
            mcp_servers: begun.mcp_servers.clone(),
            ..Self::default()
        }
    }

    pub(super) fn change(&mut self, changed: &SessionChanged, at: u64) {
        // All fields are named, so that a new one is not forgotten.
        let SessionChanged {
            model,
            mode,
            name,
            effort,
            stands_in_for,
            patience,
            fallback,
            unattended,
            additional_directories,
            tools,
            mcp_servers,
            binned,
            by_retention,
            cwd,
            // Those of other families.
            instructions: _,
            skills: _,
            memory: _,
            setup: _,
            agent: _,
            budget: _,
            moved: _,
            title: _,
            title_cost: _,
        } = changed;
        if let Some(model) = model {
            self.model.clone_from(model);
            self.outage.own_model.clone_from(stands_in_for);
        }
        self.mode = mode.unwrap_or(self.mode);
        self.thinking = effort.unwrap_or(self.thinking);
        self.unattended = unattended.unwrap_or(self.unattended);
        self.outage.patience = patience.or(self.outage.patience);
        set(&mut self.outage.fallback, fallback);
        set(&mut self.name, name);
        if let Some(directories) = additional_directories {
            self.directories.clone_from(directories);
        }
        if let Some(servers) = mcp_servers {
            self.mcp_servers.clone_from(servers);
        }
        if let Some(named) = tools {
            self.tools = only(named);
        }
        if let Some(binned) = binned {
            (self.binned_at, self.by_retention) = (binned.then_some(at), *by_retention);
        }
        if cwd.is_some() {
            // They were given for calls in the other directory.
            self.grants.clear();
        }
    }

    /// Adds rules of an answer, those that permit and those that refuse; rules that it has stay.
    pub(super) fn add_rules(&mut self, grants: Vec<String>, denied: Vec<String>) {
        for (list, rules) in [(&mut self.grants, grants), (&mut self.denied, denied)] {
            for rule in rules {
                if !list.contains(&rule) {
                    list.push(rule);
                }
            }
        }
    }

    /// An event is lost, which may have taken any of these back.
    pub(super) fn lose(&mut self) {
        self.directories.clear();
        self.mcp_servers.clear();
        self.ask_at_least();
    }

    /// Permits nothing that only events permit, which another program may have written.
    pub(super) fn forget_permitted(&mut self) {
        self.lose();
        self.grants.clear();
    }

    fn ask_at_least(&mut self) {
        if matches!(self.mode, Mode::Edit | Mode::Auto) {
            self.mode = Mode::Ask;
        }
    }
}

/// Takes a new value, if there is one.
fn set<T: Clone>(value: &mut Option<T>, new: &Option<T>) {
    if new.is_some() {
        value.clone_from(new);
    }
}
