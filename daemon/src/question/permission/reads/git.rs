//! Commands of `git` that only read, with the options of the tool `git`. Blocks on the disk.

use std::path::Path;

use super::arguments::is_modest;
use crate::tool::Workspace;
use crate::tool::git_reads::{is_plain, look};

/// The files that such a command opens.
pub(super) struct GitReads {
    /// The words that are files of the worktree.
    pub(super) paths: Vec<String>,
    /// Whether it shows what is in files, of any commit.
    pub(super) shows_contents: bool,
}

/// The files that git with these arguments reads in `base`, a directory without links; absent if it is not known only to read, or if the
/// repository names a program.
pub(super) fn read(args: &[String], base: &Path, workspace: &Workspace) -> Option<GitReads> {
    if !args.iter().all(|arg| is_modest(arg)) {
        return None;
    }
    let root = &workspace.root;
    let below = base.strip_prefix(root).ok()?;
    let seen = look(args, below.components().count())?;
    // Its own configuration would be one that a model can write.
    let own = ["HOME", "XDG_CONFIG_HOME"].iter().filter_map(|name| workspace.env.get(*name));
    if own.into_iter().any(|dir| workspace.contains(Path::new(dir))) || !is_plain(root, base) {
        return None;
    }
    // Magic and patterns mean other files to git than to the check, and so does a link on the way.
    let is_literal = |word: &&String| !word.starts_with(':') && !word.contains(['*', '?', '[', '\\']);
    let has_link = |word: &str| {
        Path::new(word).ancestors().filter(|part| !part.as_os_str().is_empty()).any(|part| base.join(part).is_symlink())
    };
    if !seen.words.iter().all(|word| is_literal(&word) && !has_link(word)) {
        return None;
    }
    let paths = seen.words.into_iter().filter(|word| base.join(word).symlink_metadata().is_ok()).collect();
    Some(GitReads { paths, shows_contents: seen.shows_contents })
}
