//! The messages that an actor receives: commands of clients, and what its turn reports and asks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::agent::{Role, SkillLimit};
use linger_protocol::checkpoint::{Diff, Differences};
use linger_protocol::child::ChildUpdate;
use linger_protocol::event::{EventBody, NoticeCode, Process};
use linger_protocol::id::{CallId, Cursor, MessageId, PromptId, QuestionId};
use linger_protocol::message::{ContentBlock, StopReason, Times, Usage};
use linger_protocol::permission::Mode;
use linger_protocol::question::{self as question_wire, Question, Subject};
use linger_protocol::session::{self, Effort as Thinking, Environment, PrefixFingerprint, Prompted};
use linger_protocol::tree::{RewindDone, Uncompacted};
use linger_protocol::worktree::{Merged, Worktree, WorktreeStatus};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use super::children::ChildReport;
use super::places::{EnterRequest, PlaceId, PlaceKind, PlaceStep};
use super::respond;
use crate::config::{Confirmed, Settled};
use crate::log::cursor::Position;
use crate::log::{Log, PieceKind};
use crate::provider::catalogue::Resolved;
use crate::question::permission::{CallInfo, ResolvedAccess};
use crate::session::delegate::Basis;
use crate::session::preview::Preview;
use crate::session::state::{OutagePolicy, Resolution, Run, Shape};
use crate::session::until::UntilState;
use crate::session::{Draft, turn};
use crate::store::StoreError;
use crate::store::idempotency::Key;
use crate::tool::set::ToolSet;
use crate::tool::{Effects, Workspace};

/// Sends commands to an actor. They are boxed, as a turn's messages are: a channel has room for 32 in advance, and most sessions are
/// idle or waiting.
pub type Mailbox = mpsc::UnboundedSender<Box<Command>>;

/// The actor's end of its [`Mailbox`].
pub type Commands = mpsc::UnboundedReceiver<Box<Command>>;

/// The reply channel of a command.
pub type Reply<T> = oneshot::Sender<Result<T, RpcError>>;

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

/// What an answer may decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerLimit {
    /// Anything.
    None,
    /// What the grant of a token allows.
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
    /// This one.
    One(QuestionId),
    /// None.
    Nothing,
}

/// What decides about the calls of a session.
pub struct CallBasis {
    /// Its tools.
    pub tools: Arc<ToolSet>,
    /// Its mode.
    pub mode: Mode,
    /// The rules that answers added to it.
    pub grants: Vec<String>,
    /// Those that refuse.
    pub denied: Vec<String>,
    /// Where it works.
    pub workspace: Arc<Workspace>,
    /// The agent that it is.
    pub role: Option<Role>,
    /// `provider/model`.
    pub model: String,
    /// Whether a turn runs or prompts wait.
    pub is_busy: bool,
    /// What the skills limit the unfinished turn to that it has read.
    pub limits: Vec<SkillLimit>,
}

impl CallBasis {
    /// What is settled about the calls.
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
    /// What the skill limits the turn to.
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
    pub(super) fn with_schema(mut self: Box<Self>, schema: Option<Value>) -> Box<Self> {
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
    GoBack(Box<super::GoBack>, Option<Key>, Author, Reply<RewindDone>),
    /// Take back a compaction, if nothing has happened since this event.
    Uncompact(Uncompacted, u64, Option<Key>, Author, Reply<Uncompacted>),
    /// Remove the git worktree unless it has changes; replies with what became of it.
    TidyWorktree(Reply<Option<Worktree>>),
    /// Commit what is in the git worktree; replies with the commit.
    CommitWorktree(Reply<String>),
    /// Record what became of the git worktree.
    WorktreeIs(WorktreeStatus, Reply<()>),
    /// Merge the work of a child.
    Merge(Box<super::MergeWork>, Option<Key>, Author, Reply<Merged>),
    /// Say what the turns changed.
    Diff(Diff, Reply<Differences>),
    /// Undo changes of files.
    Undo(session::Undo, Option<Key>, Author, Reply<session::Restored>),
    /// Make them again.
    Redo(session::Redo, Option<Key>, Author, Reply<session::Restored>),
    /// Stop the turn; true to end the commands in the background too.
    Cancel(bool, KeyedReply),
    /// Resume an offered turn, or start held prompts.
    Continue(KeyedReply),
    /// Name the variables of the tools.
    Environment(Reply<Environment>),
    /// Say what decides about calls.
    CallBasis(Reply<CallBasis>),
    /// Change model, mode or name.
    /// The second says whether its tools may be more than before.
    Set(session::Set, Result<(), RpcError>, KeyedReply),
    /// Answer a question.
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
    pub(super) fn is_for_daemon(&self) -> bool {
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
    pub(super) fn is_for_binned(&self) -> bool {
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

    /// Its kind among the requests that take effect in the order of their arrival. `None` for what never waits: messages of the
    /// daemon itself, and those of the holder of a place.
    pub(super) fn place_kind(&self) -> Option<PlaceKind> {
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
            | Self::Undo(..)
            | Self::Redo(..)
            | Self::Continue(_)
            | Self::Set(..)
            | Self::Answer(..)
            | Self::Remove(..)
            | Self::Prune(..) => Some(PlaceKind::Change),
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
            Self::Placed(_, PlaceStep::End) => {}
            Self::Attach(_, _, _, reply) => respond(reply, Err(error)),
            Self::Prompt(request) => respond(request.reply, Err(error)),
            Self::Compact(_, _, _, reply) => respond(reply, Err(error)),
            Self::GoBack(_, _, _, reply) => respond(reply, Err(error)),
            Self::Uncompact(_, _, _, _, reply) => respond(reply, Err(error)),
            Self::Undo(_, _, _, reply) | Self::Redo(_, _, _, reply) => respond(reply, Err(error)),
            Self::Diff(_, reply) => respond(reply, Err(error)),
            Self::TidyWorktree(reply) => respond(reply, Err(error)),
            Self::CommitWorktree(reply) => respond(reply, Err(error)),
            Self::WorktreeIs(_, reply) => respond(reply, Err(error)),
            Self::Merge(_, _, _, reply) => respond(reply, Err(error)),
            Self::Prune(_, _, reply) => respond(reply, Err(error)),
            Self::Unqueue(_, _, _, reply) => respond(reply, Err(error)),
            Self::Restore(_, reply) => respond(reply, Err(error)),
            Self::Environment(reply) => respond(reply, Err(error)),
            Self::CallBasis(reply) => respond(reply, Err(error)),
            Self::Ask(_, reply) => respond(reply, Err(error)),
            Self::AskAbout(_, _, _, reply) => respond(reply, Err(error)),
            Self::Confirmed(_, reply) | Self::Child(_, reply) => respond(reply, Err(error)),
            Self::Cancel(_, asked)
            | Self::Continue(asked)
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
    /// The log.
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

/// A message from a turn to its actor.
pub enum TurnMessage {
    /// Events, whether to sync them, and who waits for the commit.
    Emit(Vec<Draft>, bool, Option<oneshot::Sender<Result<(), StoreError>>>),
    /// A message of the history; replies with the ids that the actor assigned. The last field waits for the commit.
    Message(
        Box<EventBody>,
        oneshot::Sender<(MessageId, Vec<ContentBlock>)>,
        Option<oneshot::Sender<Result<(), StoreError>>>,
    ),
    /// An attempt of this model failed: its shown text becomes a message, whose id is the reply.
    Interrupted(String, Option<Times>, oneshot::Sender<MessageId>),
    /// New text of open streams.
    Pieces(Vec<Fragment>, oneshot::Sender<Result<(), StoreError>>),
    /// The usage of the streaming answer so far.
    Counted(Option<Box<Usage>>),
    /// Ask whether a call may run.
    AskPermission(Box<PermissionRequest>),
    /// A call's question to the user; replies when the answer is on disk or the question is withdrawn.
    Ask(Box<Question>, Reply<Resolution>),
    /// Between two steps. With an ending if the turn would end here; it has ended unless the reply has prompts.
    Boundary(Option<Box<Ending>>, oneshot::Sender<NextStep>),
    /// Ask for the check of the turn; announces it if the latest answer has none yet.
    Check(oneshot::Sender<Option<UntilState>>),
    /// Announce the next command line of the prompt's command; gives all of them.
    Runs(oneshot::Sender<Vec<Run>>),
    /// The model cannot answer, for this reason: this other one stands in until the next turn.
    FallBack(Box<Resolved>, String),
    /// What a call gets to make a child, or the one that it has; whether it works in the background.
    Delegate(CallId, bool, oneshot::Sender<Result<Basis, String>>),
    /// How the child of a call gets on; replies whether the budget is spent, to the first once it is on disk.
    Child(Box<ChildUpdate>, oneshot::Sender<bool>),
    /// Ask for the current `provider/model`.
    Model(oneshot::Sender<(String, Option<PrefixFingerprint>)>),
    /// The turn has ended because the stored history is unreadable, for this reason.
    Unreadable(String),
    /// The history that it has read, for the next turn.
    Read(Box<turn::Past>),
}

/// New text of a stream; the actor assigns its offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// Text of a block of the streaming answer.
    Answer {
        /// The block's index in the answer.
        block: u32,
        /// Its kind.
        kind: PieceKind,
        /// The text.
        text: String,
    },
    /// Arguments of a call of the streaming answer, which gets its id with the first of them.
    Call {
        /// The block's index in the answer.
        block: u32,
        /// The tool.
        name: String,
        /// The text.
        text: String,
    },
    /// Output of a call.
    Output {
        /// The call.
        call: CallId,
        /// Where it begins in the output, in bytes; a gap marks dropped output.
        offset: u64,
        /// The text.
        text: String,
    },
}

/// How a turn ends.
#[derive(Clone, Debug)]
pub struct Ending {
    /// The stop reason.
    pub reason: StopReason,
    /// The problem, or the limit that was reached.
    pub detail: Option<String>,
    /// The next thing for a user to do.
    pub hint: Option<String>,
    /// When the provider accepts requests again, in Unix milliseconds.
    pub until_at: Option<u64>,
    /// The value that fits the prompt's schema.
    pub answer: Option<Value>,
}

impl Ending {
    /// An ending without details.
    pub fn plain(reason: StopReason) -> Self {
        Self { reason, detail: None, hint: None, until_at: None, answer: None }
    }
}

/// The input of the next step.
#[derive(Clone, Debug, Default)]
pub struct NextStep {
    /// Steering prompts, as messages of the log.
    pub prompts: Vec<(MessageId, Vec<ContentBlock>)>,
    /// What the model is told of commands in the background, as a message of the log.
    pub news: Option<(MessageId, Vec<ContentBlock>)>,
    /// `provider/model` from now on.
    pub model: String,
    /// The fingerprint of the requests' prefix, from the log.
    pub setup: Option<PrefixFingerprint>,
    /// A requested compaction.
    pub compact: Option<Wanted>,
    /// The output schema.
    pub shape: Option<Shape>,
    /// The session's effort.
    pub thinking: Thinking,
    /// What happens while the provider cannot answer.
    pub outage: OutagePolicy,
    /// The session's own limit of steps.
    pub max_steps: Option<u32>,
    /// The only tools that the session has.
    pub tools: Option<Vec<String>>,
}

/// A compaction that a user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The prompt that requests it.
    pub prompt: PromptId,
    /// What the summary should focus on; may be empty.
    pub focus: String,
}

/// A call that needs a decision.
pub struct PermissionRequest {
    /// The call.
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
    /// What it is about and would change.
    pub preview: Preview,
    /// The reply channel; a call that needs a user waits here.
    pub reply: oneshot::Sender<PermissionAnswer>,
}

impl PermissionRequest {
    /// The parts that rules check.
    pub(super) fn info(&self) -> CallInfo<'_> {
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
