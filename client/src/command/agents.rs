//! `linger skills`, `linger commands`, `linger agents`, the files of `linger tools`: which there are, what one says, and whether they are right.

use std::path::absolute;

use linger_protocol::agent::{Item, List, Scope, Status};
use linger_protocol::event::Level;
use linger_protocol::method::{AgentList, CommandList, ServerFiles, SkillList, ToolFiles};

use super::{print_value, tools};
use crate::arguments::Files;
use crate::connect::Client;
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::render::table::columns;
use crate::terminal::{Terminal, clean_line};

/// One kind of file.
pub(super) struct Kind {
    noun: &'static str,
    plural: &'static str,
    call: fn(&mut Client, List) -> Result<Vec<Item>, Failure>,
}

pub(super) const SKILLS: Kind =
    Kind { noun: "skill", plural: "skills", call: |client, list| client.call(&SkillList(list)) };

pub(super) const COMMANDS: Kind =
    Kind { noun: "command", plural: "commands", call: |client, list| client.call(&CommandList(list)) };

pub(super) const TOOLS: Kind =
    Kind { noun: "tool", plural: "tools", call: |client, list| client.call(&ToolFiles(list)) };

pub(super) const SERVERS: Kind =
    Kind { noun: "server", plural: "servers", call: |client, list| client.call(&ServerFiles(list)) };

pub(super) const AGENTS: Kind =
    Kind { noun: "agent", plural: "agents", call: |client, list| client.call(&AgentList(list)) };

pub(super) fn run(kind: &Kind, files: Files) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let here = List { cwd: working_directory()?, ..List::default() };
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
            let has_file = rows.iter().any(|row| row.name == name);
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
            validate(kind, &rows, json)
        }
    }
}

fn list(kind: &Kind, rows: &[Item]) -> Result<(), Failure> {
    let mut terminal = Terminal::new();
    if rows.is_empty() {
        let plural = kind.plural;
        terminal.say(&format!("no {plural} here; `linger help extending` says where they lie"))?;
    }
    let row = |item: &Item| {
        let scope = match item.scope {
            Scope::User => "user",
            Scope::Workspace => "workspace",
            Scope::Named | Scope::Unknown => "",
        };
        let about = item.description.as_deref().unwrap_or_default();
        let about: String = about.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(ABOUT).collect();
        [item.name.as_str(), scope, &status(item), &about].iter().map(|cell| clean_line(cell).into_owned()).collect()
    };
    for line in columns(&rows.iter().map(row).collect::<Vec<_>>()) {
        terminal.line(&line)?;
    }
    Ok(())
}

/// The most of a description in a list, in characters.
const ABOUT: usize = 80;

/// Whether sessions have it, in a few words.
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

fn show(kind: &Kind, rows: &[Item], name: &str, json: bool) -> Result<Exit, Failure> {
    let named = || rows.iter().filter(|row| row.name == name);
    let found = named().find(|row| row.status == Status::Active).or_else(|| named().next());
    let Some(item) = found else {
        return Err(Failure::usage(format!("no {} is called '{name}'", kind.noun))
            .hint(format!("`linger {} list` lists them", kind.plural)));
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

fn validate(kind: &Kind, rows: &[Item], json: bool) -> Result<Exit, Failure> {
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
        let (noun, plural) = (kind.noun, kind.plural);
        let count = if rows.len() == 1 { format!("1 {noun}") } else { format!("{} {plural}", rows.len()) };
        let said = if errors == 1 { "1 error".to_owned() } else { format!("{errors} errors") };
        terminal.say(&format!("{count}, {said}"))?;
    }
    Ok(if errors == 0 { Exit::GOOD } else { Exit::FAILED })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use linger_protocol::agent::Problem;

    use super::*;

    #[test]
    fn a_status_says_what_to_look_at() {
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
}
