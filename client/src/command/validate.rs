//! `linger doctor --files`: errors and warnings in the files that linger reads, with file and line.
//!
//! The daemon reads and checks them; this asks it about each kind. The exit code is 1 if there are errors.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use linger_protocol::agent::{Item, List};
use linger_protocol::config::Get;
use linger_protocol::event::Level;
use linger_protocol::mcp::List as Servers;
use linger_protocol::method::{
    AgentList, CommandList, ConfigGet, McpList, ServerFiles, SkillList, ToolFiles, TrustGet,
};
use linger_protocol::trust;
use serde_json::json;

use super::attention::programs;
use super::find::directory;
use crate::arguments::Validate;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::terminal::{Terminal, clean_line};

/// The file of a workspace's MCP servers; other programs read it too.
const SERVERS_FILE: &str = ".mcp.json";

/// Settings that other agents keep in a repository, and that linger does not read.
const SETTINGS: [&str; 7] = [
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".codex/config.toml",
    ".cursor/cli.json",
    ".gemini/settings.json",
    "opencode.json",
    "opencode.jsonc",
];

/// The parts of such a file that do nothing here.
pub(super) const UNREAD: &str = "rules, hooks and modes of another agent have no effect in linger";

/// Where they belong.
pub(super) const UNREAD_HINT: &str =
    "write rules to .linger/config.toml (`linger help workspaces`), hooks as in `linger help hooks`";

/// The output and counts so far.
struct Validation {
    terminal: Terminal,
    json: bool,
    errors: usize,
    warnings: usize,
}

/// The file and line of a problem.
#[derive(Clone, Copy)]
struct FilePlace<'a> {
    file: Option<&'a Path>,
    line: Option<usize>,
}

impl<'a> FilePlace<'a> {
    fn of(file: &'a Path) -> Self {
        Self { file: Some(file), line: None }
    }
}

pub(super) fn run(args: &Validate) -> Result<Exit, Failure> {
    let cwd = directory(args.directory.as_deref())?;
    // Configuration errors are reported below.
    let mut client = Client::open_silent(None)?;
    let mut report = Validation { terminal: Terminal::new(), json: args.json, errors: 0, warnings: 0 };
    configuration(&mut client, &mut report)?;
    workspace(&mut client, &cwd, &mut report)?;
    let list = List { cwd: cwd.clone(), ..List::default() };
    for (noun, rows) in [
        ("skill", client.call(&SkillList(list.clone()))?),
        ("command", client.call(&CommandList(list.clone()))?),
        ("agent", client.call(&AgentList(list.clone()))?),
        ("tool", client.call(&ToolFiles(list.clone()))?),
        ("server", client.call(&ServerFiles(list))?),
    ] {
        rows.iter().try_for_each(|row| files(noun, row, &mut report))?;
    }
    servers(&mut client, cwd, &mut report)?;
    report.end()
}

/// Reports problems of `config.toml`.
fn configuration(client: &mut Client, report: &mut Validation) -> Result<(), Failure> {
    let config = client.call(&ConfigGet(Get::default()))?;
    let place = FilePlace::of(&config.file);
    if let Some(error) = &config.error {
        report.error(place, error, Some("correct the file, or use `linger config edit`"))?;
    }
    for warning in &config.warnings {
        report.warning(place, warning, None)?;
    }
    if config.waiting.is_some() {
        let text = "it has changes that wait for confirmation";
        report.warning(place, text, Some("run `linger config confirm`"))?;
    }
    let problems = config.settings.iter().flat_map(programs).filter_map(|program| program.problem);
    for (text, hint) in problems {
        report.warning(place, &text, Some(&hint))?;
    }
    Ok(())
}

/// Reports problems of the workspace's `.linger/config.toml` and `.mcp.json`.
fn workspace(client: &mut Client, cwd: &Path, report: &mut Validation) -> Result<(), Failure> {
    let workspace = client.call(&TrustGet(trust::Get { cwd: cwd.to_path_buf() }))?;
    let place = FilePlace::of(&workspace.file);
    if let Some(error) = &workspace.error {
        report.error(place, error, Some("correct the file; until then everything in this workspace asks"))?;
    }
    let servers = workspace.workspace.join(SERVERS_FILE);
    for problem in &workspace.problems {
        report.error(FilePlace::of(&servers), problem, None)?;
    }
    if workspace.waiting.is_some() {
        let text = "files of this workspace are not trusted yet";
        report.warning(FilePlace::of(&workspace.workspace), text, Some("run `linger trust` to review them"))?;
    }
    for file in unread_settings(&workspace.workspace) {
        report.warning(FilePlace::of(&file), &format!("not read: {UNREAD}"), Some(UNREAD_HINT))?;
    }
    Ok(())
}

/// The files of other agents in a workspace whose settings are not read.
pub(super) fn unread_settings(root: &Path) -> Vec<PathBuf> {
    SETTINGS.iter().map(|file| root.join(file)).filter(|file| file.is_file()).collect()
}

/// Reports problems of one Markdown file.
fn files(noun: &str, row: &Item, report: &mut Validation) -> Result<(), Failure> {
    for problem in &row.problems {
        let place = FilePlace { file: Some(&row.path), line: Some(problem.line) };
        match problem.level {
            Level::Error => report.error(place, &problem.text, None)?,
            _ => report.warning(place, &problem.text, None)?,
        }
    }
    if let Some(other) = &row.hidden_by {
        let text = format!("the {noun} `{}` is hidden by {}", row.name, other.display());
        report.warning(FilePlace { file: Some(&row.path), line: Some(1) }, &text, None)?;
    }
    Ok(())
}

/// Reports problems of MCP servers, without starting one.
fn servers(client: &mut Client, cwd: PathBuf, report: &mut Validation) -> Result<(), Failure> {
    for row in client.call(&McpList(Servers { cwd: Some(cwd), ..Servers::default() }))? {
        let place = FilePlace { file: row.from.as_deref(), line: None };
        let name = &row.server;
        for problem in &row.problems {
            report.warning(place, &format!("MCP server {name}: {problem}"), None)?;
        }
        if let Some(error) = &row.error {
            let hint = format!("`linger mcp logs {name}` may say more");
            report.error(place, &format!("MCP server {name}: {error}"), Some(&hint))?;
        }
    }
    Ok(())
}

impl Validation {
    fn error(&mut self, place: FilePlace<'_>, text: &str, hint: Option<&str>) -> Result<(), Failure> {
        self.errors += 1;
        self.row("error", place, text, hint)
    }

    fn warning(&mut self, place: FilePlace<'_>, text: &str, hint: Option<&str>) -> Result<(), Failure> {
        self.warnings += 1;
        self.row("warning", place, text, hint)
    }

    fn row(&mut self, level: &str, place: FilePlace<'_>, text: &str, hint: Option<&str>) -> Result<(), Failure> {
        if self.json {
            let (line, column, text) = located(place, text);
            let ok = level != "error";
            let row = json!({
                "ok": ok, "file": place.file.map(linger_protocol::path::text), "line": line, "column": column, "text": text, "hint": hint,
            });
            return Ok(self.terminal.data(&row.to_string())?);
        }
        self.terminal.line(&shown(level, place, text))?;
        hint.map_or(Ok(()), |hint| Ok(self.terminal.line(&format!("  hint: {hint}"))?))
    }

    fn end(mut self) -> Result<Exit, Failure> {
        let count =
            |count: usize, noun: &str| if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") };
        if !self.json {
            self.terminal.say(&format!("{}, {}", count(self.errors, "error"), count(self.warnings, "warning")))?;
        }
        Ok(if self.errors == 0 { Exit::GOOD } else { Exit::FAILED })
    }
}

/// Formats a problem like a compiler message.
fn shown(level: &str, place: FilePlace<'_>, text: &str) -> String {
    let (line, column, text) = located(place, text);
    let file = place.file.map(|file| clean_line(&file.to_string_lossy()).into_owned());
    let place = [file, line.map(|at| at.to_string()), column.map(|at| at.to_string())].into_iter().flatten();
    let place = place.collect::<Vec<_>>().join(":");
    let text = clean_line(text);
    if place.is_empty() { format!("{level}: {text}") } else { format!("{place}: {level}: {text}") }
}

/// Splits line and column off a text that may begin with `FILE:3:1: ` or the file's name.
fn located<'a>(FilePlace { file, line }: FilePlace<'_>, text: &'a str) -> (Option<usize>, Option<usize>, &'a str) {
    let path = file.map(Path::to_string_lossy);
    let name = file.and_then(Path::file_name).map(OsStr::to_string_lossy);
    let Some(rest) = path.iter().chain(&name).find_map(|file| text.strip_prefix(&**file)?.strip_prefix(':')) else {
        return (line, None, text);
    };
    let number = |text: &'a str| {
        let (number, rest) = text.split_once(':')?;
        Some((number.parse::<usize>().ok()?, rest))
    };
    let (line, rest) = number(rest).map_or((line, rest), |(line, rest)| (Some(line), rest));
    let (column, rest) = number(rest).map_or((None, rest), |(column, rest)| (Some(column), rest));
    (line, column, rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_its_file_once() {
        let file = Path::new("/c/config.toml");
        let place = |line| FilePlace { file: Some(file), line };
        assert_eq!(shown("error", place(Some(3)), "bad"), "/c/config.toml:3: error: bad");
        assert_eq!(shown("warning", place(None), "bad"), "/c/config.toml: warning: bad");
        assert_eq!(shown("error", place(None), "/c/config.toml:3:1: bad: 7"), "/c/config.toml:3:1: error: bad: 7");
        assert_eq!(shown("error", place(None), "/c/config.toml: 3: bad"), "/c/config.toml: error: 3: bad");
        assert_eq!(shown("warning", place(None), "config.toml:3: bad"), "/c/config.toml:3: warning: bad");
        assert_eq!(shown("error", FilePlace { file: None, line: None }, "bad\nworse"), "error: bad⏎worse");
    }
}
