//! The bodies of events about tool calls, changes of files and questions.

use super::*;

/// The body of `tool_started`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ToolStarted {
    /// As in the `tool_use` of the model's message.
    pub call_id: CallId,
    /// The name that the model called.
    pub tool: String,
    /// The category of the tool.
    #[serde(default)]
    pub tool_kind: ToolKind,
    /// The call, in one line.
    pub action: String,
    /// The files and directories that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<Location>,
    /// The arguments, if they have 4 KiB at most; the message with the call has them whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The effect of a restart of the daemon while it runs; absent: its outcome is unknown then.
    #[serde(default, skip_serializing_if = "AfterCrash::is_unknown")]
    pub after_crash: AfterCrash,
    /// The limit of the turn from now on by the skill that it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<SkillLimit>,
}

/// The body of `tool_finished`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ToolFinished {
    /// As in the `tool_use` of the model's message.
    pub call_id: CallId,
    /// Whether the result is a failure.
    #[serde(default)]
    pub is_error: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// The result as the model reads it.
    pub content: Vec<ContentBlock>,
    /// Which blocks of `content` are output that was streamed, and where each begins in the stream.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<OutputSegment>,
    /// The file that has the whole output, when `content` has not.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub file: Option<PathBuf>,
    /// The name of what is in `file`; `blob/get` gives it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobId>,
    /// A unified diff of what the call changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// The files that the call changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FileChange>,
    /// The files and directories that it was about, with the line where there is one; absent for a call that never started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<Location>,
    /// How its process ended; absent if it had none, or was ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// The model that the tool asked, and the usage of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_cost: Option<ModelCost>,
    /// How long it ran, in milliseconds.
    pub ms: u64,
}

/// The body of `undo_started`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct UndoStarted {
    /// Whether they are made again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redo: bool,
    /// The turn, if all of its changes are meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<TurnId>,
    /// The call, if only its changes are meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The file, if only its changes are meant.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub file: Option<PathBuf>,
    /// The files, if only the changes of several are meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "crate::path::PathText::<Vec<PathBuf>>")]
    pub files: Vec<PathBuf>,
    /// The change of each file.
    pub changes: Vec<FileChange>,
    /// Changes that stay because an editor or another program may have made them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncertain: Vec<UncertainChange>,
    /// The client that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The process that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
}

/// The body of `background_ended`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct BackgroundEnded {
    /// The command's handle.
    pub background: BackgroundId,
    /// How its process ended by itself; absent if it was ended, or never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// Why it was ended, or could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The end of its output, as far as the model has not read it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// The file that has the whole output, if it was long.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub file: Option<PathBuf>,
    /// The name of what is in `file`; `blob/get` gives it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<BlobId>,
    /// How long it ran, in milliseconds.
    pub ms: u64,
}

/// The body of `permission_requested`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PermissionRequested {
    /// The permission; `permission/answer` takes it.
    pub permission: PermissionId,
    /// The call that waits.
    pub call_id: CallId,
    /// The name of the tool that would run.
    pub tool: String,
    /// The action in one line (a command may have several).
    pub action: String,
    /// The arguments, whole.
    pub input: Value,
    /// Where it will run.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// `sha256:` and the hash of tool, arguments and directory; what runs has this digest.
    pub digest: String,
    /// The rule that asked, or null when the mode did.
    pub rule: Option<String>,
    /// Why the mode asks about what it lets run elsewhere, behind "asks because".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Its place among those of the same answer of the model; absent if it is the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// The rule that `allow_session` and `allow_always` would add, and `reject_always` as one that refuses.
    pub grant: String,
    /// The rules one by one, if the call touches several things: then `grant` names them all, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// The decisions that can be given.
    pub options: Vec<Decision>,
    /// The files and directories that the call is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<Location>,
    /// The changes it would make to the files as they are when it asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FileChange>,
    /// `check` for the check of a turn's answer, which no model asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<Subject>,
}

/// The body of `permission_resolved`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PermissionResolved {
    /// The permission that is closed.
    pub permission: PermissionId,
    /// The option that was chosen.
    pub decision: Decision,
    /// The client that decided, such as `linger@pts/3`, or the rule.
    pub by: String,
    /// The process that sent it; absent for decisions of the daemon and in events of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// The reason, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rules that it adds, where the answer names others than the question.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
}

/// The body of `question_resolved`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct QuestionResolved {
    /// The question that is closed.
    pub question: QuestionId,
    /// The name of the option that was chosen; absent if the question was withdrawn, as with its turn or its call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The fields of a form that was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Who answered, such as `linger@pts/3`, or why it was withdrawn.
    pub by: String,
    /// The process that sent it; absent for decisions of the daemon and in events of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// A word that came with the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
