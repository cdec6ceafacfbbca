//! Forks and going back, as parts of the state. Pure.
//!
//! A session that went back keeps the events that it left: they are passed over when a context is made of its log. Everything else
//! of the state (settings, ids, sums, changes of files) goes on.

use linger_protocol::tree::{Forked, Rewound};

use super::{OutagePolicy, State};
use crate::session::budget::BudgetState;

/// How often a session may go back and have it remembered: each time is a part of the state, which is stored with each event.
pub const MAX_SKIPPED: usize = 200;

/// Events that are no part of the conversation: those after the first number, up to the `rewound` with the second.
pub type Skipped = (u64, u64);

/// Whether an event is passed over.
pub fn is_skipped(skipped: &[Skipped], seq: u64) -> bool {
    skipped.iter().any(|(after, last)| *after < seq && seq <= *last)
}

/// Whether nothing can go on from after this event, because the session has gone back to before it.
pub fn is_left(skipped: &[Skipped], seq: u64) -> bool {
    skipped.iter().any(|(after, last)| *after < seq && seq < *last)
}

impl State {
    /// The state before the first own event of a fork of this session that leaves it after the event `seq`.
    pub fn before_fork(&self, seq: u64) -> Self {
        Self { head: seq, skipped: kept(&self.skipped, seq), ..Self::default() }
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
            directories: self.directories.clone(),
            budget: self.budget.size,
            unattended: self.unattended,
            patience: self.outage.patience,
            fallback: self.outage.fallback.clone(),
            context_tokens: self.context_tokens(),
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
            cwd: begun.cwd.clone(),
            directories: begun.directories.clone(),
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
            origin: Some(begun.origin.clone()),
            skipped: kept(&self.skipped, begun.origin.seq),
            context: begun.context_tokens.unwrap_or_default(),
            before_turn: begun.before_turn,
            counts: begun.counts,
            ..Self::default()
        };
    }

    /// Folds going back.
    pub(super) fn go_back(&mut self, back: &Rewound) {
        // Those within are passed over with it.
        self.skipped.retain(|(after, _)| *after < back.to);
        self.skipped.push((back.to, self.head));
        self.context = back.context_tokens.unwrap_or_default();
        self.before_turn = self.head.saturating_sub(1);
        if back.files {
            // The model does not know of the changes.
            self.undo.news.clear();
        }
    }
}

fn kept(skipped: &[Skipped], seq: u64) -> Vec<Skipped> {
    skipped.iter().filter(|(_, last)| *last <= seq).copied().collect()
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
        assert_eq!(state.skipped, [(10, 20), (30, 40)]);
        assert_eq!([10, 11, 20, 21].map(|seq| is_skipped(&state.skipped, seq)), [false, true, true, false]);
        // The place to which it went back can be gone on from.
        assert_eq!([10, 11, 19, 20].map(|seq| is_left(&state.skipped, seq)), [false, true, true, false]);
        assert_eq!(state.before_fork(35).skipped, [(10, 20)]);
        assert_eq!(state.before_fork(40).skipped, [(10, 20), (30, 40)]);
        back(&mut state, 50, 5);
        assert_eq!(state.skipped, [(5, 50)]);
    }
}
