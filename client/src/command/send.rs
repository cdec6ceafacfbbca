//! `linger send`: gives a session a prompt and leaves.

use linger_protocol::method::SessionPrompt;
use linger_protocol::session::{Prompt, PromptContent, When};

use super::{prompt_text, resolve};
use crate::cli::Send;
use crate::connect::{Client, key};
use crate::error::{Exit, Failure};

pub(super) fn run(args: Send) -> Result<Exit, Failure> {
    let text = prompt_text(&args.prompt)?;
    let mut client = Client::open()?;
    let session = resolve(&mut client, &args.session)?.session;
    let when = match (args.steer, args.interrupt) {
        (true, _) => When::Steer,
        (_, true) => When::Interrupt,
        _ => When::Queue,
    };
    let content = PromptContent::Text(text);
    client.call(&SessionPrompt(Prompt { session, content, when: Some(when), schema: None, key: Some(key()?) }))?;
    Ok(Exit::GOOD)
}
