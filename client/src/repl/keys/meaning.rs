//! The meaning of a key: a part of a paste or of the terminal's own sequence, a step in a list, an answer, a stop, or a letter.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustyline::{Cmd, KeyCode, KeyEvent, Modifiers, Movement};

use super::{Ending, Keys, SEQUENCE_PAUSE, SequenceRest};
use crate::input::Hotkey;
use crate::repl::picker::Picker;
use crate::terminal::{KeyRequest, suspend};

/// The silence after a key that was pressed alone: pasted text arrives faster, and a person does not
/// notice the delay.
const ALONE: Duration = Duration::from_millis(100);

impl Keys {
    pub(super) fn end(&self, ending: Ending) -> Option<Cmd> {
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

    pub(super) fn key(&self, key: KeyEvent, line: &str) -> Option<Cmd> {
        let KeyEvent(code, modifiers) = key;
        let was_typed_before = self.lock().was_typed_before(Instant::now());
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
            (KeyCode::Char('J'), Modifiers::CTRL) if was_typed_before => None,
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
    pub(super) fn asks_for(&self, key: char, line: &str) -> Option<KeyRequest> {
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
