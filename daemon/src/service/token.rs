//! `token/*`: making, listing and ending tokens.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use linger_protocol::RpcError;
use linger_protocol::daemon::Empty;
use linger_protocol::error::Code;
use linger_protocol::token::{CODE, CODE_MS, Can, DAYS, Exchange, Grant, MAX_DAYS, Mint, Minted, Revoke, Row, TOKEN};

use super::proof::unauthorized;
use super::tokens::{MAX_TOKENS, Token};
use super::{Caller, Services};
use crate::registry::create::directory;
use crate::sys::clock::{self, DAY_MS};
use crate::sys::task;

/// The longest name of a grant, in characters: that of a caller.
const MAX_NAME: usize = 60;

/// The most sessions that a grant names.
const MAX_SESSIONS: usize = 256;

/// The random bytes of a token.
const SECRET: usize = 32;

/// A new text.
fn secret(prefix: &str) -> Result<String, RpcError> {
    let mut bytes = [0; SECRET];
    clock::random_bytes(&mut bytes)
        .map_err(|error| RpcError::new(Code::Internal, format!("no randomness: {error}")))?;
    Ok(format!("{prefix}{}", BASE64URL.encode(bytes)))
}

/// Stores that a connection begins with a token, without waiting for it.
pub(super) fn note_use(services: &Services, token: &Token) {
    if let Some(at) = services.tokens.note_use(&token.id, clock::now()) {
        let (store, id) = (services.store.clone(), token.id.0.clone());
        task::spawn(async move {
            if let Err(error) = store.used_token(id, at).await {
                tracing::warn!(target: "token", %error, "cannot store when a token was used");
            }
        });
    }
}

/// Makes a token.
pub async fn mint(services: &Services, caller: &Caller, params: Mint) -> Result<Minted, RpcError> {
    let now = clock::now();
    clear(services, now).await;
    if services.tokens.are_full() {
        let error = RpcError::new(Code::TooMuch, format!("there are {MAX_TOKENS} tokens already"));
        return Err(error.hint("`linger token list` lists them, `linger token revoke` ends one"));
    }
    let once = params.once;
    let grant = grant(services, params, now).await?;
    let text = secret(if once { CODE } else { TOKEN })?;
    let token = Token::new(&text, grant, now, once.then_some(now + CODE_MS));
    services.store.add_token(token.stored()?).await?;
    tracing::info!(target: "token", id = %token.id, name = token.grant.name, by = caller.name(), once, "made");
    let minted = Minted { id: token.id.clone(), token: text, grant: token.grant.clone() };
    services.tokens.add(token);
    Ok(minted)
}

/// The grant that is asked for, checked.
async fn grant(services: &Services, params: Mint, now: u64) -> Result<Grant, RpcError> {
    let Mint { name, can, sessions, directory: dir, mode, days, once: _ } = params;
    let name = name.trim().to_owned();
    if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
        let error = RpcError::new(Code::BadName, format!("a token has a name of 1 to {MAX_NAME} characters"));
        return Err(error.hint("name the place or the program that uses it; the log shows the name"));
    }
    let mut can = can.unwrap_or_else(|| Can::USUAL.to_vec());
    can.sort_unstable();
    can.dedup();
    if can.is_empty() {
        let error = RpcError::new(Code::BadValue, "a token that allows nothing is useless");
        return Err(error.hint(format!("`can` has some of {}", Can::ALL.map(Can::name).join(", "))));
    }
    let days = days.unwrap_or(DAYS);
    if !(1..=MAX_DAYS).contains(&days) {
        return Err(RpcError::new(Code::BadValue, format!("a token lasts 1 to {MAX_DAYS} days")));
    }
    if let Some(sessions) = &sessions {
        if sessions.is_empty() || sessions.len() > MAX_SESSIONS {
            return Err(RpcError::new(Code::TooMuch, format!("a token names 1 to {MAX_SESSIONS} sessions"))
                .hint("leave `sessions` out for all"));
        }
        for session in sessions {
            if session.is_daemon() || services.store.session(session.clone()).await?.is_none() {
                return Err(RpcError::new(Code::UnknownSession, format!("there is no session '{session}'"))
                    .hint("`linger ls` lists the sessions"));
            }
        }
    }
    let directory = match dir {
        Some(dir) => Some(directory(&dir).await?),
        None => None,
    };
    Ok(Grant { name, can, sessions, directory, mode, expires_at: now + u64::from(days) * DAY_MS })
}

/// Gives a token for a code. A refused code stays good for its user.
pub async fn exchange(services: &Services, caller: &Caller, params: Exchange) -> Result<Minted, RpcError> {
    let text = secret(TOKEN)?;
    let is_known = caller.is_known_outside(services);
    let takes = |grant: &Grant| is_known || grant.can.iter().all(|can| *can == Can::Observe);
    let token = match services.tokens.exchange(&params.code, &text, clock::now(), takes) {
        Ok(Some(token)) => token,
        Ok(None) => return Err(unauthorized("the code is unknown, was used before, or is older than 5 minutes")),
        Err(()) => {
            let text = "cannot tell whether the daemon started the process behind this connection: a code is not exchanged for it";
            return Err(RpcError::new(Code::NotAllowed, text).hint(
                "let the proxy run as you; through one of another user's `linger gateway url --read-only` opens the page: `linger help http`",
            ));
        }
    };
    if let Err(error) = services.store.exchange_token(token.id.0.clone(), token.hash.clone()).await {
        services.tokens.remove(&token.id);
        return Err(error.into());
    }
    tracing::info!(target: "token", id = %token.id, name = token.grant.name, "exchanged for its code");
    Ok(Minted { id: token.id.clone(), token: text, grant: token.grant.clone() })
}

/// The tokens, the latest first.
pub async fn list(services: &Services, _: &Caller, _: Empty) -> Result<Vec<Row>, RpcError> {
    clear(services, clock::now()).await;
    Ok(services.tokens.list())
}

/// Ends a token, and its connections.
pub async fn revoke(services: &Services, caller: &Caller, params: Revoke) -> Result<Empty, RpcError> {
    let Some(token) = services.tokens.revoke(&params.id) else {
        let error = RpcError::new(Code::UnknownToken, format!("there is no token '{}'", params.id.0.escape_default()));
        return Err(error.hint("`linger token list` lists them"));
    };
    tracing::info!(target: "token", id = %token.id, name = token.grant.name, by = caller.name(), "revoked");
    services.store.remove_tokens(vec![token.id.0.clone()]).await.map_err(|error| {
        let text = format!("the token is revoked until the daemon starts again, and no longer: {error}");
        services.tokens.add_revoked(&token);
        RpcError::new(Code::Storage, text).hint("make room on the disk and revoke it again")
    })?;
    Ok(Empty {})
}

/// Forgets what is over; a failure leaves rows for the next time.
async fn clear(services: &Services, now: u64) {
    let before = services.env().days.before(super::tokens::LISTED_MS, now, None);
    let old: Vec<String> = services.tokens.clear(now, before).into_iter().map(|id| id.0).collect();
    if !old.is_empty()
        && let Err(error) = services.store.remove_tokens(old).await
    {
        tracing::warn!(target: "token", %error, "cannot delete expired tokens");
    }
}
