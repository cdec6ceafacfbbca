//! Events as text for people: takes events, returns output and its stream. Pure.
//!
//! Text streams as it comes; if the session was attached without deltas, messages are printed whole.
//! Printed text is never erased: a superseded message stays, with a line below it.

pub(crate) mod attached;
pub(crate) mod attention;
pub(crate) mod back;
mod changed;
mod child;
mod compaction;
pub(crate) mod diff;
pub(crate) mod difference;
pub(crate) mod export;
mod hosted;
pub(crate) mod live;
pub(crate) mod markdown;
pub(crate) mod money;
pub(crate) mod near;
pub(crate) mod permissions;
pub(crate) mod servers;
pub(crate) mod sessions;
mod settings;
mod shaped;
pub(crate) mod since;
mod stream;
pub(crate) mod style;
pub(crate) mod table;
mod tool;
pub(crate) mod tree;
mod words;
pub(crate) mod worktree;

use std::collections::{HashMap, HashSet};

use linger_protocol::event::{
    Asks, BackgroundEnded, Compacted, CompactionFailed, Event, EventBody, Level, MessageAdded, Notice, NoticeCode,
    PermissionRequested, PermissionResolved, PlanEntry, PlanStatus, PromptAccepted, QuestionResolved, ToolFinished,
    ToolKind, ToolStarted, TurnFinished,
};
use linger_protocol::id::{CallId, MessageId, PromptId};
use linger_protocol::message::{ContentBlock, Role, StopReason, text_of};
use linger_protocol::permission::Decision;
use linger_protocol::question::Subject;

use crate::terminal::{Output, clean, clean_exact_line, clean_line};
use markdown::width::hang_lines;
use markdown::{Look, Prose};
pub(crate) use settings::{Settings, Thinking};
use shaped::Shaped;
use stream::Summary;
use style::Style;
pub(crate) use words::{decision_text, reason, summary};

/// The kind of the last output, if its line is not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Midline {
    Text,
    Thinking,
    /// A tool that runs at the provider.
    Hosted,
}

/// An open tool call.
struct Call {
    tool: String,
    /// The daemon's description of it; its first argument until then.
    action: String,
    /// What kind of tool it is.
    kind: ToolKind,
    /// Whether its line was printed.
    started: bool,
}

/// Turns events into text.
pub(crate) struct Renderer {
    settings: Settings,
    midline: Option<Midline>,
    /// The kind of the block that streams, or streamed last.
    after: Option<Midline>,
    /// The streaming block.
    block: Option<(MessageId, u32)>,
    /// The text that streams, and the thinking; both behind a gutter.
    prose: Prose,
    thought: Prose,
    /// What is held back of answers that have to fit a schema.
    shaped: Shaped,
    calls: HashMap<CallId, Call>,
    /// The call whose line was printed last.
    last_call: Option<CallId>,
    /// Our own prompts that are on the screen where they begin.
    mine: HashSet<PromptId>,
    /// The first line of each prompt that has not begun, for when it is taken back.
    waiting: HashMap<PromptId, String>,
    /// Whether a turn runs: a prompt that waits for its end is shown again where it begins.
    busy: bool,
    replaying: bool,
    /// Whether the last answer was cut at the token limit with its line open, so that the next one may continue it.
    cut: bool,
    /// The end of the last announced wait, and whether the turn continues then.
    wait: Option<(u64, bool)>,
    /// The thinking that is shown by its first line only.
    summary: Summary,
    /// The calls of tools that run at the provider.
    hosted: hosted::Hosted,
    /// Whether outputs, actions and differences are shown whole.
    whole: bool,
    /// The line with the files that a call changed, until its result.
    changed: Option<(CallId, String)>,
    /// Whether the session is new: no request was made, so none can be another one than before.
    is_new: bool,
    /// Why the context was not compacted, until the end of that turn, which says the same.
    not_compacted: Option<String>,
}

impl Renderer {
    /// A renderer for a new screen.
    pub(crate) fn new(settings: Settings) -> Self {
        let Style { color, unicode } = settings.style;
        let look = Look { width: settings.width, markdown: settings.markdown, color, unicode, dim: false };
        Self {
            settings,
            midline: None,
            after: None,
            block: None,
            prose: Prose::new(look),
            thought: Prose::new(Look { markdown: false, dim: true, ..look }),
            shaped: Shaped::default(),
            calls: HashMap::new(),
            last_call: None,
            mine: HashSet::new(),
            waiting: HashMap::new(),
            busy: false,
            replaying: true,
            cut: false,
            wait: None,
            summary: Summary::default(),
            hosted: hosted::Hosted::default(),
            whole: false,
            changed: None,
            is_new: false,
            not_compacted: None,
        }
    }

    /// Shows outputs, actions and differences whole from here on.
    pub(crate) fn show_whole(&mut self) {
        self.whole = true;
    }

    /// What is shown of thinking.
    pub(crate) fn thinking(&self) -> Thinking {
        self.settings.thinking
    }

    /// The session had no turn yet.
    pub(crate) fn is_of_new_session(&mut self) {
        self.is_new = true;
    }

    /// Sets what is shown of thinking.
    pub(crate) fn set_thinking(&mut self, thinking: Thinking) {
        self.settings.thinking = thinking;
    }

    /// Sets the columns of the terminal, for what is shown from here on.
    pub(crate) fn set_width(&mut self, width: usize) {
        self.settings.width = width;
        self.prose.set_width(width);
        self.thought.set_width(width);
    }

    /// The style of talk.
    pub(crate) fn style(&self) -> Style {
        self.settings.style
    }

    /// The output for an event.
    pub(crate) fn event(&mut self, event: &Event) -> Vec<Output> {
        let mut out = Vec::new();
        self.shaped.event(&event.body);
        match &event.body {
            EventBody::Compacted(Compacted { prompt: Some(prompt), .. })
            | EventBody::CompactionFailed(CompactionFailed { prompt: Some(prompt), .. }) => {
                drop(self.waiting.remove(prompt))
            }
            EventBody::Forked(_) => self.waiting.clear(),
            _ => {}
        }
        match &event.body {
            EventBody::SessionCreated(_) => self.is_new = true,
            EventBody::Message(MessageAdded { role: Role::Assistant, .. }) | EventBody::TurnFinished(_) => {
                self.is_new = false
            }
            EventBody::CompactionFailed(CompactionFailed { reason, .. }) => {
                self.not_compacted = Some(format!("not compacted: {reason}"))
            }
            _ => {}
        }
        match &event.body {
            EventBody::TextDelta(delta) if self.settings.raw => self.text_delta(delta, &mut out),
            EventBody::TextDelta(delta) => {
                if let Some(delta) = self.shaped.text(delta) {
                    self.text_delta(&delta, &mut out);
                }
            }
            EventBody::ThinkingDelta(delta) => self.thinking_delta(delta, &mut out),
            EventBody::HostedDelta { tool, part, delta } => self.hosted_delta(*tool, *part, delta, &mut out),
            EventBody::ChildUpdated(update) => self.child(update, &mut out),
            EventBody::Message(MessageAdded { role: Role::User, asks: Some(Asks::Child), content, .. }) => {
                self.child_said(&text_of(content), &mut out);
            }
            EventBody::PromptAccepted(PromptAccepted { prompt, content, by, .. }) => {
                let first = text_of(content).lines().next().map(clean_line).unwrap_or_default().into_owned();
                self.waiting.insert(prompt.clone(), first);
                self.accepted(prompt, by.as_deref());
            }
            EventBody::Message(MessageAdded { role: Role::User, asks: Some(Asks::Again), content, .. }) => {
                let text = text_of(content);
                let fault = text.lines().next().unwrap_or_default();
                self.say(&self.settings.style.dim(&format!("asked again: {}", clean_line(fault))), &mut out);
            }
            // The text goes on where it stopped.
            EventBody::Message(MessageAdded { role: Role::User, asks: Some(Asks::GoOn), .. }) if self.cut => {}
            EventBody::Message(MessageAdded { role: Role::User, asks: Some(Asks::GoOn), .. }) => {
                self.say(&self.settings.style.dim("asked to continue another model's answer"), &mut out);
            }
            // Its words are the output of the check's call.
            EventBody::Message(MessageAdded { role: Role::User, asks: Some(Asks::Check), .. }) => {
                self.say(&self.settings.style.dim("the check did not pass; the model reads why"), &mut out);
            }
            // It was shown as the output of its call.
            EventBody::Message(MessageAdded { role: Role::User, asks: Some(Asks::Output), .. }) => {}
            EventBody::CheckStarted { failed, tries, .. } => {
                let again = if *failed == 0 { String::new() } else { format!(" (after try {failed} of {tries})") };
                self.say(&self.settings.style.dim(&format!("the check runs{again}")), &mut out);
            }
            // What it says was shown as its own event.
            EventBody::Message(MessageAdded { role: Role::User, asks: Some(Asks::Ended | Asks::Mode), .. }) => {}
            EventBody::Message(MessageAdded { role: Role::User, content, prompt, .. }) => {
                self.prompt(content, prompt.as_ref(), &mut out)
            }
            EventBody::Message(MessageAdded { content, interrupted, cut, .. }) => {
                self.wait = None;
                if let Some(delta) = self.shaped.end() {
                    self.text_delta(&delta, &mut out);
                }
                let shown = self.shaped.message(content).filter(|_| !self.settings.raw);
                self.message(shown.as_deref().unwrap_or(content), *interrupted, *cut, &mut out);
            }
            EventBody::ToolStarted(ToolStarted { call_id, tool, action, tool_kind, .. }) => {
                self.tool_started(call_id, (tool, *tool_kind), action, &mut out);
            }
            EventBody::ToolFinished(ToolFinished { call_id, .. }) => self.tool_finished(call_id, &event.body, &mut out),
            EventBody::BackgroundEnded(BackgroundEnded { background, exit, reason, .. }) => {
                let how = match exit.and_then(|exit| exit.code) {
                    Some(code) => format!("exit code {code}"),
                    None => reason.clone().unwrap_or_else(|| "killed".to_owned()),
                };
                let line = format!("{background} in the background has ended: {}", clean_line(&how));
                self.say(&self.settings.style.dim(&line), &mut out);
            }
            EventBody::Checkpoint(taken) => self.checkpoint(taken, &mut out),
            EventBody::Undone { redo, changes, failed, .. } => self.undone(*redo, (changes, failed), &mut out),
            EventBody::Forked(begun) => {
                let line = format!("forked from session {} after event {}", begun.origin.session, begun.origin.seq);
                self.say(&self.settings.style.dim(&clean_line(&line)), &mut out);
            }
            EventBody::Rewound(back) => {
                let line =
                    format!("went back to before prompt {}; what was left is session {}", back.prompt, back.branch);
                self.say(&self.settings.style.dim(&clean_line(&line)), &mut out);
            }
            EventBody::Uncompacted(taken) => {
                self.say(&self.settings.style.dim(&tree::taken_back(taken)), &mut out);
            }
            EventBody::Merged(done) => self.say(&self.settings.style.dim(&worktree::merged(done)), &mut out),
            EventBody::WorktreeChanged(now) => self.say(&self.settings.style.dim(&worktree::changed(now)), &mut out),
            EventBody::Plan { entries } => self.plan(entries, &mut out),
            EventBody::PermissionRequested(PermissionRequested { permission, tool, action, about, .. })
                if self.settings.permissions =>
            {
                let tool = if *about == Some(Subject::Check) { "the check of this turn:" } else { tool };
                let line = format!("? {permission}: {} {}", clean_line(tool), clean_exact_line(action));
                self.say(&self.settings.style.yellow(&line), &mut out);
            }
            EventBody::PermissionResolved(PermissionResolved { decision, by, reason, .. }) => {
                let answer = (*decision != Decision::Cancelled).then(|| decision_text(*decision));
                let line = self.resolved(answer, by, reason.as_deref());
                self.say(&line, &mut out);
            }
            EventBody::QuestionAsked { question, asked } if self.settings.permissions => {
                let line = format!("? {question}: {}", clean_line(&asked.text));
                self.say(&self.settings.style.yellow(&line), &mut out);
            }
            EventBody::QuestionResolved(QuestionResolved { answer, by, reason, .. }) => {
                let line = self.resolved(answer.as_deref(), by, reason.as_deref());
                self.say(&line, &mut out);
            }
            EventBody::SessionChanged(_) => self.session_changed(&event.body, &mut out),
            EventBody::CompactionStarted(_)
            | EventBody::Compacted(_)
            | EventBody::CompactionFailed(_)
            | EventBody::Trimmed(_) => {
                if let Some(line) = compaction::line(&event.body, self.settings.style) {
                    self.say(&line, &mut out);
                }
            }
            EventBody::Lost { first, last } if event.seq == Some(*first) => {
                let lost = match last - first {
                    0 => format!("event {first} could not be read any more"),
                    _ => format!("events {first} to {last} could not be read any more"),
                };
                self.say(&self.settings.style.dim(&lost), &mut out);
            }
            EventBody::Notice(Notice { level, text, until_at, code, .. }) => {
                if matches!(
                    code,
                    Some(NoticeCode::Removed | NoticeCode::Damaged | NoticeCode::Offered | NoticeCode::Unconfigured)
                ) {
                    // What is held back of a text that has stopped is shown before that is said.
                    self.end_text(&mut out);
                }
                self.wait = until_at.map(|until| (until, true));
                self.notice(*level, text, &mut out);
            }
            EventBody::TurnFinished(TurnFinished {
                stop_reason,
                detail,
                hint,
                until_at,
                answer: _,
                usage,
                session_usage,
                context_tokens,
                context_window,
                steps,
                ..
            }) => {
                self.busy = false;
                self.wait = until_at.map(|until| (until, false));
                self.end_cut(&mut out);
                let fill = money::fill(*context_tokens, *context_window);
                let fill = fill.map(|fill| format!("context: {fill}")).unwrap_or_default();
                let mut spent = vec![summary(usage, session_usage.as_ref(), *steps), fill];
                spent.retain(|part| !part.is_empty());
                let said = self.not_compacted.take();
                let detail = detail.as_deref().filter(|detail| said.as_deref() != Some(*detail));
                self.finished(*stop_reason, detail, &spent.join("; "), &mut out);
                if let Some(hint) = hint.as_deref().filter(|_| *stop_reason != StopReason::EndTurn) {
                    self.say(&format!("hint: {}", clean_line(hint)), &mut out);
                }
            }
            EventBody::TurnStarted { prompt } => {
                self.waiting.remove(prompt);
                (self.wait, self.busy) = (None, true);
            }
            EventBody::MessageSuperseded { .. } => {
                self.say(
                    &self.settings.style.dim("the interrupted text does not count; the step is repeated"),
                    &mut out,
                );
            }
            EventBody::CaughtUp {} => {
                self.replaying = false;
                self.still_waits(event.at, &mut out);
            }
            EventBody::PromptUnqueued { prompt, by, .. } => {
                let by = by.as_deref().filter(|by| *by != self.settings.me).map(|by| format!(" by {}", clean_line(by)));
                let text = self.waiting.remove(prompt).filter(|text| !text.is_empty());
                let text = text.map(|text| format!(": {text}")).unwrap_or_default();
                let line = format!("a queued prompt was taken back{}{text}", by.unwrap_or_default());
                self.say(&self.settings.style.dim(&line), &mut out);
            }
            EventBody::SessionCreated(_)
            | EventBody::PermissionRequested(_)
            | EventBody::QuestionAsked { .. }
            | EventBody::ConfigConfirmed { .. }
            | EventBody::BackgroundStarted { .. }
            | EventBody::UndoStarted(_)
            | EventBody::ToolOutputDelta { .. }
            | EventBody::ToolCallDelta { .. }
            | EventBody::CommandStarted { .. }
            | EventBody::Lost { .. }
            | EventBody::Unknown => {}
        }
        out
    }

    /// The plan, an entry a line.
    fn plan(&mut self, entries: &[PlanEntry], out: &mut Vec<Output>) {
        let style = self.settings.style;
        for entry in entries {
            let content = clean_line(&entry.content);
            let line = match entry.status {
                PlanStatus::Completed => style.dim(&format!("  [x] {content}")),
                PlanStatus::InProgress => style.bold(&format!("  [>] {content}")),
                PlanStatus::Pending => format!("  [ ] {content}"),
            };
            self.say(&line, out);
        }
    }

    /// The end of a question: its answer, or without one what withdrew it.
    fn resolved(&self, answer: Option<&str>, by: &str, reason: Option<&str>) -> String {
        let by = clean_line(by);
        let line = match answer {
            None => format!("not answered: {by}"),
            Some(answer) => {
                let by = if by == self.settings.me { String::new() } else { format!(" by {by}") };
                let reason = reason.map(|reason| format!(": {}", clean_line(reason))).unwrap_or_default();
                format!("{}{by}{reason}", clean_line(answer))
            }
        };
        self.settings.style.dim(&line)
    }

    /// A line of linger itself: it begins in the first column, and its further rows do not.
    fn say(&mut self, line: &str, out: &mut Vec<Output>) {
        self.fresh_line(out);
        self.last_call = None;
        out.push(Output::Talk(format!("{}\n", hang_lines(line, self.settings.width))));
    }

    fn accepted(&mut self, prompt: &PromptId, by: Option<&str>) {
        // Behind others it is shown again where it begins.
        let is_next = !self.busy && self.waiting.len() == 1;
        if !self.replaying && is_next && by == Some(self.settings.me.as_str()) {
            self.mine.insert(prompt.clone());
        }
    }

    fn prompt(&mut self, content: &[ContentBlock], prompt: Option<&PromptId>, out: &mut Vec<Output>) {
        let Some(prompt) = prompt else { return };
        self.waiting.remove(prompt);
        if self.mine.remove(prompt) || !self.settings.prompts {
            return;
        }
        let (text, with) = attached::shown(content);
        for (n, line) in clean(&text).lines().enumerate() {
            let sign = if n == 0 { "> " } else { "  " };
            self.say(&self.settings.style.cyan(&format!("{sign}{line}")), out);
        }
        if !with.is_empty() {
            self.say(&self.settings.style.dim(&format!("  with {}", clean_line(&with.join("; ")))), out);
        }
    }

    fn notice(&mut self, level: Level, text: &str, out: &mut Vec<Output>) {
        let style = self.settings.style;
        let text = clean_line(text);
        let line = match level {
            Level::Info => style.dim(&text),
            Level::Warning => style.yellow(&format!("warning: {text}")),
            Level::Error => style.red(&format!("error: {text}")),
        };
        self.say(&line, out);
    }

    /// The rest of a wait that was announced before this client attached.
    fn still_waits(&mut self, now: u64, out: &mut Vec<Output>) {
        let Some((until, goes_on)) = self.wait.take().filter(|(until, _)| *until > now) else { return };
        let line = match goes_on {
            true => format!("the next attempt is in {} s", (until - now).div_ceil(1000)),
            false => format!("the provider asks to wait another {}", table::age(now, until)),
        };
        self.say(&self.settings.style.dim(&line), out);
    }

    fn finished(&mut self, stop_reason: StopReason, detail: Option<&str>, spent: &str, out: &mut Vec<Output>) {
        self.end_text(out);
        self.fresh_line(out);
        self.block = None;
        self.calls.clear();
        let style = self.settings.style;
        if stop_reason != StopReason::EndTurn {
            let line = match (reason(stop_reason), detail.map(clean_line)) {
                (reason, None) => reason.to_owned(),
                // The detail is more exact.
                (reason, Some(detail)) => format!("{}: {detail}", reason.split(':').next().unwrap_or(reason)),
            };
            self.say(&if stop_reason == StopReason::Cancelled { style.dim(&line) } else { style.red(&line) }, out);
        }
        if self.settings.usage && !spent.is_empty() {
            self.say(&style.dim(spent), out);
        }
    }
}

#[cfg(test)]
mod speakers;
#[cfg(test)]
mod tests;
