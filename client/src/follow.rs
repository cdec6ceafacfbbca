//! An attached session: its events from a cursor on, over as many connections as it takes.
//!
//! What was asked for and not yet answered when a connection is lost is sent again over the next, with its idempotency key,
//! and reading goes on at the last cursor: nothing is missed, and nothing comes twice.

use std::time::Instant;

use linger_protocol::RpcError;
use linger_protocol::event::{EventBody, NoticeCode, Notification};
use linger_protocol::id::{Cursor, SessionId};
use linger_protocol::method::{
    PermissionAnswer, SessionAttach, SessionCancel, SessionCompact, SessionContinue, SessionPrompt, SessionSet,
};
use linger_protocol::permission::Answer;
use linger_protocol::session::{Attach, Compact, Keyed, Prompt, Set};
use linger_protocol::transport::blocking::Incoming;
use serde_json::value::RawValue;

use crate::connect::{Client, is_ending, key};
use crate::error::{Exit, Failure};
use crate::input::{Event, Key, Line, Signal};

/// Something to ask for while events come in, with a key; its answer is one of the things that happen.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// `session/prompt`.
    Prompt(Prompt),
    /// `session/compact`.
    Compact(Compact),
    /// `permission/answer`.
    Answer(Answer),
    /// `session/cancel`.
    Cancel(Keyed),
    /// `session/continue`.
    Continue(Keyed),
    /// `session/set`.
    Set(Set),
}

/// What a command that follows a session is woken by.
#[derive(Debug)]
pub(crate) enum Happened {
    /// An event of the session, and `params` as it came.
    Event(Box<Notification>, Box<RawValue>),
    /// The answer to a request.
    Answer(Box<Request>, Result<Box<RawValue>, RpcError>),
    /// The connection was lost; [`Attachment::back_soon`] and [`Attachment::reattach`] are the things to do.
    Lost,
    /// A line was typed.
    Line(Line),
    /// A key was pressed.
    Key(Key),
    /// A signal came.
    Signal(Signal),
    /// The deadline passed.
    TimedOut,
}

/// A session that is followed.
pub(crate) struct Attachment {
    /// The connection; calls over it keep events for later.
    pub(crate) client: Client,
    /// The session.
    pub(crate) session: SessionId,
    deltas: bool,
    /// Where to read on from.
    cursor: Option<Cursor>,
    /// The last durable event that was handed on.
    seq: u64,
    /// The connection over which it is attached.
    epoch: u32,
    /// The number of the attach that is not answered yet.
    attach: Option<u64>,
    /// What was asked for and is not answered yet.
    open: Vec<(u64, Request)>,
}

impl Attachment {
    /// Attaches after `cursor`; does not wait for the answer.
    pub(crate) fn start(
        client: Client,
        session: SessionId,
        cursor: Option<Cursor>,
        deltas: bool,
    ) -> Result<Self, Failure> {
        let epoch = client.epoch;
        let mut attachment = Self { client, session, deltas, cursor, seq: 0, epoch, attach: None, open: Vec::new() };
        attachment.attach()?;
        Ok(attachment)
    }

    fn attach(&mut self) -> Result<(), Failure> {
        let deltas = (!self.deltas).then_some(false);
        let attach = Attach { session: self.session.clone(), after: self.cursor.clone(), deltas };
        // If it cannot be sent, the reader will notice that the connection is lost.
        self.attach = self.client.send(&SessionAttach(attach))?;
        Ok(())
    }

    /// Asks for something; fails if that can never be asked for.
    pub(crate) fn request(&mut self, request: Request) -> Result<(), Failure> {
        let sent = match &request {
            Request::Prompt(prompt) => self.client.send(&SessionPrompt(prompt.clone())),
            Request::Compact(compact) => self.client.send(&SessionCompact(compact.clone())),
            Request::Answer(answer) => self.client.send(&PermissionAnswer(answer.clone())),
            Request::Cancel(keyed) => self.client.send(&SessionCancel(keyed.clone())),
            Request::Continue(keyed) => self.client.send(&SessionContinue(keyed.clone())),
            Request::Set(set) => self.client.send(&SessionSet(set.clone())),
        }?;
        self.open.push((sent.unwrap_or_default(), request));
        Ok(())
    }

    /// Asks for the session's turn to be cancelled.
    pub(crate) fn cancel(&mut self) -> Result<(), Failure> {
        self.request(Request::Cancel(Keyed { session: self.session.clone(), key: Some(key()?) }))
    }

    /// Comes back after a loss if the daemon is back at once, or a signal comes first; whether it was.
    pub(crate) fn back_soon(&mut self) -> Result<bool, Failure> {
        if self.client.epoch == self.epoch {
            match self.client.back_soon() {
                Err(failure) if failure.interrupted => return Ok(true),
                Ok(true) => {}
                other => return other,
            }
        }
        self.go_on().map(|()| true)
    }

    /// Comes back after a loss, starting a daemon if there is none, unless a signal comes first.
    pub(crate) fn reattach(&mut self) -> Result<(), Failure> {
        if self.client.epoch == self.epoch {
            match self.client.reopen() {
                Err(failure) if failure.interrupted => return Ok(()),
                back => back?,
            }
        }
        self.go_on()
    }

    /// Attaches over a new connection, and sends again what was not answered.
    fn go_on(&mut self) -> Result<(), Failure> {
        self.epoch = self.client.epoch;
        self.attach()?;
        for (_, request) in std::mem::take(&mut self.open) {
            self.request(request)?;
        }
        Ok(())
    }

    /// The next thing that happens.
    pub(crate) fn next(&mut self, deadline: Option<Instant>) -> Result<Happened, Failure> {
        loop {
            if self.client.epoch != self.epoch {
                // A call in between has made a new connection.
                self.go_on()?;
            }
            let Some(event) = self.client.next_event(deadline) else { return Ok(Happened::TimedOut) };
            match event {
                Event::Incoming(_, Incoming::Event(notification, raw)) => {
                    self.goes_on(&notification)?;
                    if let Some(happened) = self.event(notification, raw) {
                        return Ok(happened);
                    }
                }
                // What a daemon that ends has refused is asked of the next one.
                Event::Incoming(_, Incoming::Response(_, answer)) if is_ending(&answer) => return Ok(Happened::Lost),
                Event::Incoming(_, Incoming::Response(id, answer)) if self.attach == Some(id) => {
                    self.attach = None;
                    answer?;
                }
                Event::Incoming(_, Incoming::Response(id, answer)) => {
                    if let Some(at) = self.open.iter().position(|(open, _)| *open == id) {
                        return Ok(Happened::Answer(Box::new(self.open.remove(at).1), answer));
                    }
                }
                Event::Lost(_) => return Ok(Happened::Lost),
                Event::Refused(_, failure) => return Err(failure),
                Event::Line(line) => return Ok(Happened::Line(line)),
                Event::Key(key) => return Ok(Happened::Key(key)),
                Event::Signal(signal) => return Ok(Happened::Signal(signal)),
            }
        }
    }

    /// Fails if the daemon cannot read the session any further: nothing follows.
    fn goes_on(&self, notification: &Notification) -> Result<(), Failure> {
        match &notification.event.body {
            EventBody::Notice { code: Some(NoticeCode::Damaged), text, .. }
                if notification.session == self.session && notification.event.seq.is_none() =>
            {
                Err(Failure::new(Exit::FAILED, text.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Moves the cursor; drops what was seen already.
    fn event(&mut self, notification: Box<Notification>, raw: Box<RawValue>) -> Option<Happened> {
        if notification.session != self.session {
            return None;
        }
        if let Some(seq) = notification.event.seq {
            if seq <= self.seq {
                return None;
            }
            self.seq = seq;
        }
        self.cursor = Some(notification.cursor.clone());
        Some(Happened::Event(notification, raw))
    }
}
