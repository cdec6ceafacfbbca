//! The jsonrpsee methods: each calls one service function.

use std::sync::Arc;

use async_trait::async_trait;
use jsonrpsee::core::RpcResult;
use jsonrpsee::types::ErrorObjectOwned;
use jsonrpsee::{Extensions, Methods, ResponsePayload};
use linger_protocol::api::{
    AgentApiServer, ArtifactApiServer, BlobApiServer, CompletionApiServer, ConfigApiServer, DaemonApiServer,
    EventsApiServer, KeyApiServer, McpApiServer, MemoryApiServer, PermissionApiServer, QuestionApiServer,
    SessionApiServer, TokenApiServer, TrustApiServer, UsageApiServer,
};
use linger_protocol::checkpoint::{Diff, Differences};
use linger_protocol::daemon::{Checked, Empty, Hello, Keys, Model, Models, Status, Stop, Tool, Tools, Welcome};
use linger_protocol::permission::{Answered, Pending};
use linger_protocol::question::PendingQuestion;
use linger_protocol::session::{
    Attach, Attached, Bin, Cancel, Compact, Create, Created, Environment, Info, Keyed, List, Named, OutOfBin, Prompt,
    Prompted, Prune, Pruned, Redo, Remove, Removed, Restored, Set, Undo, Unqueue, Unqueued,
};
use linger_protocol::tree::{
    CompactionRow, Compactions, Fork, ForkMade, PromptRow, Prompts, Rewind, RewindDone, Uncompact, Uncompacted,
};
use linger_protocol::worktree::{Merge, Merged};
use linger_protocol::{
    RpcError, agent, artifact, blob, config, events, key, mcp, memory, permission, question, search, token, trust,
    usage,
};

use super::conn::{self, conn, make_room};
use super::forward::forward;
use crate::agent::Kind;
use crate::service::{self, Services};
use crate::store;

/// The capacity for a list of sessions, in bytes: a thousand take half of it.
const LIST_ROOM: usize = 1 << 20;

/// The capacity for a list of Markdown files with their texts, in bytes.
const FILES_ROOM: usize = 4 << 20;

/// The capacity for a list of all models, in bytes.
const MODELS_ROOM: usize = 1 << 20;

/// The capacity for a piece of a blob, in bytes: base64 adds a third.
const PIECE_ROOM: usize = 3 << 19;

/// The capacity for a configuration and its text, in bytes.
const CONFIG_ROOM: usize = 4 << 20;

/// The adapter.
#[derive(Clone)]
pub(super) struct Rpc(pub(super) Arc<Services>);

/// All methods.
pub fn methods(services: Arc<Services>) -> anyhow::Result<Methods> {
    let rpc = Rpc(services);
    let mut methods = Methods::new();
    methods.merge(DaemonApiServer::into_rpc(rpc.clone()))?;
    methods.merge(SessionApiServer::into_rpc(rpc.clone()))?;
    methods.merge(EventsApiServer::into_rpc(rpc.clone()))?;
    methods.merge(CompletionApiServer::into_rpc(rpc.clone()))?;
    methods.merge(BlobApiServer::into_rpc(rpc.clone()))?;
    methods.merge(ArtifactApiServer::into_rpc(rpc.clone()))?;
    methods.merge(KeyApiServer::into_rpc(rpc.clone()))?;
    methods.merge(AgentApiServer::into_rpc(rpc.clone()))?;
    methods.merge(McpApiServer::into_rpc(rpc.clone()))?;
    methods.merge(MemoryApiServer::into_rpc(rpc.clone()))?;
    methods.merge(UsageApiServer::into_rpc(rpc.clone()))?;
    methods.merge(ConfigApiServer::into_rpc(rpc.clone()))?;
    methods.merge(TrustApiServer::into_rpc(rpc.clone()))?;
    methods.merge(TokenApiServer::into_rpc(rpc.clone()))?;
    methods.merge(QuestionApiServer::into_rpc(rpc.clone()))?;
    methods.merge(PermissionApiServer::into_rpc(rpc))?;
    Ok(methods)
}

#[async_trait]
impl DaemonApiServer for Rpc {
    async fn hello(&self, extensions: &Extensions, params: Hello) -> RpcResult<Welcome> {
        Ok(service::daemon::hello(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn keys(&self, extensions: &Extensions, params: Keys) -> RpcResult<Empty> {
        Ok(service::daemon::keys(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn status(&self, extensions: &Extensions, params: Empty) -> RpcResult<Status> {
        let conn = conn(extensions)?;
        Ok(conn.query(service::daemon::status(&self.0, conn.caller(), params)).await?)
    }

    async fn stop(&self, extensions: &Extensions, params: Stop) -> RpcResult<Empty> {
        Ok(service::daemon::stop(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn check(&self, extensions: &Extensions, params: Empty) -> RpcResult<Checked> {
        Ok(service::daemon::check(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn models(&self, extensions: &Extensions, params: Models) -> RpcResult<Vec<Model>> {
        let (conn, all) = (conn(extensions)?, params.all);
        let list = service::model::list(&self.0, conn.caller(), params);
        if !all {
            return Ok(list.await?);
        }
        let rows = conn.query(async {
            let rows = list.await?;
            // Only after the providers have answered, which takes seconds.
            make_room(extensions, MODELS_ROOM).await?;
            Ok(rows)
        });
        Ok(rows.await?)
    }

    async fn tools(&self, extensions: &Extensions, params: Tools) -> RpcResult<Vec<Tool>> {
        Ok(service::tool::list(&self.0, conn(extensions)?.caller(), params).await?)
    }
}

#[async_trait]
impl SessionApiServer for Rpc {
    async fn create(&self, extensions: &Extensions, params: Create) -> RpcResult<Created> {
        Ok(service::session::create(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn list(&self, extensions: &Extensions, params: List) -> RpcResult<Vec<Info>> {
        let conn = conn(extensions)?;
        let list = service::session::list(&self.0, conn.caller(), params);
        Ok(conn.query_large(extensions, LIST_ROOM, list).await?)
    }

    async fn attach(&self, extensions: &Extensions, params: Attach) -> ResponsePayload<'static, Attached> {
        let attached = async {
            let (conn, to) = (conn(extensions)?.clone(), conn::Attached::Session(params.session.clone()));
            let generation = conn.begin_attach(&to)?;
            let (attached, subscription) = match service::session::attach(&self.0, conn.caller(), params).await {
                Ok(attached) => attached,
                Err(error) => {
                    conn.forget_attach(&to, generation);
                    return Err(error);
                }
            };
            // The first event must follow the answer.
            let (payload, answered) = ResponsePayload::success(attached).notify_on_completion();
            let (outbox, may) = (conn.outbox.clone(), conn.may_send(&self.0));
            conn.end_attach(&to, generation, || {
                let forwarder = tokio::spawn(async move {
                    if answered.await.is_ok() {
                        forward(subscription, outbox, may).await;
                    }
                });
                forwarder.abort_handle()
            });
            Ok(payload)
        };
        attached.await.unwrap_or_else(|error: RpcError| ResponsePayload::error(ErrorObjectOwned::from(error)))
    }

    async fn detach(&self, extensions: &Extensions, params: Named) -> RpcResult<Empty> {
        Ok(conn(extensions)?.detach(&conn::Attached::Session(params.session))?)
    }

    async fn env(&self, extensions: &Extensions, params: Named) -> RpcResult<Environment> {
        Ok(service::session::env(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn prompt(&self, extensions: &Extensions, params: Prompt) -> RpcResult<Prompted> {
        Ok(service::session::prompt(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn compact(&self, extensions: &Extensions, params: Compact) -> RpcResult<Prompted> {
        Ok(service::session::compact(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn unqueue(&self, extensions: &Extensions, params: Unqueue) -> RpcResult<Unqueued> {
        Ok(service::session::unqueue(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn fork(&self, extensions: &Extensions, params: Fork) -> RpcResult<ForkMade> {
        Ok(service::tree::fork(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn rewind(&self, extensions: &Extensions, params: Rewind) -> RpcResult<RewindDone> {
        Ok(service::tree::rewind(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn prompts(&self, extensions: &Extensions, params: Prompts) -> RpcResult<Vec<PromptRow>> {
        Ok(service::tree::prompts(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn compactions(&self, extensions: &Extensions, params: Compactions) -> RpcResult<Vec<CompactionRow>> {
        Ok(service::tree::compactions(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn uncompact(&self, extensions: &Extensions, params: Uncompact) -> RpcResult<Uncompacted> {
        Ok(service::tree::uncompact(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn merge(&self, extensions: &Extensions, params: Merge) -> RpcResult<Merged> {
        Ok(service::tree::merge(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn diff(&self, extensions: &Extensions, params: Diff) -> RpcResult<Differences> {
        Ok(service::session::diff(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn undo(&self, extensions: &Extensions, params: Undo) -> RpcResult<Restored> {
        Ok(service::session::undo(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn redo(&self, extensions: &Extensions, params: Redo) -> RpcResult<Restored> {
        Ok(service::session::redo(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn cancel(&self, extensions: &Extensions, params: Cancel) -> RpcResult<Empty> {
        Ok(service::session::cancel(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn resume(&self, extensions: &Extensions, params: Keyed) -> RpcResult<Empty> {
        Ok(service::session::resume(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn set(&self, extensions: &Extensions, params: Set) -> RpcResult<Empty> {
        Ok(service::session::set(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn bin(&self, extensions: &Extensions, params: Bin) -> RpcResult<Removed> {
        Ok(service::session::bin(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn restore(&self, extensions: &Extensions, params: Keyed) -> RpcResult<OutOfBin> {
        Ok(service::session::restore(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn remove(&self, extensions: &Extensions, params: Remove) -> RpcResult<Removed> {
        Ok(service::session::remove(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn prune(&self, extensions: &Extensions, params: Prune) -> RpcResult<Pruned> {
        // First, because afterwards it is too late to fail.
        make_room(extensions, LIST_ROOM).await?;
        Ok(service::session::prune(&self.0, conn(extensions)?.caller(), params).await?)
    }
}

#[async_trait]
impl EventsApiServer for Rpc {
    async fn subscribe(
        &self,
        extensions: &Extensions,
        params: events::Subscribe,
    ) -> ResponsePayload<'static, events::Subscribed> {
        let subscribed = async {
            let (conn, to) = (conn(extensions)?.clone(), conn::Attached::All);
            let generation = conn.begin_attach(&to)?;
            let (subscribed, feed) = match service::events::subscribe(&self.0, conn.caller(), params).await {
                Ok(subscribed) => subscribed,
                Err(error) => {
                    conn.forget_attach(&to, generation);
                    return Err(error);
                }
            };
            // The first event must follow the answer.
            let (payload, answered) = ResponsePayload::success(subscribed).notify_on_completion();
            let (outbox, may) = (conn.outbox.clone(), conn.may_send(&self.0));
            conn.end_attach(&to, generation, || {
                let forwarder = tokio::spawn(async move {
                    if answered.await.is_ok() {
                        forward(feed, outbox, may).await;
                    }
                });
                forwarder.abort_handle()
            });
            Ok(payload)
        };
        subscribed.await.unwrap_or_else(|error: RpcError| ResponsePayload::error(ErrorObjectOwned::from(error)))
    }

    async fn unsubscribe(&self, extensions: &Extensions, _params: Empty) -> RpcResult<Empty> {
        Ok(conn(extensions)?.detach(&conn::Attached::All)?)
    }

    async fn search(&self, extensions: &Extensions, params: search::Search) -> RpcResult<search::FoundMessages> {
        let conn = conn(extensions)?;
        let search = service::search::search(&self.0, conn.caller(), params);
        Ok(conn.query_large(extensions, LIST_ROOM, search).await?)
    }
}

#[async_trait]
impl UsageApiServer for Rpc {
    async fn sums(&self, extensions: &Extensions, params: usage::List) -> RpcResult<usage::Sums> {
        let conn = conn(extensions)?;
        Ok(conn.query(service::usage::sums(&self.0, conn.caller(), params)).await?)
    }
}

#[async_trait]
impl BlobApiServer for Rpc {
    async fn get(&self, extensions: &Extensions, params: blob::Get) -> RpcResult<blob::Piece> {
        let conn = conn(extensions)?;
        Ok(conn.query_large(extensions, PIECE_ROOM, service::blob::get(&self.0, conn.caller(), params)).await?)
    }
}

#[async_trait]
impl ArtifactApiServer for Rpc {
    async fn begin(&self, extensions: &Extensions, params: artifact::Begin) -> RpcResult<artifact::Begun> {
        Ok(service::artifact::begin(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn write(&self, extensions: &Extensions, params: artifact::Write) -> RpcResult<artifact::Written> {
        Ok(service::artifact::write(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn finish(&self, extensions: &Extensions, params: artifact::Finish) -> RpcResult<artifact::Artifact> {
        Ok(service::artifact::finish(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn get(&self, extensions: &Extensions, params: artifact::Named) -> RpcResult<artifact::Artifact> {
        let conn = conn(extensions)?;
        Ok(conn.query(service::artifact::get(&self.0, conn.caller(), params)).await?)
    }

    async fn read(&self, extensions: &Extensions, params: artifact::Read) -> RpcResult<blob::Piece> {
        let conn = conn(extensions)?;
        Ok(conn.query_large(extensions, PIECE_ROOM, service::artifact::read(&self.0, conn.caller(), params)).await?)
    }

    async fn list(&self, extensions: &Extensions, params: artifact::List) -> RpcResult<Vec<artifact::Artifact>> {
        let conn = conn(extensions)?;
        Ok(conn.query_large(extensions, LIST_ROOM, service::artifact::list(&self.0, conn.caller(), params)).await?)
    }

    async fn delete(&self, extensions: &Extensions, params: artifact::Named) -> RpcResult<Empty> {
        Ok(service::artifact::delete(&self.0, conn(extensions)?.caller(), params).await?)
    }
}

#[async_trait]
impl KeyApiServer for Rpc {
    async fn list(&self, extensions: &Extensions, params: Empty) -> RpcResult<key::Listed> {
        let conn = conn(extensions)?;
        Ok(conn.query(service::key::list(&self.0, conn.caller(), params)).await?)
    }

    async fn set(&self, extensions: &Extensions, params: key::Set) -> RpcResult<key::Info> {
        Ok(service::key::set(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn remove(&self, extensions: &Extensions, params: key::Remove) -> RpcResult<key::Removed> {
        Ok(service::key::remove(&self.0, conn(extensions)?.caller(), params).await?)
    }
}

#[async_trait]
impl ConfigApiServer for Rpc {
    async fn get(&self, extensions: &Extensions, params: config::Get) -> RpcResult<config::Configuration> {
        let conn = conn(extensions)?;
        let room = if params.text { CONFIG_ROOM } else { CONFIG_ROOM / 2 };
        Ok(conn.query_large(extensions, room, service::config::get(&self.0, conn.caller(), params)).await?)
    }

    async fn confirm(&self, extensions: &Extensions, params: config::Confirm) -> RpcResult<config::Confirmed> {
        Ok(service::config::confirm(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn set(&self, extensions: &Extensions, params: config::Set) -> RpcResult<config::Confirmed> {
        Ok(service::config::set(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn write(&self, extensions: &Extensions, params: config::Write) -> RpcResult<config::Confirmed> {
        Ok(service::config::write(&self.0, conn(extensions)?.caller(), params).await?)
    }
}

#[async_trait]
impl TrustApiServer for Rpc {
    async fn get(&self, extensions: &Extensions, params: trust::Get) -> RpcResult<trust::Workspace> {
        let conn = conn(extensions)?;
        let get = service::trust::get(&self.0, conn.caller(), params);
        Ok(conn.query_large(extensions, CONFIG_ROOM, get).await?)
    }

    async fn confirm(&self, extensions: &Extensions, params: trust::Confirm) -> RpcResult<config::Confirmed> {
        Ok(service::trust::confirm(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn list(&self, extensions: &Extensions, params: Empty) -> RpcResult<Vec<trust::Trusted>> {
        let conn = conn(extensions)?;
        let list = service::trust::list(&self.0, conn.caller(), params);
        Ok(conn.query_large(extensions, CONFIG_ROOM, list).await?)
    }

    async fn revoke(&self, extensions: &Extensions, params: trust::Revoke) -> RpcResult<trust::Revoked> {
        Ok(service::trust::revoke(&self.0, conn(extensions)?.caller(), params).await?)
    }
}

#[async_trait]
impl TokenApiServer for Rpc {
    async fn mint(&self, extensions: &Extensions, params: token::Mint) -> RpcResult<token::Minted> {
        Ok(service::token::mint(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn exchange(&self, extensions: &Extensions, params: token::Exchange) -> RpcResult<token::Minted> {
        Ok(service::token::exchange(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn list(&self, extensions: &Extensions, params: Empty) -> RpcResult<Vec<token::Row>> {
        let conn = conn(extensions)?;
        let list = service::token::list(&self.0, conn.caller(), params);
        Ok(conn.query_large(extensions, LIST_ROOM, list).await?)
    }

    async fn revoke(&self, extensions: &Extensions, params: token::Revoke) -> RpcResult<Empty> {
        Ok(service::token::revoke(&self.0, conn(extensions)?.caller(), params).await?)
    }
}

#[async_trait]
impl AgentApiServer for Rpc {
    async fn skills(&self, extensions: &Extensions, params: agent::List) -> RpcResult<Vec<agent::Item>> {
        self.of_kind(extensions, Kind::Skill, params).await
    }

    async fn commands(&self, extensions: &Extensions, params: agent::List) -> RpcResult<Vec<agent::Item>> {
        self.of_kind(extensions, Kind::Command, params).await
    }

    async fn agents(&self, extensions: &Extensions, params: agent::List) -> RpcResult<Vec<agent::Item>> {
        self.of_kind(extensions, Kind::Agent, params).await
    }

    async fn tool_files(&self, extensions: &Extensions, params: agent::List) -> RpcResult<Vec<agent::Item>> {
        self.of_kind(extensions, Kind::Tool, params).await
    }

    async fn server_files(&self, extensions: &Extensions, params: agent::List) -> RpcResult<Vec<agent::Item>> {
        self.of_kind(extensions, Kind::Server, params).await
    }
}

impl Rpc {
    async fn of_kind(&self, extensions: &Extensions, kind: Kind, params: agent::List) -> RpcResult<Vec<agent::Item>> {
        let conn = conn(extensions)?;
        let room = if params.text { FILES_ROOM } else { LIST_ROOM };
        Ok(conn.query_large(extensions, room, service::agent::list(&self.0, conn.caller(), kind, params)).await?)
    }
}

#[async_trait]
impl MemoryApiServer for Rpc {
    async fn list(&self, extensions: &Extensions, params: memory::List) -> RpcResult<Vec<memory::Note>> {
        let conn = conn(extensions)?;
        let list = service::memory::list(&self.0, conn.caller(), params);
        Ok(conn.query_large(extensions, FILES_ROOM, list).await?)
    }

    async fn add(&self, extensions: &Extensions, params: memory::Add) -> RpcResult<memory::Note> {
        Ok(service::memory::add(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn remove(&self, extensions: &Extensions, params: memory::Remove) -> RpcResult<Empty> {
        Ok(service::memory::remove(&self.0, conn(extensions)?.caller(), params).await?)
    }
}

#[async_trait]
impl McpApiServer for Rpc {
    async fn list(&self, extensions: &Extensions, params: mcp::List) -> RpcResult<Vec<mcp::Server>> {
        Ok(service::mcp::list(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn add(&self, extensions: &Extensions, params: mcp::Add) -> RpcResult<Empty> {
        Ok(service::mcp::add(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn remove(&self, extensions: &Extensions, params: mcp::Named) -> RpcResult<Empty> {
        Ok(service::mcp::remove(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn restart(&self, extensions: &Extensions, params: mcp::Named) -> RpcResult<Empty> {
        Ok(service::mcp::restart(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn logs(&self, extensions: &Extensions, params: mcp::Named) -> RpcResult<mcp::Logs> {
        Ok(service::mcp::logs(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn test(&self, extensions: &Extensions, params: mcp::Test) -> RpcResult<mcp::Server> {
        Ok(service::mcp::test(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn login(&self, extensions: &Extensions, params: mcp::Login) -> RpcResult<mcp::LoginPage> {
        Ok(service::mcp::login(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn finish_login(&self, extensions: &Extensions, params: mcp::FinishLogin) -> RpcResult<mcp::LoggedIn> {
        Ok(service::mcp::finish_login(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn logout(&self, extensions: &Extensions, params: mcp::Named) -> RpcResult<mcp::LoggedOut> {
        Ok(service::mcp::logout(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn resources(&self, extensions: &Extensions, params: mcp::Offered) -> RpcResult<Vec<mcp::Resource>> {
        Ok(service::mcp::resources(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn resource(&self, extensions: &Extensions, params: mcp::ReadResource) -> RpcResult<mcp::Attachable> {
        Ok(service::mcp::resource(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn prompts(&self, extensions: &Extensions, params: mcp::Offered) -> RpcResult<Vec<mcp::ServerPrompt>> {
        Ok(service::mcp::prompts(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn prompt(&self, extensions: &Extensions, params: mcp::GetPrompt) -> RpcResult<mcp::Attachable> {
        Ok(service::mcp::prompt(&self.0, conn(extensions)?.caller(), params).await?)
    }
}

#[async_trait]
impl PermissionApiServer for Rpc {
    async fn pending(&self, extensions: &Extensions, params: permission::List) -> RpcResult<Vec<Pending>> {
        let conn = conn(extensions)?;
        let list = service::question::permissions(&self.0, conn.caller(), params);
        Ok(conn.query_large(extensions, store::PENDING, list).await?)
    }

    async fn answer(&self, extensions: &Extensions, params: permission::Answer) -> RpcResult<Answered> {
        Ok(service::question::decide(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn explain(&self, extensions: &Extensions, params: permission::Explain) -> RpcResult<permission::Explained> {
        Ok(service::permission::explain(&self.0, conn(extensions)?.caller(), params).await?)
    }

    async fn rules(&self, extensions: &Extensions, params: Empty) -> RpcResult<Vec<permission::AlwaysRule>> {
        let conn = conn(extensions)?;
        let list = service::permission::rules(&self.0, conn.caller(), params);
        Ok(conn.query_large(extensions, CONFIG_ROOM / 2, list).await?)
    }

    async fn remove(
        &self,
        extensions: &Extensions,
        params: permission::RemoveRule,
    ) -> RpcResult<permission::RulesRemoved> {
        Ok(service::permission::remove(&self.0, conn(extensions)?.caller(), params).await?)
    }
}

#[async_trait]
impl QuestionApiServer for Rpc {
    async fn list(&self, extensions: &Extensions, params: question::List) -> RpcResult<Vec<PendingQuestion>> {
        let conn = conn(extensions)?;
        let list = service::question::list(&self.0, conn.caller(), params);
        Ok(conn.query_large(extensions, store::PENDING, list).await?)
    }

    async fn answer(&self, extensions: &Extensions, params: question::Answer) -> RpcResult<Answered> {
        Ok(service::question::answer(&self.0, conn(extensions)?.caller(), params).await?)
    }
}
