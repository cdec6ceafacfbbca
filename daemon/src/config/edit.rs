//! Writing the file: edits of its text, which keep comments and order, and its atomic replacement.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use toml_edit::{Array, DocumentMut, Item, Key, Table, TableLike, Value};

use super::ConfigError;

/// Why the file was not changed, or a change of it was not confirmed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The configuration is broken.
    #[error("the configuration is broken: {0}")]
    Broken(#[source] ConfigError),
    /// The changed file would be broken.
    #[error("{0}")]
    Refused(#[source] ConfigError),
    /// The key or the value cannot be written.
    #[error("{0}")]
    Invalid(String),
    /// The file is not the one that was shown.
    #[error("the configuration has changed meanwhile")]
    Stale,
    /// The confirmed settings cannot be stored.
    #[error("cannot store what is confirmed: {0}")]
    Unrecorded(String),
    /// The file cannot be read or replaced.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// `text` with `rule` added to the workspace's `list`, `allow` or `deny`; `None` if it is there already.
pub(super) fn append(text: &str, root: &Path, list: &str, rule: &str) -> io::Result<Option<String>> {
    let root = root.to_str().ok_or_else(|| io::Error::other("the workspace's path is not UTF-8"))?;
    let mut document: DocumentMut = text.parse().map_err(io::Error::other)?;
    let mut implicit = Table::new();
    // Implicit, so that no bare `[workspaces]` header is written.
    implicit.set_implicit(true);
    let workspaces = table(document.as_table_mut(), "workspaces", implicit)?;
    let workspace = table(workspaces, root, Table::new())?;
    let allow = workspace
        .entry(list)
        .or_insert_with(|| Item::Value(Value::Array(Array::new())))
        .as_array_mut()
        .ok_or_else(|| io::Error::other(format!("`{list}` is not a list")))?;
    if allow.iter().any(|entry| entry.as_str() == Some(rule)) {
        return Ok(None);
    }
    // In a multi-line list the new entry gets a line of its own, below the comment on the last one.
    let indent = allow.iter().last().and_then(|entry| entry.decor().prefix()?.as_str()?.rsplit_once('\n'));
    let indent = indent.map(|(_, indent)| indent.to_owned());
    let trailing = allow.trailing().as_str().unwrap_or_default().trim_end().to_owned();
    allow.push(rule);
    if let (Some(indent), Some(entry)) = (indent, allow.iter_mut().last()) {
        entry.decor_mut().set_prefix(format!("{trailing}\n{indent}"));
        allow.set_trailing("\n");
    }
    Ok(Some(document.to_string()))
}

/// `text` without `rule` in the lists of workspaces, of the one with this root or of all; and the roots where it stood, with
/// whether it refused there.
pub(super) fn without_rule(text: &str, root: Option<&Path>, rule: &str) -> io::Result<(String, Vec<(PathBuf, bool)>)> {
    let mut document: DocumentMut = text.parse().map_err(io::Error::other)?;
    let mut removed = Vec::new();
    let workspaces = document.get_mut("workspaces").and_then(Item::as_table_like_mut);
    for (name, workspace) in workspaces.into_iter().flat_map(|table| table.iter_mut()) {
        let this = PathBuf::from(name.get());
        let Some(lists) = workspace.as_table_like_mut().filter(|_| root.is_none_or(|root| root == this)) else {
            continue;
        };
        for (name, refuses) in [("allow", false), ("deny", true)] {
            let Some(list) = lists.get_mut(name).and_then(Item::as_array_mut) else { continue };
            let before = list.len();
            list.retain(|entry| entry.as_str().map(str::trim) != Some(rule));
            if list.len() < before {
                removed.push((this.clone(), refuses));
            }
        }
    }
    Ok((document.to_string(), removed))
}

/// `text` with `value` at the dotted `key`. A value that is not TOML is a string.
pub(super) fn set(text: &str, key: &str, value: &str) -> Result<String, EditError> {
    let invalid = |problem: String| EditError::Invalid(format!("`{key}`: {problem}"));
    let path = Key::parse(key).map_err(|error| invalid(format!("is not a key: {}", error.message())))?;
    let mut new: Value = value.trim().parse().unwrap_or_else(|_| Value::from(value));
    let mut document: DocumentMut = text.parse().map_err(io::Error::other)?;
    let Some((last, parents)) = path.split_last() else { return Err(invalid("is empty".to_owned())) };
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for parent in parents {
        let mut implicit = Table::new();
        implicit.set_implicit(true);
        table = self::table(table, parent.get(), implicit).map_err(|error| invalid(error.to_string()))?;
    }
    match table.get_mut(last.get()) {
        Some(Item::Value(old)) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        Some(_) => return Err(invalid("is a table; name one of its keys".to_owned())),
        None => drop(table.insert(last.get(), Item::Value(new))),
    }
    Ok(document.to_string())
}

/// A synced temporary file that can replace another atomically.
pub(super) struct Prepared {
    new: NamedTempFile,
    file: PathBuf,
}

impl Prepared {
    /// Writes `text` next to `file`, with the same mode, or 0600. A symlink is followed and stays.
    pub(super) fn new(file: &Path, text: &str) -> io::Result<Self> {
        let file = if file.is_symlink() { file.canonicalize()? } else { file.to_path_buf() };
        let dir = directory(&file)?;
        make_directory(dir)?;
        let mut new = tempfile::Builder::new().prefix(".config.toml.").tempfile_in(dir)?;
        new.write_all(text.as_bytes())?;
        if let Ok(old) = std::fs::metadata(&file) {
            new.as_file().set_permissions(old.permissions())?;
        }
        new.as_file().sync_all()?;
        Ok(Self { new, file })
    }

    /// Replaces the file, and syncs its directory.
    pub(super) fn put(self) -> io::Result<()> {
        self.new.persist(&self.file)?;
        std::fs::File::open(directory(&self.file)?)?.sync_all()
    }
}

fn directory(file: &Path) -> io::Result<&Path> {
    file.parent().ok_or_else(|| io::Error::other("the file has no directory"))
}

/// Creates the directory with mode 0700; an existing one is unchanged.
pub(super) fn make_directory(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

pub(super) fn table<'a>(parent: &'a mut dyn TableLike, key: &str, new: Table) -> io::Result<&'a mut dyn TableLike> {
    parent
        .entry(key)
        .or_insert_with(|| Item::Table(new))
        .as_table_like_mut()
        .ok_or_else(|| io::Error::other(format!("`{key}` is not a table")))
}
