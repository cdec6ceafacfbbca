//! Sessions: parameters and results of the `session/*` methods.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::attention::LastRead;
use crate::budget::Budget;
use crate::checkpoint::{Uncertain, UncertainChange};
use crate::child::{ChildUpdate, Delegated};
use crate::event::{FileChange, NotRestored};
use crate::id::{BackgroundId, CallId, Cursor, PermissionId, PromptId, QuestionId, SessionId, TurnId};
use crate::mcp::SessionServer;
use crate::message::{HostedTool, StopReason, Usage};
use crate::patience::Patience;
use crate::permission::Mode;
use crate::prompt::PromptContent;
use crate::tree::Origin;
use crate::unattended::Unattended;
use crate::worktree::Worktree;

/// `session/create`: a new session in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Create {
    /// The working directory, absolute, or `~` and `~/DIR` for the home directory of the daemon's user; it must exist.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// `provider/model`, or a provider alone for its default model; the configuration's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The permission mode; the configuration's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// How hard the model thinks; the configuration's default for the model when absent.
    #[serde(default, skip_serializing_if = "Effort::is_auto")]
    pub effort: Effort,
    /// How long a turn waits while its provider cannot answer; the provider's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<Patience>,
    /// The models that stand in, in order, while the session's own cannot answer; the configuration's of that model when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Vec<String>>,
    /// How a question that no person answers is treated; the configuration's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unattended: Option<Unattended>,
    /// The sums at which it asks before it goes on.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
    /// Directories beside `cwd` that its file tools treat like it, absolute; at most 32.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::path::PathText::<Vec<PathBuf>>")]
    pub additional_directories: Vec<PathBuf>,
    /// MCP servers of this session alone, at most 16, with those of the configuration and of its workspace. They take a process of
    /// the user's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<SessionServer>,
    /// The only tools that the session has, and of those that its provider runs; `mcp__NAME__*` is all of a server. All tools
    /// when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The name of the agent that the session is (`agent/list`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Rules of calls that run in this session without asking, as `permissions.allow` has them; at most 64. Like a mode that asks
    /// less, they take a process of the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Its own part of the system prompt, beside the daemon's, at most 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// A name, unique among sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether it is for one prompt, as `linger run` makes them: lists can leave it out while it has no name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_shot: bool,
    /// Variables for the session's tools; what looks like a secret is left out unless the configuration passes it, and is in
    /// the daemon's memory alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Whether its tools get, beside `env`, the login variables of the daemon's own user (`HOME`, `PATH`, `USER`, `LANG` …): for a
    /// client on another machine, whose own would be wrong.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub login_env: bool,
    /// The file mode creation mask of the session's commands; the daemon's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `session/create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Created {
    /// The new session.
    pub session: SessionId,
    /// The model that it took, `provider/model`.
    #[serde(default)]
    #[schemars(!default)]
    pub model: String,
    /// The mode that it took.
    #[serde(default)]
    #[schemars(!default)]
    pub mode: Mode,
    /// For people: its model is unknown, and which one may be meant. A notice in the session says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// `session/list`: sessions, the latest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct List {
    /// Only sessions with this name or id, or whose id begins with this; a beginning has at least four characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matching: Option<String>,
    /// Only sessions with this working directory.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
    /// Only sessions in the bin; without it, only those that are not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bin: bool,
    /// Leave out sessions that were made for one prompt and have no name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lasting: bool,
    /// At most this many; 1000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only those that come after this one: the last row of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
}

/// A row of `session/list`, of which these two fields count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Before {
    /// When it last changed, in Unix milliseconds; notices between turns do not count.
    pub updated_at: u64,
    /// Orders rows of the same time.
    pub session: SessionId,
}

/// The present activity of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No turn.
    #[default]
    Idle,
    /// A turn is running.
    Running,
    /// A turn is running and cannot continue without an answer or a key.
    Waiting,
    /// A turn was interrupted and waits; `session/continue` or a prompt resumes it.
    Offered,
}

/// A wait for a provider that cannot answer. The turn tries again by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderWait {
    /// The last failure, one line for people.
    pub reason: String,
    /// When it began, in Unix milliseconds; a restart of the daemon does not change it.
    pub since_at: u64,
    /// The next try, in Unix milliseconds; once that has passed, at most 30 s go by between two tries.
    pub until_at: u64,
}

/// A row of `session/list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Info {
    /// Unique, and never used again.
    pub session: SessionId,
    /// Unique among sessions; absent until it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its working directory.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// `provider/model`.
    pub model: String,
    /// The only tools that it has; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The directories that a user added, which its file tools treat like `cwd`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::path::PathText::<Vec<PathBuf>>")]
    pub additional_directories: Vec<PathBuf>,
    /// Its permission mode.
    pub mode: Mode,
    /// How a question that no person answers is treated, unless it waits.
    #[serde(default, skip_serializing_if = "Unattended::holds")]
    pub unattended: Unattended,
    /// Limits of its steps, cost and time.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
    /// The sums at which it asks next: the budget, raised by each answer to go on.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub pauses_at: Budget,
    /// How long its turns have run, in milliseconds, as `budget` counts it; kept up to date by its events.
    #[serde(default)]
    pub worked_ms: u64,
    /// How hard its model thinks, where that was said.
    #[serde(default, skip_serializing_if = "Effort::is_auto")]
    pub effort: Effort,
    /// Its present activity.
    pub state: State,
    /// The obstacle that its turn waits for while its provider cannot answer; `state` is `running` then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_wait: Option<ProviderWait>,
    /// How its last turn ended, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Prompts that wait for their turn.
    pub queued: u32,
    /// Prompts that waited when a turn was cancelled, and run only when they are sent again (`session/continue`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub drafts: u32,
    /// Permissions that wait for an answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<PermissionId>,
    /// Questions of any kind that wait for an answer, permissions among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionId>,
    /// The commands that it runs in the background.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<Background>,
    /// Its title: the one that a model gave it, else the beginning of its first prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The session that started it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// The session that it goes on from, and where it left it, if it is a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Its task for its parent, if a call of `delegate` started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated: Option<Delegated>,
    /// The children whose tasks are under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildUpdate>,
    /// Whether it was made for one prompt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_shot: bool,
    /// When it was put into the bin, in Unix milliseconds, if it is there; 30 days later it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binned_at: Option<u64>,
    /// Whether `retention` of the configuration put it into the bin.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_retention: bool,
    /// The name of the agent that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Tokens over all its turns.
    pub usage: Usage,
    /// About how many tokens its context has, as its provider counted last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// How many tokens its model takes, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Bytes that it takes on the disk: its events, and the blobs that they name.
    #[serde(default)]
    pub size: u64,
    /// When it was created, in Unix milliseconds.
    pub created_at: u64,
    /// When it last changed, in Unix milliseconds.
    pub updated_at: u64,
    /// The end of its log: attach after this to see only what is new.
    pub cursor: Cursor,
    /// The beginning of its latest turn: attach after this to see that turn.
    pub turn_cursor: Cursor,
    /// How far a person had read when the last terminal left it; absent if no terminal was ever attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<LastRead>,
    /// The reason why it cannot be read; other fields may then be empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
    /// Why nothing of it can be written just now; the session resumes when writing works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwritten: Option<String>,
}

/// A command that runs in the background.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Background {
    /// Its handle.
    pub background: BackgroundId,
    /// The command line.
    pub command: String,
    /// When it was started, in Unix milliseconds.
    pub started_at: u64,
}

/// `session/attach`: send the session's events after a cursor, and all that follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attach {
    /// The session to follow.
    pub session: SessionId,
    /// Where to read on from; from the beginning when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
    /// Whether deltas are sent; true when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deltas: Option<bool>,
    /// Whether a person reads along: while one does, the daemon sends no notification about the session, and it keeps how far they read
    /// (`left` of the session's row). From a process that the daemon started, or with a token that
    /// answers nothing, it means nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub person: bool,
    /// Values of secret variables that the session was created with, and of those by which a program finds the desktop (`DISPLAY`,
    /// `WAYLAND_DISPLAY`, `DBUS_SESSION_BUS_ADDRESS`, `XAUTHORITY`, `XDG_RUNTIME_DIR`), for notifications; others are ignored.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// The result of `session/attach`; events follow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attached {
    /// The end of the log at this moment.
    pub cursor: Cursor,
    /// Secret variables of its tools whose values the daemon lacks since it was restarted; `env` of an attach or a prompt brings
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_env: Vec<String>,
}

/// The result of `session/env`: the names of the variables of a session's tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Names of variables with values that are stored.
    pub variables: Vec<String>,
    /// Names of variables with secrets, which are in the daemon's memory alone.
    pub secret: Vec<String>,
    /// Names in `secret` whose values the daemon lacks since it was restarted.
    pub missing: Vec<String>,
}

/// A request that names a session and nothing else: `session/detach`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Named {
    /// The session that is meant.
    pub session: SessionId,
}

/// `session/cancel`: stops the session's turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cancel {
    /// The session whose turn is stopped.
    pub session: SessionId,
    /// Also end its commands in the background.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// `session/continue`: resumes the turn, or starts what waits for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Continue {
    /// The session that goes on.
    pub session: SessionId,
    /// Send only this draft; when absent, all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptId>,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// `session/restore`: takes a session out of the bin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Keyed {
    /// The session to restore.
    pub session: SessionId,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// When a prompt takes effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// After the running turn, in a turn of its own.
    #[default]
    Queue,
    /// Before the next step of the running turn.
    Steer,
    /// Now: the running step is cancelled, and the turn continues with this prompt.
    Interrupt,
}

/// `session/prompt`: gives the session something to do; answers once the prompt is on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prompt {
    /// The session to prompt.
    pub session: SessionId,
    /// The user's content.
    pub content: PromptContent,
    /// When it takes effect; `queue` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// JSON Schema that the answer has to fit.
    #[serde(default, deserialize_with = "crate::prompt::schema", skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// A check that has to pass before the turn ends well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// Whether a text that begins with `/NAME` names a command or a skill (`command/list`, `skill/list`), which the daemon puts in
    /// its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expand: bool,
    /// Whether the sender waits for the answer, as a program does: if the turn before it is cancelled, the prompt is taken back
    /// (`prompt_unqueued`), and otherwise it becomes a draft for its user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaited: bool,
    /// Values of secret variables that the session was created with; others are ignored.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Idempotency key: sent twice, the prompt happens once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A check of the work of a turn: a command that the daemon runs when the turn would end, by permission like one of `bash`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Until {
    /// The command; it passes if it exits with 0.
    pub command: String,
    /// How often its failure is the next prompt, from 1 to 10; 10 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
}

impl Until {
    /// The most tries: each costs a whole turn's work, and a model that has failed so often needs a person.
    pub const MAX_TRIES: u32 = 10;

    /// The tries that it means.
    pub fn tries(&self) -> u32 {
        self.tries.unwrap_or(Self::MAX_TRIES)
    }
}

/// The result of `session/prompt` and `session/compact`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prompted {
    /// Unique in its session.
    pub prompt: PromptId,
    /// The `seq` of its `prompt_accepted`.
    pub seq: u64,
}

/// `session/compact`: has the model write a summary that stands for older messages in the context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Compact {
    /// The session to compact.
    pub session: SessionId,
    /// The topic that the summary should keep in view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
    /// Idempotency key: sent twice, it happens once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// `session/unqueue`: takes back a prompt that waits for its turn, or a draft.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unqueue {
    /// The session with the waiting prompts.
    pub session: SessionId,
    /// This one; when absent, the one that came last, and a draft only if none is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptId>,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `session/unqueue`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unqueued {
    /// The prompt that was taken back.
    pub prompt: PromptId,
}

/// `session/bin`: puts a session into the bin, where it stays for 30 days.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bin {
    /// The session to put into the bin.
    pub session: SessionId,
    /// Also while a turn is running; it is cancelled first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `session/restore`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutOfBin {
    /// The name that it has now: another one than before where a session has taken that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// `session/undo`: puts files back to what they were before the model's tools changed them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Undo {
    /// The session that made the changes.
    pub session: SessionId,
    /// Only the changes of this call; absent: of the latest turn that changed files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// Only the changes of this file, in the latest turn that changed it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub file: Option<PathBuf>,
    /// Only the changes of these files, each in the latest turn that changed it. A file that is named here or in `file` is undone
    /// also where an editor or another program may have changed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::path::PathText::<Vec<PathBuf>>")]
    pub files: Vec<PathBuf>,
    /// The treatment of changes that an editor or another program may have made while a command ran; absent: they stay, and the
    /// result lists them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertain: Option<Uncertain>,
    /// Also files that were changed since, and changes that are uncertain.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// `session/redo`: makes the changes again that were undone last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Redo {
    /// The session that undid the changes.
    pub session: SessionId,
    /// Also files that were changed since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `session/undo` and `session/redo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Restored {
    /// The turn, if all of its changes were meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<TurnId>,
    /// The change of each file; a file that was as wanted has none.
    pub changes: Vec<FileChange>,
    /// The files that could not be put back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<NotRestored>,
    /// Changes that stay because an editor or another program may have made them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncertain: Vec<UncertainChange>,
}

/// `session/set`: changes a session from its next step on; absent fields stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Set {
    /// The session to change.
    pub session: SessionId,
    /// `provider/model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The permission mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// How hard the model thinks; `auto` takes back what was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// How long a turn waits while its provider cannot answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<Patience>,
    /// The models that stand in, in order, while the session's own cannot answer; an empty list is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Vec<String>>,
    /// How a question that no person answers is treated from now on, also questions that wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unattended: Option<Unattended>,
    /// The sums at which it asks before it goes on; 0 takes one away. What was raised by answers begins again.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
    /// The directory where it works from now on, absolute; it must exist. Refused while a turn runs or prompts wait, for a child, and
    /// for processes that are not known to be the user's: other files say what may run there. Rules that answers added for the
    /// session are gone with it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
    /// More directories that its file tools treat like `cwd`, absolute; each must exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::path::PathText::<Vec<PathBuf>>")]
    pub add_directories: Vec<PathBuf>,
    /// The additional directories to take away.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::path::PathText::<Vec<PathBuf>>")]
    pub remove_directories: Vec<PathBuf>,
    /// All MCP servers of this session alone from now on, as in `session/create`; an empty list is none. Those that it has already
    /// go on, and get the values that come with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Vec<SessionServer>>,
    /// The only tools from the next step on, as in `session/create`; `["*"]` is all. A session can only take some away from its
    /// children, and a token gives more only where its own mode reaches as far as that of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The constant part of a session's requests: all but the conversation. While it stays the same, each
/// request begins like the one before, and a provider's prompt cache hits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrefixFingerprint {
    /// The wire format: `anthropic`, `openai`, `openai-responses`, `gemini`, `ollama` or `demo`.
    pub kind: String,
    /// The tools that the provider runs itself, where any are switched on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosted_tools: Vec<HostedTool>,
    /// Another one whenever these or anything else of it changes: the provider's flags, how hard the model thinks by
    /// configuration, linger's own prompt and tools.
    pub digest: String,
}

/// How hard a model thinks before it answers. Each provider knows some of these; the nearest is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// The configured effort of the model; if none is set, the provider's own default.
    #[default]
    Auto,
    /// It does not think.
    None,
    /// As little as it can.
    Minimal,
    /// A little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// Very much.
    Xhigh,
    /// As much as it can.
    Max,
}

impl Effort {
    /// All of them, from what a provider does by itself to the most.
    pub const ALL: [Self; 8] =
        [Self::Auto, Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh, Self::Max];

    /// Whether nothing is said.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }

    /// Its name, as it is written everywhere.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}

impl std::fmt::Display for Effort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Effort {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|effort| effort.name() == name);
        known.ok_or_else(|| format!("unknown effort '{name}': none, minimal, low, medium, high, xhigh, max or auto"))
    }
}

/// `session/remove`: deletes a session and everything that was stored for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Remove {
    /// The session to delete.
    pub session: SessionId,
    /// Also while a turn is running; it is cancelled first.
    #[serde(default)]
    pub force: bool,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `session/remove` and `session/bin`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Removed {
    /// How many children went with it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub children: u32,
    /// The git worktrees of removed children that stay, because they have changes that are nowhere else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worktrees: Vec<Worktree>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// `session/prune`: deletes sessions that were not used for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Prune {
    /// Only sessions that have not changed for longer than this, in milliseconds.
    pub older_than_ms: u64,
    /// Delete nothing, and say what would be deleted.
    #[serde(default)]
    pub dry_run: bool,
    /// Also sessions with a running turn, such as one that waits for an answer.
    #[serde(default)]
    pub force: bool,
    /// Put them into the bin in place of deleting them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub into_bin: bool,
    /// Delete the sessions that are in the bin, whatever their age, and no others; `older_than_ms` does not count then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bin: bool,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// The result of `session/prune`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pruned {
    /// The sessions that were deleted, or would be, the oldest first; 1000 at most.
    pub sessions: Vec<Info>,
    /// How many there are in all.
    pub count: u32,
    /// Bytes that they took.
    pub size: u64,
}
