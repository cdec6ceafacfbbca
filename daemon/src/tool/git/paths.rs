//! The paths of an inspection: told from revisions, and taken literally.
//!
//! Git reads a word as a revision, as a path, or as a pattern with magic (`:(top)x`, `:!x`, `*.rs`). Here a path is a path: without
//! `.` and `..`, below the root, and with no link in one of its directories. What cannot be looked at is refused.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::process::Git;
use crate::tool::invalid::Invalid;
use crate::tool::{path, text};

/// Where an inspection works; both without links.
#[derive(Clone, Debug)]
pub(super) struct PathBase {
    /// The worktree.
    pub(super) root: PathBuf,
    /// The directory that its paths are relative to.
    pub(super) cwd: PathBuf,
}

/// A path that an inspection names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedPath {
    /// As it was given.
    pub(super) word: String,
    /// Below the root of the worktree, without `.` and `..`.
    pub(super) below: PathBuf,
    /// Whether its author may have meant several files: it has signs of a pattern, and names nothing.
    pub(super) looks_like_a_pattern: bool,
}

impl NamedPath {
    /// Looks a path up. Fails if it leads out of the worktree, if one of its directories is a link, and if that cannot be said.
    /// Blocks.
    pub(super) fn of(word: String, place: &PathBase) -> Result<Self, Invalid> {
        let shown = text::one_line(&word);
        let Ok(below) = path::normalise(&place.cwd.join(&word)).strip_prefix(&place.root).map(Path::to_path_buf) else {
            return Err(Invalid(format!("{shown} is outside of the workspace")));
        };
        let mut at = place.root.clone();
        for directory in below.parent().into_iter().flat_map(Path::components) {
            at.push(directory);
            match at.symlink_metadata() {
                // A file of former times may be where there is no directory now.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => break,
                Err(error) => return Err(Invalid(format!("{shown}: {} cannot be looked at: {error}", at.display()))),
                Ok(status) if status.is_symlink() => {
                    let link = text::one_line(&at.to_string_lossy());
                    return Err(Invalid(format!("{shown}: its directory {link} is a link; name the file without it")));
                }
                Ok(_) => {}
            }
        }
        let has_signs = word.starts_with(':') || word.contains(['*', '?', '[']);
        let looks_like_a_pattern = has_signs && place.root.join(&below).symlink_metadata().is_err();
        Ok(Self { word, below, looks_like_a_pattern })
    }

    /// As a pattern that means this path alone, wherever git is started.
    pub(super) fn pattern(&self) -> String {
        let below = self.below.to_string_lossy();
        format!(":(top,literal){}", if below.is_empty() { "." } else { &below })
    }

    /// As a path from the directory in which git is started.
    pub(super) fn plain(&self, place: &PathBase) -> String {
        let up = place.cwd.strip_prefix(&place.root).map_or(0, |below| below.components().count());
        let path: PathBuf = std::iter::repeat_n(Path::new(".."), up).collect::<PathBuf>().join(&self.below);
        path.to_string_lossy().into_owned()
    }
}

/// How many of these words are revisions: the others are paths, as git says. Fails if a word is neither.
pub(super) async fn revisions(git: &Git, words: &[String]) -> Result<usize, Invalid> {
    if words.is_empty() {
        return Ok(0);
    }
    if words.iter().any(|word| word.contains('\n')) {
        return Err(Invalid("a word has a newline: name paths behind `--`".to_owned()));
    }
    let args: Vec<&str> =
        ["rev-parse", "--no-revs", "--no-flags"].into_iter().chain(words.iter().map(String::as_str)).collect();
    let paths = git.run(&args).await?.lines().count();
    words.len().checked_sub(paths).ok_or_else(|| Invalid("git does not tell revisions from paths".to_owned()))
}
