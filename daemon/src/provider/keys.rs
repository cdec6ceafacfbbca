//! The keys that the daemon holds, in memory only, and which ones the keychain is known to have.
//!
//! A key is known by the variable that it came in, or in the keychain by its [`Account`]. Each is sent to the address of the
//! provider that names it and nowhere else. Deliberately absent: getting one, which takes time ([`crate::provider::key_source`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{PoisonError, RwLock};

use crate::diagnostics::secret::{Redactor, Secret};

/// Who brought a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bearer {
    /// The daemon was started with it.
    Daemon,
    /// A client has it in its environment.
    Client,
}

/// Under what the keychain has a key: the provider, and the place that the key belongs to.
/// A provider that is configured to be elsewhere has another account, so that no key follows it there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// The provider's name.
    pub provider: String,
    /// Scheme, host and port.
    pub origin: String,
}

impl Account {
    /// Reads what `Display` wrote.
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

/// The keys that the daemon holds.
#[derive(Debug, Default)]
pub struct Keys {
    held: RwLock<BTreeMap<String, Held>>,
    kept: RwLock<BTreeSet<Account>>,
    redactor: Redactor,
}

#[derive(Debug)]
struct Held {
    secret: Secret,
    from: Bearer,
    /// The provider would not have it: another one is welcome.
    refused: bool,
}

impl Keys {
    /// An empty store that tells `redactor` about each key; `kept` is what the keychain is known to have.
    pub fn new(redactor: Redactor, kept: BTreeSet<Account>) -> Self {
        Self { held: RwLock::default(), kept: RwLock::new(kept), redactor }
    }

    /// What takes keys out of text.
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Holds a key; an empty one is none.
    pub fn insert(&self, variable: &str, key: &str, from: Bearer) {
        let secret = Secret::new(key);
        if secret.reveal().is_empty() {
            return;
        }
        self.redactor.add(&secret);
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let refused = held.get(variable).is_some_and(|held| held.refused && held.secret == secret);
        held.insert(variable.to_owned(), Held { secret, from, refused });
    }

    /// The key that came in `variable`.
    pub fn get(&self, variable: &str) -> Option<Secret> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let secret = held.get(variable).map(|held| held.secret.clone());
        // It is in use, and must not be the one that is forgotten.
        secret.iter().for_each(|secret| self.redactor.add(secret));
        secret
    }

    /// Who brought the key in `variable`.
    pub fn bearer(&self, variable: &str) -> Option<Bearer> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).get(variable).map(|held| held.from)
    }

    /// The provider would not have this key.
    pub fn refuse(&self, key: &Secret) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        held.values_mut().filter(|held| held.secret == *key).for_each(|held| held.refused = true);
    }

    /// Whether a client that has `variable` set should bring it.
    pub fn wants(&self, variable: &str) -> bool {
        self.held.read().unwrap_or_else(PoisonError::into_inner).get(variable).is_none_or(|held| held.refused)
    }

    /// Whether the keychain is known to have a key for this account.
    pub fn is_kept(&self, account: &Account) -> bool {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).contains(account)
    }

    /// Notes whether the keychain has a key for this account; whether that is news.
    pub fn keep(&self, account: &Account, there: bool) -> bool {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        if there { kept.insert(account.clone()) } else { kept.remove(account) }
    }

    /// What the keychain is known to have.
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
