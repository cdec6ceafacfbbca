//! `token/*`: making, listing and ending tokens, and the table of those that are valid.
//!
//! All tokens are in memory, so that a connection's first word and each request after it is checked without waiting; the database
//! has them for the next start. Of a token's text only the hash is kept, here and there. Nothing waits for the end of a token: it
//! is looked at when it is used, and when something is sent to its connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use linger_protocol::RpcError;
use linger_protocol::daemon::Empty;
use linger_protocol::error::Code;
use linger_protocol::id::TokenId;
use linger_protocol::token::{CODE, CODE_MS, Can, DAYS, Exchange, Grant, MAX_DAYS, Mint, Minted, Revoke, Row, TOKEN};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::bearer::{Restraint, unauthorized};
use super::{Caller, Services};
use crate::registry::create::directory;
use crate::store::scope::Scope;
use crate::store::token::TokenRow;
use crate::sys::clock::{self, DAY_MS};
use crate::sys::task;

/// The most tokens; each takes less than a KiB of memory, and a person has a few.
const MAX_TOKENS: usize = 1000;

/// The longest name of a grant, in characters: that of a caller.
const MAX_NAME: usize = 60;

/// The most sessions that a grant names.
const MAX_SESSIONS: usize = 256;

/// The random bytes of a token.
const SECRET: usize = 32;

/// Characters of a token's id; it is no secret.
const ID: usize = 8;

/// How long an expired token is listed, so that a person sees why a script fails.
const LISTED_MS: u64 = 30 * DAY_MS;

/// How exactly the last use of a token is stored, in milliseconds: less would be a write for each connection.
const USE_MS: u64 = 60_000;

/// A token, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its id.
    pub id: TokenId,
    /// The hash of its text.
    hash: String,
    /// What it allows.
    pub grant: Grant,
    /// The sessions that it is for.
    pub(super) scope: Scope,
    created_at: u64,
    used_at: Option<u64>,
    code_until: Option<u64>,
}

/// All tokens of the daemon.
pub struct Tokens {
    by_id: Mutex<HashMap<TokenId, Arc<Token>>>,
    /// Sent when one is revoked.
    revoked: watch::Sender<()>,
}

impl Token {
    /// What stands for a token of an MCP server with this grant; no text is its text.
    pub(super) fn of_server(grant: &Grant) -> Self {
        Self {
            id: TokenId("mcp".to_owned()),
            hash: String::new(),
            scope: scope(grant),
            grant: grant.clone(),
            created_at: 0,
            used_at: None,
            code_until: None,
        }
    }

    fn of_row(row: &TokenRow) -> Option<Self> {
        let grant: Grant = serde_json::from_str(&row.allows).ok()?;
        Some(Self {
            id: TokenId::from(row.id.as_str()),
            hash: row.hash.clone(),
            scope: scope(&grant),
            grant,
            created_at: row.created_at,
            used_at: row.used_at,
            code_until: row.code_until,
        })
    }

    fn row(&self) -> TokenRow {
        TokenRow {
            id: self.id.0.clone(),
            hash: self.hash.clone(),
            allows: serde_json::to_string(&self.grant).unwrap_or_default(),
            created_at: self.created_at,
            used_at: self.used_at,
            code_until: self.code_until,
        }
    }

    /// Whether nothing can be done with it any more.
    fn is_over(&self, now: u64) -> bool {
        self.grant.expires_at <= now || self.code_until.is_some_and(|until| until <= now)
    }
}

fn scope(grant: &Grant) -> Scope {
    Scope { roots: grant.sessions.clone(), directory: grant.directory.clone() }
}

impl Tokens {
    /// The tokens that the database has.
    pub fn new(rows: &[TokenRow]) -> Self {
        let tokens = rows.iter().filter_map(Token::of_row).map(|token| (token.id.clone(), Arc::new(token)));
        Self { by_id: Mutex::new(tokens.collect()), revoked: watch::Sender::new(()) }
    }

    fn by_id(&self) -> MutexGuard<'_, HashMap<TokenId, Arc<Token>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The valid token with this text; a code is none.
    pub(super) fn find(&self, text: &str, now: u64) -> Option<Arc<Token>> {
        let hash = hash(text);
        let tokens = self.by_id();
        tokens.values().find(|token| token.hash == hash && token.code_until.is_none() && !token.is_over(now)).cloned()
    }

    /// Whether a token is still valid.
    pub(super) fn is_valid(&self, token: &Token, now: u64) -> bool {
        self.by_id().get(&token.id).is_some_and(|it| it.hash == token.hash && !it.is_over(now))
    }

    /// How many are valid.
    pub(super) fn count(&self, now: u64) -> u32 {
        let tokens = self.by_id();
        let valid = tokens.values().filter(|token| token.code_until.is_none() && !token.is_over(now)).count();
        u32::try_from(valid).unwrap_or(u32::MAX)
    }

    /// Wakes when a token is revoked.
    pub fn revoked(&self) -> watch::Receiver<()> {
        self.revoked.subscribe()
    }

    /// Puts a token in the place of a valid code, which is one no more.
    fn exchange(&self, code: &str, new: &str, now: u64) -> Option<Arc<Token>> {
        let (code, new) = (hash(code), hash(new));
        let mut tokens = self.by_id();
        let found =
            tokens.values().find(|token| token.hash == code && token.code_until.is_some() && !token.is_over(now));
        let token = Arc::new(Token { hash: new, code_until: None, ..found?.as_ref().clone() });
        tokens.insert(token.id.clone(), token.clone());
        Some(token)
    }

    /// Notes that a connection begins; gives the time if it is to be stored.
    fn note_use(&self, id: &TokenId, now: u64) -> Option<u64> {
        let mut tokens = self.by_id();
        let token = tokens.get(id)?;
        if token.used_at.is_some_and(|before| before + USE_MS > now) {
            return None;
        }
        let token = Arc::new(Token { used_at: Some(now), ..token.as_ref().clone() });
        tokens.insert(id.clone(), token);
        Some(now)
    }

    /// Removes codes that were not exchanged, and tokens that expired long ago; gives their ids.
    fn clear(&self, now: u64) -> Vec<TokenId> {
        let mut tokens = self.by_id();
        let is_old = |token: &Token| {
            let code = token.code_until.is_some_and(|until| until <= now);
            code || token.grant.expires_at.saturating_add(LISTED_MS) <= now
        };
        tokens.extract_if(|_, token| is_old(token)).map(|(id, _)| id).collect()
    }
}

/// The hash of a token's text, in hexadecimal digits. The text is random, so that no salt is needed.
fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

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
    caller.must_be_process(services, "make a token")?;
    let now = clock::now();
    clear(services, now).await;
    if services.tokens.by_id().len() >= MAX_TOKENS {
        let error = RpcError::new(Code::TooMuch, format!("there are {MAX_TOKENS} tokens already"));
        return Err(error.hint("`linger token list` lists them, `linger token revoke` ends one"));
    }
    let once = params.once;
    let grant = grant(services, params, now).await?;
    let text = secret(if once { CODE } else { TOKEN })?;
    let token = Token {
        id: TokenId(clock::random_word(ID)),
        hash: hash(&text),
        scope: scope(&grant),
        grant,
        created_at: now,
        used_at: None,
        code_until: once.then_some(now + CODE_MS),
    };
    services.store.add_token(token.row()).await?;
    tracing::info!(target: "token", id = %token.id, name = token.grant.name, by = caller.name(), once, "made");
    let minted = Minted { id: token.id.clone(), token: text, grant: token.grant.clone() };
    services.tokens.by_id().insert(token.id.clone(), Arc::new(token));
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

/// Gives a token for a code.
pub async fn exchange(services: &Services, caller: &Caller, params: Exchange) -> Result<Minted, RpcError> {
    if matches!(caller.restraint(services), Restraint::Server | Restraint::Family) {
        return Err(RpcError::new(Code::NotAllowed, "a process started by the daemon may not exchange a code")
            .hint("open the link in a browser, or do it from a terminal"));
    }
    let text = secret(TOKEN)?;
    let Some(token) = services.tokens.exchange(&params.code, &text, clock::now()) else {
        return Err(unauthorized("the code is unknown, was used before, or is older than 5 minutes"));
    };
    if let Err(error) = services.store.exchange_token(token.id.0.clone(), token.hash.clone()).await {
        services.tokens.by_id().remove(&token.id);
        return Err(error.into());
    }
    tracing::info!(target: "token", id = %token.id, name = token.grant.name, "exchanged for its code");
    Ok(Minted { id: token.id.clone(), token: text, grant: token.grant.clone() })
}

/// The tokens, the latest first.
pub async fn list(services: &Services, caller: &Caller, _: Empty) -> Result<Vec<Row>, RpcError> {
    caller.must_be_process(services, "list tokens")?;
    clear(services, clock::now()).await;
    let row = |token: &Arc<Token>| Row {
        id: token.id.clone(),
        grant: token.grant.clone(),
        created_at: token.created_at,
        used_at: token.used_at,
        code_until: token.code_until,
    };
    let mut rows: Vec<Row> = services.tokens.by_id().values().map(row).collect();
    rows.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
    Ok(rows)
}

/// Ends a token, and its connections.
pub async fn revoke(services: &Services, caller: &Caller, params: Revoke) -> Result<Empty, RpcError> {
    caller.must_be_process(services, "revoke a token")?;
    let removed = services.tokens.by_id().remove(&params.id);
    let Some(token) = removed else {
        let error = RpcError::new(Code::UnknownToken, format!("there is no token '{}'", params.id.0.escape_default()));
        return Err(error.hint("`linger token list` lists them"));
    };
    services.tokens.revoked.send_replace(());
    tracing::info!(target: "token", id = %token.id, name = token.grant.name, by = caller.name(), "revoked");
    services.store.remove_tokens(vec![token.id.0.clone()]).await.map_err(|error| {
        let text = format!("the token is revoked until the daemon starts again, and no longer: {error}");
        // It can be revoked again.
        services
            .tokens
            .by_id()
            .insert(token.id.clone(), Arc::new(Token { code_until: Some(0), ..token.as_ref().clone() }));
        RpcError::new(Code::Storage, text).hint("make room on the disk and revoke it again")
    })?;
    Ok(Empty {})
}

/// Forgets what is over; a failure leaves rows for the next time.
async fn clear(services: &Services, now: u64) {
    let old: Vec<String> = services.tokens.clear(now).into_iter().map(|id| id.0).collect();
    if !old.is_empty()
        && let Err(error) = services.store.remove_tokens(old).await
    {
        tracing::warn!(target: "token", %error, "cannot delete expired tokens");
    }
}
