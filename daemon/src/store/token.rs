//! The rows of tokens: their hashes and grants. All are read at the start; after that only changes are written.

use rusqlite::{Connection, params};

use super::{Store, StoreError};

/// A token, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// Its id.
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

fn held(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}

impl Store {
    /// Stores a new token; it is on disk when this returns.
    pub async fn add_token(&self, row: TokenRow) -> Result<(), StoreError> {
        self.change(true, move |connection| {
            let TokenRow { id, hash, allows, created_at, used_at, code_until } = &row;
            let values = params![id, hash, allows, held(*created_at), used_at.map(held), code_until.map(held)];
            connection.execute("INSERT INTO token VALUES (?, ?, ?, ?, ?, ?)", values).map(drop)
        })
        .await
    }

    /// A code was exchanged for a token with this hash; it is on disk when this returns. A token that was removed stays so.
    pub async fn exchange_token(&self, id: String, hash: String) -> Result<(), StoreError> {
        self.change(true, move |connection| {
            let sql = "UPDATE token SET hash = ?2, code_until = NULL WHERE id = ?1";
            connection.execute(sql, params![id, hash]).map(drop)
        })
        .await
    }

    /// A connection began with a token.
    pub async fn used_token(&self, id: String, at: u64) -> Result<(), StoreError> {
        self.change(false, move |connection| {
            connection.execute("UPDATE token SET used_at = ?2 WHERE id = ?1", params![id, held(at)]).map(drop)
        })
        .await
    }

    /// Deletes tokens; they are gone from the disk when this returns.
    pub async fn remove_tokens(&self, ids: Vec<String>) -> Result<(), StoreError> {
        self.change(true, move |connection| {
            let ids = serde_json::json!(ids).to_string();
            let sql = "DELETE FROM token WHERE id IN (SELECT value FROM json_each(?))";
            connection.execute(sql, [ids]).map(drop)
        })
        .await
    }
}
