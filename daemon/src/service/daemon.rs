//! `daemon/*` and `tool/*`: saying hello, how the daemon is, its end and its repair, what tools there are.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use linger_protocol::daemon::{
    Damage, Damaged, Empty, Hello, Keys, Repair, Repaired, Status, Stop, Storage, Tool, Welcome,
};
use linger_protocol::error::Code;
use linger_protocol::{PROTOCOL, RpcError, VERSION};

use super::{Caller, Services, config};
use crate::diagnostics;
use crate::provider::key_source::KEY_BYTES;
use crate::provider::keys::Bearer;
use crate::recover;
use crate::store::idempotency::Key;

/// Agrees on a protocol version and says which variables and keys the daemon would take.
pub async fn hello(services: &Services, caller: &Caller, params: Hello) -> Result<Welcome, RpcError> {
    let [oldest, newest] = params.protocol;
    let protocol = newest.min(PROTOCOL[1]);
    if protocol < oldest.max(PROTOCOL[0]) {
        let message = format!(
            "this daemon ({VERSION}) speaks protocol {} to {}, the client {oldest} to {newest}",
            PROTOCOL[0], PROTOCOL[1]
        );
        let error = RpcError::new(Code::Version, message);
        return Err(error.hint("restart the daemon with the client's own version: `linger daemon stop`"));
    }
    caller.set_name(&params.client);
    config::refresh(services).await;
    let (mut env, mut keys) = (Vec::new(), Vec::new());
    let current = services.config.current();
    if let Ok(config) = &current {
        env = config.env.iter().cloned().collect();
        keys = services.providers.catalogue().map(|catalogue| catalogue.wanted()).unwrap_or_default();
    }
    let config_error = services.config.error().map(|error| error.to_string());
    Ok(Welcome {
        protocol,
        version: VERSION.to_owned(),
        env,
        keys,
        config_stale: config_error.is_some() && current.is_ok(),
        config_error,
        config_warnings: current.map(|config| config.warnings.clone()).unwrap_or_default(),
        damage: recover::warnings(services),
    })
}

/// Brings provider keys, which stay in memory and go to their provider's host alone.
pub async fn keys(services: &Services, caller: &Caller, params: Keys) -> Result<Empty, RpcError> {
    caller.must_be_user(services, "bring keys")?;
    if params.keys.values().any(|key| key.len() > KEY_BYTES) {
        return Err(RpcError::new(Code::TooMuch, format!("a key may have {KEY_BYTES} bytes")));
    }
    let Ok(catalogue) = services.providers.catalogue() else { return Ok(Empty {}) };
    catalogue.add_keys(params.keys.iter().map(|(name, key)| (name.as_str(), key.as_str())), Bearer::Client);
    services.providers.changed.send_replace(());
    Ok(Empty {})
}

/// Where everything is and how much goes on.
pub async fn status(services: &Services, _: &Caller, _: Empty) -> Result<Status, RpcError> {
    let counts = services.store.counts().await;
    if let Err(error) = &counts {
        tracing::warn!(target: "daemon", %error, "the sessions cannot be counted");
        if error.is_damage() {
            services.store.found.database(&RpcError::from(error.clone()).to_string());
        }
    }
    // This is where one looks when something is wrong: it says what it can.
    let ([sessions, running], [questions, permissions]) = counts.unwrap_or_default();
    let storage = storage(services).await;
    if let Err(error) = &storage {
        tracing::warn!(target: "daemon", error = error.message, "what is taken on the disk is unknown");
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
        config_warnings: services.config.warnings(),
        model: services.providers.model(None).ok().map(|resolved| resolved.origin),
        sessions,
        running,
        permissions,
        questions,
        connections: services.connections.load(Ordering::Relaxed),
        damage: recover::damage(services).into_iter().chain(astray(services).await).collect(),
        storage: storage.ok(),
        proxies: services.providers.catalogue().map(|catalogue| catalogue.network().proxies()).unwrap_or_default(),
    })
}

/// Ends the daemon; turns go on when it starts again.
pub async fn stop(services: &Services, caller: &Caller, mut params: Stop) -> Result<Empty, RpcError> {
    caller.must_be_user(services, "stop the daemon")?;
    let key = Key::of("daemon/stop", "", params.key.take(), &params)?;
    if let Some(key) = &key {
        match services.store.answer_to(key).await {
            // It was another daemon's end.
            Ok(Some(stopped)) => return Ok(stopped),
            Err(error) if error.code() == Some(Code::BadKey) => return Err(error),
            // A daemon that cannot read its database is to be stopped all the more.
            Ok(None) | Err(_) => {}
        }
    }
    let ([_, running], _) = services.store.counts().await.unwrap_or_default();
    if running > 0 && !params.force {
        let error = RpcError::new(Code::Busy, format!("{running} sessions have a turn under way"));
        return Err(error.hint("stop it by force: the turns go on when the daemon starts again"));
    }
    if let Some(key) = key
        && let Err(error) = services.store.remember(key.outcome(&Empty {})).await
    {
        tracing::error!(target: "daemon", %error, "ends all the same, and will not know the key");
    }
    services.shutdown.cancel();
    Ok(Empty {})
}

/// Looks for damage to what is stored, and saves what can be read.
pub async fn repair(services: &Arc<Services>, caller: &Caller, params: Repair) -> Result<Repaired, RpcError> {
    caller.must_be_user(services, "repair what is stored")?;
    Ok(recover::repair(services, params.check).await)
}

/// The tools that models are given.
pub async fn tools(services: &Services, _: &Caller, _: Empty) -> Result<Vec<Tool>, RpcError> {
    let row = |tool: &Arc<dyn crate::tool::Tool>| Tool {
        name: tool.name().to_owned(),
        description: tool.description().to_owned(),
        input_schema: tool.schema(),
        read_only: !tool.changes(),
    };
    Ok(services.env().tools.current().iter().map(row).collect())
}

/// Why nothing is logged.
async fn log_error(services: &Services) -> Option<String> {
    let path = services.places.log();
    let error = tokio::task::spawn_blocking(move || diagnostics::write_error(&path)).await.ok()??;
    Some(error.to_string())
}

/// What is wrong with where the database lies.
async fn astray(services: &Services) -> Option<Damage> {
    let store = services.store.clone();
    let text = tokio::task::spawn_blocking(move || store.astray()).await.ok()??;
    Some(Damage {
        what: Damaged::Database,
        session: None,
        file: None,
        at: 0,
        text,
        hint: Some("until that is mended nothing is taken, and what is stored can be read".to_owned()),
        carried: 0,
        left: Vec::new(),
        lost: false,
    })
}

/// What is taken on the disk.
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
        // Of a directory that was moved away, where it was.
        let system = places.data.ancestors().find_map(|dir| rustix::fs::statvfs(dir).ok());
        let free = system.map_or(0, |system| system.f_bavail * system.f_frsize);
        let log = size(&log, "") + size(&log, ".1");
        Storage { database: size(&database, ""), wal: size(&database, "-wal"), log, free, ..Storage::default() }
    };
    let sizes = tokio::task::spawn_blocking(sizes).await.unwrap_or_default();
    Ok(Storage { unused, blobs, ..sizes })
}
