//! Readers of a session's log: subscriptions, feeds, the search, the conversation backwards, and changed files.

pub mod changes;
pub mod feed;
pub mod line;
pub mod search;
pub mod subscription;
