//! The files that git ignores by `.gitignore` files (gitignore(5)): lines of patterns; the last match decides. Pure but for
//! reading the files. Deliberately absent: the user's global excludes file, which git's configuration names.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The bytes of one file of patterns that are read: the longest ones that projects have take some thousand.
const MAX_FILE: u64 = 64 << 10;

/// The patterns of a directory and of those above it, up to the repository's root.
#[derive(Clone, Debug, Default)]
pub(super) struct Ignored {
    /// Directories with their patterns, the outermost first.
    levels: Vec<(PathBuf, Vec<IgnorePattern>)>,
}

#[derive(Clone, Debug)]
struct IgnorePattern {
    /// The pattern's parts between slashes.
    parts: Vec<String>,
    /// Whether it takes back what one before it ignores.
    negated: bool,
    /// Whether it is for directories alone.
    directory: bool,
}

impl Ignored {
    /// The patterns that hold in `directory`; none outside of a repository.
    pub(super) fn of(directory: &Path) -> Self {
        let mut ignored = Self::default();
        let Some(root) = directory.ancestors().find(|above| above.join(".git").exists()) else { return ignored };
        ignored.read(root, &root.join(".git/info/exclude"));
        let mut between: Vec<_> = directory.ancestors().take_while(|above| *above != root).collect();
        between.push(root);
        between.iter().rev().for_each(|level| ignored.enter(level));
        ignored
    }

    /// Adds the patterns of a directory below.
    pub(super) fn enter(&mut self, directory: &Path) {
        self.read(directory, &directory.join(".gitignore"));
    }

    fn read(&mut self, directory: &Path, file: &Path) {
        // Opening a pipe would wait for its other end.
        if !file.metadata().is_ok_and(|there| there.is_file()) {
            return;
        }
        let mut text = Vec::new();
        let read = File::open(file).and_then(|file| file.take(MAX_FILE).read_to_end(&mut text));
        let patterns: Vec<_> = String::from_utf8_lossy(&text).lines().filter_map(pattern).collect();
        if read.is_ok() && !patterns.is_empty() {
            self.levels.push((directory.to_path_buf(), patterns));
        }
    }

    /// Whether git ignores this path, whose directory it does not ignore.
    pub(super) fn has(&self, path: &Path, is_directory: bool) -> bool {
        for (level, patterns) in self.levels.iter().rev() {
            let Ok(below) = path.strip_prefix(level) else { continue };
            let parts: Vec<_> = below.components().map(|part| part.as_os_str().to_string_lossy()).collect();
            let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
            let fits =
                |pattern: &&IgnorePattern| (is_directory || !pattern.directory) && path_fits(&pattern.parts, &parts);
            if let Some(pattern) = patterns.iter().rev().find(fits) {
                return !pattern.negated;
            }
        }
        false
    }
}

/// The pattern of a line; none of an empty one or a comment.
fn pattern(line: &str) -> Option<IgnorePattern> {
    let mut line = line.strip_suffix('\r').unwrap_or(line);
    while let Some(shorter) = line.strip_suffix(' ').filter(|shorter| !shorter.ends_with('\\')) {
        line = shorter;
    }
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (negated, line) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
    let (directory, line) = line.strip_suffix('/').map_or((false, line), |rest| (true, rest));
    let mut parts: Vec<String> = line.split('/').map(str::to_owned).collect();
    // A name alone fits at any depth; a pattern with a slash begins at its file's directory.
    match parts.first().map(String::as_str) {
        Some("") if parts.len() > 1 => drop(parts.remove(0)),
        Some("") | None => return None,
        Some(_) if parts.len() == 1 => parts.insert(0, "**".to_owned()),
        Some(_) => {}
    }
    Some(IgnorePattern { parts, negated, directory })
}

/// Whether a path fits; `**` matches any number of directories; at the end it needs at least one name.
fn path_fits(pattern: &[String], path: &[&str]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut back = None;
    while t < path.len() {
        match pattern.get(p).map(String::as_str) {
            Some("**") => {
                if p + 1 == pattern.len() {
                    return true;
                }
                back = Some((p, t));
                p += 1;
            }
            Some(part) if path.get(t).is_some_and(|name| fits(part, name)) => (p, t) = (p + 1, t + 1),
            _ => match back {
                Some((at, from)) => {
                    back = Some((at, from + 1));
                    (p, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    p == pattern.len()
}

/// Whether a name fits a pattern without slashes, in time that grows with the product of their lengths.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut back = None;
    while let Some(c) = name.get(n) {
        let next = match pattern.get(p) {
            Some('*') => {
                back = Some((p, n));
                p += 1;
                continue;
            }
            Some('?') => Some(p + 1),
            Some('[') => class(&pattern, p, *c),
            Some('\\') => pattern.get(p + 1).filter(|literal| *literal == c).map(|_| p + 2),
            Some(literal) => (literal == c).then_some(p + 1),
            None => None,
        };
        match (next, back) {
            (Some(next), _) => (p, n) = (next, n + 1),
            (None, Some((star, from))) => {
                back = Some((star, from + 1));
                (p, n) = (star + 1, from + 1);
            }
            (None, None) => return false,
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

/// Where the pattern continues after a class such as `[a-z]` or `[!a]` at `at`, if the character is in it.
fn class(pattern: &[char], at: usize, c: char) -> Option<usize> {
    let mut p = at + 1;
    let negated = matches!(pattern.get(p), Some('!' | '^'));
    p += usize::from(negated);
    let (mut found, mut first) = (false, true);
    loop {
        let begin = *pattern.get(p)?;
        if begin == ']' && !first {
            break;
        }
        first = false;
        let end = match (pattern.get(p + 1), pattern.get(p + 2)) {
            (Some('-'), Some(end)) if *end != ']' => {
                p += 2;
                *end
            }
            _ => begin,
        };
        found |= (begin..=end).contains(&c);
        p += 1;
    }
    (found != negated).then_some(p + 1)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the real git says what is right")]
    fn what_is_ignored_is_what_git_ignores() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let git = |args: &[&str]| {
            let mut git = std::process::Command::new("git");
            git.args(args).current_dir(&root).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
            let output = git.output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        git(&["init", "-q"]);
        let patterns = "# a comment\n\ntarget/\n/only_here\n*.log\n!keep.log\ndocs/*.txt\nsrc/**/gen\n**/deep/x\n\\#odd\n[ab]?.c\n[!a-z].h\nend \nlib/**\na*b*c\n";
        fs::write(root.join(".gitignore"), patterns).unwrap();
        fs::write(root.join(".git/info/exclude"), "excluded\n").unwrap();
        let files = [
            "target/debug/a",
            "sub/target/b",
            "target.rs",
            "only_here",
            "sub/only_here",
            "x.log",
            "sub/keep.log",
            "docs/a.txt",
            "docs/sub/a.txt",
            "src/gen",
            "src/a/b/gen",
            "gen",
            "p/q/deep/x",
            "deep/x",
            "#odd",
            "ax.c",
            "cx.c",
            "abc.c",
            "1.h",
            "a.h",
            "end",
            "lib/a",
            "lib/b/c",
            "axbxc",
            "acb",
            "excluded",
            "sub/inner.tmp",
            "sub/other.tmp",
            "plain",
        ];
        for file in files {
            fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            fs::write(root.join(file), "").unwrap();
        }
        fs::write(root.join("sub/.gitignore"), "*.tmp\n!other.tmp\n!/only_here\n").unwrap();
        let listed = git(&["ls-files", "--others", "--exclude-standard"]);
        for file in files {
            let mut ignored = Ignored::of(&root);
            let path = root.join(file);
            let mut above: Vec<_> = path.ancestors().skip(1).take_while(|above| *above != root).collect();
            above.reverse();
            let mut is = false;
            for directory in above {
                is |= ignored.has(directory, true);
                ignored.enter(directory);
            }
            is |= ignored.has(&path, false);
            assert_eq!(!is, listed.lines().any(|line| line == file), "{file}");
        }
    }

    #[test]
    fn a_pattern_of_a_hostile_repository_takes_no_time() {
        let pattern = "*a".repeat(200);
        assert!(!fits(&format!("{pattern}b"), &"a".repeat(250)));
        let parts: Vec<String> = "**/a/".repeat(100).split('/').map(str::to_owned).collect();
        assert!(!path_fits(&parts, &["a"; 200]));
    }
}
