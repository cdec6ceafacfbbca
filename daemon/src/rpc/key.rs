//! `key/*`: where keys come from, and the keychain.

use async_trait::async_trait;
use jsonrpsee::Extensions;
use jsonrpsee::core::RpcResult;
use linger_protocol::RpcError;
use linger_protocol::api::KeyApiServer;
use linger_protocol::daemon::Empty;
use linger_protocol::error::Code;
use linger_protocol::key::{Info, Listed, Remove, Removed, Set};

use super::{Rpc, conn};
use crate::daemon::rpc_error;
use crate::keychain::{MAX_KEY, Trouble};
use crate::provider::keys::Account;
use crate::secret::Secret;

#[async_trait]
impl KeyApiServer for Rpc {
    async fn list(&self, extensions: &Extensions, _: Empty) -> RpcResult<Listed> {
        self.0.config()?;
        let sources = &self.0.key_sources;
        let look = async { Ok::<_, RpcError>(tokio::join!(sources.keychain.check(), sources.recall())) };
        let (checked, ()) = conn(extensions)?.query(look).await?;
        if checked.is_ok() {
            // What could not be had before may be there now: the keychain was unlocked, or its service started.
            self.0.changed.send_replace(());
        }
        let keys = self.0.usable_catalogue()?.key_infos();
        Ok(Listed { keys, no_keychain: checked.err().map(|trouble| trouble.to_string()) })
    }

    async fn set(&self, extensions: &Extensions, params: Set) -> RpcResult<Info> {
        conn(extensions)?.must_be_user("store keys")?;
        let Set { provider, secret } = params;
        let secret = checked(&secret)?;
        let account = self.0.usable_catalogue()?.account(&provider).map_err(|error| rpc_error(&error))?;
        self.0.key_sources.store(&account, secret).await.map_err(|trouble| self.no_keychain(&provider, trouble))?;
        tracing::info!(target: "key", provider, at = account.origin, "put into the keychain");
        self.0.changed.send_replace(());
        let info = self.info(&provider)?;
        Ok(info.ok_or_else(|| RpcError::new(Code::Internal, "the provider is gone from the configuration"))?)
    }

    async fn remove(&self, extensions: &Extensions, params: Remove) -> RpcResult<Removed> {
        conn(extensions)?.must_be_user("remove keys")?;
        let provider = params.provider;
        let now = self.0.usable_catalogue()?.account(&provider);
        let kept = self.0.keys.kept().into_iter().filter(|account| account.provider == provider);
        let mut accounts: Vec<Account> = kept.collect();
        match now {
            // It may be there although nobody remembers.
            Ok(account) if !accounts.contains(&account) => accounts.push(account),
            Ok(_) => {}
            Err(error) if accounts.is_empty() => return Err(rpc_error(&error).into()),
            Err(_) => {}
        }
        let removed = self.0.key_sources.remove(&accounts).await;
        let removed = removed.map_err(|trouble| self.no_keychain(&provider, trouble))?;
        if removed {
            tracing::info!(target: "key", provider, "taken out of the keychain");
        }
        Ok(Removed { removed, now: self.info(&provider)? })
    }
}

impl Rpc {
    fn info(&self, provider: &str) -> Result<Option<Info>, RpcError> {
        Ok(self.0.usable_catalogue()?.key_infos().into_iter().find(|info| info.provider == provider))
    }

    /// What a user is told who cannot use the keychain: the other two ways.
    fn no_keychain(&self, provider: &str, trouble: Trouble) -> RpcError {
        let variable = self.info(provider).ok().flatten().and_then(|info| info.from);
        let variable =
            variable.filter(|name| !name.contains(char::is_whitespace)).unwrap_or_else(|| "ITS_KEY".to_owned());
        let unlock = if matches!(trouble, Trouble::Locked(_)) { "unlock it and try again; or " } else { "" };
        let hint = format!(
            "{unlock}set {variable} where you run linger (`api_key_env` in [providers.{provider}] names another variable), or \
             let a command print the key (`api_key_command`)"
        );
        RpcError::new(Code::NoKeychain, trouble.to_string()).hint(hint)
    }
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
