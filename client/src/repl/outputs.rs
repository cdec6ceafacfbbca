//! The outputs of the last tool calls, for `/output`. Pure.

use std::collections::{HashMap, VecDeque};

use linger_protocol::event::{Event, EventBody, ToolFinished, ToolStarted};
use linger_protocol::id::CallId;
use linger_protocol::message::text_of;

/// Outputs that are kept: as far back as a person remembers.
const KEPT: usize = 20;

/// The bytes of one that are kept; the daemon bounds what the model reads well below this.
const MAX_OUTPUT: usize = 256 << 10;

/// The outputs of the last tool calls.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    /// The actions of the running calls.
    started: HashMap<CallId, String>,
    /// The finished calls: what they did, and their output.
    finished: VecDeque<(String, String)>,
}

impl Outputs {
    /// The action and the output of the call before the `n` last ones.
    pub(super) fn get(&self, n: usize) -> Option<&(String, String)> {
        self.finished.get(n)
    }

    pub(super) fn len(&self) -> usize {
        self.finished.len()
    }

    /// Keeps up with an event.
    pub(super) fn event(&mut self, event: &Event) {
        match &event.body {
            EventBody::ToolStarted(ToolStarted { call_id, tool, action, .. }) => {
                self.started.insert(call_id.clone(), format!("{tool}: {action}"));
            }
            EventBody::ToolFinished(ToolFinished { call_id, content, file, .. }) => {
                let Some(action) = self.started.remove(call_id) else { return };
                let mut text = text_of(content);
                let end = (0..=MAX_OUTPUT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
                text.truncate(end.unwrap_or_default());
                if let Some(file) = file {
                    text.push_str(&format!("\n[full output in {}]", file.display()));
                }
                self.finished.push_front((action, text));
                self.finished.truncate(KEPT);
            }
            EventBody::TurnFinished(_) => self.started.clear(),
            _ => {}
        }
    }
}
