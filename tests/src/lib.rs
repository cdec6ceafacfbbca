//! Tests of linger as its users meet it: real binaries, real sockets, a scripted model server.
//!
//! [`model`] plays the provider, [`harness`] owns the processes, [`check`] holds what was seen against what must always hold.
//! Deliberately absent: anything of the daemon's own code. What is tested here is what a user, a script or an editor can see.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A panic is how a test speaks.

pub mod check;
pub mod floors;
pub mod harness;
pub mod model;
pub mod network;
pub mod power;
pub mod races;
pub mod report;
pub mod stored;
pub mod torture;
pub mod wire;

use std::time::Duration;

/// The one time-out of all tests: longer than anything that works takes on a machine that does much else.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A small seeded generator (splitmix64), so that a run can be repeated from its seed.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, and not with, `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next_u64() % end.max(1) as u64) as usize
    }
}
