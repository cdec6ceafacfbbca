//! Coming back to a session: what happened before, in a screenful. Pure: events in, lines out.
//!
//! The last turns are abridged, a line a tool call; the last answer is shown up to a screen; a line says what lies above.

use std::collections::VecDeque;

use linger_protocol::event::{
    CompactionStarted, Event, EventBody, MessageAdded, Outcome, ToolFinished, ToolStarted, TurnFinished,
};
use linger_protocol::message::{ContentBlock, Role, StopReason, text_of};
use linger_protocol::session::Info;

use super::markdown::width::{cut, hang, of};
use super::markdown::{Layout, Prose};
use super::style::Style;
use super::table::age;
use super::words::reason;
use super::{attached, money};
use crate::terminal::{clean, clean_exact_line, clean_line};

/// Turns that are kept, the last ones: more than any screen has lines for.
const KEPT: usize = 200;

/// Lines of an answer that is not the last one.
const ABRIDGED: usize = 4;

/// The least lines of the last answer.
const LEAST: usize = 5;

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// The space for these lines.
    Lines(usize),
    /// These last turns, whole.
    Turns(usize),
    /// All that is kept.
    All,
}

/// The past of a session, as far as it is shown.
#[derive(Debug, Default)]
pub(crate) struct Back {
    turns: VecDeque<PastTurn>,
    /// How many turns there were.
    count: usize,
    /// How many of them a summary replaces for the model.
    compacted: usize,
    /// Whether there were others before, which were not read.
    is_cut: bool,
}

#[derive(Debug, Default)]
struct PastTurn {
    /// The number of its first event.
    first: u64,
    /// Lines of prompts, tools and answers, in order.
    items: Vec<PastItem>,
    /// How it ended, and what it cost.
    end: Option<(StopReason, String)>,
}

#[derive(Debug)]
enum PastItem {
    Prompt(String),
    Answer(String),
    /// The call, its tool and action, and whether it failed.
    Call(String, String, Option<bool>),
}

impl Back {
    /// A past whose beginning is not read.
    pub(crate) fn of_last_turns() -> Self {
        Self { is_cut: true, ..Self::default() }
    }

    /// Takes the next event.
    pub(crate) fn event(&mut self, event: &Event) {
        match &event.body {
            EventBody::TurnStarted { .. } => {
                self.count += 1;
                if self.turns.len() >= KEPT {
                    self.turns.pop_front();
                }
                self.turns.push_back(PastTurn { first: event.seq.unwrap_or_default(), ..PastTurn::default() });
            }
            EventBody::Rewound(back) => {
                while self.turns.back().is_some_and(|turn| turn.first > back.to) {
                    self.turns.pop_back();
                    self.count = self.count.saturating_sub(1);
                }
            }
            EventBody::Compacted(_) => self.compacted = self.count.saturating_sub(1),
            body => {
                if let Some(turn) = self.turns.back_mut() {
                    turn.event(body);
                }
            }
        }
    }

    /// The lines for a terminal of this width.
    pub(crate) fn lines(&self, info: &Info, layout: Layout, space: &Space, now: u64) -> Vec<String> {
        let (style, width) = (Style { color: layout.color, unicode: layout.unicode }, layout.width);
        if self.turns.is_empty() {
            return Vec::new();
        }
        let label = info.name.clone().unwrap_or_else(|| info.session.to_string());
        let ago = format!("({} ago)", age(info.updated_at, now));
        let room_of_title = width.saturating_sub(label.chars().count() + ago.chars().count() + 2);
        let cut_title = |title: &str| format!(" {}", cut_line(&clean_line(title), room_of_title, style));
        let title = info.title.as_deref().map(cut_title).unwrap_or_default();
        let head = format!("{}{title} {}", style.bold(&clean_line(&label)), style.dim(&ago));
        let mut shown: VecDeque<Vec<String>> = VecDeque::new();
        let mut left = match space {
            // The head, and the line for what lies above.
            Space::Lines(lines) => lines.saturating_sub(2),
            _ => usize::MAX,
        };
        for (n, turn) in self.turns.iter().rev().enumerate() {
            let most = match (space, n) {
                (Space::Turns(turns), n) if n >= *turns => break,
                (Space::Turns(_) | Space::All, _) => usize::MAX,
                (Space::Lines(_), 0) => left.max(LEAST),
                (Space::Lines(_), _) => ABRIDGED,
            };
            let lines = turn.lines(layout, most);
            if n > 0 && lines.len() > left {
                break;
            }
            left = left.saturating_sub(lines.len());
            shown.push_front(lines);
        }
        let above = self.count.saturating_sub(shown.len());
        let above = (above > 0 || self.is_cut).then(|| {
            let turns = match above {
                _ if self.is_cut => "earlier turns".to_owned(),
                1 => "1 earlier turn".to_owned(),
                above => format!("{above} earlier turns"),
            };
            let compacted = match self.compacted.min(above) {
                0 => String::new(),
                some => format!(", {some} compacted"),
            };
            style.dim(&format!("{turns}{compacted}: /log"))
        });
        std::iter::once(head).chain(above).chain(shown.into_iter().flatten()).collect()
    }
}

impl PastTurn {
    fn event(&mut self, body: &EventBody) {
        match body {
            EventBody::CompactionStarted(CompactionStarted { prompt: Some(_), .. }) if self.items.is_empty() => {
                self.items.push(PastItem::Prompt("/compact".to_owned()));
            }
            EventBody::Message(MessageAdded { role: Role::User, content, prompt: Some(_), .. }) => {
                self.items.push(PastItem::Prompt(attached::shown(content).0));
            }
            EventBody::Message(MessageAdded { role: Role::Assistant, content, interrupted: false, .. }) => {
                let text = text_of(content);
                if !text.trim().is_empty() {
                    self.items.push(PastItem::Answer(text));
                }
                for block in content {
                    if let ContentBlock::ToolUse { call_id, name, .. } = block {
                        self.items.push(PastItem::Call(call_id.to_string(), name.clone(), None));
                    }
                }
            }
            EventBody::ToolStarted(ToolStarted { call_id, tool, action, .. }) => {
                let text = match action.strip_prefix(tool.as_str()) {
                    Some(rest) if rest.starts_with(' ') => action.clone(),
                    _ => format!("{tool} {action}"),
                };
                self.call(call_id.as_str(), |call, _| *call = text);
            }
            EventBody::ToolFinished(ToolFinished { call_id, is_error, outcome, .. }) => {
                let good = *outcome == Outcome::Ran && !is_error;
                self.call(call_id.as_str(), |_, end| *end = Some(good));
            }
            EventBody::TurnFinished(TurnFinished { stop_reason, usage, .. }) => {
                let cost = money::cost(usage);
                let spent = money::traffic(usage);
                let cost = if cost.is_empty() { spent } else { format!("{spent}, {cost}") };
                self.end = Some((*stop_reason, cost));
            }
            _ => {}
        }
    }

    fn call(&mut self, id: &str, change: impl FnOnce(&mut String, &mut Option<bool>)) {
        let found = self.items.iter_mut().rev().find_map(|item| match item {
            PastItem::Call(call, text, end) if call == id => Some((text, end)),
            _ => None,
        });
        if let Some((text, end)) = found {
            change(text, end);
        }
    }

    /// Its lines, about `most` of them: the prompt, the calls, and as much of the answer as there is room for.
    fn lines(&self, layout: Layout, most: usize) -> Vec<String> {
        let (style, width) = (Style { color: layout.color, unicode: layout.unicode }, layout.width);
        let mut lines: Vec<String> = Vec::new();
        let last_answer = self.items.iter().rposition(|item| matches!(item, PastItem::Answer(_)));
        for (n, item) in self.items.iter().enumerate() {
            match item {
                PastItem::Prompt(text) => {
                    let space = if most == usize::MAX { most } else { 2 };
                    let cut = first_rows(wrapped(text, width.saturating_sub(2)), space, style);
                    let line =
                        |(n, line): (usize, String)| style.cyan(&format!("{}{line}", if n == 0 { "> " } else { "  " }));
                    lines.extend(cut.into_iter().enumerate().map(line));
                }
                PastItem::Call(_, text, end) => {
                    let sign = match end {
                        Some(true) => format!(" {}", style.good()),
                        Some(false) => format!(" {}", style.bad()),
                        None => String::new(),
                    };
                    let first = text.lines().next().unwrap_or_default();
                    let cut = cut_line(&clean_exact_line(first), width.saturating_sub(12), style);
                    lines.push(format!("{} {cut}{sign}", style.bullet()));
                }
                PastItem::Answer(text) => {
                    let space = if Some(n) == last_answer {
                        most.saturating_sub(lines.len()).max(LEAST.min(most))
                    } else if most == usize::MAX {
                        most
                    } else {
                        // Text between two calls.
                        1
                    };
                    // A row that may be cut has no colours.
                    let rows = draw(text, Layout { color: layout.color && space > 1, ..layout });
                    lines.extend(last_rows(rows, space, width, style, "  "));
                }
            }
        }
        if most != usize::MAX && lines.len() > most {
            lines = without_middle(lines, most, style);
        }
        if let Some((stop_reason, cost)) = &self.end {
            match stop_reason {
                StopReason::EndTurn if most == ABRIDGED => {}
                StopReason::EndTurn => lines.push(style.dim(cost)),
                other => lines.push(style.dim(reason(*other))),
            }
        }
        lines
    }
}

/// The prompt and the end of a long turn; a line says how much is between.
fn without_middle(lines: Vec<String>, most: usize, style: Style) -> Vec<String> {
    let over = lines.len().saturating_sub(most.max(3)) + 1;
    let gone = style.dim(&format!("  {} {over} more lines", style.ellipsis()));
    let (first, rest) = lines.split_at(1);
    first.iter().cloned().chain([gone]).chain(rest.iter().skip(over).cloned()).collect()
}

/// The rows of a model's text, as they were drawn when it came; none begins in the first column.
fn draw(text: &str, layout: Layout) -> Vec<String> {
    let mut prose = Prose::new(layout);
    let rows = prose.push(&clean(text.trim())) + &prose.end();
    rows.lines().map(str::to_owned).collect()
}

/// The rows of a text.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let text = clean(text.trim());
    let rows = |line: &str| {
        if line.is_empty() { vec![String::new()] } else { hang(line, width).lines().map(str::to_owned).collect() }
    };
    text.lines().flat_map(rows).collect()
}

/// The first rows, as far as there is room, and a line for what is left out.
fn first_rows(mut rows: Vec<String>, space: usize, style: Style) -> Vec<String> {
    if rows.len() > space {
        let gone = rows.split_off(space.saturating_sub(1)).len();
        rows.push(style.dim(&format!("{} {gone} more lines", style.ellipsis())));
    }
    rows
}

/// The last rows, as far as there is room, and a line for what is left out.
fn last_rows(rows: Vec<String>, space: usize, width: usize, style: Style, indent: &str) -> Vec<String> {
    if rows.len() <= space {
        return rows;
    }
    if space <= 1 {
        let first = rows.first().map(String::as_str).unwrap_or_default();
        return vec![cut_line(&format!("{first} {}", style.ellipsis()), width, style)];
    }
    let gone = rows.len() - (space - 1);
    let above = style.dim(&format!("{indent}{} {gone} more lines", style.ellipsis()));
    std::iter::once(above).chain(rows.into_iter().skip(gone)).collect()
}

/// The beginning of a line that fits.
fn cut_line(line: &str, width: usize, style: Style) -> String {
    if of(line) > width { cut(line, width.saturating_sub(1)).to_owned() + style.ellipsis() } else { line.to_owned() }
}

#[cfg(test)]
mod tests {
    use linger_protocol::event::Notification;
    use serde_json::json;

    use super::*;

    fn event(body: serde_json::Value) -> Event {
        let notification = json!({ "session": "s1", "cursor": "1", "event": body });
        serde_json::from_value::<Notification>(notification).unwrap().event
    }

    fn past(turns: usize, answer: &str) -> Back {
        let mut back = Back::default();
        for n in 1..=turns {
            for body in [
                json!({ "kind": "turn_started", "prompt": "p1" }),
                json!({ "kind": "message", "message": "m1", "role": "user", "prompt": "p1", "content": [{ "type": "text", "text": format!("prompt {n}") }] }),
                json!({ "kind": "message", "message": "m2", "role": "assistant", "content": [{ "type": "tool_use", "call_id": "c1", "name": "bash", "input": {} }] }),
                json!({ "kind": "tool_started", "call_id": "c1", "tool": "bash", "action": "bash cargo test\nsecond line" }),
                json!({ "kind": "tool_finished", "call_id": "c1", "is_error": true, "outcome": "ran", "content": [], "ms": 3 }),
                json!({ "kind": "message", "message": "m3", "role": "assistant", "content": [{ "type": "text", "text": answer }] }),
                json!({ "kind": "turn_finished", "stop_reason": "end_turn", "usage": {}, "steps": 1 }),
            ] {
                back.event(&event(body));
            }
        }
        back
    }

    fn shown(back: &Back, space: Space) -> Vec<String> {
        let info: Info = serde_json::from_value(json!({
            "session": "q2tv908jxk", "name": "long", "cwd": "/", "model": "m", "mode": "ask", "state": "idle", "queued": 0,
            "title": "prompt 1", "usage": {}, "created_at": 0, "updated_at": 0, "cursor": "9", "turn_cursor": "1"
        }))
        .unwrap();
        let layout = Layout { width: 80, markdown: true, color: false, unicode: true, dim: false };
        back.lines(&info, layout, &space, 7_200_000)
    }

    #[test]
    fn a_screenful_has_the_last_turns_and_says_what_lies_above() {
        let lines = shown(&past(44, "done"), Space::Lines(12));
        assert_eq!(lines[..2], ["long prompt 1 (2 h ago)", "41 earlier turns: /log"]);
        assert_eq!(lines[2..5], ["> prompt 42", "• bash cargo test ✗", "  done"]);
        assert!(lines.len() <= 12, "{lines:#?}");
        assert_eq!(shown(&past(3, "done"), Space::Turns(1))[1], "2 earlier turns: /log");
        assert_eq!(shown(&past(3, "done"), Space::All).iter().filter(|line| line.starts_with("> ")).count(), 3);
        assert!(shown(&Back::default(), Space::All).is_empty());
    }

    #[test]
    fn a_long_last_answer_is_shown_up_to_a_screen_and_cannot_steer_the_terminal() {
        let answer = (1..=5000).map(|n| format!("line {n} \u{1b}[31m")).collect::<Vec<_>>().join("\n");
        let lines = shown(&past(2, &answer), Space::Lines(20));
        assert!(lines.len() <= 22, "{}", lines.len());
        assert!(lines.iter().any(|line| line.ends_with("more lines")));
        assert!(lines.iter().rev().nth(1).unwrap().starts_with("  line 5000"), "{lines:#?}");
        assert!(!lines.concat().contains('\u{1b}'));
    }

    #[test]
    fn a_long_prompt_is_known_by_its_beginning() {
        let prompt = |text: &str| {
            let mut back = Back::default();
            back.event(&event(json!({ "kind": "turn_started", "prompt": "p1" })));
            back.event(&event(json!({ "kind": "message", "message": "m1", "role": "user", "prompt": "p1", "content": [{ "type": "text", "text": text }] })));
            shown(&back, Space::Lines(20)).split_off(1)
        };
        assert_eq!(prompt("one\ntwo"), ["> one", "  two"]);
        assert_eq!(prompt("one\ntwo\nthree"), ["> one", "  … 2 more lines"]);
    }

    #[test]
    fn a_compaction_is_a_turn_of_its_own_whose_end_is_not_that_of_the_turn_before() {
        let mut back = past(1, "done");
        for body in [
            json!({ "kind": "turn_started", "prompt": "p2" }),
            json!({ "kind": "compaction_started", "prompt": "p2", "trigger": "asked", "through": "m3", "messages": 3, "tokens": 9 }),
            json!({ "kind": "turn_finished", "stop_reason": "error", "usage": {}, "steps": 0 }),
        ] {
            back.event(&event(body));
        }
        let lines = shown(&back, Space::Lines(20));
        assert_eq!(lines[lines.len() - 3..], ["  done", "> /compact", "failed"]);
    }

    #[test]
    fn a_past_whose_beginning_was_not_read_says_that_there_is_more() {
        let mut back = past(1, "done");
        back.is_cut = true;
        assert_eq!(shown(&back, Space::Lines(20))[1..3], ["earlier turns: /log", "> prompt 1"]);
    }

    #[test]
    fn an_answer_is_drawn_as_it_was_when_it_came() {
        let answer = "## Done\n\nI fixed `f` in **one** place:\n\n- the first\n- the second";
        let lines = shown(&past(1, answer), Space::Lines(20));
        assert_eq!(lines[3..9], ["  Done", "", "  I fixed f in one place:", "", "  - the first", "  - the second"]);
    }
}
