//! The configuration in use: the last good one, and the error of the file, if any.
//!
//! With a broken file at the start there is no configuration, and new turns are refused, because default rules are not the
//! user's. With a file that breaks later, the last good configuration stays in use.
//! What widens in a good file waits until a person confirms it ([`super::widening`]); what is confirmed is stored by [`Record`].

mod edits;
mod own_files;
mod trust;

use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use linger_protocol::place::Places;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use super::delegation::Delegation;
use super::edit::EditError;
use super::notices::Notices;
use super::own::{self, OwnFiles};
use super::shown::ShownFiles;
use super::source::ConfigError;
use super::values::{AfterRestart, Config, UnknownPrice};
use super::widening::{Change, confirmable, describe, merge};
use crate::provider::catalogue::ProviderConfig;
use crate::question::permission::Rules;
use crate::tool::set::Tools;
use trust::Workspaces;
pub use trust::{Now as WorkspaceNow, WaitingServer};

/// The largest file, in bytes: hundreds of times a real one.
const MAX_FILE: u64 = 1 << 20;

/// [`Config::idle_unload_s`] while there is no configuration.
const IDLE_UNLOAD_S: u64 = 60;

/// [`Config::mcp_direct_percent`] while there is no configuration.
const MCP_DIRECT_PERCENT: u8 = 10;

/// [`Config::bash_timeout_s`] while there is no configuration.
const BASH_TIMEOUT_S: u64 = 120;

/// The configuration of one daemon; shared.
#[derive(Debug)]
pub struct ConfigStore {
    places: Places,
    home: Option<PathBuf>,
    tools: Tools,
    /// Never held while blocking: every decision needs it.
    loaded: Mutex<Loaded>,
    /// Held while the file is read or changed, so that the last text read is the one in use.
    file: Mutex<()>,
    /// Stores what is confirmed; absent until [`ConfigStore::begin`].
    record: OnceLock<Record>,
    /// The files of workspaces.
    workspaces: Workspaces,
    /// Wakes when the user's own Markdown files have changed.
    own_changed: Notify,
    /// Markdown files as a person sees them.
    pub(super) shown: ShownFiles,
}

/// Settings that a person has confirmed.
#[derive(Clone, Debug, PartialEq)]
pub struct Confirmed {
    /// All confirmed settings that can widen what may happen, a JSON object.
    pub settings: Value,
    /// The changes that were confirmed now, a line each.
    pub changes: Vec<String>,
    /// Who confirmed it.
    pub by: String,
    /// The root of the workspace whose files have these settings; absent for the configuration itself. `null` there trusts nothing
    /// any more.
    pub workspace: Option<PathBuf>,
}

/// Stores what is confirmed, and returns when it is on disk. Called on a thread that may block.
pub struct Record(pub Box<dyn Fn(Confirmed) -> Result<(), String> + Send + Sync>);

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Record")
    }
}

/// Changes of the file that wait for a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    pub(super) changes: Vec<Change>,
    /// [`Confirmed::settings`] once they are confirmed.
    pub(super) settings: Value,
}

impl Waiting {
    /// The waiting changes, a line each.
    pub fn lines(&self) -> Vec<String> {
        lines(&self.changes)
    }

    /// The waiting changes, each with the whole of what would run or be said: further lines below a file's.
    pub fn shown(&self) -> Vec<String> {
        self.changes.iter().map(Change::shown).collect()
    }
}

fn lines(changes: &[Change]) -> Vec<String> {
    changes.iter().map(|change| change.text.clone()).collect()
}

/// A good text of the file.
#[derive(Debug)]
struct GoodText {
    settings: Value,
    /// The configuration once all of it is confirmed.
    config: Config,
    is_blank: bool,
}

#[derive(Debug)]
struct Loaded {
    /// The hash of the last text; absent if it could not be read.
    hash: Option<[u8; 32]>,
    /// The last good text.
    found: Option<Arc<GoodText>>,
    /// The user's own Markdown files.
    own: OwnFiles,
    /// The confirmed settings.
    confirmed: Value,
    /// Whether the first good text counts as confirmed.
    takes_found: bool,
    /// Whether `confirmed` is stored.
    is_recorded: bool,
    /// The changes of `found` that are not in force.
    waiting: Option<Arc<Waiting>>,
    /// The last good configuration, without what waits.
    good: Option<Arc<Config>>,
    /// The error of the last text.
    error: Option<ConfigError>,
    /// Why changes to the file go unnoticed, if so.
    unwatched: Option<String>,
    /// Tells whether the file may have changed since the last read; if absent, only reading tells.
    notices: Option<Notices>,
}

impl Default for Loaded {
    fn default() -> Self {
        Self {
            hash: None,
            found: None,
            own: OwnFiles::default(),
            confirmed: Value::Object(Map::new()),
            takes_found: false,
            is_recorded: true,
            waiting: None,
            good: None,
            error: None,
            unwatched: None,
            notices: None,
        }
    }
}

/// The result of reading the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reload {
    /// The text is the same.
    Unchanged,
    /// The text changed and is in use.
    Changed,
    /// The text is broken; the last good one stays in use.
    Broken(ConfigError),
}

impl ConfigStore {
    /// The user's home directory, if it is known.
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// Reads the file for the first time. Start watching it before, or a change in between is missed.
    /// `tools`: the tools that rules can name. Nothing is confirmed until [`Self::begin`]. Blocks on the disk.
    pub fn open(places: Places, home: Option<PathBuf>, tools: Tools) -> Self {
        let (loaded, file, record) = (Mutex::default(), Mutex::default(), OnceLock::new());
        let (workspaces, own_changed, shown) = (Workspaces::default(), Notify::new(), ShownFiles::default());
        let store = Self { places, home, tools, loaded, file, record, workspaces, own_changed, shown };
        store.reload();
        store
    }

    /// Continues with the settings that were confirmed earlier; `None` takes the file as it is for confirmed, now or as soon as
    /// it is valid. `record` stores what is confirmed from now on. Blocks on the disk.
    pub fn begin(&self, confirmed: Option<Value>, record: Record) {
        let held = self.held();
        // A second call would be a mistake, and changes nothing.
        let _first = self.record.set(record);
        let mut loaded = self.loaded();
        match confirmed {
            Some(confirmed) => loaded.confirmed = confirmed,
            None => (loaded.takes_found, loaded.is_recorded) = (true, false),
        }
        drop(loaded);
        self.settle(&held);
    }

    pub(super) fn parse(&self, text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, &self.places, self.home.as_deref(), self.tools.current().names())
    }

    /// The path of `config.toml`.
    pub fn file(&self) -> PathBuf {
        self.places.config_file()
    }

    /// linger's directories and files.
    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    /// The last good configuration; fails with the file's error if there never was one.
    pub fn current(&self) -> Result<Arc<Config>, ConfigError> {
        let loaded = self.loaded();
        match (&loaded.good, &loaded.error) {
            (Some(config), _) => Ok(config.clone()),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Err(ConfigError::whole(&self.places.config_file(), "not read yet")),
        }
    }

    /// How long an idle session stays loaded.
    pub fn idle_unload(&self) -> Duration {
        Duration::from_secs(self.current().map_or(IDLE_UNLOAD_S, |config| config.idle_unload_s))
    }

    /// How interrupted turns continue after a restart; `None` without a configuration.
    pub fn after_restart(&self) -> Option<AfterRestart> {
        self.current().ok().map(|config| config.after_restart)
    }

    /// The most steps of one turn.
    pub fn max_steps(&self) -> u32 {
        self.current().map_or(1, |config| config.max_steps)
    }

    /// How a budget of cost counts a model whose price is unknown.
    pub fn unknown_price(&self) -> UnknownPrice {
        self.current().map_or(UnknownPrice::default(), |config| config.unknown_price)
    }

    /// When to compact automatically, in percent of the model's window; 0 is never.
    pub fn compact_at(&self) -> u8 {
        self.current().map_or(0, |config| config.compact_at)
    }

    /// The default timeout of a `bash` call, in seconds.
    pub fn bash_timeout_s(&self) -> u64 {
        self.current().map_or(BASH_TIMEOUT_S, |config| config.bash_timeout_s)
    }

    /// How far and how much sessions may delegate.
    pub fn delegation(&self) -> Delegation {
        self.current().map_or(Delegation::default(), |config| config.delegation)
    }

    /// Whether sessions have notes that outlive them.
    pub fn memory(&self) -> bool {
        self.current().is_ok_and(|config| config.memory)
    }

    /// Where the blobs are to lie; absent if the configuration does not say.
    pub fn blobs(&self) -> Option<PathBuf> {
        self.current().ok()?.blobs.clone()
    }

    /// How much of the model's window the tools of MCP servers may take, in percent.
    pub fn mcp_direct_percent(&self) -> u8 {
        self.current().map_or(MCP_DIRECT_PERCENT, |config| config.mcp_direct_percent)
    }

    /// Empty rules, for the time without a configuration; it may say that commands that only read ask.
    pub fn no_rules(&self) -> Rules {
        Rules { home: self.home.clone(), own: Config::own(&self.places), ask_reads: true, ..Rules::default() }
    }

    /// The tools that rules can name.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// The error of the file as it is now, even while the last good configuration is in use.
    pub fn error(&self) -> Option<ConfigError> {
        self.loaded().error.clone()
    }

    /// Settings of the file without effect, or with a surprising one.
    pub fn warnings(&self) -> Vec<String> {
        let loaded = self.loaded();
        let unwatched = loaded.unwatched.iter().map(|why| {
            let file = self.places.config_file();
            format!("{}: cannot watch the file; restart the daemon after a change: {why}", file.display())
        });
        let waiting = loaded.waiting.iter().map(|waiting| {
            let count = match waiting.changes.len() {
                1 => "1 change waits".to_owned(),
                more => format!("{more} changes wait"),
            };
            format!("the configuration: {count} until you confirm: `linger config confirm` shows what, and asks")
        });
        let written = loaded.good.iter().flat_map(|config| config.warnings.clone());
        unwatched.chain(waiting).chain(written).collect()
    }

    /// [`Self::warnings`] about the settings alone.
    pub fn written_warnings(&self) -> Vec<String> {
        self.loaded().good.as_ref().map(|config| config.warnings.clone()).unwrap_or_default()
    }

    /// The changes of the file that wait for a person.
    pub fn waiting(&self) -> Option<Arc<Waiting>> {
        self.loaded().waiting.clone()
    }

    /// The settings of the last good file, without those that wait; absent if there never was one.
    pub fn settings(&self) -> Option<Value> {
        let loaded = self.loaded();
        let (found, confirmed) = (loaded.found.clone()?, loaded.confirmed.clone());
        drop(loaded);
        Some(merge(&confirmed, &found.settings).in_force)
    }

    /// Takes the user's own files that `now` makes of those before; whether they are others.
    pub(super) fn take_own(&self, now: impl FnOnce(&OwnFiles) -> OwnFiles) -> bool {
        let held = self.held();
        let mut loaded = self.loaded();
        let own = now(&loaded.own);
        if own == loaded.own {
            return false;
        }
        loaded.own = own;
        drop(loaded);
        self.settle(&held);
        self.own_changed.notify_one();
        true
    }

    /// Waits until the user's own files have changed since the last call.
    pub async fn own_changed(&self) {
        self.own_changed.notified().await;
    }

    /// A confirmed value in a table of the settings.
    pub(super) fn confirmed_key(&self, table: &str, name: &str) -> Option<Value> {
        self.loaded().confirmed.get(table)?.get(name).cloned()
    }

    /// Confirms what waits, if it and the file are still the same; it is in force when this returns. Blocks on the disk.
    pub fn confirm(&self, shown: &Waiting, by: &str) -> Result<(), EditError> {
        let held = self.held();
        if self.has_changed() {
            return Err(EditError::Stale);
        }
        let waiting = self.waiting().filter(|waiting| **waiting == *shown).ok_or(EditError::Stale)?;
        self.record(waiting.settings.clone(), waiting.lines(), by)?;
        self.settle(&held);
        Ok(())
    }

    pub(super) fn store(&self, confirmed: Confirmed) -> Result<(), EditError> {
        self.record.get().map_or(Ok(()), |Record(record)| record(confirmed)).map_err(EditError::Unrecorded)
    }

    /// Stores confirmed settings, and uses them from then on.
    fn record(&self, settings: Value, changes: Vec<String>, by: &str) -> Result<(), EditError> {
        self.store(Confirmed { settings: settings.clone(), changes, by: by.to_owned(), workspace: None })?;
        let mut loaded = self.loaded();
        (loaded.confirmed, loaded.is_recorded) = (settings, true);
        Ok(())
    }

    /// Puts what was found into force, without what waits. What narrows counts at once, and has to be confirmed before it
    /// widens again.
    fn settle(&self, _file: &MutexGuard<'_, ()>) {
        let mut loaded = self.loaded();
        let Some(found) = loaded.found.clone() else { return };
        if std::mem::take(&mut loaded.takes_found) {
            loaded.confirmed = confirmable(&loaded.own.with(&found.settings, &loaded.confirmed));
        }
        let (confirmed, own) = (loaded.confirmed.clone(), loaded.own.clone());
        drop(loaded);
        let settings = own.with(&found.settings, &confirmed);
        let mut merged = merge(&confirmed, &settings);
        describe(&mut merged.changes, &self.shown.of(&self.places.config));
        let parsed = match (merged.changes.is_empty(), own.servers.is_empty()) {
            (true, true) => Ok(found.config.clone()),
            _ => self.unconfirmed(&found.config, own::folded(merged.in_force.clone())),
        };
        let mut loaded = self.loaded();
        loaded.error = parsed.as_ref().err().cloned();
        loaded.good = parsed.ok().map(Arc::new).or_else(|| loaded.good.take());
        let waiting = Waiting { changes: merged.changes, settings: confirmable(&settings) };
        loaded.waiting = Some(Arc::new(waiting)).filter(|waiting| !waiting.changes.is_empty());
        let in_force = confirmable(&merged.in_force);
        // A file that is missing may be about to be replaced.
        if !found.is_blank && in_force != confirmed {
            (loaded.confirmed, loaded.is_recorded) = (in_force, false);
        }
        let unrecorded = (!loaded.is_recorded).then(|| loaded.confirmed.clone());
        drop(loaded);
        if let Some(settings) = unrecorded
            && let Err(error) = self.record(settings, Vec::new(), "")
        {
            // It is tried again with the next change.
            tracing::warn!(target: "config", %error, "the narrower configuration is in force, but not stored");
        }
    }

    /// The configuration with `settings` in force, of a file with this one.
    fn unconfirmed(&self, found: &Config, settings: Value) -> Result<Config, ConfigError> {
        let names = self.tools.current();
        let config = Config::of_settings(settings, &self.places, self.home.as_deref(), names.names())?;
        let waits = |(name, found): &(&String, &ProviderConfig)| config.providers.get(*name) != Some(*found);
        let unconfirmed = found.providers.iter().filter(waits).map(|(name, _)| name.clone()).collect();
        Ok(Config { unconfirmed, warnings: found.warnings.clone(), ..config })
    }

    /// Sets why the file cannot be watched, if so, and the queue of notices, which must be older than the next read.
    pub fn set_watched(&self, watch_error: Option<&str>, notices: Option<Notices>) {
        if let Some(error) = watch_error {
            tracing::error!(target: "config", error, "cannot watch the file");
        }
        let mut loaded = self.loaded();
        loaded.unwatched = watch_error.map(str::to_owned);
        loaded.notices = notices;
    }

    /// Whether the file may have changed since the last read. Never blocks on the disk.
    pub fn may_have_changed(&self) -> bool {
        let mut loaded = self.loaded();
        loaded.hash.is_none() || loaded.notices.as_mut().is_none_or(Notices::has_notice)
    }

    /// Reads the file; a missing one means the defaults. Blocks on the disk.
    pub fn reload(&self) -> Reload {
        self.reload_locked(&self.held())
    }

    /// Whether the file differs from the last read. Blocks on the disk.
    pub fn has_changed(&self) -> bool {
        let hash = read(&self.places.config_file()).ok().map(|text| Sha256::digest(text.as_bytes()).into());
        hash != self.loaded().hash
    }

    /// Whether the file has become empty, as when an editor is about to write it. Blocks on the disk.
    pub fn is_emptied(&self) -> bool {
        read(&self.places.config_file()).is_ok_and(|text| text.trim().is_empty()) && self.has_changed()
    }

    fn reload_locked(&self, held: &MutexGuard<'_, ()>) -> Reload {
        let file = self.places.config_file();
        let (hash, parsed) = match read(&file) {
            Ok(text) => {
                let hash = Some(<[u8; 32]>::from(Sha256::digest(text.as_bytes())));
                let loaded = self.loaded();
                if hash == loaded.hash {
                    return loaded.error.clone().map_or(Reload::Unchanged, Reload::Broken);
                }
                drop(loaded);
                (hash, self.found(&text))
            }
            Err(error) => (None, Err(ConfigError::whole(&file, error))),
        };
        let mut loaded = self.loaded();
        loaded.hash = hash;
        match parsed {
            Ok(found) => {
                loaded.found = Some(Arc::new(found));
                drop(loaded);
                self.settle(held);
                self.error().map_or(Reload::Changed, Reload::Broken)
            }
            Err(error) => {
                loaded.error = Some(error.clone());
                Reload::Broken(error)
            }
        }
    }

    fn found(&self, text: &str) -> Result<GoodText, ConfigError> {
        let config = self.parse(text)?;
        let settings = toml::from_str(text).map_err(|error| ConfigError::whole(&self.places.config_file(), error))?;
        Ok(GoodText { settings, config, is_blank: text.trim().is_empty() })
    }

    /// The text of the file as it is now. Blocks on the disk.
    pub fn text(&self) -> io::Result<String> {
        read(&self.places.config_file())
    }

    fn held(&self) -> MutexGuard<'_, ()> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether someone else decides what the file says: it belongs to another user than `user` and root, or others may write it. A
/// group with the number of the user is the user's own.
pub(super) fn others_write(owner: u32, group: u32, mode: u32, user: u32) -> Option<&'static str> {
    const GROUP: u32 = 0o020;
    const OTHERS: u32 = 0o002;
    if ![user, 0].contains(&owner) {
        return Some("belongs to another user, and is not read");
    }
    let is_open = mode & OTHERS != 0 || mode & GROUP != 0 && group != user;
    is_open.then_some("can be written by others, and is not read: `chmod go-w` it once you have checked its content")
}

/// The text of the file; empty if there is none.
fn read(file: &Path) -> io::Result<String> {
    // Without NONBLOCK, opening a pipe of that name would wait for a writer.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(file) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound && file.symlink_metadata().is_ok() => {
            return Err(io::Error::other("is a dangling symlink"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("is not a file"));
    }
    if let Some(why) = others_write(meta.uid(), meta.gid(), meta.mode(), rustix::process::geteuid().as_raw()) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mut text = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("is larger than {MAX_FILE} bytes")));
    }
    String::from_utf8(text).map_err(|error| {
        let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
        io::Error::new(io::ErrorKind::InvalidData, format!("line {line} is not UTF-8"))
    })
}
