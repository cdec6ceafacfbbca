//! What can happen to this process, and the threads that bring it: signals, keys, and lines from the editor.
//!
//! One thread owns stdin. It reads only when asked to: a line (with an open prompt), or single keys until told to stop.
//! Another waits for signals. Both put what they get into the one channel of the process and end with it.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, Sender};

use linger_protocol::transport::blocking::Incoming;
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::error::{Exit, Failure};
use crate::question::Keys;
use crate::repl::editor;
use crate::terminal::{Keyboard, keyboard};

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
    /// A key was pressed while a question is open.
    Key(char),
    /// A signal came.
    Signal(Signal),
}

/// How a line was ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// With Enter.
    Text(String),
    /// With Ctrl-C.
    Interrupted,
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
}

/// Turns signals into events from now on.
pub(crate) fn signals(sender: Sender<Event>, quit: bool) -> Result<(), Failure> {
    let wanted: &[i32] = if quit { &[SIGINT, SIGHUP, SIGTERM, SIGQUIT] } else { &[SIGINT, SIGHUP, SIGTERM] };
    let mut signals = signal_hook::iterator::Signals::new(wanted)
        .map_err(|error| Failure::new(Exit::FAILED, format!("cannot watch for signals: {error}")))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let signal = match signal {
                SIGINT => Signal::Interrupt,
                SIGQUIT => Signal::Quit,
                SIGHUP => Signal::HangUp,
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
    /// Whether keys are being read.
    keys: bool,
    /// Which single keys mean something at an empty prompt: a [`Keys`].
    asking: Arc<AtomicU8>,
    /// Takes whole lines while a prompt is open.
    printer: Sender<String>,
}

enum Ask {
    Line,
    Keys,
}

impl Input {
    /// Starts the thread; `editor` is where the editor keeps what was typed and where the session works, if there is to be one.
    pub(crate) fn start(sender: Sender<Event>, editor: Option<(PathBuf, PathBuf)>) -> Result<Self, Failure> {
        let failed =
            |error: &dyn std::fmt::Display| Failure::new(Exit::FAILED, format!("cannot read the terminal: {error}"));
        let (woken, wake) = rustix::pipe::pipe().map_err(|error| failed(&error))?;
        let (asks, wanted) = mpsc::channel();
        let (printer, lines) = mpsc::channel();
        let asking = Arc::new(AtomicU8::new(Keys::None as u8));
        let mut editor = match editor {
            Some(paths) => {
                Some(editor::open(paths, sender.clone(), asking.clone(), lines).map_err(|error| failed(&error))?)
            }
            None => None,
        };
        std::thread::spawn(move || {
            for ask in wanted {
                let done = match (ask, &mut editor) {
                    (Ask::Line, Some(editor)) => sender.send(Event::Line(editor.read_line())).is_ok(),
                    (Ask::Line, None) => true,
                    (Ask::Keys, _) => read_keys(&woken, &sender),
                };
                if !done {
                    return;
                }
            }
        });
        Ok(Self { asks, wake, keys: false, asking, printer })
    }

    /// Opens a prompt; an [`Event::Line`] follows.
    pub(crate) fn ask_line(&mut self) {
        self.stop_keys();
        keyboard(Keyboard::Shell);
        let _ = self.asks.send(Ask::Line);
    }

    /// Reads keys; an [`Event::Key`] follows for each.
    pub(crate) fn ask_keys(&mut self) {
        if !self.keys {
            self.keys = true;
            keyboard(Keyboard::Keys);
            let _ = self.asks.send(Ask::Keys);
        }
    }

    /// Reads no more keys.
    pub(crate) fn stop_keys(&mut self) {
        if self.keys {
            self.keys = false;
            let _ = rustix::io::write(&self.wake, b"x");
        }
    }

    /// Says which single keys mean something at an empty prompt.
    pub(crate) fn set_asking(&self, keys: Keys) {
        self.asking.store(keys as u8, Ordering::SeqCst);
    }

    /// Where lines go while a prompt is open.
    pub(crate) fn printer(&self) -> Sender<String> {
        self.printer.clone()
    }
}

/// Sends each key until woken; whether there is still somebody to send to.
fn read_keys(woken: &OwnedFd, sender: &Sender<Event>) -> bool {
    let stdin = rustix::stdio::stdin();
    loop {
        let mut ready = [PollFd::new(woken, PollFlags::IN), PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
        match poll(&mut ready, None) {
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
        let mut byte = [0];
        match rustix::io::read(stdin, &mut byte) {
            Ok(1..) => {
                let [byte] = byte;
                if sender.send(Event::Key(char::from(byte))).is_err() {
                    return false;
                }
            }
            Err(rustix::io::Errno::INTR) => {}
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
