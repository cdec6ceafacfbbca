//! The line editor: rustyline, its history, multi-line input, and what is drawn above its prompt.
//!
//! What is above the prompt is drawn together with it, by the thread that reads it, and stays in
//! [`Above`] until then: lines that rustyline's own printer has taken and not drawn when a line ends
//! would come after everything that is written until the next prompt.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    ColorMode, CompletionType, Config, Context, EditMode, Editor, Event as Typed, EventHandler, ExternalPrinter as _,
    Helper, KeyEvent,
};

use super::complete::Known;
use super::history::{self, MAX_HISTORY};
use super::keys::{Ending, Keys};
use crate::capacity::Capacity;
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::input::{Event, Hotkey, InputLine, Lines, Ran};
use crate::render::style::Style;
use crate::terminal::{Above, command, discard_typed, lend, read_at_once, remember_editing, size};

pub(super) const PROMPT: &str = "> ";

/// Makes rustyline draw its prompt again and leaves no trace: its printer ends every text with a line
/// feed, and this one ends where it began.
const REDRAW: &str = "\x1b[A\n";

/// How long to wait after Esc for the rest of a key that begins with it, in milliseconds.
const ESCAPE: u16 = 100;

/// The editor and its history.
struct LineEditor {
    editor: Editor<Completion, DefaultHistory>,
    /// The history file, unless something else is in its place.
    history: Option<PathBuf>,
    /// The state directory, which has the history files.
    state: PathBuf,
    /// The directory whose history is loaded.
    cwd: PathBuf,
    workspace: Workspace,
    /// Absent on terminals that cannot move their cursor (`TERM=dumb`).
    above: Option<Above>,
    keys: Keys,
    sender: Sender<Event>,
}

/// The parts of an editor.
pub(super) struct Setup {
    /// The state directory, which has the history files.
    pub(super) state: PathBuf,
    pub(super) workspace: Workspace,
    /// How lists are drawn.
    pub(super) style: Style,
    /// The budget for lines above the prompt that are not drawn yet.
    pub(super) capacity: Capacity,
    /// Takes the keys that do not belong to a line.
    pub(super) sender: Sender<Event>,
}

/// The session's directory: it has a history of its own, names of files are completed there too, and the user's own commands run
/// there. It is another one once another session is entered.
#[derive(Clone, Debug)]
pub(super) struct Workspace(Arc<Mutex<PathBuf>>);

impl Workspace {
    /// A directory.
    pub(super) fn new(cwd: PathBuf) -> Self {
        Self(Arc::new(Mutex::new(cwd)))
    }

    /// It is this directory now.
    pub(super) fn set(&self, cwd: PathBuf) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = cwd;
    }

    fn get(&self) -> PathBuf {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Opens the editor. Fails if the terminal cannot be read.
pub(super) fn open(setup: Setup) -> Result<(Lines, Keys, Known), Failure> {
    let failed = |error| Failure::new(Exit::FAILED, format!("cannot read the terminal: {error}"));
    let mut editor = line_editor(setup).map_err(failed)?;
    let (above, keys) = (editor.above.clone(), editor.keys.clone());
    let known = Known::new(editor.sender.clone());
    if let Some(helper) = editor.editor.helper_mut() {
        helper.known = Some(known.clone());
    }
    Ok((Lines { read: Box::new(move || editor.read_line()), above }, keys, known))
}

fn line_editor(Setup { state, workspace, style, capacity, sender }: Setup) -> rustyline::Result<LineEditor> {
    let vi = wants_vi();
    let config = Config::builder()
        .max_history_size(MAX_HISTORY)?
        .history_ignore_space(true)
        .history_ignore_dups(true)?
        .auto_add_history(false)
        // Before the time that Esc takes, which it sets too.
        .edit_mode(if vi { EditMode::Vi } else { EditMode::Emacs })
        .keyseq_timeout(Some(ESCAPE))
        // The only completion that is given is inserted; lists are drawn above the prompt.
        .completion_type(CompletionType::List)
        // The highlighter draws what is above the prompt, and runs only with colours.
        .color_mode(ColorMode::Forced)
        .build();
    let mut editor = Editor::with_config(config)?;
    let cwd = workspace.get();
    let history = history::load(&mut editor, &state, &cwd);
    let printer = editor.create_external_printer().ok();
    let above = printer.map(|mut printer| Above::new(capacity, move || printer.print(REDRAW.to_owned()).is_ok()));
    let keys = Keys::new(sender.clone(), above.clone().unwrap_or_default(), style, vi);
    editor.bind_sequence(Typed::Any, EventHandler::Conditional(Box::new(keys.clone())));
    let edit = Typed::KeySeq(vec![KeyEvent::ctrl('X'), KeyEvent::ctrl('E')]);
    editor.bind_sequence(edit, EventHandler::Conditional(Box::new(keys.clone())));
    let drawn = above.clone().unwrap_or_default();
    let helper = Completion { workspace: workspace.clone(), above: drawn, keys: keys.clone(), known: None };
    editor.set_helper(Some(helper));
    Ok(LineEditor { editor, history, state, cwd, workspace, above, keys, sender })
}

/// The longest `~/.inputrc` that is read, in bytes.
const MAX_INPUTRC: u64 = 64 << 10;

/// Whether the user edits lines as in vi: `set editing-mode vi` in the file of all programs that read lines so.
fn wants_vi() -> bool {
    let named = std::env::var_os("INPUTRC").filter(|name| !name.is_empty()).map(PathBuf::from);
    let Some(path) = named.or_else(|| Some(std::env::home_dir()?.join(".inputrc"))) else { return false };
    if !path.metadata().is_ok_and(|there| there.is_file()) {
        return false;
    }
    let mut text = Vec::new();
    let _ = std::fs::File::open(path).and_then(|file| file.take(MAX_INPUTRC).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut modes = text.lines().filter_map(|line| match *line.split_whitespace().collect::<Vec<_>>().as_slice() {
        [set, name, mode] if set.eq_ignore_ascii_case("set") && name == "editing-mode" => Some(mode == "vi"),
        _ => None,
    });
    modes.next_back().unwrap_or(false)
}

impl LineEditor {
    /// Shows the prompt and waits for a line.
    fn read_line(&mut self) -> InputLine {
        self.enter_workspace();
        let mut begun = self.keys.take_begun();
        // What was typed before the line went to `$EDITOR`, if there were pastes in it.
        let mut typed = None;
        loop {
            let picks = self.keys.picks();
            let prompt = match (&self.above, &picks) {
                (None, _) => String::new(),
                (Some(_), None) => PROMPT.to_owned(),
                (Some(_), Some(what)) => format!("{what}{PROMPT}"),
            };
            self.keys.begin();
            self.keys.changed(&begun);
            if let Some(above) = &self.above {
                above.begin();
            }
            let line = self.editor.readline_with_initial(&prompt, (&begun, ""));
            if matches!(line, Err(ReadlineError::Eof)) && self.keys.answer_digit() {
                if let Some(above) = &self.above {
                    above.take_back(size());
                }
                continue;
            }
            if let (Ok(line), Ending::Stop) = (&line, self.keys.ending()) {
                if let Some(above) = &self.above {
                    above.take_back_line(&prompt, line, size());
                }
                return InputLine::Stopped(self.keys.whole(line).0);
            }
            let request = self.above.as_ref().and_then(Above::shown_question).map(|asked| asked.request);
            if let Some(above) = &self.above {
                above.end();
            }
            let line = match line {
                Ok(line) => line,
                // A key other than Ctrl-C that interrupts on this terminal.
                Err(ReadlineError::Interrupted) => {
                    let _ = self.sender.send(Event::Hotkey(Hotkey::Interrupt { empty: true }));
                    continue;
                }
                Err(ReadlineError::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                    discard_typed();
                    return InputLine::Garbled;
                }
                Err(_) => return InputLine::End,
            };
            let (whole, pasted) = self.keys.whole(&line);
            // A terminal that cannot move its cursor does not mark what is pasted: the lines of a paste are there at once.
            let pasted = pasted || (self.above.is_none() && self.keys.was_typed_before());
            let ending = self.keys.ending();
            match ending {
                Ending::Leave => return InputLine::End,
                Ending::Stop => return InputLine::Stopped(whole),
                Ending::Pick => return InputLine::Picked(self.keys.picked()),
                Ending::Editor => {
                    typed = typed.or_else(|| (whole != line).then_some(line));
                    begun = self.edit(whole);
                }
                Ending::Enter | Ending::Steer => {
                    let text = whole.replace("\\\n", "\n");
                    self.remember(whole);
                    let can_run = ending == Ending::Enter && picks.is_none() && !self.keys.is_writing();
                    return match text.trim().strip_prefix('!').map(str::trim) {
                        Some(command) if !command.is_empty() && can_run => {
                            if pasted || command.contains('\n') {
                                InputLine::NotRun
                            } else {
                                self.run(command.to_owned())
                            }
                        }
                        _ => {
                            let typed = typed.unwrap_or_else(|| line.replace("\\\n", "\n"));
                            InputLine::Text { text, typed, steer: ending == Ending::Steer, request }
                        }
                    };
                }
            }
        }
    }

    /// Loads the history of the workspace, if it is another one now.
    fn enter_workspace(&mut self) {
        let cwd = self.workspace.get();
        if cwd != self.cwd {
            let _ = self.editor.clear_history();
            self.history = history::load(&mut self.editor, &self.state, &cwd);
            self.cwd = cwd;
        }
    }

    /// Runs a command of the user's own.
    fn run(&self, command: String) -> InputLine {
        let ran = command::run(&command, &self.cwd);
        let (output, code) = match ran {
            Ok((output, status)) => (Ok(output), command::code(status)),
            Err(error) => (Err(format!("{error} (in {})", self.cwd.display())), None),
        };
        InputLine::Ran(Ran { command, output, code })
    }

    fn remember(&mut self, line: String) {
        if history::keeps(&line)
            && self.editor.add_history_entry(line).unwrap_or_default()
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
            if let Some(above) = &self.above {
                above.push(&format!("error: {error}\n"));
            }
            line
        })
    }
}

/// Opens `text` in the user's editor; what it leaves. Fails if there is no editor or it fails.
fn in_editor(text: &str) -> Result<String, String> {
    let set = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| format!("cannot get random bytes: {error}"))?;
    let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = std::env::temp_dir().join(format!("linger-{name}.md"));
    let write = |path: &Path| -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        // A text file ends in a line feed, which is taken off again.
        file.write_all(text.as_bytes())?;
        if text.is_empty() { Ok(()) } else { file.write_all(b"\n") }
    };
    write(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let run = || {
        // As git has it: the editor may be a command with arguments.
        #[allow(clippy::disallowed_methods, reason = "the user's own editor, in the user's terminal")]
        let status = lend(|| {
            std::process::Command::new("/bin/sh").args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(&path).status()
        });
        match status {
            Err(error) => Err(format!("{editor}: {error}")),
            Ok(status) if !status.success() => Err(format!("{editor} ended with {status}; the line is as it was")),
            // An editor may save in another encoding: what is no UTF-8 is seen in the line and can be mended there.
            Ok(_) => std::fs::read(&path)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .map_err(|error| format!("{}: {error}", path.display())),
        }
    };
    let edited = run();
    let _ = std::fs::remove_file(&path);
    edited.map(|text| text.trim_end_matches('\n').to_owned())
}

/// Completion, multi-line input, and the drawing above the prompt.
struct Completion {
    workspace: Workspace,
    above: Above,
    keys: Keys,
    known: Option<Known>,
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
        let places: Vec<PathBuf> = working_directory().into_iter().chain([self.workspace.get()]).collect();
        let Some(known) = &self.known else { return Ok((at, Vec::new())) };
        let found = self.keys.tab(|completer| completer.tab(typed, known, &places));
        Ok(found.map_or((at, Vec::new()), |(start, text)| (start, vec![text])))
    }
}

impl Hinter for Completion {
    type Hint = String;

    /// Gives no hint: rustyline calls this at each change of the line, which shows what is in it.
    fn hint(&self, line: &str, at: usize, _: &Context<'_>) -> Option<String> {
        self.keys.changed(line);
        self.above.lay_out(line, at, size());
        self.above.typed(line, at);
        None
    }
}

impl Highlighter for Completion {
    fn highlight_prompt<'b, 's: 'b, 'p: 'b>(&'s self, prompt: &'p str, default: bool) -> Cow<'b, str> {
        // A key that is waited for after a digit: reading ends without one.
        read_at_once(!default && self.keys.takes_digit(prompt));
        remember_editing();
        self.keys.searching.store(!default, Ordering::SeqCst);
        if default {
            self.above.set_prompt(prompt);
        }
        // A search in the history has a prompt of its own, which is drawn with its result.
        let above = if default { self.above.draw(size()) } else { String::new() };
        if above.is_empty() { Cow::Borrowed(prompt) } else { Cow::Owned(above + prompt) }
    }

    /// Highlights nothing: rustyline calls this where the cursor moves or a letter was added; it draws the whole line again if told
    /// so.
    fn highlight_char(&self, line: &str, at: usize, _: CmdKind) -> bool {
        self.above.typed(line, at);
        self.above.begins_row(size())
    }
}

impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_drawn_once_above_the_prompt() {
        let above = Above::default();
        let keys = Keys::new(std::sync::mpsc::channel().0, above.clone(), Style { color: false, unicode: true }, false);
        let workspace = Workspace::new(PathBuf::new());
        let helper = Completion { workspace, above: above.clone(), keys, known: None };
        above.push("one\n");
        above.push("two\n");
        assert_eq!(helper.highlight_prompt("(search) ", false), "(search) ");
        assert_eq!(helper.highlight_prompt(PROMPT, true), "one\ntwo\n> ");
        assert_eq!(helper.highlight_prompt(PROMPT, true), "> ");
        above.push("late\n");
        assert_eq!((above.take(), above.take()), ("late\n".to_owned(), String::new()));
    }
}
