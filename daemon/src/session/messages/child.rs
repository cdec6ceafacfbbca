//! What a parent and its children are told of each other.

use std::sync::Arc;

use linger_protocol::child::{ChildUpdate, Delegated};
use linger_protocol::id::SessionId;
use linger_protocol::permission::Mode;
use linger_protocol::session::Create;

use crate::tool::Workspace;

/// A child that is to be made.
#[derive(Clone, Debug)]
pub struct Child {
    /// Its parent.
    pub parent: SessionId,
    /// What it is for.
    pub delegated: Delegated,
    /// Its directory, its agent, and what it has of its parent.
    pub create: Create,
    /// The model of its parent, unless its agent has its own.
    pub model: String,
    /// What may run in its parent without asking, at most.
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

/// What a parent gives to a child.
#[derive(Clone, Debug)]
pub struct Basis {
    /// What a new session of it would be: mode, effort, tools, directories and so on.
    pub create: Create,
    /// Its model.
    pub model: String,
    /// Its mode, or a stricter one of its own parent.
    pub mode: Mode,
    /// How far the child is from a session that a user started.
    pub depth: u32,
    /// The child that the call has already.
    pub known: Option<ChildUpdate>,
}

/// What is heard of a child whose call has ended.
#[derive(Clone, Debug)]
pub struct ChildReport {
    /// How it gets on.
    pub update: ChildUpdate,
    /// What it says to its parent, once its task has ended.
    pub said: Option<String>,
}
