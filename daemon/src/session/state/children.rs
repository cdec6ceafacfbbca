//! The fold of children: which are under way, and what they use, which is in the sums of their parent.

use linger_protocol::child::{ChildStatus, ChildUpdate};
use linger_protocol::id::{CallId, QuestionId, SessionId};

use super::{State, Turn};

impl State {
    /// Folds how a child gets on; what it says of its usage is the whole, so a repeated update counts once.
    pub(super) fn child_updated(&mut self, update: &ChildUpdate, of_turn: bool) {
        let at = self.children.iter().position(|known| known.child == update.child);
        let known = at.and_then(|at| self.children.get(at)).cloned();
        if known.is_none() && update.status != ChildStatus::Started {
            // Its end was told before.
            return;
        }
        let before = known.as_ref().map_or((Default::default(), 0), |known| (known.usage, known.steps));
        let (used, steps) = (update.usage.since(&before.0), update.steps.saturating_sub(before.1));
        self.in_turn(|turn| turn.child_steps = turn.child_steps.saturating_add(if of_turn { steps } else { 0 }));
        if used != Default::default() {
            self.usage += used;
            self.in_turn(|turn| turn.usage += if of_turn { used } else { Default::default() });
        }
        match at.and_then(|at| self.children.get_mut(at)) {
            Some(known) => *known = update.clone(),
            None => {
                self.in_turn(|turn| turn.delegated += 1);
                self.children.push(update.clone());
            }
        }
        self.forget_finished();
    }

    /// Forgets the children whose tasks have ended, but for those whose call has no result yet: after a restart it asks again.
    pub(super) fn forget_finished(&mut self) {
        let Self { children, turn, .. } = self;
        let open: Vec<&CallId> =
            turn.iter().flat_map(|turn| &turn.calls).filter(|call| !call.finished).map(|call| &call.id).collect();
        children.retain(|child| !child.is_finished() || (!child.background && open.contains(&&child.call_id)));
    }

    /// The child with this id whose task is under way.
    pub fn child(&self, id: &SessionId) -> Option<&ChildUpdate> {
        self.children.iter().find(|child| child.child == *id)
    }

    /// The children whose result nothing waits for any more: their calls have ended.
    pub fn abandoned(&self) -> impl Iterator<Item = &ChildUpdate> {
        let is_open = |call: &CallId| {
            self.turn.iter().flat_map(|turn| &turn.calls).any(|open| open.id == *call && !open.finished)
        };
        self.children.iter().filter(move |child| !child.background && !child.is_finished() && !is_open(&child.call_id))
    }

    /// Whether every call that runs is one of a child that waits for an answer.
    pub(super) fn waits_for_children(&self, turn: &Turn) -> bool {
        let mut running = turn.calls.iter().filter(|call| call.started && !call.finished).peekable();
        let waits = |call: &CallId| {
            let child = self.children.iter().find(|child| child.call_id == *call);
            child.is_some_and(|child| child.status == ChildStatus::Waiting && !child.questions.is_empty())
        };
        running.peek().is_some() && running.all(|call| waits(&call.id))
    }

    /// The unanswered questions of the session, and then those of its children.
    pub(super) fn all_questions(&self) -> Vec<QuestionId> {
        let own = self.open_questions().map(|asked| asked.id.clone());
        own.chain(self.children.iter().flat_map(|child| child.questions.iter().cloned())).collect()
    }
}
