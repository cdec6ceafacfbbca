//! The children whose tasks are under way. Their usage is in the sums of their parent.

use linger_protocol::child::{ChildStatus, ChildUpdate};
use linger_protocol::id::{CallId, QuestionId, SessionId};
use serde::{Deserialize, Serialize};

use super::{State, Turn};

/// The children of a session whose tasks are under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Children {
    /// The latest update of each.
    #[serde(rename = "children", skip_serializing_if = "Vec::is_empty")]
    pub under_way: Vec<ChildUpdate>,
}

impl Children {
    /// The child with this id.
    pub fn get(&self, id: &SessionId) -> Option<&ChildUpdate> {
        self.under_way.iter().find(|child| child.child == *id)
    }

    fn put(&mut self, update: &ChildUpdate) {
        match self.under_way.iter_mut().find(|known| known.child == update.child) {
            Some(known) => known.clone_from(update),
            None => self.under_way.push(update.clone()),
        }
    }
}

impl State {
    /// Folds the progress of a child; its usage is the whole, so a repeated update counts once.
    pub(super) fn update_child(&mut self, update: &ChildUpdate, of_turn: bool) {
        let known = self.children.get(&update.child);
        let is_new = known.is_none();
        if is_new && update.status != ChildStatus::Started {
            // Its end was told before.
            return;
        }
        let before = known.map_or((Default::default(), 0), |known| (known.usage, known.steps));
        let (used, steps) = (update.usage.since(&before.0), update.steps.saturating_sub(before.1));
        let has_used = used != Default::default();
        if has_used {
            self.progress.usage += used;
        }
        if of_turn || is_new {
            self.in_turn(|turn| {
                turn.delegated += u32::from(is_new);
                if of_turn {
                    turn.child_steps = turn.child_steps.saturating_add(steps);
                }
                if of_turn && has_used {
                    turn.usage += used;
                }
            });
        }
        self.children.edit().put(update);
        self.forget_finished();
    }

    /// Forgets the children whose tasks have ended, but for those whose call has no result yet: after a restart it asks again.
    pub(super) fn forget_finished(&mut self) {
        let turn = self.turn.as_ref();
        let is_needed = |child: &ChildUpdate| {
            !child.is_finished() || (!child.background && turn.is_some_and(|turn| turn.is_open(&child.call_id)))
        };
        if !self.children.under_way.iter().all(is_needed) {
            self.children.edit().under_way.retain(is_needed);
        }
    }

    /// The children whose result nothing waits for any more: their calls have ended.
    pub fn abandoned(&self) -> impl Iterator<Item = &ChildUpdate> {
        let is_open = |call: &CallId| self.turn.as_ref().is_some_and(|turn| turn.is_open(call));
        let under_way = self.children.under_way.iter();
        under_way.filter(move |child| !child.background && !child.is_finished() && !is_open(&child.call_id))
    }

    /// Whether every call that runs is one of a child that waits for an answer.
    pub(super) fn waits_for_children(&self, turn: &Turn) -> bool {
        let mut running = turn.calls.iter().filter(|call| call.started && !call.finished).peekable();
        let waits = |call: &CallId| {
            let child = self.children.under_way.iter().find(|child| child.call_id == *call);
            child.is_some_and(|child| child.status == ChildStatus::Waiting && !child.questions.is_empty())
        };
        running.peek().is_some() && running.all(|call| waits(&call.id))
    }

    /// The unanswered questions of the session, and then those of its children.
    pub(super) fn all_questions(&self) -> Vec<QuestionId> {
        let own = self.open_questions().map(|asked| asked.id.clone());
        own.chain(self.children.under_way.iter().flat_map(|child| child.questions.iter().cloned())).collect()
    }
}
