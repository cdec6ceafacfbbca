//! The logins at servers: tokens in memory and in the keychain, renewed when they end; logins that wait for a browser.
//!
//! Tokens belong to an address: a server that moves gets none of them. Without a keychain they last as long as the daemon.
//! Deliberately absent: the protocol ([`super::oauth`]), and who may log in (`service`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Url;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::challenge::Challenge;
use super::discovery::Http;
use super::oauth::{self, Known, Pending, Returned, Tokens};
use super::settings::OAuth;
use crate::diagnostics::secret::Secret;
use crate::provider::key_source::KeySources;
use crate::provider::keychain::MAX_KEY;
use crate::provider::keys::{Account, Keys};
use crate::question::permission::hash;
use crate::sys::clock;

/// How long a person may take in the browser, and how many logins may wait there at once.
const PATIENCE: Duration = Duration::from_secs(600);
const MAX_PENDING: usize = 16;

/// The letters of a login's id.
const ID: usize = 16;

/// The digits of the hash of a server's address in the name of its tokens.
const HASH: usize = 32;

/// How long finding the authorization server or getting a token may take.
const LIMIT: Duration = Duration::from_secs(60);

/// All logins; shared.
pub struct Logins {
    http: Http,
    keys: Arc<Keys>,
    sources: Arc<KeySources>,
    state: Mutex<LoginState>,
    /// One renewal at a time: a refresh token may be good for one.
    renewing: Semaphore,
}

#[derive(Default)]
struct LoginState {
    /// By the address of the server.
    held: BTreeMap<String, Tokens>,
    pending: BTreeMap<String, (Instant, String, Pending)>,
    /// The servers that refused what we have, with what they said.
    wanted: BTreeMap<String, Challenge>,
}

impl Logins {
    /// No logins yet, but those in the keychain.
    pub fn new(http: Http, keys: Arc<Keys>, sources: Arc<KeySources>) -> Self {
        Self { http, keys, sources, state: Mutex::default(), renewing: Semaphore::new(1) }
    }

    /// Begins a login at the server with this address, as this client. Gives its id, and the page to open.
    pub(super) async fn begin(&self, server: &str, redirect: &str, client: OAuth) -> Result<(String, String), String> {
        let url = parsed(server)?;
        let challenge = self.state().wanted.get(server).cloned();
        let granted = self.held(server).await.and_then(|tokens| tokens.scope().map(str::to_owned));
        let known = Known { client, challenge, granted };
        let pending = within(oauth::begin(&self.http, &url, redirect, known)).await?;
        let (id, page) = (clock::random_word(ID), pending.page.to_string());
        let mut state = self.state();
        let now = Instant::now();
        state.pending.retain(|_, (until, ..)| *until > now);
        if state.pending.len() >= MAX_PENDING {
            return Err(format!("{MAX_PENDING} logins wait for a browser already"));
        }
        state.pending.insert(id.clone(), (now + PATIENCE, server.to_owned(), pending));
        Ok((id, page))
    }

    /// Ends a login with what the browser brought. Gives the server's address, and why the tokens are in memory alone, if so.
    pub async fn finish(&self, id: &str, returned: Returned<'_>) -> Result<(String, Option<String>), String> {
        let pending = self.state().pending.remove(id).filter(|(until, ..)| *until > Instant::now());
        let (_, server, pending) = pending.ok_or("it took too long, or was ended already: begin again")?;
        let tokens = within(pending.finish(&self.http, returned)).await?;
        let why = self.store(&server, &tokens).await.err();
        self.hold(&server, tokens);
        self.state().wanted.remove(&server);
        Ok((server, why))
    }

    /// Forgets the tokens for a server; whether there were any.
    pub(super) async fn forget(&self, server: &str) -> Result<bool, String> {
        let held = self.state().held.remove(server).is_some();
        let account = account(server);
        let kept = if self.keys.is_kept(&account) {
            self.sources.remove(&[account]).await.map_err(|error| error.to_string())?
        } else {
            false
        };
        Ok(held || kept)
    }

    /// Whether the server refuses what we have.
    pub(super) fn is_wanted(&self, server: &str) -> bool {
        self.state().wanted.contains_key(server)
    }

    pub(super) fn want(&self, server: &str, challenge: Challenge) {
        self.state().wanted.insert(server.to_owned(), challenge);
    }

    /// The tokens for a server, from memory or the keychain.
    async fn held(&self, server: &str) -> Option<Tokens> {
        let held = self.state().held.get(server).cloned();
        match held {
            Some(tokens) => Some(tokens),
            None => self.recalled(server).await,
        }
    }

    /// The token for a server, if there is one.
    pub(super) async fn token(&self, server: &str) -> Option<Secret> {
        let tokens = self.held(server).await?;
        if tokens.is_stale() && tokens.can_renew() {
            // The old one may do for a moment.
            self.renew(server, &tokens.access()).await.or_else(|| Some(tokens.access()))
        } else {
            Some(tokens.access())
        }
    }

    /// Another token in place of one that the server refused.
    pub(super) async fn renew(&self, server: &str, refused: &Secret) -> Option<Secret> {
        let _one = self.renewing.acquire().await.ok()?;
        let tokens = self.state().held.get(server).cloned()?;
        if tokens.access() != *refused {
            return Some(tokens.access());
        }
        match within(tokens.renewed(&self.http)).await {
            Ok(tokens) => {
                if let Err(why) = self.store(server, &tokens).await {
                    tracing::warn!(target: "mcp", server, why, "the renewed login is in memory alone");
                }
                let access = tokens.access();
                self.hold(server, tokens);
                // They allow what the old ones did, and no more.
                self.state().wanted.retain(|wanted, challenge| wanted != server || challenge.is_insufficient);
                Some(access)
            }
            Err(why) => {
                tracing::warn!(target: "mcp", server, why, "the login cannot be renewed");
                None
            }
        }
    }

    /// The tokens in the keychain.
    async fn recalled(&self, server: &str) -> Option<Tokens> {
        let account = account(server);
        if !self.keys.is_kept(&account) {
            return None;
        }
        match self.sources.keychain.get(&account).await {
            Ok(stored) => {
                let tokens: Tokens = serde_json::from_str(stored.reveal()).ok()?;
                self.hold(server, tokens.clone());
                Some(tokens)
            }
            Err(error) => {
                tracing::warn!(target: "mcp", server, %error, "the login cannot be read from the keychain");
                None
            }
        }
    }

    async fn store(&self, server: &str, tokens: &Tokens) -> Result<(), String> {
        let text = serde_json::to_string(tokens).map_err(|error| error.to_string())?;
        if text.len() > MAX_KEY {
            return Err(format!("the tokens are longer than the keychain takes, {MAX_KEY} bytes"));
        }
        self.sources.store(&account(server), Secret::new(&text)).await.map_err(|error| error.to_string())
    }

    fn hold(&self, server: &str, tokens: Tokens) {
        tokens.secrets().for_each(|secret| self.keys.redactor().add(&secret));
        self.state().held.insert(server.to_owned(), tokens);
    }

    fn state(&self) -> MutexGuard<'_, LoginState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of a server's tokens in the keychain; no provider is called so. Variables may have put a secret into the address, so it
/// is named by its hash.
fn account(server: &str) -> Account {
    let host = Url::parse(server).map(|url| url.origin().ascii_serialization()).unwrap_or_default();
    let hash = hash(&serde_json::json!(server));
    let hash = hash.trim_start_matches("sha256:");
    let origin = format!("{host}#{}", hash.get(..HASH).unwrap_or(hash));
    Account { provider: "mcp:server".to_owned(), origin }
}

fn parsed(server: &str) -> Result<Url, String> {
    server.parse().map_err(|error| format!("its address is no URL: {error}"))
}

async fn within<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let late = |_| Err(format!("no answer within {} s", LIMIT.as_secs()));
    tokio::time::timeout(LIMIT, work).await.unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_named_without_what_the_address_may_hide_and_go_to_no_other() {
        let one = account("https://h:8443/mcp?key=hidden");
        assert!(one.origin.starts_with("https://h:8443#") && !one.origin.contains("hidden"), "{}", one.origin);
        assert_ne!(one, account("https://h:8443/mcp?key=other"));
        assert_eq!(Account::parse(&one.to_string()), Some(one));
    }
}
