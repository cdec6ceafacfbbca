//! The keys in the daemon's memory, and the known accounts of the keychain.
//!
//! A key is named by its variable, or in the keychain by its [`Account`]. It is sent only to the address of its provider.
//! Deliberately absent: obtaining one, which takes time ([`crate::provider::key_source`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use linger_protocol::variable::PROVIDER_KEYS;

use crate::diagnostics::secret::{Redactor, Secret};

/// The origin of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bearer {
    /// The daemon's own environment.
    Daemon,
    /// The environment of a client.
    Client,
}

/// The name of a key in the keychain: provider and address.
/// Another address is another account, so that no key follows a changed `base_url`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// The provider's name.
    pub provider: String,
    /// Scheme, host and port.
    pub origin: String,
}

impl Account {
    /// Parses the output of `Display`.
    pub fn parse(text: &str) -> Option<Self> {
        let (provider, origin) = text.rsplit_once(' ')?;
        let whole = !provider.is_empty() && !origin.is_empty();
        whole.then(|| Self { provider: provider.to_owned(), origin: origin.to_owned() })
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.provider, self.origin)
    }
}

/// The source of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The provider needs none.
    None,
    /// Held in memory already.
    Known(Secret),
    /// Printed by this command, which runs before the first request.
    Command(String),
    /// In the keychain, which is asked before the first request.
    Keychain(Account),
}

/// The keys that the daemon holds.
#[derive(Debug, Default)]
pub struct Keys {
    held: RwLock<BTreeMap<String, KeyEntry>>,
    kept: RwLock<BTreeSet<Account>>,
    redactor: Redactor,
    /// How often clients have brought keys.
    brought: AtomicU64,
}

#[derive(Debug)]
struct KeyEntry {
    secret: Secret,
    from: Bearer,
    /// The value of `brought` when its variable was first held.
    since: u64,
    /// Whether the provider refused it: a client may bring another.
    refused: bool,
}

impl Keys {
    /// Without keys; tells `redactor` about each new one. `kept`: the known accounts of the keychain.
    pub fn new(redactor: Redactor, kept: BTreeSet<Account>) -> Self {
        Self { held: RwLock::default(), kept: RwLock::new(kept), redactor, brought: AtomicU64::new(0) }
    }

    /// Removes keys from texts.
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Adds a key; ignores an empty one.
    pub fn insert(&self, variable: &str, key: &str, from: Bearer) {
        let secret = Secret::new(key);
        if secret.reveal().is_empty() {
            return;
        }
        self.redactor.add(&secret);
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let before = held.get(variable);
        let refused = before.is_some_and(|held| held.refused && held.secret == secret);
        let since = before.map_or_else(|| self.brought.load(Ordering::Relaxed), |held| held.since);
        held.insert(variable.to_owned(), KeyEntry { secret, from, since, refused });
    }

    /// Begins the keys of another client: they come after all that are held.
    pub fn begin_client(&self) {
        self.brought.fetch_add(1, Ordering::Relaxed);
    }

    /// The place of the key of `variable` among those that clients have brought; `None` if no client's.
    pub fn client_place(&self, variable: &str) -> Option<u64> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        held.get(variable).filter(|held| held.from == Bearer::Client).map(|held| held.since)
    }

    /// The key of `variable`.
    pub fn get(&self, variable: &str) -> Option<Secret> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let secret = held.get(variable).map(|held| held.secret.clone());
        // Refresh it: the redactor forgets the least recently used.
        if let Some(secret) = &secret {
            self.redactor.add(secret);
        }
        secret
    }

    /// The origin of the key of `variable`.
    pub fn bearer(&self, variable: &str) -> Option<Bearer> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).get(variable).map(|held| held.from)
    }

    /// Whether this variable holds the key of a provider.
    pub fn is_key(&self, variable: &str) -> bool {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        PROVIDER_KEYS.contains(&variable) || held.contains_key(variable)
    }

    /// Marks a key that the provider refused.
    pub fn refuse(&self, key: &Secret) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        held.values_mut().filter(|held| held.secret == *key).for_each(|held| held.refused = true);
    }

    /// Whether a client should bring its `variable`.
    pub fn wants(&self, variable: &str) -> bool {
        self.held.read().unwrap_or_else(PoisonError::into_inner).get(variable).is_none_or(|held| held.refused)
    }

    /// Whether the keychain has a key of this account, as far as known.
    pub fn is_kept(&self, account: &Account) -> bool {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).contains(account)
    }

    /// Notes whether the keychain has a key of this account; true if that changed.
    pub fn keep(&self, account: &Account, there: bool) -> bool {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        if there { kept.insert(account.clone()) } else { kept.remove(account) }
    }

    /// The known accounts of the keychain.
    pub fn kept(&self) -> BTreeSet<Account> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_refused_is_wanted_until_another_comes() {
        let keys = Keys::default();
        keys.insert("A", "old-secret", Bearer::Daemon);
        assert!(!keys.wants("A") && keys.wants("B"));
        keys.refuse(&Secret::new("old-secret"));
        assert!(keys.wants("A"));
        keys.insert("A", "old-secret", Bearer::Client);
        assert!(keys.wants("A"), "the same again is no better");
        keys.insert("A", "new-secret", Bearer::Client);
        assert!(!keys.wants("A"));
        assert_eq!((keys.get("A"), keys.bearer("A")), (Some(Secret::new("new-secret")), Some(Bearer::Client)));
        keys.insert("A", " \n", Bearer::Client);
        assert_eq!(keys.get("A"), Some(Secret::new("new-secret")));
        assert!(!format!("{keys:?}").contains("new-secret"));
    }

    #[test]
    fn an_account_is_read_as_it_was_written() {
        let account = Account { provider: "my own".to_owned(), origin: "https://h:1".to_owned() };
        assert_eq!(Account::parse(&account.to_string()), Some(account));
        assert_eq!([Account::parse("x"), Account::parse(" x"), Account::parse("x ")], [None, None, None]);
    }
}
