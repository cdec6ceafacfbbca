//! The messages that an actor receives: commands of clients, and reports and questions of its turn.
//!
//! The commands are here; `turn` has the messages between a turn and its actor, which `emit` sends, `permission` the calls that
//! need a decision, `place` the requests that have to be prepared, `child` what parents and children are told of each other.

mod child;
mod emit;
mod permission;
mod place;
mod turn;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::agent::{Role, SkillLimit};
use linger_protocol::checkpoint::{Diff, Differences, UncertainChange};
use linger_protocol::event::{NoticeCode, Process};
use linger_protocol::id::{Cursor, PromptId, QuestionId, SessionId};
use linger_protocol::permission::Mode;
use linger_protocol::question::{self as question_wire, Question, Subject};
use linger_protocol::session::{self, Environment, Prompted};
use linger_protocol::tree::{RewindDone, Rewound, Uncompacted};
use linger_protocol::worktree::{Merged, Worktree, WorktreeStatus};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::{Confirmed, Settled};
use crate::log::Log;
use crate::log::cursor::Position;
use crate::session::state::Resolution;
use crate::store::StoreError;
use crate::store::idempotency::Key;
use crate::tool::Workspace;
use crate::tool::set::ToolSet;
pub use child::{Child, ChildReport, ChildSettings};
pub use emit::{Emitter, TurnEnded};
pub use permission::{PermissionAnswer, PermissionRequest, Preview, place};
pub use place::{Began, EnterRequest, PlaceId, PlaceKind, PlaceStep};
pub use turn::{CompactionRequest, Fragment, NextStep, TurnEnding, TurnMessage};

/// Sends commands to an actor. They are boxed, as a turn's messages are: a channel has room for 32 in advance, and most sessions are
/// idle or waiting.
pub type Mailbox = mpsc::UnboundedSender<Box<Command>>;

/// The actor's end of its [`Mailbox`].
pub type Commands = mpsc::UnboundedReceiver<Box<Command>>;

/// The first and the longest wait before retrying after a failed write.
pub const WRITE_RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// The reply channel of a command.
pub type Reply<T> = oneshot::Sender<Result<T, RpcError>>;

/// Resolves when a write is committed or refused; fails if the store has ended.
pub type Committed = oneshot::Receiver<Result<(), StoreError>>;

/// The reply channel of a request, with its idempotency key.
pub struct KeyedReply {
    /// The key, if the request has one.
    pub key: Option<Key>,
    /// The reply channel.
    pub reply: Reply<()>,
}

/// The author of a prompt or of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// The name that it gave.
    pub name: String,
    /// The process that sent it, if known; absent for the daemon's own decisions.
    pub process: Option<Process>,
}

#[cfg(test)]
impl Author {
    /// An author that is no process: a rule, or the daemon.
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), process: None }
    }
}

/// The tools, mode and rules that decide about the calls of a session.
pub struct CallBasis {
    /// The tools for its current model and traits.
    pub tools: Arc<ToolSet>,
    /// The permission mode.
    pub mode: Mode,
    /// The rules that answers added to it.
    pub grants: Vec<String>,
    /// The rules that refuse, which answers added to it.
    pub denied: Vec<String>,
    /// Where it works.
    pub workspace: Arc<Workspace>,
    /// The agent that it is.
    pub role: Option<Role>,
    /// `provider/model`.
    pub model: String,
    /// Whether a turn runs or prompts wait.
    pub is_busy: bool,
    /// The limits of the skills that the unfinished turn has read; empty without a turn.
    pub limits: Vec<SkillLimit>,
}

impl CallBasis {
    /// Mode and rules, for the permission policy.
    pub fn settled(&self) -> Settled<'_> {
        Settled { mode: self.mode, grants: &self.grants, denied: &self.denied }
    }
}

/// The command or skill that a prompt named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The line that the user typed.
    pub typed: String,
    /// The command lines that it runs.
    pub runs: Vec<String>,
    /// The skill's limit on the calls of the turn; absent for a command.
    pub limit: Option<SkillLimit>,
}

/// A request with a prompt.
pub struct PromptRequest {
    /// The prompt, ready for the log but for what the actor adds.
    pub prompt: session::Prompt,
    /// The command or skill that it named.
    pub named: Option<Named>,
    /// The idempotency key.
    pub key: Option<Key>,
    /// The client that sent it.
    pub by: Author,
    /// Whether the output schema is that of the prompt, or of the session's agent.
    pub has_schema: bool,
    /// The reply channel.
    pub reply: Reply<Prompted>,
}

impl PromptRequest {
    /// The request with the output schema of the session's agent.
    pub(in crate::session) fn with_schema(mut self: Box<Self>, schema: Option<Value>) -> Box<Self> {
        (self.prompt.schema, self.has_schema) = (schema, true);
        self
    }
}

#[cfg(test)]
impl PromptRequest {
    /// The command of a prompt without a key.
    pub(crate) fn command(prompt: session::Prompt, named: Option<Named>, by: &str, reply: Reply<Prompted>) -> Command {
        let (key, by, has_schema) = (None, Author::named(by), true);
        Command::Prompt(Box::new(Self { prompt, named, key, by, has_schema, reply }))
    }
}

/// The limit on what an answer decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerLimit {
    /// Anything.
    None,
    /// The grant of a token.
    Grant {
        /// Whether it may allow any call, or only those that change files in the workspace.
        commands: bool,
        /// The loosest mode that it may set.
        most: Mode,
    },
}

/// The open questions of the daemon's own that another one replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stale {
    /// All about the same subject.
    All,
    /// The question with this id.
    One(QuestionId),
    /// None.
    Nothing,
}

/// A request to go back, checked by the registry.
#[derive(Debug)]
pub struct GoBack {
    /// The event, without its author.
    pub rewound: Rewound,
    /// The last event at the time of the check.
    pub head: u64,
    /// The answer.
    pub done: RewindDone,
}

/// The work of a child to merge into the session's directory, checked by the registry.
#[derive(Debug)]
pub struct MergeWork {
    /// The child that did the work.
    pub child: SessionId,
    /// The name of its agent.
    pub agent: String,
    /// The child's git worktree; messages name its branch.
    pub worktree: Worktree,
    /// The latest commit of the worktree, which is merged.
    pub commit: String,
    /// The child's title, for the commit message.
    pub title: String,
}

/// A command to a session.
pub enum Command {
    /// Take a place in the mailbox, for a request that has to be prepared.
    Enter(EnterRequest),
    /// A message from the holder of a place.
    Placed(PlaceId, PlaceStep),
    /// Subscribe from a cursor; true for a terminal of a person. The map brings variables.
    Attach(Option<Cursor>, bool, BTreeMap<String, String>, Reply<AttachPoint>),
    /// Queue a prompt.
    Prompt(Box<PromptRequest>),
    /// Queue a compaction.
    Compact(session::Compact, Option<Key>, Author, Reply<Prompted>),
    /// Take back a queued prompt, or the last one.
    Unqueue(Option<PromptId>, Option<Key>, Author, Reply<session::Unqueued>),
    /// Put the session into the bin, unless a turn runs.
    Bin(KeyedReply),
    /// Take it out of the bin.
    Restore(Option<Key>, Reply<session::OutOfBin>),
    /// Go back to before a prompt.
    GoBack(Box<GoBack>, Option<Key>, Author, Reply<RewindDone>),
    /// Take back a compaction, if nothing has happened since this event.
    Uncompact(Uncompacted, u64, Option<Key>, Author, Reply<Uncompacted>),
    /// Remove the git worktree unless it has changes; replies with its new status.
    TidyWorktree(Reply<Option<Worktree>>),
    /// Commit what is in the git worktree; replies with the commit.
    CommitWorktree(Reply<String>),
    /// Record the new status of the git worktree.
    WorktreeIs(WorktreeStatus, Reply<()>),
    /// Merge the work of a child.
    Merge(Box<MergeWork>, Option<Key>, Author, Reply<Merged>),
    /// Compare the files before and after the turns.
    Diff(Diff, Reply<Differences>),
    /// Undo changes of files.
    Undo(session::Undo, Option<Key>, Author, Reply<session::Restored>),
    /// Make them again.
    Redo(session::Redo, Option<Key>, Author, Reply<session::Restored>),
    /// List the changes after an event that somebody else may have made while a command ran.
    Uncertain(u64, Reply<Vec<UncertainChange>>),
    /// Stop the turn; true to end the commands in the background too.
    Cancel(bool, KeyedReply),
    /// Resume an offered turn, start held prompts, or send drafts; with a prompt only that draft.
    Continue(Option<PromptId>, Author, KeyedReply),
    /// Name the variables of the tools.
    Environment(Reply<Environment>),
    /// Describe the tools, mode and rules that decide about calls.
    CallBasis(Reply<CallBasis>),
    /// Change model, mode or name.
    /// The second says whether its tools may be more than before.
    Set(session::Set, Result<(), RpcError>, KeyedReply),
    /// Answer a question, within the limit of the caller's token.
    Answer(question_wire::Answer, Author, AnswerLimit, KeyedReply),
    /// Ask a question that is not a permission; replies with its resolution.
    Ask(Box<Question>, Reply<Resolution>),
    /// Ask this about a subject in place of what is stale; replies with the question.
    AskAbout(Subject, Stale, Option<Box<Question>>, Reply<Option<QuestionId>>),
    /// Store what of the configuration is confirmed.
    Confirmed(Confirmed, Reply<()>),
    /// Hear of a child whose call has ended.
    Child(Box<ChildReport>, Reply<()>),
    /// Delete the session; true even while a turn runs.
    Remove(bool, KeyedReply),
    /// Delete the session if it is unchanged since this time; true even while a turn runs.
    Prune(u64, bool, Reply<()>),
    /// Put the session into the bin, for `retention`, if it is unchanged since this time.
    Retain(u64, Reply<()>),
    /// Show a warning to attached clients.
    Warn(NoticeCode, String),
    /// Say that Markdown files have changed: the user's own, or those of the workspace with this root.
    FilesChanged(Option<PathBuf>, String),
    /// Resume a turn that waits for a configuration.
    Configured,
    /// The daemon ends.
    Pause(oneshot::Sender<()>),
}

impl Command {
    /// Whether the daemon's own log accepts it; that log has no turns and cannot be changed or removed.
    pub(in crate::session) fn is_for_daemon(&self) -> bool {
        matches!(
            self,
            Self::Attach(..)
                | Self::Ask(..)
                | Self::AskAbout(..)
                | Self::Confirmed(..)
                | Self::Answer(..)
                | Self::Pause(_)
        )
    }

    /// Whether a session in the bin accepts it: it can be read, deleted and taken out, and hears how its children end.
    pub(in crate::session) fn is_for_binned(&self) -> bool {
        matches!(
            self,
            Self::Attach(..)
                | Self::Environment(_)
                | Self::Bin(_)
                | Self::Restore(..)
                | Self::TidyWorktree(_)
                | Self::Child(..)
                | Self::Remove(..)
                | Self::Prune(..)
                | Self::Warn(..)
                | Self::FilesChanged(..)
                | Self::Configured
                | Self::Pause(_)
        )
    }

    /// Whether nothing of the session is left afterwards.
    pub(in crate::session) fn is_removal(&self) -> bool {
        matches!(self, Self::Remove(..) | Self::Prune(..))
    }

    /// Its kind among the requests that take effect in the order of their arrival. `None` for what never waits: messages of the
    /// daemon itself, and those of the holder of a place.
    pub(in crate::session) fn place_kind(&self) -> Option<PlaceKind> {
        match self {
            Self::Enter(entry) => Some(entry.kind),
            Self::Attach(..) => Some(PlaceKind::Attach),
            Self::Environment(_) | Self::CallBasis(_) | Self::Diff(..) => Some(PlaceKind::Read),
            Self::Prompt(_) => Some(PlaceKind::Prompt),
            Self::Cancel(..) => Some(PlaceKind::Cancel),
            Self::Compact(..)
            | Self::Unqueue(..)
            | Self::Bin(_)
            | Self::Restore(..)
            | Self::GoBack(..)
            | Self::Uncompact(..)
            | Self::Uncertain(..)
            | Self::Undo(..)
            | Self::Redo(..)
            | Self::Continue(..)
            | Self::Set(..)
            | Self::Answer(..)
            | Self::Remove(..)
            | Self::Prune(..)
            | Self::Retain(..) => Some(PlaceKind::Change),
            Self::Placed(..)
            | Self::TidyWorktree(_)
            | Self::CommitWorktree(_)
            | Self::WorktreeIs(..)
            | Self::Merge(..)
            | Self::Ask(..)
            | Self::AskAbout(..)
            | Self::Confirmed(..)
            | Self::Child(..)
            | Self::Warn(..)
            | Self::FilesChanged(..)
            | Self::Configured
            | Self::Pause(_) => None,
        }
    }

    /// Replies with an error.
    pub fn refuse(self, error: RpcError) {
        match self {
            Self::Enter(entry) => respond(entry.began, Err(error)),
            Self::Placed(_, PlaceStep::Command(command) | PlaceStep::Last(command)) => command.refuse(error),
            Self::Placed(_, PlaceStep::HasRead | PlaceStep::End) => {}
            Self::Attach(_, _, _, reply) => respond(reply, Err(error)),
            Self::Prompt(request) => respond(request.reply, Err(error)),
            Self::Compact(_, _, _, reply) => respond(reply, Err(error)),
            Self::GoBack(_, _, _, reply) => respond(reply, Err(error)),
            Self::Uncompact(_, _, _, _, reply) => respond(reply, Err(error)),
            Self::Undo(_, _, _, reply) | Self::Redo(_, _, _, reply) => respond(reply, Err(error)),
            Self::Diff(_, reply) => respond(reply, Err(error)),
            Self::Uncertain(_, reply) => respond(reply, Err(error)),
            Self::TidyWorktree(reply) => respond(reply, Err(error)),
            Self::CommitWorktree(reply) => respond(reply, Err(error)),
            Self::WorktreeIs(_, reply) => respond(reply, Err(error)),
            Self::Merge(_, _, _, reply) => respond(reply, Err(error)),
            Self::Prune(_, _, reply) => respond(reply, Err(error)),
            Self::Unqueue(_, _, _, reply) => respond(reply, Err(error)),
            Self::Retain(_, reply) => respond(reply, Err(error)),
            Self::Restore(_, reply) => respond(reply, Err(error)),
            Self::Environment(reply) => respond(reply, Err(error)),
            Self::CallBasis(reply) => respond(reply, Err(error)),
            Self::Ask(_, reply) => respond(reply, Err(error)),
            Self::AskAbout(_, _, _, reply) => respond(reply, Err(error)),
            Self::Confirmed(_, reply) | Self::Child(_, reply) => respond(reply, Err(error)),
            Self::Cancel(_, asked)
            | Self::Continue(_, _, asked)
            | Self::Set(.., asked)
            | Self::Answer(_, _, _, asked)
            | Self::Bin(asked)
            | Self::Remove(_, asked) => {
                respond(asked.reply, Err(error));
            }
            // The daemon's log file has it already.
            Self::Warn(..) | Self::FilesChanged(..) | Self::Configured => {}
            Self::Pause(done) => drop(done),
        }
    }
}

/// The start of a subscription; while it lives, the session stays loaded.
pub struct AttachPoint {
    /// The committed events and open streams to read.
    pub log: Arc<Log>,
    /// Wakes when the log has grown.
    pub changed: watch::Receiver<()>,
    /// The position to continue from.
    pub at: Position,
    /// The current end of the log.
    pub head: u64,
    /// The questions before that which have no answer.
    pub open: Vec<QuestionId>,
    /// Secret variables of the tools whose values are missing.
    pub missing: Vec<String>,
    /// Held while a person reads along.
    pub person: Option<watch::Receiver<()>>,
}

/// Replies to a command; the caller may be gone.
pub(in crate::session) fn respond<T>(reply: Reply<T>, result: Result<T, RpcError>) {
    let _gone = reply.send(result);
}
