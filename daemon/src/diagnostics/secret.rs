//! Secrets: a type that hides its value, and the redactor that removes them from text.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
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

/// A secret that is remembered, and the spellings in which a program may repeat it.
#[derive(Clone, Debug)]
struct RememberedSecret {
    secret: Secret,
    spellings: Vec<Secret>,
}

impl RememberedSecret {
    fn of(secret: &Secret) -> Self {
        let key = secret.reveal();
        let mut spellings = vec![key.to_owned(), key.to_uppercase(), key.to_lowercase(), key.chars().rev().collect()];
        for hex in [hex(key, false), hex(key, true)] {
            spellings.push(hex);
        }
        // In addresses and forms; some write small letters, and leave other characters as they are.
        for set in [percent_encoding::NON_ALPHANUMERIC, UNRESERVED] {
            let percent = percent_encoding::utf8_percent_encode(key, set).to_string();
            spellings.extend([percent.replace("%20", "+"), small_escapes(&percent), percent]);
        }
        // In JSON, with its quotes or within a text that is JSON again, and in HTML.
        let json = |text: &str| serde_json::Value::from(text).to_string().trim_matches('"').to_owned();
        let once = json(key);
        spellings.extend([json(&once), once.replace('/', "\\/"), once]);
        spellings.push(html(key));
        spellings.extend(base64_parts(key.as_bytes()));
        spellings.retain(|spelling| spelling.len() >= SHORTEST);
        // Longest first: replacing a part of a longer one would leave the rest of it.
        spellings.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        spellings.dedup();
        Self {
            secret: secret.clone(),
            spellings: spellings.iter().map(|spelling| Secret(spelling.as_str().into())).collect(),
        }
    }
}

/// The characters that every encoder of addresses leaves as they are.
const UNRESERVED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// `%2F` as `%2f`.
fn small_escapes(text: &str) -> String {
    let mut parts = text.split('%');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| {
        let (escape, rest) = part.split_at_checked(2).unwrap_or((part, ""));
        format!("{out}%{}{rest}", escape.to_ascii_lowercase())
    })
}

fn hex(text: &str, is_upper: bool) -> String {
    text.bytes().map(|byte| if is_upper { format!("{byte:02X}") } else { format!("{byte:02x}") }).collect()
}

fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// The base64 spellings of the bytes wherever they begin in what is encoded, as in the header of a user and password: without the
/// characters that depend on their neighbours.
fn base64_parts(bytes: &[u8]) -> Vec<String> {
    let mut parts = Vec::new();
    for before in 0..3 {
        let padded: Vec<u8> = std::iter::repeat_n(0, before).chain(bytes.iter().copied()).collect();
        // 6 bits a character: those that hold a bit of what is before or after it are left out.
        let (from, to) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            parts.extend(engine.encode(&padded).get(from..to).map(ToOwned::to_owned));
        }
    }
    parts
}

/// The secrets that the daemon holds; removes them from texts, however a server has spelled what it repeats.
#[derive(Clone, Debug, Default)]
pub struct Redactor(Arc<RwLock<Vec<RememberedSecret>>>);

impl Redactor {
    /// Remembers a secret as the most recently used; beyond [`MAX_SECRETS`] the least recently used is forgotten.
    pub fn add(&self, secret: &Secret) {
        if secret.reveal().len() < SHORTEST {
            return;
        }
        let mut secrets = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let known = secrets.iter().position(|known| known.secret == *secret).map(|at| secrets.remove(at));
        secrets.push(known.unwrap_or_else(|| RememberedSecret::of(secret)));
        if secrets.len() > MAX_SECRETS {
            secrets.remove(0);
        }
    }

    /// `text` without any secret in it.
    pub fn redact(&self, text: &str) -> String {
        let secrets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let spellings = secrets.iter().flat_map(|known| &known.spellings).map(Secret::reveal);
        let mut found: Vec<&str> = spellings.filter(|spelling| text.contains(spelling)).collect();
        // Longest first, as above.
        found.sort_by_key(|spelling| std::cmp::Reverse(spelling.len()));
        found.into_iter().fold(text.to_owned(), |text, spelling| text.replace(spelling, REDACTED))
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
    fn a_secret_is_removed_however_it_is_spelled() {
        use base64::engine::general_purpose::{STANDARD, URL_SAFE};
        let key = "sk-Ab/c+d==\"é&7";
        let redactor = Redactor::default();
        redactor.add(&Secret::new(key));
        let basic = |user: &str| STANDARD.encode(format!("{user}:{key}"));
        for (text, left) in [
            (format!("bad key {key}!"), "bad key <redacted>!"),
            (key.to_uppercase(), "<redacted>"),
            (key.chars().rev().collect(), "<redacted>"),
            (STANDARD.encode(key), ""),
            (URL_SAFE.encode(key), ""),
            (basic("u"), ""),
            (basic("us"), ""),
            (basic("use"), ""),
            (URL_SAFE.encode(format!("{key}:more text behind it")), ""),
            ("?key=sk-Ab%2Fc%2Bd%3D%3D%22%C3%A9%267&x".to_owned(), "?key=<redacted>&x"),
            ("?key=sk-Ab%2fc%2bd%3d%3d%22%c3%a9%267&x".to_owned(), "?key=<redacted>&x"),
            ("sk%2DAb%2Fc%2Bd%3D%3D%22%C3%A9%267".to_owned(), "<redacted>"),
            (serde_json::json!({ "a": key }).to_string(), "{\"a\":\"<redacted>\"}"),
            (
                serde_json::json!(serde_json::json!({ "a": key }).to_string()).to_string(),
                "\"{\\\"a\\\":\\\"<redacted>\\\"}\"",
            ),
            (r#"{"a":"sk-Ab\/c+d==\"é&7"}"#.to_owned(), r#"{"a":"<redacted>"}"#),
            ("<b>sk-Ab/c+d==&quot;é&amp;7</b>".to_owned(), "<b><redacted></b>"),
            ("736b2d41622f632b643d3d22c3a92637".to_owned(), "<redacted>"),
            ("736B2D41622F632B643D3D22C3A92637".to_owned(), "<redacted>"),
        ] {
            let got = redactor.redact(&text);
            assert!(got.contains(REDACTED), "{text}: {got}");
            // At the edges of base64 a few bits are left.
            assert!(
                got == left || (left.is_empty() && got.len() < text.len() / 2 + REDACTED.len() + 28),
                "{text}: {got}"
            );
        }
        for text in ["sk-Ab", "nothing of it", "sk-ab/c"] {
            assert_eq!(redactor.redact(text), text);
        }
        assert!(!format!("{redactor:?}").contains("sk-"), "{redactor:?}");
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
