//! The methods of the protocol, and the services that they use.
//!
//! Each method is a plain async function of the services, the caller and the request; one file per method family, named like it.
//! [`need`] is the table of what each method takes, checked before its function runs ([`Caller::may_call`]). The functions do not
//! know the transport. Below them: [`Services`], with one field a concern; the caller and its rights; the configuration in force.

pub mod agent;
pub mod artifact;
mod authority;
pub mod blob;
mod caller;
pub mod completion;
pub mod config;
pub mod daemon;
pub mod events;
pub mod files;
mod gateways;
mod in_force;
pub mod key;
pub mod mcp;
pub mod memory;
pub mod model;
pub mod need;
mod open_questions;
pub mod permission;
mod proof;
pub mod question;
mod route;
pub mod search;
mod services;
pub mod session;
mod standing;
pub mod token;
mod tokens;
pub mod tool;
pub mod tree;
pub mod trust;
mod upload;
pub mod usage;

pub use caller::Caller;
pub use proof::Authority;
pub use services::{Services, Setup, own_environment};
