//! Tool calls as lines: the call, its result, its diff.

use linger_protocol::checkpoint::Checkpoint;
use linger_protocol::event::{ChangeKind, EventBody, Outcome, ToolFinished, ToolKind, ToolStarted};
use linger_protocol::id::CallId;
use linger_protocol::message::{ContentBlock, text_of};
use linger_protocol::path::shown;

use super::markdown::width;
use super::renderer::{Call, Renderer};
use super::style::Style;
use super::uncertain::uncertain_line;
use crate::terminal::{Output, clean_exact_line, clean_line, cut};

/// Files that a command changed and that its line names.
const CHANGED: usize = 5;

/// Lines of a diff that are shown; the session has all of them.
const MAX_DIFF: usize = 40;

/// Lines of an action that are shown behind its first one; `/output` and the log have all.
const MAX_ACTION: usize = 20;

/// Lines of a command's output that are shown once it has succeeded.
const TAIL: usize = 5;

/// Lines of one that has failed: what went wrong is usually at the end.
const TAIL_FAILED: usize = 15;

impl Renderer {
    pub(super) fn tool_started(&mut self, body: &EventBody, out: &mut Vec<Output>) {
        let EventBody::ToolStarted(ToolStarted { call_id, tool, action, tool_kind, .. }) = body else { return };
        self.call_line(tool, action, out);
        self.call_lines(action, out);
        let call = Call { tool: tool.clone(), action: action.clone(), kind: *tool_kind, started: true };
        self.calls.insert(call_id.clone(), call);
        self.last_call = Some(call_id.clone());
    }

    fn call_line(&mut self, tool: &str, action: &str, out: &mut Vec<Output>) {
        let style = self.settings.style;
        let tool = clean_line(tool).into_owned();
        // Most actions begin with the name of their tool.
        let action =
            action.strip_prefix(tool.as_str()).filter(|rest| rest.starts_with(' ')).unwrap_or(action).trim_start();
        let space = self.settings.width.saturating_sub(tool.chars().count() + 4);
        let action = one_line(action, space, &style);
        let line = format!("{} {} {action}", style.bullet(), style.bold(&tool));
        self.say(line.trim_end(), out);
    }

    /// The lines of an action behind its first one.
    fn call_lines(&mut self, action: &str, out: &mut Vec<Output>) {
        let (style, space) = (self.settings.style, self.settings.width.saturating_sub(4));
        let rest = action.lines().count().saturating_sub(1);
        let most = if self.whole { usize::MAX } else { MAX_ACTION };
        for line in action.lines().skip(1).take(most) {
            self.say(&format!("    {}", one_line(line, space, &style)), out);
        }
        if rest > most {
            self.say(&style.dim(&format!("    ({} more lines)", rest - most)), out);
        }
    }

    /// The last lines of an output.
    fn tail(&mut self, text: &str, most: usize, out: &mut Vec<Output>) {
        let (style, space) = (self.settings.style, self.settings.width.saturating_sub(5));
        let lines: Vec<&str> = text.lines().collect();
        for line in lines.iter().skip(lines.len().saturating_sub(most)) {
            // A carriage return begins the line again.
            let line = line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default().replace('\t', "    ");
            let line = clean_line(&line);
            let line = if width::of(&line) > space {
                cut(&line, space.saturating_sub(3)) + style.ellipsis()
            } else {
                line.into_owned()
            };
            self.say(&style.dim(&format!("    {line}")), out);
        }
    }

    pub(super) fn tool_finished(&mut self, id: &CallId, body: &EventBody, out: &mut Vec<Output>) {
        let EventBody::ToolFinished(ToolFinished { is_error, outcome, content, file, diff, ms, exit, .. }) = body
        else {
            return;
        };
        let style = self.settings.style;
        let call = self.calls.remove(id);
        let kind = call.as_ref().map_or(ToolKind::Other, |call| call.kind);
        if let Some(Call { tool, action, started, .. }) = &call
            && (!started || self.last_call.as_ref() != Some(id))
        {
            // It never started, or other output came between: name the call again.
            self.call_line(tool, action, out);
        }
        let text = text_of(content);
        let first = one_line(text.trim_start(), self.settings.width.saturating_sub(20), &style);
        let took = duration(*ms);
        let good = *outcome == Outcome::Ran && !is_error;
        let failed_exit = exit.filter(|_| !good).map(|exit| match (exit.code, exit.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("ended by signal {signal}"),
            (None, None) => "failed".to_owned(),
        });
        let said = output(&text, exit.is_some());
        let result = match outcome {
            Outcome::Ran if good => match text.lines().count() {
                0 => took,
                1 if text == "[no output]" => format!("{took}, no output"),
                1 => format!("{took}, 1 line"),
                n => format!("{took}, {n} lines"),
            },
            Outcome::Ran if failed_exit.is_some() => format!("{}, {took}", failed_exit.unwrap_or_default()),
            Outcome::Ran | Outcome::Invalid => first,
            // Who has denied it stands above; a rule or a mode does not.
            Outcome::Denied => match first.strip_prefix("not run: ").filter(|why| !why.starts_with("denied by ")) {
                Some(why) => format!("denied: {why}"),
                None => "denied".to_owned(),
            },
            Outcome::TimedOut => format!("timed out after {took}"),
            Outcome::Cancelled => "cancelled".to_owned(),
            Outcome::Unknown => "outcome unknown: the daemon ended while it ran".to_owned(),
        };
        let sign = if good { style.good() } else { style.bad() };
        let file =
            file.as_ref().map(|file| format!(", full output in {}", clean_line(&shown(file)))).unwrap_or_default();
        self.say(&format!("{sign} {result}{file}"), out);
        for block in content {
            if let ContentBlock::ResourceLink { uri, name, .. } = block {
                self.say(&style.dim(&format!("  {}: {}", clean_line(name), clean_line(uri))), out);
            }
        }
        let executes = kind == ToolKind::Execute;
        let is_delegate = call.as_ref().is_some_and(|call| call.tool == "delegate");
        match outcome {
            // Of a file that was read too.
            Outcome::Ran if self.whole => self.tail(said, usize::MAX, out),
            Outcome::Ran if good && is_delegate => self.say_child_answer(text.trim(), out),
            Outcome::Ran if good && executes => self.tail(said, TAIL, out),
            // Without an exit code its first line stands above.
            Outcome::Ran if !good && exit.is_some() => self.tail(said, TAIL_FAILED, out),
            Outcome::TimedOut if executes => self.tail(said, TAIL_FAILED, out),
            _ => {}
        }
        if let Some(diff) = diff {
            self.diff(diff, out);
        }
        if let Some((_, line)) = self.changed.take_if(|(call, _)| call == id) {
            self.say(&line, out);
        }
    }

    /// The files that a command changed.
    pub(super) fn checkpoint(&mut self, taken: &Checkpoint, out: &mut Vec<Output>) {
        if taken.since.is_none() || taken.changed == 0 {
            return;
        }
        let named: Vec<String> =
            taken.files.iter().take(CHANGED).map(|file| clean_line(&shown(file)).into_owned()).collect();
        let more = (taken.changed as usize).saturating_sub(named.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let line = self.settings.style.dim(&format!("  changed {}{more}", named.join(", ")));
        if self.calls.contains_key(&taken.call_id) {
            // Below the call's result, which follows.
            self.changed = Some((taken.call_id.clone(), line))
        } else {
            self.say(&line, out)
        }
    }

    /// The files that were put back, a line each.
    pub(super) fn undone(&mut self, body: &EventBody, out: &mut Vec<Output>) {
        let EventBody::Undone { redo, changes, failed, uncertain, .. } = body else { return };
        let style = self.settings.style;
        let what = if *redo { "done again" } else { "undone" };
        if changes.is_empty() {
            self.say(&style.dim(&format!("nothing was {what}")), out);
        }
        for change in changes {
            let how = match change.kind {
                ChangeKind::Create => "created",
                ChangeKind::Delete => "deleted",
                ChangeKind::Edit | ChangeKind::Unknown => "restored",
            };
            let line = format!("{what}: {how} {}", clean_line(&shown(&change.path)));
            self.say(&style.dim(&line), out);
        }
        for left in failed {
            let (path, reason) = (shown(&left.path), clean_line(&left.reason));
            self.say(&style.yellow(&format!("left unchanged: {}: {reason}", clean_line(&path))), out);
        }
        for left in uncertain {
            self.say(&style.yellow(&format!("left unchanged: {}", uncertain_line(left))), out);
        }
    }

    fn diff(&mut self, diff: &str, out: &mut Vec<Output>) {
        let style = self.settings.style;
        let total = diff.lines().count();
        let most = if self.whole { usize::MAX } else { MAX_DIFF };
        for line in diff.lines().take(most) {
            let line = clean_line(line);
            let line = match line.as_bytes().first() {
                Some(b'+') if !line.starts_with("+++") => style.green(&line),
                Some(b'-') if !line.starts_with("---") => style.red(&line),
                Some(b'@') => style.cyan(&line),
                _ => line.into_owned(),
            };
            self.say(&format!("    {line}"), out);
        }
        if total > most {
            self.say(&format!("    ({} more lines)", total - most), out);
        }
    }
}

/// The output of a command, without what the daemon says of its end.
fn output(text: &str, exited: bool) -> &str {
    let text = text.trim_end_matches('\n');
    let before = text.rsplit_once('\n').map_or("", |(before, _)| before);
    let last = text.rsplit('\n').next().unwrap_or_default();
    let text = if exited && last.starts_with("[exit code ") && last.ends_with(']') { before } else { text };
    if text == "[no output]" { "" } else { text.trim_end_matches('\n') }
}

/// The first line of `text`, cut to `room` columns.
fn one_line(text: &str, space: usize, style: &Style) -> String {
    let mut lines = text.lines();
    let first = clean_exact_line(lines.next().unwrap_or_default());
    let cut = width::cut(&first, space.max(10));
    let more = cut.len() < first.len() || lines.next().is_some();
    if more { format!("{cut}{}", style.ellipsis()) } else { cut.to_owned() }
}

/// How long something took.
fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
    }
}
