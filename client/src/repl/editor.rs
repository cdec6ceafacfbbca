//! The line editor: rustyline, its history file, and multi-line input.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, ExternalPrinter as _, Helper};

use super::slash;
use crate::command::here;
use crate::input::Line;
use crate::picture;
use crate::terminal::{Terminal, forget_typed};

/// What stands before a line.
const PROMPT: &str = "> ";

/// Lines of history that are kept.
const MAX_HISTORY: usize = 1000;

/// The editor and its history.
pub(crate) struct LineEditor {
    editor: Editor<Lines, DefaultHistory>,
    history: PathBuf,
}

/// Opens the editor, which keeps what was typed in `history` and completes names of files also in `cwd`; lines that come from `lines` are printed above its prompt.
pub(crate) fn open((history, cwd): (PathBuf, PathBuf), lines: Receiver<String>) -> rustyline::Result<LineEditor> {
    let config = Config::builder()
        .max_history_size(MAX_HISTORY)?
        .history_ignore_space(true)
        .history_ignore_dups(true)?
        .auto_add_history(true)
        .build();
    let mut editor = Editor::with_config(config)?;
    editor.set_helper(Some(Lines { cwd }));
    // Made here so that it is nobody else's to read from the start.
    let _ = OpenOptions::new().append(true).create(true).mode(0o600).open(&history);
    let _ = editor.load_history(&history);
    // Terminals that cannot move their cursor (`TERM=dumb`) have none; lines then follow what is being typed.
    let mut printer = editor.create_external_printer().ok();
    // A thread of its own: the printer can wait for the next prompt, and nobody else should.
    std::thread::spawn(move || {
        for line in lines {
            let printed = match &mut printer {
                Some(printer) => printer.print(line).is_ok(),
                None => Terminal::new().text(&line).is_ok(),
            };
            if !printed {
                return;
            }
        }
    });
    Ok(LineEditor { editor, history })
}

impl LineEditor {
    /// Shows the prompt and waits for a line.
    pub(crate) fn read_line(&mut self) -> Line {
        match self.editor.readline(PROMPT) {
            Ok(line) => {
                let _ = self.editor.append_history(&self.history);
                Line::Text(line.replace("\\\n", "\n"))
            }
            Err(ReadlineError::Interrupted) => Line::Interrupted,
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
}

impl Highlighter for Lines {}

impl Helper for Lines {}
