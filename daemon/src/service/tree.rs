//! `session/fork`, `session/rewind`, `session/prompts`, `session/compaction`, `session/uncompact` and `session/merge`.

use linger_protocol::RpcError;
use linger_protocol::tree::{
    CompactionRow, Compactions, Fork, ForkMade, PromptRow, Prompts, Rewind, RewindDone, Uncompact, Uncompacted,
};
use linger_protocol::worktree::{Merge, Merged};

use super::route::place;
use super::{Caller, Services};
use crate::registry::ForkAllows;
use crate::registry::create::directory;
use crate::session::messages::PlaceKind;
use crate::store::idempotency::Key;

/// The parts of its origin that a fork may take over.
fn allows(services: &Services, caller: &Caller) -> ForkAllows {
    let added = caller.must_be_process(services, "have the directories that a user added").is_ok();
    ForkAllows { added, most: caller.loosest(services) }
}

/// Makes a session that goes on from a point of another one.
pub async fn fork(services: &Services, caller: &Caller, mut params: Fork) -> Result<ForkMade, RpcError> {
    if let Some(cwd) = &mut params.cwd {
        caller.must_be_process(services, "fork a session into another directory")?;
        *cwd = directory(cwd).await?;
    }
    let key = Key::of("session/fork", params.session.as_str(), params.key.take(), &params)?;
    let place = place(services, caller, &params.session, "session/fork", PlaceKind::Change).await?;
    services.registry.fork(params, place, allows(services, caller), key).await
}

/// Goes back to before a prompt.
pub async fn rewind(services: &Services, caller: &Caller, mut params: Rewind) -> Result<RewindDone, RpcError> {
    let key = Key::of("session/rewind", params.session.as_str(), params.key.take(), &params)?;
    let place = place(services, caller, &params.session, "session/rewind", PlaceKind::Change).await?;
    services.registry.rewind(params, &place, allows(services, caller), key, caller.author()).await
}

/// The prompts that a session can go back to.
pub async fn prompts(services: &Services, caller: &Caller, params: Prompts) -> Result<Vec<PromptRow>, RpcError> {
    let _place = place(services, caller, &params.session, "session/prompts", PlaceKind::Read).await?;
    services.registry.prompts(params).await
}

/// The compactions of a session, the latest first.
pub async fn compactions(
    services: &Services,
    caller: &Caller,
    params: Compactions,
) -> Result<Vec<CompactionRow>, RpcError> {
    let _place = place(services, caller, &params.session, "session/compaction", PlaceKind::Read).await?;
    services.registry.compactions(params).await
}

/// Takes back the latest compaction.
pub async fn uncompact(services: &Services, caller: &Caller, mut params: Uncompact) -> Result<Uncompacted, RpcError> {
    let key = Key::of("session/uncompact", params.session.as_str(), params.key.take(), &params)?;
    let place = place(services, caller, &params.session, "session/uncompact", PlaceKind::Change).await?;
    services.registry.uncompact(params, &place, key, caller.author()).await
}

/// Merges what a child did in its git worktree into the directory of its parent.
pub async fn merge(services: &Services, caller: &Caller, mut params: Merge) -> Result<Merged, RpcError> {
    let key = Key::of("session/merge", params.session.as_str(), params.key.take(), &params)?;
    let _place = place(services, caller, &params.session, "session/merge", PlaceKind::Change).await?;
    services.registry.merge(params, key, caller.author()).await
}
