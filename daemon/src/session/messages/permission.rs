//! A call that needs a decision: what it would do, as far as that can be told before it runs, and the decision.

use std::sync::Arc;

use linger_protocol::event::{FileChange, Location};
use linger_protocol::id::CallId;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::question::permission::{CallInfo, ResolvedAccess};
use crate::store::blob::Held;
use crate::tool::change::KeptChange;
use crate::tool::{Call, Effects, Targets, Workspace};

/// A call that needs a decision.
pub struct PermissionRequest {
    /// The call's id, unique in its session.
    pub call_id: CallId,
    /// The tool's name.
    pub tool: String,
    /// The call's effects.
    pub effects: Effects,
    /// Its resolved target.
    pub resolved: ResolvedAccess,
    /// A description for users.
    pub action: String,
    /// Its arguments.
    pub input: Arc<Value>,
    /// The digest of tool, arguments and directory.
    pub digest: String,
    /// The files that it is about and would change.
    pub preview: Preview,
    /// Where it runs, if the session's directory is gone.
    pub moved: Option<Arc<Workspace>>,
    /// The reply channel; a call that needs a user waits here.
    pub reply: oneshot::Sender<PermissionAnswer>,
}

impl PermissionRequest {
    /// The parts that rules check.
    pub(in crate::session) fn info(&self) -> CallInfo<'_> {
        CallInfo { tool: &self.tool, changes: self.effects.changes, access: self.effects.access.clone() }
    }
}

/// The decision on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PermissionAnswer {
    /// A user allowed the call with this digest.
    Yes(String),
    /// The current mode and rules allow the call with this digest.
    ForNow(String),
    /// It may not run; the reason, for the model.
    No(String),
    /// It would change nothing, so no user is asked; its result.
    Futile(String),
}

/// Sets the lines of the locations whose files change.
pub fn place(locations: &mut [Location], changes: &[KeptChange], targets: &Targets) {
    for location in locations {
        let target = targets.of(&location.path).unwrap_or(&location.path);
        let change = changes.iter().find(|kept| kept.change.path == target);
        if let Some(kept) = change {
            location.line = kept.line;
        }
    }
}

/// The files that a call is about and would change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preview {
    /// The files and directories, with the line where there is one.
    pub locations: Vec<Location>,
    /// The changes that it would make to the files as they are now.
    pub changes: Vec<FileChange>,
    /// The blobs that `changes` names.
    pub blobs: Vec<Held>,
    /// Why it would change nothing, as the files are now.
    pub refusal: Option<String>,
}

impl Preview {
    /// A preview from the arguments alone.
    pub fn of(call: &dyn Call) -> Self {
        Self { locations: call.locations(), ..Self::default() }
    }

    /// Adds what one file would become.
    pub fn add(&mut self, kept: KeptChange, targets: &Targets) {
        place(&mut self.locations, std::slice::from_ref(&kept), targets);
        self.changes.push(kept.change);
        self.blobs.extend(kept.blobs);
    }
}
