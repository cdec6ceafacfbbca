//! A provider of the catalogue: its configuration completed with what is known of its preset and its address. Pure.

use std::sync::Arc;

use linger_protocol::patience::Patience;
use serde_json::{Map, Value};

use super::ProviderConfig;
use super::hosted_names::hosted_tools;
use crate::provider::codecs::codec;
use crate::provider::compat::Compat;
use crate::provider::driver::Timeouts;
use crate::provider::kind::ProviderKind;
use crate::provider::models::{self, ModelInfo, Price, Prices};
use crate::provider::own_fields::Fields;
use crate::provider::preset;
use crate::provider::types::Codec;

/// A provider, its configuration completed with defaults.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) kind: ProviderKind,
    pub(super) base_url: String,
    pub(super) variable: Option<String>,
    /// Whether it works without the key in `variable`.
    pub(super) key_optional: bool,
    pub(super) command: Option<String>,
    /// The variable with the preset's key, if it is not sent to this address.
    pub(super) withheld: Option<&'static str>,
    pub(super) model: Option<String>,
    /// Whether the user set `model`, or it is the preset's own at its own address. Else it is a guess.
    pub(super) is_model_sure: bool,
    pub(super) max_tokens: u32,
    pub(super) limits: Timeouts,
    pub(super) patience: Patience,
    pub(super) compat: Compat,
    /// The flags that the user set.
    pub(super) configured: Compat,
    pub(super) headers: Fields,
    pub(super) query: Fields,
    pub(super) body: Map<String, Value>,
    /// The preset with this address, whose models and prices apply.
    pub(super) place: Option<&'static str>,
    /// The preset that the user reconfigured.
    pub(super) preset: Option<&'static str>,
    /// Whether it is a known server on this machine, usable while it listens.
    pub(super) local: bool,
}

impl Entry {
    /// `None` for an unknown kind or address; [`ProviderConfig::check`] reports that.
    pub(super) fn new(name: &str, config: &ProviderConfig) -> Option<Self> {
        let named = preset::named(name);
        let kind = config.kind.or(named.map(|preset| preset.kind))?;
        // A preset that is given another kind stays where it is: nothing of it goes to the vendor of that kind.
        let origin = named.or_else(|| preset::vendor(kind));
        let base_url = config.base_url.clone().or_else(|| Some(origin?.base_url.to_owned()))?;
        // A vendor's key goes only to the vendor, unless configured otherwise.
        let place = if config.base_url.is_none() { origin } else { preset::by_address(&base_url) };
        let own = |text: fn(&preset::Preset) -> &'static str| {
            place.map(text).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let (variable, command) = match (&config.api_key_env, &config.api_key_command) {
            (None, None) => (own(|place| place.variable), own(|place| place.command)),
            (variable, command) => (variable.clone(), command.clone()),
        };
        let own_key = named.map(|named| named.variable).filter(|variable| !variable.is_empty());
        let withheld = own_key.filter(|_| variable.is_none() && command.is_none());
        let known =
            place.map_or(Compat::NONE, |place| place.compat).or(named.map_or(Compat::NONE, |named| named.compat));
        let hosted = hosted_tools(&config.hosted_tools, kind).unwrap_or_default();
        Some(Self {
            kind,
            base_url,
            variable,
            key_optional: config.api_key_env.is_none() && place.is_some_and(|place| place.local),
            command,
            withheld,
            model: config.model.clone().or_else(|| Some(named?.model.to_owned()).filter(|model| !model.is_empty())),
            is_model_sure: config.model.is_some()
                || (place.is_some() && place.map(|it| it.name) == named.map(|it| it.name)),
            max_tokens: config.max_tokens.unwrap_or_default(),
            limits: config.limits(),
            patience: config.patience.unwrap_or(Patience::USUAL),
            compat: Compat { hosted, ..config.compat.or(known) },
            configured: config.compat,
            headers: config.headers.clone(),
            query: config.query.clone(),
            body: config.body.clone(),
            place: place.map(|place| place.name),
            preset: named.map(|named| named.name),
            local: place.is_some_and(|place| place.local),
        })
    }

    /// Whether a model takes hosted tools together with others.
    pub(super) fn combines(&self, model: &str) -> bool {
        self.codec().is_none_or(|codec| codec.combines_hosted_tools(model))
    }

    /// The most tokens of an answer: the provider's setting, but not above the model's maximum; without a setting the model's
    /// maximum, if the format requires a number. 0 leaves it to the provider or the format.
    pub(super) fn max_tokens(&self, facts: &ModelInfo) -> u32 {
        let most = facts.max_output.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        match (self.max_tokens, most) {
            (0, Some(most)) if self.codec().is_some_and(|codec| codec.needs_max_tokens()) => most,
            (0, _) | (_, None) => self.max_tokens,
            (said, Some(most)) => said.min(most),
        }
    }

    /// The properties of a model at this address, without the user's settings.
    pub(super) fn facts(&self, model: &str) -> ModelInfo {
        let mut facts = match (self.place, self.preset) {
            (Some(place), _) => models::facts(place, model),
            // At another address the model is the same, but its prices are unknown.
            (None, Some(preset)) => ModelInfo { prices: Prices::default(), ..models::facts(preset, model) },
            (None, None) => ModelInfo::default(),
        };
        if self.kind == ProviderKind::Demo {
            facts.prices.usual = Price::FREE;
        }
        facts
    }

    /// Its wire format; absent for the scripted model.
    pub(super) fn codec(&self) -> Option<Arc<dyn Codec>> {
        codec(self.kind, self.compat)
    }

    /// The flags for a model with this configured window. Where requests ask for a window, they ask for that one, at most for the
    /// provider's setting.
    pub(super) fn compat(&self, window: Option<u64>) -> Compat {
        let asks = self.codec().is_some_and(|codec| codec.requested_window().is_some());
        let window = window.filter(|_| asks).map(|window| u32::try_from(window).unwrap_or(u32::MAX));
        let num_ctx = [window, self.compat.num_ctx].into_iter().flatten().min();
        Compat { num_ctx, ..self.compat }
    }
}
