//! Events: everything that happens in a session, durable ones with a `seq`, and deltas of what is being streamed.
//!
//! A client sees them as notifications `session/event`; see [`Notification`].

mod body;
mod parts;

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{IntoStaticStr, VariantNames};

pub use parts::{
    AfterCrash, Asks, ChangeKind, Delta, Exit, FileChange, FileType, Instruction, Level, Location, ModelCost,
    NotRestored, NoticeCode, Outcome, OutputSegment, PlanEntry, PlanStatus, Process, ToolKind, Trigger,
};

use crate::agent::{Role as AgentRole, Skill, SkillLimit};
use crate::budget::Budget;
use crate::checkpoint::Checkpoint;
use crate::child::{ChildUpdate, Delegated};
use crate::id::{
    BackgroundId, BlobId, CallId, Cursor, MessageId, PermissionId, PromptId, QuestionId, SessionId, TurnId,
};
use crate::mcp::SessionServer;
use crate::message::{AnswerEnd, ContentBlock, HostedPart, HostedTool, Role, StopReason, Times, Usage};
use crate::patience::Patience;
use crate::permission::{Decision, Mode};
use crate::question::{Question, Subject};
use crate::session::{Effort, PrefixFingerprint, Until, When};
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
    SessionCreated {
        /// The working directory, absolute.
        cwd: PathBuf,
        /// `provider/model`.
        model: String,
        /// The permission mode.
        mode: Mode,
        /// A name that a user gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The session that started it, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<SessionId>,
        /// Its task for its parent, if a call of `delegate` started it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delegated: Option<Delegated>,
        /// How hard the model thinks, where that was said.
        #[serde(default, skip_serializing_if = "Effort::is_auto")]
        effort: Effort,
        /// The constant part of its requests: all but the conversation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        setup: Option<PrefixFingerprint>,
        /// The only tools that it has; all when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tools: Option<Vec<String>>,
        /// Whether it was made for one prompt.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        one_shot: bool,
        /// The agent that it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentRole>,
        /// The rules of calls that run in it without asking.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        allow: Vec<String>,
        /// Its own part of the system prompt, beside the daemon's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        system: Option<String>,
        /// The variables that tools of this session get; the value of a secret one is [`crate::variable::IN_MEMORY`].
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
    },
    /// The session goes on from a point of another one: the events before this one are that session's.
    Forked(Box<Forked>),
    /// The session went back to before one of its prompts.
    Rewound(Rewound),
    /// A compaction was taken back: from now on the model reads the messages again that it had replaced.
    Uncompacted(Uncompacted),
    /// Something about the session is different from now on; absent fields stay as they were.
    SessionChanged {
        /// `provider/model`, from the next step on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The permission mode, from the next tool call on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<Mode>,
        /// The new name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// How hard the model thinks, from the next step on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effort: Option<Effort>,
        /// The instruction files that go into the system prompt from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instructions: Option<Vec<Instruction>>,
        /// The skills that the system prompt names from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        skills: Option<Vec<Skill>>,
        /// The index of notes that the system prompt has from now on; empty for none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        memory: Option<String>,
        /// Its agent, whose file is another one from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentRole>,
        /// The new setup of requests beside the conversation: another model's, or the configuration or linger itself is
        /// another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        setup: Option<PrefixFingerprint>,
        /// The session's own model, which `model` stands in for until the next turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stands_in_for: Option<String>,
        /// How long a turn waits while its provider cannot answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patience: Option<Patience>,
        /// The models that stand in, in order, while the session's own cannot answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fallback: Option<Vec<String>>,
        /// How a question that no person answers is treated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unattended: Option<Unattended>,
        /// The whole budget from now on; what answers have raised begins again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<Budget>,
        /// All directories that a user has added, from the next call on; file tools treat them like the working directory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        additional_directories: Option<Vec<PathBuf>>,
        /// The only tools that it has from the next step on; `*` is all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tools: Option<Vec<String>>,
        /// All MCP servers that a client brought for this session, from the next step on; without the values of their variables and
        /// headers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mcp_servers: Option<Vec<SessionServer>>,
        /// Whether it is in the bin.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        binned: Option<bool>,
        /// The title that a model gave it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// The cost of asking for a title, also where none came of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title_cost: Option<ModelCost>,
    },
    /// A prompt is stored and will start a turn or join one.
    PromptAccepted {
        /// Unique in its session.
        prompt: PromptId,
        /// The user's content.
        content: Vec<ContentBlock>,
        /// When it takes effect.
        when: When,
        /// The client that sent it, such as `linger@pts/3`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The process that sent it; absent for decisions of the daemon and in events of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<Process>,
        /// It asks for a compaction; `content` then says what to keep in view, if anything. It never becomes a message.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        compact: bool,
        /// The JSON Schema that the answer has to fit; requests of its turn ask for it, and may have other tools than others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<Value>,
        /// The check that has to pass before its turn ends well.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Until>,
        /// The line that the user typed, if it named a command or a skill: `content` is what that says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
        /// The child whose words these are: the result of a task in the background. No user said this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<SessionId>,
        /// The command lines that the command runs before the first step of its turn; each needs its permission then.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        runs: Vec<String>,
        /// The limit of its turn by the skill that it names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<SkillLimit>,
    },
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
    /// A turn began.
    TurnStarted {
        /// The prompt that it answers.
        prompt: PromptId,
    },
    /// A message entered the history, whole.
    Message {
        /// Unique in its session.
        message: MessageId,
        /// The author.
        role: Role,
        /// The message's blocks.
        content: Vec<ContentBlock>,
        /// Whether it was cut off; it then has what was shown of it, and no calls.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        interrupted: bool,
        /// Whether the answer was cut at the token limit; its calls, if it has any, are then not run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cut: bool,
        /// Whether its provider paused within a tool that it runs itself; the next step continues it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        paused: bool,
        /// The prompt that this message is, for a user's own words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<PromptId>,
        /// The daemon's request in the user's place, where no user sent this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asks: Option<Asks>,
        /// The `provider/model` that wrote it, for an assistant's message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The usage of the step, for an assistant's message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// How long the provider took, for an assistant's message; of one that was cut off, until then. Absent where it was cut off
        /// by a cancel or a restart.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        times: Option<Times>,
    },
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
    ToolStarted {
        /// As in the `tool_use` of the model's message.
        call_id: CallId,
        /// The name that the model called.
        tool: String,
        /// The category of the tool.
        #[serde(default)]
        tool_kind: ToolKind,
        /// The call, in one line.
        action: String,
        /// The files and directories that it is about.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        locations: Vec<Location>,
        /// The arguments, if they have 4 KiB at most; the message with the call has them whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Value>,
        /// The effect of a restart of the daemon while it runs; absent: its outcome is unknown then.
        #[serde(default, skip_serializing_if = "AfterCrash::is_unknown")]
        after_crash: AfterCrash,
        /// The limit of the turn from now on by the skill that it reads.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<SkillLimit>,
    },
    /// A tool call has its result; it may never have started.
    ToolFinished {
        /// As in the `tool_use` of the model's message.
        call_id: CallId,
        /// Whether the result is a failure.
        #[serde(default)]
        is_error: bool,
        /// How it ended.
        outcome: Outcome,
        /// The result as the model reads it.
        content: Vec<ContentBlock>,
        /// Which blocks of `content` are output that was streamed, and where each begins in the stream.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        output: Vec<OutputSegment>,
        /// The file that has the whole output, when `content` has not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<PathBuf>,
        /// The name of what is in `file`; `blob/get` gives it too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob: Option<BlobId>,
        /// A unified diff of what the call changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        diff: Option<String>,
        /// The files that the call changed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changes: Vec<FileChange>,
        /// The files and directories that it was about, with the line where there is one; absent for a call that never started.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        locations: Vec<Location>,
        /// How its process ended; absent if it had none, or was ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<Exit>,
        /// The model that the tool asked, and the usage of its answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model_cost: Option<ModelCost>,
        /// How long it ran, in milliseconds.
        ms: u64,
    },
    /// A checkpoint of the workspace was taken, before a call that may change anything or after one that did.
    Checkpoint(Checkpoint),
    /// The work of a child in its git worktree was merged into the directory of this session.
    Merged(Box<Merged>),
    /// The session's git worktree is another, or something became of it.
    WorktreeChanged(Worktree),
    /// Changes of files are about to be undone, or made again after that.
    UndoStarted {
        /// Whether they are made again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redo: bool,
        /// The turn, if all of its changes are meant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<TurnId>,
        /// The call, if only its changes are meant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// The file, if only its changes are meant.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<PathBuf>,
        /// The change of each file.
        changes: Vec<FileChange>,
        /// The client that asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The process that asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<Process>,
    },
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
    BackgroundEnded {
        /// The command's handle.
        background: BackgroundId,
        /// How its process ended by itself; absent if it was ended, or never ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit: Option<Exit>,
        /// Why it was ended, or could not be started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The end of its output, as far as the model has not read it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        output: String,
        /// The file that has the whole output, if it was long.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<PathBuf>,
        /// The name of what is in `file`; `blob/get` gives it too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob: Option<BlobId>,
        /// How long it ran, in milliseconds.
        ms: u64,
    },
    /// A tool call needs a user's permission.
    PermissionRequested {
        /// The permission; `permission/answer` takes it.
        permission: PermissionId,
        /// The call that waits.
        call_id: CallId,
        /// The name of the tool that would run.
        tool: String,
        /// The action in one line (a command may have several).
        action: String,
        /// The arguments, whole.
        input: Value,
        /// Where it will run.
        cwd: PathBuf,
        /// `sha256:` and the hash of tool, arguments and directory; what runs has this digest.
        digest: String,
        /// The rule that asked, or null when the mode did.
        rule: Option<String>,
        /// The rule that `allow_session` and `allow_always` would add, and `reject_always` as one that refuses.
        grant: String,
        /// The rules one by one, if the call touches several things: then `grant` names them all, for people.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        grants: Vec<String>,
        /// The decisions that can be given.
        options: Vec<Decision>,
        /// The files and directories that the call is about.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        locations: Vec<Location>,
        /// The changes it would make to the files as they are when it asks.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changes: Vec<FileChange>,
        /// `check` for the check of a turn's answer, which no model asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        about: Option<Subject>,
    },
    /// A permission has its decision.
    PermissionResolved {
        /// The permission that is closed.
        permission: PermissionId,
        /// The option that was chosen.
        decision: Decision,
        /// The client that decided, such as `linger@pts/3`, or the rule.
        by: String,
        /// The process that sent it; absent for decisions of the daemon and in events of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<Process>,
        /// The reason, for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The rules that it adds, where the answer names others than the question.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rules: Vec<String>,
    },
    /// Something waits for a person that is no permission; it may belong to the daemon's own log and to no session.
    QuestionAsked {
        /// The question; `question/answer` takes it.
        question: QuestionId,
        /// The question's text, options and form.
        asked: Question,
    },
    /// A question has its answer, or is withdrawn.
    QuestionResolved {
        /// The question that is closed.
        question: QuestionId,
        /// The name of the option that was chosen; absent if the question was withdrawn, as with its turn or its call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<String>,
        /// The fields of a form that was accepted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<Value>,
        /// Who answered, such as `linger@pts/3`, or why it was withdrawn.
        by: String,
        /// The process that sent it; absent for decisions of the daemon and in events of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        process: Option<Process>,
        /// A word that came with the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
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
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workspace: Option<PathBuf>,
    },
    /// A turn ended; nothing more belongs to it.
    TurnFinished {
        /// The prompt that it answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<PromptId>,
        /// Why.
        stop_reason: StopReason,
        /// The failure or the limit, in one line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// The next thing to do about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
        /// Until when the provider that failed asked to be left alone, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_at: Option<u64>,
        /// The answer that fits the schema, if the prompt had one.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        answer: Option<Value>,
        /// The sum over the turn's steps.
        usage: Usage,
        /// The sum over the session's turns up to this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_usage: Option<Usage>,
        /// About how many tokens the context has, as the provider counted last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context_tokens: Option<u64>,
        /// How many tokens the model takes, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context_window: Option<u64>,
        /// How many steps it took, those of children whose calls it waited for among them.
        steps: u32,
    },
    /// The model is asked for a summary that is to stand for older messages in the context.
    CompactionStarted {
        /// Why.
        trigger: Trigger,
        /// The prompt that asked for it, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<PromptId>,
        /// The last message that it would replace.
        through: MessageId,
        /// How many messages it would replace.
        messages: u32,
        /// About how many tokens the context has.
        tokens: u64,
    },
    /// From now on a summary stands for older messages in the context; the messages themselves stay in the log.
    Compacted {
        /// The prompt that asked for it, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<PromptId>,
        /// The last message that is replaced; all before it are too.
        through: MessageId,
        /// How many messages are replaced; an earlier summary counts as one.
        messages: u32,
        /// The summary that the model reads in their place: Markdown with headings for goal, progress, decisions, next steps, files.
        summary: String,
        /// About how many tokens the context had.
        tokens_before: u64,
        /// About how many it has now.
        tokens_after: u64,
        /// The `provider/model` that wrote the summary.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The usage of the request for the summary.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// There is no summary, and the context is as it was.
    CompactionFailed {
        /// The prompt that asked for it, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<PromptId>,
        /// Why, in one line.
        reason: String,
        /// About how many tokens the context has.
        tokens: u64,
        /// The `provider/model` that was asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The usage of the attempt, as far as the provider reported it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// From now on the output of older calls, what images there are, or what a provider had wanted back of its model's messages is
    /// left out of the context; it stays in the log.
    Trimmed {
        /// The calls whose output is left out.
        calls: Vec<CallId>,
        /// The messages that had images: the model refused them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        images: Vec<MessageId>,
        /// The messages whose `native` parts and thinking do not go back any more: the provider refused the history. The model
        /// reads of them what another one would; and of all that it writes later, if the one message named here is the first since
        /// that happened before.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        native: Vec<MessageId>,
        /// About how many tokens the context had.
        tokens_before: u64,
        /// About how many it has now.
        tokens_after: u64,
    },
    /// Stands in the place of an event that could not be read any more when damage was repaired; each of those that are missing in
    /// a row has one.
    Lost {
        /// The first of these.
        first: u64,
        /// The last of these.
        last: u64,
    },
    /// Something a user should know.
    Notice {
        /// How important it is.
        level: Level,
        /// The kind of notice, for programs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<NoticeCode>,
        /// One line for people.
        text: String,
        /// When the wait ends that the notice tells of, if that is known; of `retry`, the next try.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_at: Option<u64>,
        /// When the wait began that the notice tells of, in Unix milliseconds; a restart of the daemon does not change it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since_at: Option<u64>,
    },
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

/// Tells a value that is `null` from one that is not there.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
