//! `linger mcp`: lists, adds, tests and removes MCP servers, logs in to them, and serves as one.

use std::collections::BTreeMap;
use std::path::{PathBuf, absolute};
use std::time::Duration;

use linger_protocol::mcp::{Add, List, Named, Offered, Server, Test};
use linger_protocol::method::{
    McpAdd as AddMethod, McpList, McpLogout, McpLogs, McpPrompts, McpRemove, McpResources, McpRestart, McpTest,
    TrustGet,
};
use linger_protocol::trust::Get;

use super::find::resolve;
use super::output::{print_rows, print_value};
use super::{files, login, serve};
use crate::arguments::{Files, Mcp, McpAdd, McpConfigured, McpListing, McpLogin, McpNamed, McpOffered, McpServe};
use crate::connect::{Client, start};
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::render::servers;
use crate::terminal::Terminal;

/// Timeout for the start of a server; the daemon gives up earlier.
const START: Duration = Duration::from_secs(610);

pub(super) fn run(command: Mcp) -> Result<Exit, Failure> {
    if let Mcp::Serve(args) = command {
        return if args.sessions { serve::run(args.answer) } else { Err(tools_server(args)) };
    }
    if let Mcp::Validate { paths, json } = command {
        return files::run(&files::SERVERS, Files::Validate { paths, json });
    }
    let mut client = Client::open()?;
    match command {
        Mcp::List(McpListing { session, json }) => {
            let list = McpList(listed(&mut client, session.as_deref())?);
            if json {
                print_rows(&mut client, &list)?;
                return Ok(Exit::GOOD);
            }
            let rows = client.call(&list)?;
            let listing = servers::listing(&rows);
            if rows.is_empty() {
                Terminal::new().say(&listing.concat())?
            } else {
                lines(&listing)?
            }
            // A process without the right to ask still gets the list.
            let asked = here().filter(|_| session.is_none()).map(|cwd| client.call(&TrustGet(Get { cwd })));
            for problem in asked.and_then(Result::ok).iter().flat_map(|workspace| &workspace.problems) {
                Terminal::new().say(&format!("note: {problem}"))?;
            }
        }
        Mcp::Add(args) => return add(&mut client, args),
        Mcp::Remove(McpConfigured { server, json }) => {
            client.call(&McpRemove(Named { server: server.clone(), ..Named::default() }))?;
            done(&server, json, "removed")?;
        }
        Mcp::Restart(McpNamed { server, session, json }) => {
            let named = named(&mut client, &server, session.as_deref())?;
            client.call(&McpRestart(named))?;
            done(&server, json, "stopped; the next call starts it again:")?;
        }
        Mcp::Logs(McpNamed { server, session, json }) => {
            let named = named(&mut client, &server, session.as_deref())?;
            let logs = client.call(&McpLogs(named))?;
            for line in &logs.lines {
                if json { print_value(line)? } else { Terminal::new().line(&line.text)? }
            }
        }
        Mcp::Test(McpConfigured { server, json }) => return test(&mut client, server, json),
        Mcp::Serve(_) | Mcp::Validate { .. } => {}
        Mcp::Login(McpLogin { server, session, paste, json }) => {
            let named = named(&mut client, &server, session.as_deref())?;
            login::run(&mut client, &named, paste)?;
            if session.is_some() {
                // The session's next call starts it.
                return Ok(Exit::GOOD);
            }
            return test(&mut client, server, json);
        }
        Mcp::Logout(McpNamed { server, session, json }) => {
            let named = named(&mut client, &server, session.as_deref())?;
            let out = client.call_within(&McpLogout(named), START)?;
            let what = if out.removed { "logged out of" } else { "no login for" };
            if json { print_value(&out)? } else { Terminal::new().say(&format!("{what} {server}"))? }
        }
        Mcp::Resources(McpOffered { server, json }) => {
            let asked = McpResources(offered(&mut client, server)?);
            let rows = client.call_within(&asked, START)?;
            if json { rows.iter().try_for_each(print_value)? } else { lines(&servers::resources(&rows))? }
        }
        Mcp::Prompts(McpOffered { server, json }) => {
            let asked = McpPrompts(offered(&mut client, server)?);
            let rows = client.call_within(&asked, START)?;
            if json { rows.iter().try_for_each(print_value)? } else { lines(&servers::prompts(&rows))? }
        }
    }
    Ok(Exit::GOOD)
}

fn add(client: &mut Client, McpAdd { server, env, cwd, json, url, command }: McpAdd) -> Result<Exit, Failure> {
    let pair = |text: &String| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let env: Option<BTreeMap<String, String>> = env.iter().map(pair).collect();
    let env = env.ok_or_else(|| Failure::usage("write a variable as NAME=VALUE"))?;
    let cwd = cwd.map(absolute).transpose()?;
    let mut command = command.into_iter();
    let (program, args) = (command.next(), command.collect());
    client.call(&AddMethod(Add { server: server.clone(), command: program, args, env, cwd, url }))?;
    if !json {
        Terminal::new().say(&format!("added {server} to the configuration; starting it"))?;
    }
    test(client, server, json)
}

/// Starts a server and prints its tools; fails if it cannot be started.
fn test(client: &mut Client, server: String, json: bool) -> Result<Exit, Failure> {
    let (cwd, env) = (working_directory()?, client.session_env());
    let row: Server = client.call_within(&McpTest(Test { server, cwd, env }), START)?;
    if json {
        print_value(&row)?;
    } else {
        lines(&servers::tools(&row))?;
        for problem in &row.problems {
            Terminal::new().say(&format!("note: {problem}"))?;
        }
    }
    match row.error {
        None if !row.waits_for.is_empty() => {
            let names = row.waits_for.join(", ");
            Err(Failure::new(Exit::FAILED, format!("{} waits for the variable {names}", row.server))
                .hint("set it in this shell and run the command again"))
        }
        None => Ok(Exit::GOOD),
        Some(why) => Err(Failure::new(Exit::FAILED, format!("{} cannot be started: {why}", row.server))
            .hint(format!("`linger mcp logs {}` shows what it wrote", row.server))),
    }
}

/// Needs no daemon.
fn tools_server(McpServe { tools, allow, .. }: McpServe) -> Failure {
    let tools = Some(tools).filter(|tools| !tools.is_empty());
    let tools = tools.map(|tools| format!("--tools={}", tools.join(",")));
    let rules = allow.into_iter().map(|rule| format!("--allow={rule}"));
    start::become_mcp_server(&tools.into_iter().chain(rules).collect::<Vec<_>>())
}

/// Asks for a session here.
fn offered(client: &mut Client, server: Option<String>) -> Result<Offered, Failure> {
    Ok(Offered { session: None, cwd: Some(working_directory()?), env: client.session_env(), server })
}

/// Whose servers are listed: a session's, or those of this directory.
fn listed(client: &mut Client, session: Option<&str>) -> Result<List, Failure> {
    Ok(match session {
        Some(session) => List { session: Some(resolve(client, session)?.session), cwd: None },
        None => List { session: None, cwd: here() },
    })
}

/// A server of a session, or of this directory.
fn named(client: &mut Client, server: &str, session: Option<&str>) -> Result<Named, Failure> {
    let List { session, cwd } = listed(client, session)?;
    Ok(Named { server: server.to_owned(), cwd, session })
}

/// The directory whose workspace counts too; none if it is gone.
fn here() -> Option<PathBuf> {
    working_directory().ok()
}

fn done(server: &str, json: bool, what: &str) -> Result<(), Failure> {
    if json {
        return print_value(&Named { server: server.to_owned(), ..Named::default() });
    }
    Ok(Terminal::new().say(&format!("{what} {server}"))?)
}

fn lines(lines: &[String]) -> Result<(), Failure> {
    let mut terminal = Terminal::new();
    lines.iter().try_for_each(|line| terminal.line(line))?;
    Ok(())
}
