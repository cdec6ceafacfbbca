//! `linger prune`: deletes sessions that were not used for a while, or lists them.

use linger_protocol::method::SessionPrune;
use linger_protocol::session::Pruned;

use super::{listing, now};
use crate::arguments::Prune;
use crate::connect::{Client, parse};
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::render::table::size;
use crate::terminal::Terminal;

pub(super) fn run(args: &Prune) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let Prune { older_than: older_than_ms, dry_run, force, json } = *args;
    let params = linger_protocol::session::Prune { older_than_ms, dry_run, force, key: Some(key()?) };
    let raw = client.call_raw(&SessionPrune(params))??;
    let pruned: Pruned = parse::<SessionPrune>(&raw)?;
    let mut terminal = Terminal::new();
    if json {
        terminal.data(raw.get())?;
    } else {
        for line in listing(&pruned.sessions, now()) {
            terminal.line(&line)?;
        }
        terminal.say(&summary(&pruned, dry_run))?;
    }
    Ok(Exit::GOOD)
}

fn summary(pruned: &Pruned, dry_run: bool) -> String {
    let (total, what) = (size(pruned.size), if dry_run { "would be deleted" } else { "deleted" });
    let more = u64::from(pruned.count).saturating_sub(pruned.sessions.len() as u64);
    match (pruned.count, more) {
        (0, _) => "no session is that old".to_owned(),
        (1, _) => format!("1 session, {total}, {what}"),
        (count, 0) => format!("{count} sessions, {total}, {what}"),
        (count, more) => format!("and {more} more: {count} sessions, {total}, {what}"),
    }
}
