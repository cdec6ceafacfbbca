//! Calls that were cut off with a checkpoint before them: what they did is found out as soon as no turn runs.

use linger_protocol::checkpoint::{Checkpoint, Diff, Differences};

use super::*;
use crate::session::calls::checkpoints::{CallTime, after};
use crate::session::reading::changes;
use crate::session::state::undo::OpenCheckpoint;
use crate::sys::task;

/// The checkpoint after a call that was cut off; taking it ends with the actor.
#[derive(Default)]
pub(super) struct ClosingCheckpoint(JoinSet<Checkpoint>);

impl ClosingCheckpoint {
    /// Whether none is being taken.
    pub(super) fn is_idle(&self) -> bool {
        self.0.is_empty()
    }

    /// The checkpoint, absent if its task has panicked; pending forever if none is being taken.
    pub(super) async fn next(&mut self) -> Option<Checkpoint> {
        match self.0.join_next().await {
            Some(taken) => taken.ok(),
            None => std::future::pending().await,
        }
    }
}

impl Actor {
    /// Has the checkpoint taken that an interrupted call lacks, unless a turn runs: that does it before anything else.
    pub(super) fn start_checkpoint(&mut self) {
        // A turn that is about to run does it itself.
        let runs =
            self.state.turn.as_ref().is_some_and(|turn| !turn.wait.offered) || !matches!(self.phase, Phase::Idle);
        if runs || !self.checkpoints.is_idle() {
            return;
        }
        let Some(OpenCheckpoint { before, at, .. }) = self.state.undo.open.as_deref().cloned() else { return };
        let (calls, workspace) = (self.env.calls.clone(), self.workspace.clone());
        let time = CallTime::cut_off(at);
        self.checkpoints.0.spawn(async move { after(&calls.checkpoints, &workspace, before, time).await });
    }

    /// Records the checkpoint after an interrupted call, unless that is done.
    pub(super) fn checkpoint_taken(&mut self, taken: Option<Checkpoint>) {
        let open = self.state.undo.open.as_deref().cloned();
        if let (Some(OpenCheckpoint { before, turn, .. }), Some(taken)) = (open, taken)
            && before.call_id == taken.call_id
        {
            let draft = Draft { turn, ..Draft::new(EventBody::Checkpoint(taken)) };
            self.append(vec![draft], Vec::new(), false, None);
        }
    }

    /// Takes that checkpoint now.
    pub(super) async fn close_checkpoint(&mut self) {
        if let Some(OpenCheckpoint { before, at, .. }) = self.state.undo.open.as_deref().cloned() {
            let time = CallTime::cut_off(at);
            let taken = after(&self.env.calls.checkpoints, &self.workspace, before, time).await;
            self.checkpoint_taken(Some(taken));
        }
    }

    /// Says what the turns have changed; a task of its own finds that out.
    pub(super) fn diff(&self, asked: Diff, reply: Reply<Differences>) {
        let (calls, workspace) = (self.env.calls.clone(), self.workspace.clone());
        let written = self.flush();
        task::spawn(async move {
            // What was said last counts too; if it cannot be written, what is stored does.
            let _written = written.await;
            respond(reply, changes::diff(&calls, &workspace, asked).await);
        });
    }
}
