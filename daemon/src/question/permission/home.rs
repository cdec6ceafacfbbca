//! Files outside of projects that mode `edit` changes only after asking: those that shells, logins, service managers and programs
//! read in the home directory, and programs on the PATH. It depends on where a file is, and not on the workspace: `~/.config` and
//! `~/bin` are guarded as workspaces and as added directories, too.
//!
//! A workspace that contains the home directory is a directory of everything and not of a project: all its names with a dot ask, and
//! so do the directories of the system.

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

/// Why mode `edit` asks before this file is changed, if it does for where it lies. Blocks on the disk.
pub(super) fn reason(target: &Target, workspace: &Workspace, home: Option<&Path>) -> Option<String> {
    let is_own = |path: &Path| workspace.bound_by.is_some() && path.starts_with(&workspace.root);
    let paths: Vec<&Path> =
        [target.literal.as_path(), &target.resolved].into_iter().filter(|path| !is_own(path)).collect();
    let own = workspace.env.get("HOME").map(Path::new);
    let homes: Vec<PathBuf> = home
        .into_iter()
        .chain(own)
        .filter(|home| home.is_absolute())
        .flat_map(|home| [home.to_path_buf(), workspace.resolve(home)])
        .collect();
    let of_home = |path: &&Path| homes.iter().find_map(|home| of_home(path.strip_prefix(home).ok()?));
    let of_programs = || {
        let dirs = program_dirs(workspace, &homes);
        let found = dirs.into_iter().find(|dir| paths.iter().any(|path| dir.holds(path, &workspace.root)));
        found.map(|dir| dir.reason())
    };
    let of_everything = || {
        let is_any = is_of_everything(target, workspace, &homes);
        is_any.then(|| "the workspace contains the home directory, where such files start programs".to_owned())
    };
    paths.iter().find_map(of_home).or_else(of_programs).or_else(of_everything)
}

/// The reason for a path below the home directory: its first part begins with a dot, or is known.
fn of_home(below: &Path) -> Option<String> {
    let Component::Normal(first) = below.components().next()? else { return None };
    let is_known = OF_HOME.iter().any(|name| first.eq_ignore_ascii_case(name));
    if !is_known && !first.as_bytes().starts_with(b".") {
        return None;
    }
    Some(format!("`~/{}` of the home directory has settings or programs that start elsewhere", first.to_string_lossy()))
}

/// A directory that programs are started from, or configured in.
struct ProgramDir {
    path: PathBuf,
    /// The variable that names it.
    variable: &'static str,
}

impl ProgramDir {
    /// Whether a change of `path` changes it. Of a directory on the PATH with the whole workspace in it only its own files count: a
    /// program is started by its name alone.
    fn holds(&self, path: &Path, root: &Path) -> bool {
        if self.variable == "PATH" && root.starts_with(&self.path) {
            return path.parent() == Some(&self.path);
        }
        path.starts_with(&self.path)
    }

    fn reason(&self) -> String {
        format!("`{}` is a directory of {}, from which programs start", self.path.display(), self.variable)
    }
}

fn program_dirs(workspace: &Workspace, homes: &[PathBuf]) -> Vec<ProgramDir> {
    let named = |name: &str| workspace.env.get(name).map(String::as_str).unwrap_or_default();
    let on_path = named("PATH").split(':').map(|dir| (dir, "PATH"));
    // A home directory that is its own directory of settings is guarded by its dots.
    let is_home = |dir: &Path| homes.iter().any(|home| home.starts_with(dir));
    on_path
        .chain([(named("XDG_CONFIG_HOME"), "XDG_CONFIG_HOME")])
        .filter(|(dir, variable)| Path::new(dir).is_absolute() && (*variable == "PATH" || !is_home(Path::new(dir))))
        .flat_map(|(dir, variable)| {
            [PathBuf::from(dir), workspace.resolve(Path::new(dir))].map(|path| ProgramDir { path, variable })
        })
        .collect()
}

/// Whether the narrowest root with the file in it, of the workspace and the added directories, contains the home directory, and the
/// file has a name with a dot or is one of the system's.
fn is_of_everything(target: &Target, workspace: &Workspace, homes: &[PathBuf]) -> bool {
    let added = workspace.added.now();
    // A file that a directory below HOME has too is of that project.
    let narrowest = |path: &PathBuf| {
        let roots = std::iter::once(&workspace.root).chain(added.iter()).filter(|root| path.starts_with(root));
        roots.max_by_key(|root| root.components().count())
    };
    let roots = [&target.literal, &target.resolved].into_iter().filter_map(narrowest);
    let with_home = |root: &&PathBuf| homes.iter().any(|home| home.starts_with(root));
    roots.filter(with_home).any(|root| {
        [&target.literal, &target.resolved].into_iter().any(|path| {
            let below = path.strip_prefix(root).unwrap_or(path);
            has_dot(below) || (root == Path::new("/") && is_of_system(below))
        })
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
