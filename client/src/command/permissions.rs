//! `linger permissions`: rules that answers added, and explanations of decisions.

use std::path::absolute;

use linger_protocol::daemon::Empty;
use linger_protocol::method::{PermissionExplain, PermissionRemove, PermissionRules};
use linger_protocol::permission::{Explain, RemoveRule};

use super::find::resolve;
use super::output::{print_rows, print_value};
use crate::arguments::{ExplainCall, Json, Permissions, PermissionsCommand, RemoveRule as Remove};
use crate::connect::Client;
use crate::environment::{now, working_directory};
use crate::error::{Exit, Failure};
use crate::render::permissions::{explained, listing};
use crate::terminal::{Terminal, clean_exact_line};

pub(super) fn run(args: Permissions) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    match args.command {
        None => list(&mut client, &args.json)?,
        Some(PermissionsCommand::Explain(args)) => explain(&mut client, args)?,
        Some(PermissionsCommand::Remove(args)) => remove(&mut client, args)?,
    }
    Ok(Exit::GOOD)
}

fn list(client: &mut Client, args: &Json) -> Result<(), Failure> {
    if args.json {
        return print_rows(client, &PermissionRules(Empty {}));
    }
    let rows = client.call(&PermissionRules(Empty {}))?;
    let mut terminal = Terminal::new();
    if rows.is_empty() {
        return Ok(terminal.say(&listing(&rows, now()).concat())?);
    }
    for line in listing(&rows, now()) {
        terminal.line(&line)?;
    }
    Ok(())
}

fn explain(client: &mut Client, args: ExplainCall) -> Result<(), Failure> {
    let ExplainCall { call, cwd, session, json } = args;
    let explain = match session {
        Some(session) => Explain { call, session: Some(resolve(client, &session)?.session), cwd: None },
        None => {
            let cwd = cwd.map(absolute).transpose()?.map_or_else(working_directory, Ok)?;
            Explain { call, session: None, cwd: Some(cwd) }
        }
    };
    let decision = client.call(&PermissionExplain(explain))?;
    if json {
        return print_value(&decision);
    }
    let mut terminal = Terminal::new();
    for line in explained(&decision) {
        terminal.line(&line)?;
    }
    Ok(())
}

fn remove(client: &mut Client, args: Remove) -> Result<(), Failure> {
    let Remove { rule, cwd, json } = args;
    let workspace = cwd.map(absolute).transpose()?;
    let removed = client.call(&PermissionRemove(RemoveRule { rule, workspace }))?;
    if json {
        return print_value(&removed);
    }
    let mut terminal = Terminal::new();
    for row in &removed.removed {
        let (rule, root) = (clean_exact_line(&row.rule), row.workspace.to_string_lossy());
        terminal.say(&format!("removed {rule} in {}", clean_exact_line(&root)))?;
    }
    Ok(())
}
