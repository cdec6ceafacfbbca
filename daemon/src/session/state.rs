//! The state of a session: a fold over its events, stored next to them.
//!
//! Pure. Here are its parts and queries; `apply` folds events, both live ones and those from the log, so that a loaded state equals
//! a live one.

mod apply;
mod children;
mod question;
#[cfg(test)]
mod tests;
pub mod tree;
mod turn;
pub mod undo;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use linger_protocol::agent::{Role, Skill};
use linger_protocol::child::{ChildUpdate, Delegated};
use linger_protocol::event::Instruction;
use linger_protocol::id::{BackgroundId, QuestionId, SessionId};
use linger_protocol::mcp::SessionServer;
use linger_protocol::message::{StopReason, Usage};
use linger_protocol::patience::Patience;
use linger_protocol::permission::Mode;
use linger_protocol::session::{self, Effort as Thinking, Info, PrefixFingerprint, When};
pub use linger_protocol::tree::IdCounts as Counts;
use linger_protocol::tree::Origin;
use linger_protocol::unattended::Unattended;
use linger_protocol::worktree::Worktree;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::budget::BudgetState;
use crate::config::Settled;
use crate::log::cursor::Position;
use crate::question::permission::hash;
use crate::store::{BINNED, Fold};
pub use question::{GO_ON, Options, QuestionState, Resolution, STOP};
use tree::PassedOver;
pub use turn::{Call, Compaction, Queued, Run, Shape, Turn};
use undo::UndoState;

/// The state of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The seq of the last event.
    pub head: u64,
    /// The working directory.
    pub cwd: PathBuf,
    /// The directories that a user added, without links.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<PathBuf>,
    /// The MCP servers that a client brought for it, without values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<SessionServer>,
    /// `provider/model`.
    pub model: String,
    /// What happens while its provider cannot answer.
    #[serde(default)]
    pub outage: OutagePolicy,
    /// The permission mode.
    pub mode: Mode,
    /// Whether its model was told that the mode is `plan`, and not yet that this is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan_told: bool,
    /// What happens to a question that no person answers.
    #[serde(default, skip_serializing_if = "Unattended::holds")]
    pub unattended: Unattended,
    /// Its budget, and what is spent of it.
    #[serde(default, skip_serializing_if = "BudgetState::is_empty")]
    pub budget: BudgetState,
    /// The only tools that it has; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The effort for the model.
    #[serde(default, skip_serializing_if = "Thinking::is_auto")]
    pub thinking: Thinking,
    /// The fingerprint of the requests' prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<PrefixFingerprint>,
    /// The name.
    pub name: Option<String>,
    /// The beginning of the first prompt.
    pub title: Option<String>,
    /// The title that a model gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_title: Option<String>,
    /// The session that started it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// The session that it goes on from, if it is a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// What of its log is passed over when a context is made of it.
    #[serde(default, skip_serializing_if = "PassedOver::is_empty")]
    pub passed_over: PassedOver,
    /// What it does for its parent, if a call of `delegate` started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated: Option<Delegated>,
    /// The children whose tasks are under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildUpdate>,
    /// Whether it was made for one prompt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_shot: bool,
    /// When it was put into the bin, if it is there, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binned_at: Option<u64>,
    /// The creation time, in Unix milliseconds.
    pub created_at: u64,
    /// In a fork, when its conversation was started, in Unix milliseconds: the system prompt has the day of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<u64>,
    /// The last change, in Unix milliseconds.
    pub updated_at: u64,
    /// Rules that answers added for this session.
    pub grants: Vec<String>,
    /// What the system prompt has beside the daemon's own, as its creator wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added_system: Option<String>,
    /// Rules that refuse, which answers added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
    /// The instruction files of the last system prompt.
    pub instructions: Vec<Instruction>,
    /// The digest of the skills that its model is told of; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<String>,
    /// The index of notes that the system prompt has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryIndex>,
    /// The agent that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Queued prompts, in order.
    pub queue: VecDeque<Queued>,
    /// Whether queued prompts wait for the user, because the last turn was cancelled or failed.
    pub held: bool,
    /// The unfinished turn.
    pub turn: Option<Turn>,
    /// Open questions that block nothing; the turn has the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionState>,
    /// The commands in the background that run, or whose end the model was not told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<BackgroundState>,
    /// What can be undone of the changes of files.
    #[serde(default, skip_serializing_if = "UndoState::is_empty")]
    pub undo: UndoState,
    /// The confirmed settings of the configuration; only in the daemon's own log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Value>,
    /// What is trusted of the files of workspaces; only in the daemon's own log.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub trusted: BTreeMap<PathBuf, Value>,
    /// How the last turn ended.
    pub stop_reason: Option<StopReason>,
    /// The seq of the event before the latest turn.
    pub before_turn: u64,
    /// Tokens over all turns.
    pub usage: Usage,
    /// Whether a tool asked a model without a known price.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unpriced: bool,
    /// The approximate size of the context, in tokens; 0 until a provider has counted it.
    #[serde(default)]
    pub context: u64,
    /// Counters of turns, messages, calls and prompts: the source of their ids.
    pub counts: Counts,
}

/// What happens while a session's provider cannot answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutagePolicy {
    /// How long a turn waits; absent for the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience: Option<Patience>,
    /// The models that stand in; absent for the configuration's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Vec<String>>,
    /// The session's own model, while another one stands in for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_model: Option<String>,
}

/// A command in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundState {
    /// Its handle.
    pub id: BackgroundId,
    /// The command, at most 1 KiB.
    pub command: String,
    /// When it was started, in Unix milliseconds.
    pub started_at: u64,
    /// What the model is to be told of its end, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

/// The index of notes in the system prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryIndex {
    /// The seq of the event that has it.
    pub seq: u64,
    /// The index; read from that event at load.
    #[serde(skip)]
    pub text: Arc<str>,
    /// Whether it has to be read again: the context was compacted, or its event is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_old: bool,
}

/// The digest of the skills that a model is told of; absent without any.
pub fn skills_digest(skills: &[Skill]) -> Option<String> {
    let rows: Vec<_> = skills.iter().map(|skill| json!([skill.name, skill.path, skill.digest])).collect();
    (!rows.is_empty()).then(|| hash(&Value::Array(rows)))
}

impl State {
    /// What it has settled about its calls.
    pub fn settled(&self) -> Settled<'_> {
        Settled { mode: self.mode, grants: &self.grants, denied: &self.denied }
    }

    /// The stored form: JSON whose last field is a checksum of the text before it, in hexadecimal.
    pub fn to_stored(&self) -> String {
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.truncate(text.len().saturating_sub(1));
        let sum = crc32fast::hash(text.as_bytes());
        text + SUM + &format!("{sum:08x}\"}}")
    }

    /// Parses the stored form; `None` if it is malformed or its checksum is wrong.
    pub fn from_stored(text: &str) -> Option<Self> {
        let (body, sum) = text.rsplit_once(SUM)?;
        let sum = u32::from_str_radix(sum.strip_suffix("\"}")?, 16).ok()?;
        if sum == crc32fast::hash(body.as_bytes()) { serde_json::from_str(text).ok() } else { None }
    }

    /// What the store has of it.
    pub fn to_fold(&self) -> Fold {
        Fold::Session {
            // In the bin it leaves its name to others.
            name: self.name.clone().filter(|_| self.binned_at.is_none()),
            cwd: self.cwd.to_string_lossy().into_owned(),
            state: self.stored_name(),
            updated_at: self.updated_at,
            fold: self.to_stored(),
            parent: self.parent.as_ref().map(ToString::to_string),
        }
    }

    /// The queued prompts that do not wait for the end of the turn.
    pub fn steering(&self) -> impl Iterator<Item = &Queued> {
        self.queue.iter().filter(|queued| queued.when != When::Queue && !queued.compact)
    }

    /// The wire's state of the session.
    pub fn doing(&self) -> session::State {
        match &self.turn {
            None => session::State::Idle,
            Some(turn) if turn.offered => session::State::Offered,
            Some(turn) if turn.key_missing || turn.waiting().next().is_some() => session::State::Waiting,
            Some(turn) if self.waits_for_children(turn) => session::State::Waiting,
            Some(_) => session::State::Running,
        }
    }

    /// Whether the turn waits for a provider that cannot answer.
    pub fn waits_for_provider(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.provider_wait.is_some())
    }

    /// Whether a queued prompt should start a turn: after a crash the next daemon must start it.
    pub fn has_due_prompt(&self) -> bool {
        self.turn.is_none() && !self.held && !self.queue.is_empty()
    }

    /// The state's name in the database.
    pub fn stored_name(&self) -> &'static str {
        match &self.turn {
            _ if self.binned_at.is_some() => BINNED,
            _ if self.has_due_prompt() => OWED,
            Some(turn) if turn.unconfigured => UNCONFIGURED,
            // The next daemon records that they have ended.
            _ if self.running_background().next().is_some() => BACKGROUND,
            // It hears how they end.
            None if !self.children.is_empty() => BACKGROUND,
            // As above: it makes the rest.
            None if self.undo.under_way.is_some() => BACKGROUND,
            _ => state_name(self.doing()),
        }
    }

    /// The commands that run in the background.
    pub fn running_background(&self) -> impl Iterator<Item = &BackgroundState> {
        self.background.iter().filter(|job| job.ended.is_none())
    }

    /// All questions, blocking ones first.
    pub fn questions(&self) -> impl Iterator<Item = &QuestionState> {
        self.turn.iter().flat_map(|turn| &turn.questions).chain(&self.questions)
    }

    /// The question with this id, if it is open or its answer is still needed.
    pub fn question(&self, id: &QuestionId) -> Option<&QuestionState> {
        self.questions().find(|question| question.id == *id)
    }

    /// Whether its model is told of skills.
    pub fn has_skills(&self) -> bool {
        self.skills.is_some()
    }

    /// How far it is from a session that a user started.
    pub fn depth(&self) -> u32 {
        self.delegated.as_ref().map_or(0, |delegated| delegated.depth)
    }

    /// The workspace whose files count for it, if that is not the one that it works in.
    pub fn bound_by(&self) -> Option<PathBuf> {
        self.delegated.as_ref()?.bound_by.clone()
    }

    /// Its git worktree, if it has one of its own.
    pub fn worktree(&self) -> Option<&Worktree> {
        self.delegated.as_ref()?.worktree.as_ref()
    }

    /// The unanswered questions.
    pub fn open_questions(&self) -> impl Iterator<Item = &QuestionState> {
        self.questions().filter(|question| question.answer.is_none())
    }

    /// The unanswered questions, each with its digest.
    pub fn waiting(&self) -> BTreeSet<(QuestionId, String)> {
        self.open_questions().map(|asked| (asked.id.clone(), asked.digest.clone())).collect()
    }

    /// The unanswered questions of the turn, each with the time at which it is denied, in Unix milliseconds.
    pub fn deadlines(&self) -> impl Iterator<Item = (&QuestionState, u64)> {
        let waiting = self.turn.iter().flat_map(Turn::waiting);
        // In a state of an earlier version nothing says when it was asked.
        let dated = waiting.filter(|asked| asked.at > 0);
        dated.filter_map(|asked| Some((asked, self.unattended.deadline(asked.at)?)))
    }

    /// The most steps of a turn, where the configuration says `most`.
    pub fn max_steps(&self, most: u32) -> u32 {
        self.budget.size.max_steps.map_or(most, |own| own.min(most))
    }

    /// The approximate size of the context, in tokens, if ever counted.
    pub fn context_tokens(&self) -> Option<u64> {
        Some(self.context).filter(|tokens| *tokens > 0)
    }

    /// The row of `session/list`, as far as the state knows it.
    pub fn info(&self, session: SessionId) -> Info {
        Info {
            session,
            name: self.name.clone(),
            cwd: self.cwd.clone(),
            additional_directories: self.directories.clone(),
            tools: self.tools.clone(),
            model: self.model.clone(),
            mode: self.mode,
            unattended: self.unattended,
            budget: self.budget.size,
            pauses_at: self.budget.pauses_at,
            worked_ms: self.budget.worked_ms,
            effort: self.thinking,
            state: self.doing(),
            provider_wait: self.turn.as_ref().filter(|turn| !turn.offered).and_then(|turn| turn.provider_wait.clone()),
            stop_reason: self.stop_reason,
            queued: self.queue.len() as u32,
            permissions: self.open_questions().filter(|it| it.grant().is_some()).map(|it| it.id.clone()).collect(),
            questions: self.all_questions(),
            background: self.running_background().map(BackgroundState::row).collect(),
            title: self.given_title.clone().or_else(|| self.title.clone()),
            parent: self.parent.clone(),
            origin: self.origin.clone(),
            delegated: self.delegated.clone(),
            children: self.children.clone(),
            one_shot: self.one_shot,
            binned_at: self.binned_at,
            agent: self.role.as_ref().map(|role| role.name.clone()),
            usage: self.usage,
            context_tokens: self.context_tokens(),
            context_window: None,
            size: 0,
            created_at: self.created_at,
            updated_at: self.updated_at,
            cursor: Position::after(self.head).cursor(),
            turn_cursor: Position::after(self.before_turn).cursor(),
            left: None,
            damaged: None,
            unwritten: None,
        }
    }
}

impl BackgroundState {
    fn row(&self) -> session::Background {
        let Self { id, command, started_at, .. } = self.clone();
        session::Background { background: id, command, started_at }
    }
}

/// Before the checksum of a stored state.
const SUM: &str = ",\"sum\":\"";

/// The name in the database of a session with a due prompt ([`State::has_due_prompt`]).
const OWED: &str = "owed";

/// The name in the database of a session without a running turn, with a command in the background or an undo under way.
const BACKGROUND: &str = "background";

/// The name in the database of a session whose turn waits for a good configuration.
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
