//! How a model is told to think, and when it can be made to call a tool; these two exclude each other.
//!
//! Deliberately absent: how much of the thinking a user sees, which clients decide.

use linger_protocol::session::Effort;
use serde_json::{Value, json};

use super::super::compat::Compat;
use super::super::{Request, effort, shape, wire};

/// The fewest tokens that a model may be given to think with.
const MIN_BUDGET: u32 = 1_024;

/// How hard a model thinks in tokens that is to think, without a word how hard.
const USUAL: Effort = Effort::Medium;

/// Adds to `head` how hard to think, whether to show it, and which tools may be chosen.
pub(super) fn add(head: &mut Value, compat: &Compat, request: &Request<'_>, max_tokens: u32) {
    // A call cannot be demanded of a model that thinks first.
    let free = !request.shape.is_some_and(|shape| shape.due);
    let thinking = asked(compat, request, max_tokens);
    let thinks = thinking.as_ref().is_some_and(|thinking| thinking["type"] != "disabled") && free;
    if let Some(thinking) = thinking.filter(|_| free) {
        wire::set(head, "thinking", thinking);
    }
    if let Some(words) = effort::of(request.effort)
        && compat.thinking_budget != Some(true)
        && effort::thinks(request.effort)
    {
        wire::set(head, "output_config", json!({"effort": words.anthropic}));
    }
    match request.shape {
        Some(shape) if shape.due => {
            wire::set(head, "tool_choice", json!({"type": "tool", "name": shape::ANSWER}));
        }
        Some(_) if !thinks => wire::set(head, "tool_choice", json!({"type": "any"})),
        _ => {}
    }
}

/// The field `thinking`; none where nothing was said of it, so that the model does what it does.
fn asked(compat: &Compat, request: &Request<'_>, max_tokens: u32) -> Option<Value> {
    let effort = if request.effort.is_auto() && compat.thinking == Some(true) { USUAL } else { request.effort };
    let words = effort::of(effort)?;
    if !effort::thinks(effort) {
        return Some(json!({"type": "disabled"}));
    }
    let mut thinking = if compat.thinking_budget == Some(true) {
        let budget = words.budget.min(max_tokens.saturating_sub(1));
        if budget < MIN_BUDGET {
            return None;
        }
        json!({"type": "enabled", "budget_tokens": budget})
    } else {
        json!({"type": "adaptive"})
    };
    if compat.thinking != Some(false) {
        // What newer models think is left out unless it is asked for.
        wire::set(&mut thinking, "display", "summarized");
    }
    Some(thinking)
}
