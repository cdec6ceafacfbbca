//! The prefix of a turn's requests: system prompt, tools and wire format. An event names each change,
//! because a changed prefix misses the provider's cache.

use linger_protocol::event::{EventBody, Instruction};
use tokio::task::JoinHandle;

use super::{Turn, TurnEnded};
use crate::config::instructions;
use crate::provider::catalogue::Resolved;
use crate::sys::clock;

impl Turn {
    /// Starts reading the instruction files in the background.
    pub(super) fn read_instructions(&self) -> JoinHandle<Vec<(Instruction, String)>> {
        let (config, workspace) = (self.env.places.config.clone(), self.workspace.clone());
        tokio::task::spawn_blocking(move || instructions::load(Some(&config), &workspace.root, &workspace.cwd))
    }

    /// The system prompt. Emits an event if the instruction files have changed.
    pub(super) fn system(&mut self, loaded: Vec<(Instruction, String)>) -> Result<String, TurnEnded> {
        let read: Vec<_> = loaded.iter().map(|(instruction, _)| instruction.clone()).collect();
        if read != self.instructions {
            self.emit.send(vec![EventBody::instructions_changed(read.clone())], false, None)?;
            self.instructions = read;
        }
        // An event named it when it changed.
        let added = self.workspace.added.now();
        let added: String = added.iter().map(|dir| format!("Added directory: {}\n", dir.display())).collect();
        let day = self.created_at / clock::DAY_MS;
        Ok(format!(
            "{}\nDirectory: {}\n{}Platform: {}\nSession started: {}\n{}",
            self.env.system,
            self.workspace.cwd.display(),
            added,
            std::env::consts::OS,
            clock::date(day),
            instructions::render(&loaded),
        ))
    }

    /// Records a changed prefix before the first request with it.
    pub(super) async fn say_setup(&mut self, resolved: &Resolved) -> Result<(), TurnEnded> {
        let setup = resolved.setup(&self.env.system, self.tools.specs());
        if self.setup.as_ref() == Some(&setup) {
            return Ok(());
        }
        self.setup = Some(setup.clone());
        self.emit.committed_event(EventBody::setup_changed(setup)).await
    }
}
