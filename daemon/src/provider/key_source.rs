//! Sources of keys that take time: a command that prints one, and the keychain.
//!
//! If several sessions need a key, one command or helper runs for all. Keys stay in memory: a command's for [`KEY_KEPT`], because
//! some expire, the keychain's until the daemon ends; either is dropped when the provider refuses it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::diagnostics::secret::{Redactor, Secret};
use crate::process::ledger::StartedFor;
use crate::process::server::{Children, Spawn};
use crate::process::{End, Input, Stderr};
use crate::provider::catalogue::{Resolved, Secrets};
use crate::provider::keychain::{Keychain, KeychainError};
use crate::provider::keys::KeySource;
use crate::provider::keys::{Account, Keys};
use crate::provider::single_flight::SingleFlight;
use crate::sys::task;

/// How long a command's key is used before the command runs again: some print keys that expire.
const KEY_KEPT: Duration = Duration::from_secs(300);

/// How long a command may take: it may ask for a fingerprint or a password.
const KEY_TIME: Duration = Duration::from_secs(60);

/// The longest key, in bytes; cloud services' tokens have a few thousand.
pub const KEY_BYTES: usize = 64 << 10;

/// The most keys in memory; a configuration that is edited often would leave one for each command.
const MAX_KNOWN: usize = 256;

/// How much of a command's error is shown, in characters.
const MAX_SAID: usize = 200;

/// Why there is no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// A user has to fix something.
    #[error("{0}")]
    Failed(String),
    /// It may be available later: the keychain is locked, or unreachable from where the daemon was started.
    #[error("{0}")]
    Waits(String),
    /// The keychain no longer has it: another source may.
    #[error("the keychain no longer has it")]
    Gone,
}

/// Obtains keys.
#[derive(Debug)]
pub struct KeySources {
    /// The operating system's keychain.
    pub keychain: Arc<Keychain>,
    keys: Arc<Keys>,
    known: Mutex<HashMap<String, (Instant, Secret)>>,
    flights: SingleFlight<Result<Secret, Lack>>,
}

impl KeySources {
    /// Obtains keys from commands and from `keychain`; `keys` knows which ones it has.
    pub fn new(keychain: Arc<Keychain>, keys: Arc<Keys>) -> Self {
        Self { keychain, keys, known: Mutex::default(), flights: SingleFlight::default() }
    }

    /// The key from `source`; `None` if the provider needs none.
    pub async fn obtain(&self, source: &KeySource) -> Result<Option<Secret>, Lack> {
        let name = match source {
            KeySource::None => return Ok(None),
            KeySource::Known(key) => return Ok(Some(key.clone())),
            // No account begins so.
            KeySource::Command(command) => format!("$ {command}"),
            KeySource::Keychain(account) => account.to_string(),
        };
        let fresh = |at: &Instant| matches!(source, KeySource::Keychain(_)) || at.elapsed() < KEY_KEPT;
        if let Some((_, key)) = self.known().get(&name).filter(|(at, _)| fresh(at)) {
            return Ok(Some(key.clone()));
        }
        let got = match source {
            KeySource::Keychain(account) => {
                let (keychain, account) = (self.keychain.clone(), account.clone());
                self.flights.join(&name, async move { asked(&keychain, &account).await }).await
            }
            KeySource::Command(command) => {
                let (command, keys) = (command.clone(), self.keys.clone());
                let children = self.keychain.children.clone();
                self.flights.join(&name, async move { printed(&command, children, &keys).await }).await
            }
            KeySource::None | KeySource::Known(_) => return Ok(None),
        };
        let got = got.unwrap_or_else(|| Err(Lack::Failed("its source ended without a result".to_owned())));
        match &got {
            Ok(key) => self.know(name, key.clone()),
            Err(Lack::Gone) => {
                if let KeySource::Keychain(account) = source {
                    self.keys.keep(account, false);
                }
            }
            Err(Lack::Failed(_) | Lack::Waits(_)) => {}
        }
        got.map(Some)
    }

    /// The secrets of a model: its key, and the values of its fields.
    pub async fn obtain_all(&self, resolved: &Resolved) -> Result<Secrets, Lack> {
        let mut secrets = Secrets::default();
        for (n, source) in resolved.sources().enumerate() {
            match self.obtain(source).await? {
                key if n == 0 => secrets.key = key,
                value => secrets.fields.extend(value),
            }
        }
        Ok(secrets)
    }

    /// Whether all secrets of a model are in memory, so that obtaining them runs no command and opens no keychain.
    pub fn are_at_hand(&self, resolved: &Resolved) -> bool {
        let known = self.known();
        resolved.sources().all(|source| match source {
            KeySource::None | KeySource::Known(_) => true,
            KeySource::Command(command) => known.contains_key(&format!("$ {command}")),
            KeySource::Keychain(account) => known.contains_key(&account.to_string()),
        })
    }

    /// Drops a key that the provider refused; true if its source can be asked again.
    pub fn refuse(&self, source: &KeySource, key: &Secret) -> bool {
        match source {
            KeySource::None => false,
            KeySource::Known(_) => {
                self.keys.refuse(key);
                false
            }
            KeySource::Command(_) | KeySource::Keychain(_) => {
                self.known().retain(|_, (_, known)| known != key);
                true
            }
        }
    }

    /// Stores a key in the keychain.
    pub async fn store(&self, account: &Account, key: Secret) -> Result<(), KeychainError> {
        self.keys.redactor().add(&key);
        self.keychain.set(account, &key).await?;
        self.know(account.to_string(), key);
        self.keys.keep(account, true);
        self.remember().await
    }

    /// Removes the keys of these accounts from the keychain; whether it had any.
    pub async fn remove(&self, accounts: &[Account]) -> Result<bool, KeychainError> {
        let mut removed = false;
        for account in accounts {
            match self.keychain.remove(account).await {
                Ok(()) => removed = true,
                Err(KeychainError::Missing) => {}
                Err(error) => return Err(error),
            }
            self.known().remove(&account.to_string());
            self.keys.keep(account, false);
        }
        self.remember().await.map(|()| removed)
    }

    /// Reads the remembered accounts again, in case a key was missing for a while.
    pub async fn recall(&self) {
        let keychain = self.keychain.clone();
        let accounts = task::spawn_blocking(move || keychain.accounts()).await.unwrap_or_default();
        for account in &accounts {
            self.keys.keep(account, true);
        }
    }

    async fn remember(&self) -> Result<(), KeychainError> {
        let (keychain, keys) = (self.keychain.clone(), self.keys.clone());
        let written = task::spawn_blocking(move || keychain.remember(|| keys.kept())).await;
        let failed = |error: io::Error| {
            KeychainError::Failed(format!("stored the key, but cannot remember that for the next start: {error}"))
        };
        written.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(failed)
    }

    fn know(&self, name: String, key: Secret) {
        let mut known = self.known();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(name, (Instant::now(), key));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, (Instant, Secret)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn asked(keychain: &Keychain, account: &Account) -> Result<Secret, Lack> {
    keychain.get(account).await.map_err(|error| match error {
        KeychainError::Missing => Lack::Gone,
        waits => Lack::Waits(waits.to_string()),
    })
}

/// The key that `command` prints: its first non-empty line, because password managers print notes after it.
async fn printed(command: &str, children: Children, keys: &Keys) -> Result<Secret, Lack> {
    let own =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let env = environment(own, keys);
    let home = env.get("HOME").map_or("/", String::as_str).into();
    let spawn = Spawn { cwd: home, env: Arc::new(env), children, started_for: StartedFor::Daemon };
    run(command, &spawn, KEY_TIME, keys.redactor())
        .await
        .map_err(|why| Lack::Failed(format!("`{command}` (api_key_command) {why}; try it in a terminal")))
}

/// The variables of a command: the user's, as in the user's own shell, without providers' keys and linger's own.
fn environment(own: impl Iterator<Item = (String, String)>, keys: &Keys) -> BTreeMap<String, String> {
    own.filter(|(name, _)| !name.starts_with("LINGER_") && !keys.is_key(name)).collect()
}

async fn run(command: &str, spawn: &Spawn, limit: Duration, redactor: &Redactor) -> Result<Secret, String> {
    let process = spawn.shell(command, Input::Nothing, Stderr::Apart).await;
    let process = process.map_err(|error| format!("cannot be started: {error}"))?;
    let finished = process.finish(limit, KEY_BYTES).await.map_err(|error| format!("cannot be read: {error}"))?;
    let status = match finished.end {
        End::Status(status) => status,
        End::TooMuch => return Err(format!("wrote more than {KEY_BYTES} bytes")),
        End::TooLate => return Err(format!("took longer than {} s", limit.as_secs_f64())),
    };
    let text = String::from_utf8(finished.output).map_err(|_| "wrote something that is not UTF-8".to_owned());
    let lines = text.as_deref().unwrap_or_default().lines();
    // Even if it failed, its output must not be shown.
    let own = Redactor::default();
    lines.for_each(|line| own.add(&Secret::new(line)));
    if !status.success() {
        let said = finished.stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let said: String = own.redact(&redactor.redact(said)).trim().chars().take(MAX_SAID).collect();
        return Err(format!("failed: {status}{}{said}", if said.is_empty() { "" } else { ": " }));
    }
    let text = text?;
    text.lines().map(Secret::new).find(|key| !key.reveal().is_empty()).ok_or_else(|| "printed nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn spawn() -> Spawn {
        Spawn { cwd: "/".into(), env: Arc::default(), children: Children::default(), started_for: StartedFor::Daemon }
    }

    async fn check(command: &str, expect: Result<&str, &str>) {
        let got = run(command, &spawn(), SOON, &Redactor::default()).await;
        assert_eq!(got, expect.map(Secret::new).map_err(str::to_owned), "{command}");
    }

    #[tokio::test]
    async fn a_command_prints_a_key_or_says_why_not() {
        check("echo the-key; echo noise >&2", Ok("the-key")).await;
        check("printf '\\n the-key \\r\\nurl: https://h\\n'", Ok("the-key")).await;
        check("echo the-key; exit 2", Err("failed: exit status: 2")).await;
        let said = "failed: exit status: 1: gpg: decryption of <redacted> failed";
        check("echo the-key; echo a >&2; echo gpg: decryption of the-key failed >&2; echo >&2; exit 1", Err(said))
            .await;
        check("true", Err("printed nothing")).await;
        check("yes", Err("wrote more than 65536 bytes")).await;
        check(r"printf '\377'", Err("wrote something that is not UTF-8")).await;
        check("kill -9 $$", Err("failed: signal: 9 (SIGKILL)")).await;
        let late = run("sleep 1000", &spawn(), Duration::from_millis(50), &Redactor::default()).await;
        assert_eq!(late, Err("took longer than 0.05 s".to_owned()));
    }

    #[test]
    fn a_command_gets_no_key_and_nothing_of_lingers_own() {
        let keys = Keys::default();
        keys.insert("WORK_KEY", "the-work-key", crate::provider::keys::Bearer::Daemon);
        let names = ["PATH", "OP_SERVICE_ACCOUNT_TOKEN", "ANTHROPIC_API_KEY", "WORK_KEY", "LINGER_SOCKET"];
        let env = environment(names.map(|name| (name.to_owned(), "x".to_owned())).into_iter(), &keys);
        assert_eq!(env.into_keys().collect::<Vec<_>>(), ["OP_SERVICE_ACCOUNT_TOKEN", "PATH"]);
    }

    fn sources(dir: &std::path::Path) -> KeySources {
        let keychain = Keychain::new(dir.join("keys"), Children::of(&dir.join("db")));
        KeySources::new(Arc::new(keychain), Arc::default())
    }

    #[tokio::test]
    async fn a_command_runs_once_for_all_and_again_when_its_key_was_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("runs");
        let sources = sources(dir.path());
        let command = format!("echo x >> {0}; sleep 0.1; echo key-$(wc -l < {0})", file.display());
        let source = KeySource::Command(command);
        let (a, b) = tokio::join!(sources.obtain(&source), sources.obtain(&source));
        assert_eq!((a, b), (Ok(Some(Secret::new("key-1"))), Ok(Some(Secret::new("key-1")))));
        assert_eq!(sources.obtain(&source).await, Ok(Some(Secret::new("key-1"))));
        assert!(sources.refuse(&source, &Secret::new("key-1")));
        assert_eq!(sources.obtain(&source).await, Ok(Some(Secret::new("key-2"))));
        // Of two turns whose old key was refused, the second does not throw away the new one.
        sources.refuse(&source, &Secret::new("key-1"));
        assert_eq!(sources.obtain(&source).await, Ok(Some(Secret::new("key-2"))));
    }

    #[tokio::test]
    async fn a_command_that_fails_is_named_and_not_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let sources = sources(dir.path());
        let source = KeySource::Command(format!("cat {}", dir.path().join("key").display()));
        let Err(Lack::Failed(why)) = sources.obtain(&source).await else { panic!() };
        assert!(
            why.contains("(api_key_command) failed: exit status: 1: cat: ") && why.contains("No such file"),
            "{why}"
        );
        std::fs::write(dir.path().join("key"), "now-there\n").unwrap();
        assert_eq!(sources.obtain(&source).await, Ok(Some(Secret::new("now-there"))));
    }
}
