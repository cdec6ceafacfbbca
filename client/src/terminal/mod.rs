//! The terminal: the only code that writes to it or changes its settings.
//!
//! Data goes to stdout, talk to stderr. While a prompt is open both go above it, in whole lines.
//! Every text of a model, tool, file or server passes [`clean()`] or [`clean_line`] before it is shown,
//! also in a pipe, which may end in a pager or `cat`. Two things pass a pipe unchanged: the answer of
//! `run`, and JSON. [`restore`] puts the original settings back, however the process ends.

mod above;
mod clean;
mod keyboard;

use std::borrow::Cow;
use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;

use crate::error::Failure;
pub(crate) use above::Above;
pub(crate) use clean::{clean, clean_exact, clean_exact_line, clean_line};
pub(crate) use keyboard::{Keyboard, discard_typed, remember_editing, restore, resume_editing, set_keyboard};

/// Columns of a terminal that does not tell its size.
const WIDTH: usize = 80;

/// The narrowest terminal that is laid out for, in columns; one that tells less has no size.
pub(crate) const MIN_WIDTH: usize = 8;

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
    /// Nowhere.
    Never,
}

impl std::str::FromStr for Color {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => Err(format!("unknown word '{name}' for colours: auto, always or never")),
        }
    }
}

/// What the command line says about output: when colours are used, and whether Markdown stays as it is.
static CHOSEN: OnceLock<(Color, bool)> = OnceLock::new();

/// Takes what the command line says about output; once, before anything is shown.
pub(crate) fn choose(color: Color, raw: bool) {
    let _ = CHOSEN.set((color, raw));
}

/// What the terminal can do, as the environment tells.
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
    /// Columns.
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
            width: terminal_width(),
        }
    }

    /// Whether a question can be asked: a person sees it and can press a key.
    pub(crate) fn can_ask(&self) -> bool {
        self.stdin && self.stderr
    }
}

/// Columns of the terminal as it is now.
pub(crate) fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stderr());
    let size = size.or_else(|_| rustix::termios::tcgetwinsize(rustix::stdio::stdout()));
    size.map(|size| usize::from(size.ws_col)).ok().filter(|columns| *columns >= MIN_WIDTH).unwrap_or(WIDTH)
}

/// The longest line that is held back until its end, in bytes; a longer one fills many screens and is broken.
const MAX_REST: usize = 64 << 10;

/// An open prompt: lines go above it, or straight through where the terminal cannot draw them there.
struct Prompt(Option<Above>);

/// Writes to stdout and stderr.
pub(crate) struct Terminal {
    /// Talk goes to stdout too: for `log`, whose data it is.
    pub(crate) one_stream: bool,
    /// The open prompt.
    prompt: Option<Prompt>,
    /// A line that began while a prompt was open and is not complete yet; none of it is shown.
    rest: String,
}

impl Terminal {
    /// A terminal without a prompt: everything is written straight through.
    pub(crate) fn new() -> Self {
        Self { one_stream: false, prompt: None, rest: String::new() }
    }

    /// A prompt is open now: lines go to `above`.
    pub(crate) fn prompt_opened(&mut self, above: Option<Above>) {
        self.prompt.get_or_insert(Prompt(above));
    }

    /// The prompt is closed: everything is written straight through again. True if lines were waiting
    /// that had not been shown. An incomplete line stays back until its end or [`Terminal::print_rest`].
    pub(crate) fn prompt_closed(&mut self) -> io::Result<bool> {
        let Some(Prompt(above)) = self.prompt.take() else { return Ok(false) };
        let unseen = above.map(|above| above.take()).unwrap_or_default();
        write(&mut io::stdout(), &unseen)?;
        Ok(!unseen.is_empty())
    }

    /// Whether an incomplete line is held back.
    pub(crate) fn holds_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Prints the line that is held back, unless a prompt is open.
    pub(crate) fn print_rest(&mut self) -> io::Result<()> {
        if self.prompt.is_some() || self.rest.is_empty() {
            return Ok(());
        }
        write(&mut io::stdout().lock(), &std::mem::take(&mut self.rest))
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
        self.print_rest()?;
        if self.prompt.is_none() {
            return write(&mut io::stdout().lock(), text);
        }
        self.rest.push_str(text);
        if self.rest.len() > MAX_REST && !self.rest.ends_with('\n') {
            self.rest.push('\n');
        }
        let Some(end) = self.rest.rfind('\n') else { return Ok(()) };
        let lines: String = self.rest.drain(..=end).collect();
        self.whole(&lines)
    }

    /// Prints whole lines, past a line that is held back.
    fn whole(&mut self, lines: &str) -> io::Result<()> {
        match &self.prompt {
            Some(Prompt(Some(above))) => above.push(lines),
            _ => write(&mut io::stdout().lock(), lines)?,
        }
        Ok(())
    }

    /// Prints talk; errors are ignored, as there is no place left to report them.
    pub(crate) fn talk(&mut self, text: &str) -> io::Result<()> {
        if self.one_stream || self.prompt.is_some() {
            return self.text(text);
        }
        self.print_rest()?;
        let _ = write(&mut io::stderr().lock(), text);
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

    /// Prints `error: …` and `hint: …`.
    pub(crate) fn complain(&mut self, failure: Failure) -> io::Result<()> {
        for (word, text) in [("error", failure.message), ("hint", failure.hint)] {
            text.map_or(Ok(()), |text| self.say(&format!("{word}: {text}")))?;
        }
        Ok(())
    }

    /// Prints cleaned lines of talk, past a line that is held back.
    pub(crate) fn say(&mut self, lines: &str) -> io::Result<()> {
        let lines = format!("{}\n", clean(lines));
        if self.one_stream || self.prompt.is_some() {
            return self.whole(&lines);
        }
        let _ = write(&mut io::stderr().lock(), &lines);
        Ok(())
    }
}

fn write(to: &mut impl io::Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_is_broken_while_a_prompt_is_open() {
        let mut terminal = Terminal::new();
        let above = Above::default();
        terminal.prompt_opened(Some(above.clone()));
        terminal.text("one\ntw").unwrap();
        assert_eq!(above.take(), "one\n");
        terminal.text(&"o".repeat(MAX_REST)).unwrap();
        assert_eq!(above.take().len(), 2 + MAX_REST + 1);
        terminal.text("end").unwrap();
        assert_eq!(above.take(), "");
    }

    #[test]
    fn what_is_said_does_not_land_in_a_line_that_is_not_whole() {
        let mut terminal = Terminal::new();
        let above = Above::default();
        terminal.prompt_opened(Some(above.clone()));
        terminal.text("wo").unwrap();
        terminal.say("mode: ask").unwrap();
        assert_eq!(above.take(), "mode: ask\n");
        assert!(!terminal.prompt_closed().unwrap());
        terminal.prompt_opened(Some(above.clone()));
        terminal.text("rd\n").unwrap();
        assert_eq!(above.take(), "word\n");
    }
}
