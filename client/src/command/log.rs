//! `linger log`: prints what happened in a session; with `-f` it follows.

use std::collections::VecDeque;

use linger_protocol::event::{Event, EventBody, MessageAdded, Notice, NoticeCode, Notification};
use linger_protocol::message::{Role, StopReason, Times};
use linger_protocol::session::{Info, State};
use serde_json::value::RawValue;

use super::queue::Queued;
use super::since::{Since, since};
use super::undo::one;
use super::wait::reattach;
use crate::arguments::Log;
use crate::connect::Client;
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::follow::{Attachment, Happened};
use crate::input::signals;
use crate::render::style::Style;
use crate::render::table::moment;
use crate::render::{Renderer, Settings, Thinking};
use crate::terminal::{Capabilities, Output, Terminal, UNWRAPPED};

pub(super) fn run(args: &Log) -> Result<Exit, Failure> {
    let capabilities = Capabilities::detect();
    let mut client = Client::open()?;
    let info = one(&mut client, args.session.as_deref())?;
    if args.compaction {
        return super::compactions::list(&mut client, &info, args.json);
    }
    let follow = args.follow || args.forever;
    if follow {
        // Signals end following. Without it, a signal that cuts the log is no success.
        signals(client.sender(), false)?;
    }
    let turns = if args.last { Some(1) } else { args.turns };
    // For only the last turn, start reading there.
    let from = (turns == Some(1)).then(|| info.turn_cursor.clone()).filter(|cursor| *cursor != Default::default());
    let (from, time) = match args.since.as_deref().map(|text| since(text, now())).transpose()? {
        Some(Since::Cursor(cursor)) => (Some(cursor), 0),
        Some(Since::Time(time)) => (None, time),
        None => (from, 0),
    };
    let mut printer = Printer::new(args, &capabilities);
    let mut attachment =
        Attachment::start_for(client, info.session.clone(), from, false, follow && capabilities.stdout)?;
    let mut queued = Queued::default();
    let mut last = turns.map(Last::new);
    // The replayed end of a turn says nothing about what follows it.
    let mut live = false;
    loop {
        match attachment.next(None)? {
            Happened::Event(notification, raw) => {
                let body = &notification.event.body;
                let caught_up = matches!(body, EventBody::CaughtUp {});
                let removed = matches!(body, EventBody::Notice(Notice { code: Some(NoticeCode::Removed), .. }));
                let ended = matches!(body, EventBody::TurnFinished(_));
                live |= caught_up;
                queued.event(body);
                if caught_up && let Some(last) = last.take() {
                    last.0.into_iter().flatten().try_for_each(|(event, raw)| printer.event(&event.event, &raw))?;
                }
                match &mut last {
                    // Skipped, but `caught_up` ends the replay.
                    _ if notification.event.at < time && !caught_up => {}
                    Some(last) => last.event(notification, raw),
                    None => printer.event(&notification.event, &raw)?,
                }
                if caught_up && !args.json {
                    printer.lines(queued.lines())?;
                }
                if removed || (caught_up && !follow) {
                    return Ok(Exit::GOOD);
                }
                if follow && (caught_up || (ended && live)) && !args.forever {
                    let info = attachment.client.session_info(&info.session)?;
                    if is_over(&info) {
                        return Ok(Exit::GOOD);
                    }
                }
            }
            Happened::Lost => reattach(&mut attachment)?,
            Happened::Signal(_) => return Ok(Exit::GOOD),
            _ => {}
        }
    }
}

/// Whether nothing more will happen in the session by itself.
fn is_over(info: &Info) -> bool {
    let stopped = matches!(info.stop_reason, Some(StopReason::Cancelled | StopReason::Error));
    match info.state {
        State::Idle => (info.queued == 0 || stopped) && info.background.is_empty(),
        State::Offered => true,
        State::Running | State::Waiting => false,
    }
}

/// The events of the last turns, each from its start.
struct Last(VecDeque<Vec<(Box<Notification>, Box<RawValue>)>>, usize);

impl Last {
    fn new(turns: usize) -> Self {
        Self(VecDeque::from([Vec::new()]), turns.max(1))
    }

    fn event(&mut self, notification: Box<Notification>, raw: Box<RawValue>) {
        if let EventBody::TurnStarted { .. } = notification.event.body {
            self.0.push_back(Vec::new());
            // Events before the first turn count as one entry.
            while self.0.len() > self.1 {
                self.0.pop_front();
            }
        }
        if let Some(turn) = self.0.back_mut() {
            turn.push((notification, raw));
        }
    }
}

/// Prints events, as text or as JSON.
struct Printer {
    terminal: Terminal,
    renderer: Renderer,
    json: bool,
    times: bool,
}

impl Printer {
    fn new(args: &Log, capabilities: &Capabilities) -> Self {
        let mut terminal = Terminal::new();
        // In a log, messages are data too.
        terminal.one_stream = true;
        let mut renderer = Renderer::new(Settings {
            style: Style { color: capabilities.data_color, unicode: capabilities.unicode },
            width: if capabilities.stdout { capabilities.width } else { UNWRAPPED },
            raw: false,
            markdown: capabilities.markdown,
            deltas: false,
            thinking: Thinking::Hide,
            usage: true,
            permissions: true,
            prompts: true,
            me: String::new(),
        });
        if args.full {
            renderer.show_whole();
        }
        Self { terminal, renderer, json: args.json, times: args.times }
    }

    fn event(&mut self, event: &Event, raw: &RawValue) -> Result<(), Failure> {
        if self.json {
            let caught_up = matches!(event.body, EventBody::CaughtUp {});
            return if caught_up { Ok(()) } else { Ok(self.terminal.data(raw.get())?) };
        }
        let dated = matches!(
            event.body,
            EventBody::Message(MessageAdded { role: Role::User, prompt: Some(_), .. }) | EventBody::TurnFinished(_)
        );
        if self.times && dated {
            let mut out = Vec::new();
            self.renderer.fresh_line(&mut out);
            out.push(Output::Talk(format!("{}\n", self.renderer.style().dim(&moment(event.at)))));
            self.terminal.print(out)?;
        }
        let mut out = self.renderer.event(event);
        if self.times
            && let EventBody::Message(MessageAdded { times: Some(Times { first_byte_ms, total_ms }), .. }) = event.body
        {
            let line = format!("first byte after {first_byte_ms} ms, complete after {total_ms} ms");
            self.renderer.fresh_line(&mut out);
            out.push(Output::Talk(format!("{}\n", self.renderer.style().dim(&line))));
        }
        Ok(self.terminal.print(out)?)
    }

    fn lines(&mut self, lines: Vec<String>) -> Result<(), Failure> {
        lines.iter().try_for_each(|line| Ok(self.terminal.line(line)?))
    }
}
