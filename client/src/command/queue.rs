//! `linger queue`: lists a session's queued prompts, takes one back, or runs them.

use linger_protocol::event::{EventBody, MessageAdded, PromptAccepted};
use linger_protocol::id::{PromptId, SessionId};
use linger_protocol::message::text_of;
use linger_protocol::method::{SessionContinue, SessionUnqueue};
use linger_protocol::session::{self, Unqueued};
use serde_json::json;

use super::find::resolve;
use super::output::print_value;
use super::wait::reattach;
use crate::arguments::{Keyed, Queue, Unqueue};
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened};
use crate::idempotency::key;
use crate::terminal::{Terminal, clean_line};

pub(super) fn run(args: Queue) -> Result<Exit, Failure> {
    let Queue { session, drop, run, json } = args;
    if run {
        return resume(&Keyed { session, json });
    }
    match drop {
        Some(prompt) => unqueue(Unqueue { session, prompt, json }),
        None => list(&session, json),
    }
}

fn list(named: &str, json: bool) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let info = resolve(&mut client, named)?;
    let rows = if info.queued == 0 { Vec::new() } else { queued(client, info.session)? };
    let mut terminal = Terminal::new();
    for (prompt, text) in &rows {
        if json {
            print_value(&json!({ "prompt": prompt, "text": text }))?;
        } else {
            terminal.line(&format!("{prompt}  {}", clean_line(text.lines().next().unwrap_or_default())))?;
        }
    }
    if rows.is_empty() {
        terminal.say("nothing is queued")?;
    }
    Ok(Exit::GOOD)
}

/// Reads the queued prompts from the session's log.
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

/// The queued prompts at one point of a log, with their text.
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

    /// One line per prompt, for people.
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
    if args.json {
        print_value(&json!({ "session": session, "prompt": prompt }))?;
    } else {
        Terminal::new().say(&format!("dropped {prompt}"))?;
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
