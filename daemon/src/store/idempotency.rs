//! Idempotency keys: their requests, outcomes, and requests in progress.
//!
//! A key is scoped to its method, and to the session or permission that the method names. It identifies one request: with other
//! parameters it is refused. The outcome is written in the transaction of the effect. A refusal is not stored: it changed nothing,
//! and the same key may try again.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use linger_protocol::RpcError;
use linger_protocol::error::Code;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

/// The longest key, in bytes: fits a hash in hex with a prefix.
const MAX_KEY: usize = 128;

/// A key with its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The key with its method and scope: unique.
    pub id: String,
    /// The hash of the other parameters.
    pub params: String,
}

/// The outcome of a keyed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Identifies the request.
    pub key: Key,
    /// The result in JSON, or why it cannot be encoded: then the request is not carried out.
    pub result: Result<String, String>,
}

impl Key {
    /// The key of a request to `method` in `scope`; `params` are its parameters without the key. Fails if the key is empty or too long.
    pub fn of(
        method: &str,
        scope: &str,
        key: Option<String>,
        params: &impl Serialize,
    ) -> Result<Option<Self>, RpcError> {
        let Some(key) = key else { return Ok(None) };
        if key.is_empty() || key.len() > MAX_KEY {
            let error =
                RpcError::new(Code::BadKey, format!("a key has 1 to {MAX_KEY} bytes, but this one has {}", key.len()));
            return Err(error.hint("use a random word of 32 characters"));
        }
        let mut hash = Hash(Sha256::new());
        serde_json::to_writer(&mut hash, params)
            .map_err(|error| RpcError::new(Code::Internal, format!("cannot encode the parameters: {error}")))?;
        let params = hash.0.finalize().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
        let words = [method, scope, &key].into_iter().filter(|word| !word.is_empty());
        Ok(Some(Self { id: words.collect::<Vec<_>>().join(" "), params }))
    }

    /// The outcome of its request.
    pub fn outcome(self, result: &impl Serialize) -> Outcome {
        Outcome { key: self, result: serde_json::to_string(result).map_err(|error| error.to_string()) }
    }

    /// Fails if the key was used for another request.
    pub fn same_as(&self, earlier: &Self) -> Result<(), RpcError> {
        if earlier.params == self.params {
            return Ok(());
        }
        let error = RpcError::new(Code::BadKey, "the key was used for another request");
        Err(error.hint("use a new key for each request; repeat a key only to send the same request again"))
    }
}

impl Outcome {
    /// The stored result; fails if `key` was used for another request.
    pub fn answer<T: DeserializeOwned>(&self, key: &Key) -> Result<T, RpcError> {
        key.same_as(&self.key)?;
        let result = self.result.as_deref().unwrap_or_default();
        serde_json::from_str(result)
            .map_err(|error| RpcError::new(Code::Internal, format!("cannot read the outcome of the key: {error}")))
    }
}

/// Hashes what is written to it.
struct Hash(Sha256);

impl io::Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keyed requests in progress that no actor serialises.
#[derive(Default)]
pub struct UnderWay(Mutex<HashMap<String, watch::Receiver<()>>>);

/// The lock of one key; dropping it releases it.
pub struct Turn<'a> {
    under_way: &'a UnderWay,
    id: String,
    /// Wakes waiters when dropped.
    _ended: watch::Sender<()>,
}

impl UnderWay {
    fn map(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks a key; waits for an earlier request with it.
    pub async fn turn(&self, key: &Key) -> Turn<'_> {
        loop {
            let mut earlier = {
                let mut map = self.map();
                match map.get(&key.id) {
                    Some(earlier) => earlier.clone(),
                    None => {
                        let (ended, receiver) = watch::channel(());
                        map.insert(key.id.clone(), receiver);
                        return Turn { under_way: self, id: key.id.clone(), _ended: ended };
                    }
                }
            };
            // It ends with an error when the sender is dropped.
            while earlier.changed().await.is_ok() {}
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Before the sender is dropped, so that a woken waiter finds the key free.
        self.under_way.map().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(scope: &str, key: &str, params: &serde_json::Value) -> Key {
        Key::of("session/prompt", scope, Some(key.to_owned()), params).unwrap().unwrap()
    }

    #[test]
    fn a_key_stands_for_its_method_its_session_and_its_parameters() {
        let one = key("s1", "k", &json!({"content": "a"}));
        assert_eq!(one, key("s1", "k", &json!({"content": "a"})));
        assert_ne!(one.id, key("s2", "k", &json!({"content": "a"})).id);
        assert_ne!(one.id, Key::of("session/set", "s1", Some("k".to_owned()), &json!({})).unwrap().unwrap().id);
        let outcome = one.clone().outcome(&7);
        assert_eq!(outcome.answer::<u32>(&one), Ok(7));
        let other = key("s1", "k", &json!({"content": "b"}));
        assert_eq!(outcome.answer::<u32>(&other).unwrap_err().code(), Some(Code::BadKey));
    }

    #[test]
    fn a_key_has_a_length() {
        let of = |key: &str| Key::of("m", "", Some(key.to_owned()), &()).map(drop).map_err(|error| error.code());
        assert_eq!(of(&"k".repeat(MAX_KEY)), Ok(()));
        assert_eq!(of(&"k".repeat(MAX_KEY + 1)), Err(Some(Code::BadKey)));
        assert_eq!(of(""), Err(Some(Code::BadKey)));
        assert_eq!(Key::of("m", "", None, &()), Ok(None));
    }

    #[tokio::test]
    async fn the_second_with_a_key_waits_for_the_first_and_another_does_not() {
        let under_way = UnderWay::default();
        let (same, other) = (key("s1", "k", &json!(1)), key("s1", "j", &json!(1)));
        let first = under_way.turn(&same).await;
        let _other = under_way.turn(&other).await;
        let mut second = Box::pin(under_way.turn(&same));
        let waits = std::future::poll_fn(|context| std::task::Poll::Ready(second.as_mut().poll(context).is_pending()));
        assert!(waits.await);
        drop(first);
        drop(second.await);
        assert_eq!(under_way.map().len(), 1, "nothing is left behind");
    }
}
