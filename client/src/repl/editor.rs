//! The line editor: rustyline, its history file, multi-line input, and lines above its prompt.
//!
//! Lines above the prompt are drawn together with it, by the thread that reads it, and stay in
//! [`Above`] until then: lines that rustyline's own printer has taken and not drawn when a line ends
//! would come after everything that is written until the next prompt.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{ColorMode, Config, Context, Editor, ExternalPrinter as _, Helper};

use super::slash;
use crate::capacity::Capacity;
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::input::{Line, Lines};
use crate::picture;
use crate::terminal::{Above, discard_typed, remember_editing};

/// The prompt.
const PROMPT: &str = "> ";

/// Makes rustyline draw its prompt again and leaves no trace: its printer ends every text with a line
/// feed, and this one ends where it began.
const REDRAW: &str = "\x1b[A\n";

/// Lines of history that are kept.
const MAX_HISTORY: usize = 1000;

/// The editor and its history.
struct LineEditor {
    editor: Editor<Completion, DefaultHistory>,
    /// The history file, unless something else is in its place.
    history: Option<PathBuf>,
    /// Takes lines while the prompt is open; absent on terminals that cannot move their cursor (`TERM=dumb`).
    above: Option<Above>,
    /// Whether the line is empty.
    empty: Arc<AtomicBool>,
}

/// What an editor is made of.
pub(super) struct Setup {
    /// The history file.
    pub(super) history: PathBuf,
    /// The session's directory: names of files are completed there too.
    pub(super) cwd: PathBuf,
    /// What undrawn lines above the prompt count against.
    pub(super) capacity: Capacity,
}

/// Opens the editor. Fails if the terminal cannot be read.
pub(super) fn open(setup: Setup) -> Result<Lines, Failure> {
    let failed = |error| Failure::new(Exit::FAILED, format!("cannot read the terminal: {error}"));
    let mut editor = line_editor(setup).map_err(failed)?;
    let above = editor.above.clone();
    Ok(Lines { read: Box::new(move || editor.read_line()), above })
}

fn line_editor(Setup { history, cwd, capacity }: Setup) -> rustyline::Result<LineEditor> {
    let config = Config::builder()
        .max_history_size(MAX_HISTORY)?
        .history_ignore_space(true)
        .history_ignore_dups(true)?
        .auto_add_history(true)
        // The highlighter draws the lines above the prompt, and runs only with colours.
        .color_mode(ColorMode::Forced)
        .build();
    let mut editor = Editor::with_config(config)?;
    // Opening a pipe would wait for its other end.
    let history = Some(history).filter(|history| history.metadata().map_or(true, |there| there.is_file()));
    if let Some(history) = &history {
        // Created here, so that other users can never read it.
        let _ = OpenOptions::new().append(true).create(true).mode(0o600).open(history);
        let _ = editor.load_history(history);
    }
    let printer = editor.create_external_printer().ok();
    let above = printer.map(|mut printer| Above::new(capacity, move || printer.print(REDRAW.to_owned()).is_ok()));
    let empty = Arc::<AtomicBool>::default();
    editor.set_helper(Some(Completion { cwd, above: above.clone().unwrap_or_default(), empty: empty.clone() }));
    Ok(LineEditor { editor, history, above, empty })
}

impl LineEditor {
    /// Shows the prompt and waits for a line.
    fn read_line(&mut self) -> Line {
        let reading = |is| self.above.iter().for_each(|above| above.set_reading(is));
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
                discard_typed();
                Line::Garbled
            }
            Err(_) => Line::End,
        }
    }
}

/// Completion, multi-line input, and the drawing of lines above the prompt.
struct Completion {
    /// The session's directory.
    cwd: PathBuf,
    above: Above,
    /// Whether the line is empty.
    empty: Arc<AtomicBool>,
}

impl Validator for Completion {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if context.input().ends_with('\\') { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for Completion {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..at).unwrap_or_default();
        let places: Vec<PathBuf> = working_directory().into_iter().chain([self.cwd.clone()]).collect();
        Ok(picture::completions(typed, &places).unwrap_or_else(|| (0, slash::completions(typed))))
    }
}

impl Hinter for Completion {
    type Hint = String;

    /// Gives no hint: rustyline calls this at each change of the line, which shows whether it is empty.
    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        self.empty.store(line.is_empty(), Ordering::SeqCst);
        None
    }
}

impl Highlighter for Completion {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, default: bool) -> Cow<'b, str> {
        remember_editing();
        // A search in the history has a prompt of its own, which is drawn with its result.
        let lines = if default { self.above.take() } else { String::new() };
        if lines.is_empty() { Cow::Borrowed(prompt) } else { Cow::Owned(lines + prompt) }
    }
}

impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_drawn_once_above_the_prompt_or_taken_back() {
        let above = Above::default();
        let helper = Completion { cwd: PathBuf::new(), above: above.clone(), empty: Arc::default() };
        above.push("one\n");
        above.push("two\n");
        assert_eq!(helper.highlight_prompt("(search) ", false), "(search) ");
        assert_eq!(helper.highlight_prompt(PROMPT, true), "one\ntwo\n> ");
        assert_eq!(helper.highlight_prompt(PROMPT, true), "> ");
        above.push("late\n");
        assert_eq!((above.take(), above.take()), ("late\n".to_owned(), String::new()));
    }
}
