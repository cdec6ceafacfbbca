//! Secrets: a type that hides its value, and the redactor that removes them from text.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use linger_protocol::variable::IN_MEMORY;

/// A key. It has no `Display`, its `Debug` hides it, and only [`Secret::reveal`] returns it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a key; surrounding white space is not part of it.
    pub fn new(key: &str) -> Self {
        Self(key.trim().into())
    }

    /// The key itself, for the header that carries it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<secret>")
    }
}

/// The values of the secret variables of one session's tools, shared by all that hold it; nowhere but in memory.
#[derive(Clone, Default)]
pub struct SecretVariables(Arc<RwLock<BTreeMap<String, Secret>>>);

impl SecretVariables {
    /// Takes a value in place of an earlier one.
    pub fn put(&self, name: &str, value: Secret) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), value);
    }

    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<Secret> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Gives all values to `other`, which lacks them.
    pub fn copy_to(&self, other: &Self) {
        if Arc::ptr_eq(&self.0, &other.0) {
            return;
        }
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        other.0.write().unwrap_or_else(PoisonError::into_inner).extend(held);
    }

    /// The names in `stored` whose values are secret, and those of them whose values are not here.
    pub fn names(&self, stored: &BTreeMap<String, String>) -> (Vec<String>, Vec<String>) {
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let secret: Vec<String> =
            stored.iter().filter(|(_, value)| *value == IN_MEMORY).map(|(name, _)| name.clone()).collect();
        let missing = secret.iter().filter(|name| !held.contains_key(*name)).cloned().collect();
        (secret, missing)
    }

    /// Whether a text has one of the values in it; short ones match ordinary words.
    pub fn occur_in(&self, text: &str) -> bool {
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        held.values().any(|secret| secret.reveal().len() >= SHORTEST && text.contains(secret.reveal()))
    }

    /// `stored` with the values of its secrets, for a process that gets them; what is missing is left out.
    pub fn fill(&self, stored: &Arc<BTreeMap<String, String>>) -> Arc<BTreeMap<String, String>> {
        if !stored.values().any(|value| value == IN_MEMORY) {
            return stored.clone();
        }
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let fill = |(name, value): (&String, &String)| match value.as_str() {
            IN_MEMORY => Some((name.clone(), held.get(name)?.reveal().to_owned())),
            _ => Some((name.clone(), value.clone())),
        };
        Arc::new(stored.iter().filter_map(fill).collect())
    }
}

impl PartialEq for SecretVariables {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SecretVariables {}

impl std::fmt::Debug for SecretVariables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let held = self.0.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entries(held.keys()).finish()
    }
}

/// The text in place of a secret.
const REDACTED: &str = "<redacted>";

/// The shortest secret that is redacted, in bytes: shorter ones match ordinary words.
const SHORTEST: usize = 6;

/// How many secrets are remembered: a key command may print a new key each hour, and texts keep old ones for weeks.
const MAX_SECRETS: usize = 1024;

/// The secrets that the daemon holds; removes them from texts.
#[derive(Clone, Debug, Default)]
pub struct Redactor(Arc<RwLock<Vec<Secret>>>);

impl Redactor {
    /// Remembers a secret as the most recently used; beyond [`MAX_SECRETS`] the least recently used is forgotten.
    pub fn add(&self, secret: &Secret) {
        if secret.reveal().len() < SHORTEST {
            return;
        }
        let mut secrets = self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        secrets.retain(|known| known != secret);
        secrets.push(secret.clone());
        if secrets.len() > MAX_SECRETS {
            secrets.remove(0);
        }
    }

    /// `text` without any secret in it.
    pub fn redact(&self, text: &str) -> String {
        let secrets = self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut found: Vec<&str> = secrets.iter().map(Secret::reveal).filter(|secret| text.contains(secret)).collect();
        // Longest first: replacing a part of a longer secret would leave the rest of it.
        found.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        found.into_iter().fold(text.to_owned(), |text, secret| text.replace(secret, REDACTED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_variable_is_filled_in_for_a_process_and_named_while_it_is_missing() {
        let stored = [("GH_TOKEN", IN_MEMORY), ("NPM_TOKEN", IN_MEMORY), ("PATH", "/bin")];
        let stored: Arc<BTreeMap<_, _>> =
            Arc::new(stored.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect());
        let secrets = SecretVariables::default();
        secrets.put("GH_TOKEN", Secret::new("hunter2"));
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(secrets.names(&stored), (names(&["GH_TOKEN", "NPM_TOKEN"]), names(&["NPM_TOKEN"])));
        let filled = secrets.fill(&stored);
        let filled: Vec<_> = filled.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(filled, ["GH_TOKEN=hunter2", "PATH=/bin"]);
        assert_eq!(format!("{secrets:?}"), "{\"GH_TOKEN\"}");
    }

    #[test]
    fn of_too_many_secrets_the_one_that_is_not_used_is_forgotten() {
        let redactor = Redactor::default();
        let (used, unused) = (Secret::new("in-use-key"), Secret::new("forgotten-key"));
        redactor.add(&unused);
        for n in 0..MAX_SECRETS {
            redactor.add(&Secret::new(&format!("printed-{n}")));
            redactor.add(&used);
        }
        assert_eq!(redactor.redact("in-use-key forgotten-key"), "<redacted> forgotten-key");
        assert_eq!(redactor.0.read().unwrap().len(), MAX_SECRETS);
    }

    #[test]
    fn of_a_secret_that_contains_another_nothing_is_left() {
        for words in [["used-secret", "unused-secret"], ["unused-secret", "used-secret"]] {
            let redactor = Redactor::default();
            words.iter().for_each(|word| redactor.add(&Secret::new(word)));
            assert_eq!(redactor.redact("unused-secret, used-secret"), "<redacted>, <redacted>");
        }
    }
}
