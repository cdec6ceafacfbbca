//! Properties of models learned from providers, from a fetched list or an error; empty until one is asked.
//!
//! Kept while the daemon runs and the provider's address stays. Deliberately absent: asking, which takes time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::provider::listing::Listed;
use crate::provider::models::{self, Facts};

/// The learned properties.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// The fetched lists, by provider.
    all: Mutex<BTreeMap<String, BTreeMap<String, Facts>>>,
    /// Models (with provider) that required `reasoning_content` with calls in an error.
    learned: Mutex<BTreeSet<(String, String)>>,
}

impl Lists {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<String, Facts>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the list of a provider.
    pub(super) fn keep(&self, provider: &str, list: &[Listed]) {
        let models = list.iter().map(|listed| (listed.name.clone(), listed.facts)).collect();
        self.all().insert(provider.to_owned(), models);
    }

    /// Takes over the lists of providers that stay.
    pub(super) fn take_over(&self, before: &Self, stays: impl Fn(&str) -> bool) {
        let kept: Vec<_> = before.all().iter().filter(|(name, _)| stays(name)).map(own).collect();
        self.all().extend(kept);
        let learned: Vec<_> = before.learned().iter().filter(|(name, _)| stays(name)).cloned().collect();
        self.learned().extend(learned);
    }

    fn learned(&self) -> MutexGuard<'_, BTreeSet<(String, String)>> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a model requires `reasoning_content` with calls.
    pub(super) fn learn(&self, provider: &str, model: &str) {
        self.learned().insert((provider.to_owned(), model.to_owned()));
    }

    /// Whether a model has required it.
    pub(super) fn has_learned(&self, provider: &str, model: &str) -> bool {
        self.learned().contains(&(provider.to_owned(), model.to_owned()))
    }

    /// The models of a provider that has listed them.
    pub(super) fn names(&self, provider: &str) -> Option<Vec<String>> {
        Some(self.all().get(provider)?.keys().cloned().collect())
    }

    /// The listed properties of a model, or of its family.
    pub(super) fn facts(&self, provider: &str, model: &str) -> Facts {
        let all = self.all();
        let Some(list) = all.get(provider) else { return Facts::default() };
        list.get(model).or_else(|| list.get(models::family(model)?)).copied().unwrap_or_default()
    }
}

fn own((name, list): (&String, &BTreeMap<String, Facts>)) -> (String, BTreeMap<String, Facts>) {
    (name.clone(), list.clone())
}
