//! `skill/*`, `command/*`, `agent/*`, and prompts that name a command or a skill.

use linger_protocol::RpcError;
use linger_protocol::agent::{Item, List};
use linger_protocol::error::Code;
use linger_protocol::id::SessionId;
use linger_protocol::message::ContentBlock;
use linger_protocol::session::Set;

use super::{Caller, Services};
use crate::agent::command::{self, Piece};
use crate::agent::{FileKind, Library};
use crate::registry::place::HeldPlace;
use crate::session::env::library::library;
use crate::session::messages::{CallBasis, Command, KeyedReply, Named};
use crate::sys::disk;

/// The largest file that a command names, in bytes: about 24,000 tokens.
const MAX_FILE: u64 = 96 << 10;

/// The tool that gives a task to an agent.
const DELEGATE: &str = "delegate";

/// How alike a name must be to be suggested.
const NEAR: f32 = 0.6;

/// The files of a kind that sessions in a directory have, or one file, checked.
pub async fn list(services: &Services, caller: &Caller, kind: FileKind, params: List) -> Result<Vec<Item>, RpcError> {
    let List { cwd, path, text } = params;
    let named = path.as_deref().unwrap_or(&cwd);
    if !named.is_absolute() {
        return Err(RpcError::new(Code::NoWorkspace, format!("{}: not an absolute path", named.display()))
            .hint("name a file or directory from `/` on"));
    }
    match &path {
        // It may be any file.
        Some(_) if !caller.is_plain() => caller.must_be_process(services, "check a file")?,
        Some(_) => {}
        None => caller.may_look_into(services, &cwd).await?,
    }
    let tools = services.env().toolbox.tools.current();
    if let Some(path) = path {
        let probed = path.clone();
        let check = move || vec![crate::agent::check(kind, &path, tools.names(), text)];
        let silent = || RpcError::new(Code::Storage, disk::unresponsive(&probed));
        return disk::probe(&probed, disk::TIMEOUT, check).await.ok_or_else(silent);
    }
    let workspace =
        services.env().workspaces.workspace(&SessionId::default(), &cwd, Default::default(), disk::TIMEOUT).await;
    Ok(library(&services.env().toolbox, &workspace).await?.rows(kind, text))
}

/// The text that a prompt begins with.
fn first_text(blocks: &[ContentBlock]) -> Option<&str> {
    blocks.first().and_then(ContentBlock::as_text)
}

/// Whether a prompt begins with `/name`.
pub(super) fn names_command(blocks: &[ContentBlock]) -> bool {
    first_text(blocks).is_some_and(|text| command::named(text).is_some())
}

/// Replaces `/name …` at the start of a prompt by the text of that command or skill; gives what was named. `place`: the prompt's
/// place in its session.
pub(super) async fn expand(
    services: &Services,
    place: &HeldPlace,
    blocks: &mut [ContentBlock],
) -> Result<Option<Named>, RpcError> {
    let typed = first_text(blocks).unwrap_or_default().to_owned();
    let Some((name, arguments)) = command::named(&typed) else { return Ok(None) };
    let basis = place.ask(Command::CallBasis).await?;
    let library = library(&services.env().toolbox, &basis.workspace).await?;
    let pieces = match library.expand(name, arguments) {
        Some(pieces) => pieces.map_err(|why| bad(name, &why))?,
        None => return Err(unknown(&library, name)),
    };
    let (mut text, mut runs) = (String::new(), Vec::new());
    for piece in pieces {
        match piece {
            Piece::Text(piece) => text.push_str(&piece),
            Piece::Run(line) => {
                text.push_str(&format!("[the output of `{line}` follows]"));
                runs.push(line);
            }
            Piece::File(file) => text.push_str(&read(services, &basis, &file).await.map_err(|why| bad(name, &why))?),
        }
    }
    let command = library.commands.iter().find(|entry| entry.name == name).map(|entry| &entry.item);
    if let Some(agent) = command.and_then(|command| command.agent.as_deref()) {
        text = as_agent(&basis, name, agent, text)?;
    }
    if let Some(model) = command.and_then(|command| command.model.clone()) {
        set_model(place, &basis, name, model).await?;
    }
    if let Some(first) = blocks.first_mut() {
        *first = ContentBlock::text(text);
    }
    Ok(Some(Named { runs, limit: library.limit(name), typed: typed.clone() }))
}

/// The text of a command that is the work of an agent: the session's own, or one that the model can delegate to.
fn as_agent(basis: &CallBasis, name: &str, agent: &str, text: String) -> Result<String, RpcError> {
    if basis.role.as_ref().is_some_and(|role| role.name == agent) {
        return Ok(text);
    }
    if basis.tools.get(DELEGATE).is_some() {
        return Ok(format!(
            "Give this task to the agent `{agent}` with the tool `{DELEGATE}`, and report its answer:\n\n{text}"
        ));
    }
    Err(RpcError::new(Code::BadPrompt, format!("/{name} is work of the agent `{agent}`, which this session is not"))
        .hint(format!("`linger run --agent {agent} \"/{name} …\"` starts a session that is")))
}

/// Gives the session the model that a command wants, as `session/set` does.
async fn set_model(place: &HeldPlace, basis: &CallBasis, name: &str, model: String) -> Result<(), RpcError> {
    if basis.model == model {
        return Ok(());
    }
    if basis.is_busy {
        let why = format!("it wants the model {model}, and a turn runs with another one");
        return Err(RpcError::new(Code::BadPrompt, format!("/{name}: {why}")).hint("send it again after the turn"));
    }
    let set = Set { session: place.session().clone(), model: Some(model), ..Set::default() };
    place.ask(|reply| Command::Set(set, Ok(()), KeyedReply { key: None, reply })).await
}

fn bad(name: &str, why: &str) -> RpcError {
    RpcError::new(Code::BadPrompt, format!("/{name}: {why}")).hint("`linger commands validate` checks all of them")
}

fn unknown(library: &Library, name: &str) -> RpcError {
    let rows = [FileKind::Command, FileKind::Skill].map(|kind| library.clone().rows(kind, false)).concat();
    let waits = rows.iter().find(|row| row.name == name && row.status == linger_protocol::agent::Status::Waits);
    let broken = rows.iter().find(|row| row.name == name && row.status == linger_protocol::agent::Status::Broken);
    let near = crate::diagnostics::nearest::nearest(name, library.names(), NEAR);
    let (why, hint) = match (waits, broken, near) {
        (Some(row), ..) if row.scope == linger_protocol::agent::Scope::User => {
            (format!("/{name} is not confirmed"), "`linger config confirm` shows what is not, and asks".to_owned())
        }
        (Some(_), ..) => {
            (format!("/{name} is not trusted"), "`linger trust` shows what the workspace wants, and asks".to_owned())
        }
        (_, Some(row), _) => {
            let why = row.problems.first().map(ToString::to_string).unwrap_or_default();
            (format!("/{name} cannot be used: {}: {why}", row.path.display()), "correct the file".to_owned())
        }
        (.., Some(near)) => (format!("unknown command or skill /{name}"), format!("did you mean /{near}?")),
        _ => (format!("unknown command or skill /{name}"), "`linger commands list` and `linger skills list` list them; a prompt that begins with a blank is sent as it is".to_owned()),
    };
    RpcError::new(Code::BadPrompt, why).hint(hint)
}

/// A file that a command names, as far as the session may read it without asking.
async fn read(services: &Services, basis: &CallBasis, file: &str) -> Result<String, String> {
    let CallBasis { workspace, .. } = basis;
    let path = match file.strip_prefix("~/").zip(services.config.home()) {
        Some((below, home)) => home.join(below),
        None => workspace.cwd.join(file),
    };
    let read = services.env().policy.read_unasked(basis.settled(), workspace, &path, MAX_FILE).await;
    let text = read.map_err(|why| format!("@{file}: {why}"))?;
    let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
    Ok(format!("\n<file path=\"{}\">\n{text}{end}</file>\n", crate::tool::text::one_line(file)))
}
