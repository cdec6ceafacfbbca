//! Paths: what a model writes, made absolute without touching the disk, and shown again.

use std::path::{Component, Path, PathBuf};

use super::text::one_line;
use super::{Invalid, Workspace};

/// The absolute path without `.` and `..` that a model's `path` means; `~` is the session's HOME.
pub(crate) fn absolute(workspace: &Workspace, path: &str) -> Result<PathBuf, Invalid> {
    if path.is_empty() {
        return Err(Invalid("`path` is empty".to_owned()));
    }
    if path.contains('\0') {
        return Err(Invalid("`path` has a NUL in it".to_owned()));
    }
    let home = workspace.env.get("HOME").map(Path::new);
    let path = match (path.strip_prefix('~'), home) {
        (Some(""), Some(home)) => home.to_path_buf(),
        (Some(rest), Some(home)) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        _ => workspace.cwd.join(path),
    };
    Ok(normalise(&path))
}

/// As [`absolute`]; the session's directory when there is no path.
pub(super) fn directory(workspace: &Workspace, path: Option<&str>) -> Result<PathBuf, Invalid> {
    absolute(workspace, path.unwrap_or("."))
}

/// `path` without `.` and `..`, by its letters alone: what a rule sees is what is opened.
pub(crate) fn normalise(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, component| {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                path.pop();
            }
            other => path.push(other),
        }
        path
    })
}

/// `path` for people and models: relative to `cwd` when it is below it, on one line.
pub(super) fn show(cwd: &Path, path: &Path) -> String {
    match path.strip_prefix(cwd) {
        Ok(rest) if rest.as_os_str().is_empty() => ".".to_owned(),
        Ok(rest) => one_line(&rest.to_string_lossy()),
        Err(_) => one_line(&path.to_string_lossy()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::tests::test_workspace;

    #[test]
    fn paths_are_absolute_and_plain() {
        let (_dir, mut workspace) = test_workspace();
        workspace.cwd = "/w/x".into();
        let check = |path, absolute_path: &str, shown: &str| {
            let got = absolute(&workspace, path).unwrap();
            assert_eq!((got.to_str().unwrap(), show(&workspace.cwd, &got).as_str()), (absolute_path, shown));
        };
        check(".", "/w/x", ".");
        check("a/./b/../c", "/w/x/a/c", "a/c");
        check("../../../../etc", "/etc", "/etc");
        check("/w/x/a", "/w/x/a", "a");
        check("~/a", "/home/nobody/a", "/home/nobody/a");
        check("~", "/home/nobody", "/home/nobody");
        check("~a", "/w/x/~a", "~a");
        check("a\nb", "/w/x/a\nb", "a\\nb");
    }
}
