//! The processes that a command left behind, in the words of its result.

use super::text;
use crate::diagnostics::secret::SecretVariables;
use crate::process::Stray;

/// The most processes that are named of those that a command left behind.
const NAMED: usize = 10;

/// Says which processes a command left behind, which were ended with it; nothing if there are none.
pub(super) fn left_behind(left: &[Stray], secrets: &SecretVariables, keep: &str) -> Option<String> {
    if left.is_empty() {
        return None;
    }
    let name = |stray: &Stray| {
        // The shell has filled in what only a process is to have.
        let is_secret = secrets.occur_in(&stray.line);
        let line = if is_secret { stray.line.split(' ').next().unwrap_or_default() } else { &stray.line };
        format!("{} ({})", text::one_line(line), stray.pid)
    };
    let names: Vec<String> = left.iter().take(NAMED).map(name).collect();
    let (count, were) = match left.len() {
        1 => ("1 process".to_owned(), "was"),
        more => (format!("{more} processes"), "were"),
    };
    let more = if left.len() > NAMED { ", …" } else { "" };
    Some(format!("[{count} that it left behind {were} ended: {}{more}{keep}]", names.join(", ")))
}
