//! `linger files`, and the older `linger skills`, `commands`, `agents`: lists, prints and checks the Markdown files linger reads.

use std::path::{Path, PathBuf, absolute};

use linger_protocol::agent::{Item, List, Scope, Status};
use linger_protocol::event::Level;
use linger_protocol::method::{AgentList, CommandList, ServerFiles, SkillList, ToolFiles};
use serde_json::{Value, json};

use super::output::print_value;
use super::tools;
use crate::arguments::{AllFiles, FileKind, Files, FilesCommand, Json};
use crate::connect::Client;
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::render::table::columns;
use crate::terminal::{Terminal, clean_line};

/// One kind of Markdown file: its words, and the method that lists it.
pub(super) struct MarkdownKind {
    noun: &'static str,
    plural: &'static str,
    call: fn(&mut Client, List) -> Result<Vec<Item>, Failure>,
}

pub(super) const SKILLS: MarkdownKind =
    MarkdownKind { noun: "skill", plural: "skills", call: |client, list| client.call(&SkillList(list)) };

pub(super) const COMMANDS: MarkdownKind =
    MarkdownKind { noun: "command", plural: "commands", call: |client, list| client.call(&CommandList(list)) };

pub(super) const TOOLS: MarkdownKind =
    MarkdownKind { noun: "tool", plural: "tools", call: |client, list| client.call(&ToolFiles(list)) };

pub(super) const SERVERS: MarkdownKind =
    MarkdownKind { noun: "server", plural: "servers", call: |client, list| client.call(&ServerFiles(list)) };

pub(super) const AGENTS: MarkdownKind =
    MarkdownKind { noun: "agent", plural: "agents", call: |client, list| client.call(&AgentList(list)) };

/// Every kind, in the order of `linger files`.
const ALL: [&MarkdownKind; 5] = [&AGENTS, &SKILLS, &COMMANDS, &TOOLS, &SERVERS];

/// The directory of files that define MCP servers; those of other kinds are called like the kind.
const SERVERS_DIRECTORY: &str = "mcp";

/// The file that makes a directory a skill.
const SKILL: &str = "SKILL.md";

/// `linger files`: all kinds, or one of them.
pub(super) fn all(args: AllFiles) -> Result<Exit, Failure> {
    let command = args.command.unwrap_or(FilesCommand::List { kind: None, json: args.json.json });
    match command {
        FilesCommand::List { kind: Some(kind), json } => run(of(kind), Files::List(Json { json })),
        FilesCommand::List { kind: None, json } => list_all(json),
        FilesCommand::Show { name, kind: Some(kind), json } => run(of(kind), Files::Show { name, json }),
        FilesCommand::Show { name, kind: None, json } => show_any(name, json),
        FilesCommand::Validate { paths, kind: Some(kind), json } => run(of(kind), Files::Validate { paths, json }),
        FilesCommand::Validate { paths, kind: None, json } => validate_any(paths, json),
    }
}

/// The subcommands on one kind of file.
pub(super) fn run(kind: &MarkdownKind, files: Files) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let here = here()?;
    match files {
        Files::List(args) => {
            let rows = (kind.call)(&mut client, here)?;
            if args.json {
                rows.iter().try_for_each(print_value)?;
            } else {
                list(kind, &rows)?;
            }
            Ok(Exit::GOOD)
        }
        Files::Show { name, json } => {
            let rows = (kind.call)(&mut client, List { text: true, ..here.clone() })?;
            // A model calls it by its whole name.
            let is_file = |name: &str| rows.iter().any(|row| row.name == name);
            let bare = name.strip_prefix("tool__").filter(|bare| kind.noun == TOOLS.noun && is_file(bare));
            let name = bare.map_or(name.clone(), str::to_owned);
            let has_file = is_file(&name);
            // Most tools have no file.
            if kind.noun == TOOLS.noun && !has_file && tools::show(&mut client, here.cwd, &name, json)? {
                return Ok(Exit::GOOD);
            }
            show(kind, &rows, &name, json)
        }
        Files::Validate { paths, json } => {
            let mut rows = Vec::new();
            if paths.is_empty() {
                rows = (kind.call)(&mut client, here)?;
            } else {
                for path in paths {
                    rows.extend((kind.call)(&mut client, List { path: Some(absolute(path)?), ..here.clone() })?);
                }
            }
            let counted = if rows.len() == 1 { kind.noun } else { kind.plural };
            validate(&rows, counted, json)
        }
    }
}

/// The files of the working directory.
fn here() -> Result<List, Failure> {
    Ok(List { cwd: working_directory()?, ..List::default() })
}

/// The kind with this name on the command line.
fn of(kind: FileKind) -> &'static MarkdownKind {
    match kind {
        FileKind::Agent => &AGENTS,
        FileKind::Skill => &SKILLS,
        FileKind::Command => &COMMANDS,
        FileKind::Tool => &TOOLS,
        FileKind::Server => &SERVERS,
    }
}

/// Lists every kind, the kind first in each row.
fn list_all(json: bool) -> Result<Exit, Failure> {
    let (mut client, here, mut terminal) = (Client::open()?, here()?, Terminal::new());
    let mut rows = Vec::new();
    for kind in ALL {
        for item in (kind.call)(&mut client, here.clone())? {
            if json {
                print_value(&with_kind(kind, &item))?;
            } else {
                rows.push([vec![kind.noun.to_owned()], cells(&item)].concat());
            }
        }
    }
    for line in columns(&rows) {
        terminal.line(&line)?;
    }
    if rows.is_empty() && !json {
        terminal
            .say("no files here; `linger help extending` explains them, `linger init agent NAME` writes a first one")?;
    }
    Ok(Exit::GOOD)
}

/// A row as JSON, with the kind of the file.
fn with_kind(kind: &MarkdownKind, item: &Item) -> Value {
    let mut value = json!(item);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("kind".to_owned(), kind.noun.into());
    }
    value
}

/// Prints the file with this name, whatever its kind. Fails if several kinds have one.
fn show_any(name: String, json: bool) -> Result<Exit, Failure> {
    let (mut client, here) = (Client::open()?, here()?);
    let mut found = Vec::new();
    for kind in ALL {
        let rows = (kind.call)(&mut client, List { text: true, ..here.clone() })?;
        if rows.iter().any(|row| row.name == name) {
            found.push((kind, rows));
        }
    }
    match found.as_slice() {
        [(kind, rows)] => show(kind, rows, &name, json),
        [] => Err(Failure::usage(format!("no file is called '{name}'")).hint("`linger files` lists them")),
        several => {
            let kinds: Vec<&str> = several.iter().map(|(kind, _)| kind.noun).collect();
            Err(Failure::usage(format!("'{name}' is the name of more than one file: {}", kinds.join(", ")))
                .hint(format!("add `--kind {}`", kinds.join("|"))))
        }
    }
}

/// Checks the files of every kind, or the given ones, whose paths tell their kind.
fn validate_any(paths: Vec<PathBuf>, json: bool) -> Result<Exit, Failure> {
    let (mut client, here) = (Client::open()?, here()?);
    let mut rows = Vec::new();
    if paths.is_empty() {
        for kind in ALL {
            rows.extend((kind.call)(&mut client, here.clone())?);
        }
    }
    for path in paths {
        let path = absolute(path)?;
        let Some(kind) = kind_of(&path) else {
            let shown = clean_line(&path.to_string_lossy()).into_owned();
            return Err(Failure::usage(format!("{shown}: its path does not tell what kind of file it is"))
                .hint("add `--kind agent|skill|command|tool|server`"));
        };
        rows.extend((kind.call)(&mut client, List { path: Some(path), ..here.clone() })?);
    }
    let counted = if rows.len() == 1 { "file" } else { "files" };
    validate(&rows, counted, json)
}

/// The kind of a file, from the nearest directory named after one.
fn kind_of(path: &Path) -> Option<&'static MarkdownKind> {
    if path.ends_with(SKILL) || path.join(SKILL).is_file() {
        return Some(&SKILLS);
    }
    path.ancestors().skip(1).find_map(|dir| {
        let name = dir.file_name()?.to_str()?;
        if name == SERVERS_DIRECTORY { Some(&SERVERS) } else { ALL.into_iter().find(|kind| kind.plural == name) }
    })
}

fn list(kind: &MarkdownKind, rows: &[Item]) -> Result<(), Failure> {
    let mut terminal = Terminal::new();
    if rows.is_empty() {
        let plural = kind.plural;
        terminal.say(&format!("no {plural} here; `linger help extending` explains where to put them"))?;
    }
    for line in columns(&rows.iter().map(cells).collect::<Vec<_>>()) {
        terminal.line(&line)?;
    }
    Ok(())
}

/// Name, scope, state and the beginning of the description.
fn cells(item: &Item) -> Vec<String> {
    let scope = match item.scope {
        Scope::User => "user",
        Scope::Workspace => "workspace",
        Scope::Named | Scope::Unknown => "",
    };
    let about = item.description.as_deref().unwrap_or_default();
    let about: String = about.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(ABOUT).collect();
    [item.name.as_str(), scope, &status(item), &about].iter().map(|cell| clean_line(cell).into_owned()).collect()
}

/// The most of a description in a list, in characters.
const ABOUT: usize = 80;

/// Whether sessions can use the file, in a few words.
fn status(item: &Item) -> String {
    match item.status {
        Status::Active if item.problems.iter().any(|it| it.level == Level::Error) => "active, see validate".to_owned(),
        Status::Active => "active".to_owned(),
        Status::Waits if item.scope == Scope::User => "not confirmed".to_owned(),
        Status::Waits => "not trusted".to_owned(),
        Status::Hidden => "hidden by another".to_owned(),
        Status::Broken => "broken, see validate".to_owned(),
        Status::Unknown => String::new(),
    }
}

fn show(kind: &MarkdownKind, rows: &[Item], name: &str, json: bool) -> Result<Exit, Failure> {
    let named = || rows.iter().filter(|row| row.name == name);
    let found = named().find(|row| row.status == Status::Active).or_else(|| named().next());
    let Some(item) = found else {
        return Err(Failure::usage(format!("no {} is called '{name}'", kind.noun))
            .hint(format!("`linger files list {}` lists them", kind.plural)));
    };
    if json {
        print_value(item)?;
        return Ok(Exit::GOOD);
    }
    let mut terminal = Terminal::new();
    terminal.say(&format!("{}, {}", clean_line(&item.path.to_string_lossy()), status(item)))?;
    terminal.text(&(item.text.clone().unwrap_or_default() + "\n"))?;
    Ok(Exit::GOOD)
}

fn validate(rows: &[Item], counted: &str, json: bool) -> Result<Exit, Failure> {
    let mut terminal = Terminal::new();
    let mut errors = 0;
    for row in rows {
        errors += row.problems.iter().filter(|problem| problem.level == Level::Error).count();
        if json {
            print_value(row)?;
            continue;
        }
        let path = clean_line(&row.path.to_string_lossy()).into_owned();
        for problem in &row.problems {
            let level = if problem.level == Level::Error { "error" } else { "warning" };
            terminal.line(&format!("{path}:{}: {level}: {}", problem.line, clean_line(&problem.text)))?;
        }
        if let Some(other) = &row.hidden_by {
            terminal.line(&format!("{path}:1: warning: hidden by {}", clean_line(&other.to_string_lossy())))?;
        }
    }
    if !json {
        let noun = if errors == 1 { "error" } else { "errors" };
        terminal.say(&format!("{} {counted}, {errors} {noun}", rows.len()))?;
    }
    Ok(if errors == 0 { Exit::GOOD } else { Exit::FAILED })
}

#[cfg(test)]
mod tests {
    use linger_protocol::agent::Problem;

    use super::*;

    #[test]
    fn a_status_with_errors_points_at_validate() {
        let item = |status, problems| Item {
            name: "a".to_owned(),
            description: None,
            path: PathBuf::from("/a"),
            scope: Scope::User,
            status,
            hidden_by: None,
            problems,
            text: None,
        };
        assert_eq!(status(&item(Status::Active, Vec::new())), "active");
        assert_eq!(status(&item(Status::Active, vec![Problem::warning(1, "x")])), "active");
        assert_eq!(status(&item(Status::Active, vec![Problem::error(1, "x")])), "active, see validate");
    }

    #[test]
    fn a_path_tells_the_kind_of_a_file() {
        let kind = |path: &str| kind_of(Path::new(path)).map(|kind| kind.noun);
        assert_eq!(kind("/w/.linger/agents/reviewer.md"), Some("agent"));
        assert_eq!(kind("/w/.claude/skills/tidy/SKILL.md"), Some("skill"));
        assert_eq!(kind("/w/.linger/commands/git/push.md"), Some("command"));
        assert_eq!(kind("/w/notes/x.md"), None);
    }
}
