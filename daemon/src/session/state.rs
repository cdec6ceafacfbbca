//! What a session is right now: a fold over its events, kept beside them in the store.
//!
//! Pure. What it consists of and what it says of itself is here. What each event changes in it is in `apply`, which makes a state that
//! is loaded and one that is lived through, so that they are the same.

mod apply;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use linger_protocol::event::{AfterCrash, EventBody, Instruction};
use linger_protocol::id::{CallId, MessageId, PromptId, QuestionId, SessionId, TurnId};
use linger_protocol::message::{ContentBlock, StopReason, Usage};
use linger_protocol::permission::{Decision, Mode};
use linger_protocol::session::{self, Effort as Thinking, Info, Setup, When};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::compaction::Effort;
use crate::log::cursor::Position;
use crate::store::Fold;

/// A turn that met this many crashes without finishing a step is offered, not resumed.
const MAX_CRASHES: u32 = 3;

/// The state of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Number of the last event.
    pub head: u64,
    /// Where it works.
    pub cwd: PathBuf,
    /// `provider/model`.
    pub model: String,
    /// The permission mode.
    pub mode: Mode,
    /// How hard the model thinks.
    #[serde(default, skip_serializing_if = "Thinking::is_auto")]
    pub thinking: Thinking,
    /// What its requests have beside the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<Setup>,
    /// The name.
    pub name: Option<String>,
    /// The beginning of the first prompt.
    pub title: Option<String>,
    /// The session that started it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// When it was created, in Unix milliseconds.
    pub created_at: u64,
    /// When it last changed.
    pub updated_at: u64,
    /// Rules that answers allowed for this session.
    pub grants: Vec<String>,
    /// The instruction files that the system prompt was last made of.
    pub instructions: Vec<Instruction>,
    /// Prompts that wait, in order.
    pub queue: VecDeque<Queued>,
    /// Queued prompts wait for the user's next word: the last turn was cancelled or failed.
    pub held: bool,
    /// The turn under way.
    pub turn: Option<Turn>,
    /// Open questions that hold up nothing; those that do are the turn's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionState>,
    /// How the last turn ended.
    pub stop_reason: Option<StopReason>,
    /// Number of the event before the latest turn.
    pub before_turn: u64,
    /// Tokens over all turns.
    pub usage: Usage,
    /// About how many tokens the context has; 0 while no provider has counted them.
    #[serde(default)]
    pub context: u64,
    /// How many turns, messages, calls and prompts there have been: the source of their ids.
    pub counts: Counts,
}

/// Sources of ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Turns.
    pub turns: u64,
    /// Messages.
    pub messages: u64,
    /// Tool calls.
    pub calls: u64,
    /// Prompts.
    pub prompts: u64,
}

/// A prompt that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queued {
    /// The prompt.
    pub prompt: PromptId,
    /// The number of its `prompt_accepted`.
    pub seq: u64,
    /// What the user said; stored in that event, and read from it when the session is loaded.
    #[serde(skip)]
    pub content: Vec<ContentBlock>,
    /// When it is taken up.
    pub when: When,
    /// It asks for a compaction, and does not become a message.
    #[serde(default)]
    pub compact: bool,
    /// The JSON Schema that the answer has to fit; stored like the content.
    #[serde(skip)]
    pub schema: Option<Arc<Value>>,
}

/// What the answer of a turn has to fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    /// The number of the `prompt_accepted` that has the schema.
    pub seq: u64,
    /// The schema; read from that event when the session is loaded.
    #[serde(skip)]
    pub schema: Arc<Value>,
    /// The model was told it in words.
    pub said: bool,
    /// How many answers did not fit.
    pub misfits: u32,
}

/// A turn under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The turn.
    pub id: TurnId,
    /// Steps that have finished.
    pub steps: u32,
    /// Tokens so far.
    pub usage: Usage,
    /// The calls of the last assistant message, until their results are a message.
    pub calls: Vec<Call>,
    /// Questions that hold up one of `calls` or the turn, and the answers of those that have one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionState>,
    /// Times that the daemon died without a step finishing in between.
    pub crashes: u32,
    /// It is not taken up by itself.
    pub offered: bool,
    /// It is offered only until there is a configuration that can be used.
    #[serde(default)]
    pub unconfigured: bool,
    /// The daemon ended in good order; taking the turn up again is no crash.
    pub paused: bool,
    /// It waits for a key.
    pub key_missing: bool,
    /// The last answer was cut at the token limit: nobody knows whether its calls are whole.
    pub cut: bool,
    /// The last answer is not over: the next step goes on with it.
    #[serde(default)]
    pub goes_on: bool,
    /// An interrupted message that is not superseded yet: the step has to be repeated.
    pub interrupted: Option<MessageId>,
    /// The prompt that asks for the compaction which is all that it does, unless another comes.
    #[serde(default)]
    pub compacts: Option<PromptId>,
    /// The compaction under way.
    #[serde(default)]
    pub compaction: Option<Compaction>,
    /// What was done to make room for the step under way.
    #[serde(default)]
    pub effort: Effort,
    /// What its answer has to fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
}

/// A compaction under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    /// The prompt that asked for it, if one did.
    pub prompt: Option<PromptId>,
    /// About how many tokens the context has.
    pub tokens: u64,
}

/// A tool call of the step under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The call.
    pub id: CallId,
    /// Whether it has started.
    pub started: bool,
    /// What a restart does with it once it has.
    #[serde(default, skip_serializing_if = "AfterCrash::is_unknown")]
    pub after_crash: AfterCrash,
    /// Whether it has its result.
    pub finished: bool,
}

/// A question that is open, or whose answer is still needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuestionState {
    /// The question.
    pub id: QuestionId,
    /// The number of the event that asked it.
    pub seq: u64,
    /// The call that it holds up; absent if it holds up the turn, or nothing.
    pub call: Option<CallId>,
    /// The hash of what was asked.
    pub digest: String,
    /// What an answer may say.
    pub options: Options,
    /// The answer, once there is one.
    pub answer: Option<Resolution>,
}

/// What an answer to a question may say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Options {
    /// A decision about a call; one for longer adds this rule.
    Permission(String),
    /// One of these names.
    Choice(Vec<String>),
}

/// How a question ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolution {
    /// The name of the option that was chosen; absent if the question was withdrawn.
    pub answer: Option<String>,
    /// Who answered, or why it was withdrawn.
    pub by: String,
    /// When, in Unix milliseconds.
    pub at: u64,
    /// What was said with it.
    pub reason: Option<String>,
}

impl QuestionState {
    /// The rule that a decision for longer adds, if it is a permission.
    pub fn grant(&self) -> Option<&str> {
        match &self.options {
            Options::Permission(grant) => Some(grant),
            Options::Choice(_) => None,
        }
    }

    /// The names that an answer may have.
    pub fn names(&self) -> Vec<&str> {
        match &self.options {
            Options::Permission(_) => Decision::ANSWERS.map(Decision::name).to_vec(),
            Options::Choice(names) => names.iter().map(String::as_str).collect(),
        }
    }

    /// The event that resolves it; `answer` is one of its names, or absent if it is withdrawn.
    pub fn resolved(&self, answer: Option<String>, by: String, reason: Option<String>) -> EventBody {
        let question = self.id.clone();
        match &self.options {
            Options::Permission(_) => {
                let decision = answer.and_then(|name| Decision::answer(&name)).unwrap_or(Decision::Cancelled);
                EventBody::PermissionResolved { permission: question, decision, by, reason }
            }
            Options::Choice(_) => EventBody::QuestionResolved { question, answer, by, reason },
        }
    }
}

impl State {
    /// As it is stored: JSON, whose last field is a checksum of what comes before it, in hexadecimal digits.
    pub fn to_stored(&self) -> String {
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.truncate(text.len().saturating_sub(1));
        let sum = crc32fast::hash(text.as_bytes());
        text + SUM + &format!("{sum:08x}\"}}")
    }

    /// Reads what was stored; nothing if it is not what was written.
    pub fn from_stored(text: &str) -> Option<Self> {
        let (body, sum) = text.rsplit_once(SUM)?;
        let sum = u32::from_str_radix(sum.strip_suffix("\"}")?, 16).ok()?;
        if sum == crc32fast::hash(body.as_bytes()) { serde_json::from_str(text).ok() } else { None }
    }

    /// What the store has of it.
    pub fn to_fold(&self) -> Fold {
        Fold::Session {
            name: self.name.clone(),
            cwd: self.cwd.to_string_lossy().into_owned(),
            state: self.stored_name(),
            updated_at: self.updated_at,
            fold: self.to_stored(),
            parent: self.parent.as_ref().map(ToString::to_string),
        }
    }

    /// The prompts that do not wait for the end of the turn under way.
    pub fn steering(&self) -> impl Iterator<Item = &Queued> {
        self.queue.iter().filter(|queued| queued.when != When::Queue && !queued.compact)
    }

    /// What it is doing, for everybody.
    pub fn doing(&self) -> session::State {
        match &self.turn {
            None => session::State::Idle,
            Some(turn) if turn.offered => session::State::Offered,
            Some(turn) if turn.key_missing || turn.waiting().next().is_some() => session::State::Waiting,
            Some(_) => session::State::Running,
        }
    }

    /// Whether a turn should start that has not yet: a daemon that dies now must start it when it is back.
    pub fn is_owed(&self) -> bool {
        self.turn.is_none() && !self.held && !self.queue.is_empty()
    }

    /// What it is doing, as it stands in the database.
    pub fn stored_name(&self) -> &'static str {
        match &self.turn {
            _ if self.is_owed() => OWED,
            Some(turn) if turn.unconfigured => UNCONFIGURED,
            _ => state_name(self.doing()),
        }
    }

    /// All questions, those that hold something up first.
    pub fn questions(&self) -> impl Iterator<Item = &QuestionState> {
        self.turn.iter().flat_map(|turn| &turn.questions).chain(&self.questions)
    }

    /// The question with this id, if it is open or its answer is still needed.
    pub fn question(&self, id: &QuestionId) -> Option<&QuestionState> {
        self.questions().find(|question| question.id == *id)
    }

    /// The questions that wait for an answer.
    pub fn open_questions(&self) -> impl Iterator<Item = &QuestionState> {
        self.questions().filter(|question| question.answer.is_none())
    }

    /// The questions that wait for an answer, each with the digest of what was shown.
    pub fn waiting(&self) -> BTreeSet<(QuestionId, String)> {
        self.open_questions().map(|asked| (asked.id.clone(), asked.digest.clone())).collect()
    }

    /// About how many tokens the context has, if that was ever counted.
    pub fn context_tokens(&self) -> Option<u64> {
        Some(self.context).filter(|tokens| *tokens > 0)
    }

    /// The row of `session/list`, but for what only others know.
    pub fn info(&self, session: SessionId) -> Info {
        Info {
            session,
            name: self.name.clone(),
            cwd: self.cwd.clone(),
            model: self.model.clone(),
            mode: self.mode,
            effort: self.thinking,
            state: self.doing(),
            stop_reason: self.stop_reason,
            queued: self.queue.len() as u32,
            permissions: self.open_questions().filter(|it| it.grant().is_some()).map(|it| it.id.clone()).collect(),
            questions: self.open_questions().map(|asked| asked.id.clone()).collect(),
            title: self.title.clone(),
            parent: self.parent.clone(),
            usage: self.usage,
            context_tokens: self.context_tokens(),
            context_window: None,
            size: 0,
            created_at: self.created_at,
            updated_at: self.updated_at,
            cursor: Position::after(self.head).cursor(),
            turn_cursor: Position::after(self.before_turn).cursor(),
            damaged: None,
            unwritten: None,
        }
    }
}

impl Call {
    /// Whether it ran when the turn's task went, and its outcome cannot be known any more.
    pub fn is_lost(&self) -> bool {
        self.started && !self.finished && self.after_crash.is_unknown()
    }
}

impl Turn {
    /// The questions that hold something up and wait for an answer.
    pub fn waiting(&self) -> impl Iterator<Item = &QuestionState> {
        self.questions.iter().filter(|asked| asked.answer.is_none())
    }

    /// Whether its next step has to wait for an answer.
    pub fn is_held(&self) -> bool {
        self.waiting().any(|asked| asked.call.is_none())
    }

    /// The permission that a call needed.
    pub fn permission(&self, call: &CallId) -> Option<&QuestionState> {
        self.questions.iter().find(|asked| asked.grant().is_some() && asked.call.as_ref() == Some(call))
    }

    /// Forgets the questions of calls that are no longer open.
    fn forget_closed(&mut self) {
        let Self { calls, questions, .. } = self;
        questions.retain(|asked| asked.call.as_ref().is_none_or(|of| calls.iter().any(|call| call.id == *of)));
    }

    /// Whether it met too many crashes to be taken up by itself once more.
    pub fn is_hopeless(&self) -> bool {
        // The one that it was found after counts.
        self.was_cut() && self.crashes + 1 >= MAX_CRASHES
    }

    /// Whether an end of the daemon now is a crash of this turn: one that was told beforehand is none, and neither is one that finds
    /// it waiting for an answer, however often.
    pub fn was_cut(&self) -> bool {
        !self.paused && self.waiting().next().is_none()
    }
}

/// Before the checksum of a stored state.
const SUM: &str = ",\"sum\":\"";

/// The name in the database of a session that owes its user a turn ([`State::is_owed`]).
const OWED: &str = "owed";

/// The name in the database of a session whose turn goes on when there is a configuration that can be used.
pub const UNCONFIGURED: &str = "unconfigured";

/// The name of a state in the database.
fn state_name(state: session::State) -> &'static str {
    match state {
        session::State::Idle => "idle",
        session::State::Running => "running",
        session::State::Waiting => "waiting",
        session::State::Offered => "offered",
    }
}
