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
    CharSearch, Cmd, ConditionalEventHandler, EditMode, Event as Typed, EventContext, InputMode, KeyCode, KeyEvent,
    Modifiers, Movement, RepeatCount,
};

use super::complete::Completer;
use super::menu;
use super::paste::Pastes;
use super::picker::Picker;
use crate::input::{Event, Hotkey};
use crate::render::style::Style;
use crate::terminal::{Above, KeyRequest, size, suspend};

/// The silence after a key that was pressed alone: pasted text arrives faster, and a person does not
/// notice the delay.
const ALONE: Duration = Duration::from_millis(100);

/// How long after the prompt opens Ctrl-J still is Enter, and a line that is complete was not typed at this prompt: what was
/// typed before it opened comes so.
const TYPED_BEFORE: Duration = Duration::from_millis(100);

/// How long after a key a line counts as being typed, although it is empty: the next key may belong to
/// it, and not to a question that has just come.
const TYPING: Duration = Duration::from_secs(1);

/// The longest pause within a sequence of the terminal: it sends one in one go, and no person types that fast.
const SEQUENCE_PAUSE: Duration = Duration::from_millis(30);

/// Keys that begin a line while vi's commands are typed: they allow nothing there.
const VI_BEGINS: &str = "aAsS";

/// Keys with which vi's command mode ends.
const VI_INSERTS: &str = "aAiIcCsSR";

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
    /// When the prompt opened.
    opened: Instant,
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

impl Keys {
    /// Keys that send to `sender`; `vi`: as in vi.
    pub(super) fn new(sender: Sender<Event>, above: Above, style: Style, vi: bool) -> Self {
        let state = LineState {
            ending: Ending::Enter,
            opened: Instant::now(),
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
        (state.ending, state.opened, state.empty) = (Ending::Enter, Instant::now(), true);
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

    /// The key that stops, at this moment: in vi's insert mode the first Esc only leaves that.
    pub(super) fn escape(&self) -> &'static str {
        let state = self.lock();
        if state.vi && state.inserting && state.picker.is_none() { "Esc Esc" } else { "Esc" }
    }

    /// The editor shows another prompt than ours, such as `(arg: 2) ` after a digit among vi's commands. Whether that digit answers
    /// the question on the screen if nothing follows it.
    pub(super) fn takes_digit(&self, prompt: &str) -> bool {
        let count = prompt.strip_prefix("(arg: ").and_then(|rest| rest.strip_suffix(") "));
        let digit = count.and_then(|count| Some(count.chars().next()?).filter(|_| count.len() == 1));
        let mut state = self.lock();
        let can_answer = state.vi && !state.inserting && state.empty;
        let asked = self
            .above
            .shown_question()
            .filter(|asked| can_answer && digit.is_some_and(|digit| asked.keys.contains(digit)));
        state.digit = digit.zip(asked.map(|asked| asked.request));
        asked.is_some_and(|asked| asked.alone)
    }

    /// Nothing followed a key for so long that the editor gave up: the digit that was typed answers. Whether there was one.
    pub(super) fn answer_digit(&self) -> bool {
        let digit = self.lock().digit.take();
        digit.map(|(key, request)| self.send(Hotkey::Answer { key, request })).is_some()
    }

    /// Whether the prompt has only just opened: a line that is complete by then was there before it.
    pub(super) fn has_just_opened(&self) -> bool {
        self.lock().opened.elapsed() < TYPED_BEFORE
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

    fn end(&self, ending: Ending) -> Option<Cmd> {
        self.lock().ending = ending;
        Some(Cmd::AcceptLine)
    }

    /// A part of a sequence of the terminal that means nothing to the line; `None` if the key is none.
    fn of_sequence(&self, KeyEvent(code, modifiers): KeyEvent) -> Option<Cmd> {
        let mut state = self.lock();
        let rest = state.sequence.take().filter(|(_, at)| at.elapsed() < SEQUENCE_PAUSE).map(|(rest, _)| rest);
        let next = match (rest, code, modifiers) {
            // The end of a text is BEL, or ESC and a backslash.
            (Some(SequenceRest::Text), KeyCode::Char('G'), Modifiers::CTRL)
            | (Some(SequenceRest::Text), KeyCode::Char('\\'), Modifiers::ALT)
            | (Some(SequenceRest::Text), KeyCode::Char('\u{9c}'), _)
            | (Some(SequenceRest::Parameters), KeyCode::Char('@'..='~'), Modifiers::NONE) => None,
            (Some(SequenceRest::Text), ..) => rest,
            (Some(SequenceRest::Parameters), KeyCode::Char(' '..='?'), Modifiers::NONE) => rest,
            (_, KeyCode::UnknownEscSeq | KeyCode::Char('\u{9b}'), _) => Some(SequenceRest::Parameters),
            (_, KeyCode::Char(']' | 'P' | 'X' | '^' | '_'), Modifiers::ALT)
            | (_, KeyCode::Char('\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}'), _) => Some(SequenceRest::Text),
            _ => return None,
        };
        state.sequence = next.map(|next| (next, Instant::now()));
        Some(Cmd::Noop)
    }

    /// A key of a paste, between the marks that the terminal sets; `None` if it is no such key.
    fn pasted(&self, KeyEvent(code, modifiers): KeyEvent, line: &str) -> Option<Cmd> {
        let mut state = self.lock();
        let is_interrupt = (code, modifiers) == (KeyCode::Char('C'), Modifiers::CTRL);
        if code != KeyCode::BracketedPasteEnd && state.pastes.is_broken_off(is_interrupt) {
            let text = state.pastes.end(line).unwrap_or_default();
            return Some(match (code, modifiers) {
                (KeyCode::BracketedPasteStart, _) => {
                    state.pastes.begin();
                    Cmd::Insert(1, text)
                }
                (KeyCode::Char(c), Modifiers::NONE) => Cmd::Insert(1, format!("{text}{c}")),
                // The key has shown what came; pressed again it does what it does.
                _ => Cmd::Insert(1, text),
            });
        }
        let c = match (code, modifiers) {
            (KeyCode::BracketedPasteStart, _) => {
                let held = state.held.take();
                state.pastes.begin();
                return Some(held.map_or(Cmd::Noop, |(before, _)| Cmd::Insert(1, before.to_string())));
            }
            (KeyCode::BracketedPasteEnd, _) => {
                return Some(state.pastes.end(line).map_or(Cmd::Noop, |text| Cmd::Insert(1, text)));
            }
            (KeyCode::Char(c), Modifiers::NONE) => Some(c),
            // A pair of both is one line break.
            (KeyCode::Enter, _) => Some('\r'),
            (KeyCode::Char('J'), Modifiers::CTRL) => Some('\n'),
            (KeyCode::Tab, _) => Some('\t'),
            // Of other keys a paste has none that means text.
            _ => None,
        };
        state.pastes.push(c).then_some(Cmd::Noop)
    }

    /// A key for the list that is open; `None` if there is none, or it belongs to the line.
    fn picking(&self, KeyEvent(code, modifiers): KeyEvent) -> Option<Cmd> {
        let mut state = self.lock();
        let picker = state.picker.as_mut()?;
        let by = match (code, modifiers) {
            (KeyCode::Enter, _) => {
                state.ending = Ending::Pick;
                return Some(Cmd::AcceptLine);
            }
            (KeyCode::Esc, Modifiers::NONE) | (KeyCode::Char('C' | 'D' | '\\'), Modifiers::CTRL) => {
                // Nothing fits, so nothing is marked.
                *picker = Picker::default();
                state.ending = Ending::Pick;
                return Some(Cmd::AcceptLine);
            }
            (KeyCode::Up | KeyCode::BackTab, _) | (KeyCode::Char('P'), Modifiers::CTRL) => -1,
            (KeyCode::Down | KeyCode::Tab, _) | (KeyCode::Char('N'), Modifiers::CTRL) => 1,
            _ => return None,
        };
        picker.step(by);
        self.draw(&state);
        Some(Cmd::Noop)
    }

    fn key(&self, key: KeyEvent, line: &str) -> Option<Cmd> {
        let KeyEvent(code, modifiers) = key;
        let command = self.pasted(key, line).or_else(|| self.of_sequence(key)).or_else(|| self.picking(key));
        if command.is_some() {
            return command;
        }
        let held = self.lock().held;
        if held.is_some() && code == KeyCode::Enter && modifiers == Modifiers::NONE {
            // Enter after a key that answers is a habit.
            return Some(Cmd::Noop);
        }
        let held = self.lock().held.take();
        match (code, modifiers) {
            (KeyCode::Tab, Modifiers::NONE) if line.is_empty() && self.lock().suggestion.is_some() => {
                Some(Cmd::Insert(1, self.lock().suggestion.clone().unwrap_or_default()))
            }
            (KeyCode::Char('C'), Modifiers::CTRL) if self.searching.load(Ordering::SeqCst) => Some(Cmd::Abort),
            (KeyCode::Char('C'), Modifiers::CTRL) if line.is_empty() && self.stops_line() => self.stop(),
            (KeyCode::Char('C'), Modifiers::CTRL) => {
                self.send(Hotkey::Interrupt { empty: line.is_empty() });
                Some(Cmd::Kill(Movement::WholeBuffer))
            }
            (KeyCode::Esc, Modifiers::NONE) if !self.searching.load(Ordering::SeqCst) && self.stops_line() => {
                self.stop()
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

    /// Whether a key that stops the turn ends the line, so that queued prompts can come into it.
    fn stops_line(&self) -> bool {
        let state = self.lock();
        state.brings_back && !state.writing
    }

    fn stop(&self) -> Option<Cmd> {
        self.send(Hotkey::Stop);
        self.end(Ending::Stop)
    }

    /// The question on the screen that a key answers if it is pressed alone.
    fn asks_for(&self, key: char, line: &str) -> Option<KeyRequest> {
        self.above.shown_question().filter(|asked| asked.alone && line.is_empty() && asked.keys.contains(key))
    }

    /// Holds a key back that may answer the question on the screen.
    fn hold(&self, key: char, line: &str) -> Option<Cmd> {
        let asked = self.asks_for(key, line)?;
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

impl Keys {
    /// Whether a key means something else while vi's commands are typed; Esc stops the turn only there. A key that answers the
    /// question on the screen does so there too, unless it begins a line in vi.
    fn is_of_vi(&self, KeyEvent(code, modifiers): KeyEvent, mode: InputMode, line: &str) -> bool {
        if self.lock().picker.is_some() {
            return false;
        }
        match (mode, code, modifiers) {
            (InputMode::Command, KeyCode::Char(key), Modifiers::NONE) => {
                let answers = !VI_BEGINS.contains(key) && self.asks_for(key, line).is_some();
                if !answers {
                    // The key before it was one of two.
                    self.lock().held = None;
                }
                !answers
            }
            (InputMode::Command, ..) => false,
            (InputMode::Insert | InputMode::Replace, ..) => code == KeyCode::Esc,
        }
    }

    /// A key was pressed in this mode of vi; `passed`: the editor does with it what vi does.
    fn follow_vi(&self, KeyEvent(code, modifiers): KeyEvent, mode: InputMode, passed: bool) {
        let inserting = match (mode, code, modifiers) {
            (InputMode::Command, KeyCode::Char(key), Modifiers::NONE) => passed && VI_INSERTS.contains(key),
            // The history is searched in insert mode.
            (InputMode::Command, KeyCode::Char('R' | 'S'), Modifiers::CTRL) => passed,
            (InputMode::Command, ..) => false,
            (InputMode::Insert | InputMode::Replace, KeyCode::Esc, _) => !passed,
            (InputMode::Insert | InputMode::Replace, ..) => true,
        };
        if std::mem::replace(&mut self.lock().inserting, inserting) != inserting {
            self.send(Hotkey::ViMode);
        }
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
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::terminal::Size;

    fn keys(alone: bool) -> (Keys, Receiver<Event>) {
        let (sender, events) = channel();
        let above = Above::default();
        above.ask("? bash\n", KeyRequest { request: 7, keys: "yn", alone });
        above.draw(Size { columns: 80, rows: 24, reflows: true });
        let style = Style { color: false, unicode: true };
        (Keys::new(sender, above, style, false), events)
    }

    const PASTE_START: KeyEvent = KeyEvent(KeyCode::BracketedPasteStart, Modifiers::NONE);
    const PASTE_END: KeyEvent = KeyEvent(KeyCode::BracketedPasteEnd, Modifiers::NONE);

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
    fn what_is_pasted_answers_and_ends_nothing() {
        let (keys, events) = keys(true);
        assert_eq!(keys.key(PASTE_START, ""), Some(Cmd::Noop));
        for typed in
            [key('y'), KeyEvent(KeyCode::Enter, Modifiers::NONE), KeyEvent(KeyCode::Char('C'), Modifiers::CTRL)]
        {
            assert_eq!(keys.key(typed, ""), Some(Cmd::Noop));
        }
        let end = keys.key(PASTE_END, "");
        assert_eq!(end, Some(Cmd::Insert(1, "y\n".to_owned())));
        assert_eq!(keys.whole("y\n"), ("y\n".to_owned(), true));
        assert!(events.try_recv().is_err());
    }

    #[test]
    fn both_parts_of_a_line_end_of_windows_are_one_line_break() {
        let (keys, _events) = keys(true);
        let line_feed = KeyEvent(KeyCode::Char('J'), Modifiers::CTRL);
        let enter = KeyEvent(KeyCode::Enter, Modifiers::NONE);
        for (ends, text) in [
            (vec![enter, line_feed], "a\nb"),
            (vec![enter], "a\nb"),
            (vec![line_feed], "a\nb"),
            (vec![enter, line_feed, enter, line_feed], "a\n\nb"),
            (vec![line_feed, enter], "a\n\nb"),
        ] {
            keys.key(PASTE_START, "");
            let typed = std::iter::once(key('a')).chain(ends).chain([key('b')]);
            typed.for_each(|typed| drop(keys.key(typed, "")));
            assert_eq!(keys.key(PASTE_END, ""), Some(Cmd::Insert(1, text.to_owned())));
        }
    }

    #[test]
    fn a_paste_whose_end_does_not_come_ends_after_a_silence_and_keeps_what_came() {
        let (keys, _events) = keys(false);
        let interrupt = KeyEvent(KeyCode::Char('C'), Modifiers::CTRL);
        let backdate = |by: Duration| keys.lock().pastes.backdate(by);
        for (silence, next, text) in [
            (Duration::from_secs(2), key('c'), "abc"),
            (Duration::from_secs(2), KeyEvent(KeyCode::Enter, Modifiers::NONE), "ab"),
            (Duration::from_millis(200), interrupt, "ab"),
        ] {
            keys.key(PASTE_START, "");
            keys.key(key('a'), "");
            keys.key(key('b'), "");
            backdate(silence);
            assert_eq!(keys.key(next, ""), Some(Cmd::Insert(1, text.to_owned())));
            // The line takes keys again.
            assert_eq!(keys.key(key('x'), text), None);
        }
        // A pasted Ctrl-C is no pressed one.
        keys.key(PASTE_START, "");
        keys.key(key('a'), "");
        assert_eq!(keys.key(interrupt, ""), Some(Cmd::Noop));
        assert_eq!(keys.key(PASTE_END, ""), Some(Cmd::Insert(1, "a".to_owned())));
    }

    #[test]
    fn an_answer_of_the_terminal_is_dropped_whole() {
        let alt = |c| KeyEvent(KeyCode::Char(c), Modifiers::ALT);
        let unknown = KeyEvent(KeyCode::UnknownEscSeq, Modifiers::NONE);
        let bell = KeyEvent(KeyCode::Char('G'), Modifiers::CTRL);
        let cases: [(KeyEvent, &str, Option<KeyEvent>); 8] = [
            (alt(']'), "11;rgb:1e1e/1e1e/1e1e", Some(alt('\\'))),
            (alt(']'), "11;rgb:yyyy/0/0", Some(bell)),
            (alt('P'), ">|tmux 3.3a", Some(alt('\\'))),
            (alt('_'), "Gi=1;OK", Some(alt('\\'))),
            (unknown, "62;22c", None),
            (unknown, "0;10;5M", None),
            (unknown, "2026;2$y", None),
            (key('\u{9b}'), "31m", None),
        ];
        for (begin, text, end) in cases {
            // At a question that `y` answers, and in a line.
            for line in ["", "text"] {
                let (keys, events) = keys(true);
                for typed in std::iter::once(begin).chain(text.chars().map(key)).chain(end) {
                    assert_eq!(keys.key(typed, line), Some(Cmd::Noop), "{typed:?} of {text}");
                }
                assert_eq!(keys.key(key('q'), line), None, "after {text}");
                assert!(events.try_recv().is_err(), "{text}");
            }
        }
    }

    #[test]
    fn what_is_typed_after_an_unknown_key_is_a_part_of_the_line() {
        let (keys, _events) = keys(true);
        for begin in [KeyEvent(KeyCode::UnknownEscSeq, Modifiers::NONE), KeyEvent(KeyCode::Char('P'), Modifiers::ALT)] {
            keys.key(begin, "a");
            let later = Instant::now().checked_sub(SEQUENCE_PAUSE * 2);
            let mut state = keys.lock();
            state.sequence = state.sequence.zip(later).map(|((rest, _), later)| (rest, later));
            drop(state);
            assert_eq!(keys.key(key('1'), "a"), None);
        }
    }

    #[test]
    fn a_list_takes_the_keys_that_move_in_it() {
        let (keys, events) = keys(true);
        let choices = ["one", "two"].map(|text| super::menu::Choice::new(text, "")).to_vec();
        keys.pick(Picker::new("x", choices.clone(), None));
        assert_eq!(keys.key(KeyEvent(KeyCode::Down, Modifiers::NONE), ""), Some(Cmd::Noop));
        let enter = KeyEvent(KeyCode::Enter, Modifiers::NONE);
        assert_eq!((keys.key(enter, ""), keys.ending()), (Some(Cmd::AcceptLine), Ending::Pick));
        assert_eq!(keys.picked().as_deref(), Some("two"));
        keys.pick(Picker::new("x", choices, None));
        assert_eq!(keys.key(KeyEvent(KeyCode::Esc, Modifiers::NONE), ""), Some(Cmd::AcceptLine));
        assert_eq!((keys.picked(), keys.picks()), (None, None));
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
    fn in_vis_command_mode_a_key_answers_unless_it_begins_a_line() {
        let (keys, events) = keys(true);
        let is_of_vi = |c, line: &str| keys.is_of_vi(key(c), InputMode::Command, line);
        assert!(!is_of_vi('y', "") && is_of_vi('y', "text") && is_of_vi('k', ""));
        keys.above.ask("? bash\n", KeyRequest { request: 8, keys: "ysan", alone: true });
        keys.above.draw(Size { columns: 80, rows: 24, reflows: true });
        assert!(is_of_vi('a', "") && is_of_vi('s', ""));
        // `yw` is no answer.
        assert_eq!(keys.key(key('y'), ""), Some(Cmd::Noop));
        assert!(is_of_vi('w', ""));
        assert_eq!(keys.key(key('n'), ""), Some(Cmd::Noop));
        let answer = events.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(matches!(answer, Event::Hotkey(Hotkey::Answer { key: 'n', request: 8 })), "{answer:?}");
        assert!(events.try_recv().is_err());
    }

    #[test]
    fn vis_insert_mode_is_followed_so_that_the_key_that_stops_can_be_told() {
        let (keys, events) = keys(true);
        keys.lock().vi = true;
        let check = |mode, typed, passed, expect: &str| {
            keys.follow_vi(typed, mode, passed);
            assert_eq!(keys.escape(), expect, "{typed:?}");
        };
        let escape = KeyEvent(KeyCode::Esc, Modifiers::NONE);
        check(InputMode::Insert, key('x'), true, "Esc Esc");
        assert!(events.try_recv().is_err());
        check(InputMode::Insert, escape, true, "Esc");
        assert!(matches!(events.try_recv(), Ok(Event::Hotkey(Hotkey::ViMode))));
        check(InputMode::Command, escape, false, "Esc");
        check(InputMode::Command, key('w'), true, "Esc");
        // It answers, and begins no line.
        check(InputMode::Command, key('R'), false, "Esc");
        for begins in "aAiIcCsSR".chars() {
            check(InputMode::Command, key(begins), true, "Esc Esc");
            check(InputMode::Replace, escape, true, "Esc");
        }
        check(InputMode::Command, KeyEvent(KeyCode::Char('R'), Modifiers::CTRL), true, "Esc Esc");
        keys.begin();
        assert_eq!(keys.escape(), "Esc Esc");
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
