//! `session/fork`, `session/rewind`, `session/prompts`, `session/compaction`, `session/uncompact` and `session/merge`.

use linger_protocol::RpcError;
use linger_protocol::tree::{
    CompactionRow, Compactions, Fork, ForkMade, PromptRow, Prompts, Rewind, RewindDone, Uncompact, Uncompacted,
};
use linger_protocol::worktree::{Merge, Merged};

use super::route::{place_to_change, place_to_read};
use super::{Caller, Services};
use crate::registry::ForkAllows;
use crate::session::messages::PlaceKind;
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
    let key = Key::of("session/fork", params.session.as_str(), params.key.take(), &params)?;
    let place = place_to_read(services, caller, &params.session, PlaceKind::Change).await?;
    services.registry.fork(params, place, allows(services, caller), key).await
}

/// Goes back to before a prompt.
pub async fn rewind(services: &Services, caller: &Caller, mut params: Rewind) -> Result<RewindDone, RpcError> {
    caller.must_be_outside(services, "rewind a session")?;
    let key = Key::of("session/rewind", params.session.as_str(), params.key.take(), &params)?;
    let place = place_to_read(services, caller, &params.session, PlaceKind::Change).await?;
    caller.may_run_in(services, &params.session).await?;
    services.registry.rewind(params, &place, allows(services, caller), key, caller.author()).await
}

/// The prompts that a session can go back to.
pub async fn prompts(services: &Services, caller: &Caller, params: Prompts) -> Result<Vec<PromptRow>, RpcError> {
    let _place = place_to_read(services, caller, &params.session, PlaceKind::Read).await?;
    services.registry.prompts(params).await
}

/// The compactions of a session, the latest first.
pub async fn compactions(
    services: &Services,
    caller: &Caller,
    params: Compactions,
) -> Result<Vec<CompactionRow>, RpcError> {
    let _place = place_to_read(services, caller, &params.session, PlaceKind::Read).await?;
    services.registry.compactions(params).await
}

/// Takes back the latest compaction.
pub async fn uncompact(services: &Services, caller: &Caller, mut params: Uncompact) -> Result<Uncompacted, RpcError> {
    let (session, what) = (params.session.clone(), "take back a compaction");
    let key = Key::of("session/uncompact", session.as_str(), params.key.take(), &params)?;
    let place = place_to_change(services, caller, &session, PlaceKind::Change, what).await?;
    caller.may_run_in(services, &session).await?;
    services.registry.uncompact(params, &place, key, caller.author()).await
}

/// Merges what a child did in its git worktree into the directory of its parent.
pub async fn merge(services: &Services, caller: &Caller, mut params: Merge) -> Result<Merged, RpcError> {
    caller.must_be_user(services, "merge the work of a child")?;
    let (session, what) = (params.session.clone(), "merge the work of a child");
    let key = Key::of("session/merge", session.as_str(), params.key.take(), &params)?;
    let _place = place_to_change(services, caller, &session, PlaceKind::Change, what).await?;
    services.registry.merge(params, key, caller.author()).await
}
