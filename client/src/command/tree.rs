//! `linger fork` and `linger rewind`: continue from an earlier point of a session.

use linger_protocol::checkpoint::Uncertain;
use linger_protocol::error::Code;
use linger_protocol::method::{SessionFork, SessionPrompts, SessionRewind};
use linger_protocol::tree::{Fork, Prompts, Rewind};

use super::find::resolve;
use super::uncertain;
use crate::arguments;
use crate::connect::{Client, parse};
use crate::environment::{absolute, now, working_directory};
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::render::tree::{prompts, quoted, went_back};
use crate::terminal::Terminal;

pub(super) fn fork(args: arguments::Fork) -> Result<Exit, Failure> {
    let arguments::Fork { session, at, name, dir, json } = args;
    let mut client = Client::open()?;
    let session = resolve(&mut client, &session)?.session;
    let cwd = absolute(dir.into_iter().collect())?.pop();
    let fork = Fork { session, at, name: name.clone(), cwd, key: Some(key()?) };
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
    let arguments::Rewind { session, to, files, keep, force, list, json } = args;
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
    let uncertain = uncertain::at_first(keep, files && !json && !force);
    let rewind = Rewind { session, to: to.map(Into::into), files, uncertain, force, key: Some(key()?) };
    let done = match client.call_raw(&SessionRewind(rewind.clone()))? {
        Ok(raw) => parse::<SessionRewind>(&raw)?,
        Err(error) if uncertain == Some(Uncertain::Ask) && error.code() == Some(Code::Uncertain) => {
            let chosen = uncertain::ask(&mut client, &error.get_uncertain(), &working_directory()?)?;
            if chosen.is_none() {
                terminal.say("nothing was changed")?;
                return Ok(Exit::GOOD);
            }
            client.call(&SessionRewind(Rewind { uncertain: chosen, key: Some(key()?), ..rewind }))?
        }
        Err(error) => return Err(error.into()),
    };
    if json {
        super::output::print_value(&done)?;
        return Ok(Exit::GOOD);
    }
    for line in went_back(&done.text, &done.branch, done.changes.len()) {
        terminal.say(&line)?;
    }
    Ok(Exit::GOOD)
}
