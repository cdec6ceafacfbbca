//! Provider keys: where each comes from, and the operating system's keychain. Parameters and results of `key/*`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a provider's key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "KeySource", transform = crate::schema::open)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A command prints it.
    Command,
    /// The daemon was started with it in its environment.
    Daemon,
    /// A client has brought it from its environment.
    Client,
    /// The operating system's keychain has it.
    Keychain,
    /// It needs none, and none is there.
    None,
    /// It needs one, and none is there.
    Missing,
    /// Something that this build does not know.
    #[serde(other)]
    Unknown,
}

/// A provider and its key; never the key itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "KeyInfo")]
pub struct Info {
    /// As the configuration names it.
    pub provider: String,
    /// Where its key comes from.
    pub source: Source,
    /// The variable that holds it or would, or the command that prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Where it goes and nowhere else: scheme, host and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The keychain has a key of this provider for another place, which is therefore not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<String>,
    /// Whether new sessions use this provider.
    pub default: bool,
}

/// The result of `key/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// Each provider, by name.
    pub keys: Vec<Info>,
    /// Why the keychain cannot be used; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_keychain: Option<String>,
}

/// `key/set`: puts a provider's key into the keychain, for the place where the provider is now. It has no idempotency key: sent
/// again it is the same.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Set {
    /// As the configuration names it.
    pub provider: String,
    /// Its key.
    pub secret: String,
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Set").field("provider", &self.provider).finish_non_exhaustive()
    }
}

/// `key/remove`: takes a provider's keys out of the keychain, for whatever place they are. Sent again it removes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Remove {
    /// The provider; it need not be configured any more.
    pub provider: String,
}

/// The result of `key/remove`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Removed {
    /// Whether the keychain had any.
    pub removed: bool,
    /// Where the provider's key comes from now, if there is such a provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Info>,
}
