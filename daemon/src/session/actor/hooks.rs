//! Hooks that hold up nothing: at the end of a turn, and when something waits for a person.

use serde_json::Map;

use super::*;
use crate::config::HookEvent;
use crate::session::env::hooks::{Hooks, Refusal};

/// The most of them at a time in one session: a step can ask a hundred questions.
const MAX_RUNNING: usize = 8;

/// The hooks that hold up nothing; they end with the actor.
#[derive(Default)]
pub(super) struct RunningHooks(JoinSet<()>);

impl Actor {
    /// Starts the hooks of this event. One that refuses or fails is a notice.
    pub(super) fn start_hooks(&mut self, event: HookEvent, fields: impl FnOnce() -> Map<String, Value>) {
        let hooks = Hooks::of(&self.env.calls, &self.workspace, &self.id);
        while self.hooks.0.try_join_next().is_some() {}
        if !hooks.has(event) {
            return;
        }
        if self.hooks.0.len() >= MAX_RUNNING {
            tracing::warn!(target: "hook", session = %self.id, event = event.name(), "not run: {MAX_RUNNING} hooks run already");
            return;
        }
        let (host, id, fields) = (self.host.clone(), self.id.clone(), fields());
        self.hooks.0.spawn(async move {
            if let Err(Refusal { why, .. }) = hooks.run(event, fields, |_| true).await {
                host.warn(&id, NoticeCode::HookFailed, why);
            }
        });
    }

    /// Starts the hooks of a question.
    pub(super) fn start_question_hooks(&mut self, question: &QuestionId, text: &str, tool: Option<(&str, &Value)>) {
        self.start_hooks(HookEvent::Question, || {
            let mut fields = Map::new();
            fields.insert("question".to_owned(), question.as_str().into());
            fields.insert("message".to_owned(), text.into());
            if let Some((name, input)) = tool {
                fields.insert("tool_name".to_owned(), name.into());
                fields.insert("tool_input".to_owned(), input.clone());
            }
            fields
        });
    }
}
