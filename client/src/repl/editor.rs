//! The line editor: rustyline, its history file, multi-line input, and lines that stand above its prompt.
//!
//! Those are drawn with the prompt, by the thread that reads it, and are ours until then ([`Above`]): what rustyline's own
//! printer has taken and not drawn when a line ends would come after all that is written until the next prompt.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{ColorMode, Config, Context, Editor, ExternalPrinter as _, Helper};

use super::slash;
use crate::command::here;
use crate::input::Line;
use crate::picture;
use crate::room::Room;
use crate::terminal::{forget_typed, keep_editing};

/// What stands before a line.
const PROMPT: &str = "> ";

/// What makes the editor draw its prompt again, and leaves nothing on the terminal itself: what it prints ends in a new line,
/// and this one ends where it began.
const REDRAW: &str = "\x1b[A\n";

/// Lines of history that are kept.
const MAX_HISTORY: usize = 1000;

/// The editor and its history.
pub(crate) struct LineEditor {
    editor: Editor<Lines, DefaultHistory>,
    /// Where what was typed is kept, unless something else has its place.
    history: Option<PathBuf>,
    /// Where lines go while the prompt is open; terminals that cannot move their cursor (`TERM=dumb`) have none.
    pub(crate) above: Option<Above>,
    /// Whether nothing is typed.
    empty: Arc<AtomicBool>,
}

/// Lines that are to stand above the prompt. While it cannot be drawn, because the history is searched or the terminal stands
/// still, they fill the room for what the daemon says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Above {
    lines: Arc<Mutex<String>>,
    room: Room,
    /// Whether a line is being read.
    reading: Arc<AtomicBool>,
    wake: Option<SyncSender<()>>,
}

impl Above {
    /// Adds whole lines.
    pub(crate) fn push(&self, lines: &str) {
        self.room.take_lines(lines.len());
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push_str(lines);
        if let Some(wake) = &self.wake {
            match wake.try_send(()) {
                // Whoever is woken already takes these too.
                Ok(()) | Err(TrySendError::Full(())) => {}
                // Nothing can be drawn any more: they are written when the prompt is closed.
                Err(TrySendError::Disconnected(())) => {}
            }
        }
    }

    /// Has the prompt drawn again.
    pub(crate) fn redraw(&self) {
        self.push("");
    }

    /// Takes what is not drawn yet.
    pub(crate) fn take(&self) -> String {
        let lines = std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner));
        self.room.free_lines(lines.len());
        lines
    }
}

/// What an editor is made with.
pub(crate) struct Setup {
    /// Where what was typed is kept.
    pub(crate) history: PathBuf,
    /// Where the session works: names of files are completed there too.
    pub(crate) cwd: PathBuf,
    /// What lines above the prompt take until they are drawn.
    pub(crate) room: Room,
}

/// Opens the editor.
pub(crate) fn open(Setup { history, cwd, room }: Setup) -> rustyline::Result<LineEditor> {
    let config = Config::builder()
        .max_history_size(MAX_HISTORY)?
        .history_ignore_space(true)
        .history_ignore_dups(true)?
        .auto_add_history(true)
        // What is above the prompt is drawn by the highlighter, which there is without colours too.
        .color_mode(ColorMode::Forced)
        .build();
    let mut editor = Editor::with_config(config)?;
    // A pipe in its place would wait for somebody at its other end.
    let history = Some(history).filter(|history| history.metadata().map_or(true, |there| there.is_file()));
    if let Some(history) = &history {
        // Made here so that it is nobody else's to read from the start.
        let _ = OpenOptions::new().append(true).create(true).mode(0o600).open(history);
        let _ = editor.load_history(history);
    }
    let above = editor.create_external_printer().ok().map(|mut printer| {
        let (wake, woken) = sync_channel(1);
        let above = Above { wake: Some(wake), room, ..Above::default() };
        let reading = above.reading.clone();
        // A thread of its own: the printer can wait for the next prompt, and nobody else should.
        std::thread::spawn(move || {
            for () in woken {
                if reading.load(Ordering::SeqCst) && printer.print(REDRAW.to_owned()).is_err() {
                    return;
                }
            }
        });
        above
    });
    let empty = Arc::<AtomicBool>::default();
    editor.set_helper(Some(Lines { cwd, above: above.clone().unwrap_or_default(), empty: empty.clone() }));
    Ok(LineEditor { editor, history, above, empty })
}

impl LineEditor {
    /// Shows the prompt and waits for a line.
    pub(crate) fn read_line(&mut self) -> Line {
        let reading = |is| self.above.iter().for_each(|above| above.reading.store(is, Ordering::SeqCst));
        reading(true);
        self.empty.store(true, Ordering::SeqCst);
        let line = self.editor.readline(PROMPT);
        reading(false);
        match line {
            Ok(line) => {
                let _ = self.history.as_ref().map(|history| self.editor.append_history(history));
                Line::Text(line.replace("\\\n", "\n"))
            }
            Err(ReadlineError::Interrupted) => Line::Interrupted { empty: self.empty.load(Ordering::SeqCst) },
            Err(ReadlineError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                forget_typed();
                Line::Garbled
            }
            Err(_) => Line::End,
        }
    }
}

/// What the editor knows about lines.
struct Lines {
    /// Where the session works.
    cwd: PathBuf,
    above: Above,
    /// Whether nothing is typed.
    empty: Arc<AtomicBool>,
}

impl Validator for Lines {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if context.input().ends_with('\\') { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for Lines {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..at).unwrap_or_default();
        let places: Vec<PathBuf> = here().into_iter().chain([self.cwd.clone()]).collect();
        Ok(picture::completions(typed, &places).unwrap_or_else(|| (0, slash::completions(typed))))
    }
}

impl Hinter for Lines {
    type Hint = String;

    /// Gives none: it is asked whenever the line is another, and so knows whether there is one.
    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        self.empty.store(line.is_empty(), Ordering::SeqCst);
        None
    }
}

impl Highlighter for Lines {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, default: bool) -> Cow<'b, str> {
        keep_editing();
        // While the history is searched another prompt stands there, which is drawn with its result.
        let lines = if default { self.above.take() } else { String::new() };
        if lines.is_empty() { Cow::Borrowed(prompt) } else { Cow::Owned(lines + prompt) }
    }
}

impl Helper for Lines {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_drawn_once_above_the_prompt_or_taken_back() {
        let above = Above::default();
        let helper = Lines { cwd: PathBuf::new(), above: above.clone(), empty: Arc::default() };
        above.push("one\n");
        above.push("two\n");
        assert_eq!(helper.highlight_prompt("(search) ", false), "(search) ");
        assert_eq!(helper.highlight_prompt(PROMPT, true), "one\ntwo\n> ");
        assert_eq!(helper.highlight_prompt(PROMPT, true), "> ");
        above.push("late\n");
        assert_eq!((above.take(), above.take()), ("late\n".to_owned(), String::new()));
    }

    #[test]
    fn lines_that_are_not_drawn_keep_the_daemon_from_being_read() {
        let above = Above::default();
        above.push(&"x".repeat(2 << 20));
        assert!(!above.room.is_free(1));
        assert_eq!(above.take().len(), 2 << 20);
        assert!(above.room.is_free(1));
    }
}
