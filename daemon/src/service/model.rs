//! `model/*`: the available models. All usable providers are asked for their lists concurrently, with a short timeout.
//!
//! A provider that does not answer costs only its own rows. Its key is obtained as for a turn, but with a shorter timeout.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::daemon::{Model, Models};
use linger_protocol::key::{Info, Source};
use tokio::task::{JoinHandle, JoinSet};

use super::{Caller, Services};
use crate::config::providers::Providers;
use crate::provider::catalogue::{Catalogue, Secrets};
use crate::provider::lister::{self, LIST_TIMEOUT};
use crate::provider::listing;
use crate::sys::task;

/// How long to search for an example model, which only improves an error message.
const EXAMPLE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long an editor waits for the list of a provider that was never asked.
const KNOWN_WAIT: Duration = Duration::from_secs(2);

/// The most rows of all lists together.
const MAX_ROWS: usize = 5000;

/// The rows of `model/list`: one a provider, all models of all providers, or those whose names are known.
pub async fn list(services: &Services, _: &Caller, params: Models) -> Result<Vec<Model>, RpcError> {
    let providers = &services.providers;
    let catalogue = providers.catalogue()?;
    if let Some(model) = params.model {
        return Ok(catalogue.row_of(&model).into_iter().collect());
    }
    if params.known {
        return Ok(known(providers, &catalogue).await);
    }
    let rows = catalogue.list().await;
    if !params.all {
        return Ok(rows);
    }
    let mut asked = JoinSet::new();
    for (n, row) in rows.into_iter().enumerate() {
        let (providers, catalogue) = (providers.clone(), catalogue.clone());
        asked.spawn(async move { (n, of_provider(&providers, &catalogue, row).await) });
    }
    let mut lists = asked.join_all().await;
    lists.sort_by_key(|(n, _)| *n);
    providers.store_lists(&catalogue).await;
    Ok(lists.into_iter().flat_map(|(_, rows)| rows).take(MAX_ROWS).collect())
}

/// The models whose names are known, of providers that can be used.
async fn known(providers: &Arc<Providers>, catalogue: &Arc<Catalogue>) -> Vec<Model> {
    providers.restore_lists(catalogue).await;
    let mut asked = JoinSet::new();
    for (n, row) in catalogue.list().await.into_iter().filter(|row| row.ready).enumerate() {
        let (providers, catalogue) = (providers.clone(), catalogue.clone());
        asked.spawn(async move {
            let provider = provider_of(&row).to_owned();
            let is_kept = catalogue.has_names(&provider);
            if let Some(renewal) = renew(&providers, &catalogue, &provider).filter(|_| !is_kept) {
                let _late = tokio::time::timeout(KNOWN_WAIT, renewal).await;
            }
            (n, catalogue.kept_rows(&provider, &row))
        });
    }
    let mut lists = asked.join_all().await;
    lists.sort_by_key(|(n, _)| *n);
    lists.into_iter().flat_map(|(_, rows)| rows).take(MAX_ROWS).collect()
}

/// Fetches and stores a provider's list in a task of its own, if it has one and its key is at hand.
fn renew(providers: &Arc<Providers>, catalogue: &Arc<Catalogue>, provider: &str) -> Option<JoinHandle<()>> {
    let resolved = catalogue.any_of(provider)?;
    catalogue.lister(provider, Secrets::default())?;
    if !providers.key_sources.are_at_hand(&resolved) || !providers.takes_renewal(provider) {
        return None;
    }
    let (providers, catalogue, provider) = (providers.clone(), catalogue.clone(), provider.to_owned());
    Some(task::spawn(async move {
        match listed(&providers, &catalogue, &provider).await {
            Ok(Some(models)) => {
                catalogue.keep_list(&provider, &models);
                providers.store_lists(&catalogue).await;
            }
            Ok(None) => {}
            Err(problem) => tracing::info!(target: "request", provider, problem, "cannot list models"),
        }
    }))
}

fn provider_of(row: &Model) -> &str {
    row.model.split('/').next().unwrap_or_default()
}

/// A usable model of this provider, or of any if `provider` is empty, for an error message.
pub async fn example(providers: &Arc<Providers>, provider: &str) -> Option<String> {
    let catalogue = providers.catalogue().ok()?;
    // Never prompt for a keychain's password here.
    let at_hand = |info: &Info| matches!(info.source, Source::None | Source::Daemon | Source::Client);
    let at_hand: BTreeSet<String> =
        catalogue.key_infos().into_iter().filter(at_hand).map(|info| info.provider).collect();
    let is_meant = |row: &Model| {
        let of = provider_of(row);
        row.ready && at_hand.contains(of) && (provider.is_empty() || of == provider)
    };
    let mut asked = JoinSet::new();
    for row in catalogue.list().await.into_iter().filter(is_meant) {
        let (providers, catalogue) = (providers.clone(), catalogue.clone());
        asked.spawn(async move { of_provider(&providers, &catalogue, row).await });
    }
    let first = async {
        while let Some(rows) = asked.join_next().await {
            let listed = |row: &Model| row.problem.is_none() && !row.model.ends_with("/MODEL");
            if let Some(row) = rows.unwrap_or_default().into_iter().find(listed) {
                return Some(row.model);
            }
        }
        None
    };
    tokio::time::timeout(EXAMPLE_TIMEOUT, first).await.ok().flatten()
}

/// All models of the provider of `row`, or one row with its problem.
async fn of_provider(providers: &Providers, catalogue: &Catalogue, row: Model) -> Vec<Model> {
    if !row.ready {
        return vec![row];
    }
    let provider = provider_of(&row).to_owned();
    match listed(providers, catalogue, &provider).await {
        Ok(Some(models)) => catalogue.rows(&provider, &Model { contacted: true, ..row }, &models),
        Ok(None) => catalogue.known_rows(&provider, &row),
        Err(problem) => {
            tracing::info!(target: "request", provider, problem, "cannot list models");
            vec![Model { problem: Some(problem), ..row }]
        }
    }
}

/// The provider's list of models; `None` if it has no such endpoint.
async fn listed(
    providers: &Providers,
    catalogue: &Catalogue,
    provider: &str,
) -> Result<Option<Vec<listing::Listed>>, String> {
    let Some(resolved) = catalogue.any_of(provider) else { return Ok(None) };
    if catalogue.lister(provider, Secrets::default()).is_none() {
        return Ok(None);
    }
    let key = tokio::time::timeout(LIST_TIMEOUT, providers.key_sources.obtain_all(&resolved)).await;
    let key = key.map_err(|_| format!("cannot get its key within {} s", LIST_TIMEOUT.as_secs()))?;
    let key = key.map_err(|lack| format!("its key: {lack}"))?;
    let Some(endpoint) = catalogue.lister(provider, key) else { return Ok(None) };
    lister::list(&endpoint, catalogue.scope_of(provider, None)).await
}
