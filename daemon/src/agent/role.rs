//! Agents: the role of a session, as this program and others write it. Pure.
//!
//! An agent narrows: of the tools that it names those count that exist, of its mode what asks more. What cannot be read of a list
//! is nothing, and never all.

use linger_protocol::agent::Problem;
use linger_protocol::permission::Mode;
use linger_protocol::session::Effort;
use serde_json::Value;

use super::frontmatter::Page;
use super::skill::is_name;
use super::{Entry, Found};
use crate::tool::delegate;
use crate::tool::set::Names;
use crate::tool::skill::NAME as SKILL;
use crate::tool::text;

/// The keys that count here.
const KEYS: [&str; 14] = [
    "name",
    "description",
    "model",
    "effort",
    "mode",
    "tools",
    "skills",
    "max_steps",
    "prompt",
    "permissionMode",
    "maxTurns",
    "maxSteps",
    "steps",
    "disallowedTools",
];

/// Names that other programs give to tools, and what they are here; several where one does the work of more.
const TOOLS: &[(&str, &[&str])] = &[
    ("bash", &["bash", "bash_output", "bash_kill"]),
    ("shell", &["bash", "bash_output", "bash_kill"]),
    ("execute", &["bash", "bash_output", "bash_kill"]),
    ("bashoutput", &["bash_output"]),
    ("killshell", &["bash_kill"]),
    ("read", &["read"]),
    ("view", &["read"]),
    ("notebookread", &["read"]),
    ("write", &["write"]),
    ("edit", &["edit"]),
    ("multiedit", &["edit"]),
    ("patch", &["edit"]),
    ("ls", &["ls"]),
    ("list", &["ls"]),
    ("glob", &["glob"]),
    ("grep", &["grep"]),
    ("search", &["grep", "glob"]),
    ("codebase", &["grep", "glob"]),
    ("webfetch", &["fetch"]),
    ("fetch", &["fetch"]),
    ("websearch", &["web_search"]),
    ("todowrite", &["plan"]),
    ("todoread", &["plan"]),
    ("todo", &["plan"]),
    ("askuserquestion", &["ask_user"]),
    ("skill", &[SKILL]),
    ("task", &[delegate::NAME]),
    ("agent", &[delegate::NAME]),
];

/// Names of other programs for models of one provider; which of them a user has is unknown, so the session's own model stays.
const MODELS: [&str; 3] = ["sonnet", "opus", "haiku"];

/// What other programs call modes.
const MODES: [(&str, Mode); 4] =
    [("default", Mode::Ask), ("acceptEdits", Mode::Edit), ("bypassPermissions", Mode::Auto), ("dontAsk", Mode::Auto)];

/// An agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// What it is for.
    pub description: Option<String>,
    /// `provider/model`; absent for the session's.
    pub model: Option<String>,
    /// How hard its model thinks.
    pub effort: Option<Effort>,
    /// What may run without asking, at most.
    pub mode: Option<Mode>,
    /// The only tools; absent for all.
    pub tools: Option<Vec<String>>,
    /// The only skills; absent for all.
    pub skills: Option<Vec<String>>,
    /// The most steps of a turn.
    pub max_steps: Option<u32>,
    /// Whether its text stands in the place of the usual system prompt.
    pub replaces: bool,
    /// Its text for the system prompt.
    pub body: String,
}

/// Reads an agent. Fails if it cannot be used.
pub(super) fn parse(found: &Found, text: &str, names: &Names) -> (Result<Agent, Problem>, String, Vec<Problem>) {
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
    let agent = Agent {
        description: page.text("description"),
        model: model(&mut page),
        effort: effort(&mut page),
        mode: mode(&mut page),
        tools: tools(&mut page, names),
        skills: page.names("skills"),
        max_steps: steps(&mut page),
        replaces: replaces(&mut page),
        body: page.body.clone(),
    };
    if agent.body.is_empty() && agent.replaces {
        let problem = Problem::error(page.line("prompt"), "`prompt: replace` without a text behind the header");
        return (Err(problem), name, page.problems);
    }
    (Ok(agent), name, page.problems)
}

fn model(page: &mut Page) -> Option<String> {
    let model = page.text("model").filter(|model| model != "inherit")?;
    if MODELS.contains(&model.as_str()) || !model.contains('/') {
        let shown = text::one_line(&model);
        page.warn("model", format!("`{shown}` is no `provider/model`; the session's own model is used"));
        return None;
    }
    Some(model)
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
        let known = MODES.iter().find(|(name, _)| *name == text).map(|(_, mode)| *mode);
        let mode = match known.or_else(|| text.parse().ok()) {
            Some(mode) => mode,
            // Of another program: which agents may be called by whom.
            None if ["primary", "subagent", "all"].contains(&text.as_str()) => continue,
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

/// The most agents that a model is told of, and how much of what each is for, in characters.
const TOLD: usize = 64;
const TOLD_OF_EACH: usize = 200;

/// What a model is told of the agents that it can delegate to; nothing if there is only the one that is always there.
pub fn catalogue(agents: &[Entry<Agent>]) -> String {
    let line = |entry: &Entry<Agent>| {
        let about: String = entry.item.description.iter().flat_map(|about| about.chars()).take(TOLD_OF_EACH).collect();
        let colon = if about.is_empty() { "" } else { ": " };
        format!("- {}{colon}{}\n", entry.name, text::one_line(&about))
    };
    let lines: String = agents.iter().take(TOLD).map(line).collect();
    match lines.is_empty() {
        true => lines,
        false => format!("\nAgents for `{}`, beside `{}`:\n{lines}", delegate::NAME, delegate::GENERAL),
    }
}

fn tools(page: &mut Page, names: &Names) -> Option<Vec<String>> {
    let hosted = linger_protocol::message::HostedTool::ALL.map(linger_protocol::message::HostedTool::name);
    let meant = |name: &str| -> Vec<String> {
        // `Bash(git:*)` is a rule of another program; the tool alone counts.
        let tool = name.split('(').next().unwrap_or(name).trim();
        let plain = tool.to_lowercase().replace(['-', '_'], "");
        let is_known = names.takes(tool).is_some() || hosted.contains(&tool);
        match TOOLS.iter().find(|(other, _)| *other == plain) {
            Some((_, here)) => here.iter().map(|tool| (*tool).to_owned()).collect(),
            None if is_known => vec![tool.to_owned()],
            None => Vec::new(),
        }
    };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::set::ToolSet;

    fn parsed(header: &str) -> (Agent, Vec<String>) {
        let found = Found {
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
        assert_eq!(parsed("model: sonnet\n").0.model, None);
        assert_eq!(parsed("max_steps: many\n").0.max_steps, Some(1));
    }
}
