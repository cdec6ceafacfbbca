//! `linger merge`: merges a child's git worktree into its parent's directory.

use linger_protocol::method::SessionMerge;
use linger_protocol::worktree::Merge;

use super::find::resolve;
use crate::arguments;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::render::worktree::{merged, takes_back};
use crate::terminal::{Terminal, clean_line};

/// Files listed, at most.
const NAMED: usize = 20;

pub(super) fn run(args: &arguments::Merge) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let session = resolve(&mut client, &args.session)?.session;
    let done = client.call(&SessionMerge(Merge { session, key: Some(key()?) }))?;
    if args.json {
        super::output::print_value(&done)?;
        return Ok(Exit::GOOD);
    }
    let mut terminal = Terminal::new();
    for file in done.files.iter().take(NAMED) {
        terminal.data(&clean_line(&linger_protocol::path::shown(file)))?;
    }
    terminal.say(&merged(&done))?;
    terminal.say(&takes_back(&done))?;
    Ok(Exit::GOOD)
}
