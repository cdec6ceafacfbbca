//! Full text search over the messages of all sessions: parameters and result of `session/search`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::SessionId;
use crate::message::Role;

/// `session/search`: the messages that have these words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Search {
    /// Words, all of which a message must have; several in quotes stand in this order, and `begin*` stands for words that begin so.
    pub text: String,
    /// Only sessions with this working directory.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub cwd: Option<PathBuf>,
    /// The most rows; 20 when absent, 200 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// The result of `session/search`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoundMessages {
    /// The messages, the best match first.
    pub rows: Vec<FoundMessage>,
    /// How many stored events the index has not seen yet; it is made beside the work.
    #[serde(default)]
    pub behind: u64,
}

/// A message that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoundMessage {
    /// The session that it belongs to.
    pub session: SessionId,
    /// The session's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The session's working directory.
    #[serde(with = "crate::path::PathText::<PathBuf>")]
    pub cwd: PathBuf,
    /// Its number in the session.
    pub seq: u64,
    /// When it was said, in Unix milliseconds.
    pub at: u64,
    /// Who said it.
    pub role: Role,
    /// The text around the first match, in one line.
    pub snippet: String,
}
