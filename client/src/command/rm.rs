//! `linger rm` and `linger restore`: into the bin and out of it; with `--now` a session and everything that was stored for it is gone.

use linger_protocol::error::Code;
use linger_protocol::method::{SessionBin, SessionRemove, SessionRestore};
use linger_protocol::session::{Bin, Info, Keyed, Remove, Removed};
use serde_json::json;

use super::find::{binned, is_whole};
use super::resolve;
use crate::arguments::{self, Rm};
use crate::connect::{Client, parse};
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::render::sessions::listing_in;
use crate::render::worktree::kept;
use crate::terminal::{Capabilities, Terminal};

pub(super) fn run(args: &Rm) -> Result<Exit, Failure> {
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
    let what = if args.now { "deleted for good" } else { "put into the bin" };
    if !may_go(&mut client, &rows, (args.yes, prefix), what)? {
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
            super::print_value(&json!({ "session": session }))?;
        }
    }
    if !args.now && Capabilities::detect().stderr {
        Terminal::new().say("in the bin for 30 days; `linger restore SESSION` takes it out")?;
    }
    Ok(Exit::GOOD)
}

/// Shows what will be destroyed and asks, on a terminal; elsewhere it takes the whole name or id (no `prefix`), or `--yes`.
pub(super) fn may_go(
    client: &mut Client,
    rows: &[Info],
    (yes, prefix): (bool, Option<&str>),
    what: &str,
) -> Result<bool, Failure> {
    if yes || rows.is_empty() {
        return Ok(true);
    }
    let look = Capabilities::detect();
    if !look.can_ask() {
        let Some(prefix) = prefix else { return Ok(true) };
        let ids: Vec<&str> = rows.iter().map(|row| row.session.as_str()).collect();
        return Err(Failure::usage(format!(
            "'{prefix}' is the beginning of an id, and there is no terminal to confirm it on"
        ))
        .hint(format!("name what is to be {what}: {}; or add --yes", ids.join(" "))));
    }
    let mut terminal = Terminal::new();
    for line in listing_in(rows, now(), Some(look.width)) {
        terminal.say(&line)?;
    }
    let many = if rows.len() == 1 { "1 session".to_owned() } else { format!("{} sessions", rows.len()) };
    let yes = super::config::ask(client, &format!("{many} will be {what}; y/n "))?;
    if !yes {
        terminal.say("nothing was done")?;
    }
    Ok(yes)
}

fn put_away(client: &mut Client, args: &Rm, row: Info) -> Result<(), Failure> {
    let bin = Bin { session: row.session.clone(), force: args.force, key: Some(key()?) };
    match client.call_raw(&SessionBin(bin))? {
        Ok(raw) => say_children(parse::<SessionBin>(&raw)?, "put into the bin"),
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

/// Says how many children went with a session.
fn say_children(removed: Removed, what: &str) -> Result<(), Failure> {
    for worktree in &removed.worktrees {
        Terminal::new().say(&kept(worktree))?;
    }
    match removed.children {
        0 => Ok(()),
        1 => Ok(Terminal::new().say(&format!("1 child was {what} with it"))?),
        many => Ok(Terminal::new().say(&format!("{many} children were {what} with it"))?),
    }
}

/// The failure of a session with a running turn says how to remove it all the same.
fn busy(failure: Failure, options: &str) -> Failure {
    match failure.hint.as_deref() {
        Some(hint) if hint.contains("by force") || hint.contains("use force") => {
            failure.hint(format!("`linger rm {options} SESSION` cancels the turn first"))
        }
        _ => failure,
    }
}

pub(super) fn restore(args: &arguments::Keyed) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let row = binned(&mut client, &args.session)?;
    let session = row.session;
    let back = client.call(&SessionRestore(Keyed { session: session.clone(), key: Some(key()?) }))?;
    match args.json {
        true => super::print_value(&json!({ "session": session, "name": back.name }))?,
        false if back.name != row.name => {
            let name = back.name.unwrap_or_default();
            Terminal::new().say(&format!("another session has its name; it is called {name} now"))?;
        }
        false => {}
    }
    Ok(Exit::GOOD)
}
