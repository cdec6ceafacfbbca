//! MCP servers: the daemon owns them, all sessions share them, and their tools are tools like any other.
//!
//! [`Servers`] holds the configured ones and keeps the tool set up to date with what they list. A server is started when it is
//! first needed, and listed from the disk until then. Processes are started and ended by `process`, as all children are.
//! Deliberately absent: permissions (its tools ask like any tool), and who may change the configuration.
//!
//! | file | owns |
//! |---|---|
//! | `settings` | `[mcp.NAME]`; pure |
//! | `servers`, `configured` | all servers, and where they come from |
//! | `server` | one server: its instances, restarts, idle end |
//! | `connection`, `heard` | one instance: handshake, lists, calls; what it sends |
//! | `peer`, `lines` | JSON-RPC: requests and their answers; log lines |
//! | `jsonrpc` | messages of servers, read leniently; pure |
//! | `http` | Streamable HTTP, for servers at an address |
//! | `login`, `oauth` | logins at such servers; OAuth |
//! | `challenge`, `discovery` | what a server says of the login that it wants, and where that is |
//! | `listing`, `schema`, `result` | tools, their schemas and results made fit for providers; pure |
//! | `tool` | a server's tool as a [`crate::tool::Tool`] |
//! | `workspaces` | the servers of the files of workspaces |
//! | `sessions` | the servers that clients bring for a session |
//! | `offers` | resources and prompts, for people |
//! | `cache` | the lists of tools on disk |

mod cache;
mod challenge;
mod configured;
mod connection;
mod discovery;
mod heard;
mod http;
mod jsonrpc;
mod lines;
mod listing;
mod login;
mod oauth;
mod offers;
mod peer;
mod result;
mod schema;
mod server;
mod servers;
pub mod sessions;
pub mod settings;
mod tool;
pub mod workspaces;

pub use discovery::Http;
pub(crate) use lines::{MAX_MESSAGE, next_line};
pub use login::Logins;
pub use oauth::Returned;
pub use offers::{OfferError, Place};
pub use server::Outside;
pub use servers::{Servers, ServersOf};
