//! The state of a session: a fold over its events, stored next to them.
//!
//! Pure. It has families, a file each: a family holds what changes together, and only its own functions change it. `apply` folds
//! events, both live ones and those from the log, so that a loaded state equals a live one; `stored` has the stored form.

mod apply;
mod background;
pub mod budget;
mod children;
pub mod circles;
mod daemon;
mod family;
mod identity;
mod prefix;
mod progress;
mod question;
mod queue;
mod reaction;
pub mod recovery;
mod settings;
mod stored;
mod task;
#[cfg(test)]
mod tests;
mod title;
pub mod tree;
mod turn;
pub mod undo;
pub mod until;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use linger_protocol::id::{QuestionId, SessionId};
use linger_protocol::session::{self, Info};
use serde_json::Value;

use crate::log::cursor::Position;
use crate::store::BINNED;
use background::Background;
pub use background::BackgroundState;
use children::Children;
use daemon::DaemonSettings;
pub use family::Family;
use identity::Identity;
use prefix::Prefix;
pub use prefix::{MemoryIndex, skills_digest};
use progress::Progress;
use question::Questions;
pub use question::{GO_ON, Options, QuestionState, Resolution, STOP};
use queue::PromptQueue;
pub use queue::Queued;
pub use reaction::Reaction;
pub use settings::{OutagePolicy, Settings};
use task::Task;
use title::Title;
use tree::History;
pub use turn::{CallState, Compaction, Effort, Run, SchemaState, Turn};
use undo::UndoState;

/// The state of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Its last event, sums and counters.
    pub progress: Progress,
    /// Its directory, origin and agent.
    pub identity: Family<Identity>,
    /// Its settings, and what its calls may do.
    pub settings: Family<Settings>,
    /// The constant part of its requests.
    pub prefix: Family<Prefix>,
    /// The beginning of its first prompt, and a title from a model.
    pub title: Family<Title>,
    /// The parts of its history that its model no longer reads, or was told.
    pub history: Family<History>,
    /// The queued prompts.
    pub queue: Family<PromptQueue>,
    /// The unfinished turn.
    pub turn: Family<Option<Turn>>,
    /// Open questions that block nothing; the turn has the others.
    pub questions: Family<Questions>,
    /// Its task for its parent, with its git worktree.
    pub task: Family<Task>,
    /// The children whose tasks are under way.
    pub children: Family<Children>,
    /// The commands in the background.
    pub background: Family<Background>,
    /// The changes of files that can be undone or done again.
    pub undo: Family<UndoState>,
    /// Confirmed and trusted settings; only in the daemon's own log.
    pub daemon: Family<DaemonSettings>,
}

impl State {
    /// The wire's state of the session.
    pub fn doing(&self) -> session::State {
        match &*self.turn {
            None => session::State::Idle,
            Some(turn) if turn.wait.offered => session::State::Offered,
            Some(turn) if turn.wait.key_missing || turn.waiting().next().is_some() => session::State::Waiting,
            Some(turn) if self.waits_for_children(turn) => session::State::Waiting,
            Some(_) => session::State::Running,
        }
    }

    /// Whether the turn waits for a provider that cannot answer.
    pub fn waits_for_provider(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.wait.provider.is_some())
    }

    /// The state's name in the database.
    pub fn stored_name(&self) -> &'static str {
        match &*self.turn {
            _ if self.settings.binned_at.is_some() => BINNED,
            _ if self.has_due_prompt() => OWED,
            Some(turn) if turn.wait.unconfigured => UNCONFIGURED,
            // The next daemon records that they have ended.
            _ if self.background.running().next().is_some() => BACKGROUND,
            // It hears how they end.
            None if !self.children.under_way.is_empty() => BACKGROUND,
            // As above: it makes the rest.
            None if self.undo.under_way.is_some() => BACKGROUND,
            _ => state_name(self.doing()),
        }
    }

    /// All questions, blocking ones first.
    pub fn questions(&self) -> impl Iterator<Item = &QuestionState> {
        self.turn.iter().flat_map(|turn| &turn.questions).chain(&self.questions.free)
    }

    /// The question with this id, if it is open or its answer is still needed.
    pub fn question(&self, id: &QuestionId) -> Option<&QuestionState> {
        self.questions().find(|question| question.id == *id)
    }

    /// Whether its model is told of skills.
    pub fn has_skills(&self) -> bool {
        self.prefix.skills.is_some()
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
        dated.filter_map(|asked| Some((asked, self.settings.unattended.deadline(asked.at)?)))
    }

    /// The most steps of a turn, where the configuration says `most`.
    pub fn max_steps(&self, most: u32) -> u32 {
        self.progress.budget.size.max_steps.map_or(most, |own| own.min(most))
    }

    /// The seq of the event that has the index of notes, if there is one.
    pub fn memory_seq(&self) -> Option<u64> {
        self.prefix.memory.as_ref().map(|memory| memory.seq)
    }

    /// Restores the index of notes, which is stored in its event alone; without a text it is read again with the next turn.
    pub fn restore_memory(&mut self, text: Option<String>) {
        if let Some(memory) = &mut self.prefix.edit().memory {
            match text {
                Some(text) => memory.text = text.into(),
                None => memory.is_old = true,
            }
        }
    }

    /// The seq of the event that has the output schema of the turn, if there is one.
    pub fn schema_seq(&self) -> Option<u64> {
        self.turn.as_ref()?.demands.output_schema.as_ref().map(|asked| asked.seq)
    }

    /// Restores the output schema of the turn, which is stored in its event alone.
    pub fn restore_schema(&mut self, schema: Value) {
        self.in_turn(|turn| {
            if let Some(asked) = &mut turn.demands.output_schema {
                asked.schema = Arc::new(schema);
            }
        });
    }

    /// Fills in what the session's row knows, of a session whose first event and state are lost.
    pub fn stand_in(&mut self, cwd: PathBuf, name: Option<String>) {
        self.identity.edit().cwd = cwd;
        let settings = self.settings.edit();
        settings.name = settings.name.take().or(name);
    }

    /// Leaves its name to another session.
    pub fn give_up_name(&mut self) {
        self.settings.edit().name = None;
    }

    /// The row of `session/list`, as far as the state knows it.
    pub fn info(&self, session: SessionId) -> Info {
        Info {
            session,
            name: self.settings.name.clone(),
            cwd: self.identity.cwd.clone(),
            additional_directories: self.settings.directories.clone(),
            tools: self.settings.tools.clone(),
            model: self.settings.model.clone(),
            mode: self.settings.mode,
            unattended: self.settings.unattended,
            budget: self.progress.budget.size,
            pauses_at: self.progress.budget.pauses_at,
            worked_ms: self.progress.budget.worked_ms,
            effort: self.settings.thinking,
            state: self.doing(),
            provider_wait: self
                .turn
                .as_ref()
                .filter(|turn| !turn.wait.offered)
                .and_then(|turn| turn.wait.provider.clone()),
            stop_reason: self.progress.stop_reason,
            queued: self.queue.prompts.len() as u32,
            drafts: self.queue.drafts.len() as u32,
            permissions: self.open_questions().filter(|it| it.grant().is_some()).map(|it| it.id.clone()).collect(),
            questions: self.all_questions(),
            background: self.background.running().map(BackgroundState::row).collect(),
            title: self.title.shown().cloned(),
            parent: self.identity.parent.clone(),
            origin: self.identity.origin.clone(),
            delegated: self.task.delegated.clone(),
            children: self.children.under_way.clone(),
            one_shot: self.identity.one_shot,
            binned_at: self.settings.binned_at,
            by_retention: self.settings.binned_at.is_some() && self.settings.by_retention,
            agent: self.identity.role.as_ref().map(|role| role.name.clone()),
            usage: self.progress.usage,
            context_tokens: self.progress.context_tokens(),
            context_window: None,
            size: 0,
            created_at: self.identity.created_at,
            updated_at: self.progress.updated_at,
            cursor: Position::after(self.progress.head).cursor(),
            turn_cursor: Position::after(self.progress.before_turn).cursor(),
            left: None,
            damaged: None,
            unwritten: None,
        }
    }
}

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

/// Whether a value need not be stored.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
