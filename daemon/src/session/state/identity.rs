//! The fixed properties of a session: its directory, its origin and its agent.

use std::path::PathBuf;

use linger_protocol::agent::Role;
use linger_protocol::event::{Moved, SessionChanged, SessionCreated};
use linger_protocol::id::SessionId;
use linger_protocol::tree::{Forked, Origin};
use serde::{Deserialize, Serialize};

use super::is_default;

/// The properties that a session has from its creation on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// The working directory.
    #[serde(with = "linger_protocol::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// The session that started it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// The session that it goes on from, if it is a fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Whether it was made for one prompt.
    #[serde(skip_serializing_if = "is_default")]
    pub one_shot: bool,
    /// The creation time, in Unix milliseconds.
    pub created_at: u64,
    /// In a fork, when its conversation was started, in Unix milliseconds: the system prompt has the day of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<u64>,
    /// The agent that it is; the file of it may change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Its creator's addition to the system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_system: Option<String>,
    /// The directories that have another name since, each with the seq of the event that says so; at most [`MAX_MOVES`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<(u64, Moved)>,
}

/// The most moves that are remembered: a project is renamed now and then.
const MAX_MOVES: usize = 16;

impl Identity {
    pub(super) fn create(&mut self, made: &SessionCreated, at: u64) {
        self.cwd.clone_from(&made.cwd);
        self.parent.clone_from(&made.parent);
        self.one_shot = made.one_shot;
        self.created_at = at;
        self.role.clone_from(&made.agent);
        self.added_system.clone_from(&made.system);
    }

    /// The identity of a fork that began at `at`.
    pub(super) fn of_fork(begun: &Forked, at: u64) -> Self {
        Self {
            cwd: begun.cwd.clone(),
            origin: Some(begun.origin.clone()),
            created_at: at,
            started_at: begun.started_at,
            role: begun.agent.clone(),
            added_system: begun.system.clone(),
            ..Self::default()
        }
    }

    /// The path that the event `seq` says, as it is now.
    pub fn path_now(&self, seq: u64, path: PathBuf) -> PathBuf {
        let later = self.moves.iter().filter(|(moved_at, _)| *moved_at > seq);
        later.fold(path, |path, (_, moved)| moved.path(path))
    }

    pub(super) fn change(&mut self, changed: &SessionChanged, seq: u64) {
        if let Some(cwd) = &changed.cwd {
            self.cwd.clone_from(cwd);
        }
        if let Some(moved) = &changed.moved {
            self.moves.push((seq, moved.clone()));
            let over = self.moves.len().saturating_sub(MAX_MOVES);
            self.moves.drain(..over);
        }
        if let Some(agent) = &changed.agent {
            self.role = Some(agent.clone());
        }
    }
}
