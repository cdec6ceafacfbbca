//! Names of tools as rules see them, and what a rule's pattern means for each.

use std::collections::BTreeMap;

/// The prefix of tools of MCP servers: `mcp__server__tool`. Rules may name them before they exist, like [`PROGRAM_PREFIX`].
pub const MCP: &str = "mcp__";

/// The prefix of tools that Markdown files describe, so that none is taken for a tool of the daemon's own, now or later.
pub const PROGRAM_PREFIX: &str = "tool__";

/// The meaning of a rule's pattern, `tool(pattern)`, for a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A glob of paths.
    Path,
    /// A command, or its first words.
    Command,
    /// The arguments of the program that has the tool's name.
    Arguments,
    /// A host's name or address.
    Host,
    /// The version of a tool that was permitted: `#` and hexadecimal digits.
    Version,
    /// No pattern is possible: a rule names the tool alone.
    Nothing,
}

/// The tools that rules can name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(BTreeMap<String, Takes>);

impl Names {
    /// The meaning of a pattern for the tool; absent if the tool is unknown.
    pub fn takes(&self, tool: &str) -> Option<Takes> {
        let known = self.0.get(tool).copied();
        known.or_else(|| [MCP, PROGRAM_PREFIX].iter().any(|it| tool.starts_with(it)).then_some(Takes::Version))
    }

    /// All names, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
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
