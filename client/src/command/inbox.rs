//! `linger inbox`: the permissions that wait, of all sessions.

use linger_protocol::method::PermissionList;
use linger_protocol::permission::{List, Pending};

use super::{now, print_rows};
use crate::cli::Json;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::render::table::{age, columns};
use crate::terminal::Terminal;

pub(super) fn run(args: &Json) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let list = PermissionList(List::default());
    if args.json {
        print_rows(&mut client, &list)?;
        return Ok(Exit::GOOD);
    }
    let now = now();
    let row = |row: &Pending| {
        let action = row.action.replace('\n', " ⏎ ");
        vec![row.permission.to_string(), row.session.to_string(), age(row.at, now), row.tool.clone(), action]
    };
    let rows = client.call(&list)?;
    let mut terminal = Terminal::new();
    for line in columns(&rows.iter().map(row).collect::<Vec<_>>()) {
        terminal.line(&line)?;
    }
    let last = if rows.is_empty() {
        "nothing waits"
    } else {
        "answer with `linger answer PERMISSION allow|session|always|deny`"
    };
    terminal.say(last)?;
    Ok(Exit::GOOD)
}
