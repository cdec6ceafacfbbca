//! An attached session: its events from a cursor on, over as many connections as it takes.
//!
//! When a connection is lost, requests without an answer are sent again over the next one, with their
//! idempotency keys, and reading resumes at the last cursor: no event is missed, and none comes twice.

use std::time::Instant;

use linger_protocol::RpcError;
use linger_protocol::event::{EventBody, Notice, NoticeCode, Notification};
use linger_protocol::id::{Cursor, SessionId};
use linger_protocol::method::{
    QuestionAnswer, SessionAttach, SessionCancel, SessionCompact, SessionContinue, SessionDetach, SessionMerge,
    SessionPrompt, SessionRedo, SessionSet, SessionUndo, SessionUnqueue,
};
use linger_protocol::question::Answer;
use linger_protocol::session::{self, Attach, Compact, Continue, Prompt, Redo, Set, Undo, Unqueue};
use linger_protocol::transport::blocking::Incoming;
use linger_protocol::worktree::Merge;
use serde_json::value::RawValue;

use crate::connect::{Client, is_ending};
use crate::error::{Exit, Failure};
use crate::idempotency::key;
use crate::input::{Event, Hotkey, InputLine, Key, Signal};

/// A request with an idempotency key; its answer arrives among the events.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    /// `session/prompt`.
    Prompt(Prompt),
    /// `session/compact`.
    Compact(Compact),
    /// `question/answer`.
    Answer(Answer),
    /// `session/cancel`, which stops the turn.
    Cancel(session::Cancel),
    /// `session/continue`.
    Continue(Continue),
    /// `session/unqueue`.
    Unqueue(Unqueue),
    /// `session/undo`.
    Undo(Undo),
    /// `session/redo`.
    Redo(Redo),
    /// `session/set`.
    Set(Set),
    /// `session/merge`.
    Merge(Merge),
}

/// Everything that wakes a command that follows a session.
#[derive(Debug)]
pub(crate) enum Happened {
    /// An event of the session, and the raw `params`.
    Event(Box<Notification>, Box<RawValue>),
    /// The answer to a request.
    Answer(Box<Request>, Result<Box<RawValue>, RpcError>),
    /// The connection was lost; call [`Attachment::reattach_soon`], then [`Attachment::reattach`].
    Lost,
    /// A line was typed.
    Line(InputLine),
    /// A key was pressed.
    Key(Key),
    /// A key was pressed that does not belong to the line being read.
    Hotkey(Hotkey),
    Signal(Signal),
    /// The deadline passed.
    TimedOut,
}

/// A session that is read from a cursor on, over as many connections as it takes.
pub(crate) struct Attachment {
    /// The connection; calls over it keep events for [`Attachment::next`].
    pub(crate) client: Client,
    pub(crate) session: SessionId,
    deltas: bool,
    /// Whether a person reads along.
    person: bool,
    /// Where to read on from.
    cursor: Option<Cursor>,
    /// The last durable event that was returned.
    seq: u64,
    /// The number of the connection that it is attached over.
    epoch: u32,
    /// The `session/attach` that is not answered yet.
    attach: Option<u64>,
    /// The requests that are not answered yet.
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
        Self::start_for(client, session, cursor, deltas, false)
    }

    /// As [`Self::start`]; with `person`, for one who reads along at a terminal.
    pub(crate) fn start_for(
        client: Client,
        session: SessionId,
        cursor: Option<Cursor>,
        deltas: bool,
        person: bool,
    ) -> Result<Self, Failure> {
        let (epoch, seq, attach, open) = (client.epoch, 0, None, Vec::new());
        let mut attachment = Self { client, session, deltas, person, cursor, seq, epoch, attach, open };
        attachment.attach()?;
        Ok(attachment)
    }

    fn attach(&mut self) -> Result<(), Failure> {
        let deltas = (!self.deltas).then_some(false);
        let env = self.client.brought_env();
        let (session, after, person) = (self.session.clone(), self.cursor.clone(), self.person);
        let attach = Attach { session, after, deltas, person, env };
        // If it cannot be sent, the reader reports the lost connection.
        self.attach = self.client.send(&SessionAttach(attach))?;
        Ok(())
    }

    /// Leaves the session for another one, from `cursor` on; what was asked of the old one is not answered here.
    pub(crate) fn switch(&mut self, session: SessionId, cursor: Option<Cursor>) -> Result<(), Failure> {
        let old = std::mem::replace(&mut self.session, session);
        // If it cannot be sent, the connection is lost and nothing is attached over the next one.
        self.client.send(&SessionDetach(session::Named { session: old }))?;
        (self.cursor, self.seq) = (cursor, 0);
        self.open.clear();
        self.attach()
    }

    /// Sends a request. Fails if no connection can carry it.
    pub(crate) fn request(&mut self, request: Request) -> Result<(), Failure> {
        let sent = match &request {
            Request::Prompt(prompt) => self.client.send(&SessionPrompt(prompt.clone())),
            Request::Compact(compact) => self.client.send(&SessionCompact(compact.clone())),
            Request::Answer(answer) => self.client.send(&QuestionAnswer(answer.clone())),
            Request::Cancel(cancel) => self.client.send(&SessionCancel(cancel.clone())),
            Request::Continue(on) => self.client.send(&SessionContinue(on.clone())),
            Request::Unqueue(unqueue) => self.client.send(&SessionUnqueue(unqueue.clone())),
            Request::Undo(undo) => self.client.send(&SessionUndo(undo.clone())),
            Request::Redo(redo) => self.client.send(&SessionRedo(redo.clone())),
            Request::Set(set) => self.client.send(&SessionSet(set.clone())),
            Request::Merge(merge) => self.client.send(&SessionMerge(merge.clone())),
        }?;
        self.open.push((sent.unwrap_or_default(), request));
        Ok(())
    }

    /// Cancels the session's turn.
    pub(crate) fn cancel(&mut self) -> Result<(), Failure> {
        let (session, key) = (self.session.clone(), Some(key()?));
        self.request(Request::Cancel(session::Cancel { session, background: false, key }))
    }

    /// Reattaches after a loss if the daemon is back at once; true also if a signal comes first.
    pub(crate) fn reattach_soon(&mut self) -> Result<bool, Failure> {
        if self.client.epoch == self.epoch {
            match self.client.reconnect_soon() {
                Err(failure) if failure.interrupted => return Ok(true),
                Ok(true) => {}
                other => return other,
            }
        }
        self.resume().map(|()| true)
    }

    /// Reattaches after a loss, and starts a daemon if it died, unless a signal comes first.
    pub(crate) fn reattach(&mut self) -> Result<(), Failure> {
        if self.client.epoch == self.epoch {
            match self.client.reconnect_attached() {
                Err(failure) if failure.interrupted => return Ok(()),
                back => back?,
            }
        }
        self.resume()
    }

    /// Attaches over a new connection, and sends open requests again.
    fn resume(&mut self) -> Result<(), Failure> {
        self.epoch = self.client.epoch;
        self.attach()?;
        for (_, request) in std::mem::take(&mut self.open) {
            self.request(request)?;
        }
        Ok(())
    }

    /// Waits for the next event.
    pub(crate) fn next(&mut self, deadline: Option<Instant>) -> Result<Happened, Failure> {
        loop {
            if self.client.epoch != self.epoch {
                // A call has made a new connection.
                self.resume()?;
            }
            let Some(event) = self.client.next_event(deadline) else { return Ok(Happened::TimedOut) };
            match event {
                Event::Incoming(_, Incoming::Event(notification, raw)) => {
                    self.check_readable(&notification)?;
                    if let Some(happened) = self.event(notification, raw) {
                        return Ok(happened);
                    }
                }
                // A daemon that is ending refused it: ask the next one.
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
                // Of a subscription to all sessions, which is not this one's.
                Event::Incoming(_, Incoming::Any(..) | Incoming::Completion(_)) => {}
                Event::Lost(_) => return Ok(Happened::Lost),
                Event::Refused(_, failure) => return Err(failure),
                Event::Line(line) => return Ok(Happened::Line(line)),
                Event::Key(key) => return Ok(Happened::Key(key)),
                Event::Hotkey(hotkey) => return Ok(Happened::Hotkey(hotkey)),
                Event::Signal(signal) => return Ok(Happened::Signal(signal)),
            }
        }
    }

    /// Fails if the daemon cannot read the session any further.
    fn check_readable(&self, notification: &Notification) -> Result<(), Failure> {
        match &notification.event.body {
            EventBody::Notice(Notice { code: Some(NoticeCode::Damaged), text, .. })
                if notification.session == self.session && notification.event.seq.is_none() =>
            {
                Err(Failure::new(Exit::FAILED, text.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Moves the cursor; drops events that were seen already.
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
