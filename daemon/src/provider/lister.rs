//! Asks a provider for its models: its list, and what servers of one's own say elsewhere.
//!
//! Deliberately absent: parsing ([`super::listing`]), and keeping the answer (the catalogue).

use std::time::Duration;

use super::address;
use super::driver::{self, Endpoint};
use super::listing::{self, Listed};
use super::types::HttpRequest;

/// How long a provider may take: most answer in a fraction of a second, and a user waits.
pub const LIST_TIMEOUT: Duration = Duration::from_secs(4);

/// The largest list of one provider, in bytes: the largest known has a few kilobytes for each of five hundred models.
const MAX_LIST: usize = 8 << 20;

/// The largest answer about one model or server, in bytes: Ollama's has licence and template.
const MAX_DETAILS: usize = 4 << 20;

/// How much to ask a provider in addition to its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope<'a> {
    /// A server of one's own, which may know more than its list has: LiteLLM, llama.cpp.
    pub own_server: bool,
    /// A model whose properties the list lacks, so that they are asked for too.
    pub unlisted_model: Option<&'a str>,
}

/// The models of a provider; `None` if it has no list.
pub async fn list(endpoint: &Endpoint, scope: Scope<'_>) -> Result<Option<Vec<Listed>>, String> {
    let Some(request) = endpoint.codec.listing() else { return Ok(None) };
    let body = driver::get(endpoint, request, LIST_TIMEOUT, MAX_LIST).await.map_err(|failure| failure.message)?;
    let mut models = listing::parse(&body)?;
    if let Some(model) = scope.unlisted_model
        && let Some(request) = endpoint.codec.model_request(model)
    {
        let answer = details(endpoint, request).await;
        let window = answer.and_then(|answer| endpoint.codec.model_window(&answer));
        for listed in models.iter_mut().filter(|listed| listed.name == model) {
            listed.facts.window = window;
        }
    }
    if scope.own_server && listing::is_llamacpp(&body) {
        let root = address::origin(&endpoint.base_url).unwrap_or_default();
        let server = Endpoint { base_url: root, ..endpoint.clone() };
        let props = details(&server, HttpRequest::listing("/props")).await;
        if let Some(window) = props.and_then(|body| listing::llamacpp_window(&body)) {
            models.iter_mut().for_each(|listed| listed.facts.window = Some(window));
        }
    } else if scope.own_server && !models.is_empty() && !models.iter().any(Listed::has_prices) {
        let info = details(endpoint, HttpRequest::listing("/model/info")).await;
        let info = info.map(|body| listing::litellm_info(&body)).unwrap_or_default();
        for listed in &mut models {
            if let Some(known) = info.iter().find(|known| known.name == listed.name) {
                listed.facts = listed.facts.or(known.facts);
            }
        }
    }
    Ok(Some(models))
}

/// A document that a server may not have.
async fn details(endpoint: &Endpoint, request: HttpRequest) -> Option<Vec<u8>> {
    driver::get(endpoint, request, LIST_TIMEOUT, MAX_DETAILS).await.ok()
}
