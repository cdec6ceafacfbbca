//! The lists of tools that servers gave last, on disk: a first turn does not wait for a server that was seen before.
//!
//! A file that cannot be read is one that knows nothing.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::listing::Listing;

/// The largest file, in bytes: 500 tools with schemas of 30 KiB.
const MAX_FILE: u64 = 16 << 20;

/// The file; all clones are one.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    file: PathBuf,
    /// The lists to write next; locked while the file is written.
    known: Arc<Mutex<BTreeMap<String, Listing>>>,
}

impl Cache {
    /// Reads the file; blocks on the disk.
    pub(super) fn open(file: PathBuf) -> Self {
        let known = read(&file).unwrap_or_default();
        Self { file, known: Arc::new(Mutex::new(known)) }
    }

    /// The last list of the server with this identity.
    pub(super) fn get(&self, identity: &str) -> Option<Listing> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(identity).cloned()
    }

    /// Stores a list, and forgets the servers that are not in `keep`. Blocks on the disk.
    pub(super) fn put(&self, identity: String, listing: Listing, keep: &[String]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(identity, listing);
        known.retain(|identity, _| keep.contains(identity));
        if let Err(error) = write(&self.file, &known) {
            tracing::warn!(target: "mcp", %error, "the tools of MCP servers cannot be stored; the next start asks again");
        }
    }
}

fn read(file: &std::path::Path) -> Option<BTreeMap<String, Listing>> {
    if std::fs::metadata(file).ok()?.len() > MAX_FILE {
        return None;
    }
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

fn write(file: &std::path::Path, known: &BTreeMap<String, Listing>) -> std::io::Result<()> {
    let dir = file.parent().unwrap_or(std::path::Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(dir)?;
    new.write_all(&serde_json::to_vec(known)?)?;
    new.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_is_known_after_a_restart_until_its_server_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lingerd.mcp");
        let listing = Listing::of("s", &[json!({ "name": "x" })]);
        let keep = ["a".to_owned(), "b".to_owned()];
        Cache::open(file.clone()).put("a".to_owned(), listing.clone(), &keep);
        let cache = Cache::open(file.clone());
        assert_eq!((cache.get("a"), cache.get("b")), (Some(listing.clone()), None));
        cache.put("b".to_owned(), listing.clone(), &keep[1..]);
        assert_eq!(Cache::open(file.clone()).get("a"), None);
        std::fs::write(&file, "{").unwrap();
        assert_eq!(Cache::open(file).get("b"), None);
    }
}
