//! Markdown files as a person sees them before they take effect: what each runs or says, and its whole text.
//!
//! `agent` reads the files and describes them (`ConfigStore::show_files`); here the descriptions stand behind the changes that wait.
//! A description counts only for the content that it was made of, so what is shown is what is confirmed.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The most text that is kept of the files of one place, in bytes: 200 files of each kind, all of them long, have more.
const TEXT_MAX: usize = 8 << 20;

/// The places that descriptions are kept of; those of further ones are made when they are looked at again.
const PLACES_MAX: usize = 64;

/// A file as a person is shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownFile {
    /// `sha256:` and the hash of its content.
    pub digest: String,
    /// The kind of a file and what it runs, on one line.
    pub about: String,
    /// Its whole text.
    pub text: String,
}

/// The files of each place, by their paths below it.
#[derive(Debug, Default)]
pub(super) struct ShownFiles(Mutex<HashMap<PathBuf, BTreeMap<String, ShownFile>>>);

impl ShownFiles {
    pub(super) fn of(&self, root: &Path) -> BTreeMap<String, ShownFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(root).cloned().unwrap_or_default()
    }

    /// Takes these files of a place; others of it stay.
    pub(super) fn take(&self, root: &Path, files: BTreeMap<String, ShownFile>) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= PLACES_MAX && !places.contains_key(root) {
            places.clear();
        }
        let known = places.entry(root.to_path_buf()).or_default();
        known.extend(files);
        if known.values().map(|file| file.text.len()).sum::<usize>() > TEXT_MAX {
            known.clear();
        }
    }
}

/// The lines of a text as they stand below a change, so that none looks like another change.
pub(super) fn quoted(text: &str) -> String {
    text.lines().map(|line| format!("\n    | {line}")).collect()
}
