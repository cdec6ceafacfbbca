//! The prefix of a turn's requests: the system prompt, and how its provider is spoken to. An event
//! names each change, as requests from there on begin otherwise than the one before did.

use linger_protocol::event::{EventBody, Instruction};
use tokio::task::JoinHandle;

use super::{Turn, TurnEnded};
use crate::config::instructions;
use crate::provider::catalogue::Resolved;
use crate::sys::clock;

impl Turn {
    /// Begins to read the instruction files, while the turn does what else it starts with.
    pub(super) fn read_instructions(&self) -> JoinHandle<Vec<(Instruction, String)>> {
        let (config, workspace) = (self.env.places.config.clone(), self.workspace.clone());
        tokio::task::spawn_blocking(move || instructions::load(Some(&config), &workspace.root, &workspace.cwd))
    }

    /// The system prompt. Instruction files are read at the start of each turn; an event says when they have changed.
    pub(super) fn system(&mut self, loaded: Vec<(Instruction, String)>) -> Result<String, TurnEnded> {
        let read: Vec<_> = loaded.iter().map(|(instruction, _)| instruction.clone()).collect();
        if read != self.instructions {
            self.emit.send(vec![EventBody::instructions_changed(read.clone())], false, None)?;
            self.instructions = read;
        }
        let day = self.created_at / clock::DAY_MS;
        Ok(format!(
            "{}\nDirectory: {}\nPlatform: {}\nSession started: {}\n{}",
            self.env.system,
            self.workspace.cwd.display(),
            std::env::consts::OS,
            clock::date(day),
            instructions::render(&loaded),
        ))
    }

    /// Writes down that requests to this model begin otherwise than before, before one does.
    pub(super) async fn say_setup(&mut self, resolved: &Resolved) -> Result<(), TurnEnded> {
        let setup = self.env.setup(resolved, self.tools.specs());
        if self.setup.as_ref() == Some(&setup) {
            return Ok(());
        }
        self.setup = Some(setup.clone());
        self.emit.committed_event(EventBody::setup_changed(setup)).await
    }
}
