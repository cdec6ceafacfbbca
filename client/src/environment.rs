//! The process a command runs in: its directory, clock and home.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::Failure;

/// Wall time in Unix milliseconds; for ages only.
#[allow(clippy::disallowed_methods, reason = "the one place where the client looks at the clock on the wall")]
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The working directory of this process. Fails if it was removed or cannot be entered.
#[allow(clippy::disallowed_methods, reason = "the client stands in one directory: the user's")]
pub(crate) fn working_directory() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        Failure::usage(format!("the current directory cannot be used: {error}"))
            .hint("go to a directory that exists: `cd` alone leads home")
    })
}

/// Paths of this directory, made absolute.
pub(crate) fn absolute(paths: Vec<PathBuf>) -> Result<Vec<PathBuf>, Failure> {
    let here = if paths.is_empty() { PathBuf::new() } else { working_directory()? };
    Ok(paths.into_iter().map(|path| here.join(path)).collect())
}

/// The file mode creation mask of this process. Reading it means setting it: nothing else makes files meanwhile.
pub(crate) fn umask() -> u32 {
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    rustix::process::umask(mask);
    mask.bits()
}

/// A short path for people: `~/…` below the home directory.
pub(crate) fn short_path(path: &Path) -> String {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    match home.as_deref().and_then(|home| path.strip_prefix(home).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}
