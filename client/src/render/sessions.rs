//! Sessions as rows, for people.

use linger_protocol::id::SessionId;
use linger_protocol::message::{StopReason, Usage};
use linger_protocol::session::{Background, Info, ProviderWait, State};

use super::markdown::width::{cut, of, of_char};
use super::table::{age, columns, size};
use super::{money, worktree};
use crate::environment::short_path;
use crate::terminal::clean_line;

/// The names of the columns.
const HEADER: [&str; 8] = ["SESSION", "STATE", "CHANGED", "SIZE", "USAGE", "CONTEXT", "TITLE", "DIRECTORY"];

/// The columns that are not cut: the others share what a terminal has left.
const FIXED: usize = 6;

/// Columns that make room for titles on a narrow terminal, the first one first: size, context, usage, age.
const DROPPED: [usize; 4] = [3, 5, 4, 2];

/// The least columns for a title, and for a directory; with less room there is none.
const LEAST: usize = 12;

/// The rows with each child below its parent, and how deep each is; a child whose parent is not there is as deep as others.
fn as_tree(rows: &[Info]) -> Vec<(usize, &Info)> {
    fn add<'a>(rows: &'a [Info], parent: Option<&SessionId>, depth: usize, tree: &mut Vec<(usize, &'a Info)>) {
        for row in rows {
            let above = row.parent.as_ref().filter(|parent| rows.iter().any(|other| other.session == **parent));
            // A row is added once, whatever is said of parents.
            if above == parent && !tree.iter().any(|(_, known)| known.session == row.session) {
                tree.push((depth, row));
                add(rows, Some(&row.session), depth + 1, tree);
            }
        }
    }
    if rows.iter().all(|row| row.parent.is_none()) {
        return rows.iter().map(|row| (0, row)).collect();
    }
    let mut tree = Vec::with_capacity(rows.len());
    add(rows, None, 0, &mut tree);
    tree
}

/// Sessions as aligned lines; `now` in Unix milliseconds.
pub(crate) fn listing(rows: &[Info], now: u64) -> Vec<String> {
    listing_in(rows, now, None)
}

/// As [`listing`]; with a `width` under a header, and cut where they are wider.
pub(crate) fn listing_in(rows: &[Info], now: u64, width: Option<usize>) -> Vec<String> {
    let tree = as_tree(rows);
    let row = |(depth, info): &(usize, &Info)| {
        let title = info.name.clone().or_else(|| info.title.clone()).unwrap_or_default();
        let agent = info.agent.as_ref().or(info.delegated.as_ref().map(|child| &child.agent));
        let agent = agent.map(|agent| format!("[{agent}] ")).unwrap_or_default();
        let branch = if *depth == 0 { String::new() } else { format!("{}└ ", "  ".repeat(depth - 1)) };
        let title = branch + &agent + &title;
        let title: String = title.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).take(40).collect();
        vec![
            info.session.to_string(),
            state(info),
            age(info.updated_at, now),
            size(info.size),
            spent(&info.usage),
            money::fill(info.context_tokens, info.context_window).unwrap_or_default(),
            title,
            short_path(&info.cwd),
        ]
    };
    let cells: Vec<Vec<String>> = tree.iter().map(row).collect();
    let (header, lines) = match width {
        _ if rows.is_empty() => return Vec::new(),
        None => (None, columns(&cells)),
        Some(width) => {
            let header = HEADER.map(str::to_owned).to_vec();
            let mut lines = fitted(std::iter::once(header).chain(cells).collect(), width);
            (Some(lines.remove(0)), lines)
        }
    };
    let below = tree.iter().map(|(_, info)| {
        let wait = info.provider_wait.as_ref().map(|wait| waiting(wait, now));
        let jobs = info.background.iter().map(move |job| background(job, now));
        worktree::row(info).into_iter().chain(wait).chain(jobs)
    });
    let lines = lines.into_iter().zip(below).flat_map(|(line, below)| std::iter::once(line).chain(below));
    header.into_iter().chain(lines).collect()
}

/// Aligned lines that are at most so wide: of the columns some are dropped, titles are cut at their end, directories at their
/// beginning.
fn fitted(mut rows: Vec<Vec<String>>, width: usize) -> Vec<String> {
    let widest = |rows: &[Vec<String>], n: usize| {
        rows.iter().filter_map(|row| row.get(n)).map(|cell| of(cell)).max().unwrap_or_default()
    };
    let (title, directory) = (widest(&rows, FIXED), widest(&rows, FIXED + 1));
    let mut kept: Vec<usize> = (0..FIXED).collect();
    let space = |kept: &[usize]| width.saturating_sub(kept.iter().map(|n| widest(&rows, *n) + 2).sum());
    for dropped in DROPPED {
        if space(&kept) >= (title + 2 + directory).min(2 * LEAST + 2) {
            break;
        }
        kept.retain(|n| *n != dropped);
    }
    let (title, directory) = match space(&kept) {
        space if title + 2 + directory <= space => (title, directory),
        space if space < LEAST => (0, 0),
        space if space < 2 * LEAST + 2 => (space, 0),
        space => {
            let title = title.min((space - 2).saturating_sub(directory).max(space / 2));
            (title, space - 2 - title)
        }
    };
    for row in &mut rows {
        let cells = row.iter().take(FIXED).enumerate().filter(|(n, _)| kept.contains(n)).map(|(_, cell)| cell.clone());
        let of_title = row.get(FIXED).map(|text| beginning(text, title)).unwrap_or_default();
        let of_directory = row.get(FIXED + 1).map(|text| end(text, directory)).unwrap_or_default();
        *row = cells.chain([of_title, of_directory]).collect();
    }
    columns(&rows)
}

/// As much of the beginning as there is room for, and a sign if that is not all.
fn beginning(text: &str, space: usize) -> String {
    match space {
        _ if of(text) <= space => text.to_owned(),
        0 => String::new(),
        space => format!("{}~", cut(text, space - 1)),
    }
}

/// As much of the end as there is room for, behind a sign if that is not all.
fn end(text: &str, space: usize) -> String {
    let over = of(text).saturating_sub(space);
    match space {
        _ if over == 0 => text.to_owned(),
        0 => String::new(),
        _ => {
            let mut gone = 0;
            let rest = text.char_indices().find(|(_, c)| {
                let is_over = gone <= over;
                gone += of_char(*c);
                !is_over
            });
            format!("~{}", rest.and_then(|(at, _)| text.get(at..)).unwrap_or_default())
        }
    }
}

/// A line about a wait for a provider: why, since when, and the next try.
fn waiting(wait: &ProviderWait, now: u64) -> String {
    let reason = clean_line(&wait.reason);
    let next = match wait.until_at.saturating_sub(now) {
        0 => "tries again within 30 s".to_owned(),
        _ => format!("next try in {}", age(now, wait.until_at)),
    };
    format!("  {reason}; waiting for {}, {next}", age(wait.since_at, now))
}

/// A line about a command in the background.
fn background(job: &Background, now: u64) -> String {
    let command: String = clean_line(&job.command).chars().take(60).collect();
    format!("  {}: {command}, in the background for {}", job.background, age(job.started_at, now))
}

/// Tokens and their cost, in one cell.
fn spent(usage: &Usage) -> String {
    if usage.is_uncounted() {
        return money::cost(usage);
    }
    let tokens = money::tokens(usage.input_tokens.saturating_add(usage.output_tokens));
    format!("{tokens} tokens, {}", money::cost(usage))
}

/// The state of a session, in a word or two.
fn state(info: &Info) -> String {
    let mut text = doing(info);
    if info.queued > 0 {
        text += &format!(", {} queued", info.queued);
    }
    if info.drafts > 0 {
        text += &format!(", {} draft{}", info.drafts, if info.drafts == 1 { "" } else { "s" });
    }
    if !info.background.is_empty() {
        text += &format!(", {} in background", info.background.len());
    }
    text
}

fn doing(info: &Info) -> String {
    match (info.state, info.stop_reason) {
        _ if info.damaged.is_some() => "damaged".to_owned(),
        _ if info.unwritten.is_some() => "stalled".to_owned(),
        (State::Running, _) if info.provider_wait.is_some() => "waiting: provider".to_owned(),
        (State::Running, _) => "running".to_owned(),
        (State::Waiting, _) if info.questions.is_empty() => "waiting: key".to_owned(),
        (State::Waiting, _) => format!("waiting: {}", info.questions.len()),
        (State::Offered, _) => "offered".to_owned(),
        (State::Idle, None) => "idle".to_owned(),
        (State::Idle, Some(StopReason::Cancelled)) => "cancelled".to_owned(),
        (State::Idle, Some(StopReason::EndTurn)) => "done".to_owned(),
        (State::Idle, Some(reason)) => {
            let word = match reason {
                StopReason::MaxTokens => "max_tokens",
                StopReason::MaxSteps => "max_steps",
                StopReason::Refusal => "refusal",
                _ => "error",
            };
            format!("failed({word})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_fits_the_terminal_and_has_a_header() {
        let info = |title: &str, cwd: &str| -> Info {
            serde_json::from_value(serde_json::json!({
                "session": "q2tv908jxk", "title": title, "cwd": cwd, "model": "m", "mode": "ask", "state": "idle", "queued": 0,
                "usage": {}, "created_at": 0, "updated_at": 0, "cursor": "", "turn_cursor": ""
            }))
            .unwrap()
        };
        let mut failed = info("日本語の題名は幅が二倍になるので長くなります", "/home/名前/仕事");
        (failed.stop_reason, failed.size, failed.context_tokens, failed.context_window) =
            (Some(StopReason::MaxSteps), 123_456, Some(150_000), Some(200_000));
        failed.usage =
            Usage { input_tokens: 123_000, cost_micros: Some(12_345), cost_at_least: true, ..Usage::default() };
        let long = || info("a title that is rather long and goes on", "/srv/a/long/way/to/the/project");
        for rows in [vec![long(), info("x", "/y")], vec![long(), failed]] {
            for width in [40, 50, 60, 80, 100, 200] {
                let lines = listing_in(&rows, 0, Some(width));
                assert!(lines[0].starts_with("SESSION "), "{lines:#?}");
                assert!(lines.iter().all(|line| of(line) <= width), "{width}: {lines:#?}");
                assert!(width < 50 || lines[1].contains("  a title"), "{width}: {lines:#?}");
                assert!(width < 80 || lines[0].ends_with("DIRECTORY"), "{width}: {lines:#?}");
            }
        }
        let rows = [long(), info("x", "/y")];
        let lines = listing_in(&rows, 0, Some(100));
        assert!(lines[0].contains("SIZE") && lines[1].ends_with("/the/project"), "{lines:#?}");
        assert_eq!(listing(&rows, 0).len(), 2);
        assert!(listing_in(&[], 0, Some(80)).is_empty());
    }
}
