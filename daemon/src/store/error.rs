//! Why a query or a write failed.

use std::sync::Arc;

use linger_protocol::RpcError;
use linger_protocol::error::Code;

use super::damage::is_damage;

/// The error of a query or a write; shared by the writes queued behind it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("storage failed: {0}")]
pub struct StoreError(pub Reason);

/// The reason of an error.
#[derive(Clone, Debug)]
pub struct Reason {
    text: Arc<str>,
    damage: bool,
    /// A constraint of the database forbids it.
    clash: bool,
}

impl StoreError {
    /// The error of stored data that is not what was written.
    pub fn damage(text: impl Into<Arc<str>>) -> Self {
        Self(Reason { text: text.into(), damage: true, clash: false })
    }

    /// Whether stored data is not what was written, so that a retry is useless.
    pub fn is_damage(&self) -> bool {
        self.0.damage
    }

    /// Whether a constraint of the database forbids it, so that a retry is useless.
    pub fn is_clash(&self) -> bool {
        self.0.clash
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        Self { text: text.into(), damage: false, clash: false }
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self { text: text.into(), damage: false, clash: false }
    }
}

impl From<serde_json::Error> for StoreError {
    fn from(error: serde_json::Error) -> Self {
        Self(format!("it cannot be encoded: {error}").into())
    }
}

impl From<StoreError> for RpcError {
    fn from(error: StoreError) -> Self {
        if error.is_damage() {
            let hint = "`linger doctor` reports damage, `linger doctor --repair` saves what can be read";
            return Self::new(Code::Damaged, format!("stored data is damaged: {}", error.0)).hint(hint);
        }
        Self::new(Code::Storage, error.to_string()).hint("check whether the disk is full; `linger doctor` reports more")
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string().into())
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let damage = is_damage(&error);
        let clash = error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation);
        let text = match error {
            // The conversion's own error is the reason.
            rusqlite::Error::FromSqlConversionFailure(_, _, error) => error.to_string(),
            error => error.to_string(),
        };
        Self(Reason { text: text.into(), damage, clash })
    }
}

/// The error of a write or query after the threads have ended.
pub(super) fn ended() -> StoreError {
    StoreError("the store has ended".into())
}
