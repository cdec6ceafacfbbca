//! The interactive session: one loop over events of the daemon, lines, keys and signals.
//!
//! The prompt is open all the time, also while a turn runs: what the model says is drawn above it, Enter
//! queues, Alt-S steers, Esc and Ctrl-C at an empty line stop the turn, Ctrl-D leaves. Where the cursor
//! cannot be moved whole lines are written, and a line is read without a sign while a turn runs.
//! Our own messages never land in the middle of a line of the model.
//! `state` is the ground: what the loop keeps; `step` is the loop; the other chapters carry out one thing each.

mod asking;
mod complete;
mod editor;
mod event;
mod files;
mod history;
mod ignored;
mod keys;
mod lists;
mod menu;
mod note;
mod obey;
mod output;
mod outputs;
mod past;
mod paste;
mod picker;
mod prompts;
mod returned;
mod show;
mod slash;
mod start;
mod state;
mod step;
mod switch;
mod tree;

pub(crate) use past::{height, past};
pub(crate) use start::{needs_terminal, repl};
