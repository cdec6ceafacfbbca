//! The terminal: the only code that writes to it or changes its settings.
//!
//! Data goes to stdout, talk to stderr. While a prompt is open both go above it: whole lines once, the row of a
//! line that is not complete again and again.
//! Every text of a model, tool, file or server passes [`clean()`] or [`clean_line`] before it is shown,
//! also in a pipe, which may end in a pager or `cat`. Two things pass a pipe unchanged: the answer of
//! `run`, and JSON. [`restore`] puts the original settings back, however the process ends.

mod above;
mod clean;
pub(crate) mod command;
mod flow;
mod keyboard;
mod signal;
mod write;

use std::borrow::Cow;
use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;

use crate::error::Failure;
pub(crate) use above::{Above, KeyRequest, Size};
use flow::Flow;
pub(crate) use flow::{cut, width};

pub(crate) use clean::{clean, clean_exact, clean_exact_line, clean_line};
pub(crate) use keyboard::{
    Keyboard, discard_typed, is_lent, lend, read_at_once, remember_editing, restore, resume_editing, set_keyboard,
    suspend,
};
use write::write;

/// Columns of a terminal that does not tell its size.
const WIDTH: usize = 80;

/// The width of a file or a pipe: lines stay whole, so that `grep` finds what is in them.
pub(crate) const UNWRAPPED: usize = 1 << 20;

/// The narrowest terminal that is laid out for, in columns; one that tells less has no size.
pub(crate) const MIN_WIDTH: usize = 8;
/// Rows of one that does not.
const ROWS: usize = 24;

/// Bytes of the row that the cursor is in that are kept; no row that fits a terminal has more.
const MAX_ROW: usize = 16 << 10;

/// A piece of output and its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Data: to stdout.
    Text(String),
    /// Talk about it: to stderr.
    Talk(String),
}

/// When colours are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Color {
    /// On a terminal that has them, unless the environment says otherwise.
    #[default]
    Auto,
    /// Also in a pipe.
    Always,
    /// No colours, not even on a terminal.
    Never,
}

impl std::str::FromStr for Color {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => Err(format!("unknown value '{name}' for colours: auto, always or never")),
        }
    }
}

/// The command line's choice of output: when colours are used, and whether Markdown stays as it is.
static CHOSEN: OnceLock<(Color, bool)> = OnceLock::new();

/// Takes what the command line says about output; once, before anything is shown.
pub(crate) fn choose(color: Color, raw: bool) {
    let _ = CHOSEN.set((color, raw));
}

/// The abilities of the terminal, from the environment.
#[derive(Clone, Debug)]
pub(crate) struct Capabilities {
    /// Whether stdin is a terminal.
    pub(crate) stdin: bool,
    /// Whether stdout is a terminal.
    pub(crate) stdout: bool,
    /// Whether stderr is a terminal.
    pub(crate) stderr: bool,
    /// Whether talk may be coloured.
    pub(crate) color: bool,
    /// Whether data may be.
    pub(crate) data_color: bool,
    /// Whether Markdown is drawn; else its source is shown.
    pub(crate) markdown: bool,
    /// Whether signs beyond ASCII can be shown.
    pub(crate) unicode: bool,
    /// Whether the cursor can be moved.
    pub(crate) moves: bool,
    pub(crate) width: usize,
}

impl Capabilities {
    /// Reads the environment of this process.
    pub(crate) fn detect() -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let forced = std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0");
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let (stdout, stderr) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let (chosen, raw) = CHOSEN.get().copied().unwrap_or_default();
        let color = |terminal: bool| match chosen {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => !set("NO_COLOR") && (forced || (terminal && !dumb)),
        };
        let locale =
            ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
        let utf8 = locale.is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        Self {
            stdin: io::stdin().is_terminal(),
            stdout,
            stderr,
            color: color(stderr),
            data_color: color(stdout),
            markdown: color(stdout) && !raw,
            unicode: utf8 && !dumb,
            moves: !dumb,
            width: terminal_width(),
        }
    }

    /// Whether a question can be asked: a person sees it and can press a key.
    pub(crate) fn can_ask(&self) -> bool {
        self.stdin && self.stderr
    }
}

/// Columns of the terminal as it is now; without one [`UNWRAPPED`].
pub(crate) fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stderr());
    match size.or_else(|_| rustix::termios::tcgetwinsize(rustix::stdio::stdout())) {
        Ok(size) => Some(usize::from(size.ws_col)).filter(|columns| *columns >= MIN_WIDTH).unwrap_or(WIDTH),
        Err(_) => UNWRAPPED,
    }
}

/// The size of the terminal.
pub(crate) fn size() -> Size {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok();
    let known = |n: u16| Some(usize::from(n)).filter(|n| *n > 1);
    let columns = size.and_then(|size| known(size.ws_col)).unwrap_or(WIDTH);
    let rows = size.and_then(|size| known(size.ws_row)).unwrap_or(ROWS);
    // The terminals that are known not to wrap lines again.
    let reflows =
        std::env::var_os("XTERM_VERSION").is_none() && std::env::var_os("TERM").is_none_or(|term| term != "linux");
    Size { columns, rows, reflows }
}

struct Prompt {
    /// Takes what is drawn above it; absent where the terminal cannot move its cursor: there whole lines are written.
    above: Option<Above>,
    /// Whether the cursor is behind a prompt's sign that was written here.
    sign: bool,
}

/// Writes to stdout and stderr.
pub(crate) struct Terminal {
    /// Talk goes to stdout too: for `log`, whose data it is.
    pub(crate) one_stream: bool,
    prompt: Option<Prompt>,
    /// The line that began while a prompt was open and is not complete yet: its last row is redrawn above the prompt.
    flow: Flow,
    /// The rows below it that are redrawn.
    live: Vec<String>,
    /// The column of the cursor, without a prompt.
    column: usize,
    /// The row that the cursor is in, without a prompt.
    row: String,
    /// Whether the first of `live` is on the screen, without a prompt.
    status: bool,
}

impl Terminal {
    /// A terminal without a prompt: everything is written straight through.
    pub(crate) fn new() -> Self {
        let (flow, live, row) = (Flow::default(), Vec::new(), String::new());
        Self { one_stream: false, prompt: None, flow, live, column: 0, row, status: false }
    }

    /// A prompt is open now: what is written is drawn by `above`, and the row that is not complete with it.
    pub(crate) fn prompt_opened(&mut self, above: Option<Above>) -> io::Result<()> {
        let row = std::mem::take(&mut self.row);
        let columns = size().columns;
        let redrawn = above.is_some() && !row.is_empty() && flow::width(&row) < columns;
        self.prompt.get_or_insert(Prompt { above, sign: false });
        if !redrawn {
            return Ok(());
        }
        self.column = 0;
        write(&mut io::stdout(), "\r\x1b[2K")?;
        let rows = self.flow.push(&row, columns);
        self.print_lines(&rows)
    }

    /// The prompt is closed: everything is written straight through again, what was not drawn yet first.
    pub(crate) fn prompt_closed(&mut self) -> io::Result<()> {
        let Some(Prompt { above, sign }) = self.prompt.take() else { return Ok(()) };
        self.live.clear();
        let mut rest = above.map(|above| above.erase(size()) + &above.take()).unwrap_or_default();
        if sign {
            rest.push('\n');
        }
        rest.push_str(&self.flow.take());
        self.write(&rest)
    }

    /// Shows that a line is read, on a terminal whose cursor cannot be moved.
    pub(crate) fn sign(&mut self, sign: &str) -> io::Result<()> {
        match &mut self.prompt {
            Some(Prompt { above: None, sign: shown @ false }) => {
                *shown = true;
                write(&mut io::stdout(), sign)
            }
            _ => Ok(()),
        }
    }

    /// A line was read: the cursor is at the beginning of the next one.
    pub(crate) fn line_read(&mut self) {
        if let Some(prompt) = &mut self.prompt {
            prompt.sign = false;
        }
    }

    /// Whether the last row of a line is redrawn above the prompt.
    pub(crate) fn holds_rest(&self) -> bool {
        !self.flow.is_empty()
    }

    /// Sets the rows that are redrawn below the text, cut to the width; none, to take them away.
    pub(crate) fn set_live(&mut self, rows: Vec<String>) -> io::Result<()> {
        if self.live == rows {
            return Ok(());
        }
        self.live = rows;
        if self.prompt.is_some() {
            return self.print_lines("");
        }
        let mut out = self.erase_status();
        if let Some(status) = self.live.last() {
            let status = flow::cut(status, size().columns.saturating_sub(1));
            out += &match self.column {
                0 => format!("{status}\r"),
                column => format!("\n{status}\x1b[A\r\x1b[{column}C"),
            };
            self.status = true;
        }
        write(&mut io::stderr(), &out)
    }

    fn erase_status(&mut self) -> String {
        match (std::mem::take(&mut self.status), self.column) {
            (false, _) => String::new(),
            (true, 0) => "\r\x1b[2K".to_owned(),
            (true, column) => format!("\n\x1b[2K\x1b[A\r\x1b[{column}C"),
        }
    }

    /// Writes to stdout without a prompt.
    fn write(&mut self, text: &str) -> io::Result<()> {
        let erase = self.moved(text);
        write(&mut io::stdout().lock(), &(erase + text))
    }

    /// The cursor moves over `text`; what takes the status away before.
    fn moved(&mut self, text: &str) -> String {
        let erase = self.erase_status();
        if !erase.is_empty() {
            self.live.clear();
        }
        let line = text.rsplit('\n').next().unwrap_or_default();
        let before = if line.len() == text.len() { self.column } else { 0 };
        self.column = (before + flow::width(line)) % size().columns;
        if line.len() < text.len() || self.row.len() > MAX_ROW {
            self.row.clear();
        }
        self.row.push_str(line);
        erase
    }

    /// Prints in order.
    pub(crate) fn print(&mut self, outputs: Vec<Output>) -> io::Result<()> {
        for output in outputs {
            match output {
                Output::Text(text) => self.text(&text)?,
                Output::Talk(text) => self.talk(&text)?,
            }
        }
        Ok(())
    }

    /// Prints data as it is.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        if self.prompt.is_none() {
            return self.write(text);
        }
        let rows = self.flow.push(text, size().columns);
        self.print_lines(&rows)
    }

    /// Prints whole lines, past a line that is not complete, and what is redrawn below them.
    fn print_lines(&mut self, lines: &str) -> io::Result<()> {
        match &mut self.prompt {
            Some(Prompt { above: Some(above), .. }) => {
                let row = Some(self.flow.row().to_owned()).filter(|row| !row.is_empty());
                above.set(lines, row.into_iter().chain(self.live.iter().cloned()).collect());
                Ok(())
            }
            Some(Prompt { above: None, .. }) if lines.is_empty() => Ok(()),
            Some(Prompt { above: None, sign }) => {
                let end = if std::mem::take(sign) { "\n" } else { "" };
                write(&mut io::stdout().lock(), &format!("{end}{lines}"))
            }
            None => self.write(lines),
        }
    }

    /// Prints the text of a question, whose keys count once it is on the screen.
    pub(crate) fn ask(&mut self, text: &str, asked: KeyRequest) -> io::Result<()> {
        match &self.prompt {
            Some(Prompt { above: Some(above), .. }) => {
                above.ask(&wrapped(text), asked);
                Ok(())
            }
            _ => self.talk(text),
        }
    }

    /// Prints talk; errors are ignored, as there is no place left to report them.
    pub(crate) fn talk(&mut self, text: &str) -> io::Result<()> {
        if self.one_stream || self.prompt.is_some() {
            return self.text(text);
        }
        let erase = self.moved(text);
        let _ = write(&mut io::stderr().lock(), &(erase + text));
        Ok(())
    }

    /// Prints a cleaned line for people.
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        self.text(&format!("{}\n", clean_line(line)))
    }

    /// Prints a line for programs: unchanged, unless stdout is a terminal.
    pub(crate) fn data(&mut self, line: &str) -> io::Result<()> {
        let line = if io::stdout().is_terminal() { clean_line(line) } else { Cow::Borrowed(line) };
        self.text(&format!("{line}\n"))
    }

    /// Whether stdout is a terminal.
    pub(crate) fn is_shown(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Writes bytes as they are to a pipe or a file; fails on a terminal.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_shown() {
            return Err(io::Error::other("bytes are not shown on a terminal"));
        }
        let mut stdout = io::stdout().lock();
        io::Write::write_all(&mut stdout, bytes)?;
        io::Write::flush(&mut stdout)
    }

    /// Prints `error: …` and `hint: …`.
    pub(crate) fn complain(&mut self, failure: Failure) -> io::Result<()> {
        for (word, text) in [("error", failure.message), ("hint", failure.hint)] {
            text.map_or(Ok(()), |text| self.say(&format!("{word}: {text}")))?;
        }
        Ok(())
    }

    /// Prints whole lines that are clean and styled, past a line that is not complete.
    pub(crate) fn print_styled(&mut self, lines: &str) -> io::Result<()> {
        match self.prompt {
            Some(_) => self.print_lines(&wrapped(lines)),
            None => self.talk(lines),
        }
    }

    /// Prints cleaned lines of talk, past a line that is not complete.
    pub(crate) fn say(&mut self, lines: &str) -> io::Result<()> {
        self.print_styled(&format!("{}\n", clean(lines)))
    }
}

/// Whole lines, as rows of the terminal.
fn wrapped(lines: &str) -> String {
    Flow::default().push(lines, size().columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { columns: 80, rows: 24, reflows: true };

    #[test]
    fn a_row_that_is_full_is_drawn_once_and_the_last_one_again_and_again() {
        let mut terminal = Terminal::new();
        let above = Above::default();
        terminal.prompt_opened(Some(above.clone())).unwrap();
        terminal.text("one\ntw").unwrap();
        assert_eq!(above.draw(SIZE), "one\ntw\n");
        terminal.text(&"o".repeat(79)).unwrap();
        assert_eq!(above.draw(SIZE), format!("\x1b[A\x1b[2Ktw{}\no\n", "o".repeat(78)));
        terminal.text("\n").unwrap();
        assert_eq!(above.draw(SIZE), "\x1b[A\x1b[2Ko\n");
    }

    #[test]
    fn a_row_that_began_before_the_prompt_is_redrawn_above_it() {
        let mut terminal = Terminal::new();
        let above = Above::default();
        terminal.text("one\n  tw").unwrap();
        terminal.prompt_opened(Some(above.clone())).unwrap();
        assert_eq!(above.draw(SIZE), "  tw\n");
        terminal.text("o three\n").unwrap();
        assert_eq!(above.draw(SIZE), "\x1b[A\x1b[2K  two three\n");
    }

    #[test]
    fn what_is_said_does_not_land_in_a_line_that_is_not_whole() {
        let mut terminal = Terminal::new();
        let above = Above::default();
        terminal.prompt_opened(Some(above.clone())).unwrap();
        terminal.text("wo").unwrap();
        terminal.say("mode: ask").unwrap();
        terminal.set_live(vec!["waiting".to_owned()]).unwrap();
        assert_eq!(above.draw(SIZE), "mode: ask\nwo\nwaiting\n");
        terminal.text("rd\n").unwrap();
        assert_eq!(above.draw(SIZE), "\x1b[A\x1b[2K\x1b[A\x1b[2Kword\nwaiting\n");
    }

    #[test]
    fn a_status_without_a_prompt_goes_away_before_anything_else_is_written() {
        let mut terminal = Terminal::new();
        terminal.column = 4;
        terminal.status = true;
        assert_eq!(terminal.moved("more"), "\n\x1b[2K\x1b[A\r\x1b[4C");
        assert_eq!((terminal.column, terminal.status), (8, false));
        assert_eq!(terminal.moved("\n"), "");
        assert_eq!(terminal.column, 0);
    }
}
