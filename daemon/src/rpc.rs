//! The methods: each turns a request into a command or a query, and returns. No logic lives here.

mod key;
mod usage;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jsonrpsee::core::RpcResult;
use jsonrpsee::types::ErrorObjectOwned;
use jsonrpsee::{Extensions, Methods, ResponsePayload};
use linger_protocol::api::{
    BlobApiServer, DaemonApiServer, KeyApiServer, PermissionApiServer, SessionApiServer, UsageApiServer,
};
use linger_protocol::blob::{Get, Piece};
use linger_protocol::daemon::{
    Empty, Hello, Keys, Model, Models, Repair, Repaired, Status, Stop, Storage, Tool, Welcome,
};
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::permission::{self, Answer, Answered, Mode, Pending};
use linger_protocol::session::{
    Attach, Attached, Compact, Create, Created, Info, Keyed, List, Named, Prompt, Prompted, Prune, Pruned, Remove, Set,
};
use linger_protocol::transport::room::{AnswerRoom, LargeRoom};
use linger_protocol::transport::serve::Outbox;
use linger_protocol::{PROTOCOL, RpcError, VERSION};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::connections::Used;
use crate::daemon::Daemon;
use crate::disk;
use crate::fault;
use crate::key::Key;
use crate::key_source::KEY_BYTES;
use crate::listener::Peer;
use crate::models;
use crate::peer;
use crate::provider::keys::Bearer;
use crate::prune;
use crate::repair;
use crate::session::actor::{Asked, Command, Reply};
use crate::session::subscriber::Subscriber;
use crate::store::{PENDING, StoreError};

/// Rows of `session/list` unless asked for fewer.
const MAX_ROWS: u32 = 1000;

/// About how large a list of sessions is, in bytes: a thousand take half of it.
const LIST_ROOM: usize = 1 << 20;

/// Sessions that one client may be attached to; an editor has a window each.
const MAX_ATTACHED: usize = 256;

/// The longest reason that comes with an answer, in bytes: a few lines for the model.
const MAX_REASON: usize = 16 << 10;
/// Bytes in an answer of `blob/get`: large enough to be quick, small enough to be one of many on a connection.
const MAX_PIECE: u64 = 1 << 20;

/// About how large such an answer is, in bytes: base64 has a third more.
const PIECE_ROOM: usize = 3 << 19;

/// The longest name of a client, in characters.
const MAX_CLIENT: usize = 60;

/// The methods of the daemon.
#[derive(Clone)]
pub struct Rpc(Arc<Daemon>);

/// What the daemon knows of one connection; in the extensions of each of its requests.
pub struct Conn {
    peer: Peer,
    /// The keeper's process: what a dead daemon left behind is below it.
    keeper: Option<u32>,
    outbox: Outbox,
    /// What it called itself in `daemon/hello`.
    client: Mutex<Option<String>>,
    /// The forwarders of the sessions that it is attached to.
    attached: Mutex<HashMap<SessionId, Attachment>>,
    /// Held by the query that it has among those of others.
    querying: tokio::sync::Mutex<()>,
}

/// What sends the events of one session to one client.
struct Attachment {
    /// Tells this attach from an earlier or later one of the same session.
    generation: u64,
    /// The task, once the session has answered.
    forwarder: Option<AbortHandle>,
}

impl Attachment {
    /// Whether it has not ended.
    fn is_live(&self) -> bool {
        self.forwarder.as_ref().is_none_or(|task| !task.is_finished())
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if let Some(forwarder) = &self.forwarder {
            forwarder.abort();
        }
    }
}

impl Conn {
    /// A connection of this peer.
    pub fn new(peer: Peer, keeper: Option<u32>, outbox: Outbox) -> Self {
        Self {
            peer,
            keeper,
            outbox,
            client: Mutex::default(),
            attached: Mutex::default(),
            querying: tokio::sync::Mutex::default(),
        }
    }

    /// Who is there, as others see it.
    pub fn name(&self) -> String {
        let client = self.client.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        client.unwrap_or_else(|| self.peer.pid.map_or_else(|| "somebody".to_owned(), |pid| format!("pid {pid}")))
    }

    /// What it is used for.
    pub fn used(&self) -> Used {
        let activity = self.outbox.activity();
        let attached = self.attached().values().any(Attachment::is_live);
        match activity.stuck() {
            Some(stuck) => Used::Stuck(stuck),
            None if attached || activity.is_waiting() => Used::Working,
            None => Used::Idle(activity.silent(), activity.has_asked()),
        }
    }

    /// Runs a query for this connection: one at a time, and none once the client has gone. However many requests a client
    /// sends at once, it has one query among those of the others.
    async fn query<T, E>(&self, query: impl Future<Output = Result<T, E>>) -> Result<T, RpcError>
    where
        RpcError: From<E>,
    {
        tokio::select! {
            biased;
            result = async {
                let _turn = self.querying.lock().await;
                query.await
            } => result.map_err(RpcError::from),
            () = self.outbox.gone() => Err(RpcError::new(Code::Internal, "the client has gone")),
        }
    }

    /// As [`Self::query`], for what may give a large answer: it is made when there is room for it.
    async fn query_large<T>(
        &self,
        extensions: &Extensions,
        bytes: usize,
        query: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, RpcError> {
        self.query(async {
            make_room(extensions, bytes).await;
            query.await
        })
        .await
    }

    fn attached(&self) -> MutexGuard<'_, HashMap<SessionId, Attachment>> {
        self.attached.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes that an attach is under way, so that a detach that comes after it ends it. What was attached before is not any more.
    fn begin_attach(&self, session: &SessionId) -> Result<u64, RpcError> {
        let mut attached = self.attached();
        attached.retain(|_, attachment| attachment.is_live());
        if attached.len() >= MAX_ATTACHED && !attached.contains_key(session) {
            let error = RpcError::new(Code::TooMuch, format!("attached to {MAX_ATTACHED} sessions already"));
            return Err(error.hint("detach from some, or open another connection"));
        }
        let generation = attached.get(session).map_or(0, |earlier| earlier.generation + 1);
        attached.insert(session.clone(), Attachment { generation, forwarder: None });
        Ok(generation)
    }

    /// Starts the forwarder of an attach, unless it was detached or attached anew meanwhile.
    fn end_attach(&self, session: &SessionId, generation: u64, forward: impl FnOnce() -> AbortHandle) {
        if let Some(attachment) = self.attached().get_mut(session).filter(|now| now.generation == generation) {
            attachment.forwarder = Some(forward());
        }
    }

    /// Takes back an attach that failed.
    fn forget_attach(&self, session: &SessionId, generation: u64) {
        let mut attached = self.attached();
        if attached.get(session).is_some_and(|now| now.generation == generation) {
            attached.remove(session);
        }
    }

    /// Refuses what only a user may do to a process that the daemon started, or that cannot be told from one.
    fn must_be_user(&self, what: &str) -> Result<(), RpcError> {
        let family = [Some(std::process::id()), self.keeper];
        let descends = |ancestor| self.peer.pid.and_then(|pid| peer::descends_from(pid, ancestor));
        if family.into_iter().flatten().all(|ancestor| descends(ancestor) == Some(false)) {
            return Ok(());
        }
        tracing::warn!(target: "permission", pid = self.peer.pid, what, "refused to a process that the daemon started");
        Err(RpcError::new(Code::NotAllowed, format!("a process that the daemon started may not {what}"))
            .hint("do it from a terminal or an editor"))
    }
}

/// All methods of `daemon`.
pub fn methods(daemon: Arc<Daemon>) -> anyhow::Result<Methods> {
    let rpc = Rpc(daemon);
    let mut methods = Methods::new();
    methods.merge(DaemonApiServer::into_rpc(rpc.clone()))?;
    methods.merge(SessionApiServer::into_rpc(rpc.clone()))?;
    methods.merge(BlobApiServer::into_rpc(rpc.clone()))?;
    methods.merge(KeyApiServer::into_rpc(rpc.clone()))?;
    methods.merge(UsageApiServer::into_rpc(rpc.clone()))?;
    methods.merge(PermissionApiServer::into_rpc(rpc))?;
    Ok(methods)
}

/// Waits for room for a large answer, which keeps it until it is on its way.
async fn make_room(extensions: &Extensions, bytes: usize) {
    let room = LargeRoom::of(bytes).await;
    if let Some(answer) = extensions.get::<AnswerRoom>() {
        answer.keep(room);
    }
}

/// The connection that a request came over. Every connection has one in its extensions.
fn conn(extensions: &Extensions) -> Result<&Arc<Conn>, RpcError> {
    extensions.get::<Arc<Conn>>().ok_or_else(|| RpcError::new(Code::Internal, "the connection is not known"))
}

impl Rpc {
    /// Sends a command to a session and waits for its answer.
    async fn ask<T>(&self, session: &SessionId, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, RpcError> {
        let (reply, answer) = oneshot::channel();
        self.0.sessions.send(&self.0, session, command(reply));
        let answered = answer.await;
        fault::point("rpc.answer");
        answered.unwrap_or_else(|_| Err(RpcError::new(Code::Internal, format!("session {session} did not answer"))))
    }
}

impl Rpc {
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
            let free = rustix::fs::statvfs(&places.data).map_or(0, |system| system.f_bavail * system.f_frsize);
            let log = size(&log, "") + size(&log, ".1");
            Storage { database: size(&database, ""), wal: size(&database, "-wal"), log, free, ..Storage::default() }
        };
        let sizes = tokio::task::spawn_blocking(sizes).await.unwrap_or_default();
        Ok(Storage { unused, rewrite: !incremental && unused > 0, blobs, ..sizes })
    }
}

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
            *conn(extensions)?.client.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(name);
        }
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
            config_error,
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
            daemon.store.found.database(&error.to_string());
        }
        // This is where one looks when something is wrong: it says what it can.
        let (sessions, running, permissions) = counts.unwrap_or_default();
        let config = daemon.config.current();
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
            config: daemon.places.config_file(),
            config_error: daemon.config.error().map(|error| error.to_string()),
            config_warnings: config.map(|config| config.warnings.clone()).unwrap_or_default(),
            model: daemon.model(None).ok().map(|resolved| resolved.origin),
            sessions,
            running,
            permissions,
            connections: daemon.connections.load(Ordering::Relaxed),
            damage: repair::damage(daemon),
            storage: self.storage(conn(extensions)?).await.ok(),
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
            make_room(extensions, models::ROOM).await;
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

#[async_trait]
impl SessionApiServer for Rpc {
    async fn create(&self, extensions: &Extensions, mut params: Create) -> RpcResult<Created> {
        if matches!(params.mode, Some(Mode::Edit | Mode::Auto)) {
            conn(extensions)?.must_be_user("create a session that asks less")?;
        }
        let key = Key::of("session/create", "", params.key.take(), &params)?;
        Ok(self.0.create(params, key).await?)
    }

    async fn list(&self, extensions: &Extensions, params: List) -> RpcResult<Vec<Info>> {
        let cwd = match params.cwd {
            None => None,
            Some(cwd) => {
                let seen = cwd.clone();
                let real = disk::look(&cwd, disk::PATIENCE, move || seen.canonicalize().ok()).await.flatten();
                Some(real.unwrap_or(cwd).to_string_lossy().into_owned())
            }
        };
        let limit = params.limit.unwrap_or(MAX_ROWS).min(MAX_ROWS);
        let found = self.0.store.found.clone();
        // A broken configuration costs the rows their windows; every client is told of it when it connects.
        let catalogue = self.0.catalogue().ok();
        let rows = self.0.store.sessions(params.matching, cwd, limit, move |row| {
            let info = prune::info(&found, row);
            let window = catalogue.as_ref().and_then(|catalogue| catalogue.window(&info.model));
            Info { context_window: window, ..info }
        });
        Ok(conn(extensions)?.query_large(extensions, LIST_ROOM, rows).await?)
    }

    async fn attach(&self, extensions: &Extensions, params: Attach) -> ResponsePayload<'static, Attached> {
        let attached = async {
            let conn = conn(extensions)?.clone();
            let generation = conn.begin_attach(&params.session)?;
            let reading = match self.ask(&params.session, |reply| Command::Attach(params.after, reply)).await {
                Ok(reading) => reading,
                Err(error) => {
                    conn.forget_attach(&params.session, generation);
                    return Err(error);
                }
            };
            // Events begin when the answer is on its way.
            let success = ResponsePayload::success(Attached { cursor: reading.head.clone() });
            let (payload, answered) = success.notify_on_completion();
            conn.end_attach(&params.session, generation, || {
                let deltas = params.deltas.unwrap_or(true);
                let subscriber = Subscriber::new(reading, self.0.store.clone(), conn.outbox.clone(), deltas);
                let forwarder = tokio::spawn(async move {
                    if answered.await.is_ok() {
                        subscriber.run().await;
                    }
                });
                forwarder.abort_handle()
            });
            Ok(payload)
        };
        attached.await.unwrap_or_else(|error: RpcError| ResponsePayload::error(ErrorObjectOwned::from(error)))
    }

    async fn detach(&self, extensions: &Extensions, params: Named) -> RpcResult<Empty> {
        match conn(extensions)?.attached().remove(&params.session) {
            Some(_) => Ok(Empty {}),
            None => Err(RpcError::new(Code::NotAttached, format!("not attached to session {}", params.session)).into()),
        }
    }

    async fn prompt(&self, extensions: &Extensions, mut params: Prompt) -> RpcResult<Prompted> {
        let by = conn(extensions)?.name();
        let session = params.session.clone();
        let key = Key::of("session/prompt", session.as_str(), params.key.take(), &params)?;
        Ok(self.ask(&session, |reply| Command::Prompt(params, key, by, reply)).await?)
    }

    async fn compact(&self, extensions: &Extensions, mut params: Compact) -> RpcResult<Prompted> {
        let by = conn(extensions)?.name();
        let session = params.session.clone();
        let key = Key::of("session/compact", session.as_str(), params.key.take(), &params)?;
        Ok(self.ask(&session, |reply| Command::Compact(params, key, by, reply)).await?)
    }

    async fn cancel(&self, _: &Extensions, mut params: Keyed) -> RpcResult<Empty> {
        let key = Key::of("session/cancel", params.session.as_str(), params.key.take(), &params)?;
        Ok(self.ask(&params.session, |reply| Command::Cancel(Asked { key, reply })).await.map(|()| Empty {})?)
    }

    async fn resume(&self, _: &Extensions, mut params: Keyed) -> RpcResult<Empty> {
        let key = Key::of("session/continue", params.session.as_str(), params.key.take(), &params)?;
        Ok(self.ask(&params.session, |reply| Command::Continue(Asked { key, reply })).await.map(|()| Empty {})?)
    }

    async fn set(&self, extensions: &Extensions, mut params: Set) -> RpcResult<Empty> {
        if params.mode.is_some() {
            conn(extensions)?.must_be_user("change the mode of a session")?;
        }
        let session = params.session.clone();
        let key = Key::of("session/set", session.as_str(), params.key.take(), &params)?;
        Ok(self.ask(&session, |reply| Command::Set(params, Asked { key, reply })).await.map(|()| Empty {})?)
    }

    async fn remove(&self, _: &Extensions, mut params: Remove) -> RpcResult<Empty> {
        let key = Key::of("session/remove", params.session.as_str(), params.key.take(), &params)?;
        let command = |key| move |reply| Command::Remove(params.force, Asked { key, reply });
        if let Err(error) = self.ask(&params.session, command(key.clone())).await {
            return Err(match key {
                // It may have gone by this very request.
                Some(key) if error.code() == Some(Code::UnknownSession) => match self.0.outcome::<()>(&key).await? {
                    Some(()) => return Ok(Empty {}),
                    None => error,
                },
                _ => error,
            }
            .into());
        }
        Ok(Empty {})
    }

    async fn prune(&self, extensions: &Extensions, mut params: Prune) -> RpcResult<Pruned> {
        let key = Key::of("session/prune", "", params.key.take(), &params)?;
        if let Some(key) = &key
            && let Some(pruned) = self.0.outcome(key).await?
        {
            return Ok(pruned);
        }
        let pruned = prune::prune(&self.0, params).await?;
        if let Some(key) = key {
            // Not with its effect, which is many commits: until then it goes on where it was when it is sent again.
            self.0.store.remember(key.outcome(&pruned)).await.map_err(RpcError::from)?;
        }
        make_room(extensions, LIST_ROOM).await;
        Ok(pruned)
    }
}

#[async_trait]
impl BlobApiServer for Rpc {
    async fn get(&self, extensions: &Extensions, params: Get) -> RpcResult<Piece> {
        let conn = conn(extensions)?;
        let store = &self.0.store;
        let Some(size) = conn.query(store.blob(params.blob.clone())).await? else {
            let error = RpcError::new(Code::UnknownBlob, format!("no session uses a blob '{}'", params.blob));
            return Err(error.hint("events name the blobs that there are").into());
        };
        let offset = params.offset.unwrap_or_default();
        let length = params.length.unwrap_or(MAX_PIECE).min(MAX_PIECE);
        let blobs = store.blobs.clone();
        let read = async {
            let read = tokio::task::spawn_blocking(move || blobs.read(&params.blob, offset, length)).await;
            let bytes = read.unwrap_or_else(|error| Err(std::io::Error::other(error)))?;
            Ok((bytes.len() as u64, BASE64.encode(bytes)))
        };
        let (read, data) = conn.query_large(extensions, PIECE_ROOM, read).await?;
        let end = offset.saturating_add(read);
        // A piece of nothing has nothing after it: whoever follows `next` must come to an end.
        let next = (end < size && read > 0).then_some(end);
        Ok(Piece { data, size, next })
    }
}

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
