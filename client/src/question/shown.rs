//! The text of a question: its action with every argument, line by line, and how much of a long one is left out.

use linger_protocol::question::Action;
use serde_json::Value;

use crate::render::style::Style;
use crate::terminal::{clean_exact, clean_exact_line, clean_line};

/// Lines of one argument that are shown unasked: its beginning, and its end.
pub(super) const LINES: [usize; 2] = [30, 10];

/// Characters of a line; what is longer is several, so that none runs off the top of the screen.
pub(super) const LINE: usize = 160;

/// Characters of a rule's pattern that are shown where the action stands above it.
const MAX_GRANT: usize = 40;

/// The text of a question: its first line behind the mark, the rest below.
pub(super) fn heading(mark: &str, text: &str) -> String {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let mut out = format!("{mark} {}\n", clean_exact(first));
    if !rest.is_empty() {
        indent(&mut out, rest, [usize::MAX, 0]);
    }
    out
}

/// The parts of an action: its text, and each argument that the text does not repeat.
pub(super) fn parts(Action { tool, action, input, .. }: &Action) -> Vec<String> {
    let said = |name: &str, value: &str| {
        let path = action.strip_prefix(tool).and_then(|rest| rest.strip_prefix(' '));
        value == action || (["path", "url"].contains(&name) && path == Some(value))
    };
    let argument = |(name, value): (&String, &Value)| match value.as_str() {
        Some(text) if said(name, text) => None,
        // Empty text and spaces are visible in quotes only.
        Some(text) if !text.trim().is_empty() => Some(format!("{name}: {text}")),
        _ => Some(format!("{name}: {value}")),
    };
    let arguments = input.as_object().into_iter().flatten().filter_map(argument);
    std::iter::once(action.clone()).chain(arguments).collect()
}

/// The rule that `always` would write; of a long action that stands above it word for word only the beginning.
pub(super) fn short_grant(Action { grant, action, .. }: &Action, style: &Style) -> String {
    let parts = grant.split_once('(').and_then(|(tool, rest)| Some((tool, rest.strip_suffix(')')?)));
    // A `*` at the end widens the rule and is never hidden.
    let repeats = |pattern: &str| action.contains(pattern) && !pattern.ends_with('*');
    match parts {
        Some((tool, pattern)) if pattern.chars().count() > MAX_GRANT && repeats(pattern) => {
            let start: String = pattern.chars().take(MAX_GRANT).collect();
            format!("{}({}{})", clean_line(tool), clean_exact_line(&start), style.ellipsis())
        }
        _ => clean_exact_line(grant),
    }
}

pub(super) fn indent(out: &mut String, text: &str, [head, tail]: [usize; 2]) {
    let text = clean_exact(text);
    let lines = lines(&text);
    let left_out = lines.len().saturating_sub(head.saturating_add(tail));
    for (at, (continues, line)) in lines.iter().enumerate() {
        if left_out > 0 && at == head {
            let lines = if left_out == 1 { "line is" } else { "lines are" };
            out.push_str(&format!("    ({left_out} {lines} not shown)\n"));
        }
        if left_out == 0 || at < head || at >= lines.len() - tail {
            let before = if *continues { "  ~ " } else { "    " };
            out.push_str(&format!("{before}{line}\n"));
        }
    }
}

/// The lines of a text; a long one is split into several.
pub(super) fn lines(text: &str) -> Vec<(bool, &str)> {
    let mut lines = Vec::new();
    for mut line in text.lines() {
        let mut continues = false;
        while let Some((end, _)) = line.char_indices().nth(LINE) {
            let (piece, rest) = line.split_at(end);
            lines.push((continues, piece));
            (continues, line) = (true, rest);
        }
        lines.push((continues, line));
    }
    lines
}
