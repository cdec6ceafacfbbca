//! `linger log --compaction` and `linger compact --undo`: shows what summaries replaced, and takes the latest back.

use linger_protocol::method::{SessionCompaction, SessionUncompact};
use linger_protocol::session::Info;
use linger_protocol::tree::{CompactionRow, Compactions, Uncompact};

use super::find::resolve;
use crate::arguments;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::render::table::moment;
use crate::render::tree::taken_back;
use crate::terminal::{Terminal, clean};

/// Prints the compactions of a session, the oldest first.
pub(super) fn list(client: &mut Client, info: &Info, json: bool) -> Result<Exit, Failure> {
    let mut rows = client.call(&SessionCompaction(Compactions { session: info.session.clone() }))?;
    rows.reverse();
    if json {
        rows.iter().try_for_each(super::output::print_value)?;
        return Ok(Exit::GOOD);
    }
    let mut terminal = Terminal::new();
    for row in &rows {
        let CompactionRow { seq, at, through, messages, summary, tokens_before, tokens_after, undone } = row;
        let end = if *undone { ", undone" } else { "" };
        let at = moment(*at);
        terminal.data(&format!(
            "{at}  event {seq}: {messages} messages up to {through}, {tokens_before} -> {tokens_after} tokens{end}"
        ))?;
        for line in clean(summary).lines() {
            terminal.data(&format!("  {line}"))?;
        }
    }
    if rows.is_empty() {
        terminal.say("no compaction: the model reads all messages")?;
    } else {
        terminal.say(&format!("`linger log {}` shows all messages", info.session))?;
    }
    Ok(Exit::GOOD)
}

pub(super) fn uncompact(args: arguments::Uncompact) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let session = resolve(&mut client, &args.session)?.session;
    let done = client.call(&SessionUncompact(Uncompact { session, key: Some(key()?) }))?;
    if args.json {
        super::output::print_value(&done)?;
        return Ok(Exit::GOOD);
    }
    Terminal::new().say(&taken_back(&done))?;
    Ok(Exit::GOOD)
}
