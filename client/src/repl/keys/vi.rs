//! Keys while vi's commands are typed, and which of its modes that is.

use rustyline::{InputMode, KeyCode, KeyEvent, Modifiers};

use super::Keys;
use crate::input::Hotkey;

/// Keys that begin a line while vi's commands are typed: they allow nothing there.
const VI_BEGINS: &str = "aAsS";

/// Keys with which vi's command mode ends.
const VI_INSERTS: &str = "aAiIcCsSR";

impl Keys {
    /// The key that stops, at this moment: in vi's insert mode the first Esc only leaves that.
    pub(in crate::repl) fn escape(&self) -> &'static str {
        let state = self.lock();
        if state.vi && state.inserting && state.picker.is_none() { "Esc Esc" } else { "Esc" }
    }

    /// The editor shows another prompt than ours, such as `(arg: 2) ` after a digit among vi's commands. Whether that digit answers
    /// the question on the screen if nothing follows it.
    pub(in crate::repl) fn takes_digit(&self, prompt: &str) -> bool {
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
    pub(in crate::repl) fn answer_digit(&self) -> bool {
        let digit = self.lock().digit.take();
        digit.map(|(key, request)| self.send(Hotkey::Answer { key, request })).is_some()
    }

    /// Whether a key means something else while vi's commands are typed; Esc stops the turn only there. A key that answers the
    /// question on the screen does so there too, unless it begins a line in vi.
    pub(super) fn is_of_vi(&self, KeyEvent(code, modifiers): KeyEvent, mode: InputMode, line: &str) -> bool {
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
    pub(super) fn follow_vi(&self, KeyEvent(code, modifiers): KeyEvent, mode: InputMode, passed: bool) {
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
