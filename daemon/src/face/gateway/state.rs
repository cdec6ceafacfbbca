//! One gateway per user: a lock file in the state directory. The file has no content, as any process of the user could write it:
//! where the gateway listens it tells the daemon ([`super::registration`]).
//!
//! The system releases the lock however the gateway ends. The file stays.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use anyhow::Context as _;
use linger_protocol::place::Places;
use rustix::fs::OFlags;

/// How often the lock is tried, and the pause between. Nothing tells when a lock that another process has for an instant is free but a
/// wait without an end, which would hang a second gateway for as long as the first one runs.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(10);

/// The lock; dropping it releases it.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock; `None` if a gateway runs.
    pub(super) fn take(places: &Places) -> anyhow::Result<Option<Self>> {
        let path = places.gateway();
        let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags)
            .open(&path);
        let file = file.with_context(|| format!("{} cannot be opened", path.display()))?;
        for _ in 0..TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self { _file: file })),
                // A client that looks whether one runs has the lock for an instant.
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("{} cannot be locked", path.display()));
                }
            }
        }
        Ok(None)
    }
}
