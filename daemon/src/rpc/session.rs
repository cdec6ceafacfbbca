//! `session/*`: the commands that a session takes, what sessions there are, and following one.

use async_trait::async_trait;
use jsonrpsee::core::RpcResult;
use jsonrpsee::types::ErrorObjectOwned;
use jsonrpsee::{Extensions, ResponsePayload};
use linger_protocol::RpcError;
use linger_protocol::api::SessionApiServer;
use linger_protocol::daemon::Empty;
use linger_protocol::error::Code;
use linger_protocol::permission::Mode;
use linger_protocol::session::{
    Attach, Attached, Compact, Create, Created, Info, Keyed, List, Named, Prompt, Prompted, Prune, Pruned, Remove, Set,
};

use super::{Rpc, conn, make_room};
use crate::disk;
use crate::key::Key;
use crate::session::actor::{Asked, Command};
use crate::session::subscriber::Subscriber;
use crate::{prune, repair};

/// Rows of `session/list` unless asked for fewer.
const MAX_ROWS: u32 = 1000;

/// About how large a list of sessions is, in bytes: a thousand take half of it.
const LIST_ROOM: usize = 1 << 20;

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
        let info = move |row| {
            let info = prune::info(&found, row);
            let window = catalogue.as_ref().and_then(|catalogue| catalogue.window(&info.model));
            Info { context_window: window, ..info }
        };
        let rows = async {
            // Whoever lists all takes what there is.
            let all = params.matching.is_none();
            let look = || {
                let rows = self.0.store.sessions(params.matching.clone(), cwd.clone(), limit, info.clone());
                async move { rows.await.map(|rows| (all || !rows.is_empty()).then_some(rows)) }
            };
            repair::find(&self.0, look).await.map(Option::unwrap_or_default)
        };
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
        if conn(extensions)?.detach(&params.session) {
            return Ok(Empty {});
        }
        Err(RpcError::new(Code::NotAttached, format!("not attached to session {}", params.session)).into())
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
        // Sent again while it is under way it waits for the same outcome.
        let _turn = match &key {
            Some(key) => Some(self.0.under_way.turn(key).await),
            None => None,
        };
        if let Some(key) = &key
            && let Some(pruned) = self.0.outcome(key).await?
        {
            return Ok(pruned);
        }
        // Before, for what is done cannot be refused.
        make_room(extensions, LIST_ROOM).await?;
        let pruned = prune::prune(&self.0, params).await?;
        if let Some(key) = key {
            // Not with its effect, which is many commits: until then it goes on where it was when it is sent again.
            self.0.store.remember(key.outcome(&pruned)).await.map_err(RpcError::from)?;
        }
        Ok(pruned)
    }
}
