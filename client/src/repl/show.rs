//! Commands that show something: what a subcommand prints, how the session is, what it changed; and the user's own commands.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use linger_protocol::checkpoint::Diff;
use linger_protocol::method::SessionDiff;
use linger_protocol::session::Background;

use super::output::page;
use super::slash::Subcommand;
use super::state::Repl;
use crate::environment::{now, short_path, working_directory};
use crate::error::{Exit, Failure};
use crate::input::Ran;
use crate::render::difference::{Form, differences, turn_named};
use crate::render::markdown::width::cut;
use crate::render::style::Style;
use crate::render::table::{age, columns};
use crate::render::{attached, money};
use crate::terminal::{clean, clean_line, size, terminal_width};

/// The user's commands whose output waits for the next prompt; of more the oldest are left out.
const MAX_RAN: usize = 8;

/// The characters of a background command that are shown.
const MAX_COMMAND: usize = 60;

/// The bytes of a subcommand's output that are shown; the log of a long session has more, and `linger log` all of it.
const MAX_SHOWN: u64 = 16 << 20;

/// The prompt of `/init`.
const INIT: &str = "\
Write AGENTS.md at the root of this project: the instructions that a coding agent needs to work here. Look first: at the README, \
the build files, the layout, the tests, the continuous integration. Then write at most 60 lines of Markdown: what the project is in \
a sentence; the exact commands that build it, run one test, run all tests, format and lint; where what is; conventions that the code \
shows and a newcomer would miss; what must not be touched. Only what you have seen to be so, nothing that holds for every project. If \
there is an AGENTS.md, improve it and keep what its authors decided.";

/// A command that runs in the background, in one line.
pub(super) fn running(background: &Background) -> String {
    let command: String = clean_line(&background.command).chars().take(MAX_COMMAND).collect();
    let since = age(background.started_at, now());
    format!("{} {command}, for {since}", clean_line(background.background.as_str()))
}

impl Repl {
    /// Shows what a subcommand of this program prints.
    pub(super) fn subcommand(&mut self, which: Subcommand, words: Vec<String>) -> Result<(), Failure> {
        let session = self.attachment.session.to_string();
        let (name, of_session, paged) = match which {
            Subcommand::Usage => ("usage", false, false),
            Subcommand::Answer => ("answer", false, false),
            Subcommand::Inbox => ("inbox", false, false),
            Subcommand::Tools => ("tools", true, false),
            Subcommand::Log => ("log", true, true),
        };
        let arguments: Vec<String> =
            std::iter::once(name.to_owned()).chain(of_session.then_some(session)).chain(words).collect();
        let text = match subcommand(&arguments) {
            Ok((text, false)) => text,
            Ok((text, true)) => format!("{text}[cut here; `linger {}` shows the rest]\n", arguments.join(" ")),
            Err(failure) => return self.complain(failure),
        };
        if paged {
            return self.paged(&text);
        }
        let width = terminal_width();
        let cut_line =
            |line: &str| if name == "tools" { cut(line, width.saturating_sub(1)).to_owned() } else { line.to_owned() };
        text.lines().map(cut_line).collect::<Vec<_>>().iter().try_for_each(|line| self.say(line))
    }

    fn paged(&mut self, text: &str) -> Result<(), Failure> {
        match page(&clean(text)) {
            Ok(()) => Ok(()),
            Err(failure) => self.complain(failure),
        }
    }

    /// Says how the session is.
    pub(super) fn status(&mut self) -> Result<(), Failure> {
        let info = self.attachment.client.session_info(&self.attachment.session)?;
        let rows = [
            ("session", info.session.to_string()),
            ("name", info.name.clone().unwrap_or_default()),
            ("title", info.title.clone().unwrap_or_default()),
            ("directory", short_path(&info.cwd)),
            ("agent", info.agent.clone().unwrap_or_default()),
            ("model", info.model.clone()),
            ("effort", info.effort.name().to_owned()),
            ("mode", info.mode.to_string()),
            ("context", money::fill(info.context_tokens, info.context_window).unwrap_or_default()),
            (
                "tokens",
                format!(
                    "{} in, {} out",
                    money::tokens(info.usage.input_tokens),
                    money::tokens(info.usage.output_tokens)
                ),
            ),
            ("cost", money::cost(&info.usage).trim_start_matches("cost ").to_owned()),
            ("queued", if info.queued == 0 { String::new() } else { info.queued.to_string() }),
            ("drafts", if info.drafts == 0 { String::new() } else { info.drafts.to_string() }),
            ("questions", if info.questions.is_empty() { String::new() } else { info.questions.len().to_string() }),
            ("background", info.background.iter().map(running).collect::<Vec<_>>().join("; ")),
            ("created", format!("{} ago", age(info.created_at, now()))),
        ];
        let rows = rows.into_iter().filter(|(_, value)| !value.is_empty());
        let cells: Vec<_> = rows.map(|(name, value)| vec![name.to_owned(), clean_line(&value).into_owned()]).collect();
        columns(&cells).iter().try_for_each(|line| self.say(line))
    }

    /// Writes the session as Markdown to a new file.
    pub(super) fn export(&mut self, file: Option<String>) -> Result<(), Failure> {
        let name = file.unwrap_or_else(|| format!("{}.md", self.about.label.replace('/', "-")));
        let path = working_directory().unwrap_or_else(|_| self.about.cwd.clone()).join(name);
        let session = self.attachment.session.to_string();
        let written = subcommand(&["export".to_owned(), session.clone()]).and_then(|(text, is_cut)| {
            if is_cut {
                let hint = format!("`linger export {session} > FILE` writes all of it");
                return Err(Failure::usage("the session is too long to export from here").hint(hint));
            }
            // An existing file may be valuable.
            let file = OpenOptions::new().write(true).create_new(true).open(&path);
            file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
                Failure::usage(format!("{}: {error}", short_path(&path))).hint("name another file: /export FILE")
            })
        });
        match written {
            Ok(()) => self.say(&format!("written to {}", short_path(&path))),
            Err(failure) => self.complain(failure),
        }
    }

    /// The prompt that has the model write AGENTS.md.
    pub(super) fn init(words: Option<String>) -> String {
        words.map_or_else(|| INIT.to_owned(), |words| format!("{INIT}\n\n{words}"))
    }

    /// Keeps what a command of the user's own wrote for the next prompt, and says so.
    pub(super) fn keep_output(&mut self, Ran { command, output, code }: Ran) -> Result<(), Failure> {
        let output = match output {
            Ok(output) => output,
            Err(error) => {
                return self.complain(Failure::new(Exit::FAILED, format!("the command cannot be run: {error}")));
            }
        };
        let how = match code {
            Some(0) => String::new(),
            Some(code) => format!("exit code {code}; "),
            None => "killed; ".to_owned(),
        };
        let said = clean_line(&command).into_owned();
        let heading = format!("output of `{said}`, which the user ran, exit code {}", code.unwrap_or(-1));
        self.ran.push(attached::block(&heading, &output));
        let over = self.ran.len().saturating_sub(MAX_RAN);
        self.ran.drain(..over);
        let dim = self.renderer.style().dim(&format!("{how}its output will be sent with your next prompt"));
        self.say_styled(&dim)
    }

    /// Shows what the session's turns, or one of them, changed in files.
    pub(super) fn diff(&mut self, turn: Option<&str>) -> Result<(), Failure> {
        let session = self.attachment.session.clone();
        let asked = Diff { session, turn: turn.map(turn_named), stat: false };
        let found = match self.attachment.client.call(&SessionDiff(asked)) {
            Ok(found) => found,
            Err(failure) => return self.complain(failure),
        };
        let base = working_directory()?;
        let text =
            |style: Style| differences(&found, Form { style, stat: false, gutter: "  ", base: &base }).join("\n");
        let styled = text(self.renderer.style());
        if found.files.is_empty() {
            self.say("this session has changed no files")?;
        } else if styled.lines().count() + 4 < size().rows {
            self.say_styled(&styled)?;
        } else {
            // A pager shows no colours unless it is told to.
            self.paged(&text(Style { color: false, unicode: true }))?;
        }
        found.missing.iter().try_for_each(|missing| self.say(&format!("not included: {missing}")))
    }
}

/// The output of a subcommand of this program, and whether it is cut after [`MAX_SHOWN`] bytes. Fails with what it says.
fn subcommand(arguments: &[String]) -> Result<(String, bool), Failure> {
    let failed = |error: std::io::Error| Failure::new(Exit::FAILED, format!("linger cannot be run: {error}"));
    // Not by its path, which may be another program by now.
    let own = Path::new("/proc/self/exe");
    let own = if own.exists() { own.to_path_buf() } else { std::env::current_exe().map_err(failed)? };
    #[allow(clippy::disallowed_methods, reason = "this program")]
    let mut child = Command::new(own)
        // What it says of its use names it.
        .arg0("linger")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let stderr = child.stderr.take();
    // Read at once with the output, which it may wait for.
    let says = std::thread::spawn(move || {
        let mut text = Vec::new();
        stderr.map(|stderr| stderr.take(MAX_SHOWN).read_to_end(&mut text));
        text
    });
    let mut text = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        // It is closed then, and the subcommand ends as its output is not read any further.
        stdout.take(MAX_SHOWN + 1).read_to_end(&mut text).map_err(failed)?;
    }
    let is_cut = text.len() as u64 > MAX_SHOWN;
    if is_cut {
        let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        text.truncate(end);
    }
    let status = child.wait().map_err(failed)?;
    let says = String::from_utf8_lossy(&says.join().unwrap_or_default()).into_owned();
    if is_cut {
        return Ok((String::from_utf8_lossy(&text).into_owned(), true));
    }
    if !status.success() {
        let message = says.trim().strip_prefix("error: ").unwrap_or(says.trim()).to_owned();
        let (message, hint) = message.split_once("\nhint: ").unwrap_or((&message, ""));
        let failure = Failure::usage(message);
        return Err(if hint.is_empty() { failure } else { failure.hint(hint) });
    }
    Ok((says + &String::from_utf8_lossy(&text), false))
}
