//! `linger events`: the events of all sessions in one stream.

use std::time::Instant;

use linger_protocol::event::{
    EventBody, MessageAdded, Notice, PermissionRequested, PermissionResolved, PromptAccepted, QuestionResolved,
    SessionChanged, SessionCreated, ToolStarted, TurnFinished,
};
use linger_protocol::events::{ALL_KINDS, NOW, Notification, Subscribe};
use linger_protocol::id::Cursor;
use linger_protocol::message::text_of;
use linger_protocol::method::EventsSubscribe;
use linger_protocol::transport::blocking::Incoming;
use serde_json::value::RawValue;

use super::find::resolve;
use super::since::{Since, since};
use crate::arguments::Events;
use crate::connect::{Client, RECONNECTING, is_ending, parse};
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::input::{Event, signals};
use crate::render::money;
use crate::render::table::moment;
use crate::render::worktree;
use crate::terminal::{Capabilities, Terminal};

/// Characters of a text that a line shows.
const SHOWN: usize = 100;

pub(super) fn run(args: &Events) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let sessions = args.sessions.iter().map(|session| Ok(resolve(&mut client, session)?.session));
    let sessions: Vec<_> = sessions.collect::<Result<_, Failure>>()?;
    let since = args.since.as_deref().map(|text| since(text, now())).transpose()?;
    let (after, from) = match since {
        Some(Since::Cursor(cursor)) => (Some(cursor), 0),
        Some(Since::Time(time)) => (None, time),
        None => (args.follow.then(|| Cursor(NOW.to_owned())), 0),
    };
    let kinds = args.kinds.iter().map(|kind| if kind == "all" { ALL_KINDS.to_owned() } else { kind.clone() });
    let kinds: Vec<String> = kinds.collect();
    signals(client.sender(), false)?;
    let subscribe = Subscribe {
        sessions: Some(sessions).filter(|sessions| !sessions.is_empty()),
        kinds: Some(kinds).filter(|kinds| !kinds.is_empty()),
        after,
    };
    let mut feed = Feed::start(client, subscribe)?;
    let mut terminal = Terminal::new();
    while let Some((notification, raw)) = feed.next()? {
        let event = &notification.event;
        match &event.body {
            EventBody::CaughtUp {} if args.follow => {}
            EventBody::CaughtUp {} => return Ok(Exit::GOOD),
            // Only for this reader: its stream has ended.
            EventBody::Notice(Notice { text, .. }) if notification.session.is_none() => {
                return Err(Failure::new(Exit::FAILED, text.clone()));
            }
            _ if event.at < from => {}
            _ if args.json => terminal.data(raw.get())?,
            _ => terminal.line(&line(&notification))?,
        }
    }
    Ok(Exit::GOOD)
}

/// One event as a line: time, session, kind and its main content.
fn line(notification: &Notification) -> String {
    let event = &notification.event;
    let session = notification.session.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
    let kind = <&str>::from(&event.body);
    format!("{}  {session}  {kind}  {}", moment(event.at), short(&summary(&event.body))).trim_end().to_owned()
}

/// The main content of an event.
fn summary(body: &EventBody) -> String {
    match body {
        EventBody::SessionCreated(SessionCreated { cwd, model, name, .. }) => {
            let name = name.as_ref().map(|name| format!("{name} ")).unwrap_or_default();
            format!("{name}{model} in {}", cwd.display())
        }
        EventBody::SessionChanged(SessionChanged { model, mode, name, binned, .. }) => {
            let parts = [
                name.as_ref().map(|name| format!("name {name}")),
                model.as_ref().map(|model| format!("model {model}")),
                mode.map(|mode| format!("mode {mode}")),
                binned.map(|binned| if binned { "in the bin" } else { "out of the bin" }.to_owned()),
            ];
            parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
        }
        EventBody::PromptAccepted(PromptAccepted { content, .. })
        | EventBody::Message(MessageAdded { content, .. }) => text_of(content),
        EventBody::ToolStarted(ToolStarted { tool, action, .. }) => format!("{tool} {action}"),
        EventBody::PermissionRequested(PermissionRequested { permission, tool, action, .. }) => {
            format!("{permission} {tool} {action}")
        }
        EventBody::PermissionResolved(PermissionResolved { permission, decision, by, .. }) => {
            format!("{permission} {} by {by}", decision.name())
        }
        EventBody::QuestionAsked { question, asked } => format!("{question} {}", asked.text),
        EventBody::QuestionResolved(QuestionResolved { question, answer, by, .. }) => match answer {
            Some(answer) => format!("{question} {answer} by {by}"),
            None => format!("{question} withdrawn: {by}"),
        },
        EventBody::TurnFinished(TurnFinished { stop_reason, usage, .. }) => {
            let reason = serde_json::json!(stop_reason);
            format!("{} {}", reason.as_str().unwrap_or_default(), money::cost(usage))
        }
        EventBody::Notice(Notice { text, .. }) => text.clone(),
        EventBody::Merged(done) => worktree::merged(done),
        EventBody::WorktreeChanged(now) => worktree::changed(now),
        _ => String::new(),
    }
}

/// The first line of a text, shortened.
fn short(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let cut: String = line.chars().take(SHOWN).collect();
    if cut.len() < text.trim().len() { format!("{cut}…") } else { cut }
}

/// An event, typed and as received.
type Notified = (Box<Notification>, Box<RawValue>);

/// A subscription to all sessions that survives lost connections.
pub(super) struct Feed {
    /// The connection. Events that arrive during calls are kept for [`Feed::next`].
    pub(super) client: Client,
    /// The subscription; `after` advances with each event.
    subscribe: Subscribe,
    /// The connection number that the subscription belongs to.
    epoch: u32,
    /// The `events/subscribe` request without an answer yet.
    open: Option<u64>,
}

impl Feed {
    /// Subscribes; does not wait for the answer.
    pub(super) fn start(client: Client, subscribe: Subscribe) -> Result<Self, Failure> {
        let epoch = client.epoch;
        let mut feed = Self { client, subscribe, epoch, open: None };
        feed.subscribe()?;
        Ok(feed)
    }

    fn subscribe(&mut self) -> Result<(), Failure> {
        self.epoch = self.client.epoch;
        // If it cannot be sent, the reader reports the lost connection.
        self.open = self.client.send(&EventsSubscribe(self.subscribe.clone()))?;
        Ok(())
    }

    /// Waits for the next event; `None` after a signal.
    pub(super) fn next(&mut self) -> Result<Option<Notified>, Failure> {
        loop {
            if self.client.epoch != self.epoch {
                // A call opened a new connection.
                self.subscribe()?;
            }
            match self.client.next_event(None::<Instant>) {
                Some(Event::Incoming(_, Incoming::Any(notification, raw))) => {
                    self.subscribe.after = Some(notification.cursor.clone());
                    return Ok(Some((notification, raw)));
                }
                Some(Event::Incoming(_, Incoming::Response(_, answer))) if is_ending(&answer) => self.again()?,
                Some(Event::Incoming(_, Incoming::Response(id, answer))) if self.open == Some(id) => {
                    self.open = None;
                    let answer = parse::<EventsSubscribe>(&answer?)?;
                    if self.subscribe.after.as_ref().is_some_and(|after| after.0 == NOW) {
                        // On the next connection `now` would be later.
                        self.subscribe.after = Some(answer.cursor);
                    }
                }
                Some(Event::Lost(_)) => self.again()?,
                Some(Event::Refused(_, failure)) => return Err(failure),
                Some(event) if event.is_stop() => return Ok(None),
                Some(_) | None => {}
            }
        }
    }

    /// Subscribes again over a new connection, after the last event seen.
    fn again(&mut self) -> Result<(), Failure> {
        if self.client.epoch == self.epoch {
            let back = match self.client.reconnect_soon() {
                Ok(false) => {
                    if Capabilities::detect().stderr {
                        Terminal::new().say(RECONNECTING)?;
                    }
                    self.client.reconnect_attached()
                }
                back => back.map(drop),
            };
            match back {
                // The signal is the next event.
                Err(failure) if failure.interrupted => return Ok(()),
                back => back?,
            }
        }
        self.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_to_the_beginning_of_its_first_line() {
        assert_eq!(short("one line"), "one line");
        assert_eq!(short("one\ntwo"), "one…");
        assert_eq!(short(&"ä".repeat(200)).chars().count(), SHOWN + 1);
    }
}
