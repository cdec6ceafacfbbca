//! `session/fork`, `session/rewind`, `session/prompts`, `session/compaction`, `session/uncompact` and `session/merge`.

use linger_protocol::RpcError;
use linger_protocol::tree::{
    CompactionRow, Compactions, Fork, ForkMade, PromptRow, Prompts, Rewind, RewindDone, Uncompact, Uncompacted,
};
use linger_protocol::worktree::{Merge, Merged};

use super::{Caller, Services};
use crate::registry::ForkAllows;
use crate::store::idempotency::Key;

/// What a fork may take over from its origin.
fn allows(services: &Services, caller: &Caller) -> ForkAllows {
    let added = caller.must_be_process(services, "have the directories that a user added").is_ok();
    ForkAllows { added, most: caller.loosest(services) }
}

/// Makes a session that goes on from a point of another one.
pub async fn fork(services: &Services, caller: &Caller, mut params: Fork) -> Result<ForkMade, RpcError> {
    caller.must_be_outside(services, "fork a session")?;
    caller.may_make_sessions()?;
    caller.may_read(services, &params.session).await?;
    let allows = allows(services, caller);
    let key = Key::of("session/fork", params.session.as_str(), params.key.take(), &params)?;
    services.registry.fork(params, allows, key).await
}

/// Goes back to before a prompt.
pub async fn rewind(services: &Services, caller: &Caller, mut params: Rewind) -> Result<RewindDone, RpcError> {
    caller.must_be_outside(services, "rewind a session")?;
    caller.may_read(services, &params.session).await?;
    caller.may_run_in(services, &params.session).await?;
    let allows = allows(services, caller);
    let key = Key::of("session/rewind", params.session.as_str(), params.key.take(), &params)?;
    services.registry.rewind(params, allows, key, caller.author()).await
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
    caller.may_run_in(services, &params.session).await?;
    let key = Key::of("session/uncompact", params.session.as_str(), params.key.take(), &params)?;
    services.registry.uncompact(params, key, caller.author()).await
}

/// Merges what a child did in its git worktree into the directory of its parent.
pub async fn merge(services: &Services, caller: &Caller, mut params: Merge) -> Result<Merged, RpcError> {
    caller.must_be_user(services, "merge the work of a child")?;
    caller.may_change(services, &params.session, "merge the work of a child").await?;
    let key = Key::of("session/merge", params.session.as_str(), params.key.take(), &params)?;
    services.registry.merge(params, key, caller.author()).await
}
