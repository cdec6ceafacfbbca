//! `linger fork` and `linger rewind`: continue from an earlier point of a session.

use linger_protocol::method::{SessionFork, SessionPrompts, SessionRewind};
use linger_protocol::tree::{Fork, Prompts, Rewind};

use super::find::resolve;
use crate::arguments;
use crate::connect::Client;
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::render::tree::{prompts, quoted, went_back};
use crate::terminal::Terminal;

pub(super) fn fork(args: arguments::Fork) -> Result<Exit, Failure> {
    let arguments::Fork { session, at, name, json } = args;
    let mut client = Client::open()?;
    let session = resolve(&mut client, &session)?.session;
    let fork = Fork { session, at, name: name.clone(), key: Some(key()?) };
    let made = client.call(&SessionFork(fork))?;
    if json {
        super::output::print_value(&made)?;
        return Ok(Exit::GOOD);
    }
    let mut terminal = Terminal::new();
    terminal.data(&made.session.to_string())?;
    if let Some(text) = &made.text {
        terminal.say(&format!("it continues from before \"{}\"", quoted(text)))?;
    }
    terminal.say(&format!("`linger attach {}` opens it", name.unwrap_or_else(|| made.session.to_string())))?;
    Ok(Exit::GOOD)
}

pub(super) fn rewind(args: arguments::Rewind) -> Result<Exit, Failure> {
    let arguments::Rewind { session, to, files, force, list, json } = args;
    let mut client = Client::open()?;
    let session = resolve(&mut client, &session)?.session;
    let mut terminal = Terminal::new();
    if list {
        let rows = client.call(&SessionPrompts(Prompts { session, limit: None }))?;
        if json {
            rows.iter().try_for_each(super::output::print_value)?;
            return Ok(Exit::GOOD);
        }
        let none = rows.is_empty();
        for line in prompts(&rows, now(), false) {
            terminal.data(&line)?;
        }
        if none {
            terminal.say("no earlier prompts")?;
        }
        return Ok(Exit::GOOD);
    }
    let rewind = Rewind { session, to: to.map(Into::into), files, force, key: Some(key()?) };
    let done = client.call(&SessionRewind(rewind))?;
    if json {
        super::output::print_value(&done)?;
        return Ok(Exit::GOOD);
    }
    for line in went_back(&done.text, &done.branch, done.changes.len()) {
        terminal.say(&line)?;
    }
    Ok(Exit::GOOD)
}
