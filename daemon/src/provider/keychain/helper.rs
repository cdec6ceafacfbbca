//! The process that talks to the keychain, once: `lingerd --keychain get|set|remove|check ACCOUNT`, with the key of `set` on its
//! standard input and its answer, a line of JSON, on its standard output. The one place that knows the keychain's library.
//!
//! It blocks as long as the keychain does; the daemon ends it after a timeout.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

#[cfg(target_vendor = "apple")]
use apple_native_keyring_store::keychain::Store;
#[cfg(not(target_vendor = "apple"))]
use dbus_secret_service_keyring_store::Store;
use keyring_core::{Entry, Error};

use super::{HelperReply, KeychainError, MAX_KEY, Task};

/// The argument that makes the program a helper.
pub const ARGUMENT: &str = "--keychain";

/// The service name of linger's keys in the keychain.
const SERVICE: &str = "linger";

/// Runs the task in `arguments`, which follow [`ARGUMENT`].
pub fn main(arguments: &[String]) -> ExitCode {
    let answer = match arguments {
        [task, account] => match Task::ALL.into_iter().find(|known| known.name() == task) {
            Some(task) => run(task, account).unwrap_or_else(HelperReply::Failed),
            None => return usage(),
        },
        _ => return usage(),
    };
    let written = serde_json::to_string(&answer).map_err(std::io::Error::from);
    match written.and_then(|line| writeln!(std::io::stdout(), "{line}")) {
        Ok(()) => ExitCode::SUCCESS,
        // The daemon is gone, or sees that the reply is missing.
        Err(_) => ExitCode::FAILURE,
    }
}

fn usage() -> ExitCode {
    eprintln!("error: only the daemon starts its keychain helper\nhint: `linger key` is for people");
    ExitCode::from(2)
}

fn run(task: Task, account: &str) -> Result<HelperReply, KeychainError> {
    let store = Store::new().map_err(|error| KeychainError::Absent(error_text(&error)))?;
    keyring_core::set_default_store(store);
    if task == Task::Check {
        return Ok(HelperReply::Done);
    }
    let entry = Entry::new(SERVICE, account).map_err(keychain_error)?;
    match task {
        Task::Get => entry.get_password().map(HelperReply::Key),
        Task::Remove => entry.delete_credential().map(|()| HelperReply::Done),
        Task::Set => {
            let mut key = String::new();
            let read = std::io::stdin().take(MAX_KEY as u64).read_to_string(&mut key);
            read.map_err(|error| KeychainError::Failed(error.to_string()))?;
            entry.set_password(&key).map(|()| HelperReply::Done)
        }
        Task::Check => Ok(HelperReply::Done),
    }
    .map_err(keychain_error)
}

/// Converts an error of the library.
fn keychain_error(error: Error) -> KeychainError {
    match error {
        Error::NoEntry => KeychainError::Missing,
        Error::NoStorageAccess(_) => KeychainError::Locked(error_text(&error)),
        Error::NoDefaultStore => KeychainError::Absent(error_text(&error)),
        // These errors may contain the key, so their text is dropped.
        Error::BadEncoding(_) | Error::BadDataFormat(..) | Error::BadStoreFormat(_) => {
            KeychainError::Failed("its entry is not text".to_owned())
        }
        Error::Ambiguous(_) => KeychainError::Failed("it has more than one key for this address".to_owned()),
        other => KeychainError::Failed(error_text(&other)),
    }
}

/// The innermost reason, in a line.
fn error_text(error: &Error) -> String {
    let mut reason: &dyn std::error::Error = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    let said = reason.to_string();
    let line = said.lines().next().unwrap_or_default();
    line.strip_prefix("SS error: ").unwrap_or(line).to_owned()
}
