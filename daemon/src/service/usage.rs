//! `usage/*`: tokens and costs.

use linger_protocol::RpcError;
use linger_protocol::usage::{List, Sums};

use super::{Caller, Services};
use crate::sys::clock::DAY_MS;

/// Sums of tokens and costs.
pub async fn sums(services: &Services, caller: &Caller, params: List) -> Result<Sums, RpcError> {
    caller.must_be_outside(services, "read the usage of all sessions")?;
    caller.must_see_all("read the usage of all sessions")?;
    let since = params.since.unwrap_or_default() / DAY_MS;
    Ok(services.store.sums(since, params.by).await?)
}
