//! `linger send`: sends a prompt to a session and returns at once.

use linger_protocol::method::SessionPrompt;
use linger_protocol::session::{Prompt, Prompted, When};
use serde_json::json;

use super::find::resolve;
use super::output::print_value;
use super::prompt;
use crate::arguments::Send;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::idempotency::key;

pub(super) fn run(args: Send) -> Result<Exit, Failure> {
    let written = prompt::written(&args.prompt)?;
    let schema = args.schema.as_deref().map(prompt::schema).transpose()?;
    let mut client = Client::open()?;
    let info = resolve(&mut client, &args.session)?;
    let expand = written.begins_typed();
    let content = written.content(Some(&info.cwd))?.with_resources(&mut client, &info.session)?;
    let when = match (args.steer, args.interrupt) {
        (true, _) => When::Steer,
        (_, true) => When::Interrupt,
        _ => When::Queue,
    };
    let session = info.session;
    let env = client.brought_env();
    let prompt = Prompt {
        session: session.clone(),
        content,
        when: Some(when),
        schema,
        until: args.check.into_until(),
        expand,
        awaited: false,
        env,
        key: Some(key()?),
    };
    let Prompted { prompt, seq } = client.call(&SessionPrompt(prompt))?;
    if args.json {
        print_value(&json!({ "session": session, "prompt": prompt, "seq": seq }))?;
    }
    Ok(Exit::GOOD)
}
