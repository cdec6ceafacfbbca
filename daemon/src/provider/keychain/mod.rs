//! The operating system's keychain: the Secret Service on Linux, Keychain Services on macOS.
//!
//! A short-lived helper process asks it ([`helper`]): a keychain may wait for a password on an unattended screen, and its library
//! keeps threads and a connection, which an idle daemon must not have.
//! A helper is ended after a timeout. Keys pass through pipes.
//!
//! Looking into a locked keychain opens a password prompt. So the daemon remembers the [`Account`]s whose keys it stored, in a file
//! without secrets, and asks only for those, when needed.

pub mod helper;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::diagnostics::secret::Secret;
use crate::process::ledger::StartedFor;
use crate::process::server::{Children, Spawn};
use crate::process::{End, Input};
use crate::provider::keys::Account;

/// How long the keychain may take: it may ask the user for a password.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long a check may take that the keychain exists; it prompts for nothing.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest key for the keychain, in bytes; services' keys have a hundred, tokens a few thousand.
pub const MAX_KEY: usize = 8 << 10;

/// The longest reply of a helper, in bytes: JSON writes each byte of a key with at most six.
const MAX_ANSWER: usize = 8 * MAX_KEY;

/// The largest file of remembered accounts, in bytes: about a thousand.
const MAX_REMEMBERED: u64 = 64 << 10;

/// The variables that a helper needs to find the keychain, and the keychain needs to show a window.
const PASSED: [&str; 9] = [
    "HOME",
    "PATH",
    "LANG",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
    "XDG_DATA_HOME",
    "DBUS_SESSION_BUS_ADDRESS",
];

/// Why the keychain fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "kind", content = "why", rename_all = "snake_case")]
pub enum KeychainError {
    /// There is none.
    #[error("no keychain found: {0}")]
    Absent(String),
    /// It is locked.
    #[error("the keychain is locked: {0}")]
    Locked(String),
    /// It has no such key.
    #[error("the keychain has no such key")]
    Missing,
    /// Anything else.
    #[error("the keychain failed: {0}")]
    Failed(String),
}

/// The task of a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Get,
    Set,
    Remove,
    Check,
}

impl Task {
    const ALL: [Self; 4] = [Self::Get, Self::Set, Self::Remove, Self::Check];

    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Remove => "remove",
            Self::Check => "check",
        }
    }
}

/// The reply of a helper, one line of JSON.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HelperReply {
    Done,
    Key(String),
    Failed(KeychainError),
}

/// The keychain, from the daemon's side.
#[derive(Debug)]
pub struct Keychain {
    /// The file of remembered accounts.
    remembered: PathBuf,
    /// The daemon's children, of which helpers are some.
    pub(super) children: Children,
    /// Held while the file is written.
    writing: Mutex<()>,
}

impl Keychain {
    /// The keychain, with this file of accounts.
    pub fn new(remembered: PathBuf, children: Children) -> Self {
        Self { remembered, children, writing: Mutex::new(()) }
    }

    /// The remembered accounts; empty if the file cannot be read.
    pub fn accounts(&self) -> BTreeSet<Account> {
        let mut text = String::new();
        match self.open().and_then(|file| file.take(MAX_REMEMBERED).read_to_string(&mut text)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let path = self.remembered.display();
                tracing::warn!(target: "key", %error, %path, "cannot read which keys the keychain has");
            }
            _ => {}
        }
        text.lines().filter_map(Account::parse).collect()
    }

    /// Opens the file of remembered accounts.
    fn open(&self) -> io::Result<std::fs::File> {
        // Non-blocking, because opening a pipe of that name would block the start.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = std::fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(&self.remembered)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("is not a file"));
        }
        Ok(file)
    }

    /// Writes the remembered accounts; calls `now` once no other thread writes.
    pub fn remember(&self, now: impl Fn() -> BTreeSet<Account>) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: String = now().iter().map(|account| format!("{account}\n")).collect();
        let directory = self.remembered.parent().unwrap_or(Path::new("/"));
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(lines.as_bytes())?;
        file.as_file().sync_all()?;
        file.persist(&self.remembered)?;
        Ok(())
    }

    /// The key of an account.
    pub async fn get(&self, account: &Account) -> Result<Secret, KeychainError> {
        match self.ask(Task::Get, Some(account), b"", TIMEOUT).await? {
            Some(key) if !key.trim().is_empty() => Ok(Secret::new(&key)),
            _ => Err(KeychainError::Missing),
        }
    }

    /// Stores a key, replacing the account's old one.
    pub async fn set(&self, account: &Account, key: &Secret) -> Result<(), KeychainError> {
        self.ask(Task::Set, Some(account), key.reveal().as_bytes(), TIMEOUT).await.map(drop)
    }

    /// Removes a key.
    pub async fn remove(&self, account: &Account) -> Result<(), KeychainError> {
        self.ask(Task::Remove, Some(account), b"", TIMEOUT).await.map(drop)
    }

    /// Checks that there is a keychain; it may be locked.
    pub async fn check(&self) -> Result<(), KeychainError> {
        self.ask(Task::Check, None, b"", CHECK_TIMEOUT).await.map(drop)
    }

    async fn ask(
        &self,
        task: Task,
        account: Option<&Account>,
        input: &[u8],
        limit: Duration,
    ) -> Result<Option<String>, KeychainError> {
        let env = environment(|name| std::env::var(name).ok(), Path::exists)?;
        let account = account.map(ToString::to_string).unwrap_or_default();
        let failed = |error: &dyn std::fmt::Display| KeychainError::Failed(error.to_string());
        let spawn = Spawn {
            cwd: "/".into(),
            env: Arc::new(env),
            children: self.children.clone(),
            started_for: StartedFor::Daemon,
        };
        let helper = spawn.helper(&[helper::ARGUMENT, task.name(), &account], Input::Bytes(input.to_vec()));
        let finished = helper.map_err(|error| failed(&error))?.finish(limit, MAX_ANSWER).await;
        let finished = finished.map_err(|error| failed(&error))?;
        let status = match finished.end {
            End::Status(status) => status,
            End::TooMuch => return Err(failed(&"its reply is longer than any key")),
            End::TooLate if task == Task::Check => {
                return Err(KeychainError::Absent(format!("it did not answer within {} s", limit.as_secs())));
            }
            End::TooLate => {
                let why = format!("not unlocked within {} s; it may show a password prompt", limit.as_secs());
                return Err(KeychainError::Locked(why));
            }
        };
        match serde_json::from_slice(&finished.output) {
            Ok(HelperReply::Done) => Ok(None),
            Ok(HelperReply::Key(key)) => Ok(Some(key)),
            Ok(HelperReply::Failed(error)) => Err(error),
            // The output may contain a key, so it is not quoted.
            Err(_) => Err(failed(&format!("its helper ended with {status} without a reply"))),
        }
    }
}

/// The environment of a helper: parts of the daemon's, and the session bus's default address if the variable is missing.
fn environment(
    get: impl Fn(&str) -> Option<String>,
    exists: impl Fn(&Path) -> bool,
) -> Result<BTreeMap<String, String>, KeychainError> {
    let value = |name: &str| get(name).filter(|value| !value.is_empty());
    let mut env: BTreeMap<String, String> =
        PASSED.iter().filter_map(|name| Some(((*name).to_owned(), value(name)?))).collect();
    if cfg!(target_vendor = "apple") || env.contains_key("DBUS_SESSION_BUS_ADDRESS") {
        return Ok(env);
    }
    let runtime = env.get("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.unwrap_or_else(|| format!("/run/user/{}", rustix::process::getuid().as_raw()).into());
    let bus = runtime.join("bus");
    if !exists(&bus) {
        let why = "no D-Bus session: DBUS_SESSION_BUS_ADDRESS is not set where the daemon was started, and there is no";
        return Err(KeychainError::Absent(format!("{why} {}", bus.display())));
    }
    env.insert("DBUS_SESSION_BUS_ADDRESS".to_owned(), format!("unix:path={}", bus.display()));
    Ok(env)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(provider: &str) -> Account {
        Account { provider: provider.to_owned(), origin: "https://h".to_owned() }
    }

    #[test]
    fn accounts_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let keychain = Keychain::new(dir.path().join("keys"), Children::default());
        assert_eq!(keychain.accounts(), BTreeSet::new());
        let both = BTreeSet::from([account("a"), account("b")]);
        keychain.remember(|| both.clone()).unwrap();
        assert_eq!(keychain.accounts(), both);
        std::fs::write(dir.path().join("keys"), "\0nonsense\n\na https://h\n").unwrap();
        assert_eq!(keychain.accounts(), BTreeSet::from([account("a")]));
        std::fs::write(dir.path().join("keys"), b"\xff\xfe").unwrap();
        assert_eq!(keychain.accounts(), BTreeSet::new());
    }

    #[test]
    fn what_is_no_file_holds_no_start_up_and_gives_way_to_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let keychain = Keychain::new(path.clone(), Children::default());
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        assert_eq!(keychain.accounts(), BTreeSet::new());
        let one = BTreeSet::from([account("a")]);
        keychain.remember(|| one.clone()).unwrap();
        assert_eq!(keychain.accounts(), one);
        std::fs::rename(&path, dir.path().join("other")).unwrap();
        std::os::unix::fs::symlink("other", &path).unwrap();
        assert_eq!(keychain.accounts(), BTreeSet::new(), "a link is not followed");
    }

    #[cfg(not(target_vendor = "apple"))]
    #[test]
    fn the_session_bus_is_found_where_it_always_is() {
        let look = |set: &[(&str, &str)], there: &str| {
            let get = |wanted: &str| set.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned());
            environment(get, |path| path == Path::new(there)).map(|env| env["DBUS_SESSION_BUS_ADDRESS"].clone())
        };
        let set = [("DBUS_SESSION_BUS_ADDRESS", "unix:path=/x"), ("XDG_RUNTIME_DIR", "/run/user/7")];
        assert_eq!(look(&set, "/run/user/7/bus").as_deref(), Ok("unix:path=/x"));
        assert_eq!(look(&set[1..], "/run/user/7/bus").as_deref(), Ok("unix:path=/run/user/7/bus"));
        let own = format!("/run/user/{}/bus", rustix::process::getuid().as_raw());
        assert_eq!(look(&[("DBUS_SESSION_BUS_ADDRESS", "")], &own), Ok(format!("unix:path={own}")));
        let Err(KeychainError::Absent(why)) = look(&set[1..], "/elsewhere") else { panic!() };
        assert!(why.contains("DBUS_SESSION_BUS_ADDRESS") && why.ends_with("no /run/user/7/bus"), "{why}");
    }
}
