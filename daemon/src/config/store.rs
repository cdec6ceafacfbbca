//! The configuration in use: the last good one, and the error of the file, if any.
//!
//! With a broken file at the start there is no configuration, and new turns are refused, because default rules are not the
//! user's. With a file that breaks later, the last good configuration stays in use.

use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linger_protocol::place::Places;
use sha2::{Digest, Sha256};

use super::grant::{GrantError, Prepared, append};
use super::notices::Notices;
use super::{AfterRestart, Config, ConfigError};
use crate::permission::Rules;
use crate::tool::set::Tools;

/// The largest file, in bytes: hundreds of times a real one.
const MAX_FILE: u64 = 1 << 20;

/// How often a write is tried again because the file was saved in the meantime; no editor saves that often.
const MAX_TRIES: usize = 20;

/// [`Config::idle_unload_s`] while there is no configuration.
const IDLE_UNLOAD_S: u64 = 60;

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
}

#[derive(Debug, Default)]
struct Loaded {
    /// The hash of the last text; absent if it could not be read.
    hash: Option<[u8; 32]>,
    /// The last good configuration.
    good: Option<Arc<Config>>,
    /// The error of the last text.
    error: Option<ConfigError>,
    /// Why changes to the file go unnoticed, if so.
    unwatched: Option<String>,
    /// Tells whether the file may have changed since the last read; if absent, only reading tells.
    notices: Option<Notices>,
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
    /// Reads the file for the first time. Start watching it before, or a change in between is missed.
    /// `tools`: the tools that rules can name. Blocks on the disk.
    pub fn open(places: Places, home: Option<PathBuf>, tools: Tools) -> Self {
        let store = Self { places, home, tools, loaded: Mutex::default(), file: Mutex::default() };
        store.reload();
        store
    }

    fn parse(&self, text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, &self.places, self.home.as_deref(), self.tools.current().names())
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

    /// When to compact automatically, in percent of the model's window; 0 is never.
    pub fn compact_at(&self) -> u8 {
        self.current().map_or(0, |config| config.compact_at)
    }

    /// The default timeout of a `bash` call, in seconds.
    pub fn bash_timeout_s(&self) -> u64 {
        self.current().map_or(BASH_TIMEOUT_S, |config| config.bash_timeout_s)
    }

    /// Empty rules, for the time without a configuration.
    pub fn no_rules(&self) -> Rules {
        Rules { home: self.home.clone(), own: Config::own(&self.places), ..Rules::default() }
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
        unwatched.chain(loaded.good.iter().flat_map(|config| config.warnings.clone())).collect()
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
        self.reload_locked(&self.file())
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

    fn reload_locked(&self, _file: &MutexGuard<'_, ()>) -> Reload {
        let file = self.places.config_file();
        let (hash, parsed) = match read(&file) {
            Ok(text) => {
                let hash = Some(<[u8; 32]>::from(Sha256::digest(text.as_bytes())));
                let loaded = self.loaded();
                if hash == loaded.hash {
                    return loaded.error.clone().map_or(Reload::Unchanged, Reload::Broken);
                }
                drop(loaded);
                (hash, self.parse(&text))
            }
            Err(error) => (None, Err(ConfigError::whole(&file, error))),
        };
        let mut loaded = self.loaded();
        loaded.hash = hash;
        match parsed {
            Ok(config) => {
                loaded.good = Some(Arc::new(config));
                loaded.error = None;
                Reload::Changed
            }
            Err(error) => {
                loaded.error = Some(error.clone());
                Reload::Broken(error)
            }
        }
    }

    /// Adds `rule` to the workspace's `allow` list in the file; comments and order stay. Blocks on the disk.
    pub fn grant(&self, root: &Path, rule: &str) -> Result<(), GrantError> {
        self.change(|text| self.with_rule(text, root, rule))
    }

    /// Replaces the file's text with the result of `edit`, if any; calls it again if the file was saved in the meantime.
    pub(super) fn change(
        &self,
        mut edit: impl FnMut(&str) -> Result<Option<String>, GrantError>,
    ) -> Result<(), GrantError> {
        let held = self.file();
        let file = self.places.config_file();
        for _ in 0..MAX_TRIES {
            let text = read(&file)?;
            if let Some(new) = edit(&text)? {
                let new = Prepared::new(&file, &new)?;
                // Never overwrite what was saved in the meantime.
                if read(&file)? != text {
                    continue;
                }
                new.put()?;
            }
            self.reload_locked(&held);
            return Ok(());
        }
        Err(io::Error::other("another program keeps changing the file").into())
    }

    /// The file's text with the rule; `None` if it is there already.
    fn with_rule(&self, text: &str, root: &Path, rule: &str) -> Result<Option<String>, GrantError> {
        let parse = |text: &str| self.parse(text);
        parse(text).map_err(GrantError::Broken)?;
        let Some(text) = append(text, root, rule)? else { return Ok(None) };
        // Write only what can be read back.
        if text.len() as u64 > MAX_FILE {
            let error = format!("the file would be larger than {MAX_FILE} bytes");
            return Err(GrantError::Refused(ConfigError::whole(&self.places.config_file(), error)));
        }
        parse(&text).map_err(GrantError::Refused)?;
        Ok(Some(text))
    }

    fn file(&self) -> MutexGuard<'_, ()> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn loaded(&self) -> MutexGuard<'_, Loaded> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether someone else decides what the file says: it belongs to another user than `user` and root, or others may write it. A
/// group with the number of the user is the user's own.
pub(super) fn others_write((owner, group, mode): (u32, u32, u32), user: u32) -> Option<&'static str> {
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
    if let Some(why) = others_write((meta.uid(), meta.gid(), meta.mode()), rustix::process::geteuid().as_raw()) {
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
