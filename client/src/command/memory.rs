//! `linger memory`: notes that outlive sessions. They are files, so an editor edits them.

use std::process::Command;

use linger_protocol::memory::{Add, List, Note, Remove, Scope};
use linger_protocol::method::{MemoryAdd, MemoryList, MemoryRemove};

use super::output::print_value;
use crate::arguments::{Memory, MemoryNamed};
use crate::connect::Client;
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::render::table::columns;
use crate::terminal::{Terminal, clean_line};

pub(super) fn run(command: Memory) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let mut terminal = Terminal::new();
    match command {
        Memory::List(args) => {
            let rows = list(&mut client)?;
            if args.json {
                rows.iter().try_for_each(print_value)?;
            } else if rows.is_empty() {
                terminal.say("no notes here; `linger memory add TEXT` adds one")?;
            } else {
                let row = |note: &Note| -> Vec<String> {
                    [noun(note.scope), &note.name, &note.about].map(|cell| clean_line(cell).into_owned()).into()
                };
                for line in columns(&rows.iter().map(row).collect::<Vec<_>>()) {
                    terminal.line(&line)?;
                }
            }
        }
        Memory::Show(MemoryNamed { name, user, json }) => {
            let all = client.call(&MemoryList(List { cwd: working_directory()?, text: true }))?;
            let note = find(&all, &name, user)?;
            if json {
                print_value(note)?;
            } else {
                terminal.say(&clean_line(&note.path.to_string_lossy()))?;
                terminal.text(note.text.as_deref().unwrap_or_default())?;
            }
        }
        Memory::Add { text, user, json } => {
            let text = text.join(" ");
            let add = Add { cwd: working_directory()?, scope: scope(user), text, name: None };
            let note = client.call(&MemoryAdd(add))?;
            done(&mut terminal, "noted as", &note, json)?;
        }
        Memory::Edit(MemoryNamed { name, user, json }) => {
            let rows = list(&mut client)?;
            let note = find(&rows, &name, user)?;
            let exit = edit(note)?;
            if json && exit == Exit::GOOD {
                let all = client.call(&MemoryList(List { cwd: working_directory()?, text: true }))?;
                all.iter().find(|it| it.path == note.path).map_or(Ok(()), print_value)?;
            }
            return Ok(exit);
        }
        Memory::Rm(MemoryNamed { name, user, json }) => {
            let rows = list(&mut client)?;
            let note = find(&rows, &name, user)?;
            client.call(&MemoryRemove(Remove {
                cwd: working_directory()?,
                scope: note.scope,
                name: note.name.clone(),
            }))?;
            done(&mut terminal, "removed", note, json)?;
        }
    }
    Ok(Exit::GOOD)
}

/// Reports what was done with a note, or prints it as JSON.
fn done(terminal: &mut Terminal, what: &str, note: &Note, json: bool) -> Result<(), Failure> {
    if json {
        return print_value(note);
    }
    Ok(terminal.say(&format!("{what} {}/{}", noun(note.scope), note.name))?)
}

fn list(client: &mut Client) -> Result<Vec<Note>, Failure> {
    client.call(&MemoryList(List { cwd: working_directory()?, text: false }))
}

fn scope(user: bool) -> Scope {
    if user { Scope::User } else { Scope::Workspace }
}

fn noun(scope: Scope) -> &'static str {
    match scope {
        Scope::User => "user",
        Scope::Workspace | Scope::Unknown => "workspace",
    }
}

/// Finds a note: `user/NAME`, `workspace/NAME`, or the only one with this name.
fn find<'a>(rows: &'a [Note], name: &str, user: bool) -> Result<&'a Note, Failure> {
    let (scope, bare) = match name.split_once('/') {
        Some(("user", bare)) => (Some(Scope::User), bare),
        Some(("workspace", bare)) => (Some(Scope::Workspace), bare),
        _ => (user.then_some(Scope::User), name),
    };
    let mut found = rows.iter().filter(|note| note.name == bare && scope.is_none_or(|scope| scope == note.scope));
    let hint = "`linger memory list` lists them";
    match (found.next(), found.next()) {
        (Some(note), None) => Ok(note),
        (None, _) => Err(Failure::usage(format!("no note is called '{name}'")).hint(hint)),
        (Some(_), Some(_)) => Err(Failure::usage(format!("two notes are called '{bare}'"))
            .hint(format!("write user/{bare} or workspace/{bare}"))),
    }
}

/// Opens the file in the user's editor.
#[allow(clippy::disallowed_methods, reason = "the user's editor, in the user's terminal")]
fn edit(note: &Note) -> Result<Exit, Failure> {
    let set = |name| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    let status = Command::new(program).args(words).arg(&note.path).status().map_err(|error| {
        Failure::new(Exit::FAILED, format!("cannot start the editor {program}: {error}"))
            .hint(format!("set EDITOR, or edit {} yourself", note.path.display()))
    })?;
    Ok(if status.success() { Exit::GOOD } else { Exit::FAILED })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_found_by_name_alone_or_with_its_scope() {
        let note = |scope, name: &str| Note {
            scope,
            name: name.to_owned(),
            about: String::new(),
            path: "/n".into(),
            bytes: 0,
            text: None,
        };
        let rows = [note(Scope::User, "a"), note(Scope::Workspace, "a"), note(Scope::Workspace, "b")];
        let found = |name: &str, user| find(&rows, name, user).map(|note| note.scope).ok();
        assert_eq!(found("b", false), Some(Scope::Workspace));
        assert_eq!(found("a", false), None);
        assert_eq!((found("user/a", false), found("a", true)), (Some(Scope::User), Some(Scope::User)));
        assert_eq!(found("workspace/a", false), Some(Scope::Workspace));
        assert_eq!(found("c", false), None);
    }
}
