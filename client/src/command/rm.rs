//! `linger rm`: moves sessions to the bin and out of it; with `--now` it deletes them and all their data.

use linger_protocol::error::Code;
use linger_protocol::method::{SessionBin, SessionRemove, SessionRestore};
use linger_protocol::session::{Bin, Info, Keyed, Remove, Removed};
use serde_json::json;

use super::confirm::may_go;
use super::find::{binned, is_whole, resolve};
use super::output::print_value;
use super::prune;
use crate::arguments::{Prune, Rm};
use crate::connect::{Client, parse};
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::render::worktree::kept;
use crate::terminal::{Capabilities, Terminal};

pub(super) fn run(args: &Rm) -> Result<Exit, Failure> {
    if args.restore {
        args.sessions.iter().try_for_each(|session| restore(session, args.json).map(drop))?;
        return Ok(Exit::GOOD);
    }
    if args.bin || args.older_than.is_some() {
        let Rm { force, now, older_than, bin, dry_run, yes, json, .. } = *args;
        return prune::run(&Prune { older_than, now: now || bin, yes, dry_run, force, json });
    }
    let mut client = Client::open()?;
    let mut meant: Vec<(&str, Info)> = Vec::new();
    for text in &args.sessions {
        let row = match resolve(&mut client, text) {
            Err(failure) if args.now => binned(&mut client, text).map_err(|_| failure)?,
            row => row?,
        };
        if !meant.iter().any(|(_, other)| other.session == row.session) {
            meant.push((text.as_str(), row));
        }
    }
    let prefix = meant.iter().find(|(text, row)| !is_whole(row, text)).map(|(text, _)| *text);
    let rows: Vec<Info> = meant.iter().map(|(_, row)| row.clone()).collect();
    let what = if args.now { "deleted for good" } else { "moved to the bin" };
    if !args.yes && !may_go(&mut client, &rows, prefix, what)? {
        return Ok(Exit::CANCELLED);
    }
    for row in rows {
        let session = row.session.clone();
        if args.now {
            delete(&mut client, args, row)?
        } else {
            put_away(&mut client, args, row)?
        };
        if args.json {
            print_value(&json!({ "session": session }))?;
        }
    }
    if !args.now && Capabilities::detect().stderr {
        Terminal::new().say("in the bin for 30 days; `linger rm --restore SESSION` takes it out")?;
    }
    Ok(Exit::GOOD)
}

fn put_away(client: &mut Client, args: &Rm, row: Info) -> Result<(), Failure> {
    let bin = Bin { session: row.session.clone(), force: args.force, key: Some(key()?) };
    match client.call_raw(&SessionBin(bin))? {
        Ok(raw) => say_children(parse::<SessionBin>(&raw)?, "moved to the bin"),
        // It cannot be read, so it cannot be kept.
        Err(error) if error.code() == Some(Code::Damaged) => delete(client, args, row),
        Err(error) => Err(busy(error.into(), "--force")),
    }
}

fn delete(client: &mut Client, args: &Rm, row: Info) -> Result<(), Failure> {
    let remove = Remove { session: row.session, force: args.force, key: Some(key()?) };
    match client.call_raw(&SessionRemove(remove))? {
        Ok(raw) => say_children(parse::<SessionRemove>(&raw)?, "deleted"),
        Err(error) if error.code() == Some(Code::Damaged) => Err(error.into()),
        Err(error) => Err(busy(error.into(), "--now --force")),
    }
}

/// Reports the children and kept worktrees of a removed session.
fn say_children(removed: Removed, what: &str) -> Result<(), Failure> {
    for worktree in &removed.worktrees {
        Terminal::new().say(&kept(worktree))?;
    }
    match removed.children {
        0 => Ok(()),
        1 => Ok(Terminal::new().say(&format!("1 child was {what} too"))?),
        many => Ok(Terminal::new().say(&format!("{many} children were {what} too"))?),
    }
}

/// Adds the command that removes a session with a running turn.
fn busy(failure: Failure, options: &str) -> Failure {
    match failure.hint.as_deref() {
        Some(hint) if hint.contains("by force") || hint.contains("use force") => {
            failure.hint(format!("`linger rm {options} SESSION` cancels the turn first"))
        }
        _ => failure,
    }
}

/// Takes a session out of the bin.
pub(super) fn restore(named: &str, json: bool) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let row = binned(&mut client, named)?;
    let session = row.session;
    let back = client.call(&SessionRestore(Keyed { session: session.clone(), key: Some(key()?) }))?;
    if json {
        print_value(&json!({ "session": session, "name": back.name }))?;
    } else if back.name != row.name {
        let name = back.name.unwrap_or_default();
        Terminal::new().say(&format!("its name is taken by another session; it is now called {name}"))?;
    }
    Ok(Exit::GOOD)
}
