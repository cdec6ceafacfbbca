//! Answers that have to fit a schema: of one with a text `answer`, as agents have it, people read that and not the JSON around it.
//!
//! The text of such a turn is held back while it looks like JSON, until its message is whole. Where it is something else it is
//! shown as it is. Pure.

use std::collections::HashSet;

use linger_protocol::event::{Delta, EventBody, PromptAccepted};
use linger_protocol::id::PromptId;
use linger_protocol::message::ContentBlock;
use serde_json::Value;

/// The most text that is held back, in bytes; what is longer is shown as it is.
const MAX_HELD: usize = 1 << 20;

/// Which turns have such an answer, and what of it has come.
#[derive(Debug, Default)]
pub(super) struct Shaped {
    /// The prompts that ask for one and whose turns have not ended.
    prompts: HashSet<PromptId>,
    /// The prompt of the turn that runs, if it is one of them.
    running: Option<PromptId>,
    /// The text of the block that is held back.
    held: Option<Delta>,
    /// The block is no such answer.
    passes: bool,
}

impl Shaped {
    /// Keeps up with an event.
    pub(super) fn event(&mut self, body: &EventBody) {
        match body {
            EventBody::PromptAccepted(PromptAccepted { prompt, schema: Some(schema), .. }) if has_answer(schema) => {
                self.prompts.insert(prompt.clone());
            }
            EventBody::TurnStarted { prompt, .. } => {
                self.running = Some(prompt.clone()).filter(|prompt| self.prompts.contains(prompt));
            }
            EventBody::TurnFinished(_) => {
                if let Some(prompt) = self.running.take() {
                    self.prompts.remove(&prompt);
                }
                *self = Self { prompts: std::mem::take(&mut self.prompts), ..Self::default() };
            }
            _ => {}
        }
    }

    /// The text to show of a piece: none while it is held back.
    pub(super) fn text(&mut self, delta: &Delta) -> Option<Delta> {
        if self.running.is_none() {
            return Some(delta.clone());
        }
        let is_next = |held: &Delta| held.message == delta.message && held.block == delta.block;
        if !self.held.as_ref().is_some_and(is_next) {
            (self.held, self.passes) = (Some(Delta { text: String::new(), ..delta.clone() }), false);
        }
        if self.passes {
            return Some(delta.clone());
        }
        let held = self.held.as_mut()?;
        held.text.push_str(&delta.text);
        let begins = held.text.trim_start();
        if (begins.is_empty()
            || begins.starts_with('{')
            || "```json".starts_with(begins)
            || begins.starts_with("```json"))
            && held.text.len() <= MAX_HELD
        {
            return None;
        }
        self.passes = true;
        Some(Delta { text: std::mem::take(&mut held.text), ..held.clone() })
    }

    /// Ends the held-back text, once its message is whole: the answer in it, or the text as it came.
    pub(super) fn end(&mut self) -> Option<Delta> {
        let held = self.held.take().filter(|_| !self.passes)?;
        self.passes = false;
        let text = answer(&held.text).unwrap_or_else(|| held.text.clone());
        Some(Delta { text, ..held })
    }

    /// A whole message with its answer in the place of the JSON.
    pub(super) fn message(&self, content: &[ContentBlock]) -> Option<Vec<ContentBlock>> {
        self.running.as_ref()?;
        let shown = |block: &ContentBlock| match block.as_text().and_then(answer) {
            Some(answer) => ContentBlock::text(answer),
            None => block.clone(),
        };
        Some(content.iter().map(shown).collect())
    }
}

fn has_answer(schema: &Value) -> bool {
    schema.pointer("/properties/answer/type").and_then(Value::as_str) == Some("string")
}

/// The answer in a text that is JSON, also in a fence.
fn answer(text: &str) -> Option<String> {
    let text = text.trim();
    let fenced = text.strip_prefix("```json").and_then(|text| text.strip_suffix("```"));
    let value: Value = serde_json::from_str(fenced.unwrap_or(text)).ok()?;
    Some(value.get("answer")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shaped() -> Shaped {
        let mut shaped = Shaped::default();
        let schema = json!({ "type": "object", "properties": { "answer": { "type": "string" } } });
        let accepted =
            json!({ "kind": "prompt_accepted", "prompt": "p1", "content": [], "when": "queue", "schema": schema });
        let started = json!({ "kind": "turn_started", "prompt": "p1" });
        for event in [accepted, started] {
            shaped.event(&serde_json::from_value(event).unwrap());
        }
        shaped
    }

    fn pieces(texts: &[&str]) -> (String, Option<String>) {
        let mut shaped = shaped();
        let delta = |text: &str| Delta { message: "m1".into(), block: 0, offset: 0, text: text.to_owned() };
        let shown = texts.iter().filter_map(|text| shaped.text(&delta(text))).map(|delta| delta.text).collect();
        (shown, shaped.end().map(|delta| delta.text))
    }

    #[test]
    fn of_an_answer_in_json_its_text_is_shown_once_it_is_whole() {
        let whole = |text: &str| Some(text.to_owned());
        assert_eq!(
            pieces(&["{\"ans", "wer\":\"It\\nis", " so\",\"sources\":[]}"]),
            (String::new(), whole("It\nis so"))
        );
        assert_eq!(pieces(&["``", "`json\n{\"answer\":\"x\"}\n```"]), (String::new(), whole("x")));
        assert_eq!(pieces(&["I ", "look."]), ("I look.".to_owned(), None));
        assert_eq!(pieces(&[" ", "{\"other\":1}"]), (String::new(), whole(" {\"other\":1}")));
        assert_eq!(pieces(&["{\"answer\":\"cut"]), (String::new(), whole("{\"answer\":\"cut")));
        let long = "x".repeat(MAX_HELD);
        assert_eq!(pieces(&["{", &long]).0.len(), MAX_HELD + 1);
    }

    #[test]
    fn other_turns_are_shown_as_they_come() {
        let mut shaped = shaped();
        let content = [ContentBlock::text("{\"answer\":\"x\"}")];
        assert_eq!(shaped.message(&content), Some(vec![ContentBlock::text("x")]));
        let delta = Delta { message: "m1".into(), block: 0, offset: 0, text: "{".to_owned() };
        let finished = json!({ "kind": "turn_finished", "stop_reason": "end_turn", "usage": {}, "steps": 1 });
        shaped.event(&serde_json::from_value(finished).unwrap());
        assert_eq!((shaped.message(&content), shaped.text(&delta)), (None, Some(delta)));
    }
}
