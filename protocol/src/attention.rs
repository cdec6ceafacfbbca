//! How people are told of a session: signals to terminals, and when a terminal last left it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::Cursor;

/// A way in which a terminal draws attention to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// The terminal's bell rings.
    Bell,
    /// The escape sequence `OSC 9`: a notification of iTerm2, WezTerm, Windows Terminal and others.
    Osc9,
    /// The escape sequence `OSC 777`: a notification of rxvt-unicode, foot, Ghostty and others.
    Osc777,
    /// A way that this build does not know.
    #[serde(other)]
    Unknown,
}

/// How far a person at a terminal has read a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastRead {
    /// The last event of the log at that time.
    pub seq: u64,
    /// The position after it.
    pub cursor: Cursor,
    /// When the last terminal left, or came, in Unix milliseconds.
    pub at: u64,
}
