//! The loop: one step for each thing that happens.

use std::time::{Duration, Instant};

use linger_protocol::event::{EventBody, Notice, NoticeCode};
use linger_protocol::footprint;
use linger_protocol::method::{SessionMerge, SessionPrompt};
use linger_protocol::session::{Compact, Prompt};
use linger_protocol::{RpcError, error::Code};
use serde_json::value::RawValue;

use super::prompts::TypedPrompt;
use super::state::Repl;
use crate::connect::{RECONNECTING, parse};
use crate::environment::now;
use crate::error::{Exit, Failure};
use crate::follow::{Happened, Request};
use crate::input::{InputLine, Signal};
use crate::question::too_late;
use crate::render::worktree;
use crate::terminal::{resume_editing, size};

/// How often the status is redrawn while a turn runs: its clock counts seconds.
const TICK: Duration = Duration::from_secs(1);

/// The time after the last event until the client gives back memory, if no turn runs.
const REST: Duration = Duration::from_secs(1);

impl Repl {
    pub(super) fn run(&mut self) -> Result<Exit, Failure> {
        loop {
            match self.step() {
                Ok(Some(exit)) => return Ok(exit),
                Ok(None) => {}
                Err(failure) if failure.interrupted => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Handles the next event; the exit code, when it is time to leave.
    fn step(&mut self) -> Result<Option<Exit>, Failure> {
        let happened = self.attachment.next(self.tick())?;
        self.rests &= matches!(happened, Happened::TimedOut);
        match happened {
            Happened::Event(notification, _) => {
                self.event(&notification.event)?;
                match notification.event.body {
                    EventBody::Notice(Notice { code: Some(NoticeCode::Removed), .. }) => self.removed().map(Some),
                    _ => Ok(None),
                }
            }
            Happened::Answer(request, answer) => self.answer(*request, answer).map(|()| None),
            Happened::Lost => self.lost().map(|()| None),
            Happened::Line(line) => self.line(line),
            Happened::Hotkey(hotkey) => self.hotkey(hotkey),
            Happened::Signal(signal) => self.signal(signal),
            Happened::Key(_) => Ok(None),
            Happened::TimedOut if self.ticks() => {
                self.live.stalls();
                self.show_live().map(|()| None)
            }
            Happened::TimedOut => {
                footprint::release_idle_memory();
                self.rests = true;
                Ok(None)
            }
        }
    }

    /// Whether there is a status to redraw.
    fn ticks(&self) -> bool {
        self.turn.running.is_some() && self.caught_up && self.input.above.is_some()
    }

    /// When to do something without an event: redraw the status, each second; or give back memory, once.
    fn tick(&self) -> Option<Instant> {
        match (self.ticks(), self.turn.running.is_none() && !self.rests) {
            (true, _) => Some(Instant::now() + TICK),
            (false, true) => Some(Instant::now() + REST),
            (false, false) => None,
        }
    }

    /// Redraws the status and the end of a running command's output.
    pub(super) fn show_live(&mut self) -> Result<(), Failure> {
        if self.input.above.is_none() {
            return Ok(());
        }
        let asks = self.asking.questions.first().is_some();
        let rows = if self.turn.running.is_some() && self.caught_up {
            self.live.rows(now(), size().columns, self.prompts.queue().len(), asks, &self.way_out())
        } else {
            Vec::new()
        };
        Ok(self.terminal.set_live(rows)?)
    }

    /// The session was removed.
    fn removed(&mut self) -> Result<Exit, Failure> {
        self.close_prompt()?;
        Ok(Exit::FAILED)
    }

    fn answer(&mut self, request: Request, answer: Result<Box<RawValue>, RpcError>) -> Result<(), Failure> {
        let typed = match &request {
            Request::Prompt(Prompt { key, .. }) | Request::Compact(Compact { key, .. }) => {
                self.prompts.end_request(key.as_ref())
            }
            _ => TypedPrompt::default(),
        };
        if let Request::Cancel(_) = request {
            self.cancel_answered();
        }
        match (request, answer) {
            (Request::Prompt(_) | Request::Compact(_), Ok(raw)) => {
                self.prompts.accept(parse::<SessionPrompt>(&raw)?.prompt, typed);
                self.ask_back()?;
            }
            // One that another client has taken or sent meanwhile is not ours any more.
            (Request::Unqueue(unqueue), answer) => self.came_back(unqueue.prompt.as_ref(), answer.is_ok()),
            (Request::Continue(_), Ok(_)) => self.prompts.release(),
            (Request::Merge(_), Ok(raw)) => self.say(&worktree::takes_back(&parse::<SessionMerge>(&raw)?))?,
            (_, Ok(_)) => {}
            (Request::Answer(_), Err(error)) if error.code() == Some(Code::AlreadyAnswered) => {
                self.say(&too_late(error.data))?;
            }
            (request, Err(error)) => {
                self.complain(error.into())?;
                match request {
                    Request::Answer(answer) => {
                        self.asking.questions.reopen(&answer.question);
                        self.show_question()?;
                    }
                    Request::Cancel(_) => self.turn.cancelling = false,
                    Request::Continue(_) => self.turn.continuing = false,
                    _ => {}
                }
            }
        }
        self.follow_queue()?;
        self.sign()
    }

    fn lost(&mut self) -> Result<(), Failure> {
        if self.attachment.reattach_soon()? {
            return Ok(());
        }
        self.say(RECONNECTING)?;
        self.attachment.reattach()
    }

    /// Handles a line, and reads the next one.
    fn line(&mut self, line: InputLine) -> Result<Option<Exit>, Failure> {
        self.open = false;
        self.terminal.line_read();
        let exit = self.obey(line)?;
        if self.returning.is_some() {
            self.reopen_line()?;
        } else if exit.is_none() {
            self.open_prompt()?;
            self.show_live()?;
        }
        Ok(exit)
    }

    pub(super) fn cancel(&mut self) -> Result<(), Failure> {
        self.turn.cancelling = true;
        self.attachment.cancel()
    }

    fn signal(&mut self, signal: Signal) -> Result<Option<Exit>, Failure> {
        match signal {
            Signal::HangUp | Signal::Terminate => Ok(Some(Exit::GOOD)),
            Signal::Quit => self.leave().map(Some),
            Signal::Interrupt if self.turn.cancelling => self.leave().map(Some),
            // From a terminal without an editor, which has dropped the line, or between two lines.
            Signal::Interrupt if self.turn.running.is_some() => self.cancel().map(|()| None),
            Signal::Interrupt => Ok(None),
            Signal::Continued => self.resume_terminal().map(|()| None),
        }
    }

    /// Restores the terminal's mode after Ctrl-Z, and shows the question again.
    fn resume_terminal(&mut self) -> Result<(), Failure> {
        if self.input.above.is_some() {
            resume_editing();
            self.input.redraw();
        }
        if self.asking.questions.first().is_some() { self.show_question() } else { Ok(()) }
    }

    /// Says what still runs and how to attach again.
    pub(super) fn leave(&mut self) -> Result<Exit, Failure> {
        self.close_prompt()?;
        let work = if self.is_busy() {
            "detached; the work continues"
        } else if self.turn.offered {
            "detached; a turn waits for /continue"
        } else {
            "detached"
        };
        self.say(&format!("{work}; attach again with `linger attach {}`", self.about.label))?;
        Ok(Exit::GOOD)
    }
}
