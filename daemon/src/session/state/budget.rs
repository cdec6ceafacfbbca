//! The spent part of a session's budget: pure, from its events.
//!
//! Cost and tokens are the session's usage. Time is counted here: that of its turns, from event to event, without the time that a
//! turn waits for a person or for the daemon to start again.

use linger_protocol::age;
use linger_protocol::budget::{Budget, spell_dollars};
use linger_protocol::event::{Event, EventBody, MessageAdded, Notice, NoticeCode, Outcome, ToolFinished};
use linger_protocol::message::Usage;
use serde::{Deserialize, Serialize};

/// The budget of a session, and the time that it has spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetState {
    /// The limits as they were set: the size by which an answer raises them.
    pub size: Budget,
    /// The sums at which the next step waits for an answer.
    pub pauses_at: Budget,
    /// Whether a user said to go on although the price is unknown.
    unpriced: bool,
    /// How long turns have run, in milliseconds.
    pub worked_ms: u64,
    /// Time before the latest events that belongs to it only if the daemon did not die in it.
    unsure_ms: u64,
}

impl BudgetState {
    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes another budget, as a whole.
    pub fn set(&mut self, size: Budget) {
        (self.size, self.pauses_at, self.unpriced) = (size, size, false);
    }

    /// Counts the time before `event`, which came `passed` milliseconds after the one before it in a turn that was not waiting.
    pub fn count(&mut self, event: &Event, passed: u64) {
        match &event.body {
            // What the daemon writes of a turn after it died comes first, and a notice that says so last.
            EventBody::Message(MessageAdded { interrupted: true, .. })
            | EventBody::MessageSuperseded { .. }
            | EventBody::ToolFinished(ToolFinished { outcome: Outcome::Unknown, .. }) => {
                self.unsure_ms = self.unsure_ms.saturating_add(passed);
            }
            EventBody::Notice(Notice {
                code: Some(NoticeCode::Resumed | NoticeCode::Offered | NoticeCode::Unconfigured),
                ..
            }) => self.unsure_ms = 0,
            _ => {
                let unsure = std::mem::take(&mut self.unsure_ms);
                self.worked_ms = self.worked_ms.saturating_add(unsure).saturating_add(passed);
            }
        }
    }

    /// The question about a limit that the session has reached. `unpriced`: some of what it used has no price, and that counts as
    /// more than any limit.
    pub fn question(&self, usage: &Usage, unpriced: bool) -> Option<String> {
        let reached = |limit: Option<u64>, sum: u64| limit.filter(|limit| sum >= *limit);
        let cost = usage.cost_micros.unwrap_or_default();
        let tokens = tokens(usage);
        let spent = if let Some(limit) = reached(self.pauses_at.max_cost_micros, cost) {
            format!("it has cost {}, its budget is {}", spell_dollars(cost), spell_dollars(limit))
        } else if let Some(limit) = self.pauses_at.max_cost_micros.filter(|_| unpriced && !self.unpriced) {
            format!("what it has cost is unknown, its budget is {}", spell_dollars(limit))
        } else if let Some(limit) = reached(self.pauses_at.max_tokens, tokens) {
            format!("it has used {tokens} tokens, its budget is {limit}")
        } else if let Some(limit) = reached(self.pauses_at.max_ms, self.worked_ms) {
            format!("it has worked for {}, its budget is {}", spell_time(self.worked_ms), spell_time(limit))
        } else {
            return None;
        };
        Some(format!("the session's budget is spent: {spent}; go on?"))
    }

    /// A user said to go on: each limit that is reached is raised by its own size, as often as the sum needs.
    pub fn raise(&mut self, usage: &Usage) {
        let raised = |size: Option<u64>, now: Option<u64>, sum: u64| match (size, now) {
            (Some(size), Some(now)) if sum >= now && size > 0 => {
                let more = (sum - now) / size + 1;
                Some(now.saturating_add(size.saturating_mul(more)))
            }
            _ => now,
        };
        let cost = usage.cost_micros.unwrap_or_default();
        let had = self.question(usage, false).is_some();
        let Self { size, pauses_at, worked_ms, .. } = self;
        pauses_at.max_cost_micros = raised(size.max_cost_micros, pauses_at.max_cost_micros, cost);
        pauses_at.max_tokens = raised(size.max_tokens, pauses_at.max_tokens, tokens(usage));
        pauses_at.max_ms = raised(size.max_ms, pauses_at.max_ms, *worked_ms);
        // Nothing else was asked about.
        self.unpriced |= !had;
    }
}

/// Tokens of requests and answers together.
fn tokens(usage: &Usage) -> u64 {
    usage.input_tokens.saturating_add(usage.output_tokens)
}

/// A time in whole seconds.
fn spell_time(millis: u64) -> String {
    if millis < 1000 { format!("{millis} ms") } else { age::spell(millis) }
}

#[cfg(test)]
mod tests {
    use linger_protocol::event::Level;
    use linger_protocol::id::MessageId;
    use linger_protocol::message::AnswerEnd;

    use super::*;

    fn usage(tokens: u64, cost: Option<u64>) -> Usage {
        Usage { input_tokens: tokens, cost_micros: cost, ..Usage::default() }
    }

    fn of(size: Budget) -> BudgetState {
        let mut state = BudgetState::default();
        state.set(size);
        state
    }

    #[test]
    fn a_limit_is_raised_by_its_own_size_until_the_sum_fits() {
        let mut state = of(Budget { max_tokens: Some(100), max_cost_micros: Some(2_000_000), ..Budget::default() });
        assert_eq!(state.question(&usage(99, Some(1_999_999)), true), state.question(&usage(0, None), true));
        assert_eq!(state.question(&usage(99, Some(1_999_999)), false), None);
        let asked = state.question(&usage(100, Some(0)), false).unwrap();
        assert_eq!(asked, "the session's budget is spent: it has used 100 tokens, its budget is 100; go on?");
        state.raise(&usage(100, Some(0)));
        assert_eq!((state.pauses_at.max_tokens, state.pauses_at.max_cost_micros), (Some(200), Some(2_000_000)));
        state.raise(&usage(1234, Some(2_500_000)));
        assert_eq!((state.pauses_at.max_tokens, state.pauses_at.max_cost_micros), (Some(1300), Some(4_000_000)));
        assert_eq!(state.size.max_tokens, Some(100));
        assert!(state.question(&usage(1300, Some(0)), false).unwrap().contains("1300 tokens, its budget is 1300"));
    }

    #[test]
    fn an_unknown_price_is_asked_about_once_and_only_with_a_limit_of_cost() {
        assert_eq!(of(Budget { max_tokens: Some(9), ..Budget::default() }).question(&usage(1, None), true), None);
        let mut state = of(Budget { max_cost_micros: Some(500_000), ..Budget::default() });
        assert_eq!(state.question(&usage(5, None), false), None);
        let asked = "the session's budget is spent: what it has cost is unknown, its budget is $0.50; go on?";
        assert_eq!(state.question(&usage(5, None), true).as_deref(), Some(asked));
        state.raise(&usage(5, None));
        assert_eq!((state.question(&usage(5, None), true), state.pauses_at.max_cost_micros), (None, Some(500_000)));
    }

    #[test]
    fn the_time_in_which_the_daemon_was_dead_is_not_worked() {
        let event = |body| Event { body, seq: Some(1), at: 0, turn: None };
        let notice = |code| event(EventBody::notice(Level::Info, code, "said"));
        let cut = || {
            let end = AnswerEnd::Interrupted;
            event(EventBody::assistant_message(MessageId::default(), Vec::new(), None, None, end))
        };
        let mut state = BudgetState::default();
        state.count(&notice(NoticeCode::Reached), 5);
        state.count(&cut(), 1000);
        state.count(&notice(NoticeCode::Resumed), 1);
        assert_eq!(state.worked_ms, 5);
        // An attempt that failed is work.
        state.count(&cut(), 1000);
        state.count(&notice(NoticeCode::Retry), 1);
        assert_eq!(state.worked_ms, 1006);
    }
}
