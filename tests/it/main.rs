//! linger end to end: the real programs, a scripted model, one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A panic is how a test speaks.
