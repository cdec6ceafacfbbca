//! Parts of events: pieces of streams, and the words that some fields have.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{BlobId, MessageId};
use crate::message::Usage;

/// A piece of a message that is being streamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Delta {
    /// The message that it belongs to.
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
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub path: PathBuf,
    /// How many bytes of it go into the system prompt.
    pub bytes: u64,
    /// How many bytes were left out.
    #[serde(default)]
    pub cut: u64,
    /// `sha256:` and the hash of what was read.
    pub digest: String,
}

/// The process at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// Whether it belongs to the daemon: started by it, perhaps started by it, or the daemon itself. False for a user's own.
    pub family: bool,
}

/// A request of the daemon to a model in the user's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum Asks {
    /// To answer in a form that fits a schema, which the message has in it.
    Schema,
    /// The answer once more, as the one before does not fit the schema.
    Again,
    /// To continue an answer that another model began, or its own that was cut at the token limit.
    GoOn,
    /// Nothing: it tells the model that commands in the background have ended, or that a user undid its changes of files.
    Ended,
    /// To mend the findings of the turn's check, whose own words follow.
    Check,
    /// To only plan, because the mode is `plan` now, or that this is over; commands that ended may be named too.
    Mode,
    /// To read the message of a child that worked in the background.
    Child,
    /// Nothing: it tells the model the output of the command lines that its prompt's command runs.
    Output,
    /// Something that this build does not know.
    #[serde(other)]
    Unknown,
}

/// The cost of asking a model beside the conversation: for a title, or by a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelCost {
    /// The model, `provider/model`.
    pub model: String,
    /// The usage of its answer.
    pub usage: Usage,
}

/// Where a block of a tool's result stands in the stream of its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputSegment {
    /// The block of `content`.
    pub block: u32,
    /// Where its text begins in the stream, in bytes.
    pub offset: u64,
}

/// The category of a tool, as ACP has it; for icons and the like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// Reads files or other data.
    Read,
    /// Changes files.
    Edit,
    /// Removes files.
    Delete,
    /// Moves or renames files.
    Move,
    /// Searches.
    Search,
    /// Runs commands or code.
    Execute,
    /// Thinks or plans.
    Think,
    /// Fetches from elsewhere.
    Fetch,
    /// Anything else, or a word that this build does not know.
    #[default]
    #[serde(other)]
    Other,
}

/// A place that a tool call is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Location {
    /// The file or directory, absolute.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub path: PathBuf,
    /// The line, from 1, where the call is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

/// A change of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// The file, absolute and without links.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub path: PathBuf,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The blob with its former content; absent if there was none, and for more than 16 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<BlobId>,
    /// The blob with its new content; absent if there is none, and for more than 16 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<BlobId>,
    /// The file's type before, where the change may change that too; absent for the changes of file tools, which leave it as it
    /// is, and if there was no file. The content of a link is where it leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_type: Option<FileType>,
    /// The file's type after, as `before_type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_type: Option<FileType>,
    /// The permissions that the file had before, such as 0o600; absent if they are not known, and if there was no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_mode: Option<u32>,
    /// The permissions that it gets; of changes that put a file back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_mode: Option<u32>,
    /// The permissions of the directories above it that come or go with it, the innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<u32>,
    /// How many bytes these blobs have.
    #[serde(default)]
    pub bytes: u64,
}

/// The type of a file: as much as git keeps of it, and a directory that stands in the place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum FileType {
    /// An ordinary file.
    File,
    /// A file that its owner may execute.
    Executable,
    /// A symbolic link.
    Link,
    /// A directory with whatever is in it.
    Directory,
    /// Something that this build does not know.
    #[serde(other)]
    Unknown,
}

/// A file that could not be put back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotRestored {
    /// The file, absolute and without links.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

/// A kind of change of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Create,
    /// Its content is another.
    Edit,
    /// It is deleted.
    Delete,
    /// Something that this build does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

/// One entry of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanEntry {
    /// The task, in one line.
    pub content: String,
    /// How far it is.
    #[serde(default)]
    pub status: PlanStatus,
}

/// How far an entry of a plan is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanStatus {
    /// Under way.
    InProgress,
    /// Done.
    Completed,
    /// Not begun, or a word that this build does not know.
    #[default]
    #[serde(other)]
    Pending,
}

/// How the process of a call ended by itself: with a code, or by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exit {
    /// Its exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// The effect of a restart on a tool call that had started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
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
    /// It did not run: no such tool, its arguments do not fit, or it could change nothing.
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
#[schemars(transform = crate::schema::open)]
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

/// A kind of notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
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
    /// The provider failed and is tried again. With `since_at` the turn waits for it, until `reached`.
    Retry,
    /// The provider answers again, and the turn continues.
    Reached,
    /// The model cannot answer; a fallback stands in for it until the next turn.
    Fallback,
    /// The turn waits for a key that the daemon does not have.
    KeyMissing,
    /// The turn waits until a person confirms the configuration of its provider.
    Unconfirmed,
    /// The turn waits for the source of its key: a command that runs, or a keychain that may want a password.
    KeyPending,
    /// The session was removed; its last event, without a `seq`.
    Removed,
    /// The key or the confirmation came, or another model was chosen, and the turn continues.
    KeyFound,
    /// Stored data was damaged. With a `seq`: the outcome for the session; without: its log cannot be read any further, and
    /// nothing follows.
    Damaged,
    /// A repair made the session's state again from its events: what they permit is asked again.
    Rebuilt,
    /// The session's model is unknown; the text names a known one with a similar name.
    UnknownModel,
    /// A rule of an `allow_always` or `reject_always` answer could not be stored in the configuration; it holds in this session.
    RuleNotStored,
    /// Changes of the configuration wait until a person confirms them.
    ConfigWaits,
    /// Something about the session's agent: a key of its file that is ignored, a tool or a model that does not exist.
    Agent,
    /// Skills, commands, agents, tools or servers, which are Markdown files, have changed; they count from the next prompt.
    Files,
    /// Nothing of the session can be written just now, so nothing comes; without a `seq`. Events resume when writing works.
    Storage,
    /// An MCP server could not be started; the turn goes on without its tools.
    ServerFailed,
    /// A hook failed that holds up nothing.
    HookFailed,
    /// Changes of commands in the workspace cannot be undone: no checkpoint of it can be taken. Once a session.
    NoCheckpoint,
    /// The result of a tool does not fit the output schema that its MCP server gives for it; it is kept.
    OutputSchema,
    /// Something that this build does not know.
    #[serde(other)]
    Unknown,
}

/// A directory that has another name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// Its path before, absolute.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub from: PathBuf,
    /// Its path from now on.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub to: PathBuf,
}

impl Moved {
    /// A path of before, as it is from now on.
    pub fn path(&self, path: PathBuf) -> PathBuf {
        match path.strip_prefix(&self.from) {
            Ok(below) if below.as_os_str().is_empty() => self.to.clone(),
            Ok(below) => self.to.join(below),
            Err(_) => path,
        }
    }
}
