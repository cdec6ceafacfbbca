//! The names of models: rows of a list, and suggestions for unknown ones.
//!
//! A provider's models are known from its own list once fetched, else from the table of its preset. Both are incomplete (aliases,
//! retired models), so an unlisted name gets a warning and is never refused.

use linger_protocol::daemon::Model;
use linger_protocol::session::Effort;

use super::{Catalogue, Entry, ResolveError, Resolved, Secrets, nearest};
use crate::provider::attempt::Provider;
use crate::provider::codecs::codec;
use crate::provider::driver::Endpoint;
use crate::provider::effort;
use crate::provider::kind::ProviderKind;
use crate::provider::listing::Listed;
use crate::provider::models::{self, ModelInfo};
use crate::provider::preset::{self, PLACEHOLDER, PRESETS};

impl Catalogue {
    /// A row of `model/list`.
    pub(super) fn row(&self, name: &str, entry: &Entry, model: &str) -> Model {
        let facts = self.facts(name, entry, model);
        let price = facts.prices.usual;
        Model {
            model: format!("{name}/{model}"),
            kind: entry.kind.name().to_owned(),
            base_url: (entry.kind != ProviderKind::Demo).then(|| entry.base_url.clone()),
            context_window: facts.window,
            max_output: facts.max_output,
            input_price: price.input,
            output_price: price.output,
            cache_read_price: price.cache_read,
            cache_write_price: price.cache_write,
            dearer_above: facts.prices.long.iter().flatten().map(|(above, _)| *above).next(),
            efforts: self.efforts(name, entry, model),
            hosted_tools: if entry.combines(model) { entry.compat.hosted.tools() } else { Vec::new() },
            ..Model::default()
        }
    }

    fn efforts(&self, name: &str, entry: &Entry, model: &str) -> Vec<Effort> {
        let compat = self.learned(name, model, entry.compat);
        codec(entry.kind, compat).map(|codec| effort::taken(codec.as_ref(), model)).unwrap_or_default()
    }

    /// The row of a model (`provider/model`); `None` if its provider is unknown.
    pub fn row_of(&self, origin: &str) -> Option<Model> {
        let (name, model) = origin.split_once('/')?;
        let entry = self.entries.get(name)?;
        let missing = match (entry.base_url.contains(PLACEHOLDER), self.missing(name, entry)) {
            (true, _) => Some("base_url".to_owned()),
            (false, missing) => missing.map(str::to_owned),
        };
        let default = self.default_origin().as_deref() == Some(origin);
        Some(Model { default, ready: missing.is_none(), missing, ..self.row(name, entry, model) })
    }

    /// The endpoint of a provider's model list; `None` if it has none.
    pub fn lister(&self, provider: &str, secrets: Secrets) -> Option<Endpoint> {
        let resolved = self.any_of(provider)?;
        match resolved.open(secrets) {
            Provider::Http(endpoint) if endpoint.codec.listing().is_some() => Some(endpoint),
            Provider::Http(_) | Provider::Demo => None,
            #[cfg(test)]
            Provider::Scripted(..) => None,
        }
    }

    /// Any model of a provider: address and key do not depend on the model.
    pub fn any_of(&self, provider: &str) -> Option<Resolved> {
        self.resolve(&format!("{provider}/MODEL")).ok()
    }

    /// Rows for a fetched list, after the row of the default model, `first`. Remembers the list.
    pub fn rows(&self, provider: &str, first: &Model, listed: &[Listed]) -> Vec<Model> {
        let Some(entry) = self.entries.get(provider) else { return Vec::new() };
        self.lists.keep(provider, listed);
        let mut rows: Vec<Model> = listed.iter().map(|listed| self.row(provider, entry, &listed.name)).collect();
        let default = self.default_origin();
        for row in &mut rows {
            (row.ready, row.default) = (first.ready, default.as_ref() == Some(&row.model));
            row.contacted = first.contacted;
        }
        if entry.model.is_some() && !rows.iter().any(|row| row.model == first.model) {
            rows.insert(0, first.clone());
        }
        rows
    }

    /// Rows from the table for a provider without a list, or the row of its default model.
    pub fn known_rows(&self, provider: &str, first: &Model) -> Vec<Model> {
        let place = self.entries.get(provider).and_then(|entry| entry.place).unwrap_or_default();
        let known: Vec<_> =
            models::names(place).map(|name| Listed { name: name.to_owned(), facts: ModelInfo::default() }).collect();
        if known.is_empty() { vec![first.clone()] } else { self.rows(provider, first, &known) }
    }

    /// Rows of the models whose names are known, without asking: the provider's own list if it has given one, else the table of
    /// the preset at this address; and the provider's default model if that is no guess. `first` is the row of the latter.
    pub fn kept_rows(&self, provider: &str, first: &Model) -> Vec<Model> {
        let Some(entry) = self.entries.get(provider) else { return Vec::new() };
        let table = || models::names(entry.place.unwrap_or_default()).map(str::to_owned).collect();
        let names: Vec<String> = self.lists.names(provider).unwrap_or_else(table);
        let mut rows: Vec<Model> = names.iter().map(|name| self.row(provider, entry, name)).collect();
        if entry.model.is_some() && entry.is_model_sure && !rows.iter().any(|row| row.model == first.model) {
            rows.insert(0, first.clone());
        }
        for row in &mut rows {
            (row.ready, row.default) = (first.ready, first.default && row.model == first.model);
        }
        rows
    }

    /// Whether a provider has given its list of models.
    pub fn has_names(&self, provider: &str) -> bool {
        self.lists.names(provider).is_some()
    }

    /// Resolves `spec` in a session whose model is `current`: also a model's name without its provider.
    pub fn resolve_in_session(&self, current: &str, spec: &str) -> Result<Resolved, ResolveError> {
        let unknown = match self.resolve(spec) {
            Err(ResolveError::UnknownProvider { provider, .. }) => provider,
            other => return other,
        };
        let provider = current.split('/').next().unwrap_or_default();
        if self.names(provider).iter().any(|name| name == spec) {
            return self.resolve(&format!("{provider}/{spec}"));
        }
        // Most providers have unlisted models.
        let unlisted = || self.entries.contains_key(provider).then(|| format!("{provider}/{spec}"));
        let near = self.meant(spec, Some(provider)).or_else(unlisted);
        Err(ResolveError::UnknownProvider { provider: unknown, near })
    }

    /// A suggestion for `spec` with an unknown provider: a model with this name, a provider with a similar name, or a model with a
    /// similar name of the `current` or a usable provider. Providers with a key come first, configured ones among them before presets.
    pub(super) fn meant(&self, spec: &str, current: Option<&str>) -> Option<String> {
        let is_lacking =
            |name: &str, entry: &Entry| entry.base_url.contains(PLACEHOLDER) || self.missing(name, entry).is_some();
        let lacks = |name: &str| self.entries.get(name).is_none_or(|entry| is_lacking(name, entry));
        let (mut presets, mut providers): (Vec<&str>, Vec<&str>) =
            self.entries.keys().map(String::as_str).partition(|name| preset::named(name).is_some());
        presets.sort_by_key(|name| PRESETS.iter().position(|preset| preset.name == *name));
        providers.extend(presets);
        providers.sort_by_key(|name| lacks(name));
        // A provider's name in other letters is that provider.
        let name = spec.split('/').next().unwrap_or(spec);
        let same = providers.iter().find(|known| known.eq_ignore_ascii_case(name));
        if let Some(known) = same {
            return Some(format!("{known}{}", spec.get(name.len()..).unwrap_or_default()));
        }
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
        // A word of the name, such as `sonnet`: the last by name is the newest.
        let of_family = |name: &&str| {
            let is_named = |model: &String| model.split(['-', '/', ':']).any(|word| word == spec) && spec.len() > 2;
            Some(format!("{name}/{}", self.names(name).into_iter().filter(is_named).max()?))
        };
        exactly()
            .or_else(|| providers.iter().find_map(of_family))
            .or_else(provider)
            .or_else(|| nearly(&mut current.into_iter()))
            .or_else(|| nearly(&mut providers.iter().copied().filter(|name| !lacks(name))))
    }

    /// A model with a similar name, if the provider's models are known and `origin` is not among them.
    pub fn near_model(&self, origin: &str) -> Option<String> {
        let (provider, model) = origin.split_once('/')?;
        let known = self.models.contains_key(origin) || self.entries.get(provider)?.model.as_deref() == Some(model);
        let names = self.names(provider);
        if known || names.iter().any(|name| is_called(name, model)) {
            return None;
        }
        Some(format!("{provider}/{}", nearest(model, names.iter().map(String::as_str))?))
    }

    /// The known models of a provider.
    fn names(&self, provider: &str) -> Vec<String> {
        if let Some(names) = self.lists.names(provider) {
            return names;
        }
        let entry = self.entries.get(provider);
        // At another address the models of a preset may be the same.
        let Some(place) = entry.and_then(|entry| entry.place.or(entry.preset)) else { return Vec::new() };
        models::names(place).map(str::to_owned).collect()
    }
}

/// Whether `model` is this name, or this name with a date.
fn is_called(name: &str, model: &str) -> bool {
    name == model || models::family(model).is_some_and(|family| name == family)
}
