//! The bodies of events about the session, its prompts, messages and turns.

use super::*;

/// The body of `session_created`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SessionCreated {
    /// The working directory, absolute.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// `provider/model`.
    pub model: String,
    /// The permission mode.
    pub mode: Mode,
    /// A name that a user gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The session that started it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// Its task for its parent, if a call of `delegate` started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated: Option<Delegated>,
    /// How hard the model thinks, where that was said.
    #[serde(default, skip_serializing_if = "Effort::is_auto")]
    pub effort: Effort,
    /// The constant part of its requests: all but the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<PrefixFingerprint>,
    /// The only tools that it has; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Whether it was made for one prompt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_shot: bool,
    /// The agent that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentRole>,
    /// The rules of calls that run in it without asking.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Its own part of the system prompt, beside the daemon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The variables that tools of this session get; the value of a secret one is [`crate::variable::IN_MEMORY`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// The body of `session_changed`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SessionChanged {
    /// `provider/model`, from the next step on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The permission mode, from the next tool call on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How hard the model thinks, from the next step on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// The instruction files that go into the system prompt from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Vec<Instruction>>,
    /// The skills that the system prompt names from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<Skill>>,
    /// The index of notes that the system prompt has from now on; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Its agent, whose file is another one from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentRole>,
    /// The new setup of requests beside the conversation: another model's, or the configuration or linger itself is
    /// another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<PrefixFingerprint>,
    /// The session's own model, which `model` stands in for until the next turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_in_for: Option<String>,
    /// How long a turn waits while its provider cannot answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<Patience>,
    /// The models that stand in, in order, while the session's own cannot answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Vec<String>>,
    /// How a question that no person answers is treated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unattended: Option<Unattended>,
    /// The whole budget from now on; what answers have raised begins again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// All directories that a user has added, from the next call on; file tools treat them like the working directory.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<Vec<PathBuf>>>")]
    pub additional_directories: Option<Vec<PathBuf>>,
    /// The only tools that it has from the next step on; `*` is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// All MCP servers that a client brought for this session, from the next step on; without the values of their variables and
    /// headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Vec<SessionServer>>,
    /// Whether it is in the bin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binned: Option<bool>,
    /// Whether `retention` of the configuration put it there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_retention: bool,
    /// Its working directory from the next turn on, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
    /// With `cwd`: the directory before is gone, and what earlier events say of paths below `from` is meant of those below `to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<Moved>,
    /// The title that a model gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The cost of asking for a title, also where none came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title_cost: Option<ModelCost>,
}

/// The body of `prompt_accepted`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PromptAccepted {
    /// Unique in its session.
    pub prompt: PromptId,
    /// The user's content.
    pub content: Vec<ContentBlock>,
    /// When it takes effect.
    pub when: When,
    /// The client that sent it, such as `linger@pts/3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The process that sent it; absent for decisions of the daemon and in events of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// It asks for a compaction; `content` then says what to keep in view, if anything. It never becomes a message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compact: bool,
    /// The JSON Schema that the answer has to fit; requests of its turn ask for it, and may have other tools than others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The check that has to pass before its turn ends well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// The line that the user typed, if it named a command or a skill: `content` is what that says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The child whose words these are: the result of a task in the background. No user said this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<SessionId>,
    /// The command lines that the command runs before the first step of its turn; each needs its permission then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
    /// The limit of its turn by the skill that it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<SkillLimit>,
    /// Whether its sender waits for its answer: a cancel takes it back (`prompt_unqueued`) in place of making it a draft.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaited: bool,
}

/// The body of `turn_finished`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct TurnFinished {
    /// The prompt that it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptId>,
    /// Why.
    pub stop_reason: StopReason,
    /// The failure or the limit, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The next thing to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Until when the provider that failed asked to be left alone, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_at: Option<u64>,
    /// The answer that fits the schema, if the prompt had one.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub answer: Option<Value>,
    /// The sum over the turn's steps.
    pub usage: Usage,
    /// The sum over the session's turns up to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_usage: Option<Usage>,
    /// About how many tokens the context has, as the provider counted last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// How many tokens the model takes, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// How many steps it took, those of children whose calls it waited for among them.
    pub steps: u32,
}

/// The body of `compaction_started`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct CompactionStarted {
    /// Why.
    pub trigger: Trigger,
    /// The prompt that asked for it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptId>,
    /// The last message that it would replace.
    pub through: MessageId,
    /// How many messages it would replace.
    pub messages: u32,
    /// About how many tokens the context has.
    pub tokens: u64,
}

/// The body of `compacted`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Compacted {
    /// The prompt that asked for it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptId>,
    /// The last message that is replaced; all before it are too.
    pub through: MessageId,
    /// How many messages are replaced; an earlier summary counts as one.
    pub messages: u32,
    /// The summary that the model reads in their place: Markdown with headings for goal, progress, decisions, next steps, files.
    pub summary: String,
    /// About how many tokens the context had.
    pub tokens_before: u64,
    /// About how many it has now.
    pub tokens_after: u64,
    /// The `provider/model` that wrote the summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The usage of the request for the summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// The body of `compaction_failed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct CompactionFailed {
    /// The prompt that asked for it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptId>,
    /// Why, in one line.
    pub reason: String,
    /// About how many tokens the context has.
    pub tokens: u64,
    /// The `provider/model` that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The usage of the attempt, as far as the provider reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// The body of `trimmed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Trimmed {
    /// The calls whose output is left out.
    pub calls: Vec<CallId>,
    /// The messages that had images: the model refused them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<MessageId>,
    /// The messages whose `native` parts and thinking do not go back any more: the provider refused the history. The model
    /// reads of them what another one would; and of all that it writes later, if the one message named here is the first since
    /// that happened before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub native: Vec<MessageId>,
    /// About how many tokens the context had.
    pub tokens_before: u64,
    /// About how many it has now.
    pub tokens_after: u64,
}

/// The body of `notice`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Notice {
    /// How important it is.
    pub level: Level,
    /// The kind of notice, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<NoticeCode>,
    /// One line for people.
    pub text: String,
    /// When the wait ends that the notice tells of, if that is known; of `retry`, the next try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_at: Option<u64>,
    /// When the wait began that the notice tells of, in Unix milliseconds; a restart of the daemon does not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_at: Option<u64>,
}

/// The body of `message`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct MessageAdded {
    /// Unique in its session.
    pub message: MessageId,
    /// The author.
    pub role: Role,
    /// The message's blocks.
    pub content: Vec<ContentBlock>,
    /// Whether it was cut off; it then has what was shown of it, and no calls.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Whether the answer was cut at the token limit; its calls, if it has any, are then not run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Whether its provider paused within a tool that it runs itself; the next step continues it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The prompt that this message is, for a user's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptId>,
    /// The daemon's request in the user's place, where no user sent this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asks: Option<Asks>,
    /// The `provider/model` that wrote it, for an assistant's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The usage of the step, for an assistant's message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// How long the provider took, for an assistant's message; of one that was cut off, until then. Absent where it was cut off
    /// by a cancel or a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
}

/// Tells a value that is `null` from one that is not there.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
