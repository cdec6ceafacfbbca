//! Events: everything that happens in a session, durable ones with a `seq`, and deltas of what is being streamed.
//!
//! A client sees them as notifications `session/event`; see [`Notification`].

mod body;
mod calls;
mod conversation;
mod parts;

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{IntoStaticStr, VariantNames};

pub use calls::{
    BackgroundEnded, PermissionRequested, PermissionResolved, QuestionResolved, ToolFinished, ToolStarted, UndoStarted,
};
pub use conversation::{
    Compacted, CompactionFailed, CompactionStarted, MessageAdded, Notice, PromptAccepted, SessionChanged,
    SessionCreated, Trimmed, TurnFinished,
};
pub use parts::{
    AfterCrash, Asks, ChangeKind, Delta, Exit, FileChange, FileType, Instruction, Level, Location, ModelCost, Moved,
    NotRestored, NoticeCode, Outcome, OutputSegment, PlanEntry, PlanStatus, Process, ToolKind, Trigger,
};

use crate::agent::{Role as AgentRole, Skill, SkillLimit};
use crate::budget::Budget;
use crate::checkpoint::{Checkpoint, UncertainChange};
use crate::child::{ChildUpdate, Delegated};
use crate::id::{
    BackgroundId, BlobId, CallId, Cursor, MessageId, PermissionId, PromptId, QuestionId, SessionId, TurnId,
};
use crate::mcp::SessionServer;
use crate::message::{AnswerEnd, ContentBlock, HostedPart, HostedTool, Role, StopReason, Times, Usage};
use crate::patience::Patience;
use crate::permission::{Decision, Mode};
use crate::question::{Position, Question, Subject};
use crate::session::Effort;
use crate::session::PrefixFingerprint;
use crate::session::Until;
use crate::session::When;
use crate::tree::{Forked, Rewound, Uncompacted};
use crate::unattended::Unattended;
use crate::worktree::{Merged, Worktree};

/// The method name of the notification that carries an event.
pub const SESSION_EVENT: &str = "session/event";

/// The `params` of a `session/event` notification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Notification {
    /// The session that the event belongs to.
    pub session: SessionId,
    /// Where to read on from after this event.
    pub cursor: Cursor,
    /// Whether the event is a question of the past: when the client attached it had its answer, or was withdrawn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answered: bool,
    /// The event itself.
    pub event: Event,
}

/// One thing that happened in a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// The kind, with its fields.
    #[serde(flatten)]
    pub body: EventBody,
    /// Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// When it happened, in Unix milliseconds.
    #[serde(default)]
    #[schemars(!default)]
    pub at: u64,
    /// The turn that it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
}

/// The kinds of event and what each carries.
/// `<&str>::from(&body)` is the kind, as it stands in the event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, IntoStaticStr, VariantNames)]
#[schemars(transform = crate::schema::open)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum EventBody {
    /// The session came to be; always `seq` 1.
    SessionCreated(SessionCreated),
    /// The session goes on from a point of another one: the events before this one are that session's.
    Forked(Box<Forked>),
    /// The session went back to before one of its prompts.
    Rewound(Rewound),
    /// A compaction was taken back: from now on the model reads the messages again that it had replaced.
    Uncompacted(Uncompacted),
    /// Something about the session is different from now on; absent fields stay as they were.
    SessionChanged(SessionChanged),
    /// A prompt is stored and will start a turn or join one.
    PromptAccepted(PromptAccepted),
    /// A prompt that waited for its turn was taken back; it never becomes a message.
    PromptUnqueued {
        /// The prompt that was taken back.
        prompt: PromptId,
        /// The client that took it back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The process that took it back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<Process>,
    },
    /// A prompt that waited when a turn was cancelled is a draft from now on: it runs only when it is sent again.
    PromptDrafted {
        /// The prompt that waits for its user.
        prompt: PromptId,
    },
    /// A draft was sent again: it is queued behind the prompts that wait already.
    DraftSent {
        /// The prompt that was a draft.
        prompt: PromptId,
        /// The client that sent it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The process that sent it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<Process>,
    },
    /// A turn began.
    TurnStarted {
        /// The prompt that it answers.
        prompt: PromptId,
    },
    /// A message entered the history, whole.
    Message(MessageAdded),
    /// An interrupted message is out of the context: its step is being repeated.
    MessageSuperseded {
        /// The message that is repeated.
        message: MessageId,
    },
    /// A command line of the prompt's command is about to run: as a call of `bash` that no model made. Its permission, start, output
    /// and end follow like those of any call.
    CommandStarted {
        /// The id of the call of `bash`.
        call_id: CallId,
        /// The command line.
        command: String,
    },
    /// The turn would end, and the check of its prompt is about to run: as a call of `bash` that no model made. Its permission,
    /// start, output and end follow like those of any call.
    CheckStarted {
        /// The id of the call of `bash`.
        call_id: CallId,
        /// The command line, run by the shell.
        command: String,
        /// How often it has failed before.
        failed: u32,
        /// How often its failure is the next prompt at most.
        tries: u32,
    },
    /// A child, which a call of `delegate` started, is further than before.
    ChildUpdated(ChildUpdate),
    /// A tool call is about to run.
    ToolStarted(ToolStarted),
    /// A tool call has its result; it may never have started.
    ToolFinished(ToolFinished),
    /// A checkpoint of the workspace was taken, before a call that may change anything or after one that did.
    Checkpoint(Checkpoint),
    /// The work of a child in its git worktree was merged into the directory of this session.
    Merged(Box<Merged>),
    /// The session's git worktree is another, or something became of it.
    WorktreeChanged(Worktree),
    /// Changes of files are about to be undone, or made again after that.
    UndoStarted(UndoStarted),
    /// Changes of files were undone, or made again after that.
    Undone {
        /// Whether they were made again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redo: bool,
        /// The turn, if all of its changes were meant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<TurnId>,
        /// The change of each file.
        changes: Vec<FileChange>,
        /// The files that are as they were.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failed: Vec<NotRestored>,
        /// Changes that stay because an editor or another program may have made them, and nobody has said what becomes of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        uncertain: Vec<UncertainChange>,
    },
    /// The model's plan for its task, as a whole; it takes the place of the plan before it.
    Plan {
        /// The entries, in order; at most 100.
        entries: Vec<PlanEntry>,
    },
    /// A command was started in the background: it goes on when its call and its turn are over.
    BackgroundStarted {
        /// The command's handle.
        background: BackgroundId,
        /// The call that started it.
        call_id: CallId,
        /// The command line, run by the shell.
        command: String,
    },
    /// A command in the background has ended.
    BackgroundEnded(BackgroundEnded),
    /// A tool call needs a user's permission.
    PermissionRequested(PermissionRequested),
    /// A permission has its decision.
    PermissionResolved(PermissionResolved),
    /// Something waits for a person that is no permission; it may belong to the daemon's own log and to no session.
    QuestionAsked {
        /// The question; `question/answer` takes it.
        question: QuestionId,
        /// The question's text, options and form.
        asked: Question,
    },
    /// A question has its answer, or is withdrawn.
    QuestionResolved(QuestionResolved),
    /// Settings are confirmed that widen what may happen; in the daemon's own log alone.
    ConfigConfirmed {
        /// All settings of this kind that are in force from now on, as in the file.
        settings: Value,
        /// The confirmed changes, a line each; empty if the file only narrowed, and at the first start.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changes: Vec<String>,
        /// The client that confirmed it; absent if none had to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The root of the workspace whose files have these settings; absent for the configuration itself. With `null` as `settings`
        /// nothing of it is trusted any more.
        #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
        workspace: Option<PathBuf>,
    },
    /// A turn ended; nothing more belongs to it.
    TurnFinished(TurnFinished),
    /// The model is asked for a summary that is to stand for older messages in the context.
    CompactionStarted(CompactionStarted),
    /// From now on a summary stands for older messages in the context; the messages themselves stay in the log.
    Compacted(Compacted),
    /// There is no summary, and the context is as it was.
    CompactionFailed(CompactionFailed),
    /// From now on the output of older calls, what images there are, or what a provider had wanted back of its model's messages is
    /// left out of the context; it stays in the log.
    Trimmed(Trimmed),
    /// Stands in the place of an event that could not be read any more when damage was repaired; each of those that are missing in
    /// a row has one.
    Lost {
        /// The first of these.
        first: u64,
        /// The last of these.
        last: u64,
    },
    /// Something a user should know.
    Notice(Notice),
    /// A piece of a message's text.
    TextDelta(Delta),
    /// A piece of a message's thinking.
    ThinkingDelta(Delta),
    /// A piece of the arguments of a call that the model writes; the first one tells that the call is coming. The pieces add up to
    /// `input` of the `tool_use` as compact JSON, or to the text of a `cut_tool_use`.
    ToolCallDelta {
        /// As in the `tool_use` that follows.
        call_id: CallId,
        /// The tool.
        name: String,
        /// Where it belongs, and the piece.
        #[serde(flatten)]
        delta: Delta,
    },
    /// A piece of what is said of a tool that a provider runs itself.
    HostedDelta {
        /// The provider's own tool.
        tool: HostedTool,
        /// Whether it is a call or what came of it.
        part: HostedPart,
        /// Where it belongs, and the piece.
        #[serde(flatten)]
        delta: Delta,
    },
    /// A piece of a tool's output; a jump in `offset` marks what was dropped.
    ToolOutputDelta {
        /// The call that writes it.
        call_id: CallId,
        /// Where the piece begins, in bytes.
        offset: u64,
        /// The piece.
        text: String,
    },
    /// Everything that was there when the client attached has been sent.
    CaughtUp {},
    /// A kind that this build does not know; to be skipped.
    #[serde(other)]
    Unknown,
}
