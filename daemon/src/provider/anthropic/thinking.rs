//! Enabling thinking and forcing a call; the two exclude each other.
//!
//! Deliberately absent: showing thinking, which clients decide.

use linger_protocol::session::Effort;
use serde_json::{Value, json};

use super::super::compat::Compat;
use super::super::types::Request;
use super::super::{effort, output_schema, wire};
use super::claude::{self, Claude, Form, Off};

/// The smallest thinking budget that the format allows, in tokens.
const MIN_BUDGET: u32 = 1_024;

/// The effort of a model with a budget, if none is set.
const USUAL: Effort = Effort::Medium;

/// Whether `effort` has an effect on a model. `none` has none on a model that cannot think.
pub(super) fn takes(compat: &Compat, model: &str, effort: Effort) -> bool {
    !effort::thinks(effort) || compat.thinking_budget.is_some() || claude::named(model).form != Form::Nothing
}

/// Adds thinking, its display and `tool_choice` to `head`.
pub(super) fn add(head: &mut Value, compat: &Compat, request: &Request<'_>, max_tokens: u32) {
    let known = claude::named(request.model);
    let form = match compat.thinking_budget {
        Some(true) => Form::Budget,
        Some(false) => Form::Adaptive,
        None => known.form,
    };
    let claude = Claude { form, ..known };
    // A call cannot be forced while the model thinks.
    let due = request.output_schema.is_some_and(|output_schema| output_schema.due) && claude.forced;
    let thinking = asked(claude, compat, request, max_tokens).filter(|_| !due);
    let thinks = thinking.as_ref().is_some_and(|thinking| thinking["type"] != "disabled");
    if let Some(thinking) = thinking {
        wire::set(head, "thinking", thinking);
    }
    if let Some(word) = word(claude, request.effort) {
        wire::set(head, "output_config", json!({"effort": word}));
    }
    match request.output_schema {
        Some(_) if due => wire::set(head, "tool_choice", json!({"type": "tool", "name": output_schema::ANSWER})),
        Some(_) if !thinks && claude.forced => wire::set(head, "tool_choice", json!({"type": "any"})),
        _ => {}
    }
}

/// The word for an effort, if it has one.
fn word(claude: Claude, effort: Effort) -> Option<&'static str> {
    let said = effort::thinks(effort) || claude.off == Off::Never;
    let effort = if effort == Effort::Xhigh && !claude.xhigh { Effort::High } else { effort };
    let word = match effort {
        Effort::Auto => return None,
        Effort::None | Effort::Minimal | Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
        Effort::Xhigh => "xhigh",
        Effort::Max => "max",
    };
    (said && claude.form == Form::Adaptive).then_some(word)
}

/// The field `thinking`; absent without an effort, which leaves the model's default.
fn asked(claude: Claude, compat: &Compat, request: &Request<'_>, max_tokens: u32) -> Option<Value> {
    let effort = if request.effort.is_auto() && compat.thinking == Some(true) { USUAL } else { request.effort };
    let budget = effort::budget(effort)?;
    Some(match (effort::thinks(effort), claude.form, claude.off) {
        (_, Form::Nothing, _) | (false, _, Off::Never) => return None,
        (false, _, Off::Disabled) => json!({"type": "disabled"}),
        (false, _, Off::BetweenTools) => json!({"type": "between_tools"}),
        (true, Form::Budget, _) => {
            // Leave tokens for the answer itself.
            let budget = budget.min(max_tokens - max_tokens / 4);
            if budget < MIN_BUDGET {
                return None;
            }
            json!({"type": "enabled", "budget_tokens": budget})
        }
        (true, Form::Adaptive, _) if compat.thinking == Some(false) => json!({"type": "adaptive"}),
        // These models hide thinking unless asked for it.
        (true, Form::Adaptive, _) => json!({"type": "adaptive", "display": "summarized"}),
    })
}
