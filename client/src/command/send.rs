//! `linger send`: gives a session a prompt and leaves.

use linger_protocol::method::SessionPrompt;
use linger_protocol::session::{Prompt, When};

use super::{prompt, resolve};
use crate::cli::Send;
use crate::connect::{Client, key};
use crate::error::{Exit, Failure};

pub(super) fn run(args: Send) -> Result<Exit, Failure> {
    let written = prompt::written(&args.prompt)?;
    let schema = args.schema.as_deref().map(prompt::schema).transpose()?;
    let mut client = Client::open()?;
    let info = resolve(&mut client, &args.session)?;
    let content = written.content(Some(&info.cwd))?;
    let when = match (args.steer, args.interrupt) {
        (true, _) => When::Steer,
        (_, true) => When::Interrupt,
        _ => When::Queue,
    };
    let session = info.session;
    client.call(&SessionPrompt(Prompt { session, content, when: Some(when), schema, key: Some(key()?) }))?;
    Ok(Exit::GOOD)
}
