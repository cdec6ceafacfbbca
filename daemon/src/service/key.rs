//! `key/*`: where keys come from, and the keychain.

use linger_protocol::RpcError;
use linger_protocol::daemon::Empty;
use linger_protocol::error::Code;
use linger_protocol::key::{Info, Listed, Remove, Removed, Set};

use super::{Caller, Services};
use crate::config::providers::Providers;
use crate::diagnostics::secret::Secret;
use crate::provider::keychain::{MAX_KEY, Trouble};
use crate::provider::keys::Account;

/// Where each provider's key comes from, and whether there is a keychain.
pub async fn list(services: &Services, _: &Caller, _: Empty) -> Result<Listed, RpcError> {
    let providers = &services.providers;
    services.config.current()?;
    let sources = &providers.key_sources;
    let (checked, ()) = tokio::join!(sources.keychain.check(), sources.recall());
    if checked.is_ok() {
        // What could not be had before may be there now: the keychain was unlocked, or its service started.
        providers.changed.send_replace(());
    }
    let keys = providers.catalogue()?.key_infos();
    Ok(Listed { keys, no_keychain: checked.err().map(|trouble| trouble.to_string()) })
}

/// Puts a provider's key into the keychain.
pub async fn set(services: &Services, caller: &Caller, params: Set) -> Result<Info, RpcError> {
    caller.must_be_user(services, "store keys")?;
    let Set { provider, secret } = params;
    let secret = checked(&secret)?;
    let providers = &services.providers;
    let account = providers.catalogue()?.account(&provider)?;
    let stored = providers.key_sources.store(&account, secret).await;
    stored.map_err(|trouble| no_keychain(providers, &provider, trouble))?;
    tracing::info!(target: "key", provider, at = account.origin, "put into the keychain");
    providers.changed.send_replace(());
    let info = info(providers, &provider)?;
    info.ok_or_else(|| RpcError::new(Code::Internal, "the provider is gone from the configuration"))
}

/// Takes a provider's key out of the keychain.
pub async fn remove(services: &Services, caller: &Caller, params: Remove) -> Result<Removed, RpcError> {
    caller.must_be_user(services, "remove keys")?;
    let (providers, provider) = (&services.providers, params.provider);
    let now = providers.catalogue()?.account(&provider);
    let kept = providers.keys.kept().into_iter().filter(|account| account.provider == provider);
    let mut accounts: Vec<Account> = kept.collect();
    match now {
        // It may be there although it is not remembered.
        Ok(account) if !accounts.contains(&account) => accounts.push(account),
        Ok(_) => {}
        Err(error) if accounts.is_empty() => return Err(error.into()),
        Err(_) => {}
    }
    let removed = providers.key_sources.remove(&accounts).await;
    let removed = removed.map_err(|trouble| no_keychain(providers, &provider, trouble))?;
    if removed {
        tracing::info!(target: "key", provider, "taken out of the keychain");
    }
    Ok(Removed { removed, now: info(providers, &provider)? })
}

fn info(providers: &Providers, provider: &str) -> Result<Option<Info>, RpcError> {
    Ok(providers.catalogue()?.key_infos().into_iter().find(|info| info.provider == provider))
}

/// What a user is told who cannot use the keychain: the other two ways.
fn no_keychain(providers: &Providers, provider: &str, trouble: Trouble) -> RpcError {
    let variable = info(providers, provider).ok().flatten().and_then(|info| info.from);
    let variable = variable.filter(|name| !name.contains(char::is_whitespace)).unwrap_or_else(|| "ITS_KEY".to_owned());
    let unlock = if matches!(trouble, Trouble::Locked(_)) { "unlock it and try again; or " } else { "" };
    let hint = format!(
        "{unlock}set {variable} where you run linger (`api_key_env` in [providers.{provider}] names another variable), or \
         let a command print the key (`api_key_command`)"
    );
    RpcError::new(Code::NoKeychain, trouble.to_string()).hint(hint)
}

/// The key, if it can be one. What is wrong with it does not repeat it.
fn checked(secret: &str) -> Result<Secret, RpcError> {
    let secret = Secret::new(secret);
    let wrong = |what: &str| RpcError::new(Code::NotAKey, format!("this is no key: {what}"));
    match secret.reveal() {
        "" => Err(wrong("it is empty")),
        key if key.len() > MAX_KEY => Err(RpcError::new(Code::TooMuch, format!("a key may have {MAX_KEY} bytes"))),
        key if !key.chars().all(|c| c.is_ascii_graphic()) => {
            Err(wrong("it has a space or another character that no key has")
                .hint("copy it again, without what is around it"))
        }
        _ => Ok(secret),
    }
}
