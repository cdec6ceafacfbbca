//! The output for each event: one arm a kind.

use linger_protocol::event::{
    Asks, BackgroundEnded, Compacted, CompactionFailed, Event, EventBody, Level, MessageAdded, Notice, NoticeCode,
    PermissionResolved, PlanEntry, PlanStatus, PromptAccepted, QuestionResolved, ToolFinished,
};
use linger_protocol::id::PromptId;
use linger_protocol::message::{ContentBlock, Role, text_of};
use linger_protocol::permission::Decision;

use super::renderer::Renderer;
use super::words::decision_text;
use super::{attached, compaction, lines, tree, worktree};
use crate::terminal::{Output, clean, clean_line};

impl Renderer {
    /// The output for an event.
    pub(crate) fn event(&mut self, event: &Event) -> Vec<Output> {
        let mut output = Vec::new();
        let out = &mut output;
        self.shaped.event(&event.body);
        self.remember(&event.body);
        match &event.body {
            EventBody::TextDelta(delta) => self.answer_delta(delta, out),
            EventBody::ThinkingDelta(delta) => self.thinking_delta(delta, out),
            EventBody::HostedDelta { tool, part, delta } => self.hosted_delta(*tool, *part, delta, out),
            EventBody::ChildUpdated(update) => self.child(update, out),
            EventBody::PromptAccepted(PromptAccepted { prompt, content, by, .. }) => {
                self.accepted(prompt, content, by.as_deref())
            }
            EventBody::Message(MessageAdded { role: Role::User, asks: Some(asks), content, prompt, .. }) => {
                self.say_request(*asks, content, prompt.as_ref(), out);
            }
            EventBody::Message(MessageAdded { role: Role::User, content, prompt, .. }) => {
                self.prompt(content, prompt.as_ref(), out)
            }
            EventBody::Message(MessageAdded { content, interrupted, cut, .. }) => {
                self.answer(content, *interrupted, *cut, out)
            }
            EventBody::MessageSuperseded { .. } => self.say_dim(lines::SUPERSEDED, out),
            EventBody::CheckStarted { failed, tries, .. } => self.say_dim(&lines::check(*failed, *tries), out),
            EventBody::ToolStarted(_) => self.tool_started(&event.body, out),
            EventBody::ToolFinished(ToolFinished { call_id, .. }) => self.tool_finished(call_id, &event.body, out),
            EventBody::BackgroundEnded(BackgroundEnded { background, exit, reason, .. }) => {
                self.say_dim(&lines::background_ended(background.as_str(), exit.as_ref(), reason.as_deref()), out);
            }
            EventBody::Checkpoint(taken) => self.checkpoint(taken, out),
            EventBody::Undone { .. } => self.undone(&event.body, out),
            EventBody::Forked(fork) => self.say_dim(&lines::forked(fork), out),
            EventBody::Rewound(back) => self.say_dim(&lines::rewound(back), out),
            EventBody::Uncompacted(taken) => self.say_dim(&tree::taken_back(taken), out),
            EventBody::Merged(merged) => self.say_dim(&worktree::merged(merged), out),
            EventBody::WorktreeChanged(worktree) => self.say_dim(&worktree::changed(worktree), out),
            EventBody::Plan { entries } => self.plan(entries, out),
            EventBody::PermissionRequested(_) | EventBody::QuestionAsked { .. } if self.settings.permissions => {
                self.question(&event.body, out);
            }
            EventBody::PermissionResolved(PermissionResolved { decision, by, reason, .. }) => {
                let answer = (*decision != Decision::Cancelled).then(|| decision_text(*decision));
                self.say_answer(answer, by, reason.as_deref(), out);
            }
            EventBody::QuestionResolved(QuestionResolved { answer, by, reason, .. }) => {
                self.say_answer(answer.as_deref(), by, reason.as_deref(), out);
            }
            EventBody::SessionChanged(_) => self.session_changed(&event.body, out),
            EventBody::CompactionStarted(_)
            | EventBody::Compacted(_)
            | EventBody::CompactionFailed(_)
            | EventBody::Trimmed(_) => self.compaction(&event.body, out),
            EventBody::Lost { first, last } if event.seq == Some(*first) => {
                self.say_dim(&lines::lost(*first, *last), out);
            }
            EventBody::Notice(_) => self.notice(&event.body, out),
            EventBody::TurnStarted { .. } => (self.wait, self.busy) = (None, true),
            EventBody::TurnFinished(_) => self.turn_finished(&event.body, out),
            EventBody::CaughtUp {} => self.caught_up(event.at, out),
            EventBody::PromptUnqueued { prompt, by, .. } => self.say_unqueued(prompt, by.as_deref(), out),
            EventBody::DraftSent { by, .. } => self.say_draft_sent(by.as_deref(), out),
            EventBody::SessionCreated(_)
            | EventBody::PromptDrafted { .. }
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
        output
    }

    /// Keeps what later lines depend on.
    fn remember(&mut self, body: &EventBody) {
        match body {
            EventBody::SessionCreated(_) => self.is_new = true,
            EventBody::Message(MessageAdded { role: Role::Assistant, .. }) | EventBody::TurnFinished(_) => {
                self.is_new = false
            }
            EventBody::TurnStarted { prompt } | EventBody::Compacted(Compacted { prompt: Some(prompt), .. }) => {
                self.waiting.remove(prompt);
            }
            EventBody::CompactionFailed(CompactionFailed { reason, prompt, .. }) => {
                self.not_compacted = Some(format!("not compacted: {reason}"));
                if let Some(prompt) = prompt {
                    self.waiting.remove(prompt);
                }
            }
            EventBody::Forked(_) => self.waiting.clear(),
            _ => {}
        }
    }

    /// Prints a message that the daemon wrote in the user's place.
    fn say_request(&mut self, asks: Asks, content: &[ContentBlock], prompt: Option<&PromptId>, out: &mut Vec<Output>) {
        let line = match asks {
            Asks::Child => return self.say_child(&text_of(content), out),
            Asks::Again => lines::asked_again(content),
            // The text continues where it stopped.
            Asks::GoOn if self.cut => return,
            Asks::GoOn => "asked to continue another model's answer".to_owned(),
            // The words of the check are the output of its call.
            Asks::Check => "the check failed; the model reads why".to_owned(),
            // It was shown as the output of its call, or as an event of its own.
            Asks::Output | Asks::Ended | Asks::Mode => return,
            Asks::Schema | Asks::Unknown => return self.prompt(content, prompt, out),
        };
        self.say_dim(&line, out);
    }

    fn compaction(&mut self, body: &EventBody, out: &mut Vec<Output>) {
        if let Some(line) = compaction::line(body, self.settings.style) {
            self.say(&line, out);
        }
    }

    fn question(&mut self, body: &EventBody, out: &mut Vec<Output>) {
        if let Some(line) = lines::question(body) {
            self.say(&self.settings.style.yellow(&line), out);
        }
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
    fn say_answer(&mut self, answer: Option<&str>, by: &str, reason: Option<&str>, out: &mut Vec<Output>) {
        let by = clean_line(by);
        let line = match answer {
            None => format!("not answered: {by}"),
            Some(answer) => {
                let by = if by == self.settings.me { String::new() } else { format!(" by {by}") };
                let reason = reason.map(|reason| format!(": {}", clean_line(reason))).unwrap_or_default();
                format!("{}{by}{reason}", clean_line(answer))
            }
        };
        self.say_dim(&line, out);
    }

    fn accepted(&mut self, prompt: &PromptId, content: &[ContentBlock], by: Option<&str>) {
        let first = text_of(content).lines().next().map(clean_line).unwrap_or_default().into_owned();
        self.waiting.insert(prompt.clone(), first);
        // Behind others it is shown again where it begins.
        let is_next = !self.busy && self.waiting.len() == 1;
        if !self.replaying && is_next && by == Some(self.settings.me.as_str()) {
            self.mine.insert(prompt.clone());
        }
    }

    fn say_unqueued(&mut self, prompt: &PromptId, by: Option<&str>, out: &mut Vec<Output>) {
        let by = by.filter(|by| *by != self.settings.me).map(|by| format!(" by {}", clean_line(by)));
        let text = self.waiting.remove(prompt).filter(|text| !text.is_empty());
        let text = text.map(|text| format!(": {text}")).unwrap_or_default();
        self.say_dim(&format!("a queued prompt was removed{}{text}", by.unwrap_or_default()), out);
    }

    fn say_draft_sent(&mut self, by: Option<&str>, out: &mut Vec<Output>) {
        if let Some(by) = by.filter(|by| *by != self.settings.me) {
            self.say_dim(&format!("a draft was sent by {}", clean_line(by)), out);
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

    fn notice(&mut self, body: &EventBody, out: &mut Vec<Output>) {
        let EventBody::Notice(Notice { level, text, until_at, code, .. }) = body else { return };
        let ends = [NoticeCode::Removed, NoticeCode::Damaged, NoticeCode::Offered, NoticeCode::Unconfigured];
        if code.is_some_and(|code| ends.contains(&code)) {
            // The text has stopped: what is held back of it comes first.
            self.end_text(out);
        }
        self.wait = until_at.map(|until| (until, true));
        let style = self.settings.style;
        let text = clean_line(text);
        let line = match level {
            Level::Info => style.dim(&text),
            Level::Warning => style.yellow(&format!("warning: {text}")),
            Level::Error => style.red(&format!("error: {text}")),
        };
        self.say(&line, out);
    }
}
