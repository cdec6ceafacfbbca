//! `usage/*`: tokens and costs.

use linger_protocol::RpcError;
use linger_protocol::usage::{List, Sums};

use super::{Caller, Services};
use crate::sys::clock::DAY_MS;

/// Sums of tokens and costs.
pub async fn sums(services: &Services, _: &Caller, params: List) -> Result<Sums, RpcError> {
    let since = params.since.unwrap_or_default() / DAY_MS;
    Ok(services.store.sums(since, params.by).await?)
}
