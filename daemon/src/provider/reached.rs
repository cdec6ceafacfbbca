//! The addresses of providers that have ever answered: others are given up soon, because they are probably wrong.
//!
//! Kept in a file of one address a line, to which a blocking thread appends each new one. Losing it costs patience, nothing else.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::OFlags;

use crate::sys::task;

/// The most addresses that are kept; people have a handful.
const MAX_ADDRESSES: usize = 1000;

/// The most bytes of the file that are read.
const MAX_FILE: u64 = 256 << 10;

/// The addresses that have answered.
#[derive(Debug)]
pub struct Reached {
    file: PathBuf,
    known: Mutex<BTreeSet<String>>,
}

impl Reached {
    /// The addresses in `file`; none if it cannot be read.
    pub fn open(file: PathBuf) -> Arc<Self> {
        let known = match read(&file) {
            Ok(text) => text.lines().take(MAX_ADDRESSES).map(str::to_owned).collect(),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    let path = file.display();
                    tracing::warn!(target: "provider", %error, %path, "cannot read which providers have answered");
                }
                BTreeSet::new()
            }
        };
        Arc::new(Self { file, known: Mutex::new(known) })
    }

    /// Whether this address has ever answered.
    pub fn has(&self, address: &str) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(address)
    }

    /// This address has answered. Writes it on a blocking thread, the first time.
    pub fn add(self: &Arc<Self>, address: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_ADDRESSES || known.contains(address) {
            return;
        }
        known.insert(address.to_owned());
        drop(known);
        let (this, line) = (self.clone(), format!("{address}\n"));
        task::spawn_blocking(move || {
            if let Err(error) = this.append(&line) {
                let path = this.file.display();
                tracing::warn!(target: "provider", %error, %path, "cannot write that a provider has answered");
            }
        });
    }

    fn append(&self, line: &str) -> io::Result<()> {
        // Non-blocking, because opening a pipe of that name would block.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = std::fs::OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(flags.bits() as i32);
        options.open(&self.file)?.write_all(line.as_bytes())
    }
}

fn read(file: &std::path::Path) -> io::Result<String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(file)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is not a file"));
    }
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_answered_is_known_to_the_next_life() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lingerd.reached");
        let reached = Reached::open(file.clone());
        assert!(!reached.has("h:1"));
        reached.add("h:1");
        reached.add("h:1");
        reached.append("h:2\n").unwrap();
        while std::fs::read_to_string(&file).unwrap().lines().count() < 2 {
            tokio::task::yield_now().await;
        }
        let next = Reached::open(file);
        assert!(next.has("h:1") && next.has("h:2") && !next.has("h:3"));
    }
}
