//! Keys that mean more than a letter while a line is being read: those that stop, steer and answer.
//!
//! Everything here runs in the thread that reads the line. A key that answers a question counts only if
//! the question is on the screen, the line is empty, and nothing follows within [`ALONE`]: until then it
//! is held back, and what follows makes it a letter of the line.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustyline::{
    Cmd, ConditionalEventHandler, Event as Typed, EventContext, KeyCode, KeyEvent, Modifiers, Movement, RepeatCount,
};

use crate::input::{Event, Hotkey};
use crate::terminal::{Above, suspend};

/// The silence after a key that was pressed alone: pasted text arrives faster, and a person does not
/// notice the delay.
const ALONE: Duration = Duration::from_millis(100);

/// How long after the prompt opens Ctrl-J still is Enter: what was typed before it opened comes so.
const TYPED_BEFORE: Duration = Duration::from_millis(100);

/// How long after a key a line counts as being typed, although it is empty: the next key may belong to
/// it, and not to a question that has just come.
const TYPING: Duration = Duration::from_secs(1);

/// How the line that is being read ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ending {
    /// With Enter.
    #[default]
    Enter,
    /// With Alt-S.
    Steer,
    /// With Ctrl-X Ctrl-E: it goes on in `$EDITOR`.
    Editor,
    /// With Ctrl-D.
    Leave,
}

/// What the keys know and do; shared with the editor's thread.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    sender: Sender<Event>,
    above: Above,
    state: Arc<Mutex<State>>,
    /// Whether the history is being searched: keys belong to the search.
    pub(super) searching: Arc<AtomicBool>,
}

#[derive(Debug)]
struct State {
    ending: Ending,
    /// When the prompt opened.
    opened: Instant,
    /// The last key.
    pressed: Option<Instant>,
    /// Whether the line is empty.
    empty: bool,
    /// The key that may be an answer, its request, and which key it is.
    held: Option<(char, u32)>,
    /// Counts the keys that were held back.
    count: u64,
}

impl Keys {
    /// Keys that send to `sender`.
    pub(super) fn new(sender: Sender<Event>, above: Above) -> Self {
        let state =
            State { ending: Ending::Enter, opened: Instant::now(), pressed: None, empty: true, held: None, count: 0 };
        Self { sender, above, state: Arc::new(Mutex::new(state)), searching: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line is read from now on.
    pub(super) fn begin(&self) {
        let mut state = self.lock();
        (state.ending, state.opened, state.empty) = (Ending::Enter, Instant::now(), true);
        // The line before is complete.
        (state.held, state.pressed) = (None, None);
    }

    /// The line is complete: what comes next is not typed into it.
    pub(super) fn complete(&self) {
        let mut state = self.lock();
        (state.empty, state.pressed) = (true, None);
    }

    /// How the line ended.
    pub(super) fn ending(&self) -> Ending {
        self.lock().ending
    }

    /// The line has changed.
    pub(super) fn changed(&self, line: &str) {
        self.lock().empty = line.is_empty();
    }

    /// Whether a line is being typed.
    pub(super) fn is_typing(&self) -> bool {
        let state = self.lock();
        !state.empty || state.held.is_some() || state.pressed.is_some_and(|at| at.elapsed() < TYPING)
    }

    fn send(&self, hotkey: Hotkey) {
        // Without a receiver the program is about to end.
        let _ = self.sender.send(Event::Hotkey(hotkey));
    }

    fn end(&self, ending: Ending) -> Option<Cmd> {
        self.lock().ending = ending;
        Some(Cmd::AcceptLine)
    }

    fn key(&self, KeyEvent(code, modifiers): KeyEvent, line: &str) -> Option<Cmd> {
        let held = self.lock().held;
        if held.is_some() && code == KeyCode::Enter && modifiers == Modifiers::NONE {
            // Enter after a key that answers is a habit.
            return Some(Cmd::Noop);
        }
        let held = self.lock().held.take();
        match (code, modifiers) {
            (KeyCode::Char('C'), Modifiers::CTRL) if self.searching.load(Ordering::SeqCst) => Some(Cmd::Abort),
            (KeyCode::Char('C'), Modifiers::CTRL) => {
                self.send(Hotkey::Interrupt { empty: line.is_empty() });
                Some(Cmd::Kill(Movement::WholeBuffer))
            }
            (KeyCode::Esc, Modifiers::NONE) if !self.searching.load(Ordering::SeqCst) => {
                self.send(Hotkey::Escape);
                Some(Cmd::Noop)
            }
            (KeyCode::BackTab, _) => {
                self.send(Hotkey::NextMode);
                Some(Cmd::Noop)
            }
            (KeyCode::Char('D'), Modifiers::CTRL) if line.is_empty() => self.end(Ending::Leave),
            (KeyCode::Char('\\'), Modifiers::CTRL) => self.end(Ending::Leave),
            (KeyCode::Char('s' | 'S'), Modifiers::ALT) if !line.trim().is_empty() => self.end(Ending::Steer),
            (KeyCode::Char('s' | 'S'), Modifiers::ALT) => Some(Cmd::Noop),
            (KeyCode::Enter, Modifiers::ALT) => Some(Cmd::Newline),
            (KeyCode::Char('J'), Modifiers::CTRL) if self.lock().opened.elapsed() < TYPED_BEFORE => None,
            (KeyCode::Char('J'), Modifiers::CTRL) => Some(Cmd::Newline),
            (KeyCode::Char('Z'), Modifiers::CTRL) => {
                self.above.forget();
                suspend();
                Some(Cmd::Repaint)
            }
            (KeyCode::Char(c), Modifiers::NONE) => match held {
                Some((before, _)) => Some(Cmd::Insert(1, format!("{before}{c}"))),
                None => self.hold(c, line),
            },
            _ => None,
        }
    }

    /// Holds a key back that may answer the question on the screen.
    fn hold(&self, key: char, line: &str) -> Option<Cmd> {
        let asked = self.above.shown().filter(|asked| asked.alone && line.is_empty() && asked.keys.contains(key))?;
        if self.searching.load(Ordering::SeqCst) {
            return None;
        }
        let mut state = self.lock();
        state.count += 1;
        state.held = Some((key, asked.request));
        let (keys, count) = (self.clone(), state.count);
        std::thread::spawn(move || {
            std::thread::sleep(ALONE);
            let mut state = keys.lock();
            if let Some((key, request)) = state.held.filter(|_| state.count == count) {
                state.held = None;
                drop(state);
                keys.send(Hotkey::Answer { key, request });
            }
        });
        Some(Cmd::Noop)
    }
}

impl ConditionalEventHandler for Keys {
    fn handle(&self, typed: &Typed, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let Typed::KeySeq(keys) = typed else { return None };
        match keys.as_slice() {
            [key] => {
                let command = self.key(*key, context.line());
                let mut state = self.lock();
                // A key that answers belongs to no line.
                if state.held.is_none() && !matches!(key.0, KeyCode::Enter | KeyCode::Esc | KeyCode::BackTab) {
                    state.pressed = Some(Instant::now());
                }
                command
            }
            // Ctrl-X Ctrl-E
            _ => self.end(Ending::Editor),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::terminal::{Asked, Size};

    fn keys(alone: bool) -> (Keys, Receiver<Event>) {
        let (sender, events) = channel();
        let above = Above::default();
        above.ask("? bash\n", Asked { request: 7, keys: "yn", alone });
        above.draw(Size { columns: 80, rows: 24, reflows: true });
        (Keys::new(sender, above), events)
    }

    const fn key(c: char) -> KeyEvent {
        KeyEvent(KeyCode::Char(c), Modifiers::NONE)
    }

    #[test]
    fn a_key_alone_answers_and_a_key_with_another_is_a_letter() {
        let (keys, events) = keys(true);
        assert_eq!(keys.key(key('y'), ""), Some(Cmd::Noop));
        assert_eq!(keys.key(key('o'), ""), Some(Cmd::Insert(1, "yo".to_owned())));
        assert_eq!(keys.key(key('y'), "yo"), None);
        assert_eq!(keys.key(key('x'), ""), None);
        assert_eq!(keys.key(key('n'), ""), Some(Cmd::Noop));
        assert_eq!(keys.key(KeyEvent(KeyCode::Enter, Modifiers::NONE), ""), Some(Cmd::Noop));
        let answer = events.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(matches!(answer, Event::Hotkey(Hotkey::Answer { key: 'n', request: 7 })), "{answer:?}");
        assert!(events.try_recv().is_err());
    }

    #[test]
    fn where_enter_has_to_follow_or_nothing_is_asked_a_key_is_a_letter() {
        let (keys, _events) = keys(false);
        assert_eq!(keys.key(key('y'), ""), None);
        let (keys, _events) = self::keys(true);
        keys.above.unask();
        assert_eq!(keys.key(key('y'), ""), None);
    }

    #[test]
    fn the_keys_that_stop_leave_and_steer() {
        let (keys, events) = keys(true);
        let control = |c| KeyEvent(KeyCode::Char(c), Modifiers::CTRL);
        assert_eq!(keys.key(control('C'), "typed"), Some(Cmd::Kill(Movement::WholeBuffer)));
        assert!(matches!(events.try_recv(), Ok(Event::Hotkey(Hotkey::Interrupt { empty: false }))));
        assert_eq!(keys.key(KeyEvent(KeyCode::Esc, Modifiers::NONE), "typed"), Some(Cmd::Noop));
        assert!(matches!(events.try_recv(), Ok(Event::Hotkey(Hotkey::Escape))));
        assert_eq!(keys.key(control('D'), "typed"), None);
        assert_eq!((keys.key(control('D'), ""), keys.ending()), (Some(Cmd::AcceptLine), Ending::Leave));
        let steer = KeyEvent(KeyCode::Char('s'), Modifiers::ALT);
        assert_eq!((keys.key(steer, "x"), keys.ending()), (Some(Cmd::AcceptLine), Ending::Steer));
    }
}
