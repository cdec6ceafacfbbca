//! `linger tools`: the tools that models are given.

use linger_protocol::daemon::{Empty, Tool};
use linger_protocol::method::ToolList;

use crate::arguments::Json;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::render::table::columns;
use crate::terminal::Terminal;

pub(super) fn run(args: &Json) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let list = ToolList(Empty {});
    if args.json {
        super::print_rows(&mut client, &list)?;
        return Ok(Exit::GOOD);
    }
    let row = |tool: &Tool| {
        let kind = if tool.read_only { "reads" } else { "changes" };
        let about = tool.description.lines().next().unwrap_or_default();
        vec![tool.name.clone(), kind.to_owned(), about.to_owned()]
    };
    let rows: Vec<_> = client.call(&list)?.iter().map(row).collect();
    let mut terminal = Terminal::new();
    for line in columns(&rows) {
        terminal.line(&line)?;
    }
    Ok(Exit::GOOD)
}
