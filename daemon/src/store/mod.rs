//! The store: SQLite on threads of its own.
//!
//! One thread writes: it commits the queue ([`queue`]) in one transaction and never waits to collect more, so that one commit
//! costs microseconds and many at once share it. An [`Append`] that precedes a side effect or was acknowledged to a user is
//! *synced*: it is on disk before its result is sent; the others survive a kill of the process.
//! One thread reads ([`reader`]), on a connection of its own; a third moves the WAL into the database beside the commits
//! ([`checkpoint`]). All end when the last [`Store`] is dropped, after the queue is written. [`Store::close`] waits for that.
//! The rows of a removed session are deleted while the thread is idle ([`upkeep`]).
//! Deliberately absent: any knowledge of what an event means.

mod ahead;
mod append;
pub mod artifact;
pub mod aside;
pub mod blob;
mod checkpoint;
pub mod damage;
pub mod days;
mod error;
pub(crate) mod event_row;
pub mod feed;
pub mod files;
mod handle;
pub mod idempotency;
mod intact;
pub(crate) mod migrate;
pub mod open;
pub(crate) mod parts;
mod queue;
pub(crate) mod read;
mod reader;
#[cfg(test)]
pub(crate) mod rng;
pub mod scope;
pub mod token;
mod upkeep;
pub(crate) mod usage;
pub mod words;
pub(crate) mod write;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;

use tokio::sync::watch;

pub use append::{Append, Done, Fold, Spent, StateRow};
pub use error::{Reason, StoreError};
pub use event_row::{Page, sum as event_sum, was_empty};
pub use handle::Store;
pub(crate) use handle::lost_blob;
pub use migrate::SCHEMA;
pub(crate) use open::INCREMENTAL;
pub use parts::MAX_PARTS;
pub use read::{Answered, BINNED, FOLD, LARGE, MIN_PREFIX, PENDING, SessionRow, Untouched, Wanted};

use blob::Blobs;
use damage::KnownDamage;
use intact::Intact;
use queue::Queue;

impl Store {
    /// Opens or creates the database at `path`, mode 0600. An unusable one is set aside.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let found = KnownDamage::default();
        let path = open::own_path(path);
        let path = path.as_path();
        let (mut write, read) = open::open(path)?;
        let tokens = token::all(&read).unwrap_or_else(|error| {
            tracing::error!(target: "store", %error, "the tokens cannot be read: none is valid");
            Vec::new()
        });
        found.set_aside(aside::list(path));
        let ahead = ahead::Ahead::new(path, checkpoint::beside(&mut write, path, &found)?);
        let fixed = write.is_readonly(rusqlite::MAIN_DB)?;
        let (blobs, intact) = (Blobs::of(path), Arc::new(Intact::of(path, fixed)));
        let (writer, writes) = Queue::new();
        let (reader, queries) = mpsc::channel();
        let grown = watch::Sender::new(());
        std::thread::Builder::new().name("store-write".to_owned()).spawn({
            let found = found.clone();
            let upkeep = upkeep::Upkeep::new(path, blobs.clone(), found.clone());
            let (intact, grown) = (intact.clone(), grown.clone());
            move || write::run(&write, &writes, upkeep, ahead, &found, &grown, intact)
        })?;
        std::thread::Builder::new().name("store-read".to_owned()).spawn(move || reader::run(&read, &queries))?;
        Ok(Self { found, path: path.into(), writer, reader, blobs, intact, tokens: tokens.into(), grown })
    }
}
