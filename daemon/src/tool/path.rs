//! Paths by their letters alone: without `.` and `..`, and shown to people and models.

use std::path::{Component, Path, PathBuf};

use super::text::one_line;

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
