//! `daemon/*`: saying hello, how the daemon is, its end and its repair, what models and tools there are.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use jsonrpsee::Extensions;
use jsonrpsee::core::RpcResult;
use linger_protocol::api::DaemonApiServer;
use linger_protocol::daemon::{
    Damage, Damaged, Empty, Hello, Keys, Model, Models, Repair, Repaired, Status, Stop, Storage, Tool, Welcome,
};
use linger_protocol::error::Code;
use linger_protocol::{PROTOCOL, RpcError, VERSION};

use super::{Conn, Rpc, conn, make_room};
use crate::key::Key;
use crate::key_source::KEY_BYTES;
use crate::log;
use crate::models;
use crate::provider::keys::Bearer;
use crate::repair;

/// The longest name of a client, in characters.
const MAX_CLIENT: usize = 60;

#[async_trait]
impl DaemonApiServer for Rpc {
    async fn hello(&self, extensions: &Extensions, params: Hello) -> RpcResult<Welcome> {
        let [oldest, newest] = params.protocol;
        let protocol = newest.min(PROTOCOL[1]);
        if protocol < oldest.max(PROTOCOL[0]) {
            let message = format!(
                "this daemon ({VERSION}) speaks protocol {} to {}, the client {oldest} to {newest}",
                PROTOCOL[0], PROTOCOL[1]
            );
            let error = RpcError::new(Code::Version, message);
            return Err(error.hint("restart the daemon with the client's own version: `linger daemon stop`").into());
        }
        let name: String = params.client.chars().filter(|c| !c.is_control()).take(MAX_CLIENT).collect();
        if !name.is_empty() {
            conn(extensions)?.set_name(name);
        }
        self.0.refresh_config().await;
        let (mut env, mut keys) = (Vec::new(), Vec::new());
        if let Ok(config) = self.0.config() {
            env = config.env.iter().cloned().collect();
            keys = self.0.catalogue().map(|catalogue| catalogue.wanted()).unwrap_or_default();
        }
        let config_error = self.0.config.error().map(|error| error.to_string());
        Ok(Welcome {
            protocol,
            version: VERSION.to_owned(),
            env,
            keys,
            config_stale: config_error.is_some() && self.0.config().is_ok(),
            config_error,
            config_warnings: self.0.config.current().map(|config| config.warnings.clone()).unwrap_or_default(),
            damage: repair::warnings(&self.0),
        })
    }

    async fn keys(&self, extensions: &Extensions, params: Keys) -> RpcResult<Empty> {
        conn(extensions)?.must_be_user("bring keys")?;
        if params.keys.values().any(|key| key.len() > KEY_BYTES) {
            return Err(RpcError::new(Code::TooMuch, format!("a key may have {KEY_BYTES} bytes")).into());
        }
        let Ok(catalogue) = self.0.catalogue() else { return Ok(Empty {}) };
        catalogue.add_keys(params.keys.iter().map(|(name, key)| (name.as_str(), key.as_str())), Bearer::Client);
        self.0.changed.send_replace(());
        Ok(Empty {})
    }

    async fn status(&self, extensions: &Extensions, _: Empty) -> RpcResult<Status> {
        let daemon = &self.0;
        let counts = conn(extensions)?.query(daemon.store.counts()).await;
        if let Err(error) = &counts {
            tracing::warn!(target: "daemon", %error, "the sessions cannot be counted");
            // A client that has gone is none.
            if error.code() == Some(Code::Damaged) {
                daemon.store.found.database(&error.to_string());
            }
        }
        // This is where one looks when something is wrong: it says what it can.
        let (sessions, running, permissions) = counts.unwrap_or_default();
        let storage = self.storage(conn(extensions)?).await;
        if let Err(error) = &storage {
            tracing::warn!(target: "daemon", error = error.message, "nobody knows what is taken on the disk");
        }
        Ok(Status {
            version: VERSION.to_owned(),
            protocol: PROTOCOL,
            pid: std::process::id(),
            keeper: daemon.keeper,
            restarts: daemon.restarts,
            started_at: daemon.started_at,
            socket: daemon.places.socket.clone(),
            database: daemon.places.database(),
            log: daemon.places.log(),
            log_error: self.log_error().await,
            config: daemon.places.config_file(),
            config_error: daemon.config.error().map(|error| error.to_string()),
            config_warnings: daemon.config.warnings(),
            model: daemon.model(None).ok().map(|resolved| resolved.origin),
            sessions,
            running,
            permissions,
            connections: daemon.connections.load(Ordering::Relaxed),
            damage: repair::damage(daemon).into_iter().chain(self.astray().await).collect(),
            storage: storage.ok(),
            proxies: daemon.catalogue().map(|catalogue| catalogue.network().proxies()).unwrap_or_default(),
        })
    }

    async fn stop(&self, extensions: &Extensions, mut params: Stop) -> RpcResult<Empty> {
        conn(extensions)?.must_be_user("stop the daemon")?;
        let key = Key::of("daemon/stop", "", params.key.take(), &params)?;
        if let Some(key) = &key {
            match self.0.outcome(key).await {
                // It was another daemon's end.
                Ok(Some(stopped)) => return Ok(stopped),
                Err(error) if error.code() == Some(Code::BadKey) => return Err(error.into()),
                // A daemon that cannot read its database is to be stopped all the more.
                Ok(None) | Err(_) => {}
            }
        }
        let (_, running, _) = self.0.store.counts().await.unwrap_or_default();
        if running > 0 && !params.force {
            let error = RpcError::new(Code::Busy, format!("{running} sessions have a turn under way"));
            return Err(error.hint("stop it by force: the turns go on when the daemon starts again").into());
        }
        if let Some(key) = key
            && let Err(error) = self.0.store.remember(key.outcome(&Empty {})).await
        {
            tracing::error!(target: "daemon", %error, "ends all the same, and will not know the key");
        }
        self.0.shutdown.cancel();
        Ok(Empty {})
    }

    async fn repair(&self, extensions: &Extensions, params: Repair) -> RpcResult<Repaired> {
        conn(extensions)?.must_be_user("repair what is stored")?;
        Ok(repair::repair(&self.0, params.check).await)
    }

    async fn models(&self, extensions: &Extensions, params: Models) -> RpcResult<Vec<Model>> {
        let list = models::list(&self.0, params.all);
        if !params.all {
            return Ok(list.await?);
        }
        let rows = conn(extensions)?.query(async {
            let rows = list.await?;
            make_room(extensions, models::ROOM).await?;
            Ok::<_, RpcError>(rows)
        });
        Ok(rows.await?)
    }

    async fn tools(&self, _: Empty) -> RpcResult<Vec<Tool>> {
        let row = |tool: &Arc<dyn crate::tool::Tool>| Tool {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            input_schema: tool.schema(),
            read_only: tool.read_only(),
        };
        Ok(self.0.tools.iter().map(row).collect())
    }
}

impl Rpc {
    /// Why nothing is logged.
    async fn log_error(&self) -> Option<String> {
        let path = self.0.places.log();
        let error = tokio::task::spawn_blocking(move || log::trouble(&path)).await.ok()??;
        Some(error.to_string())
    }

    /// What is wrong with where the database lies.
    async fn astray(&self) -> Option<Damage> {
        let store = self.0.store.clone();
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
    async fn storage(&self, conn: &Conn) -> Result<Storage, RpcError> {
        let places = self.0.places.clone();
        let (unused, incremental, blobs) = conn.query(self.0.store.space()).await?;
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
        Ok(Storage { unused, rewrite: !incremental && unused > 0, blobs, ..sizes })
    }
}
