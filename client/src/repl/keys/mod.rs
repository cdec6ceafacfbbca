//! Keys that mean more than a letter while a line is being read: those that stop, steer and answer.
//!
//! Everything here runs in the thread that reads the line. A key that answers a question counts only if
//! the question is on the screen, the line is empty, and nothing follows within a tenth of a second: until then it
//! is held back, and what follows makes it a letter of the line.

mod meaning;
mod vi;

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustyline::{
    CharSearch, Cmd, ConditionalEventHandler, EditMode, Event as Typed, EventContext, KeyCode, KeyEvent, Modifiers,
    Movement, RepeatCount,
};

use super::complete::Completer;
use super::menu;
use super::paste::Pastes;
use super::picker::Picker;
use crate::input::{Event, Hotkey};
use crate::render::style::Style;
use crate::terminal::{Above, size};

/// How long after the prompt opens the first key may come that was typed before: from then on each of them has
/// [`SEQUENCE_PAUSE`] to follow. Ctrl-J among them is Enter, as the shell's settings make of it.
const TYPED_BEFORE: Duration = Duration::from_millis(100);

/// How long after a key a line counts as being typed, although it is empty: the next key may belong to
/// it, and not to a question that has just come.
const TYPING: Duration = Duration::from_secs(1);

/// The longest pause within a sequence of the terminal: it sends one in one go, and no person types that fast.
const SEQUENCE_PAUSE: Duration = Duration::from_millis(30);

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
    /// With Enter in a list that is open, or by leaving it.
    Pick,
    /// With Ctrl-D.
    Leave,
    /// With Esc or Ctrl-C, which stop the turn: what was queued comes back into it.
    Stop,
}

/// The rest of an unknown sequence of the terminal, such as its answer to a program that was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SequenceRest {
    /// Numbers and one letter.
    Parameters,
    /// Text, until its end mark.
    Text,
}

/// The key bindings and their state; shared with the editor's thread.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    sender: Sender<Event>,
    above: Above,
    /// How lists are drawn.
    style: Style,
    state: Arc<Mutex<LineState>>,
    /// Whether the history is being searched: keys belong to the search.
    pub(super) searching: Arc<AtomicBool>,
}

#[derive(Debug)]
struct LineState {
    ending: Ending,
    /// Until when a key was typed before the prompt opened; each such key puts it off.
    typed_before: Instant,
    /// When the last key was pressed.
    pressed: Option<Instant>,
    /// Whether the line is empty.
    empty: bool,
    /// The key that may be an answer, its request, and which key it is.
    held: Option<(char, u32)>,
    /// Counts the keys that were held back.
    count: u64,
    /// Text that was pasted into the line.
    pastes: Pastes,
    /// The rest of a sequence of the terminal that means nothing to the line, and when its last part came.
    sequence: Option<(SequenceRest, Instant)>,
    /// The list that Tab opens.
    completer: Completer,
    /// The list that the line chooses from.
    picker: Option<Picker>,
    /// Whether the line answers a question, so that it is text whatever it begins with.
    writing: bool,
    /// The text that Tab puts into the empty line that answers a question.
    suggestion: Option<String>,
    /// Whether the editor has vi's keys.
    vi: bool,
    /// Whether those are typed as text now, and not as commands.
    inserting: bool,
    /// A digit that vi takes for a count, if it may be an answer; and its request.
    digit: Option<(char, u32)>,
    /// Whether stopping the turn brings queued prompts back into the line.
    brings_back: bool,
    /// The beginning of the next line.
    begun: Option<String>,
}

impl LineState {
    /// Whether a key that is read `now` was typed before the prompt opened.
    fn was_typed_before(&mut self, now: Instant) -> bool {
        let was_before = now < self.typed_before;
        if was_before {
            self.typed_before = self.typed_before.max(now + SEQUENCE_PAUSE);
        }
        was_before
    }
}

impl Keys {
    /// Keys that send to `sender`; `vi`: as in vi.
    pub(super) fn new(sender: Sender<Event>, above: Above, style: Style, vi: bool) -> Self {
        let state = LineState {
            ending: Ending::Enter,
            typed_before: Instant::now(),
            pressed: None,
            empty: true,
            held: None,
            count: 0,
            pastes: Pastes::default(),
            sequence: None,
            completer: Completer::default(),
            picker: None,
            writing: false,
            suggestion: None,
            vi,
            inserting: true,
            digit: None,
            brings_back: false,
            begun: None,
        };
        Self { sender, above, style, state: Arc::new(Mutex::new(state)), searching: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether stopping the turn brings queued prompts back into the line, from now on.
    pub(super) fn set_brings_back(&self, brings_back: bool) {
        self.lock().brings_back = brings_back;
    }

    /// The next line begins with this text.
    pub(super) fn begin_with(&self, text: String) {
        self.lock().begun = Some(text);
    }

    /// Takes the beginning of the line that is read now.
    pub(super) fn take_begun(&self) -> String {
        self.lock().begun.take().unwrap_or_default()
    }

    /// Tab puts this into the line that answers a question.
    pub(super) fn suggest(&self, text: String) {
        self.lock().suggestion = Some(text);
    }

    /// A line is read from now on.
    pub(super) fn begin(&self) {
        let mut state = self.lock();
        (state.ending, state.typed_before, state.empty) = (Ending::Enter, Instant::now() + TYPED_BEFORE, true);
        // The line before is complete.
        (state.held, state.pressed) = (None, None);
        (state.inserting, state.digit) = (true, None);
        state.pastes = Pastes::default();
        state.completer.close();
        self.draw(&state);
    }

    /// Whether the next line answers a question, from now on.
    pub(super) fn set_writing(&self, writing: bool) {
        let mut state = self.lock();
        (state.writing, state.suggestion) = (writing, None);
    }

    /// Whether the line answers a question.
    pub(super) fn is_writing(&self) -> bool {
        self.lock().writing
    }

    /// Whether the line that is complete now was typed before the prompt opened.
    pub(super) fn was_typed_before(&self) -> bool {
        self.lock().was_typed_before(Instant::now())
    }

    /// The next line chooses from a list.
    pub(super) fn pick(&self, picker: Picker) {
        self.lock().picker = Some(picker);
    }

    /// The title of the open list; `None` if none is open.
    pub(super) fn picks(&self) -> Option<String> {
        self.lock().picker.as_ref().map(|picker| picker.title.clone())
    }

    /// The list is closed: what was marked in it.
    pub(super) fn picked(&self) -> Option<String> {
        let picker = self.lock().picker.take();
        self.above.set_menu(Vec::new());
        picker.and_then(|picker| picker.chosen().map(str::to_owned))
    }

    /// A line with what was pasted into it, and whether anything was.
    pub(super) fn whole(&self, line: &str) -> (String, bool) {
        let state = self.lock();
        (state.pastes.whole(line), state.pastes.any)
    }

    /// Completes a text; see [`Completer::tab`].
    pub(super) fn tab(&self, find: impl FnOnce(&mut Completer) -> Option<(usize, String)>) -> Option<(usize, String)> {
        // Not locked meanwhile: the names that it asks for come from a thread that looks at the state.
        let mut completer = std::mem::take(&mut self.lock().completer);
        let found = find(&mut completer);
        let mut state = self.lock();
        state.completer = completer;
        self.draw(&state);
        found
    }

    /// Draws the list that is open.
    fn draw(&self, state: &LineState) {
        let (choices, chosen) = match &state.picker {
            Some(picker) => picker.list(),
            None => state.completer.list(),
        };
        let mut rows = menu::rows(choices, chosen, size().columns, &self.style);
        if state.picker.as_ref().is_some_and(Picker::fits_nothing) {
            rows.push(self.style.dim("  nothing fits"));
        }
        self.above.set_menu(rows);
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
        let mut state = self.lock();
        state.empty = line.is_empty();
        let filtered = state.picker.as_mut().is_some_and(|picker| picker.narrow(line));
        if filtered {
            self.draw(&state);
        }
    }

    /// Whether a line is being typed.
    pub(super) fn is_typing(&self) -> bool {
        let state = self.lock();
        let open = state.picker.is_some() || !state.empty || state.held.is_some();
        open || state.pressed.is_some_and(|at| at.elapsed() < TYPING)
    }

    fn send(&self, hotkey: Hotkey) {
        // Without a receiver the program is about to end.
        let _ = self.sender.send(Event::Hotkey(hotkey));
    }
}

impl ConditionalEventHandler for Keys {
    fn handle(&self, typed: &Typed, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let Typed::KeySeq(keys) = typed else { return None };
        match keys.as_slice() {
            [key] if context.mode() == EditMode::Vi => {
                let mode = context.input_mode();
                let is_enter = *key == KeyEvent(KeyCode::Enter, Modifiers::NONE);
                if is_enter && self.answer_digit() {
                    return Some(Cmd::Noop);
                }
                self.lock().digit = None;
                let is_of_vi = self.is_of_vi(*key, mode, context.line());
                let command = if is_of_vi { None } else { self.pressed(*key, context) };
                self.follow_vi(*key, mode, command.is_none());
                command
            }
            [key] => self.pressed(*key, context),
            // Ctrl-X Ctrl-E
            _ => self.end(Ending::Editor),
        }
    }
}

impl Keys {
    /// A key that is no command of vi's.
    fn pressed(&self, key: KeyEvent, context: &EventContext<'_>) -> Option<Cmd> {
        if key == KeyEvent(KeyCode::Backspace, Modifiers::NONE) {
            // At the end of the line, where a paste has put the cursor. What stands for it begins with its only `[`; a
            // count of characters would be taken for the key's.
            let line = context.line();
            if context.pos() == line.len() && self.lock().pastes.is_before(line) {
                return Some(Cmd::Kill(Movement::ViCharSearch(1, CharSearch::Backward('['))));
            }
        }
        let command = self.key(key, context.line());
        let mut state = self.lock();
        if key.0 != KeyCode::Tab && !state.completer.list().0.is_empty() {
            state.completer.close();
            self.draw(&state);
        }
        // A key that answers belongs to no line.
        if state.held.is_none() && !matches!(key.0, KeyCode::Enter | KeyCode::Esc | KeyCode::BackTab) {
            state.pressed = Some(Instant::now());
        }
        command
    }
}

#[cfg(test)]
mod tests;
