//! `session/*`: listing sessions, sending them commands, and attaching.

use linger_protocol::RpcError;
use linger_protocol::daemon::Empty;
use linger_protocol::error::Code;
use linger_protocol::permission::Mode;
use linger_protocol::session::{
    Attach, Attached, Compact, Create, Created, Info, Keyed, List, Prompt, Prompted, Prune, Pruned, Remove, Set,
};

use super::{Authority, Caller, Services, model};
use crate::registry::prune;
use crate::session::actor::{Command, KeyedReply};
use crate::session::subscription::Subscription;
use crate::store::idempotency::Key;
use crate::sys::disk;

/// The most rows of `session/list`.
const MAX_ROWS: u32 = 1000;

/// Creates a session. If it names no model, the error suggests one.
pub async fn create(services: &Services, caller: &Caller, mut params: Create) -> Result<Created, RpcError> {
    if matches!(params.mode, Some(Mode::Edit | Mode::Auto)) {
        caller.must_be_user(services, "create a session that asks less")?;
    }
    let key = Key::of("session/create", "", params.key.take(), &params)?;
    let named = params.model.clone();
    // A session's own sessions are its children.
    let parent = match caller.authority() {
        Authority::Session(session) => Some(session.clone()),
        Authority::Peer(_) | Authority::Daemon => None,
    };
    match services.registry.create(params, parent, key).await {
        Err(error) if error.code() == Some(Code::NoModel) => {
            let default = || services.config.current().ok().and_then(|config| config.model.clone());
            let provider = named.or_else(default).unwrap_or_default();
            let example = model::example(&services.providers, &provider).await;
            let hint = example.map(|model| format!("try `--model {model}`; `linger models` lists all"));
            Err(hint.into_iter().fold(error, RpcError::hint))
        }
        created => created,
    }
}

/// Sessions, the latest first; matches are searched in carried over ones too.
pub async fn list(services: &Services, _: &Caller, params: List) -> Result<Vec<Info>, RpcError> {
    let cwd = match params.cwd {
        None => None,
        Some(cwd) => {
            let seen = cwd.clone();
            let real = disk::probe(&cwd, disk::TIMEOUT, move || seen.canonicalize().ok()).await.flatten();
            Some(real.unwrap_or(cwd).to_string_lossy().into_owned())
        }
    };
    let limit = params.limit.unwrap_or(MAX_ROWS).min(MAX_ROWS);
    let found = services.store.found.clone();
    // Without a configuration the rows have no windows; each client hears of that at hello.
    let catalogue = services.providers.catalogue().ok();
    let info = move |row| {
        let info = prune::info(&found, row);
        let window = catalogue.as_ref().and_then(|catalogue| catalogue.window(&info.model));
        Info { context_window: window, ..info }
    };
    Ok(services.store.sessions(params.matching, cwd, limit, info).await?)
}

/// Subscribes to the session's events after a cursor, stored and new.
pub async fn attach(services: &Services, _: &Caller, params: Attach) -> Result<(Attached, Subscription), RpcError> {
    let reading = services.registry.ask(&params.session, |reply| Command::Attach(params.after, reply)).await?;
    let attached = Attached { cursor: reading.head.clone() };
    Ok((attached, Subscription::new(reading, services.store.clone(), params.deltas.unwrap_or(true))))
}

/// Queues a prompt; answers once it is on disk.
pub async fn prompt(services: &Services, caller: &Caller, mut params: Prompt) -> Result<Prompted, RpcError> {
    let (by, session) = (caller.name(), params.session.clone());
    let key = Key::of("session/prompt", session.as_str(), params.key.take(), &params)?;
    services.registry.ask(&session, |reply| Command::Prompt(params, key, by, reply)).await
}

/// Queues a compaction of the context; answers once the request is on disk.
pub async fn compact(services: &Services, caller: &Caller, mut params: Compact) -> Result<Prompted, RpcError> {
    let (by, session) = (caller.name(), params.session.clone());
    let key = Key::of("session/compact", session.as_str(), params.key.take(), &params)?;
    services.registry.ask(&session, |reply| Command::Compact(params, key, by, reply)).await
}

/// Cancels the running turn and keeps the session.
pub async fn cancel(services: &Services, _: &Caller, mut params: Keyed) -> Result<Empty, RpcError> {
    let key = Key::of("session/cancel", params.session.as_str(), params.key.take(), &params)?;
    services.registry.ask(&params.session, |reply| Command::Cancel(KeyedReply { key, reply })).await?;
    Ok(Empty {})
}

/// Resumes an offered turn, or starts prompts that are still queued after a cancel or an error.
pub async fn resume(services: &Services, _: &Caller, mut params: Keyed) -> Result<Empty, RpcError> {
    let key = Key::of("session/continue", params.session.as_str(), params.key.take(), &params)?;
    services.registry.ask(&params.session, |reply| Command::Continue(KeyedReply { key, reply })).await?;
    Ok(Empty {})
}

/// Changes model, mode or name from the next step on.
pub async fn set(services: &Services, caller: &Caller, mut params: Set) -> Result<Empty, RpcError> {
    if params.mode.is_some() {
        caller.must_be_user(services, "change the mode of a session")?;
    }
    let session = params.session.clone();
    let key = Key::of("session/set", session.as_str(), params.key.take(), &params)?;
    services.registry.ask(&session, |reply| Command::Set(params, KeyedReply { key, reply })).await?;
    Ok(Empty {})
}

/// Deletes a session and all its data.
pub async fn remove(services: &Services, _: &Caller, mut params: Remove) -> Result<Empty, RpcError> {
    let key = Key::of("session/remove", params.session.as_str(), params.key.take(), &params)?;
    let command = |key| move |reply| Command::Remove(params.force, KeyedReply { key, reply });
    match (services.registry.ask(&params.session, command(key.clone())).await, key) {
        (Ok(()), _) => Ok(Empty {}),
        // This very request may have removed it before.
        (Err(error), Some(key)) if error.code() == Some(Code::UnknownSession) => {
            services.store.answer_to::<()>(&key).await?.map(|()| Empty {}).ok_or(error)
        }
        (Err(error), _) => Err(error),
    }
}

/// Deletes sessions that were unused for a while, or with `dry_run` lists them.
pub async fn prune(services: &Services, _: &Caller, mut params: Prune) -> Result<Pruned, RpcError> {
    let key = Key::of("session/prune", "", params.key.take(), &params)?;
    // A repeated request waits for the outcome of the first.
    let _turn = match &key {
        Some(key) => Some(services.registry.under_way.turn(key).await),
        None => None,
    };
    if let Some(key) = &key
        && let Some(pruned) = services.store.answer_to(key).await?
    {
        return Ok(pruned);
    }
    let pruned = services.registry.prune(params).await?;
    if let Some(key) = key {
        // After its effect, which is many commits: a repeat before that continues the work.
        services.store.remember(key.outcome(&pruned)).await?;
    }
    Ok(pruned)
}
