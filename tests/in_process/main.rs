//! linger without its programs: a daemon in the process of the test, raw clients, a scripted model over real HTTP; one binary, a
//! file an area.
//!
//! What needs a process, a socket, a terminal or a kill is in `it`. A test that ends well ends in `daemon.check(…)`, here too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A panic is how a test speaks.

mod attention;
mod batch;
mod bounds;
mod compaction;
mod configuration;
mod corpus;
mod delegate;
mod events;
mod fetch;
mod hooks;
mod hosted;
mod idempotency;
mod matrix;
mod mcp;
mod mcp_faults;
mod mcp_odd;
mod memory;
mod order;
mod permission;
mod provider_faults;
mod replay;
#[path = "../shared/mod.rs"]
mod shared;
mod storage;
mod titles;
mod tools;
mod tree;
mod trust;
mod turn;
mod turn_cancel;
mod usage;
mod wire;
mod worktree;

use linger_tests::harness::Inside as Daemon;
use shared::{after_tool, answer, bash, last_words, story, wanted};
