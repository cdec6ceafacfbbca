//! The methods for completions without a session, whose pieces follow the answer as notifications.

use async_trait::async_trait;
use jsonrpsee::core::RpcResult;
use jsonrpsee::types::ErrorObjectOwned;
use jsonrpsee::{Extensions, ResponsePayload};
use linger_protocol::api::CompletionApiServer;
use linger_protocol::daemon::Empty;
use linger_protocol::{RpcError, completion};

use super::conn::{Attached, conn};
use super::forward::forward;
use super::methods::Rpc;
use crate::service;

#[async_trait]
impl CompletionApiServer for Rpc {
    async fn start(
        &self,
        extensions: &Extensions,
        params: completion::Start,
    ) -> ResponsePayload<'static, completion::Started> {
        let started = async {
            let conn = conn(extensions)?.clone();
            let number = conn.next_completion();
            let (started, completion) = service::completion::start(&self.0, conn.caller(), number, params).await?;
            let to = Attached::Completion(started.completion.clone());
            let generation = conn.begin_attach(&to)?;
            // The first piece must follow the answer.
            let (payload, answered) = ResponsePayload::success(started).notify_on_completion();
            let (outbox, may) = (conn.outbox.clone(), conn.may_send(&self.0));
            conn.end_attach(&to, generation, || {
                let forwarder = tokio::spawn(async move {
                    if answered.await.is_ok() {
                        forward(completion, outbox, may).await;
                    }
                });
                forwarder.abort_handle()
            });
            Ok(payload)
        };
        started.await.unwrap_or_else(|error: RpcError| ResponsePayload::error(ErrorObjectOwned::from(error)))
    }

    async fn cancel(&self, extensions: &Extensions, params: completion::Cancel) -> RpcResult<Empty> {
        Ok(conn(extensions)?.detach(&Attached::Completion(params.completion))?)
    }
}
