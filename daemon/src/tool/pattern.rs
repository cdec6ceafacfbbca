//! Patterns of paths.
//!
//! A pattern is a model's, and a rule of a `.gitignore` a repository's: [`too_large`] is asked before any of them is compiled.

use std::path::Path;

use globset::{Glob, GlobBuilder, GlobMatcher};

use super::invalid::Invalid;

/// The longest pattern of a call, in bytes: no path is longer (PATH_MAX).
pub(super) const PATTERN_MAX: usize = 4096;

/// Braces that a pattern may open; people write one or two. globset calls itself for each level of them, until the stack is used
/// up, and panics at levels that its regex engine refuses, which are 80 or so.
const BRACES_MAX: usize = 32;

/// Why a pattern takes too much to compile: it is longer than `max` bytes, or opens too many braces. Absent if it does not.
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
    names_hidden: bool,
}

impl Pattern {
    /// Compiles it, which costs time and memory: when the call runs.
    pub(super) fn new(pattern: &str) -> Result<Self, Invalid> {
        let glob = parse(pattern)?.compile_matcher();
        let names_hidden = pattern.split('/').any(|part| part.starts_with('.') && part != ".");
        Ok(Self { glob, names_hidden })
    }

    /// Fails if it is no pattern, or takes too much to compile.
    pub(super) fn check(pattern: &str) -> Result<(), Invalid> {
        parse(pattern).map(drop)
    }

    /// Whether it names hidden files.
    pub(super) fn names_hidden(&self) -> bool {
        self.names_hidden
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
