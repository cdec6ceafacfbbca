//! Many clients at once: permissions and questions that several answer in the same moment, and readers that come and go while
//! turns are live.
//!
//! Real daemon, real socket, as many rounds as one asks for. What is checked holds for each round by itself, so a run needs no
//! more memory than a batch of it.

mod attachments;
mod lean;
mod permissions;
mod questions;

pub use attachments::attachments;
pub use permissions::permissions;
pub use questions::questions;

/// Rounds that one daemon and one model server see; the server remembers what it was asked.
const BATCH: u64 = 10_000;

/// The sizes of the batches that make `count`.
fn batches(count: u64) -> impl Iterator<Item = u64> {
    (0..count.div_ceil(BATCH)).map(move |n| BATCH.min(count - n * BATCH))
}
