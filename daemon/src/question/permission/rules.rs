//! The rules of a configuration. Pure. Deliberately absent: what a rule matches, and the decision.

use std::path::PathBuf;

use super::rule::Rule;

/// The configured rules, and the directories that their patterns need.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Calls that never run.
    pub deny: Vec<Rule>,
    /// Calls that always ask.
    pub ask: Vec<Rule>,
    /// Calls that run without asking.
    pub allow: Vec<Rule>,
    /// The meaning of `~/`; if absent, such patterns match nothing.
    pub home: Option<PathBuf>,
    /// linger's own directories and files: mode `edit` asks before it writes there.
    pub own: Vec<PathBuf>,
    /// Whether commands that only read ask too.
    pub ask_reads: bool,
}

impl Rules {
    /// A warning if a rule that comes first leaves nothing for this allow rule.
    pub fn shadow(&self, allowed: &Rule) -> Option<String> {
        let text = allowed.to_string();
        let lists = [("deny", &self.deny), ("ask", &self.ask)];
        let is_all = |rule: &Rule| rule.pattern().is_none() && rule.tool() == allowed.tool();
        let covers = |rule: &&Rule| is_all(rule) || rule.to_string() == text || rule.narrows_all_of(allowed);
        let (list, rule) = lists.iter().find_map(|(name, list)| Some((name, list.iter().find(covers)?)))?;
        Some(format!("`{allowed}` never matches: `{rule}` in {list} comes first"))
    }
}
