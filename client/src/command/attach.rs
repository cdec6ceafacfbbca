//! `linger attach`, and `linger` alone: an interactive session.

use linger_protocol::event::EventBody;
use linger_protocol::id::Cursor;
use linger_protocol::method::SessionPrompt;
use linger_protocol::session::{Info, Prompt, State};

use super::find::{latest, must_be_latest};
use super::{habit, log, made, prompt, resolve, run};
use crate::arguments::{Attach, Bare, Choice, Log, Run};
use crate::connect::Client;
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened};
use crate::idempotency::key;
use crate::render::back::{Back, Room};
use crate::render::markdown::Look;
use crate::render::since::Since;
use crate::render::style::Style;
use crate::repl::{needs_terminal, repl};
use crate::terminal::{Capabilities, Terminal};

/// Lines of a terminal that does not tell its size.
const HEIGHT: usize = 24;

/// The largest log that is read to show what happened before, in bytes: some hundredths of a second. Of a larger one the last turn is shown.
const MAX_READ: u64 = 4 << 20;

/// The most events that a fork may share and that are read for that: its size says nothing of them.
const MAX_SHARED: u64 = 20_000;

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
    let look = Capabilities::detect();
    needs_terminal(&look, &format!("`linger log -f {session}` follows a session without one"))?;
    let mut client = match open {
        Some(client) => client,
        None => Client::open()?,
    };
    let info = resolve(&mut client, &session)?;
    if let Some(since) = &args.since {
        return repl(client, &look, Info { turn_cursor: Cursor(since.clone()), ..info });
    }
    let room = match (args.all, args.tail) {
        (true, _) => Room::All,
        (false, Some(turns)) => Room::Turns(turns),
        (false, None) => Room::Lines(height()),
    };
    enter(client, &look, info, room)
}

/// The latest session of this project, the one that is named, or a new one; with the prompt, if there is one.
pub(super) fn bare(args: Bare) -> Result<Exit, Failure> {
    let Bare { choice, continue_latest, new, resume, print, output_format, prompt } = args;
    if print {
        let (session, tools) = (resume, choice.tools.is_empty());
        if (session.is_some() || continue_latest) && !tools {
            return Err(Failure::usage("the tools of a session are chosen when it is created"));
        }
        return run::run(Run { session, continue_latest, output_format, prompt, ..Run::printing(choice) });
    }
    habit::check(&prompt)?;
    let look = Capabilities::detect();
    needs_terminal(&look, "`linger run PROMPT` works without one, `linger help` lists the commands")?;
    let written = match prompt.is_empty() {
        true => None,
        false => Some(prompt::written(&prompt)?),
    };
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
            let session = made(&mut client, choice, false)?.session;
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
            env,
            key: Some(key()?),
        }))?;
    }
    enter(client, &look, info, Room::Lines(height()))
}

/// The session with what the options change of it.
fn adopted(client: &mut Client, info: Info, choice: Choice) -> Result<Info, Failure> {
    if !choice.tools.is_empty() {
        return Err(Failure::usage("the tools of a session are chosen when it is created")
            .hint("`linger -n --tools …` starts a new one"));
    }
    if choice.agent.is_some() {
        return Err(Failure::usage("the agent of a session is chosen when it is created")
            .hint("`linger -n --agent …` starts a new one"));
    }
    if !choice.allow.is_empty() {
        return Err(Failure::usage("the rules of a session are given when it is created, or by answers")
            .hint("`linger -n --allow …` starts a new one"));
    }
    if choice.system.is_some() {
        return Err(Failure::usage("the system prompt of a session is chosen when it is created")
            .hint("`linger -n --system …` starts a new one"));
    }
    match run::adopt(client, &info, choice)? {
        true => client.session_info(&info.session),
        false => Ok(info),
    }
}

/// Shows what happened before, and lets the user in.
fn enter(client: Client, look: &Capabilities, info: Info, room: Room) -> Result<Exit, Failure> {
    let info = show_past(look, info, &room)?;
    repl(client, look, info)
}

/// Prints the past of a session; what comes after that is `turn_cursor` of the row. It reads over a connection of its own, so that
/// nothing of it is left on the other one.
fn show_past(look: &Capabilities, info: Info, room: &Room) -> Result<Info, Failure> {
    // A running turn is shown as it goes on.
    let until = if info.state == State::Idle { info.cursor.clone() } else { info.turn_cursor.clone() };
    let shares_much = info.origin.as_ref().is_some_and(|origin| origin.seq > MAX_SHARED);
    if info.damaged.is_some() || until == Cursor::default() {
        return Ok(info);
    }
    // Of a larger log only what is new is read.
    let is_whole = info.size <= MAX_READ && !shares_much;
    let from = match (is_whole, &info.left) {
        (true, _) => None,
        (false, Some(left)) => Some(left.cursor.clone()),
        (false, None) => return Ok(info),
    };
    let (mut back, mut since) = (Back::default(), info.left.clone().map(Since::new));
    let mut attachment = Attachment::start(Client::open_silent(None)?, info.session.clone(), from, false)?;
    loop {
        match attachment.next(None)? {
            Happened::Event(notification, _) => {
                let over = matches!(notification.event.body, EventBody::CaughtUp {});
                if over {
                    break;
                }
                back.event(&notification.event);
                since.iter_mut().for_each(|since| since.event(&notification.event));
                if notification.cursor == until {
                    break;
                }
            }
            Happened::Lost => super::wait::reattach(&mut attachment)?,
            _ => {}
        }
    }
    let style = Style { color: look.color, unicode: look.unicode };
    let prose =
        Look { width: look.width, markdown: look.markdown, color: look.color, unicode: look.unicode, dim: false };
    let mut terminal = Terminal::new();
    let news = since.map(|since| since.lines(&info.cwd, style, look.width, now())).unwrap_or_default();
    // It is a part of the screenful.
    let room = match room {
        Room::Lines(lines) => &Room::Lines(lines.saturating_sub(news.len())),
        room => room,
    };
    let past = if is_whole { back.lines(&info, prose, room, now()) } else { Vec::new() };
    for line in news.into_iter().chain(past) {
        terminal.talk(&format!("{line}\n"))?;
    }
    Ok(if is_whole { Info { turn_cursor: until, ..info } } else { info })
}

/// Lines of the terminal that the past may fill: not the last few, where the prompt is.
fn height() -> usize {
    let rows = rustix::termios::tcgetwinsize(rustix::stdio::stderr()).map(|size| usize::from(size.ws_row));
    rows.ok().filter(|rows| *rows >= 10).unwrap_or(HEIGHT).saturating_sub(4)
}
