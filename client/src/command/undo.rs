//! `linger undo`: takes back a turn's file changes, or redoes them.

use std::path::{Path, PathBuf};

use linger_protocol::checkpoint::Uncertain;
use linger_protocol::error::Code;
use linger_protocol::event::{ChangeKind, FileChange};
use linger_protocol::method::{SessionRedo, SessionUndo};
use linger_protocol::path;
use linger_protocol::session::{Info, Redo, Restored, Undo};
use serde_json::json;

use super::find::resolve;
use super::uncertain;
use crate::arguments;
use crate::connect::{Client, parse};
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::render::uncertain::uncertain_lines;
use crate::terminal::{Terminal, clean_line};

pub(super) fn undo(args: arguments::Undo) -> Result<Exit, Failure> {
    let arguments::Undo { session, redo: is_redo, call, file, keep, force, json } = args;
    if is_redo {
        return redo(arguments::Redo { session, force, json });
    }
    let mut client = Client::open()?;
    let session = one(&mut client, session.as_deref())?.session;
    let mut files = file.into_iter().map(absolute).collect::<Result<Vec<_>, _>>()?;
    let uncertain = uncertain::at_first(keep, !json && !force && files.is_empty());
    let file = if files.len() == 1 { files.pop() } else { None };
    let call = call.map(Into::into);
    let undo = Undo { session: session.clone(), call, file, files, uncertain, force, key: Some(key()?) };
    let done = match client.call_raw(&SessionUndo(undo.clone()))? {
        Ok(raw) => parse::<SessionUndo>(&raw)?,
        Err(error) if uncertain == Some(Uncertain::Ask) && error.code() == Some(Code::Uncertain) => {
            let chosen = uncertain::ask(&mut client, &error.get_uncertain(), &working_directory()?)?;
            if chosen.is_none() {
                Terminal::new().say("nothing was undone")?;
                return Ok(Exit::GOOD);
            }
            client.call(&SessionUndo(Undo { uncertain: chosen, key: Some(key()?), ..undo }))?
        }
        Err(error) => return Err(error.into()),
    };
    show(&session.to_string(), &done, json, "undone")
}

pub(super) fn redo(args: arguments::Redo) -> Result<Exit, Failure> {
    let arguments::Redo { session, force, json } = args;
    let mut client = Client::open()?;
    let session = one(&mut client, session.as_deref())?.session;
    let redo = Redo { session: session.clone(), force, key: Some(key()?) };
    let done = client.call(&SessionRedo(redo))?;
    show(&session.to_string(), &done, json, "redone")
}

/// The named session, or the latest of this directory.
pub(super) fn one(client: &mut Client, named: Option<&str>) -> Result<Info, Failure> {
    if let Some(named) = named {
        return resolve(client, named);
    }
    super::find::must_be_latest(client, None, false)
}

fn absolute(file: PathBuf) -> Result<PathBuf, Failure> {
    Ok(working_directory()?.join(file))
}

fn show(session: &str, done: &Restored, json: bool, word: &str) -> Result<Exit, Failure> {
    let exit = if done.failed.is_empty() && done.uncertain.is_empty() { Exit::GOOD } else { Exit::FAILED };
    if json {
        let Restored { step, changes, failed, uncertain } = done;
        super::output::print_value(&json!({
            "session": session, "step": step, "changes": changes, "failed": failed, "uncertain": uncertain
        }))?;
        return Ok(exit);
    }
    let cwd = working_directory()?;
    let mut terminal = Terminal::new();
    for change in &done.changes {
        terminal.data(&line(change, &cwd))?;
    }
    for left in &done.failed {
        terminal.say(&format!("not changed: {}: {}", shown(&left.path, &cwd), clean_line(&left.reason)))?;
    }
    if !done.uncertain.is_empty() {
        terminal.say("not undone, because an editor or another program may have changed it while a command ran:")?;
        for line in uncertain_lines(&done.uncertain, &cwd) {
            terminal.say(&format!("  {line}"))?;
        }
        terminal.say("hint: --file PATH undoes one of these, --force all, --keep leaves them for good")?;
    }
    if done.changes.is_empty() && done.failed.is_empty() && done.uncertain.is_empty() {
        terminal.say(&format!("nothing to do: no files were {word}"))?;
    }
    Ok(exit)
}

fn line(change: &FileChange, cwd: &Path) -> String {
    let what = match change.kind {
        ChangeKind::Create => "created ",
        ChangeKind::Delete => "deleted ",
        ChangeKind::Edit | ChangeKind::Unknown => "restored",
    };
    format!("{what}  {}", shown(&change.path, cwd))
}

fn shown(path: &Path, cwd: &Path) -> String {
    clean_line(&path::shown(path.strip_prefix(cwd).unwrap_or(path))).into_owned()
}
