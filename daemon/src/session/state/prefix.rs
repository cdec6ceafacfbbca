//! The constant part of a session's requests, before the conversation.

use std::sync::Arc;

use linger_protocol::agent::Skill;
use linger_protocol::event::{Instruction, SessionChanged};
use linger_protocol::session::PrefixFingerprint;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::question::permission::hash;

/// The constant part of a session's requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Prefix {
    /// The fingerprint of the whole of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<PrefixFingerprint>,
    /// The instruction files of the last system prompt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<Instruction>,
    /// The digest of the skills that its model is told of; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills: Option<String>,
    /// The index of notes that the system prompt has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryIndex>,
}

/// The index of notes in the system prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryIndex {
    /// The seq of the event that has it.
    pub seq: u64,
    /// The index; read from that event at load.
    #[serde(skip)]
    pub text: Arc<str>,
    /// Whether it has to be read again: the context was compacted, or its event is lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_old: bool,
}

/// The digest of the skills that a model is told of; absent without any.
pub fn skills_digest(skills: &[Skill]) -> Option<String> {
    let rows: Vec<_> = skills
        .iter()
        .map(|skill| json!([skill.name, linger_protocol::path::text(&skill.path), skill.digest]))
        .collect();
    (!rows.is_empty()).then(|| hash(&Value::Array(rows)))
}

impl Prefix {
    /// Folds a change, which is the event `seq`.
    pub(super) fn change(&mut self, changed: &SessionChanged, seq: u64) {
        if let Some(setup) = &changed.setup {
            self.setup = Some(setup.clone());
        }
        if let Some(instructions) = &changed.instructions {
            self.instructions.clone_from(instructions);
        }
        if let Some(skills) = &changed.skills {
            self.skills = skills_digest(skills);
        }
        if let Some(memory) = &changed.memory {
            self.memory = Some(MemoryIndex { seq, text: memory.as_str().into(), is_old: false });
        }
    }
}
