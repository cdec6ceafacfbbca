//! The daemon that owns agent sessions; see `README.md` for its architecture.

pub mod clock;
pub mod process;
pub mod provider;
pub mod secret;
pub mod session;
pub mod tool;
