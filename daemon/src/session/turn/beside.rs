//! What a turn's requests have beside the conversation: the system prompt, and how its provider is spoken to. An event names each
//! change, as from there on requests begin in another way than the one before did.

use linger_protocol::event::{EventBody, Instruction};
use tokio::task::JoinHandle;

use super::{Over, Turn};
use crate::clock;
use crate::provider::catalogue::Resolved;
use crate::session::instructions;

/// What every system prompt begins with.
pub const SYSTEM: &str = include_str!("../system.md");

impl Turn {
    /// Begins to read the instruction files, beside whatever else a turn starts with.
    pub(super) fn read_instructions(&self) -> JoinHandle<Vec<(Instruction, String)>> {
        let (config, workspace) = (self.daemon.places.config.clone(), self.workspace.clone());
        tokio::task::spawn_blocking(move || instructions::load(Some(&config), &workspace.root, &workspace.cwd))
    }

    /// The system prompt. Instruction files are read at the start of each turn; an event says when they have changed.
    pub(super) fn system(&mut self, loaded: Vec<(Instruction, String)>) -> Result<String, Over> {
        let read: Vec<_> = loaded.iter().map(|(instruction, _)| instruction.clone()).collect();
        if read != self.instructions {
            let changed = EventBody::SessionChanged {
                model: None,
                mode: None,
                effort: None,
                name: None,
                instructions: Some(read.clone()),
                setup: None,
            };
            self.emit.send(vec![changed], false, None)?;
            self.instructions = read;
        }
        let day = self.created_at / clock::DAY_MS;
        Ok(format!(
            "{}\nDirectory: {}\nPlatform: {}\nSession started: {}\n{}",
            SYSTEM,
            self.workspace.cwd.display(),
            std::env::consts::OS,
            clock::date(day),
            instructions::render(&loaded),
        ))
    }

    /// Says when this model is asked in another way than before; on disk before it is.
    pub(super) async fn say_setup(&mut self, resolved: &Resolved) -> Result<(), Over> {
        let setup = Some(self.daemon.setup(resolved));
        if setup == self.setup {
            return Ok(());
        }
        self.setup.clone_from(&setup);
        let changed =
            EventBody::SessionChanged { model: None, mode: None, effort: None, name: None, instructions: None, setup };
        self.emit.send(vec![changed], false, None)?;
        self.emit.committed().await
    }
}
