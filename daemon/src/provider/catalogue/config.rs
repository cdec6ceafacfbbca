//! `[providers.NAME]`, and its checks.

use std::time::Duration;

use linger_protocol::patience::Patience;
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::hosted_names::hosted_tools;
use crate::provider::codecs::codec;
use crate::provider::compat::Compat;
use crate::provider::driver::Timeouts;
use crate::provider::kind::ProviderKind;
use crate::provider::own_fields::{self, Fields};
use crate::provider::preset;

/// `[providers.NAME]`, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderConfig {
    /// The wire format; a preset has one already.
    pub kind: Option<ProviderKind>,
    /// The address; if absent the preset's, whatever its kind, else the address of the kind's vendor.
    pub base_url: Option<String>,
    /// The variable that holds the key.
    pub api_key_env: Option<String>,
    /// A command that prints the key.
    pub api_key_command: Option<String>,
    /// The model when only the provider is named.
    pub model: Option<String>,
    /// The most tokens of an answer, at most the model's own maximum.
    pub max_tokens: Option<u32>,
    /// How long it may be silent.
    pub idle_timeout_ms: Option<u64>,
    /// How long a connection may take.
    pub connect_timeout_ms: Option<u64>,
    /// How long it may take until a response begins; as long as it may be silent if absent.
    pub first_byte_timeout_ms: Option<u64>,
    /// How long a whole answer may take.
    pub total_timeout_ms: Option<u64>,
    /// How long a turn waits while it cannot answer; an hour if absent.
    pub patience: Option<Patience>,
    /// Tools that the provider runs itself and that its models may use.
    pub hosted_tools: Vec<String>,
    /// Headers of the user's own.
    pub headers: Fields,
    /// Query parameters of the user's own.
    pub query: Fields,
    /// Fields of the body of the user's own.
    pub body: Map<String, Value>,
    /// Where it departs from the wire format.
    pub compat: Compat,
}

impl ProviderConfig {
    /// How long a request may take.
    pub(super) fn limits(&self) -> Timeouts {
        let usual = Timeouts::default();
        let or = |millis: Option<u64>, usual| millis.map_or(usual, Duration::from_millis);
        let idle = or(self.idle_timeout_ms, usual.idle);
        Timeouts {
            connect: or(self.connect_timeout_ms, usual.connect),
            first_byte: or(self.first_byte_timeout_ms, idle),
            idle,
            total: or(self.total_timeout_ms, usual.total),
            ..usual
        }
        .consistent()
    }

    /// Checks it as the provider `name`. Fails with the key that is at fault and the reason.
    pub fn check(&self, name: &str) -> Result<(), (&'static str, String)> {
        let Some(kind) = self.kind.or_else(|| Some(preset::named(name)?.kind)) else {
            let kinds = ProviderKind::ALL.map(ProviderKind::name).join(", ");
            return Err(("kind", format!("missing: one of {kinds}")));
        };
        let codec = codec(kind, Compat::NONE);
        if let Some(flag) = self.compat.misplaced(codec.as_ref().map_or(&[], |codec| codec.flags())) {
            return Err(("compat", format!("{flag} means nothing to the kind {}", kind.name())));
        }
        hosted_tools(&self.hosted_tools, kind).map_err(|problem| ("hosted_tools", problem))?;
        own_fields::check(codec.as_deref(), &self.headers, &self.query, &self.body)?;
        if self.compat.num_ctx == Some(0) {
            return Err(("compat", "num_ctx is 0: no model can work without a context".to_owned()));
        }
        if name.is_empty() || name.contains('/') {
            return Err(("kind", "the provider's name is empty or has a slash in it".to_owned()));
        }
        if self.api_key_env.is_some() && self.api_key_command.is_some() {
            return Err(("api_key_command", "api_key_env is there too; only one of them can be meant".to_owned()));
        }
        let Some(base_url) = &self.base_url else {
            let known = preset::named(name).or_else(|| preset::vendor(kind));
            let is_missing = known.is_none_or(|known| known.base_url.is_empty()) && kind != ProviderKind::Demo;
            return if is_missing { Err(("base_url", "missing: where the server is".to_owned())) } else { Ok(()) };
        };
        match Url::parse(base_url) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(()),
            Ok(_) => Err(("base_url", "neither an http nor an https address".to_owned())),
            Err(error) => Err(("base_url", error.to_string())),
        }
    }
}
