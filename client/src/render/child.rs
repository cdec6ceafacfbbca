//! Children: a line when one begins, waits or ends, with how to attach; what it says that worked in the background.

use linger_protocol::child::{ChildStatus, ChildUpdate};
use linger_protocol::message::StopReason;
use serde_json::Value;

use super::money;
use super::renderer::Renderer;
use crate::terminal::{Output, clean_line};

/// How much of what a child says is shown, in lines: its session has all of it.
const SAID: usize = 4;

/// How long such a line may be, in characters.
const SAID_LINE: usize = 200;

impl Renderer {
    /// Prints a line when a child starts, waits or ends; its steps are in its own session.
    pub(super) fn child(&mut self, update: &ChildUpdate, out: &mut Vec<Output>) {
        let style = self.settings.style;
        let (agent, child) = (clean_line(&update.agent), clean_line(update.child.as_str()));
        let line = match update.status {
            ChildStatus::Started => format!("{agent} started as {child}; `linger attach {child}` shows it"),
            ChildStatus::Waiting if update.questions.is_empty() => {
                format!("{agent} ({child}) is waiting: `linger attach {child}`")
            }
            ChildStatus::Waiting => {
                let question = update.questions.first().map(|id| clean_line(id.as_str())).unwrap_or_default();
                format!("{agent} ({child}) asks {question}: `/inbox`, `/answer {question} …`, `linger attach {child}`")
            }
            ChildStatus::Finished => format!("{agent} ({child}) {}: {}", end(update), spent(update)),
            ChildStatus::Working | ChildStatus::Unknown => return,
        };
        self.say(&style.dim(&line), out);
    }

    /// Prints a child's answer, in place of the data that its parent reads.
    pub(super) fn say_child_answer(&mut self, text: &str, out: &mut Vec<Output>) {
        let style = self.settings.style;
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let Some(Ok(Value::Object(data))) = values.next() else { return self.say_child(text, out) };
        // Where its changes are, if they are in a git worktree.
        let rest = text.get(values.byte_offset()..).unwrap_or_default().trim();
        if let Some(answer) = data.get("answer").and_then(Value::as_str) {
            self.say_child(answer, out);
        }
        for caveat in data.get("caveats").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            let short: String = caveat.chars().take(SAID_LINE).collect();
            self.say(&style.dim(&format!("  caveat: {}", clean_line(&short))), out);
        }
        self.say_child(rest, out);
    }

    /// Prints the message of a child that worked in the background.
    pub(super) fn say_child(&mut self, text: &str, out: &mut Vec<Output>) {
        let style = self.settings.style;
        for line in text.lines().take(SAID) {
            let short: String = line.chars().take(SAID_LINE).collect();
            let more = if short.len() < line.len() { "…" } else { "" };
            self.say(&style.dim(&format!("  {}{more}", clean_line(&short))), out);
        }
    }
}

/// The current work of a child, for a row that is redrawn.
pub(super) fn now(update: &ChildUpdate) -> String {
    let doing = match update.status {
        ChildStatus::Waiting if !update.questions.is_empty() => "waits for an answer",
        ChildStatus::Waiting => "waits",
        ChildStatus::Finished => end(update),
        _ if update.doing.is_empty() => "works",
        _ => &update.doing,
    };
    let (agent, child, doing) = (clean_line(&update.agent), clean_line(update.child.as_str()), clean_line(doing));
    format!("{agent} ({child}): {doing}; {}", spent(update))
}

/// How the task of a child ended, as `linger ls` has it.
fn end(update: &ChildUpdate) -> &'static str {
    match update.stop_reason {
        None | Some(StopReason::EndTurn) => "is done",
        Some(StopReason::Cancelled) => "was cancelled",
        Some(StopReason::MaxTokens) => "failed (max_tokens)",
        Some(StopReason::MaxSteps) => "failed (max_steps)",
        Some(StopReason::Refusal) => "failed (refusal)",
        Some(StopReason::Error | StopReason::Unknown) => "failed (error)",
    }
}

/// Steps, tokens and costs of a child.
fn spent(update: &ChildUpdate) -> String {
    let steps = if update.steps == 1 { "1 step".to_owned() } else { format!("{} steps", update.steps) };
    let tokens = update.usage.input_tokens.saturating_add(update.usage.output_tokens);
    let cost = Some(money::cost(&update.usage)).filter(|_| update.usage.cost_micros.is_some());
    let cost = cost.map(|cost| format!(", {cost}")).unwrap_or_default();
    format!("{steps}, {} tokens{cost}", money::tokens(tokens))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_childs_end_is_told_as_the_list_of_sessions_has_it() {
        let ended =
            |stop_reason| end(&ChildUpdate { status: ChildStatus::Finished, stop_reason, ..ChildUpdate::default() });
        assert_eq!(ended(Some(StopReason::EndTurn)), "is done");
        assert_eq!(ended(Some(StopReason::Error)), "failed (error)");
        assert_eq!(ended(Some(StopReason::MaxSteps)), "failed (max_steps)");
        assert_eq!(ended(Some(StopReason::Cancelled)), "was cancelled");
    }
}
