//! linger end to end: the real programs, real sockets, a scripted model; one binary, a file an area.
//!
//! Each test has a daemon and a model server of its own. A test that ends well ends in `daemon.check(…)`: whatever it was
//! about, what must always hold is checked too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A panic is how a test speaks.

mod acp;
mod aimock;
mod attention;
mod batch;
mod beside_events;
mod blobs;
mod bounds;
mod calls_stream;
mod catalogue;
mod cli;
mod client_survives;
mod clients;
mod compaction;
mod completion;
mod configuration;
mod conformance;
mod crash;
mod daemon_command;
mod damage;
mod delegate;
mod docs;
mod editors;
mod environment;
mod fallback;
mod fetch;
mod files;
mod full_disk;
mod gateway;
mod hosted;
mod hostile;
mod hostile_tools;
mod idempotency;
mod keeper;
mod keys;
mod large;
mod lost_events;
mod manual;
mod matrix_turns;
mod mcp;
mod mcp_json;
mod mcp_others;
mod mcp_sessions;
mod network;
mod no_file;
mod oauth;
mod options;
mod outage;
mod page;
mod permission;
mod pictures;
mod power;
mod prompt;
mod provider_faults;
mod providers;
mod question;
mod races;
mod repair;
mod replay;
mod restore;
mod retry;
mod schema;
mod screen;
mod scripts;
mod slow_client;
mod space;
mod storage;
mod suspend;
mod terminal;
mod tunnel;
mod turn_cancel;
mod usage;
mod versions;
mod vi;
mod widening;
mod wire;

#[path = "../shared/mod.rs"]
mod shared;

use linger_tests::harness::Daemon;
use shared::{after_tool, answer, bash, last_words, story, wanted};
