//! The rows of tokens: their hashes and grants. All are read at the start; after that only changes are written.

use rusqlite::Connection;

/// A token, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// Public: shown by `token/list`.
    pub id: String,
    /// The SHA-256 of its text, in hexadecimal digits.
    pub hash: String,
    /// Its grant, in JSON.
    pub allows: String,
    /// When it was made, in Unix milliseconds.
    pub created_at: u64,
    /// When a connection last began with it.
    pub used_at: Option<u64>,
    /// Until when its code can be exchanged; absent if it is a token.
    pub code_until: Option<u64>,
}

/// All of them. One that cannot be read is left out: then nothing can be done with it.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<TokenRow>> {
    let mut statement =
        connection.prepare("SELECT id, hash, allows, created_at, used_at, code_until FROM token ORDER BY id")?;
    let time = |millis: i64| u64::try_from(millis).unwrap_or_default();
    let rows = statement.query_map([], |row| {
        Ok(TokenRow {
            id: row.get(0)?,
            hash: row.get(1)?,
            allows: row.get(2)?,
            created_at: time(row.get(3)?),
            used_at: row.get::<_, Option<i64>>(4)?.map(time),
            code_until: row.get::<_, Option<i64>>(5)?.map(time),
        })
    })?;
    Ok(rows.map_while(Result::ok).collect())
}

pub(super) fn held(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}
