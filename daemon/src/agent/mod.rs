//! Skills, commands and agents: Markdown files of the user and of workspaces, which a session reads at the beginning of each turn.
//!
//! [`Library::load`] finds them, leaves out those of a workspace that no person has trusted with this content
//! ([`ConfigStore::survey`]), and decides which of several with one name counts: a workspace's before the user's, the nearest
//! first. Nothing here runs anything.
//!
//! | file | owns |
//! |---|---|
//! | `find` | where the files lie, and reading them |
//! | `frontmatter` | the YAML header |
//! | `skill`, `command`, `role` | what each kind of file means |

pub mod command;
mod find;
mod frontmatter;
pub mod role;
pub mod skill;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use linger_protocol::agent::{Item, Problem, Role, Scope, Skill as Named, Status};
use serde_json::Value;

use crate::config::{ConfigStore, FILES};
use crate::tool::set::Names;
pub use command::Command;
pub use find::{Found, Places};
pub use role::Agent;
pub use skill::Skill;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Knowledge on demand.
    Skill,
    /// A prompt with a name.
    Command,
    /// The role of a session.
    Agent,
}

/// One that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<T> {
    /// Its name.
    pub name: String,
    /// Its file.
    pub found: Found,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
    /// What it says.
    pub item: T,
}

impl Entry<Skill> {
    /// As an event names it.
    pub fn named(&self) -> Named {
        Named { name: self.name.clone(), path: self.found.path.clone(), digest: self.found.digest.clone() }
    }
}

impl Entry<Agent> {
    /// As an event names it.
    pub fn role(&self) -> Role {
        Role { name: self.name.clone(), path: self.found.path.clone(), digest: self.found.digest.clone() }
    }
}

/// What sessions in a directory have.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// The skills.
    pub skills: Vec<Entry<Skill>>,
    /// The commands.
    pub commands: Vec<Entry<Command>>,
    /// The agents.
    pub agents: Vec<Entry<Agent>>,
    /// Every file, those too that do not count.
    rows: Vec<(Kind, Item)>,
}

impl Library {
    /// Reads everything, and tells `config` which files of the workspace there are. Blocks on the disk.
    pub fn load(config: &ConfigStore, places: &Places) -> Self {
        let mut library = Self::default();
        let kinds = [Kind::Skill, Kind::Command, Kind::Agent];
        let found: Vec<(Kind, Vec<Found>)> = kinds
            .into_iter()
            .map(|kind| {
                let (found, left_out) = find::find(kind, places);
                library.rows.extend(left_out.into_iter().map(|(path, why)| (kind, left_out_row(path, why))));
                (kind, found)
            })
            .collect();
        let of_workspace = found.iter().flat_map(|(_, found)| found);
        let digests: BTreeMap<String, String> =
            of_workspace.filter_map(|it| Some((it.within.clone()?, it.digest.clone()))).collect();
        let now = config.survey(&places.root, digests);
        let trusted = now.settings.as_ref().and_then(|settings| settings.get(FILES)).cloned().unwrap_or_default();
        let tools = config.tools().current();
        for (kind, found) in found {
            let mut winners = HashMap::new();
            for found in found {
                library.add(kind, found, &trusted, &mut winners, tools.names());
            }
        }
        library
    }

    fn add(
        &mut self,
        kind: Kind,
        found: Found,
        trusted: &Value,
        winners: &mut HashMap<String, PathBuf>,
        names: &Names,
    ) {
        let Parsed { name, description, problems, item } = parse(kind, &found, names);
        let waits = found.within.as_ref().is_some_and(|path| {
            found.digest.is_empty() || trusted.get(path).and_then(Value::as_str) != Some(found.digest.as_str())
        });
        let hidden_by = winners.get(&name).cloned();
        let status = match (&item, waits, &hidden_by) {
            (None, ..) => Status::Broken,
            (_, true, _) => Status::Waits,
            (.., Some(_)) => Status::Hidden,
            _ => Status::Active,
        };
        let scope = if found.within.is_some() { Scope::Workspace } else { Scope::User };
        let hidden_by = hidden_by.filter(|_| status == Status::Hidden);
        if let Some(winner) = &hidden_by {
            tracing::debug!(target: "agent", name, path = %found.path.display(), winner = %winner.display(), "two have one name");
        }
        let row = Item {
            name: name.clone(),
            description,
            path: found.path.clone(),
            scope,
            status,
            hidden_by,
            problems: problems.clone(),
            text: item.as_ref().map(|item| item.body().to_owned()),
        };
        self.rows.push((kind, row));
        let Some(item) = item.filter(|_| status == Status::Active) else { return };
        winners.insert(name.clone(), found.path.clone());
        match item {
            Meaning::Skill(item) => self.skills.push(Entry { name, found, problems, item }),
            Meaning::Command(item) => self.commands.push(Entry { name, found, problems, item }),
            Meaning::Agent(item) => self.agents.push(Entry { name, found, problems, item: *item }),
        }
    }

    /// Every file of a kind, those too that do not count, by name.
    pub fn rows(self, kind: Kind, text: bool) -> Vec<Item> {
        let rows = self.rows.into_iter().filter(|(it, _)| *it == kind);
        let mut rows: Vec<Item> =
            rows.map(|(_, row)| Item { text: row.text.clone().filter(|_| text), ..row }).collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    }

    /// The text that `/name arguments` means, in pieces; `None` if there is no such command or skill.
    pub fn expand(&self, name: &str, arguments: &str) -> Option<Result<Vec<command::Piece>, String>> {
        if let Some(entry) = self.commands.iter().find(|entry| entry.name == name) {
            return Some(command::expand(&entry.item.body, arguments));
        }
        let skill = self.skills.iter().find(|entry| entry.name == name)?;
        Some(Ok(vec![command::Piece::Text(skill::sent(skill, arguments))]))
    }

    /// The names that a prompt can begin with, after the slash.
    pub fn names(&self) -> Vec<&str> {
        let commands = self.commands.iter().map(|entry| entry.name.as_str());
        commands.chain(self.skills.iter().map(|entry| entry.name.as_str())).collect()
    }
}

/// One file, wherever it lies, as a row. Blocks on the disk.
pub fn check(kind: Kind, path: &Path, names: &Names, text: bool) -> Item {
    let found = find::at(kind, path);
    let Parsed { name, description, problems, item } = parse(kind, &found, names);
    let status = if item.is_some() { Status::Active } else { Status::Broken };
    let text = item.as_ref().filter(|_| text).map(|item| item.body().to_owned());
    Item { name, description, path: found.path, scope: Scope::Named, status, hidden_by: None, problems, text }
}

/// A row for a file or directory that does not count.
fn left_out_row(path: PathBuf, why: String) -> Item {
    Item {
        name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        description: None,
        path,
        scope: Scope::Workspace,
        status: Status::Broken,
        hidden_by: None,
        problems: vec![Problem::error(1, why)],
        text: None,
    }
}

/// What a file says.
enum Meaning {
    Skill(Skill),
    Command(Command),
    Agent(Box<Agent>),
}

impl Meaning {
    fn body(&self) -> &str {
        match self {
            Self::Skill(skill) => &skill.body,
            Self::Command(command) => &command.body,
            Self::Agent(agent) => &agent.body,
        }
    }
}

struct Parsed {
    name: String,
    description: Option<String>,
    problems: Vec<Problem>,
    /// Absent if it cannot be used.
    item: Option<Meaning>,
}

fn parse(kind: Kind, found: &Found, names: &Names) -> Parsed {
    let text = match &found.text {
        Ok(text) => text,
        Err(why) => {
            let problems = vec![Problem::error(1, why.clone())];
            return Parsed { name: found.name.clone(), description: None, problems, item: None };
        }
    };
    let (item, name, mut problems) = match kind {
        Kind::Skill => {
            let (item, name, problems) = skill::parse(found, text);
            (item.map(Meaning::Skill), name, problems)
        }
        Kind::Command => {
            let (item, name, problems) = command::parse(found, text);
            (item.map(Meaning::Command), name, problems)
        }
        Kind::Agent => {
            let (item, name, problems) = role::parse(found, text, names);
            (item.map(|agent| Meaning::Agent(Box::new(agent))), name, problems)
        }
    };
    let item = item.map_err(|problem| problems.push(problem)).ok();
    problems.sort_by_key(|problem| problem.line);
    let description = match &item {
        Some(Meaning::Skill(skill)) => Some(skill.description.clone()),
        Some(Meaning::Command(command)) => command.description.clone(),
        Some(Meaning::Agent(agent)) => agent.description.clone(),
        None => None,
    };
    Parsed { name, description, problems, item }
}

#[cfg(test)]
mod tests;
