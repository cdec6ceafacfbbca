//! `linger log`: prints what happened in a session, and with `-f` what happens.

use linger_protocol::event::{EventBody, NoticeCode};
use linger_protocol::id::PromptId;
use linger_protocol::message::text_of;

use super::resolve;
use super::wait::reattach;
use crate::arguments::Log;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened};
use crate::input::signals;
use crate::render::style::Style;
use crate::render::{Renderer, Settings, Thinking};
use crate::terminal::{Capabilities, Terminal, clean_line};

pub(super) fn run(args: &Log) -> Result<Exit, Failure> {
    let look = Capabilities::detect();
    let mut client = Client::open()?;
    let session = resolve(&mut client, &args.session)?.session;
    if args.follow {
        // The way to leave. Without it, a story that is cut is no success.
        signals(client.sender(), false)?;
    }
    let mut terminal = Terminal::new();
    // Here the talk is the data.
    terminal.one_stream = true;
    let mut renderer = Renderer::new(Settings {
        style: Style { color: look.color && look.stdout, unicode: look.unicode },
        width: look.width,
        raw: false,
        deltas: false,
        thinking: Thinking::Hide,
        usage: true,
        permissions: true,
        prompts: true,
        me: String::new(),
    });
    let mut attachment = Attachment::start(client, session, None, false)?;
    let mut queued = Queued::default();
    loop {
        match attachment.next(None)? {
            Happened::Event(notification, raw) => {
                let caught_up = matches!(notification.event.body, EventBody::CaughtUp {});
                let removed =
                    matches!(notification.event.body, EventBody::Notice { code: Some(NoticeCode::Removed), .. });
                match args.json {
                    true if caught_up => {}
                    true => terminal.data(raw.get())?,
                    false => terminal.print(renderer.event(&notification.event))?,
                }
                queued.event(&notification.event.body);
                if caught_up && !args.json {
                    for line in queued.lines() {
                        terminal.line(&line)?;
                    }
                }
                if removed || (caught_up && !args.follow) {
                    return Ok(Exit::GOOD);
                }
            }
            Happened::Lost => reattach(&mut attachment)?,
            Happened::Signal(_) => return Ok(Exit::GOOD),
            _ => {}
        }
    }
}

/// Prompts that wait for their turn.
#[derive(Default)]
struct Queued(Vec<(PromptId, String)>);

impl Queued {
    fn event(&mut self, body: &EventBody) {
        match body {
            EventBody::PromptAccepted { prompt, content, compact, command, .. } => {
                let text = match compact {
                    false if command.is_some() => clean_line(command.as_deref().unwrap_or_default()).into_owned(),
                    true => "a summary of older messages".to_owned(),
                    false => clean_line(text_of(content).lines().next().unwrap_or_default()).into_owned(),
                };
                self.0.push((prompt.clone(), text));
            }
            EventBody::TurnStarted { prompt } | EventBody::Message { prompt: Some(prompt), .. } => {
                self.0.retain(|(queued, _)| queued != prompt);
            }
            _ => {}
        }
    }

    fn lines(&self) -> Vec<String> {
        self.0.iter().map(|(_, text)| format!("queued: {text}")).collect()
    }
}
