//! `linger trust`: shows what a workspace's files would grant, and trusts, lists or revokes it.

use std::path::{PathBuf, absolute};

use linger_protocol::config::Confirmed;
use linger_protocol::daemon::Empty;
use linger_protocol::method::{TrustConfirm, TrustGet, TrustList, TrustRevoke};
use linger_protocol::trust::{Confirm, Get, Revoke, Workspace};

use super::config::{ask_about, done, list};
use super::output::{print_rows, print_value};
use crate::arguments::Trust;
use crate::connect::Client;
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::terminal::{Capabilities, Terminal, clean_exact, clean_line};

/// The file of a workspace's MCP servers; other programs read it too.
const MCP_JSON: &str = ".mcp.json";

pub(super) fn run(args: Trust) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    if args.list {
        return list_all(&mut client, args.json);
    }
    let cwd = args.directory.clone().map(absolute).transpose()?.map_or_else(working_directory, Ok)?;
    if args.revoke {
        return revoke(&mut client, cwd, args.json);
    }
    confirm(&mut client, cwd, args)
}

fn list_all(client: &mut Client, json: bool) -> Result<Exit, Failure> {
    if json {
        print_rows(client, &TrustList(Empty {}))?;
        return Ok(Exit::GOOD);
    }
    let rows = client.call(&TrustList(Empty {}))?;
    let mut terminal = Terminal::new();
    if rows.is_empty() {
        terminal.say("no workspace is trusted")?;
    }
    for row in rows {
        terminal.line(&clean_line(&row.workspace.to_string_lossy()))?;
        row.trusts.iter().try_for_each(|line| terminal.line(&format!("  {}", clean_exact(line))))?;
    }
    Ok(Exit::GOOD)
}

fn revoke(client: &mut Client, cwd: PathBuf, json: bool) -> Result<Exit, Failure> {
    let revoked = client.call(&TrustRevoke(Revoke { cwd }))?;
    if json {
        print_value(&revoked)?;
    } else {
        let root = clean_line(&revoked.workspace.to_string_lossy()).into_owned();
        let state = if revoked.revoked { "is no longer trusted" } else { "was not trusted" };
        Terminal::new().say(&format!("{root} {state}"))?;
    }
    Ok(Exit::GOOD)
}

fn confirm(client: &mut Client, cwd: PathBuf, args: Trust) -> Result<Exit, Failure> {
    let Workspace { workspace, file, error, problems, waiting, .. } = client.call(&TrustGet(Get { cwd }))?;
    for problem in &problems {
        Terminal::new().say(&format!("note: {}", clean_line(problem)))?;
    }
    if let Some(error) = error {
        return Err(
            Failure::new(Exit::FAILED, error).hint("correct the file; until then everything in that workspace asks")
        );
    }
    let Some(waiting) = waiting else {
        let files = if workspace.join(MCP_JSON).exists() { format!(" and {MCP_JSON}") } else { String::new() };
        Terminal::new().say(&format!("nothing to trust in {}{files}", clean_line(&file.to_string_lossy())))?;
        return done(&Confirmed::default(), args.json, false);
    };
    match args.digest {
        Some(shown) if shown != waiting.digest => {
            return Err(Failure::new(Exit::FAILED, "the files have changed since they were shown")
                .hint("`linger trust` shows the current changes"));
        }
        Some(_) => {}
        None if args.yes => {}
        None => {
            let root = clean_line(&workspace.to_string_lossy()).into_owned();
            let title = format!("the files of {root} need your trust for this:");
            if !Capabilities::detect().can_ask() {
                list(&title, &waiting.changes)?;
                let scripts = format!("--digest {} trusts exactly this, --yes everything pending", waiting.digest);
                return Err(Failure::new(Exit::QUESTION, "there is no terminal to ask on").hint(scripts));
            }
            if !ask_about(client, &title, &waiting.changes, "trust this?")? {
                Terminal::new().say("nothing was trusted")?;
                return Ok(Exit::CANCELLED);
            }
        }
    }
    let confirmed = client.call(&TrustConfirm(Confirm { workspace, digest: waiting.digest }))?;
    // Connect again to send the variables that newly trusted servers need. Trust does not depend on it.
    drop(Client::open());
    done(&confirmed, args.json, args.yes)
}
