//! Properties of models learned from providers, from a fetched list or an error; empty until one is asked.
//!
//! Kept while the provider's address stays: fetched lists on disk too ([`Stored`]), what errors taught while the daemon runs.
//! Deliberately absent: asking, and the disk, which take time.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::provider::compat::Compat;
use crate::provider::listing::Listed;
use crate::provider::models::{self, ModelInfo, Price, Prices};

/// Window and largest answer in tokens; prices of input, output, cache reads and cache writes in US dollars per million.
type Row = (Option<u64>, Option<u64>, [Option<f64>; 4]);

/// Fetched lists as they are stored, by provider.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stored(BTreeMap<String, StoredList>);

/// The stored list of one provider.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct StoredList {
    /// The provider's wire format and address.
    at: String,
    models: BTreeMap<String, Row>,
}

/// The learned properties.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// The fetched lists, by provider.
    all: Mutex<BTreeMap<String, BTreeMap<String, ModelInfo>>>,
    /// The flags that errors taught, by provider and model: a proxy has many servers behind it.
    learned: Mutex<BTreeMap<(String, String), Compat>>,
    /// The windows that errors named, in tokens, by provider and model.
    windows: Mutex<BTreeMap<(String, String), u64>>,
}

impl Lists {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<String, ModelInfo>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the list of a provider.
    pub(super) fn keep(&self, provider: &str, list: &[Listed]) {
        let mut all = self.all();
        let before = all.remove(provider).unwrap_or_default();
        let known = |name: &str| before.get(name).copied().unwrap_or_default();
        let models = list.iter().map(|listed| (listed.name.clone(), listed.facts.or(known(&listed.name)))).collect();
        all.insert(provider.to_owned(), models);
    }

    /// The lists in the form that is stored; `place` names a provider's address.
    pub(super) fn stored(&self, place: impl Fn(&str) -> Option<String>) -> Stored {
        let row = |(name, facts): (&String, &ModelInfo)| {
            let usual = facts.prices.usual;
            let prices = [usual.input, usual.output, usual.cache_read, usual.cache_write];
            (name.clone(), (facts.window, facts.max_output, prices))
        };
        let list = |(provider, list): (&String, &BTreeMap<String, ModelInfo>)| {
            let models = list.iter().map(row).collect();
            Some((provider.clone(), StoredList { at: place(provider)?, models }))
        };
        Stored(self.all().iter().filter_map(list).collect())
    }

    /// Takes stored lists of providers that are at the same address and have no list yet.
    pub(super) fn restore(&self, stored: Stored, place: impl Fn(&str) -> Option<String>) {
        let mut all = self.all();
        for (provider, list) in stored.0 {
            if Some(&list.at) != place(&provider).as_ref() || all.contains_key(&provider) {
                continue;
            }
            let facts = |(window, max_output, [input, output, cache_read, cache_write]): Row| ModelInfo {
                window,
                max_output,
                prices: Prices { usual: Price { input, output, cache_read, cache_write }, ..Prices::default() },
                ..ModelInfo::default()
            };
            all.insert(provider, list.models.into_iter().map(|(name, row)| (name, facts(row))).collect());
        }
    }

    /// Takes over the lists of providers that stay.
    pub(super) fn take_over(&self, before: &Self, stays: impl Fn(&str) -> bool) {
        let kept: Vec<_> = before
            .all()
            .iter()
            .filter(|(name, _)| stays(name))
            .map(|(name, list)| (name.clone(), list.clone()))
            .collect();
        self.all().extend(kept);
        let learned: Vec<_> = before
            .learned()
            .iter()
            .filter(|((name, _), _)| stays(name))
            .map(|(of, flags)| (of.clone(), *flags))
            .collect();
        self.learned().extend(learned);
        let windows: Vec<_> = before
            .windows()
            .iter()
            .filter(|((name, _), _)| stays(name))
            .map(|(of, size)| (of.clone(), *size))
            .collect();
        self.windows().extend(windows);
    }

    fn learned(&self) -> MutexGuard<'_, BTreeMap<(String, String), Compat>> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn windows(&self) -> MutexGuard<'_, BTreeMap<(String, String), u64>> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the window that an error of a model named, in tokens.
    pub(super) fn keep_window(&self, provider: &str, model: &str, window: u64) {
        self.windows().insert((provider.to_owned(), model.to_owned()), window);
    }

    /// The window that an error named, in tokens.
    pub(super) fn refused_above(&self, provider: &str, model: &str) -> Option<u64> {
        self.windows().get(&(provider.to_owned(), model.to_owned())).copied()
    }

    /// Changes the learned flags of a model by `learn`, which returns whether it did.
    pub(super) fn learn(&self, provider: &str, model: &str, learn: impl FnOnce(&mut Compat) -> bool) -> bool {
        learn(self.learned().entry((provider.to_owned(), model.to_owned())).or_default())
    }

    /// The learned flags of a model.
    pub(super) fn learned_of(&self, provider: &str, model: &str) -> Compat {
        let of = (provider.to_owned(), model.to_owned());
        self.learned().get(&of).copied().unwrap_or_default()
    }

    /// The models of a provider that has listed them.
    pub(super) fn names(&self, provider: &str) -> Option<Vec<String>> {
        Some(self.all().get(provider)?.keys().cloned().collect())
    }

    /// The listed properties of a model, or of its family.
    pub(super) fn facts(&self, provider: &str, model: &str) -> ModelInfo {
        let all = self.all();
        let Some(list) = all.get(provider) else { return ModelInfo::default() };
        list.get(model).or_else(|| list.get(models::family(model)?)).copied().unwrap_or_default()
    }
}
