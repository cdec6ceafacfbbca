//! The rules that "always" adds for a command line: one for each of its commands.
//!
//! Pure. Only where these rules allow the whole line; any other line has one rule, for exactly its text.

use super::line::{self, Words};
use super::subcommand;

/// Commands of a line that have rules of their own, at most: more is not read before it is allowed.
const MOST: usize = 8;

/// The rules for the commands of a line; `None` if one for exactly the line is better, or the only one.
pub(super) fn of_line(text: &str) -> Option<Vec<String>> {
    let text = line::plain(text);
    let plain = line::plain_parts(text)?;
    if plain.parts.len() > MOST || plain.parts.iter().any(|part| line::evaluates(&part.words)) {
        return None;
    }
    // One command without anything around it is written as it stands, but for those with a rule for all that begin so.
    let is_text = plain.parts.len() == 1 && line::simple_commands(text).is_some();
    let has_start = plain.parts.iter().any(|part| subcommand::of(&part.words).is_some());
    if is_text && !has_start {
        return None;
    }
    let mut rules = Vec::new();
    for part in &plain.parts {
        let rule = rule_for(&part.words);
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    Some(rules)
}

fn rule_for(words: &Words) -> String {
    match subcommand::of(words) {
        Some(start) => format!("bash({start}:*)"),
        None => format!("bash({})", line::quoted(words)),
    }
}
