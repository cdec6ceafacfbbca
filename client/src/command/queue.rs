//! `linger queue`, `unqueue` and `continue`: the prompts that wait for their turn.

use linger_protocol::event::{EventBody, MessageAdded, PromptAccepted};
use linger_protocol::id::{PromptId, SessionId};
use linger_protocol::message::text_of;
use linger_protocol::method::{SessionContinue, SessionUnqueue};
use linger_protocol::session::{self, Unqueued};
use serde_json::json;

use super::wait::reattach;
use super::{print_value, resolve};
use crate::arguments::{Keyed, Unqueue};
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened};
use crate::idempotency::key;
use crate::terminal::{Terminal, clean_line};

pub(super) fn list(args: &Keyed) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let info = resolve(&mut client, &args.session)?;
    let rows = if info.queued == 0 { Vec::new() } else { queued(client, info.session)? };
    let mut terminal = Terminal::new();
    for (prompt, text) in &rows {
        match args.json {
            true => print_value(&json!({ "prompt": prompt, "text": text }))?,
            false => terminal.line(&format!("{prompt}  {}", clean_line(text.lines().next().unwrap_or_default())))?,
        }
    }
    if rows.is_empty() {
        terminal.say("nothing is queued")?;
    }
    Ok(Exit::GOOD)
}

/// Reads the session's log for what waits.
fn queued(client: Client, session: SessionId) -> Result<Vec<(PromptId, String)>, Failure> {
    let mut attachment = Attachment::start(client, session, None, false)?;
    let mut queued = Queued::default();
    loop {
        match attachment.next(None)? {
            Happened::Event(notification, _) => {
                queued.event(&notification.event.body);
                if let EventBody::CaughtUp {} = notification.event.body {
                    return Ok(queued.0);
                }
            }
            Happened::Lost => reattach(&mut attachment)?,
            _ => {}
        }
    }
}

/// Prompts that wait for their turn, with their text.
#[derive(Default)]
pub(super) struct Queued(Vec<(PromptId, String)>);

impl Queued {
    pub(super) fn event(&mut self, body: &EventBody) {
        match body {
            EventBody::PromptAccepted(PromptAccepted { prompt, content, compact, command, .. }) => {
                let text = match (compact, command) {
                    (true, _) => "a summary of older messages".to_owned(),
                    (false, Some(line)) => line.clone(),
                    (false, None) => text_of(content),
                };
                self.0.push((prompt.clone(), text));
            }
            EventBody::TurnStarted { prompt }
            | EventBody::PromptUnqueued { prompt, .. }
            | EventBody::Message(MessageAdded { prompt: Some(prompt), .. }) => {
                self.0.retain(|(queued, _)| queued != prompt)
            }
            _ => {}
        }
    }

    /// A line each, for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |text: &str| format!("queued: {}", clean_line(text.lines().next().unwrap_or_default()));
        self.0.iter().map(|(_, text)| line(text)).collect()
    }
}

pub(super) fn unqueue(args: Unqueue) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let session = resolve(&mut client, &args.session)?.session;
    let unqueue = session::Unqueue { session: session.clone(), prompt: args.prompt.map(PromptId), key: Some(key()?) };
    let Unqueued { prompt } = client.call(&SessionUnqueue(unqueue))?;
    match args.json {
        true => print_value(&json!({ "session": session, "prompt": prompt }))?,
        false => Terminal::new().say(&format!("{prompt} was taken back"))?,
    }
    Ok(Exit::GOOD)
}

pub(super) fn resume(args: &Keyed) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let session = resolve(&mut client, &args.session)?.session;
    client.call(&SessionContinue(session::Keyed { session: session.clone(), key: Some(key()?) }))?;
    if args.json {
        print_value(&json!({ "session": session }))?;
    }
    Ok(Exit::GOOD)
}
