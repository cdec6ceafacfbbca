//! The log of a session as others see it: clients that attach, feeds, the search, and what a conversation or its files were before.

pub mod changes;
pub mod feed;
pub mod line;
pub mod search;
pub mod subscription;
