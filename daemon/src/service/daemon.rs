//! `daemon/*` and `tool/*`: hello, status, stop, check, and the list of tools.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use linger_protocol::daemon::{Checked, Damage, Damaged, Empty, Hello, Keys, Status, Stop, Storage, Welcome};
use linger_protocol::error::Code;
use linger_protocol::variable::TOOL_ENV;
use linger_protocol::{PROTOCOL, RpcError, VERSION};
use tokio::time::timeout;

use super::{Caller, Services, in_force, token};
use crate::diagnostics;
use crate::provider::key_source::KEY_BYTES;
use crate::recover;
use crate::store::idempotency::Key;
use crate::sys::clock;
use crate::sys::task;

/// How long tool calls that run may take to end when the daemon is told to stop.
const CALL_GRACE: Duration = Duration::from_secs(10);

/// Agrees on a protocol version and tells which variables and keys the client should pass.
pub async fn hello(services: &Services, caller: &Caller, params: Hello) -> Result<Welcome, RpcError> {
    // Before anything is waited for: what follows on the connection is checked against it.
    caller.greet(services, &params)?;
    let [oldest, newest] = params.protocol;
    let protocol = newest.min(PROTOCOL[1]);
    if protocol < oldest.max(PROTOCOL[0]) {
        let message = format!(
            "this daemon ({VERSION}) speaks protocol {} to {}, the client {oldest} to {newest}",
            PROTOCOL[0], PROTOCOL[1]
        );
        let error = RpcError::new(Code::Version, message);
        return Err(error.hint("restart the daemon with the client's own version: `linger daemon restart`"));
    }
    if let Some(running) = params.gateway {
        caller.serve_as_gateway(services, running)?;
    }
    let token = caller.token();
    match &token {
        Some(token) => token::note_use(services, token),
        None => caller.set_name(services, &params.client),
    }
    in_force::refresh(services).await;
    let (mut env, mut env_deny, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    // What it could not bring it is not asked for.
    let may_bring = caller.is_plain();
    let workspace_keys = if may_bring { services.providers.wanted_of_workspaces() } else { BTreeMap::new() };
    let current = services.config.current();
    if let Ok(config) = &current
        && may_bring
    {
        let usual = TOOL_ENV.iter().filter(|name| !config.env.deny.contains(**name)).map(|name| (*name).to_owned());
        env = usual.chain(config.env.pass.iter().cloned()).collect();
        env_deny = config.env.deny.iter().cloned().collect();
        keys = services.providers.wanted();
    }
    let signals = current.as_ref().map(|config| config.attention.terminal.clone()).unwrap_or_default();
    let config_error = services.config.error().map(|error| error.to_string());
    Ok(Welcome {
        protocol,
        version: VERSION.to_owned(),
        grant: token.map(|token| token.grant.clone()),
        env,
        env_deny,
        keys,
        workspace_keys,
        signals,
        config_stale: config_error.is_some() && current.is_ok(),
        config_error,
        config_warnings: services.config_warnings(),
        damage: recover::warnings(&services.store),
    })
}

/// Takes provider keys, which go only to their provider's host, and variables of MCP servers; they stay in memory.
pub async fn keys(services: &Services, _: &Caller, params: Keys) -> Result<Empty, RpcError> {
    let of_workspaces = params.workspace_keys.values().flat_map(BTreeMap::values);
    if params.keys.values().chain(of_workspaces).any(|key| key.len() > KEY_BYTES) {
        return Err(RpcError::new(Code::TooMuch, format!("a key may have {KEY_BYTES} bytes")));
    }
    services.providers.add(&params.keys);
    services.providers.add_of_workspaces(&params.workspace_keys);
    services.providers.changed.send_replace(());
    Ok(Empty {})
}

/// Paths, counts and problems of the daemon; never fails because of damage.
pub async fn status(services: &Services, _: &Caller, _: Empty) -> Result<Status, RpcError> {
    let counts = services.store.counts().await;
    if let Err(error) = &counts {
        tracing::warn!(target: "daemon", %error, "cannot count the sessions");
        if error.is_damage() {
            services.store.found.database(&RpcError::from(error.clone()).to_string());
        }
    }
    // Status is for the case that something is wrong: it reports what it can.
    let ([sessions, running], [questions, permissions]) = counts.unwrap_or_default();
    let storage = storage(services).await;
    if let Err(error) = &storage {
        tracing::warn!(target: "daemon", error = error.message, "cannot measure the use of disk space");
    }
    Ok(Status {
        version: VERSION.to_owned(),
        protocol: PROTOCOL,
        pid: std::process::id(),
        keeper: services.keeper,
        restarts: services.restarts,
        started_at: services.started_at,
        socket: services.places.socket.clone(),
        database: services.places.database(),
        log: services.places.log(),
        log_error: log_error(services).await,
        config: services.places.config_file(),
        config_error: services.config.error().map(|error| error.to_string()),
        config_warnings: services.config_warnings(),
        model: services.providers.model(None).ok().map(|resolved| resolved.origin),
        sessions,
        running,
        permissions,
        questions,
        tokens: services.tokens.count(clock::now()),
        connections: services.connections.load(Ordering::Relaxed),
        damage: recover::damage(&services.store).into_iter().chain(astray(services).await).collect(),
        storage: storage.ok(),
        gateway: services.gateways.latest(),
        proxies: services.providers.catalogue().map(|catalogue| catalogue.network().proxies()).unwrap_or_default(),
    })
}

/// Ends the daemon; its turns resume at the next start. Refused while turns run, unless forced.
pub async fn stop(services: &Services, _: &Caller, mut params: Stop) -> Result<Empty, RpcError> {
    let key = Key::of("daemon/stop", "", params.key.take(), &params)?;
    if let Some(key) = &key {
        match services.store.answer_to(key).await {
            // The key stopped an earlier daemon.
            Ok(Some(stopped)) => return Ok(stopped),
            Err(error) if error.code() == Some(Code::BadKey) => return Err(error),
            // Even a daemon that cannot read its database must stop.
            Ok(None) | Err(_) => {}
        }
    }
    let ([_, running], _) = services.store.counts().await.unwrap_or_default();
    if running > 0 && !params.force {
        let error = RpcError::new(Code::Busy, format!("{running} sessions have a running turn"));
        return Err(error.hint("use force to stop it anyway: the turns resume when the daemon starts again"));
    }
    if let Some(key) = key
        && let Err(error) = services.store.remember(key.outcome(&Empty {})).await
    {
        tracing::error!(target: "daemon", %error, "stopping without storing the key of the request");
    }
    let (env, shutdown) = (services.env().clone(), services.shutdown.clone());
    if params.now {
        shutdown.cancel();
        return Ok(Empty {});
    }
    task::spawn(async move {
        // From here on no call begins.
        let mut none = pin!(env.calls.running.none());
        let _ended = timeout(CALL_GRACE, &mut none).await;
        shutdown.cancel();
    });
    Ok(Empty {})
}

/// Reads what is stored, and says what of it is damaged.
pub async fn check(services: &Services, _: &Caller, _: Empty) -> Result<Checked, RpcError> {
    let (store, shutdown) = (services.store.clone(), services.shutdown.clone());
    let checked = task::spawn_blocking(move || recover::check(&store, &shutdown)).await;
    let mut checked = checked.map_err(|error| RpcError::new(Code::Internal, error.to_string()))?;
    checked.damage.extend(astray(services).await);
    Ok(checked)
}

/// Why the log cannot be written, if so.
async fn log_error(services: &Services) -> Option<String> {
    let path = services.places.log();
    let error = task::spawn_blocking(move || diagnostics::write_error(&path)).await.ok()??;
    Some(error.to_string())
}

/// The problem of the database's location, if any.
async fn astray(services: &Services) -> Option<Damage> {
    let store = services.store.clone();
    let text = task::spawn_blocking(move || store.astray()).await.ok()??;
    Some(Damage {
        what: Damaged::Database,
        session: None,
        file: None,
        at: 0,
        text,
        hint: Some("until that is repaired sessions can be read, but not changed".to_owned()),
        carried: 0,
        left: Vec::new(),
        lost: false,
    })
}

/// The use of disk space.
async fn storage(services: &Services) -> Result<Storage, RpcError> {
    let places = services.places.clone();
    let (unused, blobs) = services.store.space().await?;
    let sizes = move || {
        let (database, log) = (places.database(), places.log());
        let size = |path: &Path, suffix: &str| {
            let mut path = path.as_os_str().to_owned();
            path.push(suffix);
            std::fs::metadata(path).map_or(0, |file| file.len())
        };
        // The nearest ancestor, in case the directory was moved away.
        let system = places.data.ancestors().find_map(|dir| rustix::fs::statvfs(dir).ok());
        let free = system.map_or(0, |system| system.f_bavail * system.f_frsize);
        let log = size(&log, "") + size(&log, ".1");
        Storage { database: size(&database, ""), wal: size(&database, "-wal"), log, free, ..Storage::default() }
    };
    let sizes = task::spawn_blocking(sizes).await.unwrap_or_default();
    Ok(Storage { unused, blobs, ..sizes })
}
