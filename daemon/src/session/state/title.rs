//! The titles of a session.

use linger_protocol::event::{PromptAccepted, SessionChanged};
use linger_protocol::message::ContentBlock;
use serde::{Deserialize, Serialize};

/// The longest title, in characters: a line of a terminal.
const LONGEST: usize = 72;

/// The titles of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Title {
    /// The beginning of the first prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The title that a model gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub given_title: Option<String>,
}

impl Title {
    /// The title to show.
    pub fn shown(&self) -> Option<&String> {
        self.given_title.as_ref().or(self.title.as_ref())
    }

    /// Takes the beginning of the first prompt.
    pub(super) fn begin(&mut self, accepted: &PromptAccepted) {
        let said = || accepted.content.iter().find_map(ContentBlock::as_text);
        let text = accepted.command.as_deref().or_else(said).unwrap_or_default();
        let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        self.title = Some(line.trim().chars().take(LONGEST).collect());
    }

    pub(super) fn change(&mut self, changed: &SessionChanged) {
        if changed.title.is_some() {
            self.given_title.clone_from(&changed.title);
        }
    }
}
