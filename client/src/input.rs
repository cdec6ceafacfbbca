//! What can happen to this process, and the threads that bring it: signals, keys, and lines from the editor.
//!
//! One thread owns stdin. It reads only when asked to: a line (with an open prompt), or single keys until told to stop.
//! Another waits for signals. Both put what they get into the one channel of the process and end with it.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linger_protocol::transport::blocking::Incoming;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::error::{Exit, Failure};
use crate::repl::editor::{self, Above, Setup};
use crate::terminal::{Keyboard, keyboard};
use crate::typed::{Pressed, Typed};

/// Everything that can wake a command.
#[derive(Debug)]
pub(crate) enum Event {
    /// The daemon sent something over the connection with this number.
    Incoming(u32, Incoming),
    /// The connection with this number ended.
    Lost(u32),
    /// The daemon refused the connection with this number: another would fare no better.
    Refused(u32, Failure),
    /// The line editor has returned.
    Line(Line),
    /// A key was pressed while keys were read; see [`Input::counts`].
    Key(Key),
    /// A signal came.
    Signal(Signal),
}

/// What was pressed, and how often keys had been asked for when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// What was typed.
    pub(crate) pressed: Pressed,
    asked: u32,
}

/// How a line was ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// With Enter.
    Text(String),
    /// With Ctrl-C.
    Interrupted {
        /// Whether nothing was typed.
        empty: bool,
    },
    /// By bytes that are no text.
    Garbled,
    /// With Ctrl-D, or the terminal has gone.
    End,
}

/// The signals that mean something to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C: stop what is under way.
    Interrupt,
    /// Ctrl-D while a turn streams, or Ctrl-\: leave.
    Quit,
    /// The terminal has gone: leave.
    HangUp,
    /// Somebody wants us to end: leave.
    Terminate,
    /// After Ctrl-Z, `fg`: the shell has set the terminal to its own liking, and what was asked has scrolled away.
    Continued,
}

/// Turns signals into events from now on; where `keys` are read also those that have to do with the terminal.
pub(crate) fn signals(sender: Sender<Event>, keys: bool) -> Result<(), Failure> {
    let wanted: &[i32] = if keys { &[SIGINT, SIGHUP, SIGTERM, SIGQUIT, SIGCONT] } else { &[SIGINT, SIGHUP, SIGTERM] };
    let mut signals = signal_hook::iterator::Signals::new(wanted)
        .map_err(|error| Failure::new(Exit::FAILED, format!("cannot watch for signals: {error}")))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
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
    asks: Sender<Ask>,
    /// Ends the reading of keys.
    wake: OwnedFd,
    keys: Arc<Mutex<Keyed>>,
    /// Takes whole lines while a prompt is open; nothing if the terminal cannot show them above it.
    pub(crate) above: Option<Above>,
}

/// Whether keys are being read. Held while one is taken, so that each was typed before or after keys were asked for.
#[derive(Debug, Default)]
struct Keyed {
    on: bool,
    /// How often they were asked for.
    asked: u32,
    /// Those that mean something, if they do so only when they are pressed alone.
    alone: Option<&'static str>,
}

enum Ask {
    Line,
    Keys,
}

impl Input {
    /// Starts the thread; with an editor if there are to be lines.
    pub(crate) fn start(sender: Sender<Event>, editor: Option<Setup>) -> Result<Self, Failure> {
        let failed =
            |error: &dyn std::fmt::Display| Failure::new(Exit::FAILED, format!("cannot read the terminal: {error}"));
        let (woken, wake) = rustix::pipe::pipe().map_err(|error| failed(&error))?;
        let (asks, wanted) = mpsc::channel();
        let keys = Arc::new(Mutex::new(Keyed::default()));
        let keyed = keys.clone();
        let mut editor = editor.map(editor::open).transpose().map_err(|error| failed(&error))?;
        let above = editor.as_ref().and_then(|editor| editor.above.clone());
        std::thread::spawn(move || {
            for ask in wanted {
                let done = match (ask, &mut editor) {
                    (Ask::Line, Some(editor)) => sender.send(Event::Line(editor.read_line())).is_ok(),
                    (Ask::Line, None) => true,
                    (Ask::Keys, _) => read_keys(&woken, &sender, &keyed),
                };
                if !done {
                    return;
                }
            }
        });
        Ok(Self { asks, wake, keys, above })
    }

    /// Opens a prompt; an [`Event::Line`] follows.
    pub(crate) fn ask_line(&mut self) {
        self.stop_keys();
        keyboard(Keyboard::Shell);
        let _ = self.asks.send(Ask::Line);
    }

    /// Reads keys for the question that is shown next, of which one of those in `alone` decides, or every one, if none is given;
    /// an [`Event::Key`] follows for each. What was typed before is dropped.
    pub(crate) fn ask_keys(&mut self, alone: Option<&'static str>) {
        let mut keys = lock(&self.keys);
        keyboard(Keyboard::Keys);
        keys.asked += 1;
        keys.alone = alone;
        if !std::mem::replace(&mut keys.on, true) {
            let _ = self.asks.send(Ask::Keys);
        }
    }

    /// Whether a key was typed since keys were asked for last: an earlier one was meant for another question, or for none.
    pub(crate) fn counts(&self, key: Key) -> bool {
        key.asked == lock(&self.keys).asked
    }

    /// Draws the open prompt again.
    pub(crate) fn redraw(&self) {
        self.above.iter().for_each(Above::redraw);
    }

    /// Reads no more keys.
    pub(crate) fn stop_keys(&mut self) {
        if std::mem::take(&mut lock(&self.keys).on) {
            let _ = rustix::io::write(&self.wake, b"x");
        }
    }
}

fn lock(keys: &Mutex<Keyed>) -> MutexGuard<'_, Keyed> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many bytes are read at once: more than a hand types meanwhile.
const READ: usize = 256;

/// Sends what is pressed until woken; whether there is still somebody to send to.
fn read_keys(woken: &OwnedFd, sender: &Sender<Event>, keys: &Mutex<Keyed>) -> bool {
    let stdin = rustix::stdio::stdin();
    let send = |pressed, asked| sender.send(Event::Key(Key { pressed, asked })).is_ok();
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
        let (read, asked, alone) = match &*lock(keys) {
            Keyed { on: true, asked, alone } => (rustix::io::read(stdin, &mut bytes), *asked, *alone),
            Keyed { on: false, .. } => continue,
        };
        match read {
            Ok(n @ 1..) => {
                let bytes = bytes.get(..n).unwrap_or_default();
                match alone {
                    Some(means) => {
                        typed.read(bytes, means);
                        typed_for = asked;
                    }
                    None if bytes.iter().all(|byte| send(Pressed::Key(char::from(*byte)), asked)) => {}
                    None => return false,
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            // What was noticed was dropped meanwhile.
            Ok(_) if !key.revents().intersects(PollFlags::HUP | PollFlags::ERR) => {}
            // The terminal has gone: wait to be told to stop.
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
