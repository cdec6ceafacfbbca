//! The operating system: memory, descriptors, the terminal, processes at the other end of a socket, the clock, disks.
//!
//! The one room with `unsafe`. It stands on no other room.

pub mod clock;
pub mod descriptors;
pub mod disk;
pub mod memory;
pub mod peer;
pub mod terminal;
