//! Words for people: a decision, why a turn ended, what it took.

use linger_protocol::message::{StopReason, Usage};
use linger_protocol::permission::Decision;

use super::money;

/// A decision, for people.
pub(crate) fn decision_text(decision: Decision) -> &'static str {
    match decision {
        Decision::AllowOnce => "allowed",
        Decision::AllowSession => "allowed in this session",
        Decision::AllowAlways => "allowed always",
        Decision::RejectOnce => "denied",
        Decision::RejectAlways => "denied always",
        Decision::Cancelled => "not answered: the turn ended",
    }
}

/// The end of a turn, for people.
pub(crate) fn reason(stop_reason: StopReason) -> &'static str {
    match stop_reason {
        StopReason::EndTurn => "done",
        StopReason::MaxTokens => "stopped: the answer reached its token limit",
        StopReason::MaxSteps => "stopped: the turn reached its step limit",
        StopReason::Refusal => "stopped: the model refused",
        StopReason::Cancelled => "cancelled",
        StopReason::Error => "failed",
        StopReason::Unknown => "stopped",
    }
}

/// Tokens, steps and cost of a turn, and the cost of the session so far; nothing of a turn that ended before anything was counted.
pub(crate) fn summary(usage: &Usage, session: Option<&Usage>, steps: u32) -> String {
    if steps == 0 && usage.is_uncounted() {
        let session = session.filter(|usage| !usage.is_uncounted()).map(money::cost).filter(|cost| !cost.is_empty());
        return session.map(|cost| format!("session: {cost}")).unwrap_or_default();
    }
    let steps = if steps == 1 { "1 step".to_owned() } else { format!("{steps} steps") };
    let (turn, session) = (money::cost(usage), session.map(money::cost).unwrap_or_default());
    let turn_cost = if turn.is_empty() { String::new() } else { format!(", {turn}") };
    let session_cost =
        if session.is_empty() || session == turn { String::new() } else { format!("; session: {session}") };
    format!("{}, {steps}{turn_cost}{session_cost}", money::traffic(usage))
}
