//! `usage/*`: what was paid for.

use async_trait::async_trait;
use jsonrpsee::Extensions;
use jsonrpsee::core::RpcResult;
use linger_protocol::api::UsageApiServer;
use linger_protocol::usage::{List, Sums};

use super::{Rpc, conn};
use crate::clock::DAY_MS;

#[async_trait]
impl UsageApiServer for Rpc {
    async fn sums(&self, extensions: &Extensions, params: List) -> RpcResult<Sums> {
        let since = params.since.unwrap_or_default() / DAY_MS;
        Ok(conn(extensions)?.query(self.0.store.sums(since, params.by)).await?)
    }
}
