//! `linger diff`: what the turns of a session changed in files, those of its children too.

use linger_protocol::checkpoint::Diff;
use linger_protocol::method::SessionDiff;

use crate::arguments;
use crate::connect::Client;
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::render::difference::{Form, differences, sums, turn_named};
use crate::render::style::Style;
use crate::terminal::{Capabilities, Terminal, clean_line};

/// Before the lines of files, on a terminal; a pipe gets them as a patch has them.
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
        let (look, base) = (Capabilities::detect(), working_directory()?);
        let style = Style { color: look.data_color, unicode: look.unicode };
        let gutter = if look.stdout { GUTTER } else { "" };
        for line in differences(&found, Form { style, stat, gutter, base: &base }) {
            terminal.data(&line)?;
        }
        match found.files.len() {
            0 => terminal.say("no file is other than before")?,
            _ if stat => terminal.say(&sums(&found))?,
            _ => {}
        }
    }
    for missing in &found.missing {
        terminal.say(&format!("not in it: {}", clean_line(missing)))?;
    }
    Ok(Exit::GOOD)
}
