//! `memory/*`: notes that outlive sessions, for people. Models have the tool of that name.

use std::collections::BTreeMap;
use std::path::Path;

use linger_protocol::RpcError;
use linger_protocol::daemon::Empty;
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::memory::{Add, List, Note, Remove, Scope};

use super::{Caller, Services};
use crate::diagnostics::secret::SecretVariables;
use crate::sys::disk;
use crate::tool::notes::Notes;

/// The notes that sessions in a directory have.
pub async fn list(services: &Services, caller: &Caller, params: List) -> Result<Vec<Note>, RpcError> {
    let notes = notes(services, caller, &params.cwd).await?;
    let text = params.text;
    on_disk(&params.cwd, move || {
        let rows = [Scope::User, Scope::Workspace].into_iter().flat_map(|scope| notes.list(scope));
        let with_text = |note: Note| {
            let text = text.then(|| notes.read(note.scope, &note.name).unwrap_or_default());
            Note { text, ..note }
        };
        rows.map(with_text).collect()
    })
    .await
}

/// Writes a note that did not exist.
pub async fn add(services: &Services, caller: &Caller, params: Add) -> Result<Note, RpcError> {
    let notes = notes(services, caller, &params.cwd).await?;
    if !services.config.memory() {
        return Err(
            RpcError::new(Code::BadConfig, "notes are off").hint("`linger config set memory true` turns them on")
        );
    }
    let Add { cwd, scope, text, name } = params;
    let bad = |why: String| RpcError::new(Code::BadPrompt, why).hint("nothing was written");
    let written = on_disk(&cwd, move || {
        let name = name.unwrap_or_else(|| notes.name_for(scope, &text));
        let text = if text.ends_with('\n') { text } else { text + "\n" };
        if let Some(why) = notes.refuses(scope, &name, &text, &SecretVariables::default()) {
            return Err(why);
        }
        if notes.file(scope, &name).exists() {
            return Err(format!("there is a note {name} already"));
        }
        notes.write(scope, &name, &text).map_err(|error| format!("the note cannot be written: {error}"))?;
        let note = notes.list(scope).into_iter().find(|note| note.name == name);
        note.ok_or_else(|| "the note cannot be read back".to_owned())
    });
    written.await?.map_err(bad)
}

/// Removes a note.
pub async fn remove(services: &Services, caller: &Caller, params: Remove) -> Result<Empty, RpcError> {
    let notes = notes(services, caller, &params.cwd).await?;
    let Remove { cwd, scope, name } = params;
    let shown = name.clone();
    let removed = on_disk(&cwd, move || {
        let is_there = notes.list(scope).iter().any(|note| note.name == name);
        is_there && std::fs::remove_file(notes.file(scope, &name)).is_ok()
    });
    if removed.await? {
        return Ok(Empty {});
    }
    Err(RpcError::new(Code::UnknownOption, format!("there is no note called '{shown}'"))
        .hint("`linger memory list` lists them"))
}

/// The notes of a directory that the caller may look into.
async fn notes(services: &Services, caller: &Caller, cwd: &Path) -> Result<Notes, RpcError> {
    caller.may_look_into(services, cwd).await?;
    if !cwd.is_absolute() {
        let error = RpcError::new(Code::NoWorkspace, format!("{}: not an absolute path", cwd.display()));
        return Err(error.hint("name a directory from `/` on"));
    }
    let workspace =
        services.env().workspaces.workspace(&SessionId::default(), cwd, BTreeMap::new(), disk::TIMEOUT).await;
    Ok(workspace.notes)
}

async fn on_disk<T: Send + 'static>(cwd: &Path, work: impl FnOnce() -> T + Send + 'static) -> Result<T, RpcError> {
    let done = disk::probe(cwd, disk::TIMEOUT, work).await;
    done.ok_or_else(|| RpcError::new(Code::Storage, disk::unresponsive(cwd)))
}
