//! The configuration in use: the last good one, and what is wrong with the file now.
//!
//! A broken file at the start leaves no configuration at all, so that new turns are refused rather than run under rules that
//! nobody wrote; a broken file later leaves the last good one in use.

use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use linger_protocol::place::Places;
use sha2::{Digest, Sha256};

use super::grant::{GrantError, append};
use super::{Config, ConfigError};
use crate::permission::Rules;

/// The largest file that is read, in bytes: hundreds of times what anybody writes.
const MAX_FILE: u64 = 1 << 20;

/// The configuration of one daemon; shared.
#[derive(Debug)]
pub struct ConfigStore {
    places: Places,
    home: Option<PathBuf>,
    state: Mutex<State>,
    /// Held while the file is changed.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Of the text that was read last; none when it could not be read.
    hash: Option<[u8; 32]>,
    /// The last good configuration.
    good: Option<Arc<Config>>,
    /// What is wrong with the file now.
    error: Option<ConfigError>,
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
    pub fn open(places: Places, home: Option<PathBuf>) -> Self {
        let store = Self { places, home, state: Mutex::default(), writing: Mutex::default() };
        store.reload();
        store
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

    /// Rules that say nothing, and what they lean on: while there is no configuration.
    pub fn no_rules(&self) -> Rules {
        Rules { home: self.home.clone(), own: Config::own(&self.places), ..Rules::default() }
    }

    /// What is wrong with the file now, though a good one may be in use.
    pub fn error(&self) -> Option<ConfigError> {
        self.state().error.clone()
    }

    /// Looks at the file; no file means the defaults.
    pub fn reload(&self) -> Reload {
        let file = self.places.config_file();
        let mut state = self.state();
        let (hash, parsed) = match read(&file) {
            Ok(text) => {
                let hash = Some(<[u8; 32]>::from(Sha256::digest(text.as_bytes())));
                if hash == state.hash {
                    return state.error.clone().map_or(Reload::Unchanged, Reload::Broken);
                }
                (hash, Config::parse(&text, &self.places, self.home.as_deref()))
            }
            Err(error) => (None, Err(ConfigError::whole(&file, error))),
        };
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

    /// Adds `rule` to what is allowed in the workspace with this root, in the file; comments and order stay as they are.
    pub fn grant(&self, root: &Path, rule: &str) -> Result<(), GrantError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.places.config_file();
        let text = read(&file)?;
        let parse = |text: &str| Config::parse(text, &self.places, self.home.as_deref());
        parse(&text).map_err(GrantError::Broken)?;
        if let Some(text) = append(&text, root, rule)? {
            // What is written must be what can be read again.
            if text.len() as u64 > MAX_FILE {
                let error = format!("the file would be larger than {MAX_FILE} bytes");
                return Err(GrantError::Refused(ConfigError::whole(&file, error)));
            }
            parse(&text).map_err(GrantError::Refused)?;
            super::grant::replace(&file, &text)?;
        }
        self.reload();
        Ok(())
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text of the file; empty when there is none.
fn read(file: &Path) -> io::Result<String> {
    // Without NONBLOCK a pipe in its place would wait for somebody to write into it.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match std::fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(file) {
        Ok(file) => file,
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
