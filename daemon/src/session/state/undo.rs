//! File changes that can be undone and redone: a part of the state, with its bounds. Pure.

use linger_protocol::checkpoint::Checkpoint;
use linger_protocol::event::{Event, EventBody, FileChange, Notice, NoticeCode, Outcome, ToolFinished};
use linger_protocol::id::TurnId;
use linger_protocol::path::shown;
use linger_protocol::worktree::Merged;
use serde::{Deserialize, Serialize};

use super::is_default;

/// The most bytes of former contents of one session, as their changes count them. The oldest steps give way.
pub const MAX_BYTES: u64 = 200 << 20;

/// The most steps: they are part of the state, which is stored with each event.
const MAX_STEPS: usize = 100;

/// The most files that the model is told of by name.
const MAX_TOLD: usize = 50;

/// The most that the model is told at once; it has to read the files again in any case.
const MAX_NEWS: usize = 8;

/// The steps that can be undone, and those that can be done again. The changes themselves are in the events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UndoState {
    /// The steps with changes, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<UndoStep>,
    /// Undone changes that can be redone, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<Undone>,
    /// The seq of an `undo_started` that has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under_way: Option<u64>,
    /// The seq up to which contents were given up.
    #[serde(default, skip_serializing_if = "is_default")]
    pub given_up: u64,
    /// The turn whose own changes took too much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_large: Option<TurnId>,
    /// The checkpoint before a call that runs, or was cut off; absent once there is one after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Box<OpenCheckpoint>>,
    /// Whether people were told that no checkpoint can be taken.
    #[serde(rename = "told", default, skip_serializing_if = "std::ops::Not::not")]
    pub warned_no_checkpoints: bool,
    /// News for the model, at most `MAX_NEWS`; cleared once it was told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub news: Vec<String>,
}

/// A checkpoint before a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCheckpoint {
    /// Taken before the call started.
    pub before: Checkpoint,
    /// The turn of the call.
    pub turn: Option<TurnId>,
    /// When it was recorded, in Unix milliseconds.
    #[serde(default)]
    pub at: u64,
}

/// The changes of one turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoStep {
    /// The turn that made them.
    pub turn: TurnId,
    /// The seq of its first `tool_finished` with changes.
    pub first: u64,
    /// The seq of its last one.
    pub last: u64,
    /// The bytes of their contents.
    pub bytes: u64,
}

/// Undone changes that can be redone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// The seq of its `undone`, which has the changes.
    pub seq: u64,
    /// The step, if all of one was undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<UndoStep>,
    /// The bytes of the contents that its changes name.
    #[serde(default)]
    pub bytes: u64,
}

impl UndoState {
    /// Whether the result of a call changes it.
    pub(super) fn concerns(&self, finished: &ToolFinished) -> bool {
        !finished.changes.is_empty() || self.open.as_ref().is_some_and(|open| open.before.call_id == finished.call_id)
    }

    /// Folds an event about changes of files; `seq` is its number.
    pub(super) fn apply(&mut self, event: &Event, seq: u64) {
        match &event.body {
            EventBody::ToolFinished(ToolFinished { call_id, outcome, changes, .. }) => {
                let is_its = self.open.as_ref().is_some_and(|open| open.before.call_id == *call_id);
                if is_its && !matches!(outcome, Outcome::Unknown | Outcome::Cancelled) {
                    self.open = None;
                }
                if !changes.is_empty() {
                    self.changed(event.turn.as_ref(), seq, changes.iter().map(|change| change.bytes).sum());
                }
            }
            EventBody::Checkpoint(taken) => self.checkpoint(taken, event, seq),
            EventBody::Notice(Notice { code: Some(NoticeCode::NoCheckpoint), .. }) => self.warned_no_checkpoints = true,
            EventBody::UndoStarted(_) => self.under_way = Some(seq),
            EventBody::Undone { redo, step, changes, failed, uncertain } => {
                self.under_way = None;
                let whole = failed.is_empty() && uncertain.is_empty();
                if !redo {
                    let is_meant = |last: &&UndoStep| whole && step.as_ref() == Some(&last.turn);
                    let undone = self.steps.last().filter(is_meant).cloned();
                    self.steps.truncate(self.steps.len() - usize::from(undone.is_some()));
                    if !changes.is_empty() {
                        let bytes = changes.iter().map(|change| change.bytes).fold(0, u64::saturating_add);
                        self.undone.push(Undone { seq, step: undone, bytes });
                        self.make_room();
                    }
                } else if whole && let Some(step) = self.undone.pop().and_then(|undone| undone.step) {
                    // Turns may have come since.
                    let at = self.steps.partition_point(|other| other.first < step.first);
                    self.steps.insert(at, step);
                }
                self.news.extend(undo_news(*redo, changes));
                self.news.drain(..self.news.len().saturating_sub(MAX_NEWS));
            }
            EventBody::Merged(merged) => {
                self.news.push(merge_news(merged));
                self.news.drain(..self.news.len().saturating_sub(MAX_NEWS));
            }
            EventBody::Lost { .. } => {
                let given_up = seq;
                *self = Self { given_up, news: std::mem::take(&mut self.news), ..Self::default() };
            }
            _ => {}
        }
    }

    /// A checkpoint was taken, before a call or after it.
    fn checkpoint(&mut self, taken: &Checkpoint, event: &Event, seq: u64) {
        if taken.since.is_none() {
            let (before, turn, at) = (taken.clone(), event.turn.clone(), event.at);
            self.open = Some(Box::new(OpenCheckpoint { before, turn, at }));
            return;
        }
        self.open = None;
        if taken.changed > 0 {
            self.changed(event.turn.as_ref(), seq, 0);
        }
    }

    /// A call of `turn` has changed a file.
    fn changed(&mut self, turn: Option<&TurnId>, seq: u64, bytes: u64) {
        let Some(turn) = turn.filter(|turn| self.too_large.as_ref() != Some(turn)) else { return };
        match self.steps.last_mut().filter(|last| last.turn == *turn) {
            Some(last) => (last.last, last.bytes) = (seq, last.bytes.saturating_add(bytes)),
            None => self.steps.push(UndoStep { turn: turn.clone(), first: seq, last: seq, bytes }),
        }
        let turn = turn.clone();
        if self.make_room().contains(&turn) {
            self.too_large = Some(turn);
        }
    }

    /// Gives up the oldest steps, and the oldest undone changes, until the rest is within the bounds. Returns the turns of the steps.
    fn make_room(&mut self) -> Vec<TurnId> {
        let mut turns = Vec::new();
        loop {
            let bytes = self.steps.iter().map(|step| step.bytes).chain(self.undone.iter().map(|undone| undone.bytes));
            let are_many = self.steps.len() > MAX_STEPS || self.undone.len() > MAX_STEPS;
            if !are_many && bytes.fold(0, u64::saturating_add) <= MAX_BYTES {
                return turns;
            }
            let (step, undone) = (self.steps.first(), self.undone.first());
            let is_step = match (step, undone) {
                (Some(step), Some(undone)) if self.steps.len() > MAX_STEPS || self.undone.len() <= MAX_STEPS => {
                    self.steps.len() > MAX_STEPS || step.last < undone.seq
                }
                (_, undone) => undone.is_none(),
            };
            if is_step && !self.steps.is_empty() {
                let oldest = self.steps.remove(0);
                self.given_up = self.given_up.max(oldest.last);
                turns.push(oldest.turn);
            } else if !self.undone.is_empty() {
                self.given_up = self.given_up.max(self.undone.remove(0).seq);
            } else {
                return turns;
            }
            // The contents of what came before are given up with it.
            let given_up = self.given_up;
            self.steps.retain(|step| step.last > given_up);
            self.undone.retain(|undone| undone.seq > given_up);
            for undone in &mut self.undone {
                undone.step = undone.step.take().filter(|step| step.first > given_up);
            }
        }
    }
}

/// The news of a merge, for the model.
fn merge_news(merged: &Merged) -> String {
    let Merged { child, agent, branch, commit, files, count, .. } = merged;
    let named: Vec<String> = files.iter().take(MAX_TOLD).map(|file| shown(file)).collect();
    let more = (*count as usize).saturating_sub(named.len());
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "[The user merged {branch}, the work of the agent {agent} in session {child}, into the working directory: commit {commit}. \
         Changed were {}{rest}; read them again before you rely on them.]",
        named.join(", ")
    )
}

/// The news of an undo or a redo, for the model; `None` if no file changed.
fn undo_news(redo: bool, changes: &[FileChange]) -> Option<String> {
    if changes.is_empty() {
        return None;
    }
    let what = if redo { "did again what was undone in" } else { "undid your changes of" };
    let files: Vec<String> = changes.iter().take(MAX_TOLD).map(|change| shown(&change.path)).collect();
    let more = changes.len().saturating_sub(MAX_TOLD);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("[the user {what} these files: {}{more}. Read them again before you rely on them.]", files.join(", ")))
}

#[cfg(test)]
mod tests {
    use linger_protocol::event::ChangeKind;

    use super::*;

    #[derive(Default)]
    struct Fold(UndoState, u64);

    impl Fold {
        fn apply(&mut self, turn: &str, body: EventBody) {
            self.1 += 1;
            let event = Event { body, seq: Some(self.1), at: 0, turn: Some(TurnId::from(turn)) };
            self.0.apply(&event, self.1);
        }

        fn change(&mut self, turn: &str, bytes: u64) {
            let changes = vec![FileChange { bytes, ..change() }];
            self.apply(
                turn,
                EventBody::ToolFinished(ToolFinished {
                    call_id: "c1".into(),
                    is_error: false,
                    outcome: Outcome::Ran,
                    content: Vec::new(),
                    output: Vec::new(),
                    file: None,
                    blob: None,
                    diff: None,
                    changes,
                    locations: Vec::new(),
                    exit: None,
                    model_cost: None,
                    ms: 0,
                }),
            );
        }

        fn undone(&mut self, redo: bool, step: Option<&str>) {
            let (step, changes) = (step.map(TurnId::from), vec![change()]);
            self.apply("", EventBody::Undone { redo, step, changes, failed: Vec::new(), uncertain: Vec::new() });
        }

        fn turns(&self) -> Vec<&str> {
            self.0.steps.iter().map(|step| step.turn.as_str()).collect()
        }
    }

    fn change() -> FileChange {
        FileChange { path: "/a".into(), kind: ChangeKind::Edit, ..FileChange::default() }
    }

    #[test]
    fn steps_are_turns_and_go_back_and_forth_also_after_other_changes() {
        let mut fold = Fold::default();
        for turn in ["t1", "t2", "t2", "t3"] {
            fold.change(turn, 1);
        }
        assert_eq!(fold.turns(), ["t1", "t2", "t3"]);
        fold.undone(false, Some("t3"));
        fold.undone(false, Some("t2"));
        assert_eq!((fold.turns(), fold.0.undone.len()), (vec!["t1"], 2));
        fold.undone(true, None);
        assert_eq!((fold.turns(), fold.0.undone.len()), (vec!["t1", "t2"], 1));
        // A part of a step leaves it there.
        fold.undone(false, None);
        assert_eq!((fold.turns(), fold.0.undone.len()), (vec!["t1", "t2"], 2));
        fold.change("t4", 1);
        assert_eq!((fold.turns(), fold.0.undone.len()), (vec!["t1", "t2", "t4"], 2));
        fold.undone(true, None);
        fold.undone(true, None);
        assert_eq!((fold.turns(), fold.0.undone.len()), (vec!["t1", "t2", "t3", "t4"], 0));
        assert_eq!(fold.0.news.len(), 6);
    }

    #[test]
    fn the_oldest_steps_give_way_and_a_turn_that_is_too_large_has_none() {
        let mut fold = Fold::default();
        fold.change("t1", MAX_BYTES / 2);
        fold.change("t2", MAX_BYTES / 2);
        fold.change("t3", 1);
        assert_eq!((fold.turns(), fold.0.given_up), (vec!["t2", "t3"], 1));
        fold.change("t4", MAX_BYTES + 1);
        fold.change("t4", 1);
        assert_eq!((fold.turns(), fold.0.given_up), (vec![], 4));
        for n in 0..=MAX_STEPS {
            fold.change(&format!("u{n}"), 0);
        }
        assert_eq!((fold.turns().len(), fold.turns()[0]), (MAX_STEPS, "u1"));
    }
}
