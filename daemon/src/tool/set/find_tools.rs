//! `find_tools`: finds tools whose schemas are not in the request, because those of MCP servers would take too much of it.
//!
//! Deliberately absent: calling them (`call_tool`).

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use linger_protocol::event::ToolKind;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tool::access::Effects;
use crate::tool::invalid::Invalid;
use crate::tool::names::MCP;
use crate::tool::types::{BoxFuture, Call, Context, Tool, ToolOutput};
use crate::tool::workspace::Workspace;
use crate::tool::{args, text};

/// The most tools that one search gives.
const FOUND: usize = 10;

/// The most words of a query that count: a paragraph.
const MAX_WORDS: usize = 32;

/// The most of a description that is shown, in bytes: some lines.
const MAX_ABOUT: usize = 1 << 10;

/// The tools after the first are shown with their schemas up to this size of all together, in bytes: about 8,000 tokens.
const MAX_SCHEMAS: usize = 32 << 10;

pub(super) struct FindTools {
    tools: Arc<Vec<Arc<dyn Tool>>>,
    description: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    query: String,
}

impl FindTools {
    /// Finds these tools. What models are told of it names the servers and not the tools, which come and go.
    pub(super) fn new(tools: Vec<Arc<dyn Tool>>) -> Self {
        let servers: Vec<String> = servers(&tools).into_keys().collect();
        let description = format!("{}The servers: {}.", include_str!("find_tools.md"), servers.join(", "));
        Self { tools: Arc::new(tools), description }
    }
}

impl Tool for FindTools {
    fn name(&self) -> &str {
        "find_tools"
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn schema(&self) -> Value {
        let query = json!({ "type": "string", "description": "words of what the tool does, or its name" });
        json!({ "type": "object", "properties": { "query": query }, "required": ["query"] })
    }

    fn changes(&self) -> bool {
        false
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Search
    }

    fn prepare(&self, input: &Value, _: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { query } = args::parse(input)?;
        if words(&query).is_empty() {
            Err(Invalid("`query` has no words".to_owned()))
        } else {
            Ok(Box::new(Find { tools: self.tools.clone(), query }))
        }
    }
}

struct Find {
    tools: Arc<Vec<Arc<dyn Tool>>>,
    query: String,
}

impl Call for Find {
    fn action(&self) -> String {
        format!("find tools: {}", text::one_line(&self.query))
    }

    fn effects(&self) -> Effects {
        Effects::nothing()
    }

    fn run(self: Box<Self>, _: Context) -> BoxFuture<'static, ToolOutput> {
        let found = find(&self.tools, &self.query);
        let said = if found.is_empty() { none(&self.tools) } else { shown(&found) };
        Box::pin(std::future::ready(ToolOutput::text(said)))
    }
}

/// How many tools each server has.
fn servers(tools: &[Arc<dyn Tool>]) -> BTreeMap<String, usize> {
    let mut servers = BTreeMap::new();
    for server in tools.iter().filter_map(|tool| tool.server()) {
        *servers.entry(server.to_owned()).or_default() += 1;
    }
    servers
}

/// The words of a text, in lower case; those of one letter say nothing.
fn words(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| !c.is_alphanumeric()).filter(|part| part.chars().count() > 1);
    parts.map(str::to_lowercase).take(MAX_WORDS).collect()
}

/// The tools that fit best, the best first. A word counts more in a name than in a description, and more if few tools have it.
fn find<'a>(tools: &'a [Arc<dyn Tool>], query: &str) -> Vec<&'a Arc<dyn Tool>> {
    struct IndexedTool {
        name: Vec<String>,
        about: HashSet<String>,
    }
    let is_like = |one: &str, other: &str| {
        let short = one.len().min(other.len());
        one == other || (short >= 3 && (one.starts_with(other) || other.starts_with(one)))
    };
    let known = |tool: &Arc<dyn Tool>| {
        let about = tool.description().split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase).collect();
        IndexedTool { name: words(tool.name().trim_start_matches(MCP)), about }
    };
    let all: Vec<IndexedTool> = tools.iter().map(known).collect();
    let mut scores = vec![0.0_f64; tools.len()];
    for word in words(query) {
        let fits = |known: &IndexedTool| {
            let in_name = known.name.iter().any(|part| part.contains(&word) || is_like(part, &word));
            let in_about = known.about.contains(&word) || known.about.iter().any(|part| is_like(part, &word));
            f64::from(u8::from(in_name)) * 3.0 + f64::from(u8::from(in_about))
        };
        let each: Vec<f64> = all.iter().map(fits).collect();
        let having = each.iter().filter(|fit| **fit > 0.0).count().max(1);
        let rarity = (1.0 + tools.len() as f64 / having as f64).ln();
        scores.iter_mut().zip(each).for_each(|(score, fit)| *score += fit * rarity);
    }
    let mut ranked: Vec<(f64, &Arc<dyn Tool>)> = scores.into_iter().zip(tools).collect();
    for (score, tool) in &mut ranked {
        if tool.name() == query.trim() {
            *score = f64::MAX;
        }
    }
    ranked.retain(|(score, _)| *score > 0.0);
    // Stable: of two that fit the same the first in the set comes first.
    ranked.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    ranked.into_iter().take(FOUND).map(|(_, tool)| tool).collect()
}

/// The result for a model: each tool with its description and schema.
fn shown(found: &[&Arc<dyn Tool>]) -> String {
    let mut said = String::new();
    for tool in found {
        let schema = tool.schema().to_string();
        let about = text::head(tool.description(), MAX_ABOUT);
        let input = if said.is_empty() || said.len() + schema.len() <= MAX_SCHEMAS {
            format!("input: {schema}")
        } else {
            "input: left out for its size; find it by its name alone".to_owned()
        };
        // Writing to a string does not fail.
        let _ = write!(said, "{}\n{about}\n{input}\n\n", tool.name());
    }
    said.truncate(said.trim_end().len());
    said
}

/// The result for a model if no tool fits.
fn none(tools: &[Arc<dyn Tool>]) -> String {
    let servers = servers(tools).into_iter();
    let servers = servers.map(|(server, count)| format!("{server} ({count} tools)")).collect::<Vec<_>>();
    format!("no tool fits; try other words. The servers: {}", servers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::tests::served;

    fn tools() -> Vec<Arc<dyn Tool>> {
        let all = [
            ("mcp__git__git_log", "Shows the commit logs"),
            ("mcp__git__git_commit", "Records changes to the repository"),
            ("mcp__files__read_file", "Reads a file of the disk"),
            ("mcp__files__list", "Lists the files of a directory"),
        ];
        all.map(|(name, about)| served(name, about)).into()
    }

    fn names(query: &str) -> Vec<String> {
        find(&tools(), query).iter().map(|tool| tool.name().trim_start_matches(MCP).to_owned()).collect()
    }

    #[test]
    fn the_tool_that_fits_best_comes_first() {
        assert_eq!(
            names("show the log of commits"),
            ["git__git_log", "git__git_commit", "files__read_file", "files__list"]
        );
        assert_eq!(names("read file")[0], "files__read_file");
        assert_eq!(names("mcp__files__list")[0], "files__list");
        assert!(names("weather").is_empty());
        assert!(words("a ? b").is_empty());
    }

    #[test]
    fn what_is_found_is_bounded() {
        let long = "x".repeat(3 * MAX_ABOUT);
        let tools: Vec<Arc<dyn Tool>> =
            (0..100).map(|n| served(&format!("mcp__big__tool{n}"), &format!("big {long}"))).collect();
        let found = find(&tools, "big");
        assert_eq!(found.len(), FOUND);
        assert!(shown(&found).len() < MAX_SCHEMAS + FOUND * 2 * MAX_ABOUT);
        assert!(FindTools::new(tools).description().ends_with("The servers: big."));
    }
}
