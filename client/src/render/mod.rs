//! Events as text for people: takes events, returns output and its stream. Pure.
//!
//! Text streams as it comes; if the session was attached without deltas, messages are printed whole.
//! Printed text is never erased: a superseded message stays, with a line below it.

pub(crate) mod attached;
pub(crate) mod attention;
pub(crate) mod back;
mod changed;
mod child;
mod compaction;
pub(crate) mod diff;
pub(crate) mod difference;
mod event;
pub(crate) mod export;
mod first_line;
mod hosted;
mod lines;
pub(crate) mod live;
pub(crate) mod markdown;
pub(crate) mod money;
pub(crate) mod near;
pub(crate) mod permissions;
mod renderer;
pub(crate) mod servers;
pub(crate) mod sessions;
mod settings;
mod shaped;
pub(crate) mod since;
mod stream;
pub(crate) mod style;
pub(crate) mod table;
mod tool;
pub(crate) mod tree;
mod turn;
pub(crate) mod uncertain;
mod words;
pub(crate) mod worktree;

pub(crate) use renderer::Renderer;
pub(crate) use settings::{Settings, Thinking};
pub(crate) use words::{decision_text, reason, summary};

#[cfg(test)]
mod speakers;
#[cfg(test)]
mod tests;
