//! Keys in the catalogue: the source, the address and the keychain account of each.

use linger_protocol::key::{Info, Source};

use super::super::address;
use super::super::keys::{Account, Bearer, KeySource};
use super::super::kind::ProviderKind;
use super::super::preset::PLACEHOLDER;
use super::{Catalogue, Entry, ResolveError};

impl Catalogue {
    /// The keychain account of a provider's key; fails if the provider needs no key or has no address.
    pub fn account(&self, name: &str) -> Result<Account, ResolveError> {
        let entry = self.entry(name)?;
        if entry.kind == ProviderKind::Demo {
            return Err(ResolveError::Keyless { provider: name.to_owned() });
        }
        let unknown = || ResolveError::NoAddress { provider: name.to_owned(), example: entry.base_url.clone() };
        account(name, entry).ok_or_else(unknown)
    }

    /// The rows of `key/list`: each provider with the source of its key.
    pub fn key_infos(&self) -> Vec<Info> {
        // Without a default model no row is marked.
        let default = self.default_model().ok();
        let default = default.as_ref().map(|spec| spec.split('/').next().unwrap_or(spec));
        let row = |(name, entry): (&String, &Entry)| self.key_info(name, entry, default == Some(name));
        self.entries.iter().filter(|(_, entry)| entry.kind != ProviderKind::Demo).map(row).collect()
    }

    fn key_info(&self, name: &str, entry: &Entry, default: bool) -> Info {
        let (source, from) = match self.source(name, entry) {
            Ok(KeySource::Command(command)) => (Source::Command, Some(command)),
            Ok(KeySource::Known(_)) => {
                let bearer = entry.variable.as_ref().and_then(|variable| self.keys.bearer(variable));
                let source = if bearer == Some(Bearer::Client) { Source::Client } else { Source::Daemon };
                (source, entry.variable.clone())
            }
            Ok(KeySource::Keychain(_)) => (Source::Keychain, None),
            Ok(KeySource::None) => (Source::None, None),
            Err(variable) => (Source::Missing, Some(variable.to_owned())),
        };
        let at = address::origin(&entry.base_url).filter(|_| !entry.base_url.contains(PLACEHOLDER));
        // A keychain key for another address is not used; the row shows it to explain why.
        let kept = self.keys.kept().into_iter().filter(|account| account.provider == name);
        let elsewhere = kept.map(|account| account.origin).find(|origin| Some(origin) != at.as_ref());
        Info { provider: name.to_owned(), source, from, at, elsewhere, default }
    }
}

/// The keychain account of a provider's key; `None` if its address is unknown.
pub(super) fn account(name: &str, entry: &Entry) -> Option<Account> {
    let origin = address::origin(&entry.base_url).filter(|_| !entry.base_url.contains(PLACEHOLDER))?;
    Some(Account { provider: name.to_owned(), origin })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{WORK, catalogue, check, known};
    use super::*;

    #[test]
    fn the_keychain_comes_after_command_and_environment_and_keeps_a_key_to_its_place() {
        let keep = |catalogue: &Catalogue, provider: &str| {
            let account = catalogue.account(provider).unwrap();
            assert!(catalogue.keys.keep(&account, true) && !catalogue.keys.keep(&account, true));
            account
        };
        let plain = catalogue(WORK, "", &[("GROQ_API_KEY", "g-secret")]);
        for name in ["openai", "groq", "local", "pass", "work"] {
            keep(&plain, name);
        }
        let at = |provider: &str, origin: &str| {
            KeySource::Keychain(Account { provider: provider.to_owned(), origin: origin.to_owned() })
        };
        check(&plain, "openai", Ok(("openai/gpt-5", at("openai", "https://api.openai.com"))));
        check(&plain, "work/x", Ok(("work/x", at("work", "http://127.0.0.1:4001"))));
        check(&plain, "local", Ok(("local/qwen/3", at("local", "http://127.0.0.1:8081"))));
        check(&plain, "groq/x", Ok(("groq/x", known("g-secret"))));
        check(&plain, "pass", Ok(("pass/m", KeySource::Command("pass show work".to_owned()))));
        check(&plain, "", Ok(("openai/gpt-5", at("openai", "https://api.openai.com"))));
        assert!(matches!(plain.account("demo"), Err(ResolveError::Keyless { .. })));
        assert!(matches!(plain.account("vertex"), Err(ResolveError::NoAddress { .. })));

        // A changed address does not get the key.
        let elsewhere = catalogue("[openai]\nbase_url = 'https://evil.example/v1'\napi_key_env = 'X'", "", &[]);
        let vendor = Account { provider: "openai".to_owned(), origin: "https://api.openai.com".to_owned() };
        elsewhere.keys.keep(&vendor, true);
        assert!(matches!(elsewhere.resolve("openai"), Err(ResolveError::KeyMissing { .. })));
        let rows = elsewhere.key_infos();
        let row = rows.iter().find(|row| row.provider == "openai").unwrap();
        assert_eq!((row.source, row.elsewhere.as_deref()), (Source::Missing, Some("https://api.openai.com")));
    }

    #[test]
    fn the_list_says_where_keys_come_from() {
        let catalogue = catalogue(WORK, "work/x", &[("WORK_KEY", "w-secret")]);
        catalogue.add_keys([("OPENAI_API_KEY", "o-secret")], Bearer::Client);
        let rows = catalogue.key_infos();
        let row = |name: &str| {
            let row = rows.iter().find(|row| row.provider == name).unwrap();
            (row.source, row.from.as_deref(), row.at.as_deref(), row.default)
        };
        assert_eq!(row("work"), (Source::Daemon, Some("WORK_KEY"), Some("http://127.0.0.1:4001"), true));
        let vendor = Some("https://api.openai.com");
        assert_eq!(row("openai"), (Source::Client, Some("OPENAI_API_KEY"), vendor, false));
        assert_eq!(row("pass"), (Source::Command, Some("pass show work"), Some("https://api.anthropic.com"), false));
        assert_eq!(row("local"), (Source::None, None, Some("http://127.0.0.1:8081"), false));
        assert_eq!(row("groq").0, Source::Missing);
        assert_eq!(row("vertex").2, None);
        assert!(rows.iter().all(|row| row.provider != "demo"));
    }
}
