//! `linger import`: imports MCP servers, rules, agents, skills, commands and instructions from another program.
//!
//! Only reads the other program's files; their text is data. Shows everything in full before writing anything, writes only with the
//! user's consent, and replaces nothing. The daemon checks the configuration before it is written, and reports what it grants.
//! Deliberately absent: keys and tokens; hooks; files of a repository, which linger reads in place.

mod found;
mod read;
mod rules;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;
use linger_protocol::config::{Get, Set, Write};
use linger_protocol::method::{ConfigGet, ConfigSet, ConfigWrite};
use serde_json::{Value, json};

use super::config::{Asker, list};
use crate::arguments::{Import, ImportKind, Program};
use crate::connect::Client;
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::terminal::{Capabilities, Terminal, clean_exact, clean_line};
use found::{Importable, MAX_FILE};

/// One thing to import.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ImportItem {
    /// A server, by name, and its table of the configuration.
    Server(String, String),
    /// A rule, and its list.
    Rule(&'static str, String),
    /// A file, or all files of a skill: its name, and pairs of source and target.
    Files(ImportKind, String, Vec<(PathBuf, PathBuf)>),
}

impl ImportItem {
    fn kind(&self) -> ImportKind {
        match self {
            Self::Server(..) => ImportKind::Servers,
            Self::Rule(..) => ImportKind::Rules,
            Self::Files(kind, ..) => *kind,
        }
    }

    /// Its name in a question.
    fn name(&self) -> String {
        let text = match self {
            Self::Server(name, _) => format!("MCP server {name}"),
            Self::Rule(list, rule) => return format!("rule {list} {}", clean_exact(rule)),
            Self::Files(ImportKind::Agents, name, _) => format!("agent {name}"),
            Self::Files(ImportKind::Commands, name, _) => format!("command {name}"),
            Self::Files(ImportKind::Skills, name, files) if files.len() == 1 => format!("skill {name} (1 file)"),
            Self::Files(ImportKind::Skills, name, files) => format!("skill {name} ({} files)", files.len()),
            Self::Files(_, name, _) => format!("instructions {name}"),
        };
        clean_line(&text).into_owned()
    }

    /// The lines that would be written for it.
    fn lines(&self) -> Vec<String> {
        match self {
            Self::Server(_, table) => table.lines().map(clean_exact).collect(),
            Self::Rule(list, rule) => vec![format!("{list} {}", clean_exact(rule))],
            Self::Files(.., files) => files
                .iter()
                .map(|(from, to)| {
                    let (from, to) = (from.display().to_string(), to.display().to_string());
                    format!("{}, from {}", clean_line(&to), clean_line(&from))
                })
                .collect(),
        }
    }

    fn json(&self, state: &str) -> Value {
        let kind = self.kind().to_possible_value().map(|kind| kind.get_name().to_owned());
        let text = match self {
            Self::Server(_, table) => table.clone(),
            Self::Rule(list, rule) => format!("{list} {rule}"),
            Self::Files(..) => self.lines().join("\n"),
        };
        json!({ "kind": kind, "name": self.name(), "state": state, "text": text })
    }
}

/// Everything that would be written.
#[derive(Debug)]
struct ImportPlan {
    /// The current text of the configuration; `digest` belongs to it.
    before: String,
    digest: String,
    items: Vec<ImportItem>,
    /// New things excluded by `--only` or `--skip`.
    skipped: Vec<ImportItem>,
    /// Things that exist already or are left out, with the reason.
    notes: Vec<(&'static str, String)>,
}

impl ImportPlan {
    /// The text of the configuration with the new servers.
    fn text(&self) -> String {
        let mut text = self.before.clone();
        for item in &self.items {
            let ImportItem::Server(_, table) = item else { continue };
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&format!("\n{table}"));
        }
        text
    }

    /// Moves things of other kinds to `skipped`.
    fn select(&mut self, only: &[ImportKind], skip: &[ImportKind]) {
        let wanted =
            |item: &ImportItem| (only.is_empty() || only.contains(&item.kind())) && !skip.contains(&item.kind());
        (self.items, self.skipped) = std::mem::take(&mut self.items).into_iter().partition(wanted);
    }
}

pub(super) fn run(args: &Import) -> Result<Exit, Failure> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("HOME").ok_or_else(|| Failure::usage("HOME is not set, so there is nothing to import"))?;
    let found = match args.from {
        Program::Claude => {
            let dir = variable("CLAUDE_CONFIG_DIR");
            read::claude(&home, dir.as_deref(), &working_directory()?)
        }
        Program::Codex => read::codex(&variable("CODEX_HOME").unwrap_or_else(|| home.join(".codex"))),
        Program::Opencode => {
            let config = variable("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
            read::opencode(&config.join("opencode"))
        }
    };
    if found.sources.is_empty() {
        return Err(Failure::new(Exit::FAILED, format!("no files of {} found", name(args.from)))
            .hint("import reads your home directory; linger reads a repository's AGENTS.md, .mcp.json and .claude in place, except .claude/settings.json"));
    }
    let mut client = Client::open()?;
    let mut plan = plan(&mut client, found)?;
    plan.select(&args.only, &args.skip);
    show(&plan, args.json)?;
    if plan.items.is_empty() {
        let of = if plan.skipped.is_empty() { "" } else { " among the kinds you chose" };
        Terminal::new().say(&format!("nothing new to import{of}"))?;
        return Ok(Exit::GOOD);
    }
    if args.dry_run {
        return Ok(Exit::GOOD);
    }
    // The daemon refuses invalid text and any process that it started, and reports what the change grants.
    let checked = ConfigWrite(Write { text: plan.text(), digest: plan.digest.clone(), dry_run: true });
    let grants = client.call(&checked)?.confirmed;
    if !grants.is_empty() && !args.json {
        list("this grants more:", &grants)?;
    }
    if !args.yes {
        if !Capabilities::detect().can_ask() {
            return Err(Failure::new(Exit::QUESTION, "there is no terminal to ask on; nothing was imported")
                .hint("--yes imports everything, with --only or --skip a part; --dry-run only shows it"));
        }
        plan.items = choose(&mut client, plan.items)?;
        if plan.items.is_empty() {
            Terminal::new().say("nothing was imported")?;
            return Ok(Exit::CANCELLED);
        }
    }
    take(&mut client, plan, args.json)
}

/// The name of a program, for messages.
fn name(program: Program) -> &'static str {
    match program {
        Program::Claude => "Claude Code",
        Program::Codex => "Codex",
        Program::Opencode => "opencode",
    }
}

/// Asks what to import: all, nothing, or each thing.
fn choose(client: &mut Client, items: Vec<ImportItem>) -> Result<Vec<ImportItem>, Failure> {
    let mut asker = Asker::open(client)?;
    let (question, keys) = match items.as_slice() {
        [_] => ("import this? y/n ", "yYnN"),
        _ => ("import all of this? y all, c choose, n nothing ", "yYcCnN"),
    };
    match asker.ask(client, question, keys)? {
        Some('y') => return Ok(items),
        Some('c') => {}
        _ => return Ok(Vec::new()),
    }
    let (mut chosen, mut all) = (Vec::new(), false);
    for item in items {
        if !all {
            let question = format!("import {}? y/n, a this and the rest, q stop ", item.name());
            match asker.ask(client, &question, "yYnNaAqQ")? {
                Some('y') => {}
                Some('n') => continue,
                Some('a') => all = true,
                Some(_) => break,
                // Ctrl-C
                None => return Ok(Vec::new()),
            }
        }
        chosen.push(item);
    }
    Ok(chosen)
}

/// Compares the findings with the configuration and its directory, and keeps what is new.
fn plan(client: &mut Client, found: Importable) -> Result<ImportPlan, Failure> {
    let before = client.call(&ConfigGet(Get { text: true }))?;
    if let Some(error) = before.error {
        return Err(Failure::new(Exit::FAILED, error).hint("correct the configuration first"));
    }
    let text = before.text.ok_or_else(|| Failure::new(Exit::FAILED, "the daemon does not show the configuration"))?;
    let settings = before.settings.unwrap_or_default();
    let there = |path: &str| settings.pointer(path).cloned().unwrap_or_default();
    let mut notes: Vec<(&'static str, String)> = found.left_out.into_iter().map(|text| ("left out", text)).collect();
    let mut items: Vec<ImportItem> = Vec::new();
    for (name, server) in &found.servers {
        match there("/mcp").get(name) {
            Some(known) if server.is_same_as(known) => {
                notes.push(("exists already", format!("MCP server {name}")));
                continue;
            }
            Some(_) => {
                notes.push(("left out", format!("MCP server {name}: another server has this name")));
                continue;
            }
            None => {}
        }
        items.push(ImportItem::Server(name.clone(), server.toml(name)));
    }
    for (kind, rule) in found.rules {
        let known = there(&format!("/permissions/{kind}"));
        let is_there = known.as_array().is_some_and(|known| known.iter().any(|it| it == rule.as_str()));
        let item = ImportItem::Rule(kind, rule.clone());
        if is_there {
            notes.push(("exists already", format!("{kind} {rule}")));
        } else if !items.contains(&item) {
            items.push(item);
        }
    }
    let config = client.places.config.clone();
    let mut taken: Vec<PathBuf> = Vec::new();
    for (from, to) in found.files {
        let (kind, name) = kind_and_name(&to);
        let to = config.join(to);
        match to.symlink_metadata() {
            Ok(_) if is_same(&from, &to) => notes.push(("exists already", to.display().to_string())),
            Ok(_) => {
                notes.push(("left out", format!("{}: a different {} exists", from.display(), to.display())));
            }
            Err(_) if taken.contains(&to) => {
                notes.push(("left out", format!("{}: another file has this name", from.display())));
            }
            Err(_) => {
                taken.push(to.clone());
                let of_skill = items.iter_mut().find_map(|item| match item {
                    ImportItem::Files(ImportKind::Skills, skill, files)
                        if kind == ImportKind::Skills && *skill == name =>
                    {
                        Some(files)
                    }
                    _ => None,
                });
                match of_skill {
                    Some(files) => files.push((from, to)),
                    None => items.push(ImportItem::Files(kind, name, vec![(from, to)])),
                }
            }
        }
    }
    Ok(ImportPlan { before: text.text, digest: text.digest, items, skipped: Vec::new(), notes })
}

/// The kind and name of the thing that a file belongs to, from its path below the configuration directory.
fn kind_and_name(to: &Path) -> (ImportKind, String) {
    let text = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let mut parts = to.iter();
    match parts.next().and_then(OsStr::to_str) {
        Some("agents") => (ImportKind::Agents, text(to.file_stem())),
        Some("commands") => (ImportKind::Commands, text(to.file_stem())),
        Some("skills") => (ImportKind::Skills, text(parts.next())),
        _ => (ImportKind::Instructions, to.display().to_string()),
    }
}

/// Whether two files have the same content.
fn is_same(one: &Path, two: &Path) -> bool {
    let read = |path: &Path| read::content(path, MAX_FILE).ok();
    read(one).is_some_and(|content| read(two) == Some(content))
}

/// Shows in full what would be imported, and what would not.
fn show(plan: &ImportPlan, json: bool) -> Result<(), Failure> {
    let mut terminal = Terminal::new();
    if json {
        let new = plan.items.iter().map(|item| item.json("new"));
        for row in new.chain(plan.skipped.iter().map(|item| item.json("skipped"))) {
            terminal.data(&row.to_string())?;
        }
        for (state, text) in &plan.notes {
            terminal.data(&json!({ "kind": "note", "state": state, "text": text }).to_string())?;
        }
        return Ok(());
    }
    for line in plan.items.iter().flat_map(ImportItem::lines) {
        terminal.line(&format!("+ {line}"))?;
    }
    for item in &plan.skipped {
        terminal.line(&format!("  skipped: {}", item.name()))?;
    }
    for (state, text) in &plan.notes {
        terminal.line(&format!("  {state}: {}", clean_line(text)))?;
    }
    Ok(())
}

/// Writes everything in the plan.
fn take(client: &mut Client, plan: ImportPlan, json: bool) -> Result<Exit, Failure> {
    let mut terminal = Terminal::new();
    let (mut imported, mut failed) = (0, 0);
    if plan.items.iter().any(|item| item.kind() == ImportKind::Servers) {
        client.call(&ConfigWrite(Write { text: plan.text(), digest: plan.digest, dry_run: false }))?;
    }
    let mut has_agents = false;
    for item in plan.items {
        let done = match &item {
            ImportItem::Server(..) => Ok(()),
            ImportItem::Rule(list, rule) => add_rule(client, list, rule),
            ImportItem::Files(.., files) => files.iter().try_for_each(|(from, to)| {
                copy(from, to).map_err(|error| format!("{}: {error}", clean_line(&from.display().to_string())))
            }),
        };
        match done {
            Ok(()) => {
                imported += 1;
                has_agents |= item.kind() == ImportKind::Agents;
                if json {
                    terminal.data(&item.json("taken").to_string())?;
                }
            }
            Err(why) => {
                failed += 1;
                terminal.say(&format!("left out: {}: {why}", item.name()))?;
            }
        }
    }
    if !json {
        let things = if imported == 1 { "1 thing" } else { &format!("{imported} things") };
        let confirm = if has_agents { ", `linger config confirm` enables agents" } else { "" };
        terminal.say(&format!("imported {things}; `linger doctor --files` checks them{confirm}"))?;
    }
    Ok(if failed == 0 { Exit::GOOD } else { Exit::FAILED })
}

/// Adds a rule to its list. One by one, so that a rule that linger refuses does not block the others.
fn add_rule(client: &mut Client, list: &str, rule: &str) -> Result<(), String> {
    let why = |failure: Failure| clean_line(&failure.message.unwrap_or_default()).into_owned();
    let settings = client.call(&ConfigGet(Get::default())).map_err(why)?.settings.unwrap_or_default();
    let mut rules = settings.pointer(&format!("/permissions/{list}")).cloned().unwrap_or_else(|| json!([]));
    if let Some(rules) = rules.as_array_mut() {
        rules.push(Value::from(rule));
    }
    let set = Set { name: format!("permissions.{list}"), value: rules.to_string() };
    client.call(&ConfigSet(set)).map_err(why).map(drop)
}

/// Copies a file. Fails if the target exists.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    let content = read::content(from, MAX_FILE)?;
    if let Some(dir) = to.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?.write_all(&content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_selected_and_a_skill_is_one_thing_whatever_its_files() {
        let files = |to: &[&str]| {
            let (kind, name) = kind_and_name(Path::new(to[0]));
            assert!(to.iter().all(|to| kind_and_name(Path::new(to)) == (kind, name.clone())));
            let file = |to: &&str| (PathBuf::from("/from"), Path::new("/skills/c").join(to));
            ImportItem::Files(kind, name, to.iter().map(file).collect())
        };
        let items = [
            ImportItem::Server("docs".to_owned(), "[mcp.\"docs\"]\n".to_owned()),
            ImportItem::Rule("allow", "bash(ls)".to_owned()),
            files(&["agents/reviewer.md"]),
            files(&["skills/notes/SKILL.md", "skills/notes/x/run.sh"]),
            files(&["AGENTS.md"]),
        ];
        let check = |only: &[ImportKind], skip: &[ImportKind], expect: &[&str]| {
            let (before, digest) = ("x = 1".to_owned(), String::new());
            let mut plan = ImportPlan { before, digest, items: items.to_vec(), skipped: Vec::new(), notes: Vec::new() };
            plan.select(only, skip);
            assert_eq!(plan.items.iter().map(ImportItem::name).collect::<Vec<_>>(), expect);
            assert_eq!(plan.items.len() + plan.skipped.len(), items.len());
            // Only the selected servers are added to the configuration.
            assert_eq!(plan.text().contains("docs"), plan.items.iter().any(|item| item.kind() == ImportKind::Servers));
        };
        let all = [
            "MCP server docs",
            "rule allow bash(ls)",
            "agent reviewer",
            "skill notes (2 files)",
            "instructions AGENTS.md",
        ];
        check(&[], &[], &all);
        check(&[ImportKind::Skills, ImportKind::Rules], &[], &[all[1], all[3]]);
        check(&[], &[ImportKind::Servers, ImportKind::Agents, ImportKind::Instructions], &[all[1], all[3]]);
        check(&[ImportKind::Commands], &[], &[]);
        assert_eq!(items[2].json("new")["kind"], "agents");
    }

    #[test]
    fn a_file_that_is_there_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a.md"), dir.path().join("new/b.md"));
        std::fs::write(&from, "text").unwrap();
        copy(&from, &to).unwrap();
        assert!(is_same(&from, &to));
        std::fs::write(&from, "other").unwrap();
        assert!(copy(&from, &to).is_err());
        assert_eq!(std::fs::read_to_string(&to).unwrap(), "text");
    }
}
