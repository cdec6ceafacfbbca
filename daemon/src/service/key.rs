//! `key/*`: the sources of keys, and the keychain.

use linger_protocol::RpcError;
use linger_protocol::daemon::Empty;
use linger_protocol::error::Code;
use linger_protocol::key::{Info, Listed, Remove, Removed, Set};

use super::{Caller, Services};
use crate::config::providers::Providers;
use crate::diagnostics::secret::Secret;
use crate::provider::keychain::{KeychainError, MAX_KEY};
use crate::provider::keys::Account;

/// The source of each provider's key, and whether the keychain works.
pub async fn list(services: &Services, _: &Caller, _: Empty) -> Result<Listed, RpcError> {
    let providers = &services.providers;
    services.config.current()?;
    let sources = &providers.key_sources;
    let (checked, ()) = tokio::join!(sources.keychain.check(), sources.recall());
    if checked.is_ok() {
        // The keychain may have been unlocked, or its service started, since a turn last failed to get a key.
        providers.changed.send_replace(());
    }
    let keys = providers.catalogue()?.key_infos();
    Ok(Listed { keys, no_keychain: checked.err().map(|error| error.to_string()) })
}

/// Puts a provider's key into the keychain.
pub async fn set(services: &Services, _: &Caller, params: Set) -> Result<Info, RpcError> {
    let Set { provider, secret } = params;
    let secret = checked(&secret)?;
    let providers = &services.providers;
    let account = providers.catalogue()?.account(&provider)?;
    let stored = providers.key_sources.store(&account, secret).await;
    stored.map_err(|error| no_keychain(providers, &provider, error))?;
    tracing::info!(target: "key", provider, at = account.origin, "stored in the keychain");
    providers.changed.send_replace(());
    let info = info(providers, &provider)?;
    info.ok_or_else(|| RpcError::new(Code::Internal, "the provider is gone from the configuration"))
}

/// Removes a provider's key from the keychain.
pub async fn remove(services: &Services, _: &Caller, params: Remove) -> Result<Removed, RpcError> {
    let (providers, provider) = (&services.providers, params.provider);
    let now = providers.catalogue()?.account(&provider);
    let kept = providers.keys.kept().into_iter().filter(|account| account.provider == provider);
    let mut accounts: Vec<Account> = kept.collect();
    match now {
        // The key may exist although its account is not remembered.
        Ok(account) if !accounts.contains(&account) => accounts.push(account),
        Ok(_) => {}
        Err(error) if accounts.is_empty() => return Err(error.into()),
        Err(_) => {}
    }
    let removed = providers.key_sources.remove(&accounts).await;
    let removed = removed.map_err(|error| no_keychain(providers, &provider, error))?;
    if removed {
        tracing::info!(target: "key", provider, "removed from the keychain");
    }
    Ok(Removed { removed, now: info(providers, &provider)? })
}

fn info(providers: &Providers, provider: &str) -> Result<Option<Info>, RpcError> {
    Ok(providers.catalogue()?.key_infos().into_iter().find(|info| info.provider == provider))
}

/// The error of a keychain that does not work; its hint names the other two sources.
fn no_keychain(providers: &Providers, provider: &str, error: KeychainError) -> RpcError {
    let variable = info(providers, provider).ok().flatten().and_then(|info| info.from);
    let usual = || format!("{}_KEY", provider.to_ascii_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
    let variable = variable.filter(|name| !name.contains(char::is_whitespace)).unwrap_or_else(usual);
    let unlock = if matches!(error, KeychainError::Locked(_)) { "unlock it and try again; or " } else { "" };
    let hint = format!(
        "{unlock}set {variable} where you run linger (`api_key_env` in [providers.{provider}] names another variable), or \
         use a command that prints the key (`api_key_command`)"
    );
    RpcError::new(Code::NoKeychain, error.to_string()).hint(hint)
}

/// Checks a key; the error does not quote it.
fn checked(secret: &str) -> Result<Secret, RpcError> {
    let secret = Secret::new(secret);
    let wrong = |what: &str| RpcError::new(Code::NotAKey, format!("not a key: {what}"));
    match secret.reveal() {
        "" => Err(wrong("it is empty")),
        key if key.len() > MAX_KEY => Err(RpcError::new(Code::TooMuch, format!("a key may have {MAX_KEY} bytes"))),
        key if !key.chars().all(|c| c.is_ascii_graphic()) => {
            Err(wrong("it contains a space or another character that keys never have")
                .hint("copy it again, without the text around it"))
        }
        _ => Ok(secret),
    }
}
