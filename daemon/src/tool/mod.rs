//! Tools: one file for each tool that a model can call, with its description for the model in `name.md`.
//!
//! [`Tool::prepare`] checks the arguments before anything runs and returns a [`Call`], which says what it would do. The turn asks
//! for permission and then runs the call. Dropping the future of a call stops it: guards end whatever it has started.
//! Deliberately absent: permissions, and anything about the log.
//!
//! The rooms import only downwards, from the top: `builtin` (the list of tools); the tools; `set` (which tools a session has);
//! `command`, `file`, `args` and other helpers; `types`; `workspace`; and what these are made of. This file only declares and
//! re-exports: inside the room, import from the defining file.

mod access;
pub mod added;
mod alike;
pub mod apply_patch;
mod args;
mod ask_user;
pub(crate) mod background;
mod bash;
mod bash_output;
mod builtin;
pub mod change;
mod charset;
mod command;
pub mod delegate;
pub mod diff;
mod edit;
mod fetch;
mod file;
mod fit;
mod frames;
mod git;
mod glob;
mod grep;
pub(crate) mod handle;
mod ignored;
pub mod image;
mod invalid;
pub(crate) mod launched;
pub(crate) mod launchers;
mod left;
mod ls;
pub mod memory;
mod names;
pub mod notes;
pub(crate) mod output;
pub mod overlap;
mod own_database;
pub mod page;
mod patching;
mod path;
pub(crate) mod pattern;
mod plan;
pub mod program;
mod read;
mod replace;
pub mod restore;
pub mod seen;
pub mod set;
pub mod shell;
pub mod skill;
pub mod skills;
mod test_run;
pub(crate) mod text;
mod types;
mod walk;
mod workspace;
mod write;

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
pub(crate) mod tests;

pub use access::{Access, Effects, Targets};
pub(crate) use bash::ForegroundBash;
pub use builtin::builtin;
pub(crate) use command::TIMEOUT_MAX_S;
pub use git::{checkpoint, plain as git_reads, worktree};
pub use invalid::Invalid;
pub use names::Takes;
pub use output::OutputDelta;
pub(crate) use own_database::keep_shut;
pub(crate) use path::normalise;
pub use types::{
    Ask, BoxFuture, Call, Choice, Chosen, Context, Hidden, Made, SessionTraits, Tool, ToolOutput, Wants, Web,
};
pub use workspace::Workspace;
