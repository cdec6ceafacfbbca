//! Forks and going back, as parts of the state. Pure.
//!
//! A session that went back keeps the events that it left: they are passed over when a context is made of its log. Everything else
//! of the state (settings, ids, sums, changes of files) goes on. A compaction that was taken back is passed over, too.

use linger_protocol::permission::Mode;
use linger_protocol::tree::{Forked, Rewound, Uncompacted};
use serde::{Deserialize, Serialize};

use super::{OutagePolicy, State};
use crate::log::Stored;
use crate::session::budget::BudgetState;

/// How often a session may go back and have it remembered: each time is a part of the state, which is stored with each event.
pub const MAX_SKIPPED: usize = 200;

/// Events that are no part of the conversation: those after the first number, up to the `rewound` with the second.
pub type Skipped = (u64, u64);

/// The events of a log that are passed over when a context is made of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PassedOver {
    /// What the session left by going back, in order.
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

    /// What of it was so up to an event.
    fn up_to(&self, seq: u64) -> Self {
        let skipped = self.skipped.iter().filter(|(_, last)| *last <= seq).copied().collect();
        let uncompacted = self.uncompacted.iter().filter(|(_, said)| *said <= seq).copied().collect();
        // It may be after that event, and then all of the log is read.
        Self { skipped, uncompacted, compacted: None, has_refused: self.has_refused }
    }
}

impl State {
    /// The state before the first own event of a fork of this session that leaves it after the event `seq`.
    pub fn before_fork(&self, seq: u64) -> Self {
        Self { head: seq, passed_over: self.passed_over.up_to(seq), ..Self::default() }
    }

    /// The event that begins a fork of it, but for what depends on the point.
    pub fn forked(&self) -> Forked {
        Forked {
            cwd: self.cwd.clone(),
            model: self.outage.own_model.clone().unwrap_or_else(|| self.model.clone()),
            mode: self.mode,
            title: self.title.clone(),
            effort: self.thinking,
            tools: self.tools.clone(),
            agent: self.role.clone(),
            system: self.added_system.clone(),
            additional_directories: self.directories.clone(),
            mcp_servers: self.mcp_servers.clone(),
            budget: self.budget.size,
            unattended: self.unattended,
            patience: self.outage.patience,
            fallback: self.outage.fallback.clone(),
            context_tokens: self.context_tokens(),
            started_at: Some(self.started_at.unwrap_or(self.created_at)),
            before_turn: self.before_turn,
            counts: self.counts,
            ..Forked::default()
        }
    }

    /// Folds the beginning of a fork: the event has everything that counts.
    pub(super) fn begin_fork(&mut self, begun: &Forked, at: u64) {
        let mut budget = BudgetState::default();
        budget.set(begun.budget);
        *self = Self {
            head: self.head,
            updated_at: self.updated_at,
            created_at: at,
            started_at: begun.started_at,
            cwd: begun.cwd.clone(),
            directories: begun.additional_directories.clone(),
            mcp_servers: begun.mcp_servers.clone(),
            model: begun.model.clone(),
            outage: OutagePolicy { patience: begun.patience, fallback: begun.fallback.clone(), own_model: None },
            mode: begun.mode,
            unattended: begun.unattended,
            budget,
            tools: begun.tools.clone(),
            thinking: begun.effort,
            name: begun.name.clone(),
            title: begun.title.clone(),
            role: begun.agent.clone(),
            added_system: begun.system.clone(),
            origin: Some(begun.origin.clone()),
            passed_over: self.passed_over.up_to(begun.origin.seq),
            context: begun.context_tokens.unwrap_or_default(),
            before_turn: begun.before_turn,
            counts: begun.counts,
            ..Self::default()
        };
    }

    /// Folds a compaction that is taken back.
    pub(super) fn uncompact(&mut self, taken: &Uncompacted) {
        self.passed_over.uncompacted.push((taken.compacted, self.head));
        self.passed_over.compacted = None;
        self.context = taken.tokens;
    }

    /// Folds going back.
    pub(super) fn go_back(&mut self, back: &Rewound) {
        // Those within are passed over with it.
        let PassedOver { skipped, uncompacted, compacted, .. } = &mut self.passed_over;
        *compacted = None;
        skipped.retain(|(after, _)| *after < back.to);
        skipped.push((back.to, self.head));
        // What was taken back after that counts again.
        uncompacted.retain(|(_, said)| *said <= back.to);
        self.context = back.context_tokens.unwrap_or_default();
        self.before_turn = self.head.saturating_sub(1);
        // What it was told of mode plan may be among what was left; that the mode is over is told once more than needed at most.
        self.plan_told &= self.mode != Mode::Plan;
        if back.files {
            // The model does not know of the changes.
            self.undo.news.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(state: &mut State, head: u64, to: u64) {
        state.head = head;
        state.go_back(&Rewound { to, ..Rewound::default() });
    }

    #[test]
    fn what_was_left_is_passed_over_and_a_fork_has_what_was_left_before_it() {
        let mut state = State::default();
        back(&mut state, 20, 10);
        back(&mut state, 40, 30);
        assert_eq!(state.passed_over.skipped, [(10, 20), (30, 40)]);
        assert_eq!([10, 11, 20, 21].map(|seq| state.passed_over.is_skipped(seq)), [false, true, true, false]);
        // The place to which it went back can be gone on from.
        assert_eq!([10, 11, 19, 20].map(|seq| state.passed_over.is_left(seq)), [false, true, true, false]);
        assert_eq!(state.before_fork(35).passed_over.skipped, [(10, 20)]);
        assert_eq!(state.before_fork(40).passed_over.skipped, [(10, 20), (30, 40)]);
        back(&mut state, 50, 5);
        assert_eq!(state.passed_over.skipped, [(5, 50)]);
    }

    #[test]
    fn mode_plan_is_told_again_as_what_was_told_may_be_left() {
        for (mode, told) in [(Mode::Plan, false), (Mode::Ask, true)] {
            let mut state = State { mode, plan_told: true, ..State::default() };
            back(&mut state, 20, 10);
            assert_eq!(state.plan_told, told);
        }
    }
}
