//! `model/*`: the available models. All usable providers are asked for their lists concurrently, with a short timeout.
//!
//! A provider that does not answer costs only its own rows. Its key is obtained as for a turn, but with a shorter timeout.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::daemon::{Model, Models};
use linger_protocol::key::{Info, Source};
use tokio::task::JoinSet;

use super::{Caller, Services};
use crate::config::providers::Providers;
use crate::provider::catalogue::{Catalogue, Secrets};
use crate::provider::lister::{self, LIST_TIMEOUT};
use crate::provider::listing;

/// How long to search for an example model, which only improves an error message.
const EXAMPLE_TIMEOUT: Duration = Duration::from_secs(1);

/// The most rows of all lists together.
const MAX_ROWS: usize = 5000;

/// The rows of `model/list`: one a provider, or all models of all providers.
pub async fn list(services: &Services, _: &Caller, params: Models) -> Result<Vec<Model>, RpcError> {
    let providers = &services.providers;
    let catalogue = providers.catalogue()?;
    if let Some(model) = params.model {
        return Ok(catalogue.row_of(&model).into_iter().collect());
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

/// A usable model of this provider, or of any if `provider` is empty, for an error message.
pub async fn example(providers: &Arc<Providers>, provider: &str) -> Option<String> {
    let catalogue = providers.catalogue().ok()?;
    // Never prompt for a keychain's password here.
    let at_hand = |info: &Info| matches!(info.source, Source::None | Source::Daemon | Source::Client);
    let at_hand: BTreeSet<String> =
        catalogue.key_infos().into_iter().filter(at_hand).map(|info| info.provider).collect();
    let is_meant = |row: &Model| {
        let of = row.model.split('/').next().unwrap_or_default();
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
    let provider = row.model.split('/').next().unwrap_or_default().to_owned();
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
