//! The daemon that owns agent sessions; see `README.md` for its architecture.

pub mod clock;
pub mod config;
pub mod permission;
pub mod provider;
pub mod secret;
pub mod tool;
