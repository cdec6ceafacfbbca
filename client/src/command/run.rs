//! `linger run`: sends a prompt and follows the session until the turn ends.
//!
//! On a terminal the answer streams; a pipe gets only the final message. Events that arrive before the answer to the prompt request
//! are held back, because only that answer tells which turn is ours.

mod refused;
mod running;

use linger_protocol::id::SessionId;
use linger_protocol::method::{SessionPrompt, SessionRemove, SessionSet};
use linger_protocol::session::{Info, Prompt, Remove, Set, State};
use serde_json::json;

use super::create::create;
use super::deadline::{answer_deadline, deadline};
use super::find::must_be_latest;
use super::find::resolve;
use super::prompt;
use super::set::changes;
use crate::arguments::{Check, Choice, OutputFormat, Run};
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Request};
use crate::idempotency::key;
use crate::input::signals;
use crate::render::live::Live;
use crate::render::style::Style;
use crate::render::{Renderer, Settings, Thinking};
use crate::terminal::{Capabilities, Terminal};
use refused::refused;
use running::{Data, Running};

impl Run {
    /// The arguments of `linger run` with only these session options.
    pub(super) fn printing(choice: Choice) -> Self {
        Self {
            choice,
            session: None,
            continue_latest: false,
            rm: false,
            output_format: None,
            print: true,
            detach: false,
            json: false,
            schema: None,
            thinking: Thinking::default(),
            stream: false,
            timeout: None,
            check: Check::default(),
            prompt: Vec::new(),
        }
    }
}

pub(super) fn run(args: Run) -> Result<Exit, Failure> {
    let rm = args.rm;
    let mut session = None;
    let ended = run_in(args, &mut session);
    // A turn that continues or waits for an answer still needs its session.
    let over = matches!(ended, Ok(Exit::GOOD | Exit::FAILED | Exit::CANCELLED));
    if let Some(session) = session.filter(|_| rm) {
        if over {
            remove(session)?;
        } else {
            Terminal::new().say(&format!("kept session {session}: its turn has not ended"))?;
        }
    }
    ended
}

/// Deletes a session for good.
fn remove(session: SessionId) -> Result<(), Failure> {
    let remove = Remove { session, force: false, key: Some(key()?) };
    Client::open()?.call(&SessionRemove(remove)).map(drop)
}

fn run_in(args: Run, made: &mut Option<SessionId>) -> Result<Exit, Failure> {
    let json = args.json || args.output_format == Some(OutputFormat::StreamJson);
    let args = Run { json, ..args };
    let deadline = deadline(args.timeout);
    let written = prompt::written(&args.prompt)?;
    let mode = args.choice.changeable.mode.unwrap_or_default();
    let schema = args.schema.as_deref().map(prompt::schema).transpose()?;
    let mut client = Client::open_within(answer_deadline(deadline))?;
    let info = match (&args.session, args.continue_latest) {
        (Some(session), _) => Some(resolve(&mut client, session)?),
        (None, true) => Some(must_be_latest(&mut client, args.choice.directory.as_deref(), false)?),
        (None, false) => None,
    };
    let expand = written.begins_typed();
    let content = written.content(info.as_ref().map(|info| info.cwd.as_path()))?;
    let session = match &info {
        Some(info) => {
            adopt(&mut client, info, args.choice)?;
            info.session.clone()
        }
        None => create(&mut client, args.choice, true)?,
    };
    *made = Some(session.clone());
    // Removed on failure until its first prompt is accepted.
    let mut unused = info.is_none().then(|| session.clone());
    let content = content
        .with_resources(&mut client, &session)
        .map_err(|failure| refused(&mut client, unused.take(), failure))?;
    let shaped = schema.is_some();
    let env = client.brought_env();
    let prompt = Prompt {
        session: session.clone(),
        content,
        when: None,
        schema,
        until: args.check.into_until(),
        expand,
        awaited: false,
        env,
        key: Some(key()?),
    };
    if args.detach {
        let prompted =
            client.call(&SessionPrompt(prompt)).map_err(|failure| refused(&mut client, unused.take(), failure))?;
        if args.json {
            let made = json!({ "session": session, "prompt": prompted.prompt });
            Terminal::new().data(&made.to_string())?;
        } else {
            Terminal::new().line(session.as_str())?;
        }
        return Ok(Exit::GOOD);
    }
    let capabilities = Capabilities::detect();
    let data = match (args.json, args.stream || capabilities.stdout) {
        (true, _) => Data::Json,
        (false, _) if shaped => Data::Answer,
        (false, true) => Data::Stream,
        (false, false) => Data::Final,
    };
    let deltas = args.stream || data == Data::Stream;
    signals(client.sender(), true)?;
    let busy = info.as_ref().is_some_and(|info| info.state != State::Idle);
    let mut renderer = Renderer::new(settings(&capabilities, deltas, args.thinking, client.name.clone()));
    if info.is_none() {
        renderer.is_of_new_session();
    }
    let window = info.as_ref().and_then(|info| info.context_window);
    let mode = info.as_ref().map_or(mode, |info| info.mode);
    let live = Live::new(renderer.style(), mode, window);
    let mut attachment =
        Attachment::start_for(client, session, info.map(|info| info.cursor), deltas, capabilities.can_ask())?;
    if let Err(failure) = attachment.request(Request::Prompt(prompt)) {
        return Err(refused(&mut attachment.client, unused.take(), failure));
    }
    let mut running = Running::new(attachment, renderer, live, capabilities, data, busy, unused);
    running.follow(deadline)
}

/// The session that `-s` names, changed as the other options say.
pub(super) fn adopt(client: &mut Client, info: &Info, choice: Choice) -> Result<bool, Failure> {
    let set = Set { name: choice.name, ..changes(choice.changeable)? };
    if set == Set::default() {
        return Ok(false);
    }
    client.call(&SessionSet(Set { session: info.session.clone(), key: Some(key()?), ..set }))?;
    Ok(true)
}

fn settings(capabilities: &Capabilities, deltas: bool, thinking: Thinking, me: String) -> Settings {
    Settings {
        style: Style { color: capabilities.color, unicode: capabilities.unicode },
        width: capabilities.width,
        raw: !capabilities.stdout,
        markdown: capabilities.markdown,
        deltas,
        thinking: if capabilities.stderr { thinking } else { Thinking::Hide },
        usage: false,
        permissions: !capabilities.can_ask(),
        prompts: false,
        me,
    }
}
