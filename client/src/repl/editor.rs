//! The line editor: rustyline, its history, multi-line input, and what is drawn above its prompt.
//!
//! What is above the prompt is drawn together with it, by the thread that reads it, and stays in
//! [`Above`] until then: lines that rustyline's own printer has taken and not drawn when a line ends
//! would come after everything that is written until the next prompt.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    ColorMode, Config, Context, Editor, Event as Typed, EventHandler, ExternalPrinter as _, Helper, KeyEvent,
};

use super::keys::{Ending, Keys};
use super::slash;
use crate::capacity::Capacity;
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::input::{Event, Hotkey, Line, Lines};
use crate::picture;
use crate::terminal::{Above, discard_typed, remember_editing, size, with_shell_settings};

/// The prompt.
pub(super) const PROMPT: &str = "> ";

/// Makes rustyline draw its prompt again and leaves no trace: its printer ends every text with a line
/// feed, and this one ends where it began.
const REDRAW: &str = "\x1b[A\n";

/// Lines of history that are kept.
const MAX_HISTORY: usize = 1000;

/// How long to wait after Esc for the rest of a key that begins with it, in milliseconds.
const ESCAPE: u16 = 100;

/// The editor and its history.
struct LineEditor {
    editor: Editor<Completion, DefaultHistory>,
    /// The history file, unless something else is in its place.
    history: Option<PathBuf>,
    /// Absent on terminals that cannot move their cursor (`TERM=dumb`).
    above: Option<Above>,
    keys: Keys,
    sender: Sender<Event>,
}

/// What an editor is made of.
pub(super) struct Setup {
    /// The state directory, which has the history files.
    pub(super) state: PathBuf,
    /// The session's directory: it has a history of its own, and names of files are completed there too.
    pub(super) cwd: PathBuf,
    /// What undrawn lines above the prompt count against.
    pub(super) capacity: Capacity,
    /// Takes the keys that do not belong to a line.
    pub(super) sender: Sender<Event>,
}

/// Opens the editor. Fails if the terminal cannot be read.
pub(super) fn open(setup: Setup) -> Result<(Lines, Keys), Failure> {
    let failed = |error| Failure::new(Exit::FAILED, format!("cannot read the terminal: {error}"));
    let mut editor = line_editor(setup).map_err(failed)?;
    let (above, keys) = (editor.above.clone(), editor.keys.clone());
    Ok((Lines { read: Box::new(move || editor.read_line()), above }, keys))
}

fn line_editor(Setup { state, cwd, capacity, sender }: Setup) -> rustyline::Result<LineEditor> {
    let config = Config::builder()
        .max_history_size(MAX_HISTORY)?
        .history_ignore_space(true)
        .history_ignore_dups(true)?
        .auto_add_history(false)
        .keyseq_timeout(Some(ESCAPE))
        // The highlighter draws what is above the prompt, and runs only with colours.
        .color_mode(ColorMode::Forced)
        .build();
    let mut editor = Editor::with_config(config)?;
    let history = history_file(&mut editor, &state, &cwd);
    let printer = editor.create_external_printer().ok();
    let above = printer.map(|mut printer| Above::new(capacity, move || printer.print(REDRAW.to_owned()).is_ok()));
    let keys = Keys::new(sender.clone(), above.clone().unwrap_or_default());
    editor.bind_sequence(Typed::Any, EventHandler::Conditional(Box::new(keys.clone())));
    let edit = Typed::KeySeq(vec![KeyEvent::ctrl('X'), KeyEvent::ctrl('E')]);
    editor.bind_sequence(edit, EventHandler::Conditional(Box::new(keys.clone())));
    let drawn = above.clone().unwrap_or_default();
    editor.set_helper(Some(Completion { cwd, above: drawn, keys: keys.clone() }));
    Ok(LineEditor { editor, history, above, keys, sender })
}

/// Loads the history of a workspace; a new one begins with the history that all had together once.
fn history_file(editor: &mut Editor<Completion, DefaultHistory>, state: &Path, cwd: &Path) -> Option<PathBuf> {
    let own = state.join(history_name(cwd));
    // Opening a pipe would wait for its other end.
    let is_file = |path: &PathBuf| path.metadata().is_ok_and(|there| there.is_file());
    let common = state.join("history");
    if is_file(&own) {
        let _ = editor.load_history(&own);
    } else if own.symlink_metadata().is_ok() {
        return None;
    } else {
        // Created here, so that other users can never read it.
        let made = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&own);
        if made.is_ok() && is_file(&common) && editor.load_history(&common).is_ok() {
            let _ = editor.save_history(&own);
        }
    }
    Some(own)
}

/// The name of a workspace's history file: the directory's name to recognise it by, and a hash of its path.
fn history_name(cwd: &Path) -> String {
    // FNV-1a, which stays the same between versions.
    let bytes = cwd.as_os_str().as_encoded_bytes();
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let name = cwd.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
    format!("history-{name}-{hash:016x}")
}

impl LineEditor {
    /// Shows the prompt and waits for a line.
    fn read_line(&mut self) -> Line {
        let mut begun = String::new();
        loop {
            let prompt = if self.above.is_some() { PROMPT } else { "" };
            self.keys.begin();
            self.keys.changed(&begun);
            self.above.iter().for_each(Above::begin);
            let line = self.editor.readline_with_initial(prompt, (&begun, ""));
            let request = self.above.as_ref().and_then(Above::shown).map(|asked| asked.request);
            self.above.iter().for_each(Above::end);
            let line = match line {
                Ok(line) => line,
                // A key other than Ctrl-C that interrupts on this terminal.
                Err(ReadlineError::Interrupted) => {
                    let _ = self.sender.send(Event::Hotkey(Hotkey::Interrupt { empty: true }));
                    continue;
                }
                Err(ReadlineError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                    discard_typed();
                    return Line::Garbled;
                }
                Err(_) => return Line::End,
            };
            let ending = self.keys.ending();
            match ending {
                Ending::Leave => return Line::End,
                Ending::Editor => begun = self.edit(line),
                Ending::Enter | Ending::Steer => {
                    let text = line.replace("\\\n", "\n");
                    self.remember(line);
                    return Line::Text { text, steer: ending == Ending::Steer, request };
                }
            }
        }
    }

    fn remember(&mut self, line: String) {
        if self.editor.add_history_entry(line).unwrap_or_default()
            && let Some(history) = &self.history
        {
            // Without it the session works all the same.
            let _ = self.editor.append_history(history);
        }
    }

    /// The line as `$EDITOR` leaves it; what went wrong is said above the prompt.
    fn edit(&self, line: String) -> String {
        let edited = in_editor(&line);
        edited.unwrap_or_else(|error| {
            self.above.iter().for_each(|above| above.push(&format!("error: {error}\n")));
            line
        })
    }
}

/// Opens `text` in the user's editor; what it leaves. Fails if there is no editor or it fails.
fn in_editor(text: &str) -> Result<String, String> {
    let set = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| format!("no random bytes: {error}"))?;
    let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = std::env::temp_dir().join(format!("linger-{name}.md"));
    let write = |path: &Path| -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())
    };
    write(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let run = || {
        // As git has it: the editor may be a command with arguments.
        #[allow(clippy::disallowed_methods, reason = "the user's own editor, in the user's terminal")]
        let status = with_shell_settings(|| {
            std::process::Command::new("/bin/sh").args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(&path).status()
        });
        match status {
            Err(error) => Err(format!("{editor}: {error}")),
            Ok(status) if !status.success() => Err(format!("{editor} ended with {status}; the line is as it was")),
            Ok(_) => std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display())),
        }
    };
    let edited = run();
    let _ = std::fs::remove_file(&path);
    edited.map(|text| text.trim_end_matches('\n').to_owned())
}

/// Completion, multi-line input, and the drawing above the prompt.
struct Completion {
    /// The session's directory.
    cwd: PathBuf,
    above: Above,
    keys: Keys,
}

impl Validator for Completion {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        if self.keys.ending() == Ending::Enter && context.input().ends_with('\\') {
            return Ok(ValidationResult::Incomplete);
        }
        // The message, which is empty, has the prompt drawn once more: without the rows above it.
        self.above.close();
        self.keys.complete();
        Ok(ValidationResult::Valid(Some(String::new())))
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
        self.keys.changed(line);
        None
    }
}

impl Highlighter for Completion {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, default: bool) -> Cow<'b, str> {
        remember_editing();
        self.keys.searching.store(!default, Ordering::SeqCst);
        // A search in the history has a prompt of its own, which is drawn with its result.
        let above = if default { self.above.draw(size()) } else { String::new() };
        if above.is_empty() { Cow::Borrowed(prompt) } else { Cow::Owned(above + prompt) }
    }
}

impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_drawn_once_above_the_prompt() {
        let above = Above::default();
        let keys = Keys::new(std::sync::mpsc::channel().0, above.clone());
        let helper = Completion { cwd: PathBuf::new(), above: above.clone(), keys };
        above.push("one\n");
        above.push("two\n");
        assert_eq!(helper.highlight_prompt("(search) ", false), "(search) ");
        assert_eq!(helper.highlight_prompt(PROMPT, true), "one\ntwo\n> ");
        assert_eq!(helper.highlight_prompt(PROMPT, true), "> ");
        above.push("late\n");
        assert_eq!((above.take(), above.take()), ("late\n".to_owned(), String::new()));
    }

    #[test]
    fn each_workspace_has_a_history_of_its_own() {
        assert_eq!(history_name(Path::new("/")), "history--af63a24c860189fe");
        let names = ["/a/b-c", "/a/bc"].map(|cwd| history_name(Path::new(cwd)));
        assert!(names[0].starts_with("history-bc-") && names[0] != names[1], "{names:?}");
    }
}
