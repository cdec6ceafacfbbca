//! Changes of the file that a person or an answer asks for. What they widen is confirmed with them.

use std::io;
use std::path::{Path, PathBuf};

use super::{ConfigStore, MAX_FILE, lines, read};
use crate::config::ConfigError;
use crate::config::edit::{self, EditError, Prepared};
use crate::config::widening::{self, Change, merge};

/// How often a write is tried again because the file was saved in the meantime; no editor saves that often.
const MAX_TRIES: usize = 20;

impl ConfigStore {
    /// Adds `rule` to the workspace's `allow` list in the file, or to `deny`, confirmed; comments and order stay. Blocks on the
    /// disk.
    pub fn always(&self, root: &Path, refuses: bool, rule: &str) -> Result<(), EditError> {
        self.change("an answer", |text| {
            self.parse(text).map_err(EditError::Broken)?;
            Ok(edit::append(text, root, if refuses { "deny" } else { "allow" }, rule)?)
        })
        .map(drop)
    }

    /// Removes `rule` from the lists of workspaces, of the one with this root or of all; gives the roots where it stood, with
    /// whether it refused there. Blocks on the disk.
    pub fn revoke(&self, root: Option<&Path>, rule: &str, by: &str) -> Result<Vec<(PathBuf, bool)>, EditError> {
        let mut removed = Vec::new();
        self.change(by, |text| {
            self.parse(text).map_err(EditError::Broken)?;
            let (new, roots) = edit::without_rule(text, root, rule)?;
            removed = roots;
            Ok(Some(new).filter(|new| new != text))
        })?;
        Ok(removed)
    }

    /// Sets the dotted `key` in the file, confirmed by `by`; comments and order stay. Returns what was confirmed, a line each.
    /// Blocks on the disk.
    pub fn set(&self, key: &str, value: &str, by: &str) -> Result<Vec<String>, EditError> {
        self.change(by, |text| {
            self.parse(text).map_err(EditError::Broken)?;
            Ok(Some(edit::set(text, key, value)?).filter(|new| new != text))
        })
    }

    /// Replaces the file's text, if it `is_before`, with `text`; what it changes is confirmed by `by`. Returns that, a line
    /// each. With `dry_run` nothing is written. Blocks on the disk.
    pub fn write(
        &self,
        is_before: impl Fn(&str) -> bool,
        text: &str,
        by: &str,
        dry_run: bool,
    ) -> Result<Vec<String>, EditError> {
        if dry_run {
            return Ok(lines(&self.own_changes(&self.text()?, text)?));
        }
        self.change(by, |now| if is_before(now) { Ok(Some(text.to_owned())) } else { Err(EditError::Stale) })
    }

    /// Replaces the file's text with the result of `edit`, if any; calls it again if the file was saved in the meantime. What
    /// that changes is confirmed; what waited before goes on waiting.
    pub(in crate::config) fn change(
        &self,
        by: &str,
        mut edit: impl FnMut(&str) -> Result<Option<String>, EditError>,
    ) -> Result<Vec<String>, EditError> {
        let held = self.held();
        let file = self.places.config_file();
        for _ in 0..MAX_TRIES {
            let text = read(&file)?;
            let mut confirmed = Vec::new();
            if let Some(new) = edit(&text)? {
                let own = self.own_changes(&text, &new)?;
                let new = Prepared::new(&file, &new)?;
                // Never overwrite what was saved in the meantime.
                if read(&file)? != text {
                    continue;
                }
                confirmed = lines(&own);
                if !own.is_empty() {
                    let settings = widening::with(&self.loaded().confirmed, &own);
                    self.record(settings, confirmed.clone(), by)?;
                }
                new.put()?;
            }
            self.reload_locked(&held);
            return Ok(confirmed);
        }
        Err(io::Error::other("another program keeps changing the file").into())
    }

    /// The widening changes from one text of the file to the next, which must be one that can be read back.
    fn own_changes(&self, text: &str, new: &str) -> Result<Vec<Change>, EditError> {
        if new.len() as u64 > MAX_FILE {
            let error = format!("the file would be larger than {MAX_FILE} bytes");
            return Err(EditError::Refused(ConfigError::whole(&self.places.config_file(), error)));
        }
        let new = self.found(new).map_err(EditError::Refused)?;
        let last_good = || self.loaded().found.as_ref().map(|found| found.settings.clone());
        let before = self.found(text).ok().map(|found| found.settings).or_else(last_good);
        let confirmed = self.loaded().confirmed.clone();
        let waited = before.map(|before| merge(&confirmed, &before).changes).unwrap_or_default();
        let mut changes = merge(&confirmed, &new.settings).changes;
        changes.retain(|change| !waited.contains(change));
        Ok(changes)
    }
}
