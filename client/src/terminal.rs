//! The one place that writes to the terminal, and what keeps other people's bytes from steering it.
//!
//! Data goes to stdout, talk to stderr. While a prompt is open (see [`crate::input`]) both go through the line editor, in
//! whole lines. Whatever a model, tool, file or server named passes [`clean`] or [`clean_line`] before it is shown:
//! what people read also in a pipe, since a pager or `cat` may end it; the answer of `run` and JSON pass a pipe unchanged.
//! The terminal's own settings are changed here too, so that [`restore`] can put them back however the process ends.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::termios::{LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios};

use crate::error::Failure;
use crate::repl::editor::Above;

/// Ctrl-D, as the terminal sends it.
const CTRL_D: u8 = 4;

/// Columns of a terminal that does not say.
const WIDTH: usize = 80;

/// What is printed, and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Data: to stdout.
    Text(String),
    /// Talk about it: to stderr.
    Talk(String),
}

/// What this process knows of its terminal.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    /// Whether stdin is a terminal.
    pub(crate) stdin: bool,
    /// Whether stdout is a terminal.
    pub(crate) stdout: bool,
    /// Whether stderr is a terminal.
    pub(crate) stderr: bool,
    /// Whether talk may be coloured.
    pub(crate) color: bool,
    /// Whether signs beyond ASCII can be shown.
    pub(crate) unicode: bool,
    /// Columns.
    pub(crate) width: usize,
}

impl Look {
    /// Reads the environment once.
    pub(crate) fn of_process() -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let forced = std::env::var_os("CLICOLOR_FORCE").is_some_and(|value| !value.is_empty() && value != "0");
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let stderr = io::stderr().is_terminal();
        let locale =
            ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
        let utf8 = locale.is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        Self {
            stdin: io::stdin().is_terminal(),
            stdout: io::stdout().is_terminal(),
            stderr,
            color: !set("NO_COLOR") && (forced || (stderr && !dumb)),
            unicode: utf8 && !dumb,
            width: rustix::termios::tcgetwinsize(rustix::stdio::stderr())
                .map(|size| usize::from(size.ws_col))
                .ok()
                .filter(|columns| *columns >= 20)
                .unwrap_or(WIDTH),
        }
    }

    /// Whether a question can be asked: keys come in and the question is seen.
    pub(crate) fn can_ask(&self) -> bool {
        self.stdin && self.stderr
    }
}

/// The longest line that is held back until it ends, in bytes; a longer one, many screens long, is broken.
const MAX_REST: usize = 64 << 10;

/// Where whole lines go while a prompt is open; straight through if nothing.
struct Prompt(Option<Above>);

/// Writes to the terminal, or to whatever stdout and stderr are.
pub(crate) struct Terminal {
    /// Talk goes to stdout as well: for a command whose data it is.
    pub(crate) one_stream: bool,
    /// While a prompt is open.
    prompt: Option<Prompt>,
    /// A line that began while a prompt was open and is not whole yet; nobody has seen any of it.
    rest: String,
}

impl Terminal {
    /// Writes straight through.
    pub(crate) fn new() -> Self {
        Self { one_stream: false, prompt: None, rest: String::new() }
    }

    /// From now on a prompt is open: lines go to `above`, which draws the prompt again below them.
    pub(crate) fn prompt_opened(&mut self, above: Option<Above>) {
        self.prompt.get_or_insert(Prompt(above));
    }

    /// The prompt is closed: from now on everything is written straight through. Whether there were whole lines that nobody has
    /// seen before; one that is not whole stays back until it is, another prompt opens, or [`Terminal::print_rest`].
    pub(crate) fn prompt_closed(&mut self) -> io::Result<bool> {
        let Some(Prompt(above)) = self.prompt.take() else { return Ok(false) };
        let unseen = above.map(|above| above.take()).unwrap_or_default();
        write(&mut io::stdout(), &unseen)?;
        Ok(!unseen.is_empty())
    }

    /// Whether a line is held back that is not whole yet.
    pub(crate) fn holds_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Prints what was held back, now that no prompt is open.
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

    /// Prints whole lines, past one that is held back.
    fn whole(&mut self, lines: &str) -> io::Result<()> {
        match &self.prompt {
            Some(Prompt(Some(above))) => above.push(lines),
            _ => write(&mut io::stdout().lock(), lines)?,
        }
        Ok(())
    }

    /// Prints talk; a terminal that has gone is nobody to tell about it.
    pub(crate) fn talk(&mut self, text: &str) -> io::Result<()> {
        if self.one_stream || self.prompt.is_some() {
            return self.text(text);
        }
        self.print_rest()?;
        let _ = write(&mut io::stderr().lock(), text);
        Ok(())
    }

    /// Prints a line for people; names in it are cleaned.
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        self.text(&format!("{}\n", clean_line(line)))
    }

    /// Prints a line for programs: as it is, unless a terminal shows it.
    pub(crate) fn data(&mut self, line: &str) -> io::Result<()> {
        let line = if io::stdout().is_terminal() { clean_line(line) } else { Cow::Borrowed(line) };
        self.text(&format!("{line}\n"))
    }

    /// Says what is wrong, and what to do next.
    pub(crate) fn complain(&mut self, failure: Failure) -> io::Result<()> {
        for (word, text) in [("error", failure.message), ("hint", failure.hint)] {
            text.map_or(Ok(()), |text| self.say(&format!("{word}: {text}")))?;
        }
        Ok(())
    }

    /// Prints lines of talk, past a line that is held back; names in them are cleaned.
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

/// Makes text safe to show: nothing is left but what prints, ends of line and tabs.
///
/// Works character by character, so that it does not matter how a text was cut into pieces. Control characters become
/// visible signs; marks that reorder text become their numbers; invisible tags are left out, and so is CR, which would
/// let a line overwrite itself.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    clean_with(text, false)
}

/// As [`clean`], for what has to stay on one line.
pub(crate) fn clean_line(text: &str) -> Cow<'_, str> {
    clean_with(text, true)
}

/// As [`clean`], for what somebody is asked to allow: nothing is left out, and what has no width is shown by its number.
pub(crate) fn clean_exact(text: &str) -> String {
    let show = |c: char| match c {
        '\r' => "␍".to_owned(),
        c if tag(c) || unseen(c) => format!("<{:04x}>", u32::from(c)),
        c => c.to_string(),
    };
    clean(&text.chars().map(show).collect::<String>()).into_owned()
}

fn clean_with(text: &str, one_line: bool) -> Cow<'_, str> {
    #[cfg(feature = "faults")] // A planted bug, for the test that shows that it is caught.
    if std::env::var("LINGER_BUG").is_ok_and(|bug| bug == "I12") {
        return Cow::Borrowed(text);
    }
    let safe = |c: char| match c {
        '\n' => !one_line,
        '\t' => true,
        ' '..='~' => true,
        c => c >= '\u{a0}' && !reorders(c) && !tag(c),
    };
    if text.chars().all(safe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if safe(c) => out.push(c),
            '\r' => {}
            c if tag(c) => {}
            '\n' => out.push('⏎'),
            '\u{7f}' => out.push('␡'),
            '\0'..='\u{1f}' => out.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}')),
            c => out.push_str(&format!("<{:04x}>", u32::from(c))),
        }
    }
    Cow::Owned(out)
}

/// Whether `c` changes the order in which its neighbours are shown, or hides them.
fn reorders(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fff9}'..='\u{fffb}' | '\u{2028}' | '\u{2029}')
}

/// Whether `c` takes no room, or looks like a space and is none.
fn unseen(c: char) -> bool {
    matches!(c,
        '\u{a0}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{2000}'..='\u{200f}' | '\u{202f}' | '\u{205f}'..='\u{206f}' | '\u{2800}' | '\u{3000}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}')
}

/// Whether `c` is one of the invisible tags.
fn tag(c: char) -> bool {
    matches!(c, '\u{e0000}'..='\u{e0fff}')
}

/// The settings that the terminal had when the process began.
static ORIGINAL: OnceLock<Termios> = OnceLock::new();
/// Whether they were changed since.
static CHANGED: AtomicBool = AtomicBool::new(false);

/// What the keyboard is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keyboard {
    /// As the shell left it; also what the line editor starts from.
    Shell,
    /// A turn streams: what is typed is kept for the next prompt and not shown; Ctrl-D is a signal (`SIGQUIT`).
    Quiet,
    /// A question is open: each key counts at once; what was typed before it was seen is dropped.
    Keys,
}

/// The settings under which the line editor reads a line.
static EDITING: Mutex<Option<Termios>> = Mutex::new(None);

/// Keeps the settings that the line editor has made, for [`keyboard_again`].
pub(crate) fn keep_editing() {
    let now = rustix::termios::tcgetattr(rustix::stdio::stdin()).ok();
    let raw = now.filter(|now| !now.local_modes.contains(LocalModes::ICANON));
    let mut editing = EDITING.lock().unwrap_or_else(PoisonError::into_inner);
    *editing = raw.or_else(|| editing.take());
}

/// Sets the keyboard again for a line that is being edited, after a shell has used the terminal.
pub(crate) fn keyboard_again() {
    let editing = EDITING.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(editing) = editing {
        // Without a terminal there is nothing to set.
        let _ = rustix::termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &editing);
    }
}

/// Drops what was typed and not read yet.
pub(crate) fn forget_typed() {
    // Without a terminal there is nothing to drop.
    let _ = rustix::termios::tcflush(rustix::stdio::stdin(), QueueSelector::IFlush);
}

/// Sets the keyboard; without a terminal it does nothing.
pub(crate) fn keyboard(keyboard: Keyboard) {
    let stdin = rustix::stdio::stdin();
    let Ok(now) = rustix::termios::tcgetattr(stdin) else { return };
    let mut mode = ORIGINAL.get_or_init(|| now).clone();
    match keyboard {
        Keyboard::Shell => {}
        Keyboard::Quiet => mode.local_modes.remove(LocalModes::ECHO),
        Keyboard::Keys => {
            mode.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
            // A key that is dropped between the moment it is noticed and that it is read is not waited for.
            mode.special_codes[SpecialCodeIndex::VMIN] = 0;
            mode.special_codes[SpecialCodeIndex::VTIME] = 0;
            forget_typed();
        }
    }
    if keyboard != Keyboard::Shell {
        mode.special_codes[SpecialCodeIndex::VQUIT] = CTRL_D;
    }
    CHANGED.store(true, Ordering::SeqCst);
    let _ = rustix::termios::tcsetattr(stdin, OptionalActions::Now, &mode);
}

/// Puts the terminal back as it was, also from under an open prompt; safe to call at any time.
pub(crate) fn restore() {
    if !CHANGED.swap(false, Ordering::SeqCst) {
        return;
    }
    if let Some(original) = ORIGINAL.get() {
        let _ = rustix::termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, original);
    }
    if io::stdout().is_terminal() {
        // The line editor asks for bracketed paste; the shell asks again if it wants it.
        let _ = write(&mut io::stdout(), "\x1b[?2004l");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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

    #[test]
    fn nothing_that_steers_a_terminal_is_left() {
        let evil = "a\x1b[2Jb\u{9b}31mc\x07\x7f\r\nd\te\u{202e}f\u{e0041}é漢";
        assert_eq!(clean(evil), "a␛[2Jb<009b>31mc␇␡\nd\te<202e>fé漢");
        assert_eq!(clean_line("rm\n-rf\r"), "rm⏎-rf");
        assert!(matches!(clean("plain\n"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn only_what_prints_is_left(text in any::<String>()) {
            for c in clean(&text).chars() {
                prop_assert!(c == '\n' || c == '\t' || !c.is_control(), "{c:?}");
                prop_assert!(!reorders(c) && !tag(c), "{c:?}");
            }
            prop_assert!(!clean_line(&text).contains('\n'));
        }

        #[test]
        fn it_does_not_matter_how_a_text_is_cut(text in "[\\x00-\\x9f\u{2020}-\u{2070}é\r\n]{0,40}", cut in 0usize..80) {
            let at = (0..=cut.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let (left, right) = text.split_at(at);
            prop_assert_eq!(format!("{}{}", clean(left), clean(right)), clean(&text));
            let once = clean(&text);
            prop_assert_eq!(clean(&once), once.as_ref());
        }
    }
}
