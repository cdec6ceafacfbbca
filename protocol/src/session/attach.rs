//! `session/attach`: following a session.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{Cursor, SessionId};

/// `session/attach`: send the session's events after a cursor, and all that follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attach {
    /// The session to follow.
    pub session: SessionId,
    /// Where to read on from; from the beginning when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Cursor>,
    /// Whether deltas are sent; true when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deltas: Option<bool>,
    /// Whether a person reads along: while one does, the daemon sends no notification about the session, and it keeps how far they read
    /// (`left` of the session's row). From a process that the daemon started, or with a token that
    /// answers nothing, it means nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub person: bool,
    /// Values of secret variables that the session was created with, and of those by which a program finds the desktop (`DISPLAY`,
    /// `WAYLAND_DISPLAY`, `DBUS_SESSION_BUS_ADDRESS`, `XAUTHORITY`, `XDG_RUNTIME_DIR`), for notifications; others are ignored.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// The result of `session/attach`; events follow it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attached {
    /// The end of the log at this moment.
    pub cursor: Cursor,
    /// Secret variables of its tools whose values the daemon lacks since it was restarted; `env` of an attach or a prompt brings
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_env: Vec<String>,
}
