//! `linger tools`: lists the tools that models get, their origin, and whether each asks.

use std::path::PathBuf;

use linger_protocol::daemon::{Tool, ToolDecision, ToolEffect, Tools};
use linger_protocol::method::ToolList;

use super::find::resolve;
use crate::arguments::ToolsOf;
use crate::connect::Client;
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::render::markdown::width;
use crate::render::style::Style;
use crate::render::table::columns;
use crate::terminal::{Capabilities, Terminal, clean_line};

pub(super) fn run(args: &ToolsOf) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let list = ToolList(match &args.session {
        Some(session) => Tools { session: Some(resolve(&mut client, session)?.session), cwd: None },
        None => Tools { session: None, cwd: Some(working_directory()?) },
    });
    if args.json {
        super::output::print_rows(&mut client, &list)?;
        return Ok(Exit::GOOD);
    }
    let rows: Vec<_> = client.call(&list)?.iter().map(row).collect();
    let (capabilities, mut terminal) = (Capabilities::detect(), Terminal::new());
    let style = Style { color: false, unicode: capabilities.unicode };
    for line in columns(&rows) {
        // A description is longer than a screen is wide.
        let fits = !capabilities.stdout || width::of(&line) <= capabilities.width;
        let cut = || width::cut(&line, capabilities.width.saturating_sub(4)).to_owned() + style.ellipsis();
        terminal.line(&if fits { line.clone() } else { cut() })?;
    }
    Ok(Exit::GOOD)
}

/// Prints a tool as models of a new session in `cwd` see it. Returns whether there is such a tool.
pub(super) fn show(client: &mut Client, cwd: PathBuf, name: &str, json: bool) -> Result<bool, Failure> {
    let tools = client.call(&ToolList(Tools { session: None, cwd: Some(cwd) }))?;
    let Some(tool) = tools.iter().find(|tool| tool.name == name) else { return Ok(false) };
    if json {
        super::output::print_value(tool)?;
        return Ok(true);
    }
    let (mut terminal, about) = (Terminal::new(), row(tool));
    terminal.say(&about.iter().skip(1).take(3).map(String::as_str).collect::<Vec<_>>().join(", "))?;
    let schema = format!("{:#}", tool.input_schema);
    terminal.text(&format!("{}\n\n{schema}\n", tool.description.trim_end()))?;
    Ok(true)
}

/// Name, origin, effect, verdict and the first line of the description.
fn row(tool: &Tool) -> Vec<String> {
    // A column shows only the end of the path; `--json` has all of it.
    let file = tool.file.as_ref().map(|file| {
        let end: Vec<_> = file.components().rev().take(2).map(|part| part.as_os_str().to_string_lossy()).collect();
        end.into_iter().rev().collect::<Vec<_>>().join("/")
    });
    let origin = match (&tool.server, &file) {
        (Some(_), _) => "MCP",
        (None, Some(file)) => file,
        (None, None) => "built in",
    };
    let effect = match tool.effect {
        ToolEffect::Reads => "reads",
        ToolEffect::Writes => "writes",
        ToolEffect::Runs => "runs",
        ToolEffect::Network => "network",
        ToolEffect::Asks => "shows or asks",
        ToolEffect::Unknown => "unknown",
    };
    let verdict = tool.verdict.as_ref().map_or_else(String::new, |decision| {
        let word = match decision.verdict {
            ToolDecision::Allow => "runs",
            ToolDecision::Ask => "asks",
            ToolDecision::Deny => "refused",
        };
        format!("{word}: {}", decision.by)
    });
    let about = tool.description.lines().next().unwrap_or_default();
    [tool.name.as_str(), origin, effect, &verdict, about].iter().map(|cell| clean_line(cell).into_owned()).collect()
}
