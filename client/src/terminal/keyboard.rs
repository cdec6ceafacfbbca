//! The terminal's input settings: three modes of the keyboard, and the way back to the original settings.

use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::termios::{InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios};

use super::write::write;

/// Ctrl-D, as the terminal sends it.
const CTRL_D: u8 = 4;

/// The terminal's settings at the start of the process.
static ORIGINAL: OnceLock<Termios> = OnceLock::new();
/// Whether this process has changed the settings.
static CHANGED: AtomicBool = AtomicBool::new(false);
/// Whether a program of the user's has the terminal.
static LENT: AtomicBool = AtomicBool::new(false);

/// The mode of the keyboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keyboard {
    /// The shell's settings; the line editor starts from them too.
    Shell,
    /// Between two lines of an open prompt: typed text is kept as it is for the next one, and not echoed.
    Prompt,
    /// A turn streams: typed text is kept for the next prompt and not echoed; Ctrl-D is a signal (`SIGQUIT`).
    Quiet,
    /// A question is open: each key counts at once; earlier input is dropped.
    Keys,
}

/// The settings under which the line editor reads a line; absent before the first one.
static EDITING: Mutex<Option<Termios>> = Mutex::new(None);

/// Remembers the line editor's settings for [`resume_editing`].
pub(crate) fn remember_editing() {
    let now = rustix::termios::tcgetattr(rustix::stdio::stdin()).ok();
    let raw = now.filter(|now| !now.local_modes.contains(LocalModes::ICANON));
    let mut editing = EDITING.lock().unwrap_or_else(PoisonError::into_inner);
    *editing = raw.or_else(|| editing.take());
}

/// Whether a read of the line editor ends although no key is pressed.
static AT_ONCE: AtomicBool = AtomicBool::new(false);

/// Whether the line editor's next read ends with nothing if no key is pressed for a tenth of a second; it takes that for the end
/// of its input.
pub(crate) fn read_at_once(at_once: bool) {
    if AT_ONCE.swap(at_once, Ordering::SeqCst) == at_once {
        return;
    }
    let stdin = rustix::stdio::stdin();
    let Ok(mut mode) = rustix::termios::tcgetattr(stdin) else { return };
    let (min, tenths) = if at_once { (0, 1) } else { (1, 0) };
    mode.special_codes[SpecialCodeIndex::VMIN] = min;
    mode.special_codes[SpecialCodeIndex::VTIME] = tenths;
    let _ = rustix::termios::tcsetattr(stdin, OptionalActions::Now, &mode);
}

/// Sets the keyboard for the line that is being edited, after a shell has used the terminal (Ctrl-Z, `fg`).
pub(crate) fn resume_editing() {
    let editing = EDITING.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(editing) = editing {
        // Without a terminal there is nothing to set.
        let _ = rustix::termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &editing);
    }
}

/// Runs something that uses the terminal as a shell would have it, while no line is read.
pub(crate) fn with_shell_settings<T>(run: impl FnOnce() -> T) -> T {
    let stdin = rustix::stdio::stdin();
    let before = rustix::termios::tcgetattr(stdin).ok();
    set_keyboard(Keyboard::Shell);
    let done = run();
    if let Some(before) = before {
        let _ = rustix::termios::tcsetattr(stdin, OptionalActions::Drain, &before);
    }
    done
}

/// Runs a program of the user's that takes over the terminal, such as an editor or a pager: its keys are not ours, nor the signals
/// that they cause in the whole process group.
pub(crate) fn lend<T>(run: impl FnOnce() -> T) -> T {
    LENT.store(true, Ordering::SeqCst);
    let done = with_shell_settings(run);
    LENT.store(false, Ordering::SeqCst);
    done
}

/// Whether a program of the user's has the terminal.
pub(crate) fn is_lent() -> bool {
    LENT.load(Ordering::SeqCst)
}

/// Stops this process group, as Ctrl-Z does where the terminal sees to it; returns after `fg`.
pub(crate) fn suspend() {
    let bracketed = io::stdout().is_terminal();
    let paste = |on: &str| {
        let _ = bracketed.then(|| write(&mut io::stdout(), &format!("\x1b[?2004{on}")));
    };
    paste("l");
    with_shell_settings(|| {
        // Without a group there is nothing to stop.
        let _ = rustix::process::kill_current_process_group(rustix::process::Signal::TSTP);
    });
    paste("h");
}

/// Drops input that was typed and not read yet.
pub(crate) fn discard_typed() {
    // Without a terminal there is nothing to drop.
    let _ = rustix::termios::tcflush(rustix::stdio::stdin(), QueueSelector::IFlush);
}

/// Sets the keyboard's mode; does nothing without a terminal.
pub(crate) fn set_keyboard(keyboard: Keyboard) {
    let stdin = rustix::stdio::stdin();
    let Ok(now) = rustix::termios::tcgetattr(stdin) else { return };
    let mut mode = ORIGINAL.get_or_init(|| now).clone();
    match keyboard {
        Keyboard::Shell => {}
        Keyboard::Prompt => {
            mode.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
            // Enter is not Ctrl-J.
            mode.input_modes.remove(InputModes::ICRNL);
        }
        Keyboard::Quiet => mode.local_modes.remove(LocalModes::ECHO),
        Keyboard::Keys => {
            mode.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
            // A read never blocks: the key that `poll` saw may have been dropped since.
            mode.special_codes[SpecialCodeIndex::VMIN] = 0;
            mode.special_codes[SpecialCodeIndex::VTIME] = 0;
            discard_typed();
        }
    }
    if matches!(keyboard, Keyboard::Quiet | Keyboard::Keys) {
        mode.special_codes[SpecialCodeIndex::VQUIT] = CTRL_D;
    }
    CHANGED.store(true, Ordering::SeqCst);
    let _ = rustix::termios::tcsetattr(stdin, OptionalActions::Now, &mode);
}

/// Restores the original settings, even while a prompt is open; safe to call at any time.
pub(crate) fn restore() {
    if !CHANGED.swap(false, Ordering::SeqCst) {
        return;
    }
    if let Some(original) = ORIGINAL.get() {
        let _ = rustix::termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, original);
    }
    if io::stdout().is_terminal() {
        // The line editor asks for bracketed paste; the shell asks again if it wants it.
        let _ = write(&mut io::stdout(), "\x1b[?2004l");
    }
}
