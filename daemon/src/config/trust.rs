//! The files of workspaces in force, and what of them a person has trusted.
//!
//! Each workspace has the same as the configuration itself: the settings of its files, those that were trusted, and their
//! difference, which waits ([`super::widening`]). What narrows counts at once. A broken file leaves the last good one in force,
//! and everything asks.
//! They are read before each call that could concern them, so a rule that was written counts for the next call: nothing is
//! watched. Deliberately absent: asking a person (`service`).

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linger_protocol::id::SessionId;
use serde_json::Value;
use tokio::sync::mpsc;

use super::HookEvent;
use super::edit::EditError;
use super::source::ConfigError;
use super::store::{ConfigStore, Confirmed, Waiting};
use super::widening::{confirmable, merge};
use super::workspace::{self, CONFIG, FILES, Trusted, WorkspaceConfig, nothing};

/// The most workspaces with trusted settings: a state of the daemon's log has them all.
const MAX_TRUSTED: usize = 1000;

/// The most trusted settings of one workspace, in bytes of JSON.
const MAX_SETTINGS: usize = 64 << 10;

/// The workspaces that were looked at since the daemon's start.
#[derive(Debug)]
pub(super) struct Workspaces {
    seen: Mutex<HashMap<PathBuf, Arc<Seen>>>,
    trusted: Mutex<Trusted>,
    changed: mpsc::UnboundedSender<PathBuf>,
    changes: Mutex<Option<mpsc::UnboundedReceiver<PathBuf>>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Held while the files are read, so that the last text read is the one in use.
    reading: Mutex<()>,
    now: Mutex<Arc<Now>>,
    /// The Markdown files that [`ConfigStore::survey`] was told of last, with their hashes.
    files: Mutex<BTreeMap<String, String>>,
    /// What each session was told last, as a hash.
    told: Mutex<HashMap<SessionId, u64>>,
}

/// What is known of a workspace.
#[derive(Debug, Default)]
pub struct Now {
    /// The last text; absent if there is no file, or if it could not be read.
    text: Option<String>,
    /// The settings of the last good text.
    found: Option<Value>,
    /// What is in force.
    pub config: Arc<WorkspaceConfig>,
    /// The settings in force.
    pub settings: Option<Value>,
    /// What waits until a person trusts it.
    pub waiting: Option<Arc<Waiting>>,
    /// What is wrong with the file: everything asks.
    pub error: Option<ConfigError>,
}

impl Default for Workspaces {
    fn default() -> Self {
        let (changed, changes) = mpsc::unbounded_channel();
        Self { seen: Mutex::default(), trusted: Mutex::default(), changed, changes: Mutex::new(Some(changes)) }
    }
}

impl Workspaces {
    fn seen(&self, root: &Path) -> Arc<Seen> {
        let mut seen = lock(&self.seen);
        seen.entry(root.to_path_buf()).or_default().clone()
    }
}

impl ConfigStore {
    /// Continues with what was trusted earlier.
    pub fn begin_trust(&self, trusted: Trusted) {
        *lock(&self.workspaces.trusted) = trusted;
    }

    /// The roots of workspaces about which a person is to be asked other things than before. Absent at a second call.
    pub fn trust_changes(&self) -> Option<mpsc::UnboundedReceiver<PathBuf>> {
        lock(&self.workspaces.changes).take()
    }

    /// What is trusted that widens what may happen, a line each, by the root of the workspace.
    pub fn trusts(&self) -> BTreeMap<PathBuf, Vec<String>> {
        let trusted = lock(&self.workspaces.trusted).clone();
        let lines = |settings: &Value| merge(&nothing(), settings).changes.into_iter().map(|it| it.text).collect();
        let rows = trusted.iter().map(|(root, settings)| (root.clone(), lines(settings)));
        rows.filter(|(_, lines): &(_, Vec<String>)| !lines.is_empty()).collect()
    }

    /// Reads the files of a workspace, and gives what is in force. Blocks on the disk.
    pub fn look(&self, root: &Path) -> Arc<Now> {
        let seen = self.workspaces.seen(root);
        let _reading = lock(&seen.reading);
        let file = root.join(CONFIG);
        let read = workspace::read(root, CONFIG);
        let before = lock(&seen.now).clone();
        let error = match read {
            Ok(text) if before.found.is_some() && before.error.is_none() && text == before.text => return before,
            Ok(text) => {
                match workspace::parse(text.as_deref().unwrap_or_default(), &file, self.tools().current().names()) {
                    Ok(found) => return self.settle_files(root, &seen, text, found),
                    Err(error) => error,
                }
            }
            Err(error) => ConfigError::whole(&file, error),
        };
        let Now { config, settings, waiting, .. } = &*before;
        let (config, settings, waiting) = (config.clone(), settings.clone(), waiting.clone());
        let found = before.found.clone().or_else(|| Some(nothing()));
        let now = Arc::new(Now { text: None, found, config, settings, waiting, error: Some(error) });
        *lock(&seen.now) = now.clone();
        now
    }

    /// As [`Self::look`], where the workspace has these Markdown files, each with its hash: those that are trusted with it stand in
    /// the settings in force.
    pub fn survey(&self, root: &Path, files: BTreeMap<String, String>) -> Arc<Now> {
        let seen = self.workspaces.seen(root);
        let is_new = {
            let mut known = lock(&seen.files);
            let before = known.clone();
            // Those of other directories of the workspace stay while they are there.
            known.retain(|path, _| files.contains_key(path) || root.join(path).is_file());
            known.extend(files);
            *known != before
        };
        let now = self.look(root);
        if is_new && now.error.is_none() {
            self.settle_again(root);
        }
        self.workspace(root).unwrap_or(now)
    }

    /// What is in force in a workspace, as it was last looked at.
    pub fn workspace(&self, root: &Path) -> Option<Arc<Now>> {
        let seen = lock(&self.workspaces.seen).get(root).cloned()?;
        let now = lock(&seen.now).clone();
        now.found.is_some().then_some(now)
    }

    /// Whether hooks of this event are trusted in some workspace.
    pub fn has_workspace_hooks(&self, event: HookEvent) -> bool {
        let is_of = |hook: &Value| hook.get("event").and_then(Value::as_str) == Some(event.name());
        let has =
            |settings: &Value| settings.get("hooks").and_then(Value::as_array).is_some_and(|it| it.iter().any(is_of));
        lock(&self.workspaces.trusted).values().any(has)
    }

    /// Puts what was found into force, without what waits.
    fn settle_files(&self, root: &Path, seen: &Seen, text: Option<String>, found: Value) -> Arc<Now> {
        let trusted = lock(&self.workspaces.trusted).get(root).cloned().unwrap_or_else(nothing);
        let found = with_files(found, &lock(&seen.files), &trusted);
        let merged = merge(&trusted, &found);
        let (config, error) = match WorkspaceConfig::of_settings(&merged.in_force, self.tools().current().names()) {
            Ok(config) => (config, None),
            Err(error) => (WorkspaceConfig::default(), Some(ConfigError::whole(&root.join(CONFIG), error))),
        };
        let waiting = Waiting { changes: merged.changes, settings: confirmable(&found) };
        let waiting = Some(Arc::new(waiting)).filter(|waiting| !waiting.changes.is_empty());
        // A file that is missing may be about to be replaced.
        let in_force = confirmable(&merged.in_force);
        if text.is_some() && in_force != trusted {
            // What narrows has to be trusted before it widens again.
            if let Err(error) = self.trust_settings(root, in_force, Vec::new(), "") {
                tracing::warn!(target: "config", %error, root = %root.display(), "the narrower rules are in force, but not stored");
            }
        }
        let (config, settings) = (Arc::new(config), Some(merged.in_force));
        let now = Arc::new(Now { text, found: Some(found), config, settings, waiting, error });
        let before = std::mem::replace(&mut *lock(&seen.now), now.clone());
        if before.waiting != now.waiting {
            // Without a receiver nobody is asked, as in tests.
            let _asked = self.workspaces.changed.send(root.to_path_buf());
        }
        now
    }

    /// Trusts what waits in a workspace, if it and the files are still the same. Blocks on the disk.
    pub fn trust(&self, root: &Path, shown: &Waiting, by: &str) -> Result<(), EditError> {
        let now = self.look(root);
        let waiting = now.waiting.as_ref().filter(|waiting| ***waiting == *shown).ok_or(EditError::Stale)?;
        self.trust_settings(root, waiting.settings.clone(), waiting.lines(), by)?;
        self.settle_again(root);
        Ok(())
    }

    /// Trusts nothing of a workspace any more; whether anything was. Blocks on the disk.
    pub fn distrust(&self, root: &Path, by: &str) -> Result<bool, EditError> {
        if !lock(&self.workspaces.trusted).contains_key(root) {
            return Ok(false);
        }
        self.trust_settings(root, Value::Null, vec!["nothing is trusted any more".to_owned()], by)?;
        self.settle_again(root);
        Ok(true)
    }

    fn settle_again(&self, root: &Path) {
        let seen = self.workspaces.seen(root);
        let _reading = lock(&seen.reading);
        let now = lock(&seen.now).clone();
        // A broken one stays as it is.
        if let (Some(found), None) = (now.found.clone(), &now.error) {
            self.settle_files(root, &seen, now.text.clone(), found);
        }
    }

    /// Stores what is trusted of a workspace, and uses it from then on.
    fn trust_settings(&self, root: &Path, settings: Value, changes: Vec<String>, by: &str) -> Result<(), EditError> {
        let is_new = !lock(&self.workspaces.trusted).contains_key(root);
        if settings.to_string().len() > MAX_SETTINGS || is_new && lock(&self.workspaces.trusted).len() >= MAX_TRUSTED {
            let limit = format!("{MAX_TRUSTED} workspaces can be trusted, each with {MAX_SETTINGS} bytes of settings");
            return Err(EditError::Refused(ConfigError::whole(&root.join(CONFIG), limit)));
        }
        let workspace = Some(root.to_path_buf());
        self.store(Confirmed { settings: settings.clone(), changes, by: by.to_owned(), workspace })?;
        let mut trusted = lock(&self.workspaces.trusted);
        match settings {
            Value::Null => drop(trusted.remove(root)),
            settings => drop(trusted.insert(root.to_path_buf(), settings)),
        }
        Ok(())
    }

    /// What a session is to be told of its workspace, unless it was told the same.
    pub fn news_of_workspace(&self, root: &Path, session: &SessionId) -> Option<String> {
        let seen = lock(&self.workspaces.seen).get(root).cloned()?;
        let now = lock(&seen.now).clone();
        let text = match (&now.error, &now.waiting) {
            (Some(error), _) => format!("{error}; until it is corrected, everything here asks"),
            (None, Some(waiting)) => {
                let count = match waiting.changes.len() {
                    1 => "1 setting".to_owned(),
                    more => format!("{more} settings"),
                };
                let has_files = waiting.settings.get(FILES).is_some();
                let file = if has_files { root.to_path_buf() } else { root.join(CONFIG) };
                format!(
                    "{count} of {} not in force until you trust it: `linger trust` shows what, and asks",
                    file.display()
                )
            }
            (None, None) => return lock(&seen.told).remove(session).and(None),
        };
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        now.waiting.iter().for_each(|waiting| waiting.lines().hash(&mut hasher));
        let hash = hasher.finish();
        (lock(&seen.told).insert(session.clone(), hash) != Some(hash)).then_some(text)
    }
}

/// The settings of a file with the hashes of the Markdown files. A trusted file that is gone stays trusted: it may lie below another
/// directory than the session's, and with another content it asks again.
fn with_files(mut found: Value, files: &BTreeMap<String, String>, trusted: &Value) -> Value {
    let mut all = trusted.get(FILES).and_then(Value::as_object).cloned().unwrap_or_default();
    all.extend(files.iter().map(|(path, hash)| (path.clone(), Value::from(hash.as_str()))));
    if let Some(table) = found.as_object_mut() {
        table.shift_remove(FILES);
        if !all.is_empty() {
            table.insert(FILES.to_owned(), Value::Object(all));
        }
    }
    found
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;
