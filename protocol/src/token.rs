//! Tokens and grants: what a connection may do that proves itself by a token. Parameters and results of `token/*`.

use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{SessionId, TokenId};
use crate::permission::Mode;

/// The prefix of a token's text; 43 characters of base64url follow, which are 32 random bytes.
pub const TOKEN: &str = "lng_";

/// The prefix of a code, which `token/exchange` takes once; the rest is as a token's.
pub const CODE: &str = "lngc_";

/// How long a code of `token/mint` is good, in milliseconds: a person opens a page with it.
pub const CODE_MS: u64 = 5 * 60 * 1000;

/// How many days a token lasts when nothing is said.
pub const DAYS: u32 = 30;

/// The most days: ten years.
pub const MAX_DAYS: u32 = 3650;

/// One thing that a grant allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Can {
    /// Read: sessions and their events, questions, models, tools, usage. All others include it.
    Observe,
    /// Create sessions, prompt, cancel, continue, fork.
    Speak,
    /// Prompt with `steer` or `interrupt`, set model, effort and mode, compact, undo and rewind.
    Steer,
    /// Answer permissions for changes of files in the workspace, forms and choices.
    AnswerEdits,
    /// Answer any question but those of the daemon itself.
    AnswerCommands,
    /// All that a user's process may, but for tokens, trust, keys and the configuration.
    Administer,
}

impl Can {
    /// All of them, the least first.
    pub const ALL: [Self; 6] =
        [Self::Observe, Self::Speak, Self::Steer, Self::AnswerEdits, Self::AnswerCommands, Self::Administer];

    /// The rights of a token when none are named.
    pub const USUAL: [Self; 2] = [Self::Observe, Self::Speak];

    /// The rights that an MCP server of the daemon can be granted; the others are for processes that the daemon did not start.
    pub const OF_SERVERS: [Self; 2] = [Self::Observe, Self::Speak];

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Speak => "speak",
            Self::Steer => "steer",
            Self::AnswerEdits => "answer_edits",
            Self::AnswerCommands => "answer_commands",
            Self::Administer => "administer",
        }
    }

    /// Whether a grant with this has `other` too.
    pub fn includes(self, other: Self) -> bool {
        self == other
            || self == Self::Administer
            || other == Self::Observe
            || (self == Self::AnswerCommands && other == Self::AnswerEdits)
    }
}

impl std::fmt::Display for Can {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Can {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|can| can.name() == name);
        known.ok_or_else(|| format!("unknown right '{name}': one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// The rights of a connection with a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Grant {
    /// Its name: the author in the log of what comes by it.
    pub name: String,
    /// The rights.
    pub can: Vec<Can>,
    /// Only these sessions and their children; all when absent. With them no session can be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Vec<SessionId>>,
    /// Only sessions that work in this directory or below it, absolute and without links.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub directory: Option<PathBuf>,
    /// The loosest mode of what it creates, and that it sets; `ask` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Its end, in Unix milliseconds.
    pub expires_at: u64,
}

impl Grant {
    /// Whether it allows this.
    pub fn may(&self, what: Can) -> bool {
        self.can.iter().any(|can| can.includes(what))
    }
}

/// The process that a face speaks for, as `daemon/hello` says it: a connection with it may do less, never more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Behind {
    /// Its process; absent if the face cannot find it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its user, if only that is known: a process of another user's, such as a proxy. A process of the daemon's own user that
    /// cannot be found, and one of which nothing is known, counts as one that the daemon started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
}

/// `token/mint`: makes a token. Only a process that the daemon did not start may, and none with a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mint {
    /// The grant's name.
    pub name: String,
    /// The rights; `observe` and `speak` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub can: Option<Vec<Can>>,
    /// Only these sessions and their children.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<Vec<SessionId>>,
    /// Only sessions in this directory, absolute; it must exist.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::path::PathText::<Option<PathBuf>>")]
    pub directory: Option<PathBuf>,
    /// The loosest mode of what it creates, and that it sets; `ask` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// How many days it lasts; 30 when absent, 3650 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
    /// Give a code, which `token/exchange` takes once within 5 minutes, in place of a token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once: bool,
}

/// The result of `token/mint` and `token/exchange`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Minted {
    /// Its id: `token/revoke` takes it.
    pub id: TokenId,
    /// The text of the token, or of the code; it is shown this once and not stored.
    pub token: String,
    /// Its rights and limits.
    pub grant: Grant,
}

impl std::fmt::Debug for Minted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Minted").field("id", &self.id).field("grant", &self.grant).finish_non_exhaustive()
    }
}

/// `token/exchange`: gives a token for a code, once.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exchange {
    /// From `token/mint`, not used before.
    pub code: String,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Exchange")
    }
}

/// A row of `token/list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TokenRow")]
pub struct Row {
    /// Public: identifies the token, and is none.
    pub id: TokenId,
    /// Its rights and limits.
    pub grant: Grant,
    /// When it was made, in Unix milliseconds.
    pub created_at: u64,
    /// When a connection last began with it, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<u64>,
    /// Until when its code can be exchanged, in Unix milliseconds; absent if it is a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_until: Option<u64>,
}

/// `token/revoke`: ends a token, and at once each connection that has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RevokeToken")]
pub struct Revoke {
    /// As `token/list` gives it.
    pub id: TokenId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_right_includes() {
        let includes =
            |can: Can| Can::ALL.into_iter().filter(|other| can.includes(*other)).map(Can::name).collect::<Vec<_>>();
        assert_eq!(includes(Can::Observe), ["observe"]);
        assert_eq!(includes(Can::Speak), ["observe", "speak"]);
        assert_eq!(includes(Can::Steer), ["observe", "steer"]);
        assert_eq!(includes(Can::AnswerEdits), ["observe", "answer_edits"]);
        assert_eq!(includes(Can::AnswerCommands), ["observe", "answer_edits", "answer_commands"]);
        assert_eq!(includes(Can::Administer).len(), Can::ALL.len());
        assert!(Can::ALL.into_iter().all(|can| can.name().parse() == Ok(can)));
        assert!("own".parse::<Can>().is_err());
    }
}
