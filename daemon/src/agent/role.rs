//! Agents: the role of a session, as this program and others write it. Pure.
//!
//! An agent narrows: of the tools that it names those count that exist, of its mode what asks more. What cannot be read of a list
//! is nothing, and never all.

use linger_protocol::agent::{Problem, Role};
use linger_protocol::budget::{self, Budget};
use linger_protocol::permission::Mode;
use linger_protocol::session::Effort;
use serde_json::Value;

use super::entry::Entry;
use super::find::FoundFile;
use super::frontmatter::Page;
use super::others;
use super::skill::is_name;
use crate::provider::schema;
use crate::tool::delegate;
use crate::tool::set::{MCP, Names};
use crate::tool::text;

/// The keys that count here.
const KEYS: [&str; 19] = [
    "name",
    "description",
    "model",
    "effort",
    "mode",
    "tools",
    "mcp",
    "skills",
    "max_steps",
    "budget",
    "response_schema",
    "worktree",
    "prompt",
    "mcpServers",
    "permissionMode",
    "maxTurns",
    "maxSteps",
    "steps",
    "disallowedTools",
];

/// The role of a session: instructions, tools, model and limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Agent {
    /// Its purpose: shown to people, and to models that can delegate to it.
    pub description: Option<String>,
    /// `provider/model`; absent for the session's.
    pub model: Option<String>,
    /// The `provider/model` that the name of another program means: it counts for those that have a key for it.
    pub alias: Option<String>,
    /// How hard its model thinks.
    pub effort: Option<Effort>,
    /// The widest mode that its sessions may have.
    pub mode: Option<Mode>,
    /// The only tools; absent for all.
    pub tools: Option<Vec<String>>,
    /// The only skills; absent for all.
    pub skills: Option<Vec<String>>,
    /// The most steps of a turn.
    pub max_steps: Option<u32>,
    /// The most that its sessions may spend.
    pub budget: Budget,
    /// The JSON Schema of its answers.
    pub response_schema: Option<Value>,
    /// Whether it gets a git worktree of its own when it is delegated to.
    pub worktree: bool,
    /// Whether its text stands in the place of the usual system prompt.
    pub replaces: bool,
    /// Its text for the system prompt.
    pub body: String,
}

impl Agent {
    /// Its mode, tools and limits, for the person who confirms or trusts it.
    pub(super) fn about(&self, name: &str) -> String {
        let list = |names: &Option<Vec<String>>| match names.as_deref() {
            None => "all".to_owned(),
            Some([]) => "none".to_owned(),
            Some(names) => names.join(" "),
        };
        let mode = self.mode.map_or("the session's".to_owned(), |mode| mode.to_string());
        let mut about =
            format!("agent `{name}`: mode {mode}; tools {}; skills {}", list(&self.tools), list(&self.skills));
        let model = self.model.iter().chain(&self.alias).map(|model| format!("; model {model}"));
        about.extend(model);
        about.extend(self.max_steps.map(|steps| format!("; at most {steps} steps")));
        if self.budget != Budget::default() {
            about.push_str(&format!("; spends at most {}", self.budget));
        }
        if self.worktree {
            about.push_str("; works in a git worktree");
        }
        if self.replaces {
            about.push_str("; its text replaces the system prompt");
        }
        about
    }
}

/// Reads an agent. Fails if it cannot be used.
pub(super) fn parse(found: &FoundFile, text: &str, names: &Names) -> (Result<Agent, Problem>, String, Vec<Problem>) {
    let file_name = found.name.clone();
    let mut page = match Page::parse(text) {
        Ok(page) => page,
        Err(problem) => return (Err(problem), file_name, Vec::new()),
    };
    page.check_keys(&KEYS, false);
    let name = match page.text("name") {
        Some(name) if is_name(&name) => name,
        Some(name) => {
            page.wrong(
                "name",
                format!("the name `{}` may have letters, digits, `-`, `_` and `.` alone", text::one_line(&name)),
            );
            file_name
        }
        None => file_name,
    };
    let (model, alias) = model(&mut page);
    let tools = tools(&mut page, names);
    let agent = Agent {
        description: page.text("description"),
        model,
        alias,
        effort: effort(&mut page),
        mode: mode(&mut page),
        tools: servers(&mut page, tools, names),
        skills: page.names("skills"),
        max_steps: steps(&mut page),
        budget: budget(&mut page),
        response_schema: response_schema(&mut page),
        worktree: worktree(&mut page),
        replaces: replaces(&mut page),
        body: page.body.clone(),
    };
    if agent.body.is_empty() && agent.replaces {
        let problem = Problem::error(page.line("prompt"), "`prompt: replace` without a text behind the header");
        return (Err(problem), name, page.problems);
    }
    (Ok(agent), name, page.problems)
}

/// The model that it names, and the one that the name of another program means.
fn model(page: &mut Page) -> (Option<String>, Option<String>) {
    let Some(model) = page.text("model").filter(|model| !others::is_silent(model)) else { return (None, None) };
    let meant = others::model(&model);
    if let Some((written, _)) = model.contains('/').then(|| model.split_once('#').unwrap_or((&model, ""))) {
        // A provider of this name counts before the one that another program calls so.
        let other = meant.filter(|meant| meant != written);
        return (Some(written.trim().to_owned()), other);
    }
    let shown = text::one_line(&model);
    let why = match &meant {
        Some(meant) => {
            format!("`{shown}` is taken for {meant}, where there is a key for it, else the session's own model")
        }
        None => format!("`{shown}` is no `provider/model`; the session's own model is used"),
    };
    page.warn("model", why);
    (None, meant)
}

/// The tools without those of servers that `mcp` does not name.
fn servers(page: &mut Page, tools: Option<Vec<String>>, names: &Names) -> Option<Vec<String>> {
    let key = ["mcp", "mcpServers"].into_iter().find(|key| page.fields.contains_key(*key));
    let Some(key) = key else { return tools };
    let listed = match page.fields.get(key) {
        // Another program's: names, and definitions of servers, which no agent brings here.
        Some(Value::Array(list)) if key == "mcpServers" => {
            let names: Vec<String> = list.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            if names.len() < list.len() {
                page.warn(key, "a server that is defined here is left out: define it in `mcp/NAME.md`, and name it");
            }
            names
        }
        _ => page.names(key).unwrap_or_default(),
    };
    let mut of_servers = Vec::new();
    for name in listed {
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            page.warn(key, format!("`{}` is no name of a server, and is left out", text::one_line(&name)));
            continue;
        }
        of_servers.push(format!("{MCP}{name}__*"));
    }
    let is_of = |tool: &String| of_servers.iter().any(|it| tool.starts_with(it.trim_end_matches('*')));
    let has_own = tools.as_ref().is_some_and(|tools| tools.iter().any(|tool| tool.starts_with(MCP)));
    let all = || names.iter().map(str::to_owned).collect::<Vec<_>>();
    let mut kept: Vec<String> =
        tools.unwrap_or_else(all).into_iter().filter(|tool| !tool.starts_with(MCP) || has_own && is_of(tool)).collect();
    if !has_own {
        kept.extend(of_servers);
    }
    Some(kept)
}

/// `budget: $2`, or a table with `cost`, `tokens`, `time` and `steps`. What cannot be read is the least, and never no limit.
fn budget(page: &mut Page) -> Budget {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let table = match page.fields.get("budget") {
        None | Some(Value::Null) => return Budget::default(),
        Some(Value::Object(table)) => table.iter().map(|(key, value)| (key.clone(), text(value))).collect(),
        Some(value) => vec![("cost".to_owned(), text(value))],
    };
    let mut budget = Budget::default();
    for (key, value) in table {
        let value = value.unwrap_or_default();
        let wrong = match key.as_str() {
            "cost" => set(&mut budget.max_cost_micros, budget::parse_dollars(&value), 1),
            "tokens" => set(&mut budget.max_tokens, budget::parse_tokens(&value), 1),
            "time" => {
                let time = linger_protocol::age::parse(&value).map_err(|error| error.to_string());
                set(&mut budget.max_ms, time, 1)
            }
            "steps" => set(&mut budget.max_steps, value.parse().map_err(|_| "is no number".to_owned()), 1),
            _ => Some(format!("unknown key `{}`: it has cost, tokens, time and steps", text::one_line(&key))),
        };
        if let Some(wrong) = wrong {
            page.wrong("budget", format!("`budget`: {wrong}"));
        }
    }
    budget
}

/// Takes a limit, or the least and why.
fn set<T: Copy + PartialEq + Default>(limit: &mut Option<T>, said: Result<T, String>, least: T) -> Option<String> {
    let (value, wrong) = match said {
        Ok(value) if value == T::default() => (least, Some("a limit is more than nothing".to_owned())),
        Ok(value) => (value, None),
        Err(why) => (least, Some(why)),
    };
    *limit = Some(value);
    wrong
}

fn response_schema(page: &mut Page) -> Option<Value> {
    let written = page.fields.get("response_schema")?.clone();
    let schema = match written {
        Value::String(text) => serde_json::from_str(&text).map_err(|error| error.to_string()),
        other => Ok(other),
    };
    let schema = schema.and_then(|schema| schema::check(&schema).map(|()| schema));
    schema.map_err(|why| page.wrong("response_schema", format!("`response_schema` is not used: {why}"))).ok()
}

fn effort(page: &mut Page) -> Option<Effort> {
    let effort = page.text("effort")?;
    effort.parse::<Effort>().map_err(|error| page.wrong("effort", error.to_string())).ok()
}

/// The stricter of `mode` and `permissionMode`.
fn mode(page: &mut Page) -> Option<Mode> {
    let mut strictest = None;
    for key in ["mode", "permissionMode"] {
        let Some(text) = page.text(key) else { continue };
        let mode = match others::mode(&text).or_else(|| text.parse().ok()) {
            Some(mode) => mode,
            // Of another program: which agents may be called by whom.
            None if others::is_silent(&text) => continue,
            None => {
                page.wrong(key, format!("unknown mode `{}`: ask, edit, auto or plan; it asks", text::one_line(&text)));
                Mode::Ask
            }
        };
        strictest = Some(strictest.map_or(mode, |other| stricter(other, mode)));
    }
    strictest
}

/// The one of two modes that lets less happen.
pub fn stricter(a: Mode, b: Mode) -> Mode {
    let rank = |mode: Mode| match mode {
        Mode::Plan => 0,
        Mode::Ask => 1,
        Mode::Edit => 2,
        Mode::Auto => 3,
    };
    if rank(b) < rank(a) { b } else { a }
}

/// Agents in the list for a model, and characters of each one's purpose, at most.
const TOLD: usize = 64;
const TOLD_OF_EACH: usize = 200;

/// The list of agents for a model that can delegate; empty if there is only the built-in one.
pub fn catalogue(agents: &[Entry<Agent>]) -> String {
    let line = |entry: &Entry<Agent>| {
        let about: String = entry.item.description.iter().flat_map(|about| about.chars()).take(TOLD_OF_EACH).collect();
        let colon = if about.is_empty() { "" } else { ": " };
        format!("- {}{colon}{}\n", entry.name, text::one_line(&about))
    };
    let lines: String = agents.iter().take(TOLD).map(line).collect();
    if lines.is_empty() {
        lines
    } else {
        format!("\nAgents for `{}`, beside `{}`:\n{lines}", delegate::NAME, delegate::GENERAL)
    }
}

fn tools(page: &mut Page, names: &Names) -> Option<Vec<String>> {
    // `Bash(git:*)` is a rule of another program; the tool alone counts.
    let meant = |name: &str| others::tools(name.split('(').next().unwrap_or(name).trim(), names);
    // opencode's earlier form: `tools: {bash: false}` takes some away.
    let table: Option<Vec<(String, bool)>> = page
        .fields
        .get("tools")
        .and_then(Value::as_object)
        .map(|table| table.iter().map(|(name, is)| (name.clone(), is.as_bool().unwrap_or_default())).collect());
    let mut taken: Vec<String> = page.names("disallowedTools").unwrap_or_default();
    let listed = match table {
        Some(table) => {
            taken.extend(table.into_iter().filter(|(_, has)| !has).map(|(name, _)| name));
            None
        }
        None => page.names("tools").filter(|names| !names.iter().any(|name| name == "*")),
    };
    let mut kept: Option<Vec<String>> = None;
    if let Some(listed) = listed {
        let mut tools = Vec::new();
        for name in listed {
            let here = meant(&name);
            if here.is_empty() {
                page.warn("tools", format!("unknown tool `{}`, which is left out", text::one_line(&name)));
            }
            tools.extend(here.into_iter().filter(|tool| !tools.contains(tool)).collect::<Vec<_>>());
        }
        kept = Some(tools);
    }
    if !taken.is_empty() {
        let gone: Vec<String> = taken.iter().flat_map(|name| meant(name)).collect();
        let all = || names.iter().map(str::to_owned).collect();
        kept = Some(kept.unwrap_or_else(all).into_iter().filter(|tool| !gone.contains(tool)).collect());
    }
    kept
}

fn steps(page: &mut Page) -> Option<u32> {
    let key = ["max_steps", "maxSteps", "maxTurns", "steps"].into_iter().find(|key| page.fields.contains_key(*key))?;
    let steps = page.text(key)?.parse().ok().filter(|steps| *steps > 0);
    if steps.is_none() {
        page.wrong(key, format!("`{key}` is not a number from 1"));
    }
    // What cannot be read is the least.
    steps.or(Some(1))
}

fn worktree(page: &mut Page) -> bool {
    match page.text("worktree").as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => {
            page.wrong("worktree", "`worktree` is `true` or `false`; it gets one");
            true
        }
    }
}

fn replaces(page: &mut Page) -> bool {
    match page.text("prompt").as_deref() {
        None | Some("add") => false,
        Some("replace") => true,
        Some(_) => {
            page.wrong("prompt", "`prompt` is `replace` or `add`");
            false
        }
    }
}

impl Entry<Agent> {
    /// As an event names it.
    pub fn role(&self) -> Role {
        Role { name: self.name.clone(), path: self.found.path.clone(), digest: self.found.digest.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::set::ToolSet;

    fn parsed(header: &str) -> (Agent, Vec<String>) {
        let found = FoundFile {
            name: "reviewer".to_owned(),
            path: "/a/reviewer.md".into(),
            real: "/a/reviewer.md".into(),
            within: None,
            digest: String::new(),
            text: Ok(String::new()),
        };
        let set = ToolSet::new(crate::tool::builtin());
        let (agent, _, problems) = parse(&found, &format!("---\n{header}---\nBe strict.\n"), set.names());
        (agent.unwrap(), problems.iter().map(ToString::to_string).collect())
    }

    fn tools_of(header: &str) -> String {
        parsed(header).0.tools.map_or("all".to_owned(), |tools| tools.join(" "))
    }

    #[test]
    fn names_of_other_programs_mean_tools_and_an_unknown_one_is_left_out() {
        assert_eq!(tools_of("description: x\n"), "all");
        assert_eq!(tools_of("tools: Read, Grep, Bash(git:*)\n"), "read grep bash bash_output bash_kill");
        assert_eq!(tools_of("tools: [read, mcp__git__log, web_search]\n"), "read mcp__git__log web_search");
        assert_eq!(tools_of("tools: Frobnicate\n"), "", "never all");
        assert_eq!(tools_of("tools: 7\n"), "");
        assert_eq!(tools_of("tools:\n"), "");
        assert!(!tools_of("tools:\n  bash: false\n").contains("bash"));
        assert!(!tools_of("disallowedTools: Write, Edit\n").split(' ').any(|tool| ["write", "edit"].contains(&tool)));
        assert_eq!(parsed("name: x\ntools: Frobnicate\n").1, ["line 3: unknown tool `Frobnicate`, which is left out"]);
    }

    #[test]
    fn a_mode_is_the_stricter_one() {
        let mode = |header: &str| parsed(header).0.mode;
        assert_eq!(mode("mode: plan\npermissionMode: bypassPermissions\n"), Some(Mode::Plan));
        assert_eq!(mode("permissionMode: acceptEdits\n"), Some(Mode::Edit));
        assert_eq!(mode("mode: subagent\n"), None);
        assert_eq!(mode("mode: everything\n"), Some(Mode::Ask));
        assert_eq!(stricter(Mode::Auto, Mode::Ask), Mode::Ask);
        assert_eq!(stricter(Mode::Plan, Mode::Auto), Mode::Plan);
    }

    #[test]
    fn keys_are_read_and_others_said_with_their_line() {
        let (agent, problems) = parsed("name: r\nmodel: demo/x\nmax_steps: 3\nprompt: replace\ncolor: red\n");
        assert_eq!((agent.model.as_deref(), agent.max_steps, agent.replaces), (Some("demo/x"), Some(3), true));
        assert_eq!(problems, ["line 6: unknown key `color`, which is ignored"]);
        let (agent, problems) = parsed("model: sonnet\n");
        assert_eq!((agent.model, agent.alias.as_deref()), (None, Some("anthropic/claude-sonnet-5")));
        assert_eq!(problems.len(), 1);
        assert_eq!(parsed("model: inherit\n"), parsed(""));
        assert_eq!((parsed("worktree: true\n").0.worktree, parsed("name: r\n").0.worktree), (true, false));
        let (agent, problems) = parsed("worktree: maybe\n");
        assert_eq!((agent.worktree, &*problems[0]), (true, "line 2: `worktree` is `true` or `false`; it gets one"));
        assert_eq!(parsed("max_steps: many\n").0.max_steps, Some(1));
    }
    #[test]
    fn servers_that_are_named_narrow_and_never_add() {
        assert!(tools_of("mcp: [git]\n").ends_with(" mcp__git__*") && tools_of("mcp: [git]\n").contains("bash "));
        assert_eq!(tools_of("tools: Read\nmcp: git\n"), "read mcp__git__*");
        assert_eq!(tools_of("tools: [read, mcp__git__log, mcp__web__get]\nmcp: git\n"), "read mcp__git__log");
        assert!(!tools_of("mcp: []\n").contains("mcp__"));
        assert_eq!(tools_of("tools: Read\nmcpServers:\n  - git\n  - web:\n      command: x\n"), "read mcp__git__*");
    }

    #[test]
    fn a_budget_that_cannot_be_read_is_the_least() {
        let budget = |header: &str| parsed(header).0.budget.to_string();
        assert_eq!(budget("budget: $2\n"), "$2.00");
        assert_eq!(budget("budget: 0.5\n"), "$0.50");
        assert_eq!(
            budget("budget: {cost: 1, tokens: 200k, time: 30m, steps: 9}\n"),
            "$1.00, 200000 tokens, 30m, 9 steps a turn"
        );
        assert_eq!(budget("budget: lots\n"), "$0.000001");
        assert_eq!(budget("budget: 0\n"), "$0.000001");
        assert!(parsed("name: x\nbudget: {cots: 1}\n").1[0].starts_with("line 3: `budget`: unknown key `cots`"));
    }

    #[test]
    fn a_schema_for_answers_is_checked_with_its_line() {
        let (agent, problems) = parsed("response_schema:\n  type: object\n  required: [answer]\n");
        assert_eq!((agent.response_schema.unwrap()["required"][0].as_str(), problems.len()), (Some("answer"), 0));
        let (agent, problems) = parsed("name: r\nresponse_schema: {type: thing}\n");
        assert_eq!(agent.response_schema, None);
        assert!(problems[0].starts_with("line 3: `response_schema` is not used: "), "{problems:?}");
    }
}
