//! Session names: validation, and reservation until a name is stored.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;

use crate::store::{Store, Wanted};

/// The longest name, in characters: a column of a terminal.
const MAX_NAME: usize = 40;

/// The reserved names.
#[derive(Clone, Debug, Default)]
pub struct Names(Arc<Mutex<BTreeSet<String>>>);

/// A reserved name; dropping it releases the name.
#[derive(Debug)]
pub struct NameGuard {
    names: Names,
    name: String,
}

impl Names {
    /// Reserves a valid, free name; `own` is the session that may have it already. Fails if another session has it, or it could
    /// stand for another session's id.
    pub async fn take(&self, store: &Store, name: &str, own: Option<&SessionId>) -> Result<NameGuard, RpcError> {
        check(name)?;
        let Some(guard) = self.reserve(name) else {
            let error = RpcError::new(Code::BadName, format!("another session is about to get the name '{name}'"));
            return Err(error.hint("choose another name"));
        };
        let wanted = Wanted { matching: Some(name.to_owned()), ..Wanted::default() };
        let rows = store.sessions(wanted, 2, None, |row| row.id).await?;
        match rows.into_iter().find(|id| Some(id) != own) {
            None => Ok(guard),
            Some(id) => Err(RpcError::new(
                Code::BadName,
                format!("session {id} has the name '{name}', or its id begins with it"),
            )
            .hint("choose another name, or remove that session")),
        }
    }

    fn reserve(&self, name: &str) -> Option<NameGuard> {
        let new = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        new.then(|| NameGuard { names: self.clone(), name: name.to_owned() })
    }
}

impl Drop for NameGuard {
    fn drop(&mut self) {
        self.names.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

/// Validates a name.
fn check(name: &str) -> Result<(), RpcError> {
    let good = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    let begins = name.chars().next().is_some_and(char::is_alphanumeric);
    if begins && name.chars().count() <= MAX_NAME && name.chars().all(good) {
        return Ok(());
    }
    let error = RpcError::new(Code::BadName, format!("'{}' is not a valid session name", name.escape_default()));
    Err(error
        .hint(format!("use up to {MAX_NAME} letters, digits, '-', '_' and '.', beginning with a letter or a digit")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_being_given_is_free_again_when_its_guard_is_gone() {
        let names = Names::default();
        let guard = names.reserve("fox").unwrap();
        assert!(names.reserve("fox").is_none() && names.reserve("dog").is_some());
        drop(guard);
        assert!(names.reserve("fox").is_some());
    }

    #[test]
    fn a_name_is_letters_and_digits_of_any_language() {
        let good = |name: &str| check(name).is_ok();
        assert!(["a", "fox-2", "été", "0.1_x", &"x".repeat(MAX_NAME)].into_iter().all(good));
        assert!(!["", "-a", ".", "a b", "a/b", &"x".repeat(MAX_NAME + 1)].into_iter().any(good));
    }
}
