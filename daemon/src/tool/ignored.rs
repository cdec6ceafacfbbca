//! The paths that `.ignore`, `.gitignore` and `.git/info/exclude` leave out of a walk.
//!
//! These files are a repository's, so they are opened like any other: if they are regular, and read to a limit. Where they stand,
//! and which one counts, is as in ripgrep: the nearest one first, `.ignore` before the others, and of `.gitignore` none above the
//! repository.
//!
//! A walk is depth-first, so only the rules of the directories that it is in are kept; and what all of them cost it to
//! read and compile is bounded. A rule beyond that is left out, and the result says so.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::handle::Entry;
use super::pattern::too_large;

/// The most that a walk reads of such files, in bytes; those of the largest repositories have a tenth.
const BYTES_MAX: u64 = 1 << 20;

/// The most rules that a walk takes: compiling so many takes a second or two, and the largest repositories have a few thousand.
const RULES_MAX: usize = 10_000;

/// The longest rule, in bytes; a path of one has a few dozen.
const RULE_MAX: usize = 1024;

/// The rules that hold where a walk is.
#[derive(Debug, Default)]
pub(super) struct Ignored(Mutex<Cache>);

#[derive(Debug)]
struct Cache {
    /// The directory that was asked about last and those above it, the topmost first.
    known: Vec<(PathBuf, Arc<DirectoryRules>)>,
    /// Bytes that may still be read.
    bytes: u64,
    /// Rules that may still be taken.
    rules: usize,
    /// Whether a rule was left out.
    cut: bool,
}

/// The rules of one directory.
#[derive(Debug)]
struct DirectoryRules {
    ignore: Gitignore,
    git: [Gitignore; 2],
    is_repository: bool,
}

impl Ignored {
    /// Whether a walk leaves `path` out, which is absolute.
    pub(super) fn has(&self, path: &Path, is_dir: bool) -> bool {
        let above = self.above(path);
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

    /// Says that rules were left out; empty if none were.
    pub(super) fn left_out(&self) -> String {
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).cut {
            format!(
                "[not all rules of .gitignore files were heeded: more than {RULES_MAX} rules or {BYTES_MAX} bytes together, or one of more than {RULE_MAX} bytes or with many braces; give a `path`]\n"
            )
        } else {
            String::new()
        }
    }

    /// The rules of the directories above `path`, the nearest first.
    fn above(&self, path: &Path) -> Vec<Arc<DirectoryRules>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // As for nearly every entry of a large directory.
        let is_same = state.known.last().is_some_and(|(known, _)| Some(known.as_path()) == path.parent());
        if is_same {
            return state.known.iter().rev().map(|(_, here)| here.clone()).collect();
        }
        let mut dirs: Vec<&Path> = path.ancestors().skip(1).collect();
        dirs.reverse();
        let same = state.known.iter().zip(&dirs).take_while(|((known, _), dir)| known == *dir).count();
        state.known.truncate(same);
        for dir in dirs.into_iter().skip(same) {
            let here = Arc::new(state.look(dir));
            state.known.push((dir.to_path_buf(), here));
        }
        state.known.iter().rev().map(|(_, here)| here.clone()).collect()
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self { known: Vec::new(), bytes: BYTES_MAX, rules: RULES_MAX, cut: false }
    }
}

impl Cache {
    fn look(&mut self, dir: &Path) -> DirectoryRules {
        let is_repository = dir.join(".git").exists();
        let mut of = |name: &str| self.rules(dir, &dir.join(name));
        let exclude = if is_repository { of(".git/info/exclude") } else { Gitignore::empty() };
        DirectoryRules { ignore: of(".ignore"), git: [of(".gitignore"), exclude], is_repository }
    }

    /// The rules of a file for what lies in `dir`. What is not there, or cannot be read, has none, and neither has a line that is no
    /// rule.
    fn rules(&mut self, dir: &Path, path: &Path) -> Gitignore {
        // A link could lead anywhere, and what is left out would tell what is there. Git follows none either.
        let Ok((file, _)) = Entry::at(path).and_then(|entry| entry.open()) else { return Gitignore::empty() };
        let mut bytes = Vec::new();
        // One more, to see whether it goes on.
        if file.take(self.bytes + 1).read_to_end(&mut bytes).is_err() {
            return Gitignore::empty();
        }
        if bytes.len() as u64 > self.bytes {
            self.cut = true;
            // The last line may be half a rule.
            bytes.truncate(memchr::memrchr(b'\n', &bytes).unwrap_or_default());
            self.bytes = 0;
        } else {
            self.bytes -= bytes.len() as u64;
        }
        let mut rules = GitignoreBuilder::new(dir);
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.trim_start_matches('\u{feff}').lines().filter(|line| !line.starts_with('#'));
        for line in lines.filter(|line| !line.trim().is_empty()) {
            if self.rules == 0 || too_large(line, RULE_MAX).is_some() {
                self.cut = true;
                continue;
            }
            self.rules -= 1;
            // As git does.
            let _no_rule = rules.add_line(None, line);
        }
        rules.build().unwrap_or_else(|_| {
            // Together they are more than the regex engine takes.
            self.cut = true;
            Gitignore::empty()
        })
    }
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

    #[test]
    fn rules_are_kept_only_of_the_directories_that_the_walk_is_in() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let ignored = Ignored::default();
        for name in ["a/b/c", "a/d/e", "f"] {
            ignored.has(&root.join(name), false);
        }
        let above: Vec<PathBuf> = ignored.0.lock().unwrap().known.iter().map(|(dir, _)| dir.clone()).collect();
        let mut expect: Vec<PathBuf> = root.ancestors().map(Path::to_path_buf).collect();
        expect.reverse();
        assert_eq!(above, expect);
    }

    #[test]
    fn a_walk_takes_so_many_rules_and_says_what_it_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("a")).unwrap();
        let check = |rules: &str, below: &str, expect: [bool; 4]| {
            fs::write(root.join(".gitignore"), rules).unwrap();
            fs::write(root.join("a/.gitignore"), below).unwrap();
            let ignored = Ignored::default();
            let has = |path: &str| ignored.has(&root.join(path), false);
            assert_eq!([has("first"), has("last"), has("a/below"), !ignored.left_out().is_empty()], expect);
        };
        check("first\nlast\n", "below\n", [true, true, true, false]);
        check(&format!("first\n# {}\nlast\n", "{".repeat(5000)), "below\n", [true, true, true, false]);
        check(
            &format!("first\n{}x{}\nlast\n", "{".repeat(30_000), "}".repeat(30_000)),
            "below\n",
            [true, true, true, true],
        );
        check(&format!("first\n{}x{}\nlast\n", "{".repeat(100), "}".repeat(100)), "below\n", [true, true, true, true]);
        let lines = |count: usize| (0..count).map(|n| format!("/n{n}\n")).collect::<String>();
        check(&format!("first\n{}last\n", lines(RULES_MAX - 2)), "below\n", [true, true, false, true]);
        check(&format!("first\n{}last\n", lines(RULES_MAX)), "below\n", [true, false, false, true]);
        let long = format!("# {}\n", "x".repeat(1000)).repeat(BYTES_MAX as usize / 1003 - 1);
        check(&format!("first\n{long}last\n"), &format!("below\n{long}"), [true, true, true, true]);
        check(&format!("first\n{long}{long}last\n"), "below\n", [true, false, false, true]);
    }
}
