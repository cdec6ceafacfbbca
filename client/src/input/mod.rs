//! The input of this process, and the threads that read it: signals, keys, and lines.
//!
//! One thread owns stdin. It reads only on request: a line (with an open prompt), or single keys until
//! told to stop. Another one waits for signals. Both send into the one channel of the process and end
//! with it. Deliberately absent: the line editor, which is passed in as [`Lines`].

pub(crate) mod piped;
mod typed;

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linger_protocol::transport::blocking::Incoming;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::error::{Exit, Failure};
use crate::terminal::{Above, Keyboard, is_lent, set_keyboard};
pub(crate) use typed::Pressed;
use typed::Typed;

/// Everything that can wake a command.
#[derive(Debug)]
pub(crate) enum Event {
    /// The daemon sent something over the connection with this number.
    Incoming(u32, Incoming),
    /// The connection with this number ended.
    Lost(u32),
    /// The daemon refused the connection with this number and would refuse another one too.
    Refused(u32, Failure),
    /// The line editor returned.
    Line(InputLine),
    /// A key was pressed while keys were read; see `Input::counts`.
    Key(Key),
    /// A key with a meaning of its own was pressed while a line was being read.
    Hotkey(Hotkey),
    Signal(Signal),
}

/// A key that does not belong to the line that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hotkey {
    /// Ctrl-C.
    Interrupt {
        /// Whether the line was empty.
        empty: bool,
    },
    /// Esc, alone.
    Escape,
    /// Esc, or Ctrl-C at an empty line, while a cancel brings queued prompts back: the line ends as [`InputLine::Stopped`].
    Stop,
    /// Shift-Tab: the next mode.
    NextMode,
    /// A key with which vi's insert mode begins or ends.
    ViMode,
    /// A key that answers the question with this request, pressed alone at an empty line.
    Answer {
        key: char,
        /// The request for an answer.
        request: u32,
    },
    /// Names are wanted, to complete the line.
    Names(Names),
}

/// The names of the daemon's that complete a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Names {
    /// Models of the usable providers.
    Models,
    /// Efforts that the session's model takes.
    Efforts,
    Sessions,
    Agents,
    /// Children with a git worktree that can be merged.
    Merges,
    /// Commands, skills, and prompts of MCP servers: what a slash may begin.
    Commands,
    /// MCP servers, as a resource of theirs begins: `server:`.
    Servers,
    /// Resources of MCP servers: `server:uri`.
    Resources,
}

impl Event {
    /// Whether a person or a signal asks to stop.
    pub(crate) fn is_stop(&self) -> bool {
        matches!(self, Self::Signal(_) | Self::Hotkey(Hotkey::Interrupt { .. }) | Self::Line(InputLine::End))
    }
}

/// A pressed key, and the request for keys that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The typed text or key.
    pub(crate) pressed: Pressed,
    /// The count of requests for keys when it was read.
    request: u32,
}

/// A line, by how it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InputLine {
    /// With Enter.
    Text {
        /// The typed text or key.
        text: String,
        /// The text with a placeholder for each long paste; only this may name files.
        typed: String,
        /// With Alt-S instead: it steers the turn.
        steer: bool,
        /// The request of the question that was on the screen then, if a terminal that can move its cursor showed one.
        request: Option<u32>,
    },
    /// It was chosen from a list; nothing if the list was left.
    Picked(Option<String>),
    /// It was a command of the user's own, which has run.
    Ran(Ran),
    /// It begins like a command of the user's own, and was not typed as one line.
    NotRun,
    /// With a key that stops the turn, and it is not finished.
    Stopped(String),
    /// It is not UTF-8.
    Garbled,
    /// With Ctrl-D, or because the terminal has gone.
    End,
}

/// A command that the user ran in the terminal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) command: String,
    /// Its output as text, bounded; or why it could not be run.
    pub(crate) output: Result<String, String>,
    /// Its exit code; absent if a signal ended it.
    pub(crate) code: Option<i32>,
}

/// The signals that mean something to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C: stop the turn.
    Interrupt,
    /// Ctrl-D while a turn streams, or Ctrl-\: leave.
    Quit,
    /// The terminal has gone: leave.
    HangUp,
    /// SIGTERM: leave.
    Terminate,
    /// `fg` after Ctrl-Z: the shell has changed the terminal's settings, and the question has scrolled away.
    Continued,
}

/// Turns signals into events from now on; with `keys` also the signals that concern a terminal. Those that a key causes while a
/// program of the user's has the terminal are that program's.
pub(crate) fn signals(sender: Sender<Event>, keys: bool) -> Result<(), Failure> {
    let wanted: &[i32] = if keys { &[SIGINT, SIGHUP, SIGTERM, SIGQUIT, SIGCONT] } else { &[SIGINT, SIGHUP, SIGTERM] };
    let mut signals = signal_hook::iterator::Signals::new(wanted)
        .map_err(|error| Failure::new(Exit::FAILED, format!("cannot watch for signals: {error}")))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if is_lent() && matches!(signal, SIGINT | SIGQUIT | SIGCONT) {
                continue;
            }
            let signal = match signal {
                SIGINT => Signal::Interrupt,
                SIGQUIT => Signal::Quit,
                SIGHUP => Signal::HangUp,
                SIGCONT => Signal::Continued,
                _ => Signal::Terminate,
            };
            if sender.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// The thread that owns stdin.
pub(crate) struct Input {
    wanted: Sender<Wanted>,
    /// Ends the reading of keys.
    wake: OwnedFd,
    keys: Arc<Mutex<KeyReading>>,
    /// Takes whole lines while a prompt is open; absent if the terminal cannot show them above it.
    pub(crate) above: Option<Above>,
}

/// Starts a line editor in a thread of its own.
pub(crate) struct Lines {
    /// Shows the prompt and waits for a line.
    pub(crate) read: Box<dyn FnMut() -> InputLine + Send>,
    /// Takes whole lines meanwhile.
    pub(crate) above: Option<Above>,
}

/// Whether keys are read. Locked while one is taken, so that each key belongs to one request.
#[derive(Debug, Default)]
struct KeyReading {
    on: bool,
    /// How often keys were requested.
    request: u32,
    /// The keys with a meaning, where they count only if pressed alone.
    alone: Option<&'static str>,
}

enum Wanted {
    Line,
    Keys,
}

impl Input {
    /// Starts the thread; without `lines` it reads keys only.
    pub(crate) fn start(sender: Sender<Event>, lines: Option<Lines>) -> Result<Self, Failure> {
        let (woken, wake) = rustix::pipe::pipe()
            .map_err(|error| Failure::new(Exit::FAILED, format!("cannot read the terminal: {error}")))?;
        let (wanted, requests) = mpsc::channel();
        let keys = Arc::new(Mutex::new(KeyReading::default()));
        let shared = keys.clone();
        let above = lines.as_ref().and_then(|lines| lines.above.clone());
        let mut read_line = lines.map(|lines| lines.read);
        std::thread::spawn(move || {
            for request in requests {
                let sent = match (request, &mut read_line) {
                    (Wanted::Line, Some(read_line)) => sender.send(Event::Line(read_line())).is_ok(),
                    (Wanted::Line, None) => true,
                    (Wanted::Keys, _) => read_keys(&woken, &sender, &shared),
                };
                if !sent {
                    return;
                }
            }
        });
        Ok(Self { wanted, wake, keys, above })
    }

    /// Opens a prompt; an [`Event::Line`] follows.
    pub(crate) fn ask_line(&mut self) {
        self.stop_keys();
        set_keyboard(if self.above.is_some() { Keyboard::Prompt } else { Keyboard::Shell });
        let _ = self.wanted.send(Wanted::Line);
    }

    /// Reads keys for the question that is shown next; an [`Event::Key`] follows for each. With `alone`
    /// only these keys count, and only if pressed alone. Earlier input is dropped.
    pub(crate) fn ask_keys(&mut self, alone: Option<&'static str>) {
        let mut keys = lock(&self.keys);
        set_keyboard(Keyboard::Keys);
        keys.request += 1;
        keys.alone = alone;
        if !std::mem::replace(&mut keys.on, true) {
            let _ = self.wanted.send(Wanted::Keys);
        }
    }

    /// Whether a key answers the latest request; an earlier one was meant for another question.
    pub(crate) fn is_current(&self, key: Key) -> bool {
        key.request == lock(&self.keys).request
    }

    /// Draws the open prompt again.
    pub(crate) fn redraw(&self) {
        if let Some(above) = &self.above {
            above.redraw();
        }
    }

    /// Stops reading keys.
    pub(crate) fn stop_keys(&mut self) {
        if std::mem::take(&mut lock(&self.keys).on) {
            let _ = rustix::io::write(&self.wake, b"x");
        }
    }
}

fn lock(keys: &Mutex<KeyReading>) -> MutexGuard<'_, KeyReading> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many bytes are read at once: more than a person types between two reads.
const READ: usize = 256;

/// Sends pressed keys until woken; false once the channel is closed.
fn read_keys(woken: &OwnedFd, sender: &Sender<Event>, keys: &Mutex<KeyReading>) -> bool {
    let stdin = rustix::stdio::stdin();
    let send = |pressed, request| sender.send(Event::Key(Key { pressed, request })).is_ok();
    let (mut typed, mut typed_for) = (Typed::default(), 0);
    loop {
        let mut ready = [PollFd::new(woken, PollFlags::IN), PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
        let wait = typed.wait().and_then(|wait| Timespec::try_from(wait).ok());
        match poll(&mut ready, wait.as_ref()) {
            Ok(0) => {
                if typed.over().is_some_and(|pressed| !send(pressed, typed_for)) {
                    return false;
                }
                continue;
            }
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return true,
        }
        let [wake, key] = &ready;
        if !wake.revents().is_empty() {
            let mut byte = [0];
            let _ = rustix::io::read(woken, &mut byte);
            return true;
        }
        if key.revents().is_empty() {
            continue;
        }
        let mut bytes = [0; READ];
        let (read, request, alone) = match &*lock(keys) {
            KeyReading { on: true, request, alone } => (rustix::io::read(stdin, &mut bytes), *request, *alone),
            KeyReading { on: false, .. } => continue,
        };
        match read {
            Ok(n @ 1..) => {
                let bytes = bytes.get(..n).unwrap_or_default();
                match alone {
                    Some(means) => {
                        typed.read(bytes, means);
                        typed_for = request;
                    }
                    None if bytes.iter().all(|byte| send(Pressed::Key(char::from(*byte)), request)) => {}
                    None => return false,
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            // The key that `poll` saw was dropped meanwhile.
            Ok(_) if !key.revents().intersects(PollFlags::HUP | PollFlags::ERR) => {}
            // The terminal has gone: wait for the request to stop.
            Ok(_) | Err(_) => {
                let _ = sender.send(Event::Signal(Signal::HangUp));
                let _ = std::fs::File::from(match woken.try_clone() {
                    Ok(fd) => fd,
                    Err(_) => return true,
                })
                .read(&mut [0]);
                return true;
            }
        }
    }
}
