//! The consequences of an event outside the state, as a list that the fold returns. The actor carries them out.

use std::path::PathBuf;

use linger_protocol::event::{
    Event, EventBody, PermissionRequested, PermissionResolved, QuestionResolved, SessionChanged,
};
use linger_protocol::id::QuestionId;

use super::State;

/// A consequence of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// A question is open: its answer belongs to this session.
    Ask(QuestionId),
    /// A question is closed: whoever waits for its answer gets it.
    Resolve(QuestionId),
    /// These are now the directories that the user added.
    SetDirectories(Vec<PathBuf>),
    /// The session's own MCP servers are others.
    ConfigureServers,
    /// The former contents of files up to this seq are no longer kept.
    GiveUpContents(u64),
    /// There are children to follow, unless something follows them already.
    FollowChildren,
    /// A call was cut off after its first checkpoint and lacks the second one, unless a turn takes it.
    CloseCheckpoint,
}

impl State {
    /// The reactions to the event that was folded last; `given_up` is what the state had given up before it.
    pub(super) fn reactions(&self, event: &Event, given_up: u64) -> Vec<Reaction> {
        let mut reactions = Vec::new();
        match &event.body {
            EventBody::PermissionRequested(PermissionRequested { permission: question, .. })
            | EventBody::QuestionAsked { question, .. } => reactions.push(Reaction::Ask(question.clone())),
            EventBody::PermissionResolved(PermissionResolved { permission: question, .. })
            | EventBody::QuestionResolved(QuestionResolved { question, .. }) => {
                reactions.push(Reaction::Resolve(question.clone()));
            }
            EventBody::SessionChanged(SessionChanged { additional_directories, mcp_servers, binned, .. }) => {
                reactions.extend(additional_directories.clone().map(Reaction::SetDirectories));
                // A session in the bin has none, and one that is taken out of it has its own again.
                if mcp_servers.is_some() || *binned == Some(false) {
                    reactions.push(Reaction::ConfigureServers);
                }
            }
            EventBody::Forked(_) => reactions.push(Reaction::ConfigureServers),
            _ => {}
        }
        if self.undo.given_up > given_up {
            reactions.push(Reaction::GiveUpContents(self.undo.given_up));
        }
        if !self.children.under_way.is_empty() {
            reactions.push(Reaction::FollowChildren);
        }
        if self.undo.open.is_some() {
            reactions.push(Reaction::CloseCheckpoint);
        }
        reactions
    }
}
