//! The permissions of files and directories at a checkpoint, of which git keeps only whether a file may be executed.
//!
//! Read from the disk for the names in the index, while git compares the same files. Kept in memory for the latest checkpoints
//! of a workspace: only what a call then changes or removes is written down, with its checkpoint. After a restart of the daemon
//! the permissions of files that an interrupted call removed are not known.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::contents::TreeChange;

/// The most names that are kept; of more, the permissions are known that all of them have.
const MAX_NAMES: usize = 4096;

/// The permissions of a directory, and of a file that may be executed, that are not written down.
const USUAL: u32 = 0o755;

/// The permissions of any other file that are not written down.
const USUAL_FILE: u32 = 0o644;

/// How an index of version 4 begins.
const HEAD: &[u8] = b"DIRC\0\0\0\x04";

/// The length of an entry of an index before its name, without the flags: gitformat-index.
const ENTRY: usize = 60;

/// The permissions at a checkpoint that are not the usual ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    named: HashMap<Vec<u8>, u32>,
    /// The permissions that all other names have, if there are more than are kept.
    rest: Option<u32>,
}

impl Modes {
    /// Looks at the files that an index names, and at their directories. Blocks.
    pub(super) fn of_index(root: &Path, index: &[u8]) -> Self {
        let mut modes = Self::default();
        if index.is_empty() {
            return modes;
        }
        let mut directories = BTreeSet::new();
        let mut name = Vec::new();
        let count = index.get(8..12).filter(|_| index.starts_with(HEAD)).and_then(|count| count.try_into().ok());
        let mut rest = index.get(12..).unwrap_or_default();
        for _ in 0..count.map_or(1, u32::from_be_bytes) {
            let Some(after) = next_name(rest, &mut name).filter(|_| count.is_some()) else {
                // Files that are not seen are known to permit nothing to others.
                modes.rest = Some(0o700);
                break;
            };
            rest = after;
            modes.look(root, &name, &mut directories);
        }
        modes
    }

    /// Looks at a file and at those of its directories that are not in `directories` yet. Blocks.
    pub(super) fn look(&mut self, root: &Path, name: &[u8], directories: &mut BTreeSet<Vec<u8>>) {
        self.note(root, name);
        let mut above = name;
        while let Some(end) = above.iter().rposition(|byte| *byte == b'/') {
            above = above.get(..end).unwrap_or_default();
            if directories.contains(above) {
                break;
            }
            directories.insert(above.to_vec());
            self.note(root, above);
        }
    }

    fn note(&mut self, root: &Path, name: &[u8]) {
        let Ok(status) = root.join(OsStr::from_bytes(name)).symlink_metadata() else { return };
        if status.is_symlink() {
            return;
        }
        let mode = status.permissions().mode() & 0o7777;
        let usual = if status.is_dir() || mode & 0o100 != 0 { USUAL } else { USUAL_FILE };
        if mode == usual {
            self.named.remove(name);
        } else if self.named.len() < MAX_NAMES || self.named.contains_key(name) {
            self.named.insert(name.to_vec(), mode);
        } else {
            self.rest = Some(self.rest.map_or(mode, |rest| rest & mode));
        }
    }

    /// The permissions of files that differ and of directories above them, relative to `root`, where they are not the usual ones.
    pub fn of_changes(&self, root: &Path, changes: &[TreeChange]) -> BTreeMap<PathBuf, u32> {
        let mut found = BTreeMap::new();
        for change in changes.iter().filter(|change| change.before.is_some()) {
            for path in change.path.ancestors() {
                let Ok(name) = path.strip_prefix(root) else { break };
                if name.as_os_str().is_empty() || found.contains_key(name) {
                    break;
                }
                let is_file = path == change.path;
                let kept = self.named.get(name.as_os_str().as_bytes()).copied();
                let usual = if is_file && !change.was_executable() { USUAL_FILE } else { USUAL };
                // All that is known of it is what the others have in common.
                if let Some(mode) = kept.or(self.rest.map(|rest| rest & usual)) {
                    found.insert(name.to_path_buf(), mode);
                }
            }
        }
        found
    }
}

/// The permissions of a file or directory before a call, as its checkpoint tells them; absent if they are not known.
pub(super) fn mode_of(modes: Option<&BTreeMap<PathBuf, u32>>, name: &Path, is_plain_file: bool) -> Option<u32> {
    let usual = if is_plain_file { USUAL_FILE } else { USUAL };
    Some(modes?.get(name).copied().unwrap_or(usual))
}

/// Takes the next entry of an index of version 4: its name becomes `name`. `None` if it is of another form.
fn next_name<'a>(index: &'a [u8], name: &mut Vec<u8>) -> Option<&'a [u8]> {
    let flags = u16::from_be_bytes(index.get(ENTRY..ENTRY + 2)?.try_into().ok()?);
    let is_extended = flags & 0x4000 != 0;
    let mut rest = index.get(ENTRY + if is_extended { 4 } else { 2 }..)?;
    // How much of the name before is dropped, as a variable width integer.
    let (first, after) = rest.split_first()?;
    rest = after;
    let (mut byte, mut drop) = (*first, usize::from(*first & 0x7f));
    while byte & 0x80 != 0 {
        let (next, after) = rest.split_first()?;
        (byte, rest) = (*next, after);
        drop = drop.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
    }
    let end = rest.iter().position(|byte| *byte == 0)?;
    name.truncate(name.len().checked_sub(drop)?);
    name.extend_from_slice(rest.get(..end)?);
    rest.get(end + 1..)
}
