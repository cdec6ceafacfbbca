//! The daemon that owns agent sessions; see `README.md` for its architecture.

pub mod clock;
pub mod config;
pub mod listener;
pub mod lock;
pub mod log;
pub mod peer;
pub mod permission;
pub mod provider;
pub mod secret;
pub mod tool;
