//! Idempotency keys: a request that is sent again with its key takes effect once.
//!
//! A key is made once for each thing that a user does, and goes with every resend of its request.

use crate::error::{Exit, Failure};

/// A new key: 128 random bits. Fails if the system has no entropy.
pub(crate) fn key() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::new(Exit::FAILED, format!("cannot get random bytes: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
