//! Forks and going back, as parts of the state. Pure.
//!
//! A session that went back keeps the events that it left: they are passed over when a context is made of its log. Everything else
//! of the state (settings, ids, sums, changes of files) goes on. A compaction that was taken back is passed over, too.

use linger_protocol::permission::Mode;
use linger_protocol::tree::{Forked, Rewound, Uncompacted};
use serde::{Deserialize, Serialize};

use super::{Identity, Progress, Settings, State, Title, is_default};
use crate::log::Stored;

/// How often a session may go back and have it remembered: each time is a part of the state.
pub const MAX_SKIPPED: usize = 200;

/// Events that are no part of the conversation: those after the first number, up to the `rewound` with the second.
pub type Skipped = (u64, u64);

/// The events of a log that are passed over when a context is made of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PassedOver {
    /// The events that the session left by going back, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// The compactions that were taken back, each with the number of the event that says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncompacted: Vec<(u64, u64)>,
    /// The number of the latest compaction, if it counts: what lies far enough before it is not read for a context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacted: Option<u64>,
    /// Whether a provider has refused items of its own, which may count for all that follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_refused: bool,
}

impl PassedOver {
    /// Whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether an event is no part of the context.
    pub fn has(&self, stored: &Stored) -> bool {
        self.is_skipped(stored.seq) || self.uncompacted.iter().any(|(compacted, _)| *compacted == stored.seq)
    }

    /// Whether the session left an event by going back.
    pub fn is_skipped(&self, seq: u64) -> bool {
        self.skipped.iter().any(|(after, last)| *after < seq && seq <= *last)
    }

    /// Whether nothing can go on from after this event, because the session has gone back to before it.
    pub fn is_left(&self, seq: u64) -> bool {
        self.skipped.iter().any(|(after, last)| *after < seq && seq < *last)
    }

    /// The part that applied already at an event.
    fn up_to(&self, seq: u64) -> Self {
        let skipped = self.skipped.iter().filter(|(_, last)| *last <= seq).copied().collect();
        let uncompacted = self.uncompacted.iter().filter(|(_, said)| *said <= seq).copied().collect();
        // It may be after that event, and then all of the log is read.
        Self { skipped, uncompacted, compacted: None, has_refused: self.has_refused }
    }
}

/// The parts of a session's history that its model no longer reads, or was told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// The events of its log that are passed over when a context is made of it.
    #[serde(skip_serializing_if = "PassedOver::is_empty")]
    pub passed_over: PassedOver,
    /// Whether its model was told that the mode is `plan`, and not yet that this is over.
    #[serde(skip_serializing_if = "is_default")]
    pub plan_told: bool,
}

impl State {
    /// The state before the first own event of a fork of this session that leaves it after the event `seq`.
    pub fn before_fork(&self, seq: u64) -> Self {
        let history = History { passed_over: self.history.passed_over.up_to(seq), plan_told: false };
        let progress = Progress { head: seq, ..Progress::default() };
        Self { progress, history: history.into(), ..Self::default() }
    }

    /// The event that begins a fork of it, but for what depends on the point.
    pub fn forked(&self) -> Forked {
        let (settings, identity, progress) = (&*self.settings, &*self.identity, &self.progress);
        Forked {
            cwd: identity.cwd.clone(),
            model: settings.outage.own_model.clone().unwrap_or_else(|| settings.model.clone()),
            mode: settings.mode,
            title: self.title.title.clone(),
            effort: settings.thinking,
            tools: settings.tools.clone(),
            agent: identity.role.clone(),
            system: identity.added_system.clone(),
            additional_directories: settings.directories.clone(),
            mcp_servers: settings.mcp_servers.clone(),
            budget: progress.budget.size,
            unattended: settings.unattended,
            patience: settings.outage.patience,
            fallback: settings.outage.fallback.clone(),
            context_tokens: progress.context_tokens(),
            started_at: Some(identity.started_at.unwrap_or(identity.created_at)),
            before_turn: progress.before_turn,
            counts: progress.counts,
            ..Forked::default()
        }
    }

    /// Folds the beginning of a fork: the event has everything that counts.
    pub(super) fn begin_fork(&mut self, begun: &Forked, at: u64) {
        let mut progress = Progress {
            head: self.progress.head,
            updated_at: self.progress.updated_at,
            before_turn: begun.before_turn,
            counts: begun.counts,
            context: begun.context_tokens.unwrap_or_default(),
            ..Progress::default()
        };
        progress.budget.set(begun.budget);
        let passed_over = self.history.passed_over.up_to(begun.origin.seq);
        *self = Self {
            progress,
            identity: Identity::of_fork(begun, at).into(),
            settings: Settings::of_fork(begun).into(),
            title: Title { title: begun.title.clone(), given_title: None }.into(),
            history: History { passed_over, plan_told: false }.into(),
            ..Self::default()
        };
    }

    /// Takes a compaction back in a copy of the state, as the next event would: to see how large the context is then.
    pub fn try_uncompact(&mut self, compacted: u64) {
        self.history.edit().passed_over.uncompacted.push((compacted, self.progress.head + 1));
    }

    /// Folds a compaction that is taken back.
    pub(super) fn uncompact(&mut self, taken: &Uncompacted) {
        let passed_over = &mut self.history.edit().passed_over;
        passed_over.uncompacted.push((taken.compacted, self.progress.head));
        passed_over.compacted = None;
        self.progress.context = taken.tokens;
    }

    /// Folds going back.
    pub(super) fn go_back(&mut self, back: &Rewound) {
        let (head, mode) = (self.progress.head, self.settings.mode);
        let History { passed_over, plan_told } = self.history.edit();
        let PassedOver { skipped, uncompacted, compacted, .. } = passed_over;
        *compacted = None;
        // Those within are passed over with it.
        skipped.retain(|(after, _)| *after < back.to);
        skipped.push((back.to, head));
        // What was taken back after that counts again.
        uncompacted.retain(|(_, said)| *said <= back.to);
        // What it was told of mode plan may be among what was left; that the mode is over is told once more than needed at most.
        *plan_told &= mode != Mode::Plan;
        self.progress.context = back.context_tokens.unwrap_or_default();
        self.progress.before_turn = head.saturating_sub(1);
        if back.files && !self.undo.news.is_empty() {
            // The model does not know of the changes.
            self.undo.edit().news.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(state: &mut State, head: u64, to: u64) {
        state.progress.head = head;
        state.go_back(&Rewound { to, ..Rewound::default() });
    }

    #[test]
    fn what_was_left_is_passed_over_and_a_fork_has_what_was_left_before_it() {
        let mut state = State::default();
        back(&mut state, 20, 10);
        back(&mut state, 40, 30);
        assert_eq!(state.history.passed_over.skipped, [(10, 20), (30, 40)]);
        assert_eq!([10, 11, 20, 21].map(|seq| state.history.passed_over.is_skipped(seq)), [false, true, true, false]);
        // The place to which it went back can be gone on from.
        assert_eq!([10, 11, 19, 20].map(|seq| state.history.passed_over.is_left(seq)), [false, true, true, false]);
        assert_eq!(state.before_fork(35).history.passed_over.skipped, [(10, 20)]);
        assert_eq!(state.before_fork(40).history.passed_over.skipped, [(10, 20), (30, 40)]);
        back(&mut state, 50, 5);
        assert_eq!(state.history.passed_over.skipped, [(5, 50)]);
    }

    #[test]
    fn mode_plan_is_told_again_as_what_was_told_may_be_left() {
        for (mode, told) in [(Mode::Plan, false), (Mode::Ask, true)] {
            let history = History { plan_told: true, ..History::default() }.into();
            let settings = Settings { mode, ..Settings::default() }.into();
            let mut state = State { history, settings, ..State::default() };
            back(&mut state, 20, 10);
            assert_eq!(state.history.plan_told, told);
        }
    }
}
