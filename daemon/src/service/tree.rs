//! `session/fork`, `session/rewind`, `session/prompts`, `session/compaction` and `session/uncompact`.

use linger_protocol::RpcError;
use linger_protocol::tree::{
    CompactionRow, Compactions, Fork, ForkMade, PromptRow, Prompts, Rewind, RewindDone, Uncompact, Uncompacted,
};

use super::{Caller, Services};
use crate::store::idempotency::Key;

/// Makes a session that goes on from a point of another one.
pub async fn fork(services: &Services, caller: &Caller, mut params: Fork) -> Result<ForkMade, RpcError> {
    caller.must_be_outside(services, "fork a session")?;
    let is_user = caller.must_be_user(services, "fork a session").is_ok();
    let key = Key::of("session/fork", params.session.as_str(), params.key.take(), &params)?;
    services.registry.fork(params, is_user, key).await
}

/// Goes back to before a prompt.
pub async fn rewind(services: &Services, caller: &Caller, mut params: Rewind) -> Result<RewindDone, RpcError> {
    caller.must_be_outside(services, "rewind a session")?;
    let is_user = caller.must_be_user(services, "rewind a session").is_ok();
    let key = Key::of("session/rewind", params.session.as_str(), params.key.take(), &params)?;
    services.registry.rewind(params, is_user, key, caller.author()).await
}

/// The prompts that a session can go back to.
pub async fn prompts(services: &Services, caller: &Caller, params: Prompts) -> Result<Vec<PromptRow>, RpcError> {
    caller.may_read(services, &params.session).await?;
    services.registry.prompts(params).await
}

/// The compactions of a session, the latest first.
pub async fn compactions(
    services: &Services,
    caller: &Caller,
    params: Compactions,
) -> Result<Vec<CompactionRow>, RpcError> {
    caller.may_read(services, &params.session).await?;
    services.registry.compactions(params).await
}

/// Takes back the latest compaction.
pub async fn uncompact(services: &Services, caller: &Caller, mut params: Uncompact) -> Result<Uncompacted, RpcError> {
    caller.may_change(services, &params.session, "take back a compaction").await?;
    let key = Key::of("session/uncompact", params.session.as_str(), params.key.take(), &params)?;
    services.registry.uncompact(params, key, caller.author()).await
}
