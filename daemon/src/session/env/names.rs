//! Session names: validation, and reservation until a name is stored.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;

use crate::store::{Store, Wanted};

/// The longest name, in characters: a column of a terminal.
const MAX_NAME: usize = 40;

/// The reserved names.
#[derive(Clone, Debug, Default)]
pub struct Names(Arc<Mutex<BTreeMap<String, Reservation>>>);

#[derive(Debug)]
struct Reservation {
    /// The session that gets the name; `None` for one that is being made.
    session: Option<SessionId>,
    /// Guards that keep it: a session may be given the same name again before it is stored.
    guards: usize,
}

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
        let Some(guard) = self.reserve(name, own) else {
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

    fn reserve(&self, name: &str, own: Option<&SessionId>) -> Option<NameGuard> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Reservation { session: own.cloned(), guards: 0 };
        let reservation = names.entry(name.to_owned()).or_insert_with(new);
        if reservation.guards > 0 && (own.is_none() || reservation.session.as_ref() != own) {
            return None;
        }
        reservation.guards += 1;
        Some(NameGuard { names: self.clone(), name: name.to_owned() })
    }
}

impl Drop for NameGuard {
    fn drop(&mut self) {
        let mut names = self.names.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reservation) = names.get_mut(&self.name) {
            reservation.guards -= 1;
            if reservation.guards == 0 {
                names.remove(&self.name);
            }
        }
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
        let guard = names.reserve("fox", None).unwrap();
        assert!(names.reserve("fox", None).is_none() && names.reserve("dog", None).is_some());
        drop(guard);
        assert!(names.reserve("fox", None).is_some());
    }

    #[test]
    fn a_session_may_be_given_the_same_name_again_before_it_has_it() {
        let (names, own, other) = (Names::default(), SessionId("a".to_owned()), SessionId("b".to_owned()));
        let first = names.reserve("fox", Some(&own)).unwrap();
        let second = names.reserve("fox", Some(&own)).unwrap();
        assert!(names.reserve("fox", Some(&other)).is_none() && names.reserve("fox", None).is_none());
        drop(first);
        assert!(names.reserve("fox", Some(&other)).is_none());
        drop(second);
        assert!(names.reserve("fox", Some(&other)).is_some());
    }

    #[test]
    fn a_name_is_letters_and_digits_of_any_language() {
        let good = |name: &str| check(name).is_ok();
        assert!(["a", "fox-2", "été", "0.1_x", &"x".repeat(MAX_NAME)].into_iter().all(good));
        assert!(!["", "-a", ".", "a b", "a/b", &"x".repeat(MAX_NAME + 1)].into_iter().any(good));
    }
}
