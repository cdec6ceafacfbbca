//! Rules and decisions on calls, for people.

use linger_protocol::daemon::ToolDecision;
use linger_protocol::permission::{AlwaysRule, Explained};

use super::table::{age, columns};
use crate::terminal::clean_exact_line;

/// A line for each rule that an answer added: its age, the workspace, the rule.
pub(crate) fn listing(rules: &[AlwaysRule], now: u64) -> Vec<String> {
    if rules.is_empty() {
        return vec!["no rules yet; an answer `always` or `never` adds one".to_owned()];
    }
    let row = |row: &AlwaysRule| {
        let age = row.at.map_or_else(|| "-".to_owned(), |at| age(at, now));
        let root = row.workspace.to_string_lossy();
        let denies = if row.refuses { "deny " } else { "" };
        vec![age, clean_exact_line(&root), format!("{denies}{}", clean_exact_line(&row.rule))]
    };
    columns(&rules.iter().map(row).collect::<Vec<_>>())
}

/// The explanation of a call's decision.
pub(crate) fn explained(explained_call: &Explained) -> Vec<String> {
    let Explained { verdict, by, place, mode, cwd, path } = explained_call;
    let word = match verdict {
        ToolDecision::Allow => "runs",
        ToolDecision::Ask => "asks",
        ToolDecision::Deny => "refused",
    };
    let place = place.as_ref().map_or_else(String::new, |place| format!(", {place}"));
    let mut lines = vec![clean_exact_line(&format!("{word}: {by}{place}"))];
    let cwd = cwd.to_string_lossy();
    lines.push(clean_exact_line(&format!("in {cwd}, mode {mode}")));
    if let Some(path) = path {
        lines.push(clean_exact_line(&format!("reaches {}", path.display())));
    }
    lines
}

#[cfg(test)]
mod tests {
    use linger_protocol::permission::Mode;

    use super::*;

    #[test]
    fn rules_and_decisions_are_lines() {
        let rule = |at: Option<u64>, rule: &str| {
            let refuses = at.is_none();
            AlwaysRule { workspace: "/w".into(), rule: rule.to_owned(), refuses, at }
        };
        let rules = [rule(Some(0), "bash(cargo test:*)"), rule(None, "bash(a\u{1b}b)")];
        assert_eq!(listing(&rules, 61_000), ["1 min  /w  bash(cargo test:*)", "-      /w  deny bash(a␛b)"]);
        let explained_call = Explained {
            verdict: ToolDecision::Allow,
            by: "rule bash(cargo test:*)".to_owned(),
            place: Some("permissions.allow of the configuration".to_owned()),
            mode: Mode::Ask,
            cwd: "/w".into(),
            path: None,
        };
        let expect = ["runs: rule bash(cargo test:*), permissions.allow of the configuration", "in /w, mode ask"];
        assert_eq!(explained(&explained_call), expect);
    }
}
