//! Facts that the catalogue learns while it is used, from providers' lists and from errors.
//!
//! Deliberately absent: asking, which takes time ([`crate::provider::lister`]).

use super::lists::Stored;
use super::{Catalogue, Entry, Resolved};
use crate::provider::compat::Compat;
use crate::provider::kind::ProviderKind;
use crate::provider::lister::Scope;
use crate::provider::listing::Listed;
use crate::provider::types::Parameter;

impl Catalogue {
    /// Sends `reasoning_content` with calls from now on, because the provider asked for it; false if the configuration forbids it.
    pub fn learn_reasoning(&self, origin: &str) -> bool {
        let Some((name, model)) = origin.split_once('/') else { return false };
        let learns = |entry: &Entry| {
            let has_flag = entry.codec().is_some_and(|codec| codec.flags().contains(&"reasoning_content"));
            has_flag && entry.compat.reasoning_content != Some(false)
        };
        let learns = self.entries.get(name).is_some_and(learns);
        learns
            && self.lists.learn(name, model, |flags| {
                flags.reasoning_content = Some(true);
                true
            })
    }

    /// Takes the number in a model's error about a context that is too long as its window, in tokens.
    pub fn learn_window(&self, origin: &str, window: u64) {
        if let Some((name, model)) = origin.split_once('/') {
            self.lists.keep_window(name, model, window);
        }
    }

    /// Leaves a refused parameter out of requests to this model from now on; false if it is left out already, or the
    /// configuration insists on it.
    pub fn leave_out(&self, origin: &str, parameter: Parameter) -> bool {
        let Some((name, model)) = origin.split_once('/') else { return false };
        let Some(entry) = self.entries.get(name) else { return false };
        let before = self.learned(name, model, entry.compat);
        let is_sent = parameter.leave_out(&mut { before }, entry.configured);
        is_sent && self.lists.learn(name, model, |flags| parameter.leave_out(flags, entry.configured))
    }

    /// `compat` with the flags that errors of this model taught.
    pub(super) fn learned(&self, name: &str, model: &str, compat: Compat) -> Compat {
        Compat { hosted: compat.hosted, ..self.lists.learned_of(name, model).or(compat) }
    }

    /// Takes over the model lists of an earlier catalogue, except for providers whose address changed.
    pub fn take_over(&self, before: &Self) {
        self.lists.take_over(&before.lists, |name| self.place(name) == before.place(name));
    }

    /// A provider's wire format and address.
    fn place(&self, name: &str) -> Option<String> {
        self.entries.get(name).map(|entry| format!("{} {}", entry.kind.name(), entry.base_url))
    }

    /// The fetched lists, to be stored.
    pub fn stored_lists(&self) -> Stored {
        self.lists.stored(|name| self.place(name))
    }

    /// Takes stored lists.
    pub fn restore_lists(&self, stored: Stored) {
        self.lists.restore(stored, |name| self.place(name));
    }

    /// Keeps a fetched list.
    pub fn keep_list(&self, provider: &str, listed: &[Listed]) {
        self.lists.keep(provider, listed);
    }

    /// The scope of the question for a model's window; `None` if configuration or table has it, so that nothing is asked.
    pub fn scope<'a>(&self, resolved: &'a Resolved) -> Option<Scope<'a>> {
        let entry = self.entries.get(&resolved.provider)?;
        let configured = self.models.get(&resolved.origin).and_then(|model| model.context_window);
        let is_known = configured.is_some() || entry.facts(&resolved.model).window.is_some();
        let is_asked = !is_known && entry.kind != ProviderKind::Demo && entry.compat.num_ctx.is_none();
        is_asked.then(|| self.scope_of(&resolved.provider, Some(&resolved.model)))
    }

    /// The scope of the question for a provider's list, and for `model`.
    pub fn scope_of<'a>(&self, provider: &str, model: Option<&'a str>) -> Scope<'a> {
        let entry = self.entries.get(provider);
        Scope {
            own_server: entry.is_some_and(|entry| entry.local || entry.place.is_none()),
            unlisted_model: model.filter(|model| {
                let codec = entry.and_then(Entry::codec);
                codec.is_some_and(|codec| codec.model_request(model).is_some())
            }),
        }
    }

    /// Whether the provider has a list already, or what `scope` asks for.
    pub fn has_list(&self, resolved: &Resolved, scope: Scope<'_>) -> bool {
        match scope.unlisted_model {
            Some(model) => self.lists.facts(&resolved.provider, model).window.is_some(),
            None => self.lists.names(&resolved.provider).is_some(),
        }
    }
}
