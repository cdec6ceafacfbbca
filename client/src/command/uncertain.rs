//! The question what becomes of changes that an editor or another program may have made.

use std::io::IsTerminal as _;
use std::path::Path;

use linger_protocol::checkpoint::{Uncertain, UncertainChange};

use super::config::Asker;
use crate::connect::Client;
use crate::error::Failure;
use crate::render::uncertain::uncertain_lines;
use crate::terminal::Terminal;

/// The lines that are shown of a longer list.
const SHOWN: usize = 100;

/// The first request to the daemon: to list these changes where a person can be asked, unless an option says it.
pub(super) fn at_first(keep: bool, can_ask: bool) -> Option<Uncertain> {
    if keep {
        return Some(Uncertain::Keep);
    }
    (can_ask && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()).then_some(Uncertain::Ask)
}

/// Shows the changes and asks; `None`: nothing is to be undone.
pub(super) fn ask(client: &mut Client, changes: &[UncertainChange], cwd: &Path) -> Result<Option<Uncertain>, Failure> {
    let mut terminal = Terminal::new();
    let files = if changes.len() == 1 { "this file".to_owned() } else { format!("these {} files", changes.len()) };
    terminal.say(&format!("{files} changed while a command ran; an editor or another program may have done it:"))?;
    for line in uncertain_lines(changes, cwd).iter().take(SHOWN) {
        terminal.say(&format!("  {line}"))?;
    }
    if changes.len() > SHOWN {
        terminal.say(&format!("  and {} more", changes.len() - SHOWN))?;
    }
    let question = "y undoes all, c only what is certainly the model's, n nothing: y/c/n ";
    Ok(match Asker::open(client)?.ask(client, question, "yYcCnN")? {
        Some('y') => Some(Uncertain::Undo),
        Some('c') => Some(Uncertain::Keep),
        _ => None,
    })
}
