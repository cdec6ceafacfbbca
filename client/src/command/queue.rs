//! `linger queue`: lists a session's queued prompts and drafts, takes one back, or sends them.

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
    let Queue { session, drop, run, send, json } = args;
    if run || send.is_some() {
        return go_on(&Keyed { session, json }, send.map(PromptId));
    }
    match drop {
        Some(prompt) => unqueue(Unqueue { session, prompt, json }),
        None => list(&session, json),
    }
}

fn list(named: &str, json: bool) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let info = resolve(&mut client, named)?;
    let is_empty = info.queued == 0 && info.drafts == 0;
    let rows = if is_empty { Vec::new() } else { queued(client, info.session)? };
    let mut terminal = Terminal::new();
    for QueueRow { prompt, text, draft } in &rows {
        if json {
            print_value(&json!({ "prompt": prompt, "text": text, "draft": draft }))?;
        } else {
            let first = clean_line(text.lines().next().unwrap_or_default());
            let mark = if *draft { "draft: " } else { "" };
            terminal.line(&format!("{prompt}  {mark}{first}"))?;
        }
    }
    if rows.is_empty() {
        terminal.say("nothing is queued")?;
    }
    Ok(Exit::GOOD)
}

/// Reads the queued prompts from the session's log.
fn queued(client: Client, session: SessionId) -> Result<Vec<QueueRow>, Failure> {
    let mut attachment = Attachment::start(client, session, None, false)?;
    let mut queued = Queued::default();
    loop {
        match attachment.next(None)? {
            Happened::Event(notification, _) => {
                queued.event(&notification.event.body);
                if let EventBody::CaughtUp {} = notification.event.body {
                    // The drafts come last.
                    queued.0.sort_by_key(|row| row.draft);
                    return Ok(queued.0);
                }
            }
            Happened::Lost => reattach(&mut attachment)?,
            _ => {}
        }
    }
}

/// A prompt that waits.
struct QueueRow {
    prompt: PromptId,
    text: String,
    /// Whether it waits for its user to send it again.
    draft: bool,
}

/// The queued prompts and the drafts at one point of a log, with their text.
#[derive(Default)]
pub(super) struct Queued(Vec<QueueRow>);

impl Queued {
    pub(super) fn event(&mut self, body: &EventBody) {
        match body {
            EventBody::PromptAccepted(PromptAccepted { prompt, content, compact, command, .. }) => {
                let text = match (compact, command) {
                    (true, _) => "a summary of older messages".to_owned(),
                    (false, Some(line)) => line.clone(),
                    (false, None) => text_of(content),
                };
                self.0.push(QueueRow { prompt: prompt.clone(), text, draft: false });
            }
            EventBody::PromptDrafted { prompt } => self.mark(prompt, true),
            EventBody::DraftSent { prompt, .. } => self.mark(prompt, false),
            EventBody::TurnStarted { prompt }
            | EventBody::PromptUnqueued { prompt, .. }
            | EventBody::Message(MessageAdded { prompt: Some(prompt), .. }) => {
                self.0.retain(|row| row.prompt != *prompt)
            }
            // The queued prompts are the origin's.
            EventBody::Forked(_) => self.0.clear(),
            _ => {}
        }
    }

    /// A prompt becomes a draft, or is queued again behind the others.
    fn mark(&mut self, prompt: &PromptId, draft: bool) {
        if let Some(at) = self.0.iter().position(|row| row.prompt == *prompt) {
            let row = self.0.remove(at);
            self.0.push(QueueRow { draft, ..row });
        }
    }

    /// One line per prompt, for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |row: &QueueRow| {
            let first = clean_line(row.text.lines().next().unwrap_or_default());
            format!("{}: {first}", if row.draft { "draft" } else { "queued" })
        };
        self.0.iter().map(line).collect()
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
    go_on(args, None)
}

/// Goes on with a session; with a prompt, sends that draft alone.
fn go_on(args: &Keyed, prompt: Option<PromptId>) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let session = resolve(&mut client, &args.session)?.session;
    client.call(&SessionContinue(session::Continue { session: session.clone(), prompt, key: Some(key()?) }))?;
    if args.json {
        print_value(&json!({ "session": session }))?;
    }
    Ok(Exit::GOOD)
}
