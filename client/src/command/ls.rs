//! `linger ls`: the sessions, the latest first.

use linger_protocol::method::SessionList;
use linger_protocol::session::List;

use super::print_rows;
use crate::arguments::Ls;
use crate::connect::Client;
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::render::sessions::listing;
use crate::terminal::{Capabilities, Terminal};

/// Sessions that a person is shown at once.
const SCREEN: u32 = 40;

pub(super) fn run(args: &Ls) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let screen = Capabilities::detect().stdout && !args.json && !args.all;
    let limit = match (args.all, screen) {
        (true, _) => Some(u32::MAX),
        (false, true) => Some(SCREEN + 1),
        (false, false) => None,
    };
    let list = SessionList(List { limit, ..List::default() });
    if args.json {
        print_rows(&mut client, &list)?;
        return Ok(Exit::GOOD);
    }
    let mut rows = client.call(&list)?;
    let more = screen && rows.len() > SCREEN as usize;
    if more {
        rows.truncate(SCREEN as usize);
    }
    let mut terminal = Terminal::new();
    for line in listing(&rows, now()) {
        terminal.line(&line)?;
    }
    if more {
        terminal.say("there are more: `linger ls --all`")?;
    }
    if rows.is_empty() {
        terminal.say("no sessions yet: `linger run PROMPT` starts one")?;
    }
    Ok(Exit::GOOD)
}
