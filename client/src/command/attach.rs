//! `linger attach`, and `linger` alone: an interactive session.

use linger_protocol::id::Cursor;
use linger_protocol::method::SessionPrompt;
use linger_protocol::session::{Info, Prompt};

use super::create::create_with_warning;
use super::find::resolve;
use super::find::{latest, moved_here, moved_hint, must_be_latest};
use super::{habit, log, prompt, run};
use crate::arguments::{Attach, Bare, Choice, Log, Run};
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::render::back::Space;
use crate::render::markdown::Layout;
use crate::repl::{height, needs_terminal, past, repl};
use crate::terminal::{Capabilities, Terminal};

pub(super) fn run(args: &Attach) -> Result<Exit, Failure> {
    let mut open = None;
    let session = match &args.session {
        Some(session) => session.clone(),
        None => must_be_latest(open.insert(Client::open()?), None, false)?.session.to_string(),
    };
    if args.json || args.read_only {
        let turns = args.tail.or_else(|| (!args.all && !args.json).then_some(1));
        let (follow, forever, json) = (true, true, args.json);
        return log::run(&Log {
            session: Some(session),
            follow,
            forever,
            last: false,
            turns,
            since: None,
            full: false,
            times: false,
            compaction: false,
            json,
        });
    }
    let capabilities = Capabilities::detect();
    needs_terminal(&capabilities, &format!("`linger log -f {session}` follows a session without one"))?;
    let mut client = match open {
        Some(client) => client,
        None => Client::open()?,
    };
    let info = resolve(&mut client, &session)?;
    if let Some(since) = &args.since {
        return repl(client, &capabilities, Info { turn_cursor: Cursor(since.clone()), ..info });
    }
    let room = match (args.all, args.tail) {
        (true, _) => Space::All,
        (false, Some(turns)) => Space::Turns(turns),
        (false, None) => Space::Lines(height()),
    };
    enter(client, &capabilities, info, room)
}

/// Opens the latest session of this project, the given one, or a new one, and sends the prompt if there is one.
pub(super) fn bare(args: Bare) -> Result<Exit, Failure> {
    let Bare { choice, continue_latest, new, resume, print, output_format, prompt } = args;
    if print {
        return run::run(Run { session: resume, continue_latest, output_format, prompt, ..Run::printing(choice) });
    }
    let capabilities = Capabilities::detect();
    habit::check(&prompt, capabilities.can_ask())?;
    needs_terminal(&capabilities, "`linger run PROMPT` works without one, `linger --help` lists the commands")?;
    let written = if prompt.is_empty() { None } else { Some(prompt::written(&prompt)?) };
    let mut client = Client::open()?;
    let directory = choice.directory.clone();
    let found = match (resume, new, continue_latest) {
        (Some(session), ..) => Some(resolve(&mut client, &session)?),
        (None, true, _) => None,
        (None, false, true) => Some(must_be_latest(&mut client, directory.as_deref(), true)?),
        (None, false, false) => latest(&mut client, directory.as_deref(), true)?,
    };
    let info = match found {
        Some(info) => adopted(&mut client, info, choice)?,
        None => {
            if let Some(moved) = moved_here(&mut client, directory.as_deref())?.filter(|_| !new) {
                Terminal::new().say(&format!("hint: {}", moved_hint(&moved)))?;
            }
            let session = create_with_warning(&mut client, choice, false)?.session;
            client.session_info(&session)?
        }
    };
    if let Some(written) = written {
        let expand = written.begins_typed();
        let content = written.content(Some(&info.cwd))?.with_resources(&mut client, &info.session)?;
        let (session, env) = (info.session.clone(), client.brought_env());
        client.call(&SessionPrompt(Prompt {
            session,
            content,
            when: None,
            schema: None,
            until: None,
            expand,
            awaited: false,
            env,
            key: Some(key()?),
        }))?;
    }
    enter(client, &capabilities, info, Space::Lines(height()))
}

/// Applies the options to an existing session. Fails for options that only new sessions take.
fn adopted(client: &mut Client, info: Info, choice: Choice) -> Result<Info, Failure> {
    if choice.agent.is_some() {
        return Err(Failure::usage("the agent of a session can only be chosen when it is created")
            .hint("`linger -n --agent …` starts a new one"));
    }
    if !choice.allow.is_empty() {
        return Err(Failure::usage("--allow only works for new sessions; answers add rules to an existing one")
            .hint("`linger -n --allow …` starts a new one"));
    }
    if choice.system.is_some() {
        return Err(Failure::usage("the system prompt of a session can only be chosen when it is created")
            .hint("`linger -n --system …` starts a new one"));
    }
    if run::adopt(client, &info, choice)? { client.session_info(&info.session) } else { Ok(info) }
}

/// Shows what happened before, and starts the interactive session.
fn enter(client: Client, capabilities: &Capabilities, info: Info, room: Space) -> Result<Exit, Failure> {
    let prose = Layout {
        width: capabilities.width,
        markdown: capabilities.markdown,
        color: capabilities.color,
        unicode: capabilities.unicode,
        dim: false,
    };
    let (lines, info) = past(prose, info, room)?;
    let mut terminal = Terminal::new();
    for line in lines {
        terminal.talk(&format!("{line}\n"))?;
    }
    repl(client, capabilities, info)
}
