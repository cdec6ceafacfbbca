//! Commands in the background.

use linger_protocol::event::BackgroundEnded;
use linger_protocol::id::BackgroundId;
use linger_protocol::session;
use serde::{Deserialize, Serialize};

use crate::tool::background::describe;

/// The commands in the background that run, or whose end the model was not told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Background {
    /// The commands, the oldest first.
    #[serde(rename = "background", skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<BackgroundState>,
}

/// A command in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundState {
    /// Its handle.
    pub id: BackgroundId,
    /// The command, at most 1 KiB.
    pub command: String,
    /// When it was started, in Unix milliseconds.
    pub started_at: u64,
    /// The words for the model about its end, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

impl Background {
    /// The commands that run.
    pub fn running(&self) -> impl Iterator<Item = &BackgroundState> {
        self.jobs.iter().filter(|job| job.ended.is_none())
    }

    pub(super) fn start(&mut self, id: &BackgroundId, command: &str, started_at: u64) {
        let (id, command) = (id.clone(), command.to_owned());
        self.jobs.push(BackgroundState { id, command, started_at, ended: None });
    }

    pub(super) fn end(&mut self, ended: &BackgroundEnded) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.id == ended.background) {
            job.end(ended);
        }
    }

    /// Forgets the commands that have ended: the model was told.
    pub(super) fn forget_ended(&mut self) {
        self.jobs.retain(|job| job.ended.is_none());
    }
}

impl BackgroundState {
    /// The row of lists.
    pub(super) fn row(&self) -> session::Background {
        let Self { id, command, started_at, .. } = self.clone();
        session::Background { background: id, command, started_at }
    }

    fn end(&mut self, ended: &BackgroundEnded) {
        let BackgroundEnded { background, exit, reason, output, file, .. } = ended;
        let how = describe(exit.as_ref(), reason.as_deref());
        let command = self.command.lines().next().unwrap_or_default();
        let file = file.as_ref().map(|file| format!("; the whole output is in {}", file.display()));
        let output = if output.trim().is_empty() { "" } else { output };
        let file = file.unwrap_or_default();
        self.ended = Some(format!("[{background} has ended: {how}{file} (`{command}`)]\n{output}"));
    }
}
