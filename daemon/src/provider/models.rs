//! Properties of models: context window, largest output, prices.
//!
//! Pure: a built-in table, made by `contrib/models.py`, and the configuration, which wins.
//! What neither has is unknown, never zero or a guess. A name that ends in a date counts as its family's.
//! Deliberately absent: the lists of providers, which the catalogue prefers to this table.

use linger_protocol::message::Usage;
use linger_protocol::session::Effort;
use serde_json::Value;

/// A line a model, sorted by the bytes of its name: `PRESET/MODEL WINDOW MAX_OUTPUT INPUT OUTPUT CACHE_READ CACHE_WRITE`,
/// and where long requests cost more, up to [`TIERS`] times a threshold and the four prices again; `-` is unknown.
const TABLE: &str = include_str!("models.txt");

/// The largest plausible price, in dollars per million tokens: a hundred times the dearest of today.
pub(super) const MAX_PRICE: f64 = 100_000.0;

/// The largest plausible window, in tokens: a hundred times the largest of today.
pub const MAX_WINDOW: u64 = 1_000_000_000;

/// The relative difference below which prices are equal: some are given per token, some per million.
const SAME_PRICE: f64 = 1e-6;

/// How many thresholds a model's prices may have; the script leaves prices with more of them out.
pub(super) const TIERS: usize = 3;

/// The known properties of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelInfo {
    /// The context window, in tokens.
    pub window: Option<u64>,
    /// The largest answer, in tokens.
    pub max_output: Option<u64>,
    /// Prices in US dollars, by length of the request.
    pub prices: Prices,
    /// The reasoning effort of sessions that set none.
    pub effort: Effort,
    /// Whether it changes files by patches rather than by replacing pieces; absent: by its name, [`is_trained_on_patches`].
    pub apply_patch: Option<bool>,
}

/// Prices in US dollars per million tokens, which is micro-dollars per token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// The prices of a request of any length, or up to the first threshold.
    pub usual: Price,
    /// Thresholds in tokens of the request, ascending; above one, its prices hold for all tokens of request and answer.
    pub long: [Option<(u64, Price)>; TIERS],
}

/// Prices of the four kinds of tokens, in US dollars per million.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price {
    /// Tokens of the request that no cache had.
    pub input: Option<f64>,
    /// Tokens of the answer, thinking included.
    pub output: Option<f64>,
    /// Tokens of the request that were read from the cache.
    pub cache_read: Option<f64>,
    /// Tokens of the request that were written to the cache.
    pub cache_write: Option<f64>,
}

impl Price {
    /// The price of the scripted model.
    pub const FREE: Self = Self { input: Some(0.0), output: Some(0.0), cache_read: Some(0.0), cache_write: Some(0.0) };
}

impl ModelInfo {
    /// This, completed by `other`. Prices are taken as a whole, unless both have the same ones.
    pub fn or(self, other: Self) -> Self {
        Self {
            window: self.window.or(other.window),
            max_output: self.max_output.or(other.max_output),
            prices: self.prices.or(other.prices),
            effort: if self.effort.is_auto() { other.effort } else { self.effort },
            apply_patch: self.apply_patch.or(other.apply_patch),
        }
    }
}

impl Prices {
    fn or(self, other: Self) -> Self {
        let (one, two) = (self.usual, other.usual);
        let same = |one: Option<f64>, two: Option<f64>| {
            one.zip(two).is_some_and(|(one, two)| (one - two).abs() <= SAME_PRICE * one.max(two))
        };
        if self == Self::default() {
            other
        } else if same(one.input, two.input) && same(one.output, two.output) {
            // The other one may have more of them, such as thresholds.
            let cache_read = one.cache_read.or(two.cache_read);
            let usual = Price { cache_read, cache_write: one.cache_write.or(two.cache_write), ..one };
            Self { usual, long: if self.long[0].is_none() { other.long } else { self.long } }
        } else {
            self
        }
    }

    /// The cost of a step with this usage, in micro-dollars; `None` if a needed price is unknown.
    pub fn cost(&self, usage: &Usage) -> Option<u64> {
        let long = self.long.iter().flatten().rfind(|(above, _)| usage.input_tokens > *above);
        let price = long.map_or(self.usual, |(_, price)| *price);
        let fresh = usage.input_tokens.saturating_sub(usage.cached_tokens).saturating_sub(usage.cache_write_tokens);
        let parts = [
            (fresh, price.input),
            (usage.cached_tokens, price.cache_read),
            (usage.cache_write_tokens, price.cache_write),
            (usage.output_tokens, price.output),
        ];
        let mut cost = 0.0;
        for (tokens, price) in parts.into_iter().filter(|(tokens, _)| *tokens > 0) {
            cost += tokens as f64 * price?;
        }
        Some(cost.round() as u64)
    }
}

/// A number of tokens in a provider's answer, if plausible.
pub(super) fn plausible_tokens(value: &Value) -> Option<u64> {
    value.as_u64().filter(|tokens| (1..=MAX_WINDOW).contains(tokens))
}

/// `dollars` per million tokens, if plausible.
pub fn price_of(dollars: f64) -> Option<f64> {
    (0.0..=MAX_PRICE).contains(&dollars).then_some(dollars)
}

/// The families that OpenAI trained on `apply_patch`, by the beginning of their names.
const PATCHING: [&str; 7] = ["gpt-5", "gpt-4.1", "gpt-oss", "codex", "o3", "o4-mini", "chatgpt-5"];

/// Whether a model of this name, with or without its maker before it (`openai/gpt-5`), is trained on patches.
pub fn is_trained_on_patches(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let follows = |rest: &str| rest.is_empty() || !rest.starts_with(|c: char| c.is_ascii_alphanumeric());
    PATCHING.iter().any(|family| name.strip_prefix(family).is_some_and(follows))
}

/// The models of a preset in the table, in its order.
pub fn names(preset: &str) -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter_map(move |line| line.split_once(' ')?.0.strip_prefix(preset)?.strip_prefix('/'))
}

/// The table's properties of a preset's model.
pub fn facts(preset: &str, model: &str) -> ModelInfo {
    let exact = |model: &str| line(TABLE, &format!("{preset}/{model}")).and_then(parse);
    exact(model).or_else(|| exact(family(model)?)).unwrap_or_default()
}

/// The name without the date at its end, if it has one: `-20260101`, `@20260101` or `-2026-01-01`.
pub fn family(model: &str) -> Option<&str> {
    let tail = |length: usize| model.split_at_checked(model.len().checked_sub(length)?);
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let year = |text: &str| text.starts_with("20");
    let plain = tail(9).filter(|(_, date)| {
        date.strip_prefix(['-', '@']).is_some_and(|date| date.len() == 8 && year(date) && digits(date))
    });
    let dashed = || {
        tail(11).filter(|(_, date)| {
            let parts: Vec<&str> = date.split('-').collect();
            matches!(parts[..], ["", y, m, d] if y.len() == 4 && year(y) && m.len() == 2 && d.len() == 2 && [y, m, d].into_iter().all(digits))
        })
    };
    plain.or_else(dashed).map(|(family, _)| family).filter(|family| !family.is_empty())
}

/// The rest of the line of `name` in a sorted table.
fn line<'a>(mut table: &'a str, name: &str) -> Option<&'a str> {
    while !table.is_empty() {
        let (before, after) = table.as_bytes().split_at_checked(table.len() / 2)?;
        let end = after.iter().position(|byte| *byte == b'\n').map_or(table.len(), |at| before.len() + at);
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (known, rest) = table.get(start..end)?.split_once(' ')?;
        match known.cmp(name) {
            std::cmp::Ordering::Equal => return Some(rest),
            std::cmp::Ordering::Less => table = table.get(end + 1..).unwrap_or_default(),
            std::cmp::Ordering::Greater => table = table.get(..start)?,
        }
    }
    None
}

/// A line without its name.
fn parse(rest: &str) -> Option<ModelInfo> {
    let mut fields = rest.split(' ');
    let (window, max_output) = (fields.next()?.parse().ok(), fields.next()?.parse().ok());
    let usual = price(&mut fields)?;
    let mut long = [None; TIERS];
    for tier in &mut long {
        let Some(above) = fields.next() else { break };
        *tier = Some((above.parse().ok()?, price(&mut fields)?));
    }
    Some(ModelInfo { window, max_output, prices: Prices { usual, long }, ..ModelInfo::default() })
}

fn price<'a>(fields: &mut impl Iterator<Item = &'a str>) -> Option<Price> {
    let mut next = || Some(fields.next()?.parse().ok());
    Some(Price { input: next()?, output: next()?, cache_read: next()?, cache_write: next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, cached: u64, written: u64, output: u64) -> Usage {
        Usage {
            input_tokens: input,
            cached_tokens: cached,
            cache_write_tokens: written,
            output_tokens: output,
            reasoning_tokens: output / 2,
            ..Usage::default()
        }
    }

    fn flat(input: f64, output: f64, cache_read: f64, cache_write: f64) -> Price {
        Price { input: Some(input), output: Some(output), cache_read: Some(cache_read), cache_write: Some(cache_write) }
    }

    #[test]
    fn the_table_is_sorted_and_each_line_means_something() {
        let names: Vec<&str> = TABLE.lines().map(|line| line.split_once(' ').unwrap().0).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "sort it as the script does, each name once");
        for line in TABLE.lines() {
            let (name, rest) = line.split_once(' ').unwrap();
            let (preset, model) = name.split_once('/').unwrap();
            assert!(crate::provider::preset::named(preset).is_some() && !model.is_empty(), "{line}");
            let facts = parse(rest).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(super::facts(preset, model), facts, "{line}");
            assert_ne!(facts, ModelInfo::default(), "{line}");
            let tiers: Vec<u64> = facts.prices.long.iter().flatten().map(|(above, _)| *above).collect();
            assert!(tiers.is_sorted(), "{line}");
            assert_eq!(rest.split(' ').count(), 6 + 5 * tiers.len(), "{line}");
            assert!(facts.window.is_none_or(|window| (1..=MAX_WINDOW).contains(&window)), "{line}");
            let free = name.ends_with(":free");
            let prices = [facts.prices.usual].into_iter().chain(facts.prices.long.iter().flatten().map(|(_, p)| *p));
            for price in prices.flat_map(|p| [p.input, p.output, p.cache_read, p.cache_write]).flatten() {
                assert!((0.0..=MAX_PRICE).contains(&price) && (price > 0.0 || free), "unknown is not 0: {line}");
            }
        }
    }

    #[test]
    fn the_default_models_of_the_presets_are_known() {
        for preset in crate::provider::preset::PRESETS.iter().filter(|preset| !preset.model.is_empty()) {
            let known = facts(preset.name, preset.model);
            assert_eq!(known.window.is_some(), preset.name != "demo", "{}/{}", preset.name, preset.model);
        }
    }

    #[test]
    fn a_name_is_known_exactly_or_by_its_family() {
        let sonnet = facts("anthropic", "claude-sonnet-5");
        assert_ne!(sonnet, ModelInfo::default());
        for dated in ["claude-sonnet-5-20260101", "claude-sonnet-5@20260101", "claude-sonnet-5-2026-01-01"] {
            assert_eq!(facts("anthropic", dated), sonnet, "{dated}");
        }
        for unknown in [
            "",
            "claude-sonnet",
            "claude-sonnet-5-mini",
            "claude-sonnet-5-2026010",
            "claude-sonnet-5-12345678",
            "claude-sonnet-5-2026-1-01",
            "claude-sonnet-5-ümlaut-üü",
            "-20260101",
            "claude-sonnet-5 ",
            "~",
        ] {
            assert_eq!(facts("anthropic", unknown), ModelInfo::default(), "{unknown}");
        }
        assert_eq!(facts("openai", "claude-sonnet-5"), ModelInfo::default());
        assert_eq!(facts("nobody", "gpt-5"), ModelInfo::default());
    }

    #[test]
    fn a_line_is_found_wherever_it_is() {
        let table = "a/a 1\nb/b 2\nb/ü 3\nc/c 4";
        for (name, expect) in
            [("a/a", Some("1")), ("b/b", Some("2")), ("b/ü", Some("3")), ("c/c", Some("4")), ("b", None), ("z", None)]
        {
            assert_eq!(line(table, name), expect, "{name}");
        }
        assert_eq!(line("", "a"), None);
        assert_eq!(line("no-space", "no-space"), None);
    }

    #[test]
    fn each_kind_of_token_has_its_price() {
        let long = Some((1000, flat(6.0, 20.0, 0.6, 7.5)));
        let prices = Prices { usual: flat(3.0, 15.0, 0.3, 3.75), long: [long, None, None] };
        assert_eq!(prices.cost(&usage(100, 0, 0, 10)), Some(300 + 150));
        assert_eq!(prices.cost(&usage(1000, 600, 200, 10)), Some(600 + 180 + 750 + 150));
        assert_eq!(prices.cost(&usage(1001, 1001, 0, 10)), Some(601 + 200));
        assert_eq!(prices.cost(&Usage::default()), Some(0));
        // What a provider reports need not add up.
        assert_eq!(prices.cost(&usage(5, 10, 10, 0)), Some(41));
    }

    #[test]
    fn an_unknown_price_makes_the_cost_unknown_where_it_is_needed() {
        let prices = Prices { usual: Price { cache_read: None, ..flat(3.0, 15.0, 0.0, 0.0) }, ..Prices::default() };
        assert_eq!(prices.cost(&usage(100, 1, 0, 10)), None);
        assert_eq!(prices.cost(&usage(100, 0, 0, 10)), Some(450));
        assert_eq!(Prices::default().cost(&usage(1, 0, 0, 0)), None);
    }

    #[test]
    fn a_list_goes_before_the_table_which_adds_what_it_knows_of_the_same_prices() {
        let known = facts("alibaba", "qwen3-coder-plus");
        let said = |input: f64| {
            let usual = Price { input: Some(input), output: Some(5.0), ..Price::default() };
            ModelInfo { window: Some(9), prices: Prices { usual, ..Prices::default() }, ..ModelInfo::default() }
        };
        assert_eq!(ModelInfo::default().or(known), known);
        assert_eq!(said(1.000_000_000_1).or(known).prices.long, known.prices.long);
        assert_eq!(said(1.0).or(known), ModelInfo { window: Some(9), ..known });
        assert_eq!(said(0.9).or(known), ModelInfo { max_output: known.max_output, ..said(0.9) });
    }

    #[test]
    fn the_families_that_write_patches_are_known_by_name() {
        for (name, expect) in [
            ("gpt-5", true),
            ("gpt-5.2-codex", true),
            ("openai/gpt-5-mini", true),
            ("gpt-oss:20b", true),
            ("o3-pro", true),
            ("gpt-4o", false),
            ("gpt-50", false),
            ("o30", false),
            ("claude-sonnet-5", false),
            ("", false),
        ] {
            assert_eq!(is_trained_on_patches(name), expect, "{name}");
        }
    }
}
