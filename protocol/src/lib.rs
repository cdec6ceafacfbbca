//! The agreement between linger's daemon and its clients.
//!
//! The nouns ([`message`], [`event`], [`events`], [`search`], [`session`], [`agent`], [`artifact`], [`attention`], [`prompt`], [`question`], [`permission`], [`patience`], [`unattended`], [`blob`], [`budget`], [`checkpoint`], [`child`], [`completion`], [`config`], [`daemon`], [`gateway`], [`key`], [`mcp`], [`token`], [`trust`], [`error`]),
//! the methods ([`method`]), the places where things lie ([`place`]), JSON lines over a local socket ([`transport`]), and which process
//! listens there ([`listener`]), the only I/O of this crate; and how an idle process shrinks ([`footprint`]).
//! Deliberately absent: any logic of sessions, providers or rendering.

pub mod age;
pub mod agent;
pub mod artifact;
pub mod attention;
pub mod blob;
pub mod budget;
pub mod checkpoint;
pub mod child;
pub mod completion;
pub mod config;
pub mod daemon;
pub mod error;
pub mod event;
pub mod events;
pub mod footprint;
pub mod gateway;
pub mod id;
pub mod key;
pub mod listener;
pub mod mcp;
pub mod mcp_revision;
pub mod memory;
pub mod message;
pub mod method;
pub mod path;
pub mod patience;
pub mod permission;
pub mod place;
pub mod prompt;
pub mod question;
pub mod schema;
pub mod search;
pub mod session;
pub mod token;
pub mod transport;
pub mod tree;
pub mod trust;
pub mod unattended;
pub mod usage;
pub mod variable;
pub mod worktree;

pub use error::RpcError;
#[cfg(feature = "rpc-client")]
pub use method::api;

/// The oldest and the newest protocol version that this build speaks, both included.
pub const PROTOCOL: [u32; 2] = [1, 1];

/// The version of this build, as `daemon/hello` and `--version` say it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
