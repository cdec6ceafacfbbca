//! Where a session stands: what nearly every event changes. It is in the session's own row, which each append writes.

use linger_protocol::event::{Event, EventBody, SessionChanged};
use linger_protocol::message::{StopReason, Usage};
use linger_protocol::tree::IdCounts;
use serde::{Deserialize, Serialize};

use super::is_default;
use crate::session::state::budget::BudgetState;

/// The most calls of an answer: the decoder's bound on blocks. Calls beyond the run limit have ids too.
const CALLS: u64 = 512;

/// Where a session stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The seq of the last event.
    pub head: u64,
    /// The last change, in Unix milliseconds.
    pub updated_at: u64,
    /// The seq of the event before the latest turn.
    pub before_turn: u64,
    /// How the last turn ended; absent until one has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// Counters of turns, messages, calls and prompts: the source of their ids.
    pub counts: IdCounts,
    /// Tokens over all turns.
    #[serde(skip_serializing_if = "is_default")]
    pub usage: Usage,
    /// Whether a tool asked a model without a known price.
    #[serde(skip_serializing_if = "is_default")]
    pub unpriced: bool,
    /// The approximate size of the context, in tokens; 0 until a provider has counted it.
    #[serde(skip_serializing_if = "is_default")]
    pub context: u64,
    /// The budget, and the time spent of it.
    #[serde(skip_serializing_if = "is_default")]
    pub budget: BudgetState,
}

impl Progress {
    /// The size of the context, if ever counted.
    pub fn context_tokens(&self) -> Option<u64> {
        Some(self.context).filter(|tokens| *tokens > 0)
    }

    /// Notes an event; with `works` the time before it counts as work. A notice between turns, such as that files were changed by
    /// another program, is no use of the session: it stays where it is in the list.
    pub(super) fn advance(&mut self, event: &Event, works: bool) {
        let Some(seq) = event.seq else { return };
        self.head = seq;
        if works {
            self.budget.count(event, event.at.saturating_sub(self.updated_at));
        } else if event.turn.is_none() && matches!(event.body, EventBody::Notice(_)) {
            return;
        }
        self.updated_at = event.at;
    }

    pub(super) fn change(&mut self, changed: &SessionChanged) {
        self.usage += changed.title_cost.as_ref().map(|cost| cost.usage).unwrap_or_default();
        if let Some(budget) = changed.budget {
            self.budget.set(budget);
        }
    }

    /// Begins a turn with the latest event.
    pub(super) fn start_turn(&mut self) {
        self.counts.turns += 1;
        self.before_turn = self.head.saturating_sub(1);
    }

    /// Adds an answer with so many calls.
    pub(super) fn add_answer(&mut self, calls: usize, usage: Usage) {
        self.counts.calls += calls as u64;
        self.usage += usage;
        if usage.input_tokens > 0 {
            self.context = usage.input_tokens + usage.output_tokens;
        }
    }

    /// An event is lost, which may have given each of these ids.
    pub(super) fn lose(&mut self) {
        let IdCounts { turns, messages, calls, prompts, background } = &mut self.counts;
        (*turns, *messages, *prompts, *calls) = (*turns + 1, *messages + 1, *prompts + 1, *calls + CALLS);
        *background += 1;
    }
}
