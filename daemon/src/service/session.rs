//! `session/*`: listing sessions, sending them commands, and attaching.

use std::collections::BTreeMap;

use linger_protocol::RpcError;
use linger_protocol::checkpoint::{Diff, Differences};
use linger_protocol::daemon::Empty;
use linger_protocol::error::Code;
use linger_protocol::mcp::SessionServer;
use linger_protocol::message::{ContentBlock, text_of};
use linger_protocol::permission::Mode;
use linger_protocol::prompt::PromptContent;
use linger_protocol::session::{
    Attach, Attached, Bin, Cancel, Compact, Continue, Create, Created, Environment, Info, Keyed, List, Named, OutOfBin,
    Prompt, Prompted, Prune, Pruned, Redo, Remove, Removed, Restored, Set, Undo, Unqueue, Unqueued, When,
};
use linger_protocol::token::Can;

use serde_json::Value;

use super::route::{Route, place};
use super::{Authority, Caller, Services, agent, artifact, model};
use crate::config::HookEvent;
use crate::log::cursor::Position;
use crate::mcp::sessions::{self, Unfit};
use crate::registry::create::{directory, directory_within};
use crate::registry::place::HeldPlace;
use crate::registry::prune;
use crate::session::env::hooks::{Hooks, Refusal};
use crate::session::messages::{CallBasis, Command, KeyedReply, Named as Expanded, PlaceKind, PromptRequest};
use crate::session::reading::subscription::Subscription;
use crate::session::state::State;
use crate::store::Wanted;
use crate::store::idempotency::Key;
use crate::sys::disk;

/// The most rows of `session/list`.
const MAX_ROWS: u32 = 1000;

/// Creates a session. If it names no model, the error suggests one.
pub async fn create(services: &Services, caller: &Caller, mut params: Create) -> Result<Created, RpcError> {
    if let Some(mode) = params.mode {
        caller.may_have_mode(services, mode, true)?;
    }
    if !params.additional_directories.is_empty() {
        caller.must_be_process(services, "add a directory to a session")?;
    }
    if !params.mcp_servers.is_empty() {
        may_bring_servers(services, caller, &params.mcp_servers)?;
    }
    if caller.token().is_some() {
        must_bring_nothing(services, caller, &params.env)?;
        // The resolved path counts, not the given one: the session's own directory has no links.
        params.cwd = directory(&params.cwd).await?;
        caller.may_look_into(services, &params.cwd).await?;
    }
    if !params.allow.is_empty() {
        caller.must_be_user(services, "create a session that asks less")?;
    }
    // The key's hash excludes the variables.
    let env = std::mem::take(&mut params.env);
    let names = params.mcp_servers.iter().map(SessionServer::without_values).collect();
    let servers = std::mem::replace(&mut params.mcp_servers, names);
    let key = Key::of("session/create", "", params.key.take(), &params)?;
    (params.env, params.mcp_servers) = (env, servers);
    let named = params.model.clone();
    // A session's own sessions are its children.
    let parent = match caller.authority() {
        Authority::Session(session) => Some(session.clone()),
        Authority::Peer(_) | Authority::Daemon => None,
    };
    match services.registry.create(params, parent, caller.loosest(services), key).await {
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
pub async fn list(services: &Services, caller: &Caller, params: List) -> Result<Vec<Info>, RpcError> {
    let among = caller.readable(services).await?;
    let cwd = match params.cwd {
        None => None,
        Some(cwd) => {
            let seen = cwd.clone();
            let real = disk::probe(&cwd, disk::TIMEOUT, move || seen.canonicalize().ok()).await.flatten();
            Some(linger_protocol::path::text(&real.unwrap_or(cwd)).into_owned())
        }
    };
    let limit = params.limit.unwrap_or(MAX_ROWS).min(MAX_ROWS);
    let (found, attention) = (services.store.found.clone(), services.env().attention.clone());
    // Without a configuration the rows have no windows; each client hears of that at hello.
    let catalogue = services.providers.catalogue().ok();
    let info = move |row| {
        let info = prune::info(&found, row);
        let window = catalogue.as_ref().and_then(|catalogue| catalogue.window(&info.model));
        Info { context_window: window, left: attention.left(&info.session), ..info }
    };
    let wanted = Wanted { matching: params.matching, cwd, bin: Some(params.bin), lasting: params.lasting, among };
    Ok(services.store.sessions(wanted, limit, params.before, info).await?)
}

/// Subscribes to the session's events after a cursor, stored and new.
pub async fn attach(
    services: &Services,
    caller: &Caller,
    params: Attach,
) -> Result<(Attached, Subscription), RpcError> {
    let route = Route::to(services, caller, &params.session, "session/attach", PlaceKind::Attach).await?;
    let env = brought(services, caller, params.env);
    let person = params.person && caller.is_person(services);
    let reading = route.send(|reply| Command::Attach(params.after, person, env, reply)).await?;
    let attached = Attached { cursor: Position::after(reading.head).cursor(), missing_env: reading.missing.clone() };
    Ok((attached, Subscription::new(reading, services.store.clone(), params.deltas.unwrap_or(true))))
}

/// The secret variables that a request brings; none from a process that the daemon started.
fn brought(services: &Services, caller: &Caller, env: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_dropped = env.is_empty() || caller.must_be_process(services, "bring variables").is_err();
    if is_dropped { BTreeMap::new() } else { env }
}

/// Fails for MCP servers that the caller may not bring, and for those that make no sense.
fn may_bring_servers(services: &Services, caller: &Caller, servers: &[SessionServer]) -> Result<(), RpcError> {
    caller.must_be_process(services, "bring MCP servers for a session")?;
    sessions::check(servers).map_err(|error| {
        let code = match error {
            Unfit::TooMuch(_) => Code::TooMuch,
            Unfit::Wrong { .. } => Code::BadValue,
        };
        RpcError::new(code, error.to_string()).hint("`linger help servers` has what a server can be")
    })
}

/// Fails for variables from a connection with a token.
fn must_bring_nothing(services: &Services, caller: &Caller, env: &BTreeMap<String, String>) -> Result<(), RpcError> {
    if env.is_empty() || caller.is_plain() { Ok(()) } else { caller.must_be_process(services, "bring variables") }
}

/// The names of the variables of a session's tools.
pub async fn env(services: &Services, caller: &Caller, params: Named) -> Result<Environment, RpcError> {
    let route = Route::to(services, caller, &params.session, "session/env", PlaceKind::Read).await?;
    route.send(Command::Environment).await
}

/// Queues a prompt; answers once it is on disk.
pub async fn prompt(services: &Services, caller: &Caller, mut params: Prompt) -> Result<Prompted, RpcError> {
    let can = if matches!(params.when, None | Some(When::Queue)) { Can::Speak } else { Can::Steer };
    caller.must_have(services, can, "send such a prompt")?;
    must_bring_nothing(services, caller, &params.env)?;
    let session = params.session.clone();
    let env = std::mem::take(&mut params.env);
    let key = Key::of("session/prompt", session.as_str(), params.key.take(), &params)?;
    params.env = env;
    let has_schema = params.schema.is_some();
    let direct = Route::direct(services, caller, &session);
    if let Some(direct) = direct.filter(|_| !needs_preparing(services, &mut params)) {
        let (prompt, named, by) = (params, None, caller.author());
        let request = |reply| PromptRequest { prompt, named, key, by, has_schema, reply };
        return direct.send(|reply| Command::Prompt(Box::new(request(reply)))).await;
    }
    let mut place = place(services, caller, &session, "session/prompt", PlaceKind::Prompt).await?;
    let (prompt, named) = place.prepare(async |place| prepared(services, caller, place, params).await).await?;
    let by = caller.author();
    let request = |reply| PromptRequest { prompt, named, key, by, has_schema, reply };
    place.finish(|reply| Command::Prompt(Box::new(request(reply)))).await
}

/// Whether something has to be read or run before the prompt is whole.
fn needs_preparing(services: &Services, params: &mut Prompt) -> bool {
    let blocks = take_content(params);
    let needs = (params.expand && agent::names_command(&blocks))
        || artifact::are_mentioned(&blocks)
        || services.env().policy.may_have_hooks(HookEvent::Prompt);
    params.content = PromptContent::Blocks(blocks);
    needs
}

fn take_content(params: &mut Prompt) -> Vec<ContentBlock> {
    std::mem::replace(&mut params.content, PromptContent::Blocks(Vec::new())).into_blocks()
}

/// The prompt with its command expanded, the artifacts that it names, and what hooks add; and the command that it named.
async fn prepared(
    services: &Services,
    caller: &Caller,
    place: &HeldPlace,
    mut params: Prompt,
) -> Result<(Prompt, Option<Expanded>), RpcError> {
    let mut blocks = take_content(&mut params);
    let named = if params.expand { agent::expand(services, place, &mut blocks).await? } else { None };
    blocks.extend(artifact::mentioned(services, caller, &blocks).await?);
    if services.env().policy.may_have_hooks(HookEvent::Prompt) {
        blocks.extend(hooked(services, place, &blocks).await?);
    }
    params.content = PromptContent::Blocks(blocks);
    Ok((params, named))
}

/// Runs the hooks of a prompt, and gives their addition to it. Fails if one refuses it.
async fn hooked(
    services: &Services,
    place: &HeldPlace,
    blocks: &[ContentBlock],
) -> Result<Option<ContentBlock>, RpcError> {
    let CallBasis { workspace, .. } = place.ask(Command::CallBasis).await?;
    services.env().policy.read(&workspace).await;
    let hooks = Hooks::of(&services.env().calls, &workspace, place.session());
    if !hooks.has(HookEvent::Prompt) {
        return Ok(None);
    }
    let fields = [("prompt".to_owned(), Value::from(text_of(blocks)))].into_iter().collect();
    let said = hooks.run(HookEvent::Prompt, fields, |_| true).await;
    let said = said.map_err(|Refusal { why, .. }| {
        RpcError::new(Code::BadPrompt, format!("the prompt is refused: {why}"))
            .hint("a hook of the configuration says so")
    })?;
    Ok(said.added.map(ContentBlock::text))
}

/// Queues a compaction of the context; answers once the request is on disk.
pub async fn compact(services: &Services, caller: &Caller, mut params: Compact) -> Result<Prompted, RpcError> {
    let session = params.session.clone();
    let key = Key::of("session/compact", session.as_str(), params.key.take(), &params)?;
    let route = Route::to(services, caller, &session, "session/compact", PlaceKind::Change).await?;
    route.send(|reply| Command::Compact(params, key, caller.author(), reply)).await
}

/// Takes back a prompt that waits for its turn.
pub async fn unqueue(services: &Services, caller: &Caller, mut params: Unqueue) -> Result<Unqueued, RpcError> {
    let session = params.session.clone();
    let key = Key::of("session/unqueue", session.as_str(), params.key.take(), &params)?;
    let route = Route::to(services, caller, &session, "session/unqueue", PlaceKind::Change).await?;
    route.send(|reply| Command::Unqueue(params.prompt, key, caller.author(), reply)).await
}

/// Puts files back to what they were before a turn.
pub async fn undo(services: &Services, caller: &Caller, mut params: Undo) -> Result<Restored, RpcError> {
    let session = params.session.clone();
    let key = Key::of("session/undo", session.as_str(), params.key.take(), &params)?;
    let route = Route::to(services, caller, &session, "session/undo", PlaceKind::Change).await?;
    route.send(|reply| Command::Undo(params, key, caller.author(), reply)).await
}

/// The changes of files that the turns of a session made.
pub async fn diff(services: &Services, caller: &Caller, params: Diff) -> Result<Differences, RpcError> {
    let route = Route::to(services, caller, &params.session, "session/diff", PlaceKind::Read).await?;
    route.send(|reply| Command::Diff(params, reply)).await
}

/// Makes the changes again that were undone last.
pub async fn redo(services: &Services, caller: &Caller, mut params: Redo) -> Result<Restored, RpcError> {
    let session = params.session.clone();
    let key = Key::of("session/redo", session.as_str(), params.key.take(), &params)?;
    let route = Route::to(services, caller, &session, "session/redo", PlaceKind::Change).await?;
    route.send(|reply| Command::Redo(params, key, caller.author(), reply)).await
}

/// Cancels the running turn, and prompts that are being prepared; keeps the session.
pub async fn cancel(services: &Services, caller: &Caller, mut params: Cancel) -> Result<Empty, RpcError> {
    let session = params.session.clone();
    let key = Key::of("session/cancel", session.as_str(), params.key.take(), &params)?;
    let route = Route::to(services, caller, &session, "session/cancel", PlaceKind::Cancel).await?;
    route.send(|reply| Command::Cancel(params.background, KeyedReply { key, reply })).await?;
    Ok(Empty {})
}

/// Resumes an offered turn, starts prompts that are still queued after an error, or sends drafts.
pub async fn resume(services: &Services, caller: &Caller, mut params: Continue) -> Result<Empty, RpcError> {
    let key = Key::of("session/continue", params.session.as_str(), params.key.take(), &params)?;
    let route = Route::to(services, caller, &params.session, "session/continue", PlaceKind::Change).await?;
    let by = caller.author();
    route.send(|reply| Command::Continue(params.prompt, by, KeyedReply { key, reply })).await?;
    Ok(Empty {})
}

/// Changes model, mode or name from the next step on.
pub async fn set(services: &Services, caller: &Caller, mut params: Set) -> Result<Empty, RpcError> {
    let has_directories = !(params.add_directories.is_empty() && params.remove_directories.is_empty());
    if let Some(mode) = params.mode {
        caller.may_have_mode(services, mode, false)?;
    }
    if has_directories {
        caller.must_be_process(services, "add or remove a directory of a session")?;
    }
    if let Some(servers) = &params.mcp_servers {
        may_bring_servers(services, caller, servers)?;
    }
    if !params.budget.is_empty() {
        caller.must_be_user(services, "change the budget of a session")?;
    }
    if params.cwd.is_some() {
        caller.must_be_process(services, "move a session to another directory")?;
    }
    let session = params.session.clone();
    let names = params.mcp_servers.as_ref().map(|all| all.iter().map(SessionServer::without_values).collect());
    let servers = std::mem::replace(&mut params.mcp_servers, names);
    let key = Key::of("session/set", session.as_str(), params.key.take(), &params)?;
    params.mcp_servers = servers;
    let direct = Route::direct(services, caller, &session);
    if let Some(direct) = direct.filter(|_| params.mode.is_none() && !has_directories && params.cwd.is_none()) {
        let may_add = may_add_tools(services, caller, &params).await?;
        let command = |reply| Command::Set(params, may_add, KeyedReply { key, reply });
        direct.send(command).await?;
        return Ok(Empty {});
    }
    let place = place(services, caller, &session, "session/set", PlaceKind::Change).await?;
    let may_add = may_add_tools(services, caller, &params).await?;
    // Not longer: a cancel waits for the place.
    let limit = disk::SHORT_TIMEOUT;
    for dir in params.add_directories.iter_mut().chain(&mut params.cwd) {
        *dir = directory_within(dir, limit).await?;
    }
    for dir in &mut params.remove_directories {
        // It may be gone.
        *dir = directory_within(dir, limit).await.unwrap_or_else(|_| std::mem::take(dir));
    }
    let Some(mode) = params.mode else {
        place.finish(|reply| Command::Set(params, may_add, KeyedReply { key, reply })).await?;
        return Ok(Empty {});
    };
    services.registry.may_be(&session, mode).await?;
    place.ask(|reply| Command::Set(params, may_add, KeyedReply { key, reply })).await?;
    // Before the next request of this session.
    services.registry.tighten(&session, mode).await?;
    Ok(Empty {})
}

/// Whether a request may give its session tools that it does not have: a user may, and a token that reaches as far as its mode. Only
/// for a token does this wait.
async fn may_add_tools(services: &Services, caller: &Caller, params: &Set) -> Result<Result<(), RpcError>, RpcError> {
    if params.tools.is_none() {
        return Ok(Ok(()));
    }
    if caller.token().is_none() {
        return Ok(caller.must_be_user(services, "give a session more tools"));
    }
    let row = services.store.session(params.session.clone()).await?;
    let mode = row.and_then(|row| State::from_stored(&row.fold)).map_or(Mode::Auto, |state| state.settings.mode);
    Ok(caller.may_have_mode(services, mode, false))
}

/// Puts a session into the bin, and its children.
pub async fn bin(services: &Services, caller: &Caller, mut params: Bin) -> Result<Removed, RpcError> {
    let session = params.session.clone();
    let key = Key::of("session/bin", session.as_str(), params.key.take(), &params)?;
    let place = place(services, caller, &session, "session/bin", PlaceKind::Change).await?;
    let mut children = 0;
    for child in services.registry.leave(&session, params.force, Some(&place)).await? {
        match services.registry.bin(&child, params.force, None, None).await {
            Ok(()) => children += 1,
            Err(error) if matches!(error.code(), Some(Code::UnknownSession | Code::Binned)) => {}
            Err(error) => return Err(error),
        }
    }
    services.registry.bin(&session, params.force, key, Some(&place)).await?;
    Ok(Removed { children, worktrees: Vec::new() })
}

/// Takes a session out of the bin.
pub async fn restore(services: &Services, caller: &Caller, mut params: Keyed) -> Result<OutOfBin, RpcError> {
    let session = params.session.clone();
    let key = Key::of("session/restore", session.as_str(), params.key.take(), &params)?;
    let place = place(services, caller, &session, "session/restore", PlaceKind::Change).await?;
    let out = place.ask(|reply| Command::Restore(key, reply)).await?;
    let mut failed = None;
    for (child, _) in services.registry.below(&session).await? {
        match services.registry.ask(&child, |reply| Command::Restore(None, reply)).await {
            Ok(_) => {}
            // It is not in the bin.
            Err(error) if matches!(error.code(), Some(Code::UnknownSession | Code::Idle)) => {}
            Err(error) => failed = failed.or(Some((child, error))),
        }
    }
    let Some((child, error)) = failed else { return Ok(out) };
    let text = format!("session {session} is out of the bin, but its child {child} is not: {}", error.message);
    Err(RpcError::new(error.code().unwrap_or(Code::Internal), text)
        .hint(format!("`linger restore {child}` tries again")))
}

/// Deletes a session, its children and all their data.
pub async fn remove(services: &Services, caller: &Caller, mut params: Remove) -> Result<Removed, RpcError> {
    let session = params.session.clone();
    let key = Key::of("session/remove", session.as_str(), params.key.take(), &params)?;
    let place = place(services, caller, &session, "session/remove", PlaceKind::Change).await;
    let place = match place {
        Ok(place) => Some(place),
        // Nothing of it can be prepared, and it can be removed.
        Err(error) if error.code() == Some(Code::Damaged) => None,
        Err(error) => return removed_before(services, key, error, Removed::default()).await,
    };
    let below = services.registry.leave(&session, params.force, place.as_ref()).await?;
    let worktrees = services.registry.tidy_worktrees(&below, &session).await;
    let children = services.registry.remove_all(below, params.force).await?;
    let asked = key.clone();
    let command = |reply| Command::Remove(params.force, KeyedReply { key: asked, reply });
    let gone = match place {
        Some(place) => place.finish(command).await,
        None => services.registry.ask(&session, command).await,
    };
    let removed = Removed { children, worktrees };
    match gone {
        Ok(()) => Ok(removed),
        Err(error) => removed_before(services, key, error, removed).await,
    }
}

/// The answer to a request for a session that is gone: this very request may have removed it before.
async fn removed_before(
    services: &Services,
    key: Option<Key>,
    error: RpcError,
    removed: Removed,
) -> Result<Removed, RpcError> {
    match key {
        Some(key) if error.code() == Some(Code::UnknownSession) => {
            services.store.answer_to::<()>(&key).await?.map(|()| removed).ok_or(error)
        }
        _ => Err(error),
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
