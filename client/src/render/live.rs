//! The current activity of a turn: a status row, and above it the last lines of a running command. Pure.
//!
//! These rows are redrawn and vanish with the turn; nothing of them stays on the screen.

use linger_protocol::event::{
    Event, EventBody, MessageAdded, Notice, NoticeCode, SessionChanged, SessionCreated, ToolFinished, ToolStarted,
    TurnFinished,
};
use linger_protocol::id::CallId;
use linger_protocol::message::{Role, Usage};
use linger_protocol::permission::Mode;

use super::style::Style;
use super::{child, money};
use crate::terminal::{clean_exact_line, clean_line, width};

/// Lines of a running command that are shown.
const TAIL: usize = 3;

/// Bytes of its output that are kept for them; a longer line is cut to the terminal anyway.
const MAX_TAIL: usize = 4 << 10;

/// Bytes of a word that is not complete yet; a longer one is no word.
const MAX_WORD: usize = 200;

/// Characters of a running call's action in the status.
const MAX_ACTION: usize = 40;

/// Columns that are left for what runs in a narrow terminal, before the mode and the time make room for it.
const MIN_DOING: usize = 20;

/// The current work of a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Activity {
    /// A request is under way.
    #[default]
    Waiting,
    Thinking,
    Writing,
    /// A call of this tool.
    Calling(String),
    /// The provider failed; the next try is at this time, in Unix milliseconds.
    Retry(Option<u64>),
    Key,
    Confirmation,
    Summarising,
}

/// A call that runs.
struct RunningCall {
    call: CallId,
    /// Its tool and action.
    what: String,
    started_at: u64,
    /// The end of its output.
    tail: String,
    /// The current work of its child, if it has one.
    child: Option<String>,
}

/// The rows that are shown while a turn runs.
pub(crate) struct Live {
    style: Style,
    mode: Mode,
    /// When the turn began, in Unix milliseconds.
    started_at: u64,
    doing: Activity,
    calls: Vec<RunningCall>,
    /// The word that the model has not completed, which the text above does not show yet.
    word: String,
    /// Whether nothing of the text has come for a while.
    stalled: bool,
    /// The turn's usage so far.
    usage: Usage,
    context_tokens: Option<u64>,
    context_window: Option<u64>,
}

impl Live {
    /// Nothing yet, for a session with this mode, and this window where it is known.
    pub(crate) fn new(style: Style, mode: Mode, context_window: Option<u64>) -> Self {
        Self {
            style,
            mode,
            started_at: 0,
            doing: Activity::Waiting,
            calls: Vec::new(),
            word: String::new(),
            stalled: false,
            usage: Usage::default(),
            context_tokens: None,
            context_window,
        }
    }

    /// Some time has passed in which nothing happened.
    pub(crate) fn stalls(&mut self) {
        self.stalled = true;
    }

    /// Keeps up with an event.
    pub(crate) fn event(&mut self, event: &Event) {
        self.stalled = false;
        match &event.body {
            EventBody::TextDelta(delta) => self.text(&delta.text),
            _ => self.word.clear(),
        }
        match &event.body {
            EventBody::TurnStarted { .. } => {
                (self.started_at, self.usage) = (event.at, Usage::default());
                self.begins(Activity::Waiting);
            }
            EventBody::Notice(Notice { code: Some(NoticeCode::Resumed | NoticeCode::Continued), .. }) => {
                self.started_at = event.at;
                self.begins(Activity::Waiting);
            }
            EventBody::TextDelta(_) => self.doing = Activity::Writing,
            EventBody::ThinkingDelta(_) => self.doing = Activity::Thinking,
            EventBody::ToolCallDelta { name, .. } => self.doing = Activity::Calling(clean_line(name).into_owned()),
            EventBody::Message(MessageAdded { role: Role::Assistant, usage, interrupted, .. }) => {
                self.doing = Activity::Waiting;
                if let Some(usage) = usage {
                    self.context_tokens = Some(usage.input_tokens + usage.output_tokens);
                }
                self.usage += Usage::of_answer(*usage, *interrupted);
            }
            EventBody::ToolStarted(ToolStarted { call_id, tool, action, .. }) => {
                self.starts(call_id, tool, action, event.at)
            }
            EventBody::ToolOutputDelta { call_id, text, .. } => self.output(call_id, text),
            EventBody::ChildUpdated(update) => {
                if let Some(running) = self.calls.iter_mut().find(|running| running.call == update.call_id) {
                    running.child = Some(child::now(update));
                }
            }
            EventBody::ToolFinished(ToolFinished { call_id, .. }) => {
                self.calls.retain(|running| running.call != *call_id)
            }
            EventBody::Notice(Notice { code: Some(NoticeCode::Retry), until_at, .. }) => {
                self.doing = Activity::Retry(*until_at)
            }
            EventBody::Notice(Notice { code: Some(NoticeCode::KeyMissing | NoticeCode::KeyPending), .. }) => {
                self.doing = Activity::Key;
            }
            EventBody::Notice(Notice { code: Some(NoticeCode::Reached | NoticeCode::KeyFound), .. }) => {
                self.doing = Activity::Waiting;
            }
            EventBody::Notice(Notice { code: Some(NoticeCode::Unconfirmed), .. }) => {
                self.doing = Activity::Confirmation
            }
            EventBody::CompactionStarted(_) => self.doing = Activity::Summarising,
            EventBody::Compacted(_) | EventBody::CompactionFailed(_) => self.doing = Activity::Waiting,
            EventBody::SessionCreated(SessionCreated { mode, .. }) => self.mode = *mode,
            EventBody::SessionChanged(SessionChanged { mode, model, .. }) => {
                self.mode = mode.unwrap_or(self.mode);
                if model.is_some() {
                    // Another model's window.
                    self.context_window = None;
                }
            }
            EventBody::TurnFinished(TurnFinished { context_tokens, context_window, .. }) => {
                self.context_tokens = context_tokens.or(self.context_tokens);
                self.context_window = context_window.or(self.context_window);
                self.calls.clear();
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        let last = text.rfind(char::is_whitespace).and_then(|at| text.get(at..)).map(str::trim_start);
        if last.is_some() {
            self.word.clear();
        }
        self.word.push_str(last.unwrap_or(text));
        if self.word.len() > MAX_WORD {
            self.word.clear();
        }
    }

    fn starts(&mut self, call: &CallId, tool: &str, action: &str, started_at: u64) {
        let action = action.strip_prefix(tool).unwrap_or(action).trim_start();
        let first = clean_exact_line(action.lines().next().unwrap_or_default());
        let mut what: String = first.chars().take(MAX_ACTION).collect();
        if what.len() < first.len() || action.lines().nth(1).is_some() {
            what.push_str(self.style.ellipsis());
        }
        let what = format!("{} {what}", clean_line(tool)).trim_end().to_owned();
        self.calls.push(RunningCall { call: call.clone(), what, started_at, tail: String::new(), child: None });
    }

    /// Keeps the end of a call's output.
    fn output(&mut self, call: &CallId, text: &str) {
        let Some(running) = self.calls.iter_mut().find(|running| running.call == *call) else { return };
        running.tail.push_str(text);
        let from = running.tail.len().saturating_sub(MAX_TAIL);
        let from = (from..).find(|at| running.tail.is_char_boundary(*at)).unwrap_or_default();
        running.tail.drain(..from);
    }

    fn begins(&mut self, doing: Activity) {
        self.doing = doing;
        self.calls.clear();
    }

    /// The rows at this time, on a terminal with so many columns: the last lines of a command, and the status, which ends in the
    /// way out.
    pub(crate) fn rows(&self, now: u64, columns: usize, queued: usize, asks: bool, way_out: &str) -> Vec<String> {
        let mut rows = Vec::new();
        let bar = if self.style.unicode { "│" } else { "|" };
        for child in self.calls.iter().filter_map(|running| running.child.as_deref()) {
            rows.push(self.style.dim(&self.cut(&format!("  {bar} {child}"), columns)));
        }
        if self.stalled && !self.word.is_empty() {
            rows.push(self.cut(&format!("  {}", clean_line(&self.word)), columns));
        }
        if let Some(running) = self.calls.last() {
            let lines: Vec<&str> = running.tail.lines().filter(|line| !line.trim().is_empty()).collect();
            for line in lines.iter().skip(lines.len().saturating_sub(TAIL)) {
                // A carriage return begins the line again.
                let line = line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
                let line = clean_line(line).replace('\t', "    ");
                rows.push(self.style.dim(&self.cut(&format!("  {bar} {line}"), columns)));
            }
        }
        rows.push(self.style.dim(&self.cut(&self.status(now, columns, queued, asks, way_out), columns)));
        rows
    }

    fn cut(&self, row: &str, columns: usize) -> String {
        self.shorten(row, columns.saturating_sub(1))
    }

    fn shorten(&self, text: &str, space: usize) -> String {
        if width(text) > space {
            crate::terminal::cut(text, space.saturating_sub(width(self.style.ellipsis()))) + self.style.ellipsis()
        } else {
            text.to_owned()
        }
    }

    /// The status. Where the terminal is narrow, it leaves out numbers, then cuts what runs, and keeps the way out.
    fn status(&self, now: u64, columns: usize, queued: usize, asks: bool, way_out: &str) -> String {
        let doing = match (self.calls.as_slice(), &self.doing) {
            _ if asks => "waiting for your answer".to_owned(),
            ([one], _) => format!("{} {}", one.what, elapsed(now.saturating_sub(one.started_at))),
            ([.., last], _) => format!("{} tools, {}", self.calls.len(), last.what),
            ([], Activity::Waiting) => "waiting for the model".to_owned(),
            ([], Activity::Thinking) => "thinking".to_owned(),
            ([], Activity::Writing) => "writing".to_owned(),
            ([], Activity::Calling(tool)) => format!("writing call: {tool}"),
            ([], Activity::Key) => "waiting for a key".to_owned(),
            ([], Activity::Confirmation) => "waiting for `linger config confirm`".to_owned(),
            ([], Activity::Summarising) => "summarising older messages".to_owned(),
            ([], Activity::Retry(Some(until))) if *until > now => {
                format!("retry in {} s", (until - now).div_ceil(1000))
            }
            ([], Activity::Retry(_)) => "trying again".to_owned(),
        };
        let sign = if self.style.unicode { "…" } else { "..." };
        // Those with the smallest number are left out first, those with none never.
        let mut parts =
            vec![(None, format!("{sign} {doing}")), (Some(6), elapsed(now.saturating_sub(self.started_at)))];
        let tokens = self.usage.input_tokens + self.usage.output_tokens;
        if tokens > 0 {
            parts.push((Some(2), format!("{} tokens", money::tokens(tokens))));
        }
        if self.usage.cost_micros.is_some() {
            parts.push((Some(1), money::cost(&self.usage)));
        }
        if let (Some(used), Some(window @ 1..)) = (self.context_tokens, self.context_window) {
            parts.push((Some(3), format!("context {} %", used.saturating_mul(100) / window)));
        }
        parts.push((Some(4), self.mode.to_string()));
        if queued > 0 {
            parts.push((Some(5), format!("queued {queued}")));
        }
        parts.push((None, way_out.to_owned()));
        let between = if self.style.unicode { " · " } else { ", " };
        let space = columns.saturating_sub(1);
        loop {
            let texts: Vec<&str> = parts.iter().map(|(_, text)| text.as_str()).collect();
            let row = texts.join(between);
            let least = parts.iter().filter_map(|(rank, _)| *rank).min();
            let (doing, rest) = texts.split_first().map_or(("", 0), |(doing, _)| (*doing, width(&row) - width(doing)));
            if width(&row) <= space {
                return row;
            }
            // What a person is asked for stays whole.
            let min = if asks { width(doing) } else { MIN_DOING };
            if least.is_none_or(|least| least > 3 && rest + min <= space) {
                let (doing, rest) =
                    (self.shorten(doing, space.saturating_sub(rest)), texts.get(1..).unwrap_or_default());
                return [&[doing.as_str()], rest].concat().join(between);
            }
            parts.retain(|(rank, _)| *rank != least);
        }
    }
}

/// A time that passes, in seconds.
fn elapsed(ms: u64) -> String {
    match ms / 1000 {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3600 => format!("{} min {} s", s / 60, s % 60),
        s => format!("{} h {} min", s / 3600, s / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn live(events: &[Value]) -> Live {
        let mut live = Live::new(Style { color: false, unicode: true }, Mode::Ask, Some(1000));
        for event in events {
            live.event(&serde_json::from_value(event.clone()).unwrap());
        }
        live
    }

    #[test]
    fn the_status_says_what_runs_how_long_and_at_what_cost() {
        let started = json!({"kind": "turn_started", "seq": 1, "at": 1000, "turn": "t1", "prompt": "p1"});
        let check = |more: &[Value], now: u64, expect: &str| {
            let events: Vec<Value> = std::iter::once(started.clone()).chain(more.iter().cloned()).collect();
            assert_eq!(live(&events).rows(now, 100, 0, false, "Esc stops"), expect.split('\n').collect::<Vec<_>>());
        };
        check(&[], 4999, "… waiting for the model · 3 s · ask · Esc stops");
        let writes = json!({"kind": "tool_call_delta", "message": "m1", "block": 1, "call_id": "c1", "name": "ed\u{1b}it", "offset": 0, "text": "{"});
        check(std::slice::from_ref(&writes), 2000, "… writing call: ed␛it · 1 s · ask · Esc stops");
        let usage = json!({"input_tokens": 90, "output_tokens": 10, "cost_micros": 120});
        let said =
            json!({"kind": "message", "seq": 2, "message": "m1", "role": "assistant", "content": [], "usage": usage});
        let tool = json!({"kind": "tool_started", "seq": 3, "at": 2000, "call_id": "c1", "tool": "bash", "action": "cargo test\nls"});
        let out = json!({"kind": "tool_output_delta", "call_id": "c1", "offset": 0, "text": "one\ntwo\n\n1 %\r\u{1b}2 %\nfour"});
        check(
            &[writes, said, tool, out],
            63_000,
            "  │ two\n  │ ␛2 %\n  │ four\n… bash cargo test… 1 min 1 s · 1 min 2 s · 100 tokens · $0.0001 · context 10 % · ask · Esc stops",
        );
        let retry =
            json!({"kind": "notice", "seq": 2, "level": "warning", "code": "retry", "text": "x", "until_at": 4500});
        check(&[retry], 2000, "… retry in 3 s · 1 s · ask · Esc stops");
    }

    #[test]
    fn a_narrow_terminal_shows_what_runs_and_the_way_out() {
        let usage = json!({"input_tokens": 90_000, "output_tokens": 10, "cost_micros": 120});
        let started = json!({"kind": "turn_started", "seq": 1, "at": 1000, "turn": "t1", "prompt": "p1"});
        let said =
            json!({"kind": "message", "seq": 2, "message": "m1", "role": "assistant", "content": [], "usage": usage});
        let tool = json!({"kind": "tool_started", "seq": 3, "at": 2000, "call_id": "c1", "tool": "bash", "action": "cargo test --workspace --all"});
        let live = live(&[started, said, tool]);
        let check = |columns: usize, queued: usize, expect: &str| {
            let rows = live.rows(9000, columns, queued, false, "Esc stops");
            assert_eq!(rows.last().map(String::as_str), Some(expect), "{columns}");
        };
        check(
            120,
            2,
            "… bash cargo test --workspace --all 7 s · 8 s · 90k tokens · $0.0001 · context 9001 % · ask · queued 2 · Esc stops",
        );
        check(100, 2, "… bash cargo test --workspace --all 7 s · 8 s · context 9001 % · ask · queued 2 · Esc stops");
        check(80, 2, "… bash cargo test --workspace --all 7 s · 8 s · ask · queued 2 · Esc stops");
        check(60, 2, "… bash cargo test --wor… · 8 s · ask · queued 2 · Esc stops");
        check(40, 0, "… bash cargo test --… · 8 s · Esc stops");
        check(40, 2, "… bash cargo test --… · 8 s · Esc stops");
        check(24, 2, "… bash car… · Esc stops");
        let asked = live.rows(9000, 40, 0, true, "Esc stops");
        assert_eq!(asked, ["… waiting for your answer · Esc stops"]);
    }

    #[test]
    fn a_text_that_stalls_shows_the_word_that_is_not_complete() {
        let delta = |text: &str| json!({"kind": "text_delta", "message": "m1", "block": 0, "offset": 0, "text": text});
        let mut live = live(&[delta("so it is an unfin"), delta("ish\u{1b}")]);
        let word = |live: &Live| live.rows(0, 100, 0, false, "Esc stops").into_iter().rev().nth(1);
        assert_eq!(word(&live), None);
        live.stalls();
        assert_eq!(word(&live).as_deref(), Some("  unfinish␛"));
        live.event(&serde_json::from_value(delta("ed ")).unwrap());
        live.stalls();
        assert_eq!(word(&live), None);
    }

    #[test]
    fn a_row_is_never_wider_than_the_terminal() {
        let started = json!({"kind": "turn_started", "seq": 1, "at": 0, "turn": "t1", "prompt": "p1"});
        let tool = json!({"kind": "tool_started", "seq": 3, "at": 0, "call_id": "c1", "tool": "bash", "action": "漢字漢字漢字漢字漢字"});
        let out = json!({"kind": "tool_output_delta", "call_id": "c1", "offset": 0, "text": "漢字漢字漢字漢字漢字\nx"});
        for columns in 8..60 {
            for row in live(&[started.clone(), tool.clone(), out.clone()]).rows(0, columns, 3, false, "Esc stops") {
                assert!(crate::terminal::width(&row) < columns, "{columns}: {row}");
            }
        }
    }
}
