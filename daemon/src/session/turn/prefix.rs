//! The prefix of a turn's requests: system prompt, tools and wire format. An event names each change,
//! because a changed prefix misses the provider's cache.

use std::sync::Arc;

use linger_protocol::event::{EventBody, Instruction};
use tokio::task::JoinHandle;

use super::step::Step;
use super::{Turn, TurnEnded};
use crate::agent::{Entry, Library, Skill, role, skill};
use crate::config::instructions;
use crate::provider::Encoding;
use crate::provider::catalogue::Resolved;
use crate::provider::tools::is_among;
use crate::session::state::{MemoryIndex, skills_digest};
use crate::sys::clock;
use crate::sys::task;
use crate::tool::delegate;
use crate::tool::memory::NAME as MEMORY;
use crate::tool::skill::NAME as SKILL;

/// The files that a system prompt is made of.
#[derive(Default)]
pub(super) struct PromptFiles {
    instructions: Vec<(Instruction, String)>,
    library: Library,
    /// The index of notes.
    index: String,
}

impl Turn {
    /// Starts reading the files that the system prompt is made of, in the background.
    pub(super) fn read_files(&self) -> JoinHandle<PromptFiles> {
        let (services, workspace) = (self.services.clone(), self.workspace.clone());
        task::spawn_blocking(move || {
            let library = Library::load(&services.config, &services.toolbox.agent_places(&workspace));
            let unasked = services.policy.unasked(&workspace);
            let own = services.toolbox.config_dir();
            let instructions = instructions::load(Some(own), &workspace.root, &workspace.cwd, &unasked);
            PromptFiles { instructions, library, index: workspace.notes.index() }
        })
    }

    /// The system prompt, or why there is none: the session's agent is gone. Emits an event for each part that has changed.
    pub(super) fn system(&mut self, files: PromptFiles, is_begun: bool) -> Result<Result<Arc<str>, String>, TurnEnded> {
        let PromptFiles { instructions: loaded, library, index } = files;
        let role = match &self.role {
            None => None,
            Some(role) => match library.agents.iter().find(|entry| entry.name == role.name) {
                Some(entry) => Some(entry),
                None => return Ok(Err(format!("the session's agent `{}` is gone, or not trusted", role.name))),
            },
        };
        if let (Some(entry), Some(before)) = (role, &self.role) {
            let now = entry.role();
            self.role_steps = entry.item.max_steps;
            if now != *before {
                self.emit.send(vec![EventBody::agent_changed(now.clone())], false, None)?;
                self.role = Some(now);
            }
        }
        self.agents = match self.tools.get(delegate::NAME) {
            Some(_) => role::catalogue(&library.agents),
            None => String::new(),
        };
        let only = role.and_then(|entry| entry.item.skills.as_deref());
        let has = |entry: &&Entry<Skill>| only.is_none_or(|only| only.contains(&entry.name));
        let can_read = is_among(self.only.as_deref(), SKILL);
        let told = skill::told(library.skills.iter().filter(has).filter(|_| can_read));
        self.workspace.skills.set(skill::places(told.iter().copied()));
        let named: Vec<_> = told.iter().map(|entry| entry.named()).collect();
        let digest = skills_digest(&named);
        if digest != self.skills {
            self.emit.send(vec![EventBody::skills_changed(named)], false, None)?;
            self.skills = digest;
        }
        let read: Vec<_> = loaded.iter().map(|(instruction, _)| instruction.clone()).collect();
        if read != self.instructions {
            self.emit.send(vec![EventBody::instructions_changed(read.clone())], false, None)?;
            self.instructions = read;
        }
        // An event named it when it changed.
        let added = self.workspace.added.now();
        let added: String = added.iter().map(|dir| format!("Added directory: {}\n", dir.display())).collect();
        let day = self.started_at / clock::DAY_MS;
        let own = match role {
            Some(entry) if entry.item.replaces => entry.item.body.clone() + "\n",
            Some(entry) => format!("{}\n{}\n", self.services.toolbox.system, entry.item.body),
            None => self.services.toolbox.system.clone(),
        };
        let own = match &self.added_system {
            Some(added) => format!("{}\n\n{}\n", own.trim_end(), added.trim()),
            None => own,
        };
        // Kept through the turn, without the room that the text has grown into.
        self.system = format!(
            "{own}\nDirectory: {}\n{}Platform: {}\nSession started: {}\n{}{}{}",
            self.workspace.cwd.display(),
            added,
            std::env::consts::OS,
            clock::date(day),
            instructions::render(&loaded),
            skill::catalogue(&told),
            self.agents,
        )
        .into();
        let index = if is_begun && self.memory.is_none() { String::new() } else { index };
        Ok(Ok(self.with_memory(index)?))
    }

    /// The system prompt with the index of notes: as it was when the session began, or its context was compacted. Emits an event
    /// if it was read now, which `index` is.
    fn with_memory(&mut self, index: String) -> Result<Arc<str>, TurnEnded> {
        if !self.has_memory() {
            return Ok(self.system.clone());
        }
        if self.memory.as_ref().is_none_or(|memory| memory.is_old) {
            let before = self.memory.as_ref().map(|memory| memory.text.clone()).unwrap_or_default();
            if *before != *index {
                self.emit.send(vec![EventBody::memory_read(index.clone())], false, None)?;
            }
            self.memory = Some(MemoryIndex { text: index.into(), ..MemoryIndex::default() });
        }
        let index = self.memory.as_ref().map(|memory| memory.text.clone()).unwrap_or_default();
        if index.is_empty() {
            return Ok(self.system.clone());
        }
        Ok(format!("{}{index}", self.system).into())
    }

    fn has_memory(&self) -> bool {
        self.services.config.memory() && is_among(self.only.as_deref(), MEMORY)
    }

    /// The context was compacted, so the index of notes is read again.
    pub(super) async fn reload_memory(&mut self, step: &mut Step) -> Result<(), TurnEnded> {
        if !self.has_memory() {
            return Ok(());
        }
        let notes = self.workspace.notes.clone();
        let index = task::spawn_blocking(move || notes.index()).await.unwrap_or_default();
        if let Some(memory) = &mut self.memory {
            memory.is_old = true;
        }
        step.system = self.with_memory(index)?;
        step.encoding = Encoding::default();
        Ok(())
    }

    /// Records a changed prefix before the first request with it.
    pub(super) async fn say_setup(&mut self, resolved: &Resolved) -> Result<(), TurnEnded> {
        // An agent that comes or goes is another prefix too.
        let setup = resolved.setup(&format!("{}{}", self.services.toolbox.system, self.agents), self.tools.specs());
        if self.setup.as_ref() == Some(&setup) {
            return Ok(());
        }
        self.setup = Some(setup.clone());
        self.emit.committed_event(EventBody::setup_changed(setup)).await
    }
}
