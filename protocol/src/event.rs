//! Events: everything that happens in a session, durable ones with a `seq`, and deltas of what is being streamed.
//!
//! A client sees them as notifications `session/event`; see [`Notification`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::IntoStaticStr;

use crate::id::{BlobId, CallId, Cursor, MessageId, PermissionId, PromptId, QuestionId, SessionId, TurnId};
use crate::message::{AnswerEnd, ContentBlock, HostedPart, HostedTool, Role, StopReason, Usage};
use crate::permission::{Decision, Mode};
use crate::question::Question;
use crate::session::{Effort, PrefixFingerprint, When};

/// The method name of the notification that carries an event.
pub const SESSION_EVENT: &str = "session/event";

/// The `params` of a `session/event` notification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Notification {
    /// The session that the event belongs to.
    pub session: SessionId,
    /// Where to read on from after this event.
    pub cursor: Cursor,
    /// The event.
    pub event: Event,
}

/// One thing that happened in a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// What happened.
    #[serde(flatten)]
    pub body: EventBody,
    /// Its number in the session: 1, 2, 3 … without a gap; absent for deltas and `caught_up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// When it happened, in Unix milliseconds.
    #[serde(default)]
    pub at: u64,
    /// The turn that it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
}

/// The kinds of event and what each carries.
/// `<&str>::from(&body)` is the kind, as it stands in the event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
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
        /// How hard the model thinks, where that was said.
        #[serde(default, skip_serializing_if = "Effort::is_auto")]
        effort: Effort,
        /// The constant part of its requests: all but the conversation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        setup: Option<PrefixFingerprint>,
        /// The variables that tools of this session get; never a key.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
    },
    /// Something about the session is different from now on; absent fields stay as they were.
    SessionChanged {
        /// `provider/model`, from the next step on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The permission mode, from the next tool call on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<Mode>,
        /// The name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// How hard the model thinks, from the next step on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effort: Option<Effort>,
        /// The instruction files that go into the system prompt from now on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instructions: Option<Vec<Instruction>>,
        /// What requests have beside the conversation from now on: another model's, or the configuration or linger itself is
        /// another one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        setup: Option<PrefixFingerprint>,
    },
    /// A prompt is stored and will start a turn or join one.
    PromptAccepted {
        /// The prompt.
        prompt: PromptId,
        /// What the user sent.
        content: Vec<ContentBlock>,
        /// When it takes effect.
        when: When,
        /// The client that sent it, such as `linger@pts/3`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// It asks for a compaction; `content` then says what to keep in view, if anything. It never becomes a message.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        compact: bool,
        /// The JSON Schema that the answer has to fit; requests of its turn ask for it, and may have other tools than others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<Value>,
    },
    /// A turn began.
    TurnStarted {
        /// The prompt that it answers.
        prompt: PromptId,
    },
    /// A message entered the history, whole.
    Message {
        /// The message.
        message: MessageId,
        /// The author.
        role: Role,
        /// What is said.
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
        /// What the daemon asks in the user's place, where no user said this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asks: Option<Asks>,
        /// The `provider/model` that wrote it, for an assistant's message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// What the step cost, for an assistant's message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// An interrupted message is out of the context: its step is being repeated.
    MessageSuperseded {
        /// The message.
        message: MessageId,
    },
    /// A tool call is about to run.
    ToolStarted {
        /// The call.
        call_id: CallId,
        /// The tool.
        tool: String,
        /// What it does, in one line.
        action: String,
        /// What a restart of the daemon does with it while it runs; absent: its outcome is unknown then.
        #[serde(default, skip_serializing_if = "AfterCrash::is_unknown")]
        after_crash: AfterCrash,
    },
    /// A tool call has its result; it may never have started.
    ToolFinished {
        /// The call.
        call_id: CallId,
        /// Whether the result is a failure.
        #[serde(default)]
        is_error: bool,
        /// How it ended.
        outcome: Outcome,
        /// What the model reads.
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
        /// How long it ran, in milliseconds.
        ms: u64,
    },
    /// A tool call needs a user's permission.
    PermissionRequested {
        /// The permission; `permission/answer` takes it.
        permission: PermissionId,
        /// The call that waits.
        call_id: CallId,
        /// The tool.
        tool: String,
        /// What will run, in one line (a command may have several).
        action: String,
        /// The arguments, whole.
        input: Value,
        /// Where it will run.
        cwd: PathBuf,
        /// `sha256:` and the hash of tool, arguments and directory; what runs has this digest.
        digest: String,
        /// The rule that asked, or null when the mode did.
        rule: Option<String>,
        /// The rule that `allow_session` and `allow_always` would add.
        grant: String,
        /// The decisions that can be given.
        options: Vec<Decision>,
    },
    /// A permission has its decision.
    PermissionResolved {
        /// The permission.
        permission: PermissionId,
        /// The decision.
        decision: Decision,
        /// The client that decided, such as `linger@pts/3`, or the rule.
        by: String,
        /// The reason, for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Something waits for a person that is no permission; it may belong to the daemon's own log and to no session.
    QuestionAsked {
        /// The question; `question/answer` takes it.
        question: QuestionId,
        /// What is asked.
        asked: Question,
    },
    /// A question has its answer, or is withdrawn.
    QuestionResolved {
        /// The question.
        question: QuestionId,
        /// The name of the option that was chosen; absent if the question was withdrawn, as with its turn or its call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<String>,
        /// Who answered, such as `linger@pts/3`, or why it was withdrawn.
        by: String,
        /// A word that came with the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A turn ended; nothing more belongs to it.
    TurnFinished {
        /// Why.
        stop_reason: StopReason,
        /// What went wrong or what the limit was, in one line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// What to do about it.
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
        /// How many steps it took.
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
        /// What the model reads in their place: Markdown with a heading each for goal, progress, decisions, next steps and files.
        summary: String,
        /// About how many tokens the context had.
        tokens_before: u64,
        /// About how many it has now.
        tokens_after: u64,
        /// The `provider/model` that wrote the summary.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// What the summary cost.
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
        /// What the attempt cost, as far as the provider said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
    },
    /// From now on the output of older calls, what images there are, or what a provider had wanted back of its model's messages is
    /// left out of the context; it stays in the log.
    Trimmed {
        /// The calls.
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
        /// What kind of notice it is, for programs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<NoticeCode>,
        /// One line for people.
        text: String,
        /// When the wait ends that the notice tells of, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_at: Option<u64>,
    },
    /// A piece of a message's text.
    TextDelta(Delta),
    /// A piece of a message's thinking.
    ThinkingDelta(Delta),
    /// A piece of what is said of a tool that a provider runs itself.
    HostedDelta {
        /// The tool.
        tool: HostedTool,
        /// Whether it is a call or what came of it.
        part: HostedPart,
        /// Where it belongs, and the piece.
        #[serde(flatten)]
        delta: Delta,
    },
    /// A piece of a tool's output; a jump in `offset` marks what was dropped.
    ToolOutputDelta {
        /// The call.
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

/// A piece of a message that is being streamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Delta {
    /// The message.
    pub message: MessageId,
    /// The content block, counted from 0.
    pub block: u32,
    /// Where the piece begins in its block, in bytes.
    pub offset: u64,
    /// The piece; cut between characters only.
    pub text: String,
}

/// An instruction file (`AGENTS.md` and its kin) as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Instruction {
    /// The file.
    pub path: PathBuf,
    /// How many bytes of it go into the system prompt.
    pub bytes: u64,
    /// How many bytes were left out.
    #[serde(default)]
    pub cut: u64,
    /// `sha256:` and the hash of what was read.
    pub digest: String,
}

/// What the daemon asks of a model in the user's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Asks {
    /// That its answer fits a schema, which the message has in it.
    Schema,
    /// The answer once more, as the one before does not fit the schema.
    Again,
    /// That it continues an answer that another model began.
    GoOn,
    /// Something that this build does not know.
    #[serde(other)]
    Unknown,
}

/// Where a block of a tool's result stands in the stream of its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputSegment {
    /// The block of `content`.
    pub block: u32,
    /// Where its text begins in the stream, in bytes.
    pub offset: u64,
}

/// What a restart does with a tool call that had started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AfterCrash {
    /// It runs again: it only reads.
    Again,
    /// It is joined: what it does goes on elsewhere, and its result is waited for again.
    Join,
    /// Its result is that its outcome is unknown; it never runs again.
    #[default]
    #[serde(other)]
    Unknown,
}

impl AfterCrash {
    /// Whether the outcome is unknown.
    pub fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

/// How a tool call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran; whether it succeeded is in `is_error`.
    Ran,
    /// It did not run: no such tool, or its arguments do not fit.
    Invalid,
    /// It did not run: a user, a rule or the mode said no.
    Denied,
    /// It ran longer than it may, and was ended.
    TimedOut,
    /// It was cancelled, before or while it ran.
    Cancelled,
    /// The daemon died while it ran; what it did is not known.
    Unknown,
}

/// Why a context is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A user asked for it.
    Asked,
    /// It filled as much of the model's window as the configuration's `compact_at` says.
    Full,
    /// The provider said that it is too long.
    TooLong,
    /// Something that this build does not know.
    #[serde(other)]
    Unknown,
}

/// How important a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Good to know.
    Info,
    /// The work continues, but not as it should.
    Warning,
    /// Some work stopped.
    Error,
}

/// What kind of notice it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NoticeCode {
    /// The turn continues after a restart of the daemon.
    Resumed,
    /// The daemon is ending; the turn continues when it starts again.
    Paused,
    /// A user took an offered turn up again.
    Continued,
    /// The turn met the end of the daemon too often; `session/continue` takes it up again.
    Offered,
    /// The daemon was restarted and has no configuration that it can use; the turn continues when it has one.
    Unconfigured,
    /// The provider failed and is tried again.
    Retry,
    /// The turn waits for a key that the daemon does not have.
    KeyMissing,
    /// The session was removed; its last event, without a `seq`.
    Removed,
    /// The key came, or another model was chosen, and the turn continues.
    KeyFound,
    /// What was stored was damaged. With a `seq`: what became of the session; without: its log cannot be read any further, and
    /// nothing follows.
    Damaged,
    /// The session's model is unknown; the text names a known one with a similar name.
    UnknownModel,
    /// A rule of an `allow_always` answer could not be stored in the configuration; it holds in this session.
    RuleNotStored,
    /// Nothing of the session can be written just now, so nothing comes; without a `seq`. Events resume when writing works.
    Storage,
    /// Something that this build does not know.
    #[serde(other)]
    Unknown,
}

impl EventBody {
    /// A message in the user's place: a prompt, results of calls, or what the daemon `asks`.
    pub fn user_message(
        message: MessageId,
        content: Vec<ContentBlock>,
        prompt: Option<PromptId>,
        asks: Option<Asks>,
    ) -> Self {
        Self::Message {
            message,
            role: Role::User,
            content,
            interrupted: false,
            cut: false,
            paused: false,
            prompt,
            asks,
            model: None,
            usage: None,
        }
    }

    /// A message of `model`.
    pub fn assistant_message(
        message: MessageId,
        content: Vec<ContentBlock>,
        model: impl Into<Option<String>>,
        usage: Option<Usage>,
        end: AnswerEnd,
    ) -> Self {
        Self::Message {
            message,
            role: Role::Assistant,
            content,
            interrupted: end == AnswerEnd::Interrupted,
            cut: end == AnswerEnd::Cut,
            paused: end == AnswerEnd::Paused,
            prompt: None,
            asks: None,
            model: model.into(),
            usage,
        }
    }

    /// The session's instruction files are others from now on.
    pub fn instructions_changed(instructions: Vec<Instruction>) -> Self {
        let (model, mode, name, effort, setup) = (None, None, None, None, None);
        Self::SessionChanged { model, mode, name, effort, instructions: Some(instructions), setup }
    }

    /// What stands before the conversation in requests is another from now on.
    pub fn setup_changed(setup: PrefixFingerprint) -> Self {
        let (model, mode, name, effort, instructions) = (None, None, None, None, None);
        Self::SessionChanged { model, mode, name, effort, instructions, setup: Some(setup) }
    }

    /// A notice of this kind, for people.
    pub fn notice(level: Level, code: NoticeCode, text: impl Into<String>) -> Self {
        Self::Notice { level, code: Some(code), text: text.into(), until_at: None }
    }
}

/// Tells a value that is `null` from one that is not there.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
