//! What `.ignore`, `.gitignore` and `.git/info/exclude` leave out of a walk.
//!
//! These files are a repository's, so they are opened like any other: if they are regular, and read to a limit. Where they stand,
//! and which one counts, is as in ripgrep: the nearest one first, `.ignore` before the others, and of `.gitignore` none above the
//! repository.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::file;

/// The most that is read of such a file, in bytes; the longest that are written by hand have a hundredth.
const SIZE_MAX: u64 = 1 << 20;

/// The directories that a walk has come through, and those above it.
#[derive(Debug, Default)]
pub(super) struct Ignored(Mutex<HashMap<PathBuf, Arc<Here>>>);

/// What one directory says.
#[derive(Debug)]
struct Here {
    ignore: Gitignore,
    git: [Gitignore; 2],
    is_repository: bool,
}

impl Ignored {
    /// Whether a walk leaves `path` out, which is absolute.
    pub(super) fn has(&self, path: &Path, is_dir: bool) -> bool {
        let above: Vec<Arc<Here>> = path.ancestors().skip(1).map(|dir| self.here(dir)).collect();
        let ignores = above.iter().map(|here| &here.ignore);
        let inside = above.iter().position(|here| here.is_repository).map_or(above.len(), |root| root + 1);
        let gits = above.iter().take(inside).flat_map(|here| &here.git);
        let decides = |rules: &Gitignore| match rules.matched(path, is_dir) {
            Match::None => None,
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
        };
        ignores.chain(gits).find_map(decides).unwrap_or(false)
    }

    fn here(&self, dir: &Path) -> Arc<Here> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(here) = known.get(dir) {
            return here.clone();
        }
        let of = |name: &str| rules(dir, &dir.join(name));
        let is_repository = dir.join(".git").exists();
        let exclude = if is_repository { of(".git/info/exclude") } else { Gitignore::empty() };
        let here = Arc::new(Here { ignore: of(".ignore"), git: [of(".gitignore"), exclude], is_repository });
        known.insert(dir.to_path_buf(), here.clone());
        here
    }
}

/// The rules of a file for what lies in `dir`. What is not there, or cannot be read, has none, and neither has a line that is no rule.
fn rules(dir: &Path, path: &Path) -> Gitignore {
    let Ok((file, _)) = file::open(path) else { return Gitignore::empty() };
    let mut bytes = Vec::new();
    if file.take(SIZE_MAX).read_to_end(&mut bytes).is_err() {
        return Gitignore::empty();
    }
    let mut rules = GitignoreBuilder::new(dir);
    for line in String::from_utf8_lossy(&bytes).trim_start_matches('\u{feff}').lines() {
        // As git does.
        let _no_rule = rules.add_line(None, line);
    }
    rules.build().unwrap_or_else(|_| Gitignore::empty())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_nearest_rule_counts_and_none_of_git_from_above_the_repository() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(".gitignore", "*.above\n");
        write(".ignore", "*.everywhere\n");
        write("repo/.git/info/exclude", "*.mine\n");
        write("repo/.gitignore", "*.log\nbuild/\n/only-here\n");
        write("repo/src/.gitignore", "!keep.log\n");
        write("repo/src/.ignore", "!x.everywhere\nkept.rs\n");
        let ignored = Ignored::default();
        for (path, is_dir, expect) in [
            ("repo/a.log", false, true),
            ("repo/src/a.log", false, true),
            ("repo/src/keep.log", false, false),
            ("repo/keep.log", false, true),
            ("repo/build", true, true),
            ("repo/build", false, false),
            ("repo/src/build", true, true),
            ("repo/only-here", false, true),
            ("repo/src/only-here", false, false),
            ("repo/x.mine", false, true),
            ("repo/x.above", false, false),
            ("x.above", false, true),
            ("repo/y.everywhere", false, true),
            ("repo/src/x.everywhere", false, false),
            ("repo/src/kept.rs", false, true),
            ("repo/src/a.rs", false, false),
        ] {
            assert_eq!(ignored.has(&root.join(path), is_dir), expect, "{path}");
        }
    }

    #[test]
    fn what_is_no_regular_file_has_no_rules_and_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("/dev/zero", root.join(".gitignore")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join(".ignore"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        assert!(!Ignored::default().has(&root.join("a"), false));
    }
}
