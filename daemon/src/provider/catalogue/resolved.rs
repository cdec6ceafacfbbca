//! A model that can be used once its key is known: what requests need of it, and its provider with the secrets filled in.

use std::sync::Arc;

use linger_protocol::patience::Patience;
use linger_protocol::session::{Effort, PrefixFingerprint};
use reqwest::Url;
use serde_json::{Map, Value};

use crate::diagnostics::secret::Secret;
use crate::provider::address;
use crate::provider::attempt::Provider;
use crate::provider::codecs::codec;
use crate::provider::compat::Compat;
use crate::provider::driver::FieldText;
use crate::provider::effort;
use crate::provider::keys::KeySource;
use crate::provider::kind::ProviderKind;
use crate::provider::models::ModelInfo;
use crate::provider::own_fields::{Field, FieldSource};
use crate::provider::responses::ForwardDefaults;
use crate::provider::setup::setup;
use crate::provider::types::Codec;
use crate::provider::types::RequestPrefix;
use crate::provider::types::ToolSpecs;

/// The secrets of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The key; absent if the provider needs none.
    pub key: Option<Secret>,
    /// The values of the fields that are secrets, in their order.
    pub fields: Vec<Secret>,
}

impl From<Option<Secret>> for Secrets {
    fn from(key: Option<Secret>) -> Self {
        Self { key, fields: Vec::new() }
    }
}

/// A model that can be used once its key is known.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The provider's name.
    pub provider: String,
    /// The model's name there: [`crate::provider::types::Request::model`].
    pub model: String,
    /// `provider/model`: [`crate::provider::types::Request::origin`].
    pub origin: String,
    /// [`crate::provider::types::Request::max_tokens`].
    pub max_tokens: u32,
    /// Window, longest answer, prices and default effort.
    pub facts: ModelInfo,
    /// How long a turn waits while it cannot answer.
    pub patience: Patience,
    /// The source of its key.
    pub key: KeySource,
    /// Headers and query parameters of the user's own.
    pub fields: Vec<Field>,
    /// Fields of the body of the user's own.
    pub body: Map<String, Value>,
    /// The variable with the preset's key, if the user's own `base_url` does not get it.
    pub(super) withheld: Option<&'static str>,
    pub(super) kind: ProviderKind,
    pub(super) compat: Compat,
    pub(super) target: Provider,
}

impl Resolved {
    /// The fingerprint of requests apart from messages, for this system prompt and these tools.
    pub fn setup(&self, system: &str, tools: &ToolSpecs) -> PrefixFingerprint {
        let prefix = RequestPrefix { origin: &self.origin, system, tools };
        setup(&prefix, self.kind, &self.compat, self.facts.effort, &self.body)
    }

    /// Without the provider's own tools that are not among `only`, the tools of a session.
    pub fn limited(mut self, only: Option<&[String]>) -> Self {
        let hosted = self.compat.hosted.limited(only);
        if hosted != self.compat.hosted {
            self.compat.hosted = hosted;
            if let (Provider::Http(endpoint), Some(codec)) = (&mut self.target, codec(self.kind, self.compat)) {
                endpoint.codec = codec;
            }
        }
        self
    }

    /// Whether requests enable thinking, for a session's `effort`.
    pub fn thinks(&self, effort: Effort) -> bool {
        let effort = if effort.is_auto() { self.facts.effort } else { effort };
        effort::thinks(effort) || effort.is_auto() && self.compat.thinking == Some(true)
    }

    /// A warning for an effort that has no effect on this model.
    pub fn idle_effort(&self, effort: Effort) -> Option<String> {
        let codec = codec(self.kind, self.compat);
        let takes = effort.is_auto() || codec.is_none_or(|codec| codec.takes_effort(&self.model, effort));
        (!takes).then(|| format!("{} does not support effort: {} has no effect", self.origin, effort.name()))
    }

    /// A hint for a model that refuses a request without a key.
    pub fn without_key(&self) -> Option<String> {
        if self.key != KeySource::None {
            return None;
        }
        let provider = &self.provider;
        Some(match self.withheld {
            Some(variable) => format!(
                "no key was sent, as base_url is an address of your own: api_key_env = \"{variable}\" in [providers.{provider}] sends that one"
            ),
            None => format!("no key was sent: api_key_env in [providers.{provider}] names the variable of one"),
        })
    }

    /// Whether all calls are sent with `reasoning_content`, even another model's.
    pub fn has_reasoning(&self) -> bool {
        self.compat.reasoning_content == Some(true)
    }

    /// Whether images can be asked of its provider.
    pub fn makes_images(&self) -> bool {
        codec(self.kind, self.compat).is_some_and(|codec| codec.images().is_some())
    }

    /// Host and port of its endpoint; absent if it needs no network.
    pub fn address(&self) -> Option<String> {
        match &self.target {
            Provider::Http(endpoint) => Url::parse(&endpoint.base_url).ok().map(|url| address::authority(&url)),
            _ => None,
        }
    }

    /// The sources of its secrets: the key's, then those of [`Resolved::fields`].
    pub fn sources(&self) -> impl Iterator<Item = &KeySource> {
        let fields = self.fields.iter().filter_map(|field| match &field.value {
            FieldSource::Secret(source) => Some(source),
            FieldSource::Plain(_) => None,
        });
        std::iter::once(&self.key).chain(fields)
    }

    /// Its wire format; absent for the scripted model.
    pub fn codec(&self) -> Option<Arc<dyn Codec>> {
        codec(self.kind, self.compat)
    }

    /// The configuration's part of a request that is sent as a caller wrote it.
    pub fn forward_defaults(&self) -> ForwardDefaults<'_> {
        ForwardDefaults {
            model: &self.model,
            max_tokens: self.max_tokens,
            effort: self.facts.effort,
            has_encrypted_reasoning: self.compat.encrypted_reasoning != Some(false),
            own_fields: &self.body,
        }
    }

    /// The provider, with the secrets obtained from [`Resolved::sources`].
    pub fn open(&self, secrets: Secrets) -> Provider {
        let mut target = self.target.clone();
        if let Provider::Http(endpoint) = &mut target {
            for secret in secrets.key.iter().chain(&secrets.fields) {
                endpoint.redactor.add(secret);
            }
            endpoint.key = secrets.key;
            let mut values = secrets.fields.into_iter();
            let value = |field: &Field| match &field.value {
                FieldSource::Plain(value) => Some(FieldText::Plain(value.clone())),
                FieldSource::Secret(_) => values.next().map(FieldText::Secret),
            };
            let texts: Vec<Option<FieldText>> = self.fields.iter().map(value).collect();
            let fields = self.fields.iter().zip(texts);
            let fields = fields.filter_map(|(field, text)| Some((field.part, field.name.clone(), text?)));
            endpoint.fields = Arc::new(fields.collect());
        }
        target
    }
}
