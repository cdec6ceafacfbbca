//! Files that a workspace with HOME in it must not change unasked: those that shells, logins, service managers and git
//! read, and programs on the PATH.
//!
//! Such a workspace is a directory of everything, not of a project; in one below HOME nothing here applies.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::rule::Target;
use crate::tool::Workspace;

/// Directories of HOME that have no dot: `~/bin` is on the PATH of many logins, and macOS starts what `~/Library` names.
const OF_HOME: [&str; 2] = ["bin", "Library"];

/// Directories of `/` where the system keeps its programs, and what starts them; and `lib64` and the like. A project in one of them
/// is a workspace of its own.
const OF_ROOT: [&str; 15] = [
    "Applications",
    "Library",
    "System",
    "bin",
    "boot",
    "dev",
    "etc",
    "lib",
    "opt",
    "proc",
    "run",
    "sbin",
    "sys",
    "usr",
    "var",
];

/// Whether mode `edit` asks before this file of a workspace with HOME in it is changed. Blocks on the disk.
pub(super) fn steers(target: &Target, workspace: &Workspace, home: Option<&Path>) -> bool {
    let own = workspace.env.get("HOME").map(Path::new);
    let homes: Vec<PathBuf> = home.into_iter().chain(own).map(|home| workspace.resolve(home)).collect();
    let added = workspace.added.now();
    // A file that a directory below HOME has too is of that project.
    let narrowest = |path: &PathBuf| {
        let roots = std::iter::once(&workspace.root).chain(added.iter()).filter(|root| path.starts_with(root));
        roots.max_by_key(|root| root.components().count())
    };
    let roots = [&target.literal, &target.resolved].into_iter().filter_map(narrowest);
    let with_home = |root: &&PathBuf| homes.iter().any(|home| home.starts_with(root));
    roots.filter(with_home).any(|root| steers_below(root, target, &homes, workspace))
}

/// The same of a directory with HOME in it.
fn steers_below(root: &Path, target: &Target, homes: &[PathBuf], workspace: &Workspace) -> bool {
    let named = |name: &str| workspace.env.get(name).map(String::as_str).unwrap_or_default();
    let programs = named("PATH").split(':').chain([named("XDG_CONFIG_HOME")]).map(Path::new);
    let guarded: Vec<PathBuf> = programs
        .filter(|dir| dir.is_absolute())
        .flat_map(|dir| [dir.to_path_buf(), workspace.resolve(dir)])
        .chain(homes.iter().flat_map(|home| OF_HOME.map(|name| home.join(name))))
        .filter(|dir| *dir != root)
        .collect();
    [&target.literal, &target.resolved].into_iter().any(|path| {
        let below = path.strip_prefix(root).unwrap_or(path);
        has_dot(below)
            || guarded.iter().any(|dir| path.starts_with(dir))
            || (root == Path::new("/") && is_of_system(below))
    })
}

/// Whether a part of the path begins with a dot.
fn has_dot(path: &Path) -> bool {
    path.components().any(|part| matches!(part, Component::Normal(name) if name.as_bytes().starts_with(b".")))
}

/// Whether a path below `/` is where the system keeps programs.
fn is_of_system(path: &Path) -> bool {
    let first = path.components().next().map(|part| part.as_os_str().to_string_lossy());
    first.is_some_and(|name| OF_ROOT.contains(&&*name) || name.starts_with("lib"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_the_system_are_known_by_their_directory() {
        for (path, expect) in
            [("etc/cron.d/x", true), ("lib64/x", true), ("usr/local/bin/x", true), ("srv/app/x", false)]
        {
            assert_eq!(is_of_system(Path::new(path)), expect, "{path}");
        }
    }
}
