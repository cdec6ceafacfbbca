//! Patterns of paths, and the walk below a directory that glob and grep share.
//!
//! The walk keeps to `.gitignore` ([`Ignored`]), leaves hidden files out unless a pattern names one, and never follows a link.

use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder};
use tokio_util::sync::CancellationToken;

use super::Invalid;
use super::ignored::Ignored;

/// Files that one call looks at; more than the largest repositories have.
const FILES_MAX: u64 = 1_000_000;

/// A glob. Without a `/` it is a name at any depth.
pub(super) struct Pattern {
    glob: GlobMatcher,
    /// Whether a part of it begins with a dot.
    hidden: bool,
}

impl Pattern {
    pub(super) fn new(pattern: &str) -> Result<Self, Invalid> {
        if pattern.starts_with(['/', '~']) || pattern.split('/').any(|part| part == "..") {
            return Err(Invalid("`pattern` is relative; give the directory as `path`".to_owned()));
        }
        let pattern = pattern.trim_start_matches("./");
        let anywhere = if pattern.contains('/') { "" } else { "**/" };
        let glob = GlobBuilder::new(&format!("{anywhere}{pattern}")).literal_separator(true).build();
        // The error has the pattern without what was added to it.
        let glob = glob.map_err(|error| Invalid(format!("error parsing glob '{pattern}': {}", error.kind())))?;
        Ok(Self { glob: glob.compile_matcher(), hidden: pattern.split('/').any(|part| part.starts_with('.')) })
    }

    /// Whether `path` below `root` is meant.
    pub(super) fn matches(&self, root: &Path, path: &Path) -> bool {
        self.glob.is_match(path.strip_prefix(root).unwrap_or(path))
    }
}

/// What is below a directory but directories, sorted by name.
pub(super) struct Walk<'a> {
    inner: ignore::Walk,
    token: &'a CancellationToken,
    seen: u64,
    unreadable: u64,
}

impl<'a> Walk<'a> {
    pub(super) fn new(root: &Path, pattern: Option<&Pattern>, token: &'a CancellationToken) -> Self {
        let ignored = Ignored::default();
        let inner = WalkBuilder::new(root)
            // These files are opened by `Ignored`: the walk would open whatever has their names, a device or a FIFO too.
            .standard_filters(false)
            .hidden(!pattern.is_some_and(|pattern| pattern.hidden))
            .filter_entry(move |entry| {
                let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
                entry.depth() == 0 || (entry.file_name() != ".git" && !ignored.has(entry.path(), is_dir))
            })
            .sort_by_file_name(Ord::cmp)
            .build();
        Self { inner, token, seen: 0, unreadable: 0 }
    }

    /// What the walk left out, in words; empty if nothing.
    pub(super) fn left_out(&self) -> String {
        let mut said = String::new();
        if self.seen >= FILES_MAX {
            said.push_str(&format!("[stopped after {FILES_MAX} files; give a `path`]\n"));
        }
        if self.unreadable > 0 {
            said.push_str(&format!("[{} directories could not be read]\n", self.unreadable));
        }
        said
    }
}

impl Iterator for Walk<'_> {
    type Item = DirEntry;

    fn next(&mut self) -> Option<DirEntry> {
        while self.seen < FILES_MAX && !self.token.is_cancelled() {
            match self.inner.next()? {
                Ok(entry) if entry.file_type().is_some_and(|kind| !kind.is_dir()) => {
                    self.seen += 1;
                    return Some(entry);
                }
                Ok(_) => {}
                Err(_) => self.unreadable += 1,
            }
        }
        None
    }
}
