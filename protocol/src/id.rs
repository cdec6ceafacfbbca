//! Identifiers: opaque strings to clients, each with a type of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// The identifier as it stands on the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self(id.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(id: String) -> Self {
                Self(id)
            }
        }
    )*};
}

ids! {
    /// A session; unique among all sessions of a daemon.
    SessionId
    /// A turn; unique within its session.
    TurnId
    /// A prompt; unique within its session.
    PromptId
    /// A message; unique within its session.
    MessageId
    /// A tool call; unique within its session, given by the daemon and not by the provider.
    CallId
    /// A command in the background; unique within its session: `b1`, `b2` and so on.
    BackgroundId
    /// A question; unique among all sessions of a daemon.
    QuestionId
    /// A token; the id is no secret.
    TokenId
    /// Bytes that are stored once for all sessions: `sha256:` and their hash in hexadecimal digits.
    BlobId
    /// A completion without a session; unique within its connection.
    CompletionId
}

/// A permission is a question, and has its id.
pub type PermissionId = QuestionId;

/// The id of the daemon's own log, in the place of a session's; no session has it.
pub const DAEMON: &str = "daemon";

impl SessionId {
    /// The daemon's own log.
    pub fn daemon() -> Self {
        Self(DAEMON.to_owned())
    }

    /// Whether this is the daemon's own log, and no session.
    pub fn is_daemon(&self) -> bool {
        self.0 == DAEMON
    }
}

/// A position in the event stream of a session: opaque, to be kept and given back to `session/attach`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Cursor(pub String);

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
