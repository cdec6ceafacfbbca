//! Sets of tools: which there are, found by name, and what models are told of them.
//!
//! A [`ToolSet`] never changes. [`Tools`] holds the one that counts now and can be given another while the daemon runs; a turn
//! takes it between two steps, so that the calls of an answer run with the tools that its request named.
//! Deliberately absent: where tools come from.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use super::{Invalid, Tool, text};
use crate::provider::ToolSpec;
use crate::provider::tools::ToolSpecs;

/// So many names a model is told that called a tool which does not exist.
const NAMED: usize = 40;

/// What a rule's pattern, `tool(pattern)`, means for a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A glob of paths.
    Path,
    /// A command.
    Command,
    /// A host's name or address.
    Host,
    /// Nothing: a rule names the tool alone.
    Nothing,
}

/// What the tools of MCP servers are called: `mcp__server__tool`. They may come after the rules that name them.
pub const MCP: &str = "mcp__";

/// The tools that rules can name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(BTreeMap<String, Takes>);

impl Names {
    /// What a pattern means for the tool, if it is known.
    pub fn takes(&self, tool: &str) -> Option<Takes> {
        let known = self.0.get(tool).copied();
        known.or_else(|| tool.starts_with(MCP).then_some(Takes::Nothing))
    }

    /// A tool whose name differs by one letter or by case.
    pub fn near(&self, tool: &str) -> Option<&str> {
        let tool = tool.to_lowercase();
        self.0.keys().map(String::as_str).find(|known| strsim::levenshtein(known, &tool) <= 1)
    }
}

impl<S: Into<String>> FromIterator<(S, Takes)> for Names {
    fn from_iter<I: IntoIterator<Item = (S, Takes)>>(names: I) -> Self {
        Self(names.into_iter().map(|(name, takes)| (name.into(), takes)).collect())
    }
}

/// Tools in a stable order, each with a name of its own.
pub struct ToolSet {
    tools: Vec<Arc<dyn Tool>>,
    /// Where each is in `tools`.
    by_name: HashMap<String, usize>,
    specs: ToolSpecs,
    names: Names,
}

impl ToolSet {
    /// These tools, in the order in which a model sees them. Of two with one name the first counts.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        let (mut kept, mut by_name): (Vec<Arc<dyn Tool>>, HashMap<String, usize>) = Default::default();
        for tool in tools {
            if by_name.contains_key(tool.name()) {
                tracing::warn!(target: "tool", name = tool.name(), "two tools have one name; the second is left out");
                continue;
            }
            by_name.insert(tool.name().to_owned(), kept.len());
            kept.push(tool);
        }
        let spec = |tool: &Arc<dyn Tool>| ToolSpec {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            input_schema: tool.schema(),
        };
        let specs = ToolSpecs::new(kept.iter().map(spec).collect());
        let names = kept.iter().map(|tool| (tool.name(), tool.pattern())).collect();
        Self { tools: kept, by_name, specs, names }
    }

    /// The tool with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.get(*self.by_name.get(name)?)
    }

    /// The tool with this name, or what a model is told that called one which does not exist, or not any more.
    pub fn find(&self, name: &str) -> Result<&Arc<dyn Tool>, Invalid> {
        self.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
            let near = text::did_you_mean(name, &names);
            let shown = names.get(..NAMED).unwrap_or(&names).join(", ");
            let more = names.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Invalid(format!("there is no tool `{}`{near} (the tools are {shown}{more})", text::one_line(name)))
        })
    }

    /// What models are told of the tools.
    pub fn specs(&self) -> &ToolSpecs {
        &self.specs
    }

    /// The tools that rules can name.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// One after the other.
    pub fn iter(&self) -> std::slice::Iter<'_, Arc<dyn Tool>> {
        self.tools.iter()
    }
}

impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tools.iter().map(|tool| tool.name())).finish()
    }
}

/// The set that counts now; all clones of a [`Tools`] are one.
#[derive(Clone, Debug)]
pub struct Tools(Arc<watch::Sender<Arc<ToolSet>>>);

impl Default for Tools {
    /// The tools that come with the daemon.
    fn default() -> Self {
        Self::new(ToolSet::new(super::builtin()))
    }
}

impl Tools {
    /// Begins with this set.
    pub fn new(set: ToolSet) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(set))))
    }

    /// The set as it is now.
    pub fn current(&self) -> Arc<ToolSet> {
        self.0.borrow().clone()
    }

    /// Every turn takes this set before its next step.
    pub fn replace(&self, set: ToolSet) {
        self.0.send_replace(Arc::new(set));
    }

    /// Hears when the set is replaced.
    pub fn subscribe(&self) -> watch::Receiver<Arc<ToolSet>> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use linger_protocol::message::{ContentBlock, Role};

    use super::super::builtin;
    use super::*;
    use crate::provider::catalogue::{Kind, codec};
    use crate::provider::compat::Compat;
    use crate::provider::support::request;
    use crate::provider::{Encoding, Message, Request};

    #[test]
    fn the_first_request_with_all_tools_of_the_daemon_is_small_in_each_format() {
        let tools = ToolSet::new(builtin());
        let content = vec![ContentBlock::text("hello")];
        let messages = [Message { role: Role::User, content, origin: None }];
        for kind in [Kind::Anthropic, Kind::Openai, Kind::OpenaiResponses, Kind::Gemini, Kind::Ollama] {
            let codec = codec(kind, Compat::NONE).unwrap();
            let system = include_str!("../session/system.md");
            let request = Request { system, tools: tools.specs(), ..request(&messages) };
            let size = Encoding::default().encode(codec.as_ref(), &request).body.len();
            assert!(size < 10 << 10, "{size} bytes: {}", kind.name());
        }
    }

    #[test]
    fn an_unknown_tool_is_answered_with_the_nearest_name() {
        let set = ToolSet::new(builtin());
        let error = set.find("raed").err().unwrap().0;
        assert!(error.starts_with("there is no tool `raed`; did you mean `read`? (the tools are bash, "), "{error}");
        assert_eq!(set.find("grep").unwrap().name(), "grep");
    }

    #[test]
    fn of_two_tools_with_one_name_the_first_counts() {
        let set = ToolSet::new(builtin().into_iter().chain(builtin()));
        assert_eq!(set.specs().digest(), ToolSet::new(builtin()).specs().digest());
        assert_eq!(set.iter().count(), builtin().len());
    }
}
