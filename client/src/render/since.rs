//! The events in a session since a person left it: one block, from its log alone. Pure: events in, lines out.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use linger_protocol::attention::LastRead;
use linger_protocol::event::{
    ChangeKind, Event, EventBody, FileChange, Outcome, PermissionRequested, PermissionResolved, QuestionResolved,
    ToolFinished, ToolKind, ToolStarted, TurnFinished,
};
use linger_protocol::message::{StopReason, Usage};
use linger_protocol::permission::Decision;

use super::money;
use super::style::Style;
use super::table::age;
use super::words::{decision_text, reason};
use crate::terminal::{clean_exact_line, clean_line, cut};

/// Lines of each kind that are shown; a longer list says how many more there are.
const SHOWN: usize = 5;

/// The changes since a person left.
#[derive(Debug)]
pub(crate) struct Since {
    left: LastRead,
    turns: usize,
    /// How turns ended that did not end well.
    ends: Vec<StopReason>,
    usage: Usage,
    files: Vec<ChangedFile>,
    /// Calls that run, with what they do.
    running: HashMap<String, (ToolKind, String)>,
    failed: Vec<String>,
    /// Questions without an answer, with what they ask; of calls that were asked about before, too.
    asked: HashMap<String, String>,
    answered: Vec<String>,
}

#[derive(Debug)]
struct ChangedFile {
    path: PathBuf,
    kind: ChangeKind,
    added: usize,
    removed: usize,
}

impl Since {
    /// Since that moment.
    pub(crate) fn new(left: LastRead) -> Self {
        let (ends, files, failed, answered) = Default::default();
        let (running, asked) = Default::default();
        Self { left, turns: 0, ends, usage: Usage::default(), files, running, failed, asked, answered }
    }

    /// Takes the next event.
    pub(crate) fn event(&mut self, event: &Event) {
        let is_new = event.seq.is_some_and(|seq| seq > self.left.seq);
        match &event.body {
            EventBody::ToolStarted(ToolStarted { call_id, tool_kind, action, .. }) => {
                self.running.insert(call_id.to_string(), (*tool_kind, action.clone()));
            }
            EventBody::ToolFinished(ToolFinished { call_id, is_error, outcome, diff, changes, exit, .. }) => {
                let call = self.running.remove(call_id.as_str());
                if !is_new {
                    return;
                }
                self.changed(changes, diff.as_deref());
                let Some((ToolKind::Execute, action)) = call else { return };
                if *is_error && *outcome == Outcome::Ran {
                    let code = exit.as_ref().and_then(|exit| exit.code).map(|code| format!(" (exit code {code})"));
                    self.failed.push(format!("{}{}", first_line(&action), code.unwrap_or_default()));
                }
            }
            EventBody::PermissionRequested(PermissionRequested { permission, action, .. }) => {
                self.asked.insert(permission.to_string(), action.clone());
            }
            EventBody::QuestionAsked { question, asked } => {
                self.asked.insert(question.to_string(), asked.text.clone());
            }
            EventBody::PermissionResolved(PermissionResolved { permission, decision, by, .. }) => {
                let answer = (*decision != Decision::Cancelled).then(|| decision_text(*decision));
                self.say_answer(permission.as_str(), answer, by, is_new);
            }
            EventBody::QuestionResolved(QuestionResolved { question, answer, by, .. }) => {
                self.say_answer(question.as_str(), answer.as_deref(), by, is_new);
            }
            EventBody::TurnFinished(TurnFinished { stop_reason, usage, .. }) if is_new => {
                self.turns += 1;
                self.usage += *usage;
                if *stop_reason != StopReason::EndTurn {
                    self.ends.push(*stop_reason);
                }
            }
            _ => {}
        }
    }

    fn changed(&mut self, changes: &[FileChange], diff: Option<&str>) {
        // The lines of a difference belong to its only file.
        let lines = |sign: char| {
            let body = diff.filter(|_| changes.len() == 1).unwrap_or_default().lines().skip(2);
            body.filter(|line| line.starts_with(sign)).count()
        };
        for FileChange { path, kind, .. } in changes {
            let (added, removed) = (lines('+'), lines('-'));
            match self.files.iter_mut().find(|file| file.path == *path) {
                Some(file) => {
                    (file.added, file.removed) = (file.added + added, file.removed + removed);
                    // A file that was made and then changed was made.
                    if !(file.kind == ChangeKind::Create && *kind == ChangeKind::Edit) {
                        file.kind = *kind;
                    }
                }
                None => self.files.push(ChangedFile { path: path.clone(), kind: *kind, added, removed }),
            }
        }
    }

    fn say_answer(&mut self, id: &str, answer: Option<&str>, by: &str, is_new: bool) {
        let asked = self.asked.remove(id).unwrap_or_default();
        if let Some(answer) = answer.filter(|_| is_new) {
            self.answered.push(format!("{}: {} by {}", first_line(&asked), clean_line(answer), clean_line(by)));
        }
    }

    /// The block for a terminal of this width; no lines if no turn has ended and no question was answered.
    pub(crate) fn lines(&self, cwd: &Path, style: Style, width: usize, now: u64) -> Vec<String> {
        if self.turns == 0 && self.answered.is_empty() && self.files.is_empty() {
            return Vec::new();
        }
        let mut head = format!("since you left {} ago: {}", age(self.left.at, now), counted(self.turns, "turn"));
        let mut ends: Vec<(&str, usize)> = Vec::new();
        for end in self.ends.iter().map(|end| reason(*end)) {
            match ends.iter_mut().find(|(known, _)| *known == end) {
                Some((_, count)) => *count += 1,
                None => ends.push((end, 1)),
            }
        }
        if !ends.is_empty() {
            let ends: Vec<String> = ends.iter().map(|(end, count)| format!("{count} {end}")).collect();
            head += &format!(" ({})", ends.join(", "));
        }
        let cost = money::cost(&self.usage);
        if !cost.is_empty() {
            head += &format!(", {cost}");
        }
        let mut lines = vec![style.bold(&head)];
        let minus = if style.unicode { "\u{2212}" } else { "-" };
        let file = |file: &ChangedFile| {
            let path = file.path.strip_prefix(cwd).unwrap_or(&file.path).display().to_string();
            let kind = match file.kind {
                ChangeKind::Create => " (new)",
                ChangeKind::Delete => " (deleted)",
                _ => "",
            };
            format!("{} +{} {minus}{}{kind}", clean_exact_line(&path), file.added, file.removed)
        };
        let files: Vec<String> = self.files.iter().map(file).collect();
        let failed: Vec<String> = self.failed.iter().map(|line| format!("failed: {line}")).collect();
        for (list, noun) in [(&files, "file"), (&failed, "failed command"), (&self.answered, "answered question")] {
            // The latest ones tell how it stands.
            let over = list.len().saturating_sub(SHOWN);
            if over > 0 {
                lines.push(style.dim(&format!("  {} more", counted(over, noun))));
            }
            let space = width.saturating_sub(3);
            lines.extend(list.iter().skip(over).map(|line| format!("  {}", cut(line, space))));
        }
        lines
    }
}

fn first_line(text: &str) -> String {
    clean_exact_line(text.lines().next().unwrap_or_default())
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use linger_protocol::event::Notification;
    use serde_json::{Value, json};

    use super::*;

    fn shown(events: &[Value]) -> Vec<String> {
        let left = LastRead { seq: 2, at: 0, ..LastRead::default() };
        let mut since = Since::new(left);
        for (n, body) in events.iter().enumerate() {
            let mut body = body.clone();
            body["seq"] = (n + 1).into();
            let notification = json!({ "session": "s1", "cursor": "1", "event": body });
            since.event(&serde_json::from_value::<Notification>(notification).unwrap().event);
        }
        since.lines(Path::new("/p"), Style { color: false, unicode: true }, 60, 7_200_000)
    }

    fn finished(call: &str, more: Value) -> Value {
        let mut body = json!({
            "kind": "tool_finished", "call_id": call, "is_error": false, "outcome": "ran", "content": [], "ms": 3
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    }

    #[test]
    fn turns_files_failures_answers_and_cost_are_one_block() {
        let ended = |why: &str| json!({ "kind": "turn_finished", "stop_reason": why, "usage": { "cost_micros": 250_000 }, "steps": 1 });
        let edit = |kind: &str, diff: &str| {
            let changes = json!([{ "path": "/p/src/a.rs", "kind": kind }]);
            finished("c2", json!({ "diff": format!("--- a\n+++ a\n@@ -1 +1 @@\n{diff}"), "changes": changes }))
        };
        let lines = shown(&[
            ended("end_turn"),
            json!({ "kind": "permission_requested", "permission": "q1", "call_id": "c1", "tool": "bash", "input": {}, "cwd": "/p",
                "action": "cargo publish\nrm", "digest": "d", "rule": null, "grant": "", "options": [] }),
            json!({ "kind": "permission_resolved", "permission": "q1", "decision": "reject_once", "by": "linger@pts/2\u{1b}" }),
            json!({ "kind": "tool_started", "call_id": "c1", "tool": "bash", "tool_kind": "execute", "action": "cargo test" }),
            finished("c1", json!({ "is_error": true, "exit": { "code": 101 } })),
            edit("create", "+x\n+y\n"),
            edit("edit", "-x\n+z\n"),
            ended("end_turn"),
            ended("error"),
        ]);
        assert_eq!(
            lines,
            [
                "since you left 2 h ago: 2 turns (1 failed), $0.50",
                "  src/a.rs +3 −1 (new)",
                "  failed: cargo test (exit code 101)",
                "  cargo publish: denied by linger@pts/2␛",
            ]
        );
    }

    #[test]
    fn what_was_seen_is_not_told_and_a_long_list_is_cut() {
        let ended = json!({ "kind": "turn_finished", "stop_reason": "end_turn", "usage": {}, "steps": 1 });
        assert_eq!(shown(&[ended.clone(), ended.clone()]), [""; 0]);
        let mut events = vec![ended.clone(), ended.clone()];
        for n in 0..8 {
            let id = format!("c{n}");
            events.push(json!({ "kind": "tool_started", "call_id": id, "tool": "bash", "tool_kind": "execute", "action": format!("false {n}") }));
            events.push(finished(&id, json!({ "is_error": true })));
        }
        events.push(ended);
        let lines = shown(&events);
        assert_eq!(lines[..2], ["since you left 2 h ago: 1 turn", "  3 failed commands more"]);
        assert_eq!((lines.len(), lines[2].as_str()), (7, "  failed: false 3"));
    }
}
