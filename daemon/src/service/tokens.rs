//! The table of tokens: all are in memory, so that a connection's first word and each request after it is checked without waiting.
//!
//! The database has them for the next start. Of a token's text only the hash is kept, here and there. Nothing waits for the end of a
//! token: it is looked at when it is used, and when something is sent to its connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::TokenId;
use linger_protocol::token::{Grant, Row};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::store::scope::Scope;
use crate::store::token::TokenRow;
use crate::sys::clock::{self, DAY_MS};

/// The most tokens; each takes less than a KiB of memory, and a person has a few.
pub(super) const MAX_TOKENS: usize = 1000;

/// Characters of a token's id; it is no secret.
const ID: usize = 8;

/// How long an expired token is listed, so that a person sees why a script fails.
pub(super) const LISTED_MS: u64 = 30 * DAY_MS;

/// How exactly the last use of a token is stored, in milliseconds: less would be a write for each connection.
const USE_MS: u64 = 60_000;

/// A token, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// Names it in lists and in the log; `mcp` for that of an MCP server.
    pub id: TokenId,
    /// The hash of its text.
    pub(super) hash: String,
    /// The rights that it gives.
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
    /// Stands for a token of an MCP server with this grant; no text is its text.
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

    /// A token with this text; a code if it ends at `code_until`.
    pub(super) fn new(text: &str, grant: Grant, now: u64, code_until: Option<u64>) -> Self {
        let (id, hash, scope) = (TokenId(clock::random_word(ID)), hash(text), scope(&grant));
        Self { id, hash, grant, scope, created_at: now, used_at: None, code_until }
    }

    /// Itself, as the database has it. Fails if its grant cannot be encoded.
    pub(super) fn stored(&self) -> Result<TokenRow, RpcError> {
        let allows = serde_json::to_string(&self.grant)
            .map_err(|error| RpcError::new(Code::Internal, format!("the token cannot be stored: {error}")))?;
        Ok(TokenRow {
            id: self.id.0.clone(),
            hash: self.hash.clone(),
            allows,
            created_at: self.created_at,
            used_at: self.used_at,
            code_until: self.code_until,
        })
    }

    /// Itself, as `token/list` shows it.
    fn listed(&self) -> Row {
        let Self { id, grant, created_at, used_at, code_until, .. } = self.clone();
        Row { id, grant, created_at, used_at, code_until }
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

    /// All of them, valid or not, the latest first.
    pub(super) fn list(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self.by_id().values().map(|token| token.listed()).collect();
        rows.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
        rows
    }

    /// Whether there are as many as there may be.
    pub(super) fn are_full(&self) -> bool {
        self.by_id().len() >= MAX_TOKENS
    }

    /// Makes a token valid.
    pub(super) fn add(&self, token: Token) {
        self.by_id().insert(token.id.clone(), Arc::new(token));
    }

    /// Takes a token out.
    pub(super) fn remove(&self, id: &TokenId) -> Option<Arc<Token>> {
        self.by_id().remove(id)
    }

    /// Ends a token and its connections.
    pub(super) fn revoke(&self, id: &TokenId) -> Option<Arc<Token>> {
        let token = self.remove(id)?;
        self.revoked.send_replace(());
        Some(token)
    }

    /// Keeps a token that is revoked, but still in the database, so that it can be revoked again.
    pub(super) fn add_revoked(&self, token: &Token) {
        self.add(Token { code_until: Some(0), ..token.clone() });
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

    /// Puts a token in the place of a valid code, which is one no more; `None` if there is no such code. Fails, and leaves the code,
    /// if its grant is not taken.
    pub(super) fn exchange(
        &self,
        code: &str,
        new: &str,
        now: u64,
        takes: impl FnOnce(&Grant) -> bool,
    ) -> Result<Option<Arc<Token>>, ()> {
        let (code, new) = (hash(code), hash(new));
        let mut tokens = self.by_id();
        let found =
            tokens.values().find(|token| token.hash == code && token.code_until.is_some() && !token.is_over(now));
        let Some(found) = found else { return Ok(None) };
        if !takes(&found.grant) {
            return Err(());
        }
        let token = Arc::new(Token { hash: new, code_until: None, ..found.as_ref().clone() });
        tokens.insert(token.id.clone(), token.clone());
        Ok(Some(token))
    }

    /// Notes that a connection begins; gives the time if it is to be stored.
    pub(super) fn note_use(&self, id: &TokenId, now: u64) -> Option<u64> {
        let mut tokens = self.by_id();
        let token = tokens.get(id)?;
        if token.used_at.is_some_and(|before| before + USE_MS > now) {
            return None;
        }
        let token = Arc::new(Token { used_at: Some(now), ..token.as_ref().clone() });
        tokens.insert(id.clone(), token);
        Some(now)
    }

    /// Removes codes that were not exchanged, and tokens that expired before a time; gives their ids.
    pub(super) fn clear(&self, now: u64, before: u64) -> Vec<TokenId> {
        let mut tokens = self.by_id();
        let is_old = |token: &Token| {
            let code = token.code_until.is_some_and(|until| until <= now);
            code || token.grant.expires_at < before
        };
        tokens.extract_if(|_, token| is_old(token)).map(|(id, _)| id).collect()
    }
}

/// The hash of a token's text, in hexadecimal digits. The text is random, so that no salt is needed.
fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}
