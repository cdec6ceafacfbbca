//! Messages about children: one that is to be made, its settings, and the report of its end.

use std::sync::Arc;

use linger_protocol::child::{ChildUpdate, Delegated};
use linger_protocol::id::SessionId;
use linger_protocol::permission::Mode;
use linger_protocol::session::Create;

use crate::tool::Workspace;

/// A child that is to be made.
#[derive(Clone, Debug)]
pub struct Child {
    /// The session whose call delegates to it.
    pub parent: SessionId,
    /// Its call, agent and depth, for the first event of its log.
    pub delegated: Delegated,
    /// Its directory, its agent, and what it has of its parent.
    pub create: Create,
    /// The model of its parent, unless its agent has its own.
    pub model: String,
    /// The loosest mode that it may have: that of its parent.
    pub most: Mode,
    /// Where its parent works.
    pub workspace: Arc<Workspace>,
    /// Whether it gets a git worktree of its own; absent for what its agent says.
    pub worktree: Option<bool>,
}

impl Child {
    /// Whether it gets a git worktree of its own, if `of_agent` is what its agent says. In mode `plan` nothing changes.
    pub fn wants_worktree(&self, of_agent: bool) -> bool {
        self.worktree.unwrap_or(of_agent) && self.most != Mode::Plan
    }
}

/// The settings that a child takes from its parent.
#[derive(Clone, Debug)]
pub struct ChildSettings {
    /// The parameters of the new session: effort, tools, directories and so on.
    pub create: Create,
    /// `provider/model` of the parent.
    pub model: String,
    /// Its mode, or a stricter one of its own parent.
    pub mode: Mode,
    /// How far the child is from a session that a user started.
    pub depth: u32,
    /// The child that the call has already.
    pub known: Option<ChildUpdate>,
}

/// A report on a child whose call has ended.
#[derive(Clone, Debug)]
pub struct ChildReport {
    /// How it gets on.
    pub update: ChildUpdate,
    /// The result as a message to the parent; absent while the task runs, and for a child that was called off.
    pub message: Option<String>,
}
