//! `linger rm --older-than` and `--bin`: moves unused sessions to the bin, empties the bin, or lists what it would do.

use linger_protocol::method::SessionPrune;
use linger_protocol::session::Pruned;

use super::confirm::may_go;
use crate::arguments::Prune;
use crate::connect::{Client, parse};
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::render::sessions::listing;
use crate::render::table::size;
use crate::terminal::{Capabilities, Terminal};

/// An age that no session has, in milliseconds. Fits the integers of the daemon's database.
const NEVER: u64 = i64::MAX as u64;

pub(super) fn run(args: &Prune) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let Prune { older_than, now: for_good, yes, dry_run, force, json } = *args;
    // Without an age only the bin is emptied.
    let bin = older_than.is_none();
    // A daemon older than the bin must match nothing.
    let older_than_ms = older_than.unwrap_or(NEVER);
    let params =
        linger_protocol::session::Prune { older_than_ms, dry_run: true, force, into_bin: !for_good, bin, key: None };
    let what = if for_good { "deleted for good" } else { "moved to the bin" };
    if !dry_run && !yes {
        if !Capabilities::detect().can_ask() {
            return Err(Failure::usage(format!("sessions would be {what}, and there is no terminal to ask on"))
                .hint("--yes does it without asking, --dry-run lists them"));
        }
        let listed = client.call(&SessionPrune(params.clone()))?;
        if !may_go(&mut client, &listed.sessions, None, what)? {
            return Ok(Exit::CANCELLED);
        }
    }
    let params = linger_protocol::session::Prune { dry_run, key: Some(key()?), ..params };
    let raw = client.call_raw(&SessionPrune(params))??;
    let pruned: Pruned = parse::<SessionPrune>(&raw)?;
    let mut terminal = Terminal::new();
    if json {
        terminal.data(raw.get())?;
    } else {
        for line in listing(&pruned.sessions, now()) {
            terminal.line(&line)?;
        }
        let done = if dry_run { format!("would be {what}") } else { what.to_owned() };
        terminal.say(&summary(&pruned, &done, bin))?;
    }
    Ok(Exit::GOOD)
}

fn summary(pruned: &Pruned, what: &str, bin: bool) -> String {
    let total = size(pruned.size);
    let more = u64::from(pruned.count).saturating_sub(pruned.sessions.len() as u64);
    match (pruned.count, more) {
        (0, _) if bin => "the bin is empty".to_owned(),
        (0, _) => "no session is that old".to_owned(),
        (1, _) => format!("1 session, {total}, {what}"),
        (count, 0) => format!("{count} sessions, {total}, {what}"),
        (count, more) => format!("and {more} more: {count} sessions, {total}, {what}"),
    }
}
