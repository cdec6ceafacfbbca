//! Confirmation before sessions are deleted or moved to the bin.

use linger_protocol::session::Info;

use super::config;
use crate::connect::Client;
use crate::environment::now;
use crate::error::Failure;
use crate::render::sessions::listing_in;
use crate::terminal::{Capabilities, Terminal};

/// Shows the sessions and asks for confirmation on a terminal. Elsewhere only whole names and ids are accepted (no `prefix`).
pub(super) fn may_go(client: &mut Client, rows: &[Info], prefix: Option<&str>, what: &str) -> Result<bool, Failure> {
    if rows.is_empty() {
        return Ok(true);
    }
    let capabilities = Capabilities::detect();
    if !capabilities.can_ask() {
        let Some(prefix) = prefix else { return Ok(true) };
        let ids: Vec<&str> = rows.iter().map(|row| row.session.as_str()).collect();
        return Err(Failure::usage(format!(
            "'{prefix}' is only a prefix of an id, and there is no terminal to confirm it on"
        ))
        .hint(format!("give the whole id ({}), or add --yes", ids.join(" "))));
    }
    let mut terminal = Terminal::new();
    for line in listing_in(rows, now(), Some(capabilities.width)) {
        terminal.say(&line)?;
    }
    let many = if rows.len() == 1 { "1 session".to_owned() } else { format!("{} sessions", rows.len()) };
    let yes = config::ask(client, &format!("{many} will be {what}. Go on? y/n "))?;
    if !yes {
        terminal.say("nothing changed")?;
    }
    Ok(yes)
}
