//! Sessions as a tree, and the prompts of one. Pure.

use std::collections::BTreeSet;

use linger_protocol::id::SessionId;
use linger_protocol::session::Info;
use linger_protocol::tree::{PromptRow, Uncompacted};

use super::table::{age, columns};
use crate::terminal::clean_line;

/// The most characters of a prompt that a line quotes.
const QUOTED: usize = 60;

/// The deepest level that is indented: what is below stands in the same column.
const MAX_DEPTH: usize = 8;

/// The sessions in the order of a tree, each with its depth: forks under their origins, children under their parents. A session
/// whose origin is not among the rows is a root; roots keep their order.
pub(crate) fn arrange(rows: &[Info]) -> Vec<(usize, Info)> {
    let ids: BTreeSet<&SessionId> = rows.iter().map(|row| &row.session).collect();
    let above = |row: &Info| {
        let origin = row.origin.as_ref().map(|origin| origin.session.clone()).or_else(|| row.parent.clone());
        origin.filter(|origin| ids.contains(origin) && *origin != row.session)
    };
    let mut placed = Vec::with_capacity(rows.len());
    let mut open: Vec<(usize, &Info)> = rows.iter().filter(|row| above(row).is_none()).map(|row| (0, row)).collect();
    open.reverse();
    while let Some((depth, row)) = open.pop() {
        placed.push((depth, row.clone()));
        let mut below: Vec<&Info> = rows.iter().filter(|other| above(other).as_ref() == Some(&row.session)).collect();
        below.sort_by_key(|row| std::cmp::Reverse(row.created_at));
        open.extend(below.into_iter().map(|row| (depth + 1, row)));
    }
    placed
}

/// The rows of a tree, with titles that show the depth.
pub(crate) fn titled(placed: Vec<(usize, Info)>) -> Vec<Info> {
    let title = |(depth, row): (usize, Info)| {
        let title = row.name.clone().or_else(|| row.title.clone()).unwrap_or_default();
        let indent = if depth == 0 { String::new() } else { format!("{}- ", "  ".repeat(depth.min(MAX_DEPTH) - 1)) };
        Info { name: Some(format!("{indent}{title}")), ..row }
    };
    placed.into_iter().map(title).collect()
}

/// The tree that a session is in: its root, and everything below that.
pub(crate) fn around(rows: &[Info], session: &SessionId) -> Vec<(usize, Info)> {
    let placed = arrange(rows);
    let Some(at) = placed.iter().position(|(_, row)| row.session == *session) else { return Vec::new() };
    let first = placed.get(..=at).unwrap_or_default().iter().rposition(|(depth, _)| *depth == 0).unwrap_or(at);
    let rest = placed.into_iter().skip(first);
    let mut tree: Vec<(usize, Info)> = Vec::new();
    for (depth, row) in rest {
        if depth == 0 && !tree.is_empty() {
            break;
        }
        tree.push((depth, row));
    }
    tree
}

/// The lines of a tree at the prompt, numbered; `here` is marked.
pub(crate) fn numbered(tree: &[(usize, Info)], here: &SessionId, now: u64) -> Vec<String> {
    let row = |(n, (depth, info)): (usize, &(usize, Info))| {
        let mark = if info.session == *here { "*" } else { " " };
        let title = info.name.as_deref().or(info.title.as_deref()).unwrap_or_default();
        let indent = "  ".repeat((*depth).min(MAX_DEPTH));
        let from = match &info.origin {
            Some(origin) => format!("fork of {}", clean_line(origin.session.as_str())),
            None => String::new(),
        };
        vec![
            format!("{mark} {}", n + 1),
            format!("{indent}{}", info.session),
            age(info.updated_at, now),
            quoted(title),
            from,
        ]
    };
    columns(&tree.iter().enumerate().map(row).collect::<Vec<_>>())
}

/// The prompts of a session, a line each; with their numbers in place of their ids.
pub(crate) fn prompts(rows: &[PromptRow], now: u64, by_number: bool) -> Vec<String> {
    let row = |(n, row): (usize, &PromptRow)| {
        let name = if by_number { (n + 1).to_string() } else { row.prompt.to_string() };
        vec![name, age(row.at, now), quoted(&row.text)]
    };
    columns(&rows.iter().enumerate().map(row).collect::<Vec<_>>())
}

/// The line for a session that went back.
pub(crate) fn went_back(text: &str, branch: &SessionId, files: usize) -> Vec<String> {
    let mut lines = vec![format!("went back to before \"{}\"", quoted(text))];
    match files {
        0 => {}
        1 => lines.push("1 file was put back; `linger redo` makes the change again".to_owned()),
        more => lines.push(format!("{more} files were put back; `linger redo` makes the changes again")),
    }
    lines.push(format!("the old branch is session {branch}: `linger attach {branch}`"));
    lines
}

/// The line for a compaction that was taken back.
pub(crate) fn taken_back(taken: &Uncompacted) -> String {
    let Uncompacted { messages, tokens, .. } = taken;
    format!("summary undone: the model reads {messages} messages again, about {tokens} tokens")
}

/// The beginning of a text, in one line.
pub(crate) fn quoted(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let line = clean_line(line.trim());
    if line.chars().count() > QUOTED { line.chars().take(QUOTED - 1).chain(['~']).collect() } else { line.into_owned() }
}

#[cfg(test)]
mod tests {
    use linger_protocol::tree::Origin;
    use serde_json::json;

    use super::*;

    fn row(id: &str, origin: Option<&str>, created_at: u64) -> Info {
        let row = json!({
            "session": id, "cwd": "/", "model": "demo/demo", "mode": "ask", "state": "idle", "queued": 0, "usage": {},
            "created_at": created_at, "updated_at": 0, "cursor": "", "turn_cursor": "",
        });
        let origin = origin.map(|origin| Origin { session: origin.into(), seq: 7 });
        Info { origin, ..serde_json::from_value(row).unwrap() }
    }

    fn check(placed: &[(usize, Info)], expect: &[(usize, &str)]) {
        let got: Vec<_> = placed.iter().map(|(depth, row)| (*depth, row.session.as_str())).collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn forks_stand_under_their_origins_in_the_order_in_which_they_were_made() {
        let rows = [
            row("c", Some("a"), 3),
            row("x", None, 9),
            row("d", Some("b"), 4),
            row("b", Some("a"), 2),
            row("a", None, 1),
            row("lost", Some("removed"), 5),
        ];
        let all = [(0, "x"), (0, "a"), (1, "b"), (2, "d"), (1, "c"), (0, "lost")];
        check(&arrange(&rows), &all);
        check(&around(&rows, &"d".into()), &[(0, "a"), (1, "b"), (2, "d"), (1, "c")]);
        check(&around(&rows, &"x".into()), &[(0, "x")]);
        check(&around(&rows, &"none".into()), &[]);
        assert_eq!(titled(arrange(&rows))[3].name.as_deref(), Some("  - "));
    }

    #[test]
    fn a_cycle_of_damaged_rows_is_no_endless_tree() {
        let rows = [row("a", Some("b"), 1), row("b", Some("a"), 2), row("c", Some("c"), 3)];
        check(&arrange(&rows), &[(0, "c")]);
    }

    #[test]
    fn a_long_prompt_is_cut_and_has_no_control_characters() {
        assert_eq!(quoted("\n  a\u{1b}[2Jb\nmore"), clean_line("a\u{1b}[2Jb"));
        assert_eq!(quoted(&"x".repeat(99)).chars().count(), QUOTED);
    }
}
