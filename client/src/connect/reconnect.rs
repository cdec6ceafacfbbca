//! Reconnecting after a loss: first for the moment in which a keeper restarts the daemon, then longer,
//! with a start of the daemon.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use super::reach::{KEEPER, Search, Stream, dial, reach};
use super::reader::listen;
use super::{CROWDED, CROWDED_PAUSE, Client, RECONNECTING, RESENDS, late, lost};
use crate::error::Failure;
use crate::input::Event;
use crate::terminal::Terminal;

impl Client {
    /// Reconnects after a loss, and tells a person if it takes a while.
    pub(super) fn reconnect(&mut self) -> Result<(), Failure> {
        if self.reconnect_soon()? {
            return Ok(());
        }
        if io::stderr().is_terminal() {
            Terminal::new().say(RECONNECTING)?;
        }
        self.reconnect_by(Search::retry)
    }

    /// Reconnects if the daemon is back at once, as with a keeper; false if it is not.
    pub(crate) fn reconnect_soon(&mut self) -> Result<bool, Failure> {
        if std::mem::take(&mut self.crowded) {
            self.pause(CROWDED_PAUSE)?;
        }
        let deadline = Instant::now() + KEEPER;
        let mut pause = Duration::from_millis(5);
        while Instant::now() < deadline {
            if let Some(stream) = dial(&self.places)? {
                match self.replace(stream) {
                    // One without capacity may have some in a moment.
                    Err(failure) if failure == lost() || failure.passing => {}
                    other => return other.map(|()| true),
                }
            }
            self.pause(pause)?;
            pause = (pause * 2).min(KEEPER / 5);
        }
        Ok(false)
    }

    /// Reconnects within a bounded time for an attached session, and starts a daemon if it died; one that somebody stopped is
    /// awaited. A signal ends the attempt.
    pub(crate) fn reconnect_attached(&mut self) -> Result<(), Failure> {
        self.reconnect_by(Search::attached)
    }

    /// Reconnects within a bounded time; a signal ends the attempt.
    fn reconnect_by(&mut self, search: impl Fn() -> Search) -> Result<(), Failure> {
        let until = Instant::now() + CROWDED;
        let mut losses = 0;
        while losses < RESENDS {
            let places = self.places.clone();
            let stream = reach(&places, search(), |pause| self.pause(pause))?;
            match self.replace(stream) {
                Err(failure) if failure == lost() => losses += 1,
                Err(failure) if failure.passing && Instant::now() < until => self.pause(CROWDED_PAUSE)?,
                other => return other,
            }
        }
        Err(lost())
    }

    /// Continues with another connection.
    pub(super) fn continue_with(&mut self, Stream { reader, writer, .. }: Stream) {
        self.connection += 1;
        self.writer = writer;
        listen(reader, self.connection, self.sender.clone(), self.capacity.clone());
    }

    /// Replaces a lost connection.
    fn replace(&mut self, stream: Stream) -> Result<(), Failure> {
        self.continue_with(stream);
        self.hello()
    }

    /// Waits, and fails at a signal or when the command's time is over.
    fn pause(&mut self, pause: Duration) -> Result<(), Failure> {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return Err(late());
        }
        let deadline = Instant::now() + pause;
        while let Some(event) = self.receive(Some(deadline)) {
            match event {
                event if event.is_stop() => {
                    self.backlog.push_back(event);
                    return Err(self.interrupted());
                }
                event => self.backlog.push_back(event),
            }
        }
        Ok(())
    }

    /// Stops reconnecting: the reader of events sees the signal, and then the lost connection.
    pub(super) fn interrupted(&mut self) -> Failure {
        self.backlog.push_back(Event::Lost(self.connection));
        Failure { interrupted: true, ..lost() }
    }
}
