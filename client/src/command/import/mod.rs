//! `linger import`: what another program has, in linger's terms: MCP servers, rules, agents, skills, commands, instructions.
//!
//! The other program's files are read here and only read; what they say is no instruction. Everything that would be taken is shown
//! first, whole; nothing is written without a person's word, and nothing that is there is replaced. The daemon checks the
//! configuration before it is written, and says what it widens.
//! Deliberately absent: keys and tokens; hooks; and what a repository has, which linger reads where it is.

mod read;
mod rules;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use linger_protocol::config::{Get, Set, Write};
use linger_protocol::method::{ConfigGet, ConfigSet, ConfigWrite};
use serde_json::{Value, json};

use super::config::{ask, list};
use crate::arguments::{Import, Program};
use crate::connect::Client;
use crate::environment::working_directory;
use crate::error::{Exit, Failure};
use crate::terminal::{Capabilities, Terminal, clean_exact, clean_line};

/// The largest file that is taken, in bytes: instructions and prompts are text.
const MAX_FILE: u64 = 1 << 20;

/// What another program has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    /// MCP servers, by name.
    servers: BTreeMap<String, Server>,
    /// Rules by their list: `allow`, `ask` or `deny`.
    rules: Vec<(&'static str, String)>,
    /// Files, and where they go below linger's configuration directory.
    files: Vec<(PathBuf, PathBuf)>,
    /// What is not taken, and why.
    left_out: Vec<String>,
    /// The files that were read.
    sources: Vec<PathBuf>,
}

/// An MCP server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Server {
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    url: Option<String>,
    headers: BTreeMap<String, String>,
    /// The only tools that models get; all if it is empty.
    tools: Vec<String>,
}

impl Server {
    /// It as a table of the configuration. JSON's strings and lists of them are TOML's.
    fn toml(&self, name: &str) -> String {
        let string = |text: &str| Value::from(text).to_string();
        let table = |values: &BTreeMap<String, String>| {
            let pairs: Vec<String> =
                values.iter().map(|(key, value)| format!("{} = {}", string(key), string(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        };
        let mut lines = vec![format!("[mcp.{}]", string(name))];
        lines.extend(self.command.iter().map(|command| format!("command = {}", string(command))));
        let list = |words: &[String]| words.iter().map(|word| string(word)).collect::<Vec<_>>().join(", ");
        if !self.args.is_empty() {
            lines.push(format!("args = [{}]", list(&self.args)));
        }
        lines.extend(self.url.iter().map(|url| format!("url = {}", string(url))));
        if !self.env.is_empty() {
            lines.push(format!("env = {}", table(&self.env)));
        }
        lines.extend(self.cwd.iter().map(|cwd| format!("cwd = {}", string(cwd))));
        if !self.headers.is_empty() {
            lines.push(format!("headers = {}", table(&self.headers)));
        }
        if !self.tools.is_empty() {
            lines.push(format!("tools = [{}]", list(&self.tools)));
        }
        lines.join("\n") + "\n"
    }

    /// Whether it is the one of the configuration, as far as what it runs or calls.
    fn is(&self, there: &Value) -> bool {
        let text = |key: &str| there.get(key).and_then(Value::as_str);
        let args = there.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        self.command.as_deref() == text("command") && self.url.as_deref() == text("url") && args.eq(&self.args)
    }
}

/// What is to be written.
struct Plan {
    /// The present text of the configuration with the new servers, and its digest.
    text: String,
    digest: String,
    servers: Vec<String>,
    rules: Vec<(&'static str, String)>,
    files: Vec<(PathBuf, PathBuf)>,
    /// What linger has already, and what is not taken.
    notes: Vec<(&'static str, String)>,
}

pub(super) fn run(args: &Import) -> Result<Exit, Failure> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("HOME").ok_or_else(|| Failure::usage("HOME is not set: there is nothing to import"))?;
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
        return Err(Failure::new(Exit::FAILED, format!("there is nothing of {} here", name(args.from)))
            .hint("its files are read in your home directory; what a repository has, linger reads where it is"));
    }
    let mut client = Client::open()?;
    let plan = plan(&mut client, found)?;
    show(&plan, args.json)?;
    if plan.is_empty() {
        Terminal::new().say("there is nothing new to take")?;
        return Ok(Exit::GOOD);
    }
    if args.dry_run {
        return Ok(Exit::GOOD);
    }
    // The daemon refuses what it would not run, and any process that it started; and it says what is widened.
    let checked = ConfigWrite(Write { text: plan.text.clone(), digest: plan.digest.clone(), dry_run: true });
    let widens = client.call(&checked)?.confirmed;
    if !widens.is_empty() && !args.json {
        list("this widens what may happen:", &widens)?;
    }
    if !args.yes {
        if !Capabilities::detect().can_ask() {
            return Err(Failure::new(Exit::QUESTION, "there is no terminal to ask on; nothing was taken")
                .hint("--yes takes all of it, --dry-run only shows it"));
        }
        if !ask(&mut client, "take all of this? y/n ")? {
            Terminal::new().say("nothing was taken")?;
            return Ok(Exit::CANCELLED);
        }
    }
    take(&mut client, plan, args.json)
}

/// The other program, for people.
fn name(program: Program) -> &'static str {
    match program {
        Program::Claude => "Claude Code",
        Program::Codex => "Codex",
        Program::Opencode => "opencode",
    }
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.rules.is_empty() && self.files.is_empty()
    }
}

/// What of it is new: compares it with the configuration and its directory.
fn plan(client: &mut Client, found: Found) -> Result<Plan, Failure> {
    let before = client.call(&ConfigGet(Get { text: true }))?;
    if let Some(error) = before.error {
        return Err(Failure::new(Exit::FAILED, error).hint("correct the configuration first"));
    }
    let text = before.text.ok_or_else(|| Failure::new(Exit::FAILED, "the daemon does not show the configuration"))?;
    let settings = before.settings.unwrap_or_default();
    let there = |path: &str| settings.pointer(path).cloned().unwrap_or_default();
    let mut notes: Vec<(&'static str, String)> = found.left_out.into_iter().map(|text| ("left out", text)).collect();
    let (mut written, mut servers) = (text.text.clone(), Vec::new());
    for (name, server) in &found.servers {
        match there("/mcp").get(name) {
            Some(known) if server.is(known) => {
                notes.push(("there already", format!("MCP server {name}")));
                continue;
            }
            Some(_) => {
                notes.push(("left out", format!("MCP server {name}: another one has its name")));
                continue;
            }
            None => {}
        }
        let table = server.toml(name);
        if !written.is_empty() && !written.ends_with('\n') {
            written.push('\n');
        }
        written.push_str(&format!("\n{table}"));
        servers.push(table);
    }
    let mut rules: Vec<(&'static str, String)> = Vec::new();
    for (kind, rule) in found.rules {
        let known = there(&format!("/permissions/{kind}"));
        let is_there = known.as_array().is_some_and(|known| known.iter().any(|it| it == rule.as_str()));
        match is_there {
            true => notes.push(("there already", format!("{kind} {rule}"))),
            false if rules.contains(&(kind, rule.clone())) => {}
            false => rules.push((kind, rule)),
        }
    }
    let config = client.places.config.clone();
    let mut files: Vec<(PathBuf, PathBuf)> = Vec::new();
    for (from, to) in found.files {
        let to = config.join(to);
        match to.symlink_metadata() {
            Ok(_) if is_same(&from, &to) => notes.push(("there already", to.display().to_string())),
            Ok(_) => {
                notes.push(("left out", format!("{}: {} is there, and another one", from.display(), to.display())));
            }
            Err(_) if files.iter().any(|(_, taken)| *taken == to) => {
                notes.push(("left out", format!("{}: another one has its name", from.display())));
            }
            Err(_) => files.push((from, to)),
        }
    }
    Ok(Plan { text: written, digest: text.digest, servers, rules, files, notes })
}

/// Whether two files have the same content.
fn is_same(one: &Path, two: &Path) -> bool {
    let read = |path: &Path| read::content(path, MAX_FILE).ok();
    read(one).is_some_and(|content| read(two) == Some(content))
}

/// Shows what would be taken, whole, and what would not.
fn show(plan: &Plan, json: bool) -> Result<(), Failure> {
    let mut terminal = Terminal::new();
    if json {
        let row = |kind: &str, state: &str, text: &str| json!({ "kind": kind, "state": state, "text": text });
        for table in &plan.servers {
            terminal.data(&row("server", "new", table).to_string())?;
        }
        for (kind, rule) in &plan.rules {
            terminal.data(&row(kind, "new", rule).to_string())?;
        }
        for (from, to) in &plan.files {
            let file = json!({ "kind": "file", "state": "new", "from": from, "text": to });
            terminal.data(&file.to_string())?;
        }
        for (state, text) in &plan.notes {
            terminal.data(&row("note", state, text).to_string())?;
        }
        return Ok(());
    }
    for table in &plan.servers {
        for line in table.lines() {
            terminal.line(&format!("+ {}", clean_exact(line)))?;
        }
    }
    for (kind, rule) in &plan.rules {
        terminal.line(&format!("+ {kind} {}", clean_exact(rule)))?;
    }
    for (from, to) in &plan.files {
        let (from, to) = (from.display().to_string(), to.display().to_string());
        terminal.line(&format!("+ {}, from {}", clean_line(&to), clean_line(&from)))?;
    }
    for (state, text) in &plan.notes {
        terminal.line(&format!("  {state}: {}", clean_line(text)))?;
    }
    Ok(())
}

/// Writes it.
fn take(client: &mut Client, plan: Plan, json: bool) -> Result<Exit, Failure> {
    let mut terminal = Terminal::new();
    let (mut taken, mut failed) = (0, 0);
    if !plan.servers.is_empty() {
        client.call(&ConfigWrite(Write { text: plan.text, digest: plan.digest, dry_run: false }))?;
        taken += plan.servers.len();
    }
    for (kind, rule) in plan.rules {
        // One by one, so that one that linger does not take keeps no other out.
        let settings = client.call(&ConfigGet(Get::default()))?.settings.unwrap_or_default();
        let mut rules = settings.pointer(&format!("/permissions/{kind}")).cloned().unwrap_or_else(|| json!([]));
        if let Some(list) = rules.as_array_mut() {
            list.push(Value::from(rule.as_str()));
        }
        let set = Set { name: format!("permissions.{kind}"), value: rules.to_string() };
        match client.call(&ConfigSet(set)) {
            Ok(_) => taken += 1,
            Err(failure) => {
                failed += 1;
                let why = failure.message.unwrap_or_default();
                terminal.say(&format!("left out: {kind} {}: {}", clean_line(&rule), clean_line(&why)))?;
            }
        }
    }
    let has_agents = plan.files.iter().any(|(_, to)| to.parent().is_some_and(|dir| dir.ends_with("agents")));
    for (from, to) in plan.files {
        match copy(&from, &to) {
            Ok(()) => taken += 1,
            Err(error) => {
                failed += 1;
                terminal.say(&format!("left out: {}: {error}", clean_line(&from.display().to_string())))?;
            }
        }
    }
    if !json {
        let things = if taken == 1 { "1 thing was" } else { &format!("{taken} things were") };
        let confirm = if has_agents { ", `linger config confirm` puts agents into force" } else { "" };
        terminal.say(&format!("{things} taken; `linger validate` checks them{confirm}"))?;
    }
    Ok(if failed == 0 { Exit::GOOD } else { Exit::FAILED })
}

/// Copies a file, and never over another one.
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
    fn a_server_is_written_as_a_table_whatever_its_words_are() {
        let server = Server {
            command: Some("npx".to_owned()),
            args: vec!["-y".to_owned(), "a \"b\"\n[mcp.evil]".to_owned()],
            env: [("TOKEN".to_owned(), "${TOKEN}".to_owned())].into(),
            ..Server::default()
        };
        let text = server.toml("x.y\"]");
        let parsed: toml::Table = text.parse().unwrap();
        let mcp = parsed["mcp"].as_table().unwrap();
        assert_eq!(mcp.keys().collect::<Vec<_>>(), ["x.y\"]"]);
        assert_eq!(mcp["x.y\"]"]["args"][1].as_str(), Some("a \"b\"\n[mcp.evil]"));
        assert_eq!(mcp["x.y\"]"]["env"]["TOKEN"].as_str(), Some("${TOKEN}"));
    }

    #[test]
    fn a_server_of_the_same_name_that_runs_something_else_is_another_one() {
        let server = Server { command: Some("npx".to_owned()), args: vec!["docs".to_owned()], ..Server::default() };
        let check = |there: Value, expect| assert_eq!(server.is(&there), expect, "{there}");
        check(json!({ "command": "npx", "args": ["docs"], "env": { "A": "1" } }), true);
        check(json!({ "command": "npx" }), false);
        check(json!({ "command": "other", "args": ["docs"] }), false);
        check(json!({ "url": "https://x.example" }), false);
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
