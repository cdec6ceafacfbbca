//! The methods by name: each reads its parameters and calls one service function.
//!
//! A row names the method by its marker, so that parameters and result are those of [`linger_protocol::method`]. All rows share one
//! way through jsonrpsee, which serializes nothing but the bytes of a result: with a way for each, the program would be half a
//! megabyte larger.

use std::pin::Pin;
use std::sync::Arc;

use jsonrpsee::{Methods, ResponsePayload, RpcModule};
use linger_protocol::method::{self as of, Method};
use linger_protocol::{RpcError, agent};

use super::conn::{Attached, conn};
use super::request::{Answer, MethodCall, payload};
use super::streams;
use crate::agent::FileKind;
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

/// Calls one service function.
type Handler = fn(MethodCall) -> Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Registers [`TABLE`] with jsonrpsee.
pub fn methods(services: Arc<Services>) -> anyhow::Result<Methods> {
    let mut module = RpcModule::from_arc(services);
    for (name, handler) in TABLE {
        let handler = *handler;
        module.register_async_method(name, move |params, services, extensions| async move {
            let answer = match conn(&extensions) {
                Ok(conn) => handler(MethodCall { services, conn: conn.clone(), extensions, params }).await,
                Err(error) => Err(error.into()),
            };
            answer.unwrap_or_else(ResponsePayload::error)
        })?;
    }
    Ok(module.into())
}

/// A row: `call` answers at once or in its turn, `query` one at a time for each connection, and a query whose result may be large
/// waits first for a capacity in bytes. A closure does what is unlike the others.
macro_rules! row {
    ($marker:ident: call $service:path) => {
        row!($marker, |request, params| $service(&request.services, request.conn.caller(), params).await)
    };
    ($marker:ident: query $service:path) => {
        row!($marker, |request, params| {
            request.conn.query($service(&request.services, request.conn.caller(), params)).await
        })
    };
    ($marker:ident: query[$room:expr] $service:path) => {
        row!($marker, |request, params| {
            let query = $service(&request.services, request.conn.caller(), params);
            request.conn.query_large(&request.extensions, $room, query).await
        })
    };
    ($marker:ident: files $kind:ident) => {
        row!($marker, |request, params| files(&request, FileKind::$kind, params).await)
    };
    ($marker:ident, |$request:ident, $params:ident| $result:expr) => {
        (<of::$marker as Method>::NAME, |$request| {
            Box::pin(async move {
                let $params = $request.read::<<of::$marker as Method>::Params>()?;
                let result: Result<<of::$marker as Method>::Result, RpcError> = $result;
                payload(&result?)
            })
        })
    };
    ($marker:ident: stream $start:path) => {
        (<of::$marker as Method>::NAME, |request| Box::pin($start(request)))
    };
}

/// The methods, in the order of [`linger_protocol::method`].
const TABLE: &[(&str, Handler)] = &[
    row!(DaemonHello: call service::daemon::hello),
    row!(DaemonKeys: call service::daemon::keys),
    row!(DaemonStatus: query service::daemon::status),
    row!(DaemonStop: call service::daemon::stop),
    row!(DaemonCheck: call service::daemon::check),
    row!(ModelList, |request, params| {
        let all = params.all;
        let list = service::model::list(&request.services, request.conn.caller(), params);
        if all {
            let rows = async {
                let rows = list.await?;
                // Only after the providers have answered, which takes seconds.
                request.make_room(MODELS_ROOM).await?;
                Ok(rows)
            };
            request.conn.query(rows).await
        } else {
            list.await
        }
    }),
    row!(ModeList: call service::permission::modes),
    row!(ToolList: call service::tool::list),
    row!(SessionCreate: call service::session::create),
    row!(SessionList: query[LIST_ROOM] service::session::list),
    row!(SessionAttach: stream streams::attach),
    row!(SessionDetach, |request, params| request.conn.detach(&Attached::Session(params.session))),
    row!(SessionEnv: call service::session::env),
    row!(SessionPrompt: call service::session::prompt),
    row!(SessionCancel: call service::session::cancel),
    row!(SessionContinue: call service::session::resume),
    row!(SessionCompact: call service::session::compact),
    row!(SessionUnqueue: call service::session::unqueue),
    row!(SessionUndo: call service::session::undo),
    row!(SessionRedo: call service::session::redo),
    row!(SessionDiff: call service::session::diff),
    row!(SessionFork: call service::tree::fork),
    row!(SessionRewind: call service::tree::rewind),
    row!(SessionPrompts: call service::tree::prompts),
    row!(SessionCompaction: call service::tree::compactions),
    row!(SessionUncompact: call service::tree::uncompact),
    row!(SessionMerge: call service::tree::merge),
    row!(SessionSet: call service::session::set),
    row!(SessionBin: call service::session::bin),
    row!(SessionRestore: call service::session::restore),
    row!(SessionRemove: call service::session::remove),
    row!(SessionPrune, |request, params| {
        // First, because afterwards it is too late to fail.
        request.make_room(LIST_ROOM).await?;
        service::session::prune(&request.services, request.conn.caller(), params).await
    }),
    row!(EventsSubscribe: stream streams::subscribe),
    row!(EventsUnsubscribe, |request, _params| request.conn.detach(&Attached::All)),
    row!(SessionSearch: query[LIST_ROOM] service::search::search),
    row!(CompletionStart: stream streams::complete),
    row!(CompletionCancel, |request, params| request.conn.detach(&Attached::Completion(params.completion))),
    row!(UsageList: query service::usage::sums),
    row!(BlobGet: query[PIECE_ROOM] service::blob::get),
    row!(ArtifactBegin: call service::artifact::begin),
    row!(ArtifactWrite: call service::artifact::write),
    row!(ArtifactFinish: call service::artifact::finish),
    row!(ArtifactGet: query service::artifact::get),
    row!(ArtifactRead: query[PIECE_ROOM] service::artifact::read),
    row!(ArtifactList: query[LIST_ROOM] service::artifact::list),
    row!(ArtifactDelete: call service::artifact::delete),
    row!(KeyList: query service::key::list),
    row!(KeySet: call service::key::set),
    row!(KeyRemove: call service::key::remove),
    row!(ConfigGet, |request, params| {
        let room = if params.text { CONFIG_ROOM } else { CONFIG_ROOM / 2 };
        let get = service::config::get(&request.services, request.conn.caller(), params);
        request.conn.query_large(&request.extensions, room, get).await
    }),
    row!(ConfigConfirm: call service::config::confirm),
    row!(ConfigSet: call service::config::set),
    row!(ConfigWrite: call service::config::write),
    row!(TrustGet: query[CONFIG_ROOM] service::trust::get),
    row!(TrustConfirm: call service::trust::confirm),
    row!(TrustList: query[CONFIG_ROOM] service::trust::list),
    row!(TrustRevoke: call service::trust::revoke),
    row!(TokenMint: call service::token::mint),
    row!(TokenExchange: call service::token::exchange),
    row!(TokenList: query[LIST_ROOM] service::token::list),
    row!(TokenRevoke: call service::token::revoke),
    row!(SkillList: files Skill),
    row!(CommandList: files Command),
    row!(AgentList: files Agent),
    row!(ToolFiles: files Tool),
    row!(ServerFiles: files Server),
    row!(MemoryList: query[FILES_ROOM] service::memory::list),
    row!(MemoryAdd: call service::memory::add),
    row!(MemoryRemove: call service::memory::remove),
    row!(McpList: call service::mcp::list),
    row!(McpAdd: call service::mcp::add),
    row!(McpRemove: call service::mcp::remove),
    row!(McpRestart: call service::mcp::restart),
    row!(McpLogs: call service::mcp::logs),
    row!(McpTest: call service::mcp::test),
    row!(McpLogin: call service::mcp::login),
    row!(McpFinishLogin: call service::mcp::finish_login),
    row!(McpLogout: call service::mcp::logout),
    row!(McpResources: call service::mcp::resources),
    row!(McpResource: call service::mcp::resource),
    row!(McpPrompts: call service::mcp::prompts),
    row!(McpPrompt: call service::mcp::prompt),
    row!(PermissionList: query[store::PENDING] service::question::permissions),
    row!(PermissionAnswer: call service::question::decide),
    row!(PermissionExplain: call service::permission::explain),
    row!(PermissionRules: query[CONFIG_ROOM / 2] service::permission::rules),
    row!(PermissionRemove: call service::permission::remove),
    row!(QuestionList: query[store::PENDING] service::question::list),
    row!(QuestionAnswer: call service::question::answer),
];

/// The Markdown files of a kind.
async fn files(request: &MethodCall, kind: FileKind, params: agent::List) -> Result<Vec<agent::Item>, RpcError> {
    let room = if params.text { FILES_ROOM } else { LIST_ROOM };
    let list = service::agent::list(&request.services, request.conn.caller(), kind, params);
    request.conn.query_large(&request.extensions, room, list).await
}

#[cfg(test)]
mod tests {
    use linger_protocol::method::{Visitor, each_method};
    use schemars::JsonSchema;

    use super::*;

    #[test]
    fn each_method_of_the_protocol_has_its_row() {
        #[derive(Default)]
        struct Names(Vec<&'static str>);
        impl Visitor for Names {
            fn method<P: JsonSchema, R: JsonSchema>(&mut self, name: &'static str) {
                self.0.push(name);
            }
        }
        let mut names = Names::default();
        each_method(&mut names);
        assert_eq!(TABLE.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names.0);
    }
}
