//! Why mode `edit` asks before a file in the workspace changes: it controls git or linger, starts programs elsewhere, or belongs to
//! the home directory or the PATH.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::rule::Target;
use super::{Rules, home, starters};
use crate::tool::Workspace;

/// The reason, behind "asks because"; absent if mode `edit` lets the file change. Blocks on the disk.
pub(super) fn reason(target: &Target, workspace: &Workspace, rules: &Rules) -> Option<String> {
    if is_in_git(&target.resolved) {
        return Some("it belongs to a git directory, and git runs what its configuration and hooks say".to_owned());
    }
    let own: Vec<PathBuf> = rules.own.iter().flat_map(|own| [own.clone(), workspace.resolve(own)]).collect();
    let of_place = || home::reason(target, workspace, rules.home.as_deref());
    let of_one = |path: &PathBuf| {
        // The worktree of a child lies in a directory of linger's, below a dot directory of the home directory.
        if let Some(below) = workspace.bound_by.as_ref().and_then(|_| path.strip_prefix(&workspace.root).ok()) {
            return starters::reason(below);
        }
        let of_linger =
            || own.iter().any(|own| path.starts_with(own)).then(|| "it is one of linger's own files".to_owned());
        starters::reason(path).or_else(of_linger)
    };
    [&target.literal, &target.resolved].into_iter().find_map(of_one).or_else(of_place)
}

/// Whether `path` is in a git directory, whatever its name: git runs the `config` and the hooks it finds there.
/// A git directory has a file `HEAD`, and either `objects` and `refs` or a `commondir` (gitrepository-layout(5)).
/// A new `HEAD` always asks, because writing one by hand has no honest use.
fn is_in_git(path: &Path) -> bool {
    let is = |name: &OsStr, known: &str| name.eq_ignore_ascii_case(known);
    if path.file_name().is_some_and(|name| is(name, "HEAD")) {
        return true;
    }
    path.ancestors().zip(path.ancestors().skip(1)).any(|(below, dir)| {
        let makes_one =
            || below.file_name().is_some_and(|name| ["objects", "refs", "commondir"].iter().any(|part| is(name, part)));
        let is_one = || dir.join("commondir").exists() || (dir.join("objects").is_dir() && dir.join("refs").is_dir());
        // git accepts a dangling symlink as `HEAD`.
        let head = dir.join("HEAD").symlink_metadata();
        head.is_ok_and(|head| !head.is_dir()) && (makes_one() || is_one())
    })
}
