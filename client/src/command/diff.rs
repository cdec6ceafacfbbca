//! `linger diff`: what a session's turns changed in files, including its children.

use linger_protocol::checkpoint::Diff;
use linger_protocol::method::SessionDiff;

use crate::arguments;
use crate::connect::Client;
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::render::difference::{Form, differences, sums, turn_named};
use crate::render::style::Style;
use crate::terminal::{Capabilities, Terminal, clean_line};

/// Indentation of diff lines on a terminal; a pipe gets a plain patch.
const GUTTER: &str = "  ";

pub(super) fn run(args: arguments::Diff) -> Result<Exit, Failure> {
    let arguments::Diff { session, turn, stat, json } = args;
    let mut client = Client::open()?;
    let session = super::undo::one(&mut client, session.as_deref())?.session;
    let turn = turn.map(|turn| turn_named(&turn));
    let found = client.call(&SessionDiff(Diff { session, turn, stat }))?;
    let mut terminal = Terminal::new();
    if json {
        found.files.iter().try_for_each(super::output::print_value)?;
    } else {
        let (capabilities, base) = (Capabilities::detect(), working_directory()?);
        let style = Style { color: capabilities.data_color, unicode: capabilities.unicode };
        let gutter = if capabilities.stdout { GUTTER } else { "" };
        for line in differences(&found, Form { style, stat, gutter, base: &base }) {
            terminal.data(&line)?;
        }
        match found.files.len() {
            0 => terminal.say("no file has changed")?,
            _ if stat => terminal.say(&sums(&found))?,
            _ => {}
        }
    }
    for missing in &found.missing {
        terminal.say(&format!("not shown: {}", clean_line(missing)))?;
    }
    Ok(Exit::GOOD)
}
