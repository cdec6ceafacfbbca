//! Patterns of paths, and the walk below a directory that glob and grep share.
//!
//! The walk keeps to `.gitignore` ([`Ignored`]), leaves hidden files out unless a pattern names one, and never follows a link.
//!
//! A pattern is a model's, and a rule of a `.gitignore` a repository's: [`too_large`] is asked before any of them is compiled.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use globset::{Glob, GlobBuilder, GlobMatcher};
use ignore::WalkBuilder;
use tokio_util::sync::CancellationToken;

use super::Invalid;
use super::ignored::Ignored;

/// Files that one call looks at; more than the largest repositories have.
const FILES_MAX: u64 = 1_000_000;

/// The longest pattern of a call, in bytes: no path is longer (PATH_MAX).
pub(super) const PATTERN_MAX: usize = 4096;

/// Braces that a pattern may open; people write one or two. globset calls itself for each level of them, until the stack is used
/// up, and panics at levels that its regex engine refuses, which are 80 or so.
const BRACES_MAX: usize = 32;

/// What to say of a pattern that takes too much to compile: it is longer than `max` bytes, or opens too many braces.
pub(crate) fn too_large(pattern: &str, max: usize) -> Option<String> {
    if pattern.len() > max {
        return Some(format!("it has {} bytes, and may have {max}", pattern.len()));
    }
    // `[{]`, as rules have it for a brace in a name, opens none; of an escaped bracket that cannot be said.
    let literal = pattern.matches("[{]").count() - pattern.matches("\\[{]").count();
    let open = pattern.matches('{').count() - literal;
    (open > BRACES_MAX).then(|| format!("it opens {open} braces, and may open {BRACES_MAX}"))
}

/// A glob. Without a `/` it is a name at any depth.
pub(super) struct Pattern {
    glob: GlobMatcher,
    /// Whether a part of it begins with a dot.
    hidden: bool,
}

impl Pattern {
    /// Compiles it, which costs time and memory: when the call runs.
    pub(super) fn new(pattern: &str) -> Result<Self, Invalid> {
        let glob = parse(pattern)?.compile_matcher();
        Ok(Self { glob, hidden: pattern.split('/').any(|part| part.starts_with('.') && part != ".") })
    }

    /// What is wrong with it, if anything.
    pub(super) fn check(pattern: &str) -> Result<(), Invalid> {
        parse(pattern).map(drop)
    }

    /// Whether a relative path is meant.
    pub(super) fn is_match(&self, path: &Path) -> bool {
        self.glob.is_match(path)
    }
}

fn parse(pattern: &str) -> Result<Glob, Invalid> {
    if let Some(problem) = too_large(pattern, PATTERN_MAX) {
        return Err(Invalid(format!("the glob is too large: {problem}")));
    }
    if pattern.starts_with(['/', '~']) || pattern.split('/').any(|part| part == "..") {
        return Err(Invalid("`pattern` is relative; give the directory as `path`".to_owned()));
    }
    let pattern = pattern.trim_start_matches("./");
    let anywhere = if pattern.contains('/') { "" } else { "**/" };
    let glob = GlobBuilder::new(&format!("{anywhere}{pattern}")).literal_separator(true).build();
    // The error has the pattern without what was added to it.
    glob.map_err(|error| Invalid(format!("error parsing glob '{pattern}': {}", error.kind())))
}

/// The paths below a directory of all but directories, relative to it and sorted, and whether each is a regular file.
/// It goes by names: if a link takes the place of a directory meanwhile, it may list what is behind. So its caller opens each
/// path by handle.
pub(super) struct Walk<'a> {
    root: PathBuf,
    inner: ignore::Walk,
    ignored: Arc<Ignored>,
    token: &'a CancellationToken,
    seen: u64,
    unreadable: u64,
}

impl<'a> Walk<'a> {
    /// Goes through `root`; hidden files are left out unless the pattern or `hidden` means them.
    pub(super) fn new(root: &Path, (pattern, hidden): (Option<&Pattern>, bool), token: &'a CancellationToken) -> Self {
        let ignored = Arc::new(Ignored::default());
        let rules = ignored.clone();
        let inner = WalkBuilder::new(root)
            // These files are opened by `Ignored`: the walk would open whatever has their names, a device or a FIFO too.
            .standard_filters(false)
            .hidden(!hidden && !pattern.is_some_and(|pattern| pattern.hidden))
            .filter_entry(move |entry| {
                let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
                entry.depth() == 0 || (entry.file_name() != ".git" && !rules.has(entry.path(), is_dir))
            })
            .sort_by_file_name(Ord::cmp)
            .build();
        Self { root: root.to_path_buf(), inner, ignored, token, seen: 0, unreadable: 0 }
    }

    /// What the walk left out, in words; empty if nothing.
    pub(super) fn left_out(&self) -> String {
        let mut said = String::new();
        if self.seen >= FILES_MAX {
            said.push_str(&format!("[stopped after {FILES_MAX} files; give a `path`]\n"));
        }
        if self.unreadable > 0 {
            said.push_str(&format!("[{} directories could not be read]\n", self.unreadable));
        }
        said.push_str(&self.ignored.left_out());
        said
    }
}

impl Iterator for Walk<'_> {
    type Item = (PathBuf, bool);

    fn next(&mut self) -> Option<(PathBuf, bool)> {
        while self.seen < FILES_MAX && !self.token.is_cancelled() {
            match self.inner.next()? {
                Ok(entry) if entry.file_type().is_some_and(|kind| !kind.is_dir()) => {
                    self.seen += 1;
                    let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
                    let path = entry.path().strip_prefix(&self.root).unwrap_or(entry.path()).to_path_buf();
                    return Some((path, is_file));
                }
                Ok(_) => {}
                Err(_) => self.unreadable += 1,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pattern_that_takes_too_much_is_refused_before_it_is_compiled() {
        let nested = |depth: usize| format!("{}x{}", "{".repeat(depth), "}".repeat(depth));
        let check = |pattern: &str, expect: &str| assert_eq!(Pattern::new(pattern).err().unwrap().0, expect);
        check(&nested(50_000), "the glob is too large: it has 100001 bytes, and may have 4096");
        check(&nested(1000), "the glob is too large: it opens 1000 braces, and may open 32");
        let escaped = format!("{}x{}", r"\[{]".repeat(600), "}".repeat(600));
        check(&escaped, "the glob is too large: it opens 600 braces, and may open 32");
    }

    #[test]
    fn the_largest_patterns_compile() {
        for piece in ["?", "*", "**/", "[!a]", "é", "[!a-é]", "a/**/", "[{]", "\\?"] {
            let pattern = piece.repeat(PATTERN_MAX / piece.len());
            assert_eq!(Pattern::new(&pattern).map(drop), Ok(()), "{piece}");
        }
        let nested = format!("{}x{}", "{a,**/".repeat(BRACES_MAX), "}".repeat(BRACES_MAX));
        let pattern = Pattern::new(&format!("b/{nested}")).unwrap();
        assert!(pattern.is_match(Path::new("b/a")) && !pattern.is_match(Path::new("a")));
    }

    proptest! {
        #[test]
        fn no_pattern_makes_the_daemon_panic(pattern in r"[a{}\[\]!^*/,?é\\-]{0,60}") {
            let _either = Pattern::new(&pattern).map(drop);
        }
    }
}
