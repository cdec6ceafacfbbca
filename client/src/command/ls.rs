//! `linger ls`: lists sessions, latest first.

use linger_protocol::method::SessionList;
use linger_protocol::session::{Info, List, State};

use super::output::print_rows;
use crate::arguments::Ls;
use crate::connect::Client;
use crate::environment::{now, working_directory};
use crate::error::{Exit, Failure};
use crate::render::sessions::listing_in;
use crate::render::tree::{arrange, titled};
use crate::terminal::{Capabilities, Terminal};

/// Sessions listed on a terminal, at most.
const SCREEN: u32 = 40;

pub(super) fn run(args: &Ls) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let capabilities = Capabilities::detect();
    let filtered = args.waiting || args.running;
    let screen = capabilities.stdout && !args.json && !args.all && !filtered;
    let limit = match (args.all || filtered, screen) {
        (true, _) => Some(u32::MAX),
        (false, true) => Some(SCREEN + 1),
        (false, false) => None,
    };
    let cwd = if args.here { Some(working_directory()?) } else { None };
    let list = SessionList(List { limit, cwd, bin: args.bin, ..List::default() });
    if args.json && !filtered {
        print_rows(&mut client, &list)?;
        return Ok(Exit::GOOD);
    }
    let mut rows = client.call(&list)?;
    rows.retain(|row| !filtered || is_wanted(row, args));
    if args.json {
        rows.iter().try_for_each(super::output::print_value)?;
        return Ok(Exit::GOOD);
    }
    let more = screen && rows.len() > SCREEN as usize;
    if more {
        rows.truncate(SCREEN as usize);
    }
    if args.tree {
        rows = titled(arrange(&rows));
    }
    let mut terminal = Terminal::new();
    let width = capabilities.stdout.then_some(capabilities.width);
    for line in listing_in(&rows, now(), width) {
        terminal.line(&line)?;
    }
    if more {
        terminal.say("more: `linger ls --all`")?;
    }
    if !args.bin
        && !filtered
        && let Some(note) = retained(&mut client)?
    {
        terminal.say(&note)?;
    }
    if rows.is_empty() {
        terminal.say(match (args.bin, filtered || args.here) {
            (true, _) => "the bin is empty",
            (false, true) => "no such sessions; `linger ls` lists all",
            (false, false) => "no sessions yet: `linger run PROMPT` starts one",
        })?;
    }
    Ok(Exit::GOOD)
}

/// How long a session stays in the bin, in days, as the daemon has it, and a day in milliseconds.
const BIN_DAYS: u64 = 30;
const DAY_MS: u64 = 86_400_000;

/// Says how many sessions `retention` has put into the bin, and until when they can be restored; nothing if there are none.
pub(super) fn retained(client: &mut Client) -> Result<Option<String>, Failure> {
    let rows = client.call(&SessionList(List { bin: true, limit: Some(u32::MAX), ..List::default() }))?;
    let times = rows.iter().filter(|row| row.by_retention && row.parent.is_none()).filter_map(|row| row.binned_at);
    let times: Vec<u64> = times.collect();
    let Some(first) = times.iter().min() else { return Ok(None) };
    let sessions = if times.len() == 1 { "1 session" } else { &format!("{} sessions", times.len()) };
    let days = BIN_DAYS.saturating_sub(now().saturating_sub(*first) / DAY_MS);
    let days = if days == 1 { "1 more day".to_owned() } else { format!("{days} more days") };
    Ok(Some(format!(
        "{sessions} moved to the bin by `retention`, to be restored for at least {days}: `linger ls --bin`"
    )))
}

/// Whether a session is in one of the wanted states.
fn is_wanted(row: &Info, args: &Ls) -> bool {
    (args.waiting && row.state == State::Waiting) || (args.running && row.state == State::Running)
}
