//! One `[providers.NAME]` table.

use serde::Deserialize;

/// What is written about a provider; presets fill in the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct ProviderConfig {
    /// The wire format.
    pub kind: Option<String>,
    /// Where requests go.
    pub base_url: Option<String>,
    /// The variable that holds the key.
    pub api_key_env: Option<String>,
    /// The command that prints the key.
    pub api_key_command: Option<String>,
    /// The model when only the provider is named.
    pub model: Option<String>,
    /// The most tokens that one step may give.
    pub max_tokens: Option<u32>,
    /// How long a stream may be silent.
    pub idle_timeout_ms: Option<u64>,
    /// How long connecting may take.
    pub connect_timeout_ms: Option<u64>,
}
