//! `[models."provider/model"]`, and its checks.

use linger_protocol::patience::Patience;
use linger_protocol::session::Effort;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::provider::codecs::codec;
use crate::provider::compat::Compat;
use crate::provider::kind::ProviderKind;
use crate::provider::models::{MAX_PRICE, MAX_WINDOW, ModelInfo, Price, Prices, TIERS, price_of};
use crate::provider::own_fields::{self, Fields};

/// `[models."provider/model"]` as written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub struct ModelConfig {
    /// [`ModelInfo::window`].
    pub context_window: Option<u64>,
    /// [`ModelInfo::max_output`].
    pub max_output: Option<u64>,
    /// US dollars per million input tokens, as [`Price::input`].
    pub input_price: Option<f64>,
    /// US dollars per million output tokens, as [`Price::output`].
    pub output_price: Option<f64>,
    /// US dollars per million tokens read from the cache, as [`Price::cache_read`].
    pub cache_read_price: Option<f64>,
    /// US dollars per million tokens written to the cache, as [`Price::cache_write`].
    pub cache_write_price: Option<f64>,
    /// [`ModelInfo::effort`].
    pub effort: Option<Effort>,
    /// [`ModelInfo::apply_patch`].
    pub apply_patch: Option<bool>,
    /// Headers of the user's own, in place of the provider's with the same names.
    pub headers: Fields,
    /// Query parameters, likewise.
    pub query: Fields,
    /// Fields of the body, merged with the provider's.
    pub body: Map<String, Value>,
    /// The models that stand in for it, in order, while it cannot answer.
    pub fallback: Vec<String>,
    /// How long it may not answer before that.
    pub fallback_after: Option<Patience>,
}

impl ModelConfig {
    /// Fails with the bad key and the reason; `kind` is the provider's.
    pub fn check(&self, kind: ProviderKind) -> Result<(), (&'static str, String)> {
        for (key, tokens) in [("context_window", self.context_window), ("max_output", self.max_output)] {
            if tokens.is_some_and(|tokens| !(1..=MAX_WINDOW).contains(&tokens)) {
                return Err((key, format!("must be from 1 to {MAX_WINDOW} tokens")));
            }
        }
        own_fields::check(codec(kind, Compat::NONE).as_deref(), &self.headers, &self.query, &self.body)?;
        for (key, price) in [
            ("input_price", self.input_price),
            ("output_price", self.output_price),
            ("cache_read_price", self.cache_read_price),
            ("cache_write_price", self.cache_write_price),
        ] {
            if price.is_some_and(|price| price_of(price).is_none()) {
                return Err((key, format!("must be from 0 to {MAX_PRICE}, in US dollars per million tokens")));
            }
        }
        Ok(())
    }

    /// `known` with the configured values in place. A configured price counts for requests of every length.
    pub fn override_in(&self, known: ModelInfo) -> ModelInfo {
        let priced = self.input_price.or(self.output_price).or(self.cache_read_price).or(self.cache_write_price);
        let over = |price: Price| Price {
            input: self.input_price.or(price.input),
            output: self.output_price.or(price.output),
            cache_read: self.cache_read_price.or(price.cache_read),
            cache_write: self.cache_write_price.or(price.cache_write),
        };
        ModelInfo {
            window: self.context_window.or(known.window),
            max_output: self.max_output.or(known.max_output),
            prices: Prices {
                usual: over(known.prices.usual),
                // A configured price counts for every request.
                long: if priced.is_some() { [None; TIERS] } else { known.prices.long },
            },
            effort: self.effort.unwrap_or(known.effort),
            apply_patch: self.apply_patch.or(known.apply_patch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::models;

    #[test]
    fn what_the_user_wrote_wins() {
        let known = models::facts("alibaba", "qwen3-coder-plus");
        assert!(known.prices.long[2].is_some() && known.prices.usual.cache_write.is_none());
        let window = ModelConfig { context_window: Some(9), ..ModelConfig::default() };
        assert_eq!(window.override_in(known), ModelInfo { window: Some(9), ..known });
        let priced = ModelConfig { cache_write_price: Some(0.5), max_output: Some(7), ..ModelConfig::default() };
        let usual = Price { cache_write: Some(0.5), ..known.prices.usual };
        let prices = Prices { usual, long: [None; TIERS] };
        assert_eq!(priced.override_in(known), ModelInfo { max_output: Some(7), prices, ..known });
        let all = toml::from_str::<ModelConfig>(
            "context_window = 1\nmax_output = 1\ninput_price = 1\noutput_price = 0\n\
             cache_read_price = 0.5\ncache_write_price = 2.25",
        );
        let expect = Price { input: Some(1.0), output: Some(0.0), cache_read: Some(0.5), cache_write: Some(2.25) };
        assert_eq!(all.unwrap().override_in(ModelInfo::default()).prices.usual, expect);
    }
}
