//! `permission/*`: what waits for an answer, and answering it.

use async_trait::async_trait;
use jsonrpsee::Extensions;
use jsonrpsee::core::RpcResult;
use linger_protocol::RpcError;
use linger_protocol::api::PermissionApiServer;
use linger_protocol::error::Code;
use linger_protocol::permission::{self, Answer, Answered, Pending};

use super::{Rpc, conn};
use crate::key::Key;
use crate::session::actor::{Asked, Command};
use crate::store::PENDING;

/// The longest reason that comes with an answer, in bytes: a few lines for the model.
const MAX_REASON: usize = 16 << 10;

#[async_trait]
impl PermissionApiServer for Rpc {
    async fn pending(&self, extensions: &Extensions, params: permission::List) -> RpcResult<Vec<Pending>> {
        Ok(conn(extensions)?.query_large(extensions, PENDING, self.0.store.pending(params.session)).await?)
    }

    async fn answer(&self, extensions: &Extensions, mut params: Answer) -> RpcResult<Answered> {
        let conn = conn(extensions)?;
        conn.must_be_user("answer a permission")?;
        if params.decision == permission::Decision::Cancelled {
            return Err(RpcError::new(Code::NotAllowed, "'cancelled' is not an answer")
                .hint("cancel the turn instead")
                .into());
        }
        if params.reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON) {
            return Err(RpcError::new(Code::TooMuch, format!("a reason may have {MAX_REASON} bytes")).into());
        }
        let session = match self.0.asked.session(&params.permission) {
            Some(session) => session,
            None => match self.0.store.permission(params.permission.clone()).await.map_err(RpcError::from)? {
                Some(asked) => asked.session,
                None => return Err(self.0.already_answered(&params.permission).await.into()),
            },
        };
        let key = Key::of("permission/answer", params.permission.as_str(), params.key.take(), &params)?;
        let by = conn.name();
        self.ask(&session, |reply| Command::Answer(params, by, Asked { key, reply })).await?;
        Ok(Answered { outcome: "won".to_owned() })
    }
}
