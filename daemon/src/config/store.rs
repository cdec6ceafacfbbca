//! The configuration in use: the last good one, and what is wrong with the file now.
//!
//! A broken file at the start leaves no configuration at all, so that new turns are refused rather than run under rules that
//! nobody wrote; a broken file later leaves the last good one in use.

use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
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

/// The largest file that is read, in bytes: hundreds of times what anybody writes.
const MAX_FILE: u64 = 1 << 20;

/// How often a rule is added anew because somebody saved the file meanwhile; more often nobody does by hand.
const MAX_TRIES: usize = 20;

/// While no configuration can be read, an idle session stays loaded this long, in seconds.
const IDLE_UNLOAD_S: u64 = 60;

/// While no configuration can be read, a shell may run this long, in seconds.
const BASH_TIMEOUT_S: u64 = 120;

/// The configuration of one daemon; shared.
#[derive(Debug)]
pub struct ConfigStore {
    places: Places,
    home: Option<PathBuf>,
    tools: Tools,
    /// Held for a moment only: every decision waits for it.
    state: Mutex<State>,
    /// Held while the file is read or changed, so that what was read last is what is in use.
    file: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Of the text that was read last; none when it could not be read.
    hash: Option<[u8; 32]>,
    /// The last good configuration.
    good: Option<Arc<Config>>,
    /// What is wrong with the file now.
    error: Option<ConfigError>,
    /// Why changes to the file are not noticed, if so.
    unwatched: Option<String>,
    /// Tells whether the file may have changed since it was read last; without it only a look does.
    notices: Option<Notices>,
}

/// What a look at the file brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reload {
    /// It says what it said.
    Unchanged,
    /// It says something else, which is in use.
    Changed,
    /// It cannot be used; the last good one stays.
    Broken(ConfigError),
}

impl ConfigStore {
    /// Reads the file for the first time. Begin to watch before, or a change in between is missed.
    /// `tools`: what the rules in it can name.
    pub fn open(places: Places, home: Option<PathBuf>, tools: Tools) -> Self {
        let store = Self { places, home, tools, state: Mutex::default(), file: Mutex::default() };
        store.reload();
        store
    }

    fn parse(&self, text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, &self.places, self.home.as_deref(), self.tools.current().names())
    }

    /// The configuration for new turns; the error when there has never been a good one.
    pub fn current(&self) -> Result<Arc<Config>, ConfigError> {
        let state = self.state();
        match (&state.good, &state.error) {
            (Some(config), _) => Ok(config.clone()),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Err(ConfigError::whole(&self.places.config_file(), "was never read")),
        }
    }

    /// How long an idle session stays loaded.
    pub fn idle_unload(&self) -> Duration {
        Duration::from_secs(self.current().map_or(IDLE_UNLOAD_S, |config| config.idle_unload_s))
    }

    /// What becomes of turns that were under way when the daemon ended; unknown without a configuration.
    pub fn after_restart(&self) -> Option<AfterRestart> {
        self.current().ok().map(|config| config.after_restart)
    }

    /// Steps that a turn may take.
    pub fn max_steps(&self) -> u32 {
        self.current().map_or(1, |config| config.max_steps)
    }

    /// How full a model's window may be before older messages are summarised, in percent; 0 is never without a request.
    pub fn compact_at(&self) -> u8 {
        self.current().map_or(0, |config| config.compact_at)
    }

    /// How long a command may run unless the model asks for another time, in seconds.
    pub fn bash_timeout_s(&self) -> u64 {
        self.current().map_or(BASH_TIMEOUT_S, |config| config.bash_timeout_s)
    }

    /// Rules that say nothing, and what they lean on: while there is no configuration.
    pub fn no_rules(&self) -> Rules {
        Rules { home: self.home.clone(), own: Config::own(&self.places), ..Rules::default() }
    }

    /// The tools that rules can name.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// What is wrong with the file now, though a good one may be in use.
    pub fn error(&self) -> Option<ConfigError> {
        self.state().error.clone()
    }

    /// What in the file has no effect, or another than it seems.
    pub fn warnings(&self) -> Vec<String> {
        let state = self.state();
        let unwatched = state.unwatched.iter().map(|why| {
            let file = self.places.config_file();
            format!("{}: changes are not noticed until the daemon is started again: {why}", file.display())
        });
        unwatched.chain(state.good.iter().flat_map(|config| config.warnings.clone())).collect()
    }

    /// Takes down why changes to the file are not noticed (none: they are), and the queue that is older than the last read.
    pub fn set_watched(&self, trouble: Option<&str>, notices: Option<Notices>) {
        if let Some(error) = trouble {
            tracing::error!(target: "config", error, "changes to the file are not noticed");
        }
        let mut state = self.state();
        state.unwatched = trouble.map(str::to_owned);
        state.notices = notices;
    }

    /// Whether a look at the file could find something else than was read last. It makes no look itself.
    pub fn may_have_changed(&self) -> bool {
        let mut state = self.state();
        state.hash.is_none() || state.notices.as_mut().is_none_or(Notices::has_notice)
    }

    /// Looks at the file; no file means the defaults. It waits for the disk.
    pub fn reload(&self) -> Reload {
        self.look(&self.file())
    }

    /// Whether the file says something else than when it was read last. It waits for the disk.
    pub fn has_changed(&self) -> bool {
        let hash = read(&self.places.config_file()).ok().map(|text| Sha256::digest(text.as_bytes()).into());
        hash != self.state().hash
    }

    /// Whether nothing is in the file any more, where there was something: somebody may be about to write it. It waits for the disk.
    pub fn is_emptied(&self) -> bool {
        read(&self.places.config_file()).is_ok_and(|text| text.trim().is_empty()) && self.has_changed()
    }

    fn look(&self, _file: &MutexGuard<'_, ()>) -> Reload {
        let file = self.places.config_file();
        let (hash, parsed) = match read(&file) {
            Ok(text) => {
                let hash = Some(<[u8; 32]>::from(Sha256::digest(text.as_bytes())));
                let state = self.state();
                if hash == state.hash {
                    return state.error.clone().map_or(Reload::Unchanged, Reload::Broken);
                }
                drop(state);
                (hash, self.parse(&text))
            }
            Err(error) => (None, Err(ConfigError::whole(&file, error))),
        };
        let mut state = self.state();
        state.hash = hash;
        match parsed {
            Ok(config) => {
                state.good = Some(Arc::new(config));
                state.error = None;
                Reload::Changed
            }
            Err(error) => {
                state.error = Some(error.clone());
                Reload::Broken(error)
            }
        }
    }

    /// Adds `rule` to what is allowed in the workspace with this root, in the file; comments and order stay as they are. It
    /// waits for the disk.
    pub fn grant(&self, root: &Path, rule: &str) -> Result<(), GrantError> {
        self.change(|text| self.with_rule(text, root, rule))
    }

    /// Changes the file's text, if `edit` gives another one; it is asked again when somebody saved the file meanwhile.
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
                // What was saved while that was synced is there to stay.
                if read(&file)? != text {
                    continue;
                }
                new.put()?;
            }
            self.look(&held);
            return Ok(());
        }
        Err(io::Error::other("somebody else changes the file again and again").into())
    }

    /// The file's text with the rule; none when it is there already.
    fn with_rule(&self, text: &str, root: &Path, rule: &str) -> Result<Option<String>, GrantError> {
        let parse = |text: &str| self.parse(text);
        parse(text).map_err(GrantError::Broken)?;
        let Some(text) = append(text, root, rule)? else { return Ok(None) };
        // What is written must be what can be read again.
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text of the file; empty when there is none.
fn read(file: &Path) -> io::Result<String> {
    // Without NONBLOCK a pipe in its place would wait for somebody to write into it.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(file) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound && file.symlink_metadata().is_ok() => {
            return Err(io::Error::other("is a link that leads nowhere"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is not a file"));
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
