//! Skills, commands, agents, tools and MCP servers: Markdown files of the user and of workspaces. A session reads them at the
//! beginning of each turn, and what its tool set is made of before each step.
//!
//! [`Library::load`] finds them, leaves out those of a workspace that no person has trusted with this content
//! ([`ConfigStore::survey`]) and those of the user that none has confirmed ([`ConfigStore::survey_own`]), and decides which of several
//! with one name counts: a workspace's before the user's, the nearest first. Nothing here runs anything.
//!
//! | file | owns |
//! |---|---|
//! | `kind`, `entry` | the kinds of files; one that is in use |
//! | `find` | where the files lie, and reading them |
//! | `frontmatter` | the YAML header |
//! | `others` | what other programs call tools, models and modes |
//! | `skill`, `command`, `role`, `program`, `server` | what each kind of file means |
//! | `watch` | noticing that some have changed |

pub mod command;
mod entry;
mod find;
mod frontmatter;
mod kind;
mod others;
mod program;
pub mod role;
mod server;
pub mod skill;
pub mod watch;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use linger_protocol::agent::{Item, Problem, Scope, SkillLimit, Status};
use serde_json::{Map, Value};

use crate::config::{ConfigStore, FILES, MCP_FILES, OwnFiles, ShownFile};
use crate::tool::program::Program;
use crate::tool::set::Names;
use crate::tool::{Workspace, text};
pub use command::Command;
pub use entry::Entry;
pub use find::{FoundFile, Places};
pub use kind::FileKind;
pub use role::Agent;
use server::ServerFile;
pub use skill::Skill;

/// A file at one moment, to tell a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    /// `agent NAME`.
    pub what: String,
    /// Whether sessions have it.
    pub status: Status,
    /// Changes with whatever it says.
    mark: String,
}

/// Skills, commands, agents and tools of the sessions in one directory.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// Skills in use, the nearest directory first.
    pub skills: Vec<Entry<Skill>>,
    /// Commands in use, the nearest directory first.
    pub commands: Vec<Entry<Command>>,
    /// Agents in use, the nearest directory first.
    pub agents: Vec<Entry<Agent>>,
    /// Programs that models can call.
    pub tools: Vec<Entry<Program>>,
    /// Whether the user's own files are others than before.
    pub is_own_new: bool,
    /// Every file, those too that do not count.
    rows: Vec<(FileKind, Item)>,
}

impl Library {
    /// Reads everything, and tells `config` which files there are. Blocks on the disk.
    pub fn load(config: &ConfigStore, places: &Places) -> Self {
        Self::read(config, places, &FileKind::ALL)
    }

    /// Reads what a tool set is made of. Blocks on the disk.
    pub fn load_tools(config: &ConfigStore, places: &Places) -> Self {
        Self::read(config, places, &FileKind::OF_TOOLS)
    }

    fn read(config: &ConfigStore, places: &Places, kinds: &[FileKind]) -> Self {
        let mut library = Self::default();
        let tools = config.tools().current();
        let mut files = Vec::new();
        // Its rules may hide some of the files.
        config.look(&places.root);
        let unasked = config.unasked("read", &places.root, &Workspace::of_files(&places.root, &places.cwd));
        for kind in kinds.iter().copied() {
            let (found, left_out) = find::find(kind, places, &unasked);
            library.rows.extend(left_out.into_iter().map(|(path, why)| (kind, left_out_row(path, why))));
            files.extend(found.into_iter().map(|found| File::read(kind, found, tools.names(), config)));
        }
        let of_workspace = files.iter().filter(|file| file.kind != FileKind::Server);
        let digests: BTreeMap<String, String> =
            of_workspace.filter_map(|file| Some((file.found.within.clone()?, file.found.digest.clone()))).collect();
        let servers = |of_workspace: bool| {
            let mut servers = Map::new();
            for file in files.iter().filter(|file| file.found.within.is_some() == of_workspace) {
                if let Some(Meaning::Server(server)) = &file.parsed.item {
                    servers.entry(file.parsed.name.clone()).or_insert_with(|| server.settings.clone());
                }
            }
            servers
        };
        config.show_files(&config.own_files(), files.iter().filter_map(File::shown_of_own).collect());
        config.show_files(&places.root, files.iter().filter_map(File::shown_of_workspace).collect());
        let own = files.iter().filter_map(|file| Some((file.own.clone()?, file.found.digest.clone())));
        let own = OwnFiles { files: own.collect(), servers: servers(false) };
        library.is_own_new = config.survey_own(own, kinds.len() == FileKind::ALL.len());
        let now = config.survey(&places.root, digests, servers(true));
        let trusted = now.settings.clone().unwrap_or_default();
        let mut winners = HashMap::new();
        for file in files {
            library.add(file, &trusted, &mut winners, config);
        }
        library
    }

    fn add(
        &mut self,
        file: File,
        trusted: &Value,
        winners: &mut HashMap<(FileKind, String), PathBuf>,
        config: &ConfigStore,
    ) {
        let waits = file.waits(trusted, config);
        let File { kind, found, parsed: Parsed { name, description, problems, item }, .. } = file;
        let mut hidden_by = winners.get(&(kind, name.clone())).cloned();
        if kind == FileKind::Server && config.configures_server(&name) {
            hidden_by = Some(config.file());
        }
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
            text: item.as_ref().map(|item| item.text(&name)),
        };
        self.rows.push((kind, row));
        let Some(item) = item.filter(|_| status == Status::Active) else { return };
        winners.insert((kind, name.clone()), found.path.clone());
        match item {
            Meaning::Skill(item) => self.skills.push(Entry { name, found, problems, item }),
            Meaning::Command(item) => self.commands.push(Entry { name, found, problems, item }),
            Meaning::Agent(item) => self.agents.push(Entry { name, found, problems, item: *item }),
            Meaning::Tool(item) => self.tools.push(Entry { name, found, problems, item: *item }),
            // It is a setting of the configuration from here on.
            Meaning::Server(_) => {}
        }
    }

    /// The state of each file, by its path, to tell a change.
    pub fn state(&self) -> BTreeMap<PathBuf, FileState> {
        let row = |(kind, item): &(FileKind, Item)| {
            let text = item.text.as_deref().map(find::digest).unwrap_or_default();
            let mark = format!("{:?} {text} {:?} {:?}", item.status, item.description, item.problems);
            let what = format!("{} {}", kind.noun(), text::one_line(&item.name));
            (item.path.clone(), FileState { what, status: item.status, mark })
        };
        self.rows.iter().map(row).collect()
    }

    /// Every file of a kind, those too that do not count, by name.
    pub fn rows(self, kind: FileKind, text: bool) -> Vec<Item> {
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

    /// The tools that `/name` limits its turn to, if it is a skill with a list of tools.
    pub fn limit(&self, name: &str) -> Option<SkillLimit> {
        let is_command = self.commands.iter().any(|entry| entry.name == name);
        let skill = self.skills.iter().find(|entry| entry.name == name).filter(|_| !is_command)?;
        skill::limit(skill)
    }

    /// The names that a prompt can begin with, after the slash.
    pub fn names(&self) -> Vec<&str> {
        let commands = self.commands.iter().map(|entry| entry.name.as_str());
        commands.chain(self.skills.iter().map(|entry| entry.name.as_str())).collect()
    }
}

/// One file, wherever it lies, as a row. Blocks on the disk.
pub fn check(kind: FileKind, path: &Path, names: &Names, text: bool) -> Item {
    let found = find::at(kind, path);
    let Parsed { name, description, problems, item } = parse(kind, &found, names);
    let status = if item.is_some() { Status::Active } else { Status::Broken };
    let text = item.as_ref().filter(|_| text).map(|item| item.text(&name));
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

/// A file, read.
struct File {
    kind: FileKind,
    found: FoundFile,
    parsed: Parsed,
    /// Its path below the configuration directory, if it is one of the user's own that a person has to confirm.
    own: Option<String>,
}

impl File {
    fn read(kind: FileKind, found: FoundFile, names: &Names, config: &ConfigStore) -> Self {
        let parsed = parse(kind, &found, names);
        let widens = match (&parsed.item, kind) {
            (Some(Meaning::Command(command)), _) => command.runs,
            (_, FileKind::Agent | FileKind::Tool) => !found.digest.is_empty(),
            _ => false,
        };
        let own = (found.within.is_none() && widens).then(|| config.path_of_own(&found.path));
        Self { kind, found, parsed, own }
    }

    /// One of the user's own that a person has to confirm, as it is shown.
    fn shown_of_own(&self) -> Option<(String, ShownFile)> {
        Some((self.own.clone()?, self.shown()?))
    }

    /// One of the workspace, as it is shown.
    fn shown_of_workspace(&self) -> Option<(String, ShownFile)> {
        let path = self.found.within.clone().filter(|_| self.kind != FileKind::Server)?;
        Some((path, self.shown()?))
    }

    fn shown(&self) -> Option<ShownFile> {
        let text = self.found.text.clone().ok()?;
        let about = match &self.parsed.item {
            Some(item) => item.about(&self.parsed.name),
            None => format!("{} `{}`, which cannot be used as it is", self.kind.noun(), self.parsed.name),
        };
        Some(ShownFile { digest: self.found.digest.clone(), about: text::one_line(&about), text })
    }

    /// Whether a person has to trust or to confirm it first.
    fn waits(&self, trusted: &Value, config: &ConfigStore) -> bool {
        let Self { found, parsed, own, .. } = self;
        match (&parsed.item, &found.within) {
            (Some(Meaning::Server(server)), Some(_)) => {
                trusted.get(MCP_FILES).and_then(|all| all.get(&parsed.name)) != Some(&server.settings)
            }
            (Some(Meaning::Server(server)), None) => !config.own_server_in_force(&parsed.name, &server.settings),
            (_, Some(path)) => {
                let hash = trusted.get(FILES).and_then(|all| all.get(path)).and_then(Value::as_str);
                found.digest.is_empty() || hash != Some(found.digest.as_str())
            }
            (_, None) => own.as_ref().is_some_and(|path| !config.own_in_force(path, &found.digest)),
        }
    }
}

/// A parsed file.
enum Meaning {
    Skill(Skill),
    Command(Command),
    Agent(Box<Agent>),
    Tool(Box<Program>),
    Server(ServerFile),
}

impl Meaning {
    fn body(&self) -> &str {
        match self {
            Self::Skill(skill) => &skill.body,
            Self::Command(command) => &command.body,
            Self::Agent(agent) => &agent.body,
            Self::Tool(tool) => &tool.description,
            Self::Server(server) => &server.body,
        }
    }

    /// The text that a model gets, below what runs for it where that is not part of it.
    fn text(&self, name: &str) -> String {
        match self {
            Self::Tool(_) | Self::Agent(_) => format!("[{}]\n\n{}", self.about(name), self.body()),
            Self::Skill(_) | Self::Command(_) | Self::Server(_) => self.body().to_owned(),
        }
    }

    /// The kind, and everything that it runs, in words for a person.
    fn about(&self, name: &str) -> String {
        match self {
            Self::Skill(skill) => skill.about(name),
            Self::Command(command) => command.about(name),
            Self::Agent(agent) => agent.about(name),
            Self::Tool(tool) => tool.about(name),
            Self::Server(_) => format!("server `{name}`"),
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

fn parse(kind: FileKind, found: &FoundFile, names: &Names) -> Parsed {
    let text = match &found.text {
        Ok(text) => text,
        Err(why) => {
            let problems = vec![Problem::error(1, why.clone())];
            return Parsed { name: found.name.clone(), description: None, problems, item: None };
        }
    };
    let (item, name, mut problems) = match kind {
        FileKind::Skill => {
            let (item, name, problems) = skill::parse(found, text, names);
            (item.map(Meaning::Skill), name, problems)
        }
        FileKind::Command => {
            let (item, name, problems) = command::parse(found, text);
            (item.map(Meaning::Command), name, problems)
        }
        FileKind::Agent => {
            let (item, name, problems) = role::parse(found, text, names);
            (item.map(|agent| Meaning::Agent(Box::new(agent))), name, problems)
        }
        FileKind::Tool => {
            let (item, name, problems) = program::parse(found, text);
            (item.map(|tool| Meaning::Tool(Box::new(tool))), name, problems)
        }
        FileKind::Server => {
            let (item, name, problems) = server::parse(found, text);
            (item.map(Meaning::Server), name, problems)
        }
    };
    let item = item.map_err(|problem| problems.push(problem)).ok();
    problems.sort_by_key(|problem| problem.line);
    let description = match &item {
        Some(Meaning::Skill(skill)) => Some(skill.description.clone()),
        Some(Meaning::Command(command)) => command.description.clone(),
        Some(Meaning::Agent(agent)) => agent.description.clone(),
        Some(Meaning::Tool(tool)) => tool.description.lines().next().map(str::to_owned),
        Some(Meaning::Server(server)) => {
            server.description.clone().or_else(|| server.body.lines().next().map(str::to_owned))
        }
        None => None,
    };
    Parsed { name, description, problems, item }
}

#[cfg(test)]
mod tests;
