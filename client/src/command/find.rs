//! Which session is meant: by name, id, a prefix of an id, or as the latest of the project that this directory is in.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use linger_protocol::method::SessionList;
use linger_protocol::session::{Info, List};

use crate::connect::Client;
use crate::environment::{now, working_directory};
use crate::error::Failure;
use crate::render::sessions::listing;
use crate::terminal::clean_line;

/// Candidates of an ambiguous name that are listed.
const MAX_CANDIDATES: usize = 10;

/// The least length of a prefix of an id, as the daemon has it.
pub(super) const MIN_PREFIX: usize = 4;

/// Directories that are searched on the way up to the root of the project: a deeper path is no project's.
const MAX_DEPTH: usize = 32;

/// The one session that `text` means: by name, id, or the beginning of an id.
pub(super) fn resolve(client: &mut Client, text: &str) -> Result<Info, Failure> {
    if text.is_empty() {
        return Err(Failure::usage("SESSION is empty: give a name or an id").hint("`linger ls` lists the sessions"));
    }
    let rows = client.call(&SessionList(List { matching: Some(text.to_owned()), ..List::default() }))?;
    if let Some(row) = meant(&rows, text)? {
        return Ok(row.clone());
    }
    match binned(client, text) {
        Ok(row) => Err(Failure::usage(format!("session {} is in the bin", row.session))
            .hint(format!("`linger rm --restore {}` takes it out", row.session))),
        Err(_) => Err(unknown(text, "no session is called", "`linger ls` lists the sessions")),
    }
}

/// Finds the session in the bin that `text` means. Former names count, the latest first.
pub(super) fn binned(client: &mut Client, text: &str) -> Result<Info, Failure> {
    let rows = client.call(&SessionList(List { bin: true, ..List::default() }))?;
    let begins = |row: &Info| text.chars().count() >= MIN_PREFIX && row.session.as_str().starts_with(text);
    let is_meant = |row: &Info| row.name.as_deref() == Some(text) || row.session.as_str() == text || begins(row);
    let rows: Vec<Info> = rows.into_iter().filter(is_meant).collect();
    match meant(&rows, text)? {
        Some(row) => Ok(row.clone()),
        None => Err(unknown(text, "nothing in the bin is called", "`linger ls --bin` lists what is there")),
    }
}

/// Whether `text` is the whole id or name of a session.
pub(super) fn is_whole(row: &Info, text: &str) -> bool {
    row.name.as_deref() == Some(text) || row.session.as_str() == text
}

/// Picks one of the matching rows: names before ids, ids before prefixes. Fails if several prefixes match.
fn meant<'a>(rows: &'a [Info], text: &str) -> Result<Option<&'a Info>, Failure> {
    let named = rows.iter().find(|row| row.name.as_deref() == Some(text));
    if let Some(row) = named.or_else(|| rows.iter().find(|row| row.session.as_str() == text)) {
        return Ok(Some(row));
    }
    match rows {
        [] => Ok(None),
        [row] => Ok(Some(row)),
        rows => {
            let mut lines = vec![format!("'{text}' could be one of {} sessions", rows.len())];
            lines.extend(listing(rows.get(..MAX_CANDIDATES).unwrap_or(rows), now()));
            Err(Failure::usage(lines.join("\n")).hint("write more of the id"))
        }
    }
}

fn unknown(text: &str, what: &str, hint: &str) -> Failure {
    let failure = Failure::usage(format!("{what} '{text}'"));
    if text.chars().count() < MIN_PREFIX {
        return failure.hint(format!("{hint}; a prefix of an id needs at least {MIN_PREFIX} characters"));
    }
    failure.hint(hint)
}

/// The latest session of the nearest directory that has one, from this one up to the root of its repository; on another machine,
/// where this directory means nothing, the latest of all. `lasting` skips sessions created by `linger run`.
pub(super) fn latest(client: &mut Client, from: Option<&Path>, lasting: bool) -> Result<Option<Info>, Failure> {
    if client.is_far() && from.is_none() {
        let list = List { lasting, limit: Some(1), ..List::default() };
        return Ok(client.call(&SessionList(list))?.into_iter().next());
    }
    for cwd in project(&directory(from)?) {
        let list = List { cwd: Some(cwd), lasting, limit: Some(1), ..List::default() };
        if let Some(info) = client.call(&SessionList(list))?.into_iter().next() {
            return Ok(Some(info));
        }
    }
    Ok(None)
}

/// Like [`latest`], but fails if there is none.
pub(super) fn must_be_latest(client: &mut Client, from: Option<&Path>, lasting: bool) -> Result<Info, Failure> {
    if let Some(info) = latest(client, from, lasting)? {
        return Ok(info);
    }
    let hint = match moved_here(client, from)? {
        Some(moved) => moved_hint(&moved),
        None => "give a session; `linger ls` lists them".to_owned(),
    };
    Err(Failure::usage("there is no session in this directory").hint(hint))
}

/// The latest session whose directory is gone and looks like this one: it has the same name, or was next to it.
pub(super) fn moved_here(client: &mut Client, from: Option<&Path>) -> Result<Option<Info>, Failure> {
    let here = directory(from)?;
    let rows = client.call(&SessionList(List::default()))?;
    let looks_like = |cwd: &Path| cwd.file_name() == here.file_name() || cwd.parent() == here.parent();
    let is_gone = |cwd: &Path| cwd.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    Ok(rows.into_iter().find(|row| row.parent.is_none() && looks_like(&row.cwd) && is_gone(&row.cwd)))
}

/// Says how a session comes here whose directory is gone.
pub(super) fn moved_hint(moved: &Info) -> String {
    let (cwd, session) = (clean_line(&moved.cwd.to_string_lossy()).into_owned(), &moved.session);
    format!(
        "session {session} worked in {cwd}, which is gone; if that is this directory now: `linger set {session} --dir .`"
    )
}

/// The directory that a command works on: `other`, relative to this one, or this one.
pub(super) fn directory(other: Option<&Path>) -> Result<PathBuf, Failure> {
    let here = working_directory()?;
    Ok(other.map_or_else(|| here.clone(), |other| here.join(other)))
}

/// The directories from `cwd` up to the root of its repository; only `cwd` outside a repository.
fn project(cwd: &Path) -> Vec<PathBuf> {
    let up: Vec<PathBuf> = cwd.ancestors().take(MAX_DEPTH).map(Path::to_path_buf).collect();
    match up.iter().position(|dir| dir.join(".git").exists()) {
        Some(root) => up.into_iter().take(root + 1).collect(),
        None => vec![cwd.to_path_buf()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_reaches_up_to_its_repository_and_no_further() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("repo/src/deep");
        std::fs::create_dir_all(&deep).unwrap();
        assert_eq!(project(&deep), std::slice::from_ref(&deep));
        std::fs::create_dir(dir.path().join("repo/.git")).unwrap();
        let repo = dir.path().join("repo");
        assert_eq!(project(&deep), [deep.clone(), repo.join("src"), repo]);
    }
}
