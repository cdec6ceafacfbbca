//! `linger help`: explains a command; `linger help schema` prints the protocol as JSON Schema.

use clap::CommandFactory as _;

use crate::cli::{Cli, Help};
use crate::error::{Exit, Failure};
use crate::terminal::Terminal;

pub(super) fn run(args: &Help) -> Result<Exit, Failure> {
    let mut terminal = Terminal::new();
    if args.command == ["schema"] {
        let schema = serde_json::to_string_pretty(&linger_protocol::schema::protocol());
        terminal.text(&schema.map_err(|error| Failure::new(Exit::FAILED, error.to_string()))?)?;
        terminal.text("\n")?;
        return Ok(Exit::GOOD);
    }
    let mut root = Cli::command();
    root.build();
    let mut command = &mut root;
    for name in &args.command {
        command = command
            .find_subcommand_mut(name)
            .ok_or_else(|| Failure::usage(format!("no command is called '{name}'")).hint("`linger help` lists them"))?;
    }
    terminal.text(&command.render_long_help().to_string())?;
    Ok(Exit::GOOD)
}
