//! The operating system: memory, descriptors, the terminal, processes at the other end of a socket, the clock, disks, tasks.
//!
//! The only room with `unsafe`. It uses no other room.

pub mod clock;
pub mod descriptors;
pub mod disk;
pub mod login;
pub mod memory;
pub mod peer;
pub mod task;
pub mod terminal;
