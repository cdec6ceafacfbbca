//! Every method of the protocol, as traits of jsonrpsee: the server's side and a typed client from one definition.
//!
//! Each method takes one struct, which on the wire is the whole `params` object ([`crate::transport::serve`] sees to that).
//! Requests of one connection take effect in the order in which they came: handlers enqueue and return.

use jsonrpsee::ResponsePayload;
use jsonrpsee::core::RpcResult;
use jsonrpsee::proc_macros::rpc;

use crate::blob::{Get, Piece};
use crate::daemon::{Empty, Hello, Keys, Model, Models, Repair, Repaired, Status, Stop, Tool, Welcome};
use crate::key::{Info as KeyInfo, Listed, Remove as RemoveKey, Removed, Set as SetKey};
use crate::permission::{Answer, Answered, List as PermissionList, Pending};
use crate::session::{
    Attach, Attached, Compact, Create, Created, Info, Keyed, List, Named, Prompt, Prompted, Prune, Pruned, Remove, Set,
};

/// The daemon itself.
#[rpc(server, client)]
pub trait DaemonApi {
    /// Agrees on a protocol version and says which variables and keys the daemon would take.
    #[method(name = "daemon/hello", with_extensions)]
    async fn hello(&self, params: Hello) -> RpcResult<Welcome>;

    /// Brings provider keys, which stay in memory and go to their provider's host alone.
    #[method(name = "daemon/keys", with_extensions)]
    async fn keys(&self, params: Keys) -> RpcResult<Empty>;

    /// Where everything is and how much goes on.
    #[method(name = "daemon/status", with_extensions)]
    async fn status(&self, params: Empty) -> RpcResult<Status>;

    /// Ends the daemon; turns go on when it starts again.
    #[method(name = "daemon/stop", with_extensions)]
    async fn stop(&self, params: Stop) -> RpcResult<Empty>;

    /// Looks for damage to what is stored, and saves what can be read.
    #[method(name = "daemon/repair", with_extensions)]
    async fn repair(&self, params: Repair) -> RpcResult<Repaired>;

    /// The models that can be used, and what is missing for those that cannot.
    #[method(name = "model/list", with_extensions)]
    async fn models(&self, params: Models) -> RpcResult<Vec<Model>>;

    /// The tools that models are given.
    #[method(name = "tool/list")]
    async fn tools(&self, params: Empty) -> RpcResult<Vec<Tool>>;
}

/// Sessions.
#[rpc(server, client)]
pub trait SessionApi {
    /// Creates a session; answers once it is on disk.
    #[method(name = "session/create", with_extensions)]
    async fn create(&self, params: Create) -> RpcResult<Created>;

    /// Sessions, the latest first.
    #[method(name = "session/list", with_extensions)]
    async fn list(&self, params: List) -> RpcResult<Vec<Info>>;

    /// Sends the session's events after a cursor, and goes on; a second attach replaces the first.
    #[method(name = "session/attach", with_extensions)]
    async fn attach(&self, params: Attach) -> ResponsePayload<'static, Attached>;

    /// Sends no more events of the session.
    #[method(name = "session/detach", with_extensions)]
    async fn detach(&self, params: Named) -> RpcResult<Empty>;

    /// Gives the session something to do; answers once the prompt is on disk.
    #[method(name = "session/prompt", with_extensions)]
    async fn prompt(&self, params: Prompt) -> RpcResult<Prompted>;

    /// Stops the turn that is under way and keeps the session.
    #[method(name = "session/cancel", with_extensions)]
    async fn cancel(&self, params: Keyed) -> RpcResult<Empty>;

    /// Takes up an offered turn, or prompts that wait after a cancel or an error.
    #[method(name = "session/continue", with_extensions)]
    async fn resume(&self, params: Keyed) -> RpcResult<Empty>;

    /// Has older messages replaced by a summary, in the context; answers once the request is on disk.
    #[method(name = "session/compact", with_extensions)]
    async fn compact(&self, params: Compact) -> RpcResult<Prompted>;

    /// Changes model, mode or name from the next step on.
    #[method(name = "session/set", with_extensions)]
    async fn set(&self, params: Set) -> RpcResult<Empty>;

    /// Deletes a session and everything that was stored for it.
    #[method(name = "session/remove", with_extensions)]
    async fn remove(&self, params: Remove) -> RpcResult<Empty>;

    /// Deletes the sessions that nobody has used for a while, or says which these are.
    #[method(name = "session/prune", with_extensions)]
    async fn prune(&self, params: Prune) -> RpcResult<Pruned>;
}

/// What was paid for.
#[rpc(server, client)]
pub trait UsageApi {
    /// Tokens and costs, summed up.
    #[method(name = "usage/list", with_extensions)]
    async fn sums(&self, params: crate::usage::List) -> RpcResult<crate::usage::Sums>;
}

/// Blobs.
#[rpc(server, client)]
pub trait BlobApi {
    /// A piece of what an event names.
    #[method(name = "blob/get", with_extensions)]
    async fn get(&self, params: Get) -> RpcResult<Piece>;
}

/// Provider keys.
#[rpc(server, client)]
pub trait KeyApi {
    /// Where each provider's key comes from, and whether there is a keychain.
    #[method(name = "key/list", with_extensions)]
    async fn list(&self, params: Empty) -> RpcResult<Listed>;

    /// Puts a provider's key into the keychain.
    #[method(name = "key/set", with_extensions)]
    async fn set(&self, params: SetKey) -> RpcResult<KeyInfo>;

    /// Takes a provider's key out of the keychain.
    #[method(name = "key/remove", with_extensions)]
    async fn remove(&self, params: RemoveKey) -> RpcResult<Removed>;
}

/// Permissions.
#[rpc(server, client)]
pub trait PermissionApi {
    /// The permissions that wait.
    #[method(name = "permission/list", with_extensions)]
    async fn pending(&self, params: PermissionList) -> RpcResult<Vec<Pending>>;

    /// Decides one permission; the first answer wins and the others are told who won.
    #[method(name = "permission/answer", with_extensions)]
    async fn answer(&self, params: Answer) -> RpcResult<Answered>;
}
