//! `linger compact`: replaces a session's older messages by a summary, and prints the result.

use std::time::Instant;

use linger_protocol::event::{Compacted, CompactionFailed, CompactionStarted, EventBody, TurnFinished};
use linger_protocol::id::PromptId;
use linger_protocol::message::StopReason;
use linger_protocol::method::SessionCompact;
use linger_protocol::session::{Compact, State};

use super::compactions::uncompact;
use super::find::resolve;
use super::wait::{AGAIN, Stuck, reattach};
use crate::arguments::{self, Uncompact};
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened};
use crate::idempotency::key;
use crate::input::{Signal, signals};
use crate::render::style::Style;
use crate::render::{Renderer, Settings, Thinking, reason};
use crate::terminal::{Capabilities, Terminal};

pub(super) fn run(args: arguments::Compact) -> Result<Exit, Failure> {
    if args.undo {
        return uncompact(Uncompact { session: args.session, json: args.json });
    }
    let capabilities = Capabilities::detect();
    let mut client = Client::open()?;
    let info = resolve(&mut client, &args.session)?;
    // Check now: behind a turn that waits for an answer it would never run.
    let mut check = (info.state != State::Idle).then(Instant::now);
    let mut stuck = Stuck::default();
    let (session, focus) = (info.session, Some(args.focus.join(" ")).filter(|focus| !focus.trim().is_empty()));
    let asked = client.call(&SessionCompact(Compact { session: session.clone(), focus, key: Some(key()?) }))?;
    signals(client.sender(), false)?;
    let mut terminal = Terminal::new();
    let mut renderer = renderer(&capabilities);
    let mut attachment = Attachment::start(client, session, Some(info.cursor), false)?;
    // Whether the running turn is that of the compaction.
    let mut own = false;
    let mut exit = None;
    loop {
        // Wait for the end of its own turn, not of another one.
        if let (Some(exit), false) = (exit, own) {
            return Ok(exit);
        }
        if check.is_some_and(|at| Instant::now() >= at) {
            let info = attachment.client.session_info(&attachment.session)?;
            if let Some(exit) = stuck.check(&mut attachment.client, &info)? {
                terminal.say("the compaction runs after that")?;
                return Ok(exit);
            }
            check = (info.state == State::Waiting).then(|| Instant::now() + AGAIN);
        }
        match attachment.next(check)? {
            Happened::Event(notification, raw) => {
                let body = &notification.event.body;
                if let EventBody::PermissionRequested(_) | EventBody::QuestionAsked { .. } | EventBody::Notice(_) = body
                {
                    check.get_or_insert_with(Instant::now);
                }
                if is_about(body, &asked.prompt) && args.json {
                    terminal.data(raw.get())?;
                } else if is_about(body, &asked.prompt) {
                    terminal.print(renderer.event(&notification.event))?;
                }
                match body {
                    EventBody::Compacted(Compacted { prompt: Some(of), .. }) if *of == asked.prompt => {
                        exit = Some(Exit::GOOD)
                    }
                    EventBody::CompactionFailed(CompactionFailed { prompt: Some(of), .. }) if *of == asked.prompt => {
                        exit = exit.or(Some(Exit::FAILED));
                    }
                    EventBody::PromptDrafted { prompt } if *prompt == asked.prompt => {
                        let session = &attachment.session;
                        let before = "the turn before this compaction was cancelled, and it is a draft now".to_owned();
                        return Err(Failure::new(Exit::of(StopReason::Cancelled), before)
                            .hint(format!("`linger queue {session} --send {prompt}` sends it")));
                    }
                    EventBody::TurnStarted { prompt } => own = *prompt == asked.prompt,
                    EventBody::TurnFinished(TurnFinished {
                        stop_reason: stop_reason @ StopReason::Cancelled, ..
                    }) if own => {
                        terminal.say(reason(*stop_reason))?;
                        return Ok(Exit::of(*stop_reason));
                    }
                    EventBody::TurnFinished(TurnFinished { stop_reason, .. }) if own => {
                        return Ok(exit.unwrap_or(Exit::of(*stop_reason)));
                    }
                    EventBody::TurnFinished(TurnFinished {
                        stop_reason: stop_reason @ (StopReason::Cancelled | StopReason::Error),
                        ..
                    }) => {
                        let session = &attachment.session;
                        let before = format!("the turn before this compaction: {}", reason(*stop_reason));
                        return Err(Failure::new(Exit::of(*stop_reason), before)
                            .hint(format!("it stays queued; `linger queue {session} --run` starts it")));
                    }
                    _ => {}
                }
            }
            Happened::Answer(_, Err(error)) => return Err(error.into()),
            Happened::Lost => reattach(&mut attachment)?,
            Happened::Signal(Signal::Interrupt) if own => attachment.cancel()?,
            Happened::Signal(_) => {
                terminal.say("detached; the compaction runs before the next step")?;
                return Ok(Exit::GOOD);
            }
            _ => {}
        }
    }
}

/// Shows the events of a compaction, without the text of models.
fn renderer(capabilities: &Capabilities) -> Renderer {
    Renderer::new(Settings {
        style: Style { color: capabilities.color && capabilities.stderr, unicode: capabilities.unicode },
        width: capabilities.width,
        raw: false,
        markdown: capabilities.markdown,
        deltas: false,
        thinking: Thinking::Hide,
        usage: false,
        permissions: false,
        prompts: false,
        me: String::new(),
    })
}

/// Whether the event concerns this compaction or its delay.
fn is_about(body: &EventBody, asked: &PromptId) -> bool {
    match body {
        EventBody::CompactionStarted(CompactionStarted { prompt, .. })
        | EventBody::Compacted(Compacted { prompt, .. })
        | EventBody::CompactionFailed(CompactionFailed { prompt, .. }) => prompt.as_ref() == Some(asked),
        EventBody::Notice(_) => true,
        _ => false,
    }
}
