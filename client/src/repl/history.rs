//! The lines of a workspace that were sent: a file of its own in the state directory, for this user alone, of the last
//! [`MAX_HISTORY`] lines. A line that has what looks like a key is not kept.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use linger_protocol::variable::looks_secret;
use rustyline::history::DefaultHistory;
use rustyline::{Editor, Helper};

/// Lines of history that are kept.
pub(super) const MAX_HISTORY: usize = 1000;

/// The longest line that is kept, in bytes; what is longer was pasted.
const MAX_LINE: usize = 16 << 10;

/// Loads the history of a workspace; a new one begins with the history that all had together once. `None` if something else is
/// in the file's place.
pub(super) fn load<H: Helper>(editor: &mut Editor<H, DefaultHistory>, state: &Path, cwd: &Path) -> Option<PathBuf> {
    let own = state.join(name(cwd));
    // Opening a pipe would wait for its other end.
    let is_file = |path: &PathBuf| path.metadata().is_ok_and(|there| there.is_file());
    let common = state.join("history");
    if is_file(&own) {
        let _ = editor.load_history(&own);
    } else if own.symlink_metadata().is_ok() {
        return None;
    } else {
        // Created here, so that other users can never read it.
        let made = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&own);
        if made.is_ok() && is_file(&common) && editor.load_history(&common).is_ok() {
            let _ = editor.save_history(&own);
        }
    }
    Some(own)
}

/// Whether a line is kept.
pub(super) fn keeps(line: &str) -> bool {
    line.len() <= MAX_LINE && !looks_secret(line)
}

/// The name of a workspace's history file: the directory's name to recognise it by, and a hash of its path.
fn name(cwd: &Path) -> String {
    // FNV-1a, which stays the same between versions.
    let bytes = cwd.as_os_str().as_encoded_bytes();
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let name = cwd.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
    format!("history-{name}-{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workspace_has_a_history_of_its_own() {
        assert_eq!(name(Path::new("/")), "history--af63a24c860189fe");
        let names = ["/a/b-c", "/a/bc"].map(|cwd| name(Path::new(cwd)));
        assert!(names[0].starts_with("history-bc-") && names[0] != names[1], "{names:?}");
    }

    #[test]
    fn a_line_with_a_key_or_of_great_length_is_not_kept() {
        assert!(keeps("fix the test of `sk-` keys, see https://example.org/a"));
        assert!(!keeps("use sk-ant-0123456789abcdef for it"));
        assert!(!keeps(&"x".repeat(MAX_LINE + 1)));
    }
}
