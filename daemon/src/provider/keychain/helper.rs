//! The process that talks to the keychain, once: `lingerd --keychain get|set|remove|check ACCOUNT`, with the key of `set` on its
//! standard input and its answer, a line of JSON, on its standard output. The one place that knows the keychain's library.
//!
//! It blocks for as long as the keychain does; whoever started it ends it.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use keyring::{Entry, Error};

use super::{Answer, MAX_KEY, Task, Trouble};

/// What makes the program a helper.
pub const ARGUMENT: &str = "--keychain";

/// Under what name the keychain has linger's keys.
const SERVICE: &str = "linger";

/// Does what `arguments` say after [`ARGUMENT`].
pub fn main(arguments: &[String]) -> ExitCode {
    let answer = match arguments {
        [task, account] => match Task::ALL.into_iter().find(|known| known.name() == task) {
            Some(task) => run(task, account).unwrap_or_else(Answer::Trouble),
            None => return usage(),
        },
        _ => return usage(),
    };
    let written = serde_json::to_string(&answer).map_err(std::io::Error::from);
    match written.and_then(|line| writeln!(std::io::stdout(), "{line}")) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever asked has gone, or hears of it by the missing answer.
        Err(_) => ExitCode::FAILURE,
    }
}

fn usage() -> ExitCode {
    eprintln!("error: only the daemon starts its keychain helper\nhint: `linger key` is for people");
    ExitCode::from(2)
}

fn run(task: Task, account: &str) -> Result<Answer, Trouble> {
    if let Err(error) = Entry::store_status() {
        return Err(Trouble::Absent(said(error)));
    }
    if task == Task::Check {
        return Ok(Answer::Done);
    }
    let entry = Entry::new(SERVICE, account).map_err(trouble)?;
    match task {
        Task::Get => entry.get_password().map(Answer::Key),
        Task::Remove => entry.delete_credential().map(|()| Answer::Done),
        Task::Set => {
            let mut key = String::new();
            let read = std::io::stdin().take(MAX_KEY as u64).read_to_string(&mut key);
            read.map_err(|error| Trouble::Failed(error.to_string()))?;
            entry.set_password(&key).map(|()| Answer::Done)
        }
        Task::Check => Ok(Answer::Done),
    }
    .map_err(trouble)
}

/// What the library says, as far as it makes a difference.
fn trouble(error: Error) -> Trouble {
    match error {
        Error::NoEntry => Trouble::Missing,
        Error::NoStorageAccess(_) => Trouble::Locked(said(&error)),
        Error::NoDefaultStore => Trouble::Absent(said(&error)),
        // These have what they are about in their text or beside it, and that may be the key.
        Error::BadEncoding(_) | Error::BadDataFormat(..) | Error::BadStoreFormat(_) => {
            Trouble::Failed("what it has is no text".to_owned())
        }
        Error::Ambiguous(_) => Trouble::Failed("it has more than one key for this place".to_owned()),
        other => Trouble::Failed(said(&other)),
    }
}

/// The innermost reason, in a line.
fn said(error: &Error) -> String {
    let mut reason: &dyn std::error::Error = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    let said = reason.to_string();
    let line = said.lines().next().unwrap_or_default();
    line.strip_prefix("SS error: ").unwrap_or(line).to_owned()
}
