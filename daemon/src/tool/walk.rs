//! The walk below a directory that glob and grep share.
//!
//! It keeps to `.gitignore` ([`Ignored`]), leaves hidden files out unless a pattern names one, and never follows a link.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ignore::WalkBuilder;
use tokio_util::sync::CancellationToken;

use super::ignored::Ignored;
use super::pattern::Pattern;

/// Files that one call looks at; more than the largest repositories have.
const FILES_MAX: u64 = 1_000_000;

/// The paths below a directory of all but directories, relative to it and sorted, and whether each is a regular file.
/// It goes by names: if a link takes the place of a directory meanwhile, it may list what is behind. So its caller opens each
/// path by handle.
pub(super) struct Walk<'a> {
    root: PathBuf,
    inner: ignore::Walk,
    ignored: Arc<Ignored>,
    token: &'a CancellationToken,
    seen: u64,
    unreadable: u64,
}

impl<'a> Walk<'a> {
    /// Goes through `root`; hidden files are left out unless the pattern or `hidden` means them.
    pub(super) fn new(root: &Path, pattern: Option<&Pattern>, hidden: bool, token: &'a CancellationToken) -> Self {
        let ignored = Arc::new(Ignored::default());
        let rules = ignored.clone();
        let inner = WalkBuilder::new(root)
            // These files are opened by `Ignored`: the walk would open whatever has their names, a device or a FIFO too.
            .standard_filters(false)
            .hidden(!hidden && !pattern.is_some_and(Pattern::names_hidden))
            .filter_entry(move |entry| {
                let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
                entry.depth() == 0 || (entry.file_name() != ".git" && !rules.has(entry.path(), is_dir))
            })
            .sort_by_file_name(Ord::cmp)
            .build();
        Self { root: root.to_path_buf(), inner, ignored, token, seen: 0, unreadable: 0 }
    }

    /// Says what the walk left out; empty if nothing.
    pub(super) fn left_out(&self) -> String {
        let mut said = String::new();
        if self.seen >= FILES_MAX {
            said.push_str(&format!("[stopped after {FILES_MAX} files; give a `path`]\n"));
        }
        if self.unreadable > 0 {
            said.push_str(&format!("[{} directories could not be read]\n", self.unreadable));
        }
        said.push_str(&self.ignored.left_out());
        said
    }
}

impl Iterator for Walk<'_> {
    type Item = (PathBuf, bool);

    fn next(&mut self) -> Option<(PathBuf, bool)> {
        while self.seen < FILES_MAX && !self.token.is_cancelled() {
            match self.inner.next()? {
                Ok(entry) if entry.file_type().is_some_and(|kind| !kind.is_dir()) => {
                    self.seen += 1;
                    let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
                    let path = entry.path().strip_prefix(&self.root).unwrap_or(entry.path()).to_path_buf();
                    return Some((path, is_file));
                }
                Ok(_) => {}
                Err(_) => self.unreadable += 1,
            }
        }
        None
    }
}
