//! The names of models: as rows of a list, and those that somebody may have meant.
//!
//! What a provider has is known from its own list, once it was asked for that, and else from the table of its place. Neither
//! is the whole truth (there are aliases, and models of yesterday), so a name that is in neither is doubted, never refused.

use linger_protocol::daemon::Model;

use super::{Catalogue, Entry, Kind, Provider, ResolveError, Resolved, nearest};
use crate::diagnostics::secret::Secret;
use crate::provider::driver::Endpoint;
use crate::provider::listing::Listed;
use crate::provider::models::{self, Facts};
use crate::provider::preset::{self, PLACEHOLDER, PRESETS};

impl Catalogue {
    /// A row of `model/list`.
    pub(super) fn row(&self, name: &str, entry: &Entry, model: &str) -> Model {
        let facts = self.facts(name, entry, model);
        let price = facts.prices.usual;
        Model {
            model: format!("{name}/{model}"),
            kind: entry.kind.name().to_owned(),
            base_url: (entry.kind != Kind::Demo).then(|| entry.base_url.clone()),
            context_window: facts.window,
            max_output: facts.max_output,
            input_price: price.input,
            output_price: price.output,
            cache_read_price: price.cache_read,
            cache_write_price: price.cache_write,
            dearer_above: facts.prices.long.iter().flatten().map(|(above, _)| *above).next(),
            hosted_tools: if entry.combines(model) { entry.compat.hosted.tools() } else { Vec::new() },
            ..Model::default()
        }
    }

    /// What can be asked for the list of a provider's models; nothing if it has none.
    pub fn lister(&self, provider: &str, key: Option<Secret>) -> Option<Endpoint> {
        let resolved = self.any_of(provider)?;
        match resolved.open(key) {
            Provider::Http(endpoint) if endpoint.codec.listing().is_some() => Some(endpoint),
            Provider::Http(_) | Provider::Demo => None,
            #[cfg(test)]
            Provider::Scripted(..) => None,
        }
    }

    /// Any model of a provider: where it is and which key it takes does not depend on the model.
    pub fn any_of(&self, provider: &str) -> Option<Resolved> {
        self.resolve(&format!("{provider}/MODEL")).ok()
    }

    /// Rows for what a provider has listed, after the one for its default model, `first`. What it says is known from now on.
    pub fn rows(&self, provider: &str, first: &Model, listed: &[Listed]) -> Vec<Model> {
        let Some(entry) = self.entries.get(provider) else { return Vec::new() };
        self.lists.keep(provider, listed);
        let mut rows: Vec<Model> = listed.iter().map(|listed| self.row(provider, entry, &listed.name)).collect();
        for row in &mut rows {
            (row.ready, row.default) = (first.ready, first.default && row.model == first.model);
        }
        if entry.model.is_some() && !rows.iter().any(|row| row.model == first.model) {
            rows.insert(0, first.clone());
        }
        rows
    }

    /// Rows for what the table knows of a provider that has no list of its own, or the one for its default model.
    pub fn known_rows(&self, provider: &str, first: &Model) -> Vec<Model> {
        let place = self.entries.get(provider).and_then(|entry| entry.place).unwrap_or_default();
        let known: Vec<_> =
            models::names(place).map(|name| Listed { name: name.to_owned(), facts: Facts::default() }).collect();
        if known.is_empty() { vec![first.clone()] } else { self.rows(provider, first, &known) }
    }

    /// What `spec` means in a session that has the model `current`: also the name of a model of its provider alone.
    pub fn resolve_in_session(&self, current: &str, spec: &str) -> Result<Resolved, ResolveError> {
        let unknown = match self.resolve(spec) {
            Err(ResolveError::UnknownProvider { provider, .. }) => provider,
            other => return other,
        };
        let provider = current.split('/').next().unwrap_or_default();
        if self.names(provider).iter().any(|name| name == spec) {
            return self.resolve(&format!("{provider}/{spec}"));
        }
        // Most providers have more than is known of them.
        let unlisted = || self.entries.contains_key(provider).then(|| format!("{provider}/{spec}"));
        let near = self.meant(spec, Some(provider)).or_else(unlisted);
        Err(ResolveError::UnknownProvider { provider: unknown, near })
    }

    /// What may have been meant by `spec`, whose provider is none: a model with just this name, a provider with nearly its name,
    /// a model with nearly this name of the `current` provider or of one that can be used. Providers whose key is there come
    /// first, and among them those that the user has named.
    pub(super) fn meant(&self, spec: &str, current: Option<&str>) -> Option<String> {
        let is_lacking =
            |name: &str, entry: &Entry| entry.base_url.contains(PLACEHOLDER) || self.missing(name, entry).is_some();
        let lacks = |name: &str| self.entries.get(name).is_none_or(|entry| is_lacking(name, entry));
        let (mut presets, mut providers): (Vec<&str>, Vec<&str>) =
            self.entries.keys().map(String::as_str).partition(|name| preset::named(name).is_some());
        presets.sort_by_key(|name| PRESETS.iter().position(|preset| preset.name == *name));
        providers.extend(presets);
        providers.sort_by_key(|name| lacks(name));
        let has = |name: &&&str| self.names(name).iter().any(|model| is_called(model, spec));
        let exactly = || Some(format!("{}/{spec}", providers.iter().find(has)?));
        let provider = || nearest(spec.split('/').next()?, self.entries.keys().map(String::as_str));
        let nearly = |of: &mut dyn Iterator<Item = &str>| {
            let named =
                |name: &str| self.names(name).into_iter().map(|model| (name.to_owned(), model)).collect::<Vec<_>>();
            let models: Vec<(String, String)> = of.flat_map(named).collect();
            let near = nearest(spec, models.iter().map(|(_, model)| model.as_str()))?;
            let (provider, model) = models.into_iter().find(|(_, model)| *model == near)?;
            Some(format!("{provider}/{model}"))
        };
        exactly()
            .or_else(provider)
            .or_else(|| nearly(&mut current.into_iter()))
            .or_else(|| nearly(&mut providers.iter().copied().filter(|name| !lacks(name))))
    }

    /// A model that may have been meant by `origin`, if its provider is not known to have that one; nothing is known of most.
    pub fn near_model(&self, origin: &str) -> Option<String> {
        let (provider, model) = origin.split_once('/')?;
        let known = self.models.contains_key(origin) || self.entries.get(provider)?.model.as_deref() == Some(model);
        let names = self.names(provider);
        if known || names.iter().any(|name| is_called(name, model)) {
            return None;
        }
        Some(format!("{provider}/{}", nearest(model, names.iter().map(String::as_str))?))
    }

    /// The models that a provider is known to have.
    fn names(&self, provider: &str) -> Vec<String> {
        if let Some(names) = self.lists.names(provider) {
            return names;
        }
        let Some(place) = self.entries.get(provider).and_then(|entry| entry.place) else { return Vec::new() };
        models::names(place).map(str::to_owned).collect()
    }
}

/// Whether `model` is the name of this model, or of one day of it.
fn is_called(name: &str, model: &str) -> bool {
    name == model || models::family(model).is_some_and(|family| name == family)
}
