//! Faces: processes that speak another protocol outwards.
//!
//! Each runs in a process of its own that can be killed without loss, and the daemon proper uses none of them. [`gateway`] is a client
//! of the daemon's socket like any other; [`serve`] needs no daemon. The bridge for editors is the client's.

pub mod gateway;
pub mod serve;
