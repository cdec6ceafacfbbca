//! Permissions as questions: what is shown of one, which key means which decision, and which are still open.
//!
//! What is allowed by a key was shown: of a long question only the beginning and the end are, and then the keys that allow do
//! nothing before another has shown the rest.

use std::path::Path;

use linger_protocol::event::EventBody;
use linger_protocol::id::PermissionId;
use linger_protocol::permission::{AlreadyAnswered, Answer, Decision, Pending};
use serde_json::Value;

use crate::connect::key;
use crate::error::Failure;
use crate::render::style::Style;
use crate::terminal::{clean_exact, clean_line};

/// Lines of one argument that are shown unasked: its beginning, and its end.
const LINES: [usize; 2] = [30, 10];

/// Characters of a line; what is longer is several, so that none runs off the top of the screen.
const LINE: usize = 160;

/// Characters of a rule's pattern that are shown where the action stands above it.
const MAX_GRANT: usize = 40;

/// A permission that somebody could answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    /// The permission.
    pub(crate) permission: PermissionId,
    tool: String,
    action: String,
    input: Value,
    cwd: String,
    digest: String,
    grant: String,
    /// Somebody wants to see all of it.
    whole: bool,
    /// It has an answer from here, of which the daemon has not said yet what comes of it.
    answered: bool,
}

/// What a key comes to.
#[derive(Debug, PartialEq)]
pub(crate) enum Press {
    /// It means nothing now.
    Nothing,
    /// The question is to be shown again, whole.
    Show,
    /// The first question has this answer.
    Answer(Answer),
}

impl Question {
    /// The question that an event asks.
    pub(crate) fn of_event(body: &EventBody) -> Option<Self> {
        let EventBody::PermissionRequested { permission, tool, action, input, cwd, digest, grant, .. } = body else {
            return None;
        };
        Some(Self {
            permission: permission.clone(),
            tool: tool.clone(),
            action: action.clone(),
            input: input.clone(),
            cwd: short_path(cwd),
            digest: digest.clone(),
            grant: grant.clone(),
            whole: false,
            answered: false,
        })
    }

    /// The question of a row of `permission/list`.
    pub(crate) fn of_pending(row: &Pending) -> Self {
        Self {
            permission: row.permission.clone(),
            tool: row.tool.clone(),
            action: row.action.clone(),
            input: row.input.clone(),
            cwd: short_path(&row.cwd),
            digest: row.digest.clone(),
            grant: row.grant.clone(),
            whole: false,
            answered: false,
        }
    }

    /// What would run: the action, and each argument but the command or the path that it is.
    fn parts(&self) -> Vec<String> {
        let said = |name: &str, value: &str| {
            let path = self.action.strip_prefix(&self.tool).and_then(|rest| rest.strip_prefix(' '));
            value == self.action || (name == "path" && path == Some(value))
        };
        let argument = |(name, value): (&String, &Value)| match value.as_str() {
            Some(text) if said(name, text) => None,
            // Nothing, or spaces, are seen in quotes alone.
            Some(text) if !text.trim().is_empty() => Some(format!("{name}: {text}")),
            _ => Some(format!("{name}: {value}")),
        };
        let arguments = self.input.as_object().into_iter().flatten().filter_map(argument);
        std::iter::once(self.action.clone()).chain(arguments).collect()
    }

    /// What would run: all of it, or what of it is shown unasked.
    pub(crate) fn text(&self, style: &Style) -> String {
        let mut out = format!(
            "{} {} wants to run in {}\n",
            style.yellow("?"),
            style.bold(&clean_line(&self.tool)),
            clean_line(&self.cwd)
        );
        let most = if self.whole { [usize::MAX, 0] } else { LINES };
        self.parts().iter().for_each(|part| indent(&mut out, part, most));
        out
    }

    /// Whether something of it is not shown.
    pub(crate) fn is_cut(&self) -> bool {
        !self.whole && self.parts().iter().any(|part| lines(&clean_exact(part)).len() > LINES.iter().sum())
    }

    /// The line that says which keys there are: alone, or as a line of their own where one is being typed.
    pub(crate) fn keys(&self, style: &Style, prompt: bool) -> String {
        let key = |key: &str| style.bold(key);
        let enter = if prompt { ", then Enter" } else { "" };
        if self.is_cut() {
            return format!("  {} show all of it, then allow it or not  {} no{enter}\n", key("v"), key("n"));
        }
        let grant = if self.grant.is_empty() { String::new() } else { format!(" {}", self.short_grant(style)) };
        let [y, s, a, n] = ["y", "s", "a", "n"].map(key);
        format!("  {y} once  {s} in this session  {a} always{grant}  {n} no{enter}\n")
    }

    /// What is said when something was typed that is no answer.
    pub(crate) fn unanswered(&self, style: &Style) -> String {
        let dropped = style.dim("  that is no answer and was dropped: a key alone answers, Ctrl-C cancels the turn");
        format!("{dropped}\n{}", self.keys(style, false))
    }

    /// The keys that mean something: those that decide, or show the rest and deny.
    pub(crate) fn answers(&self) -> &'static str {
        if self.is_cut() { "vVnN" } else { "yYsSaAnN" }
    }

    /// The rule that `always` would write; of a long action that stands above it word for word only the beginning.
    fn short_grant(&self, style: &Style) -> String {
        let parts = self.grant.split_once('(').and_then(|(tool, rest)| Some((tool, rest.strip_suffix(')')?)));
        // A `*` at the end means more than it says, and is not hidden.
        let repeats = |pattern: &str| self.action.contains(pattern) && !pattern.ends_with('*');
        match parts {
            Some((tool, pattern)) if pattern.chars().count() > MAX_GRANT && repeats(pattern) => {
                let start: String = pattern.chars().take(MAX_GRANT).collect();
                format!("{}({}{})", clean_line(tool), clean_line(&start), style.ellipsis())
            }
            _ => clean_line(&self.grant).into_owned(),
        }
    }

    /// How to answer it from elsewhere.
    pub(crate) fn elsewhere(&self) -> String {
        let first = if self.is_cut() { "`linger inbox` shows all of it; " } else { "" };
        format!("{first}answer with `linger answer {} allow|session|always|deny`", self.permission)
    }

    /// The answer to exactly what was shown.
    pub(crate) fn answer(&self, decision: Decision, reason: Option<String>) -> Result<Answer, Failure> {
        Ok(Answer {
            permission: self.permission.clone(),
            decision,
            reason,
            digest: Some(self.digest.clone()),
            key: Some(key()?),
        })
    }
}

/// The decision that a key stands for.
fn decision(key: char) -> Option<Decision> {
    Some(match key {
        'y' | 'Y' => Decision::AllowOnce,
        's' | 'S' => Decision::AllowSession,
        'a' | 'A' => Decision::AllowAlways,
        'n' | 'N' => Decision::RejectOnce,
        _ => return None,
    })
}

/// A decision as people say it.
pub(crate) fn said(decision: Decision) -> &'static str {
    match decision {
        Decision::AllowOnce => "allowed",
        Decision::AllowSession => "allowed in this session",
        Decision::AllowAlways => "allowed always",
        Decision::RejectOnce => "denied",
        Decision::Cancelled => "not answered: the turn ended",
    }
}

/// Who was faster, from the `data` of the error `already answered`.
pub(crate) fn too_late(data: Option<Value>) -> String {
    match data.and_then(|data| serde_json::from_value::<AlreadyAnswered>(data).ok()) {
        Some(won) => format!("already answered: {} by {}", said(won.decision), won.by),
        None => "already answered".to_owned(),
    }
}

/// The questions of a session that are open, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: Vec<Question>,
}

impl Questions {
    /// Keeps up with an event; whether the open question is another now.
    pub(crate) fn event(&mut self, body: &EventBody) -> bool {
        let before = self.first().map(|question| question.permission.clone());
        if let Some(question) = Question::of_event(body) {
            self.open.push(question);
        }
        match body {
            EventBody::PermissionResolved { permission, .. } => self.remove(permission),
            EventBody::TurnFinished { .. } => self.open.clear(),
            _ => {}
        }
        before.as_ref() != self.first().map(|question| &question.permission)
    }

    /// The one to be asked.
    pub(crate) fn first(&self) -> Option<&Question> {
        self.open.iter().find(|question| !question.answered)
    }

    /// Whether a key means something for the first question.
    pub(crate) fn has(&self, key: char) -> bool {
        self.first().is_some_and(|question| question.answers().contains(key))
    }

    /// What this key comes to for the first question; one that is answered makes room for the next.
    pub(crate) fn press(&mut self, key: char) -> Result<Press, Failure> {
        let means = self.has(key);
        let first = self.open.iter_mut().find(|question| !question.answered);
        let Some(question) = first.filter(|_| means) else { return Ok(Press::Nothing) };
        let Some(decision) = decision(key) else {
            question.whole = true;
            return Ok(Press::Show);
        };
        let answer = question.answer(decision, None)?;
        question.answered = true;
        Ok(Press::Answer(answer))
    }

    /// The daemon did not take an answer: the question is still to be asked.
    pub(crate) fn again(&mut self, permission: &PermissionId) {
        let refused = self.open.iter_mut().filter(|question| question.permission == *permission);
        refused.for_each(|question| question.answered = false);
    }

    /// Takes a question off, once it is answered.
    pub(crate) fn remove(&mut self, permission: &PermissionId) {
        self.open.retain(|question| question.permission != *permission);
    }
}

fn indent(out: &mut String, text: &str, [head, tail]: [usize; 2]) {
    let text = clean_exact(text);
    let lines = lines(&text);
    let left_out = lines.len().saturating_sub(head.saturating_add(tail));
    for (at, (goes_on, line)) in lines.iter().enumerate() {
        if left_out > 0 && at == head {
            let lines = if left_out == 1 { "line is" } else { "lines are" };
            out.push_str(&format!("    ({left_out} {lines} not shown)\n"));
        }
        if left_out == 0 || at < head || at >= lines.len() - tail {
            let before = if *goes_on { "  ~ " } else { "    " };
            out.push_str(&format!("{before}{line}\n"));
        }
    }
}

/// The lines of a text; one that is long is several, all but the first of which go on with it.
fn lines(text: &str) -> Vec<(bool, &str)> {
    let mut lines = Vec::new();
    for mut line in text.lines() {
        let mut goes_on = false;
        while let Some((end, _)) = line.char_indices().nth(LINE) {
            let (piece, rest) = line.split_at(end);
            lines.push((goes_on, piece));
            (goes_on, line) = (true, rest);
        }
        lines.push((goes_on, line));
    }
    lines
}

/// A path with the home directory as `~`.
pub(crate) fn short_path(path: &Path) -> String {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    match home.as_deref().and_then(|home| path.strip_prefix(home).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_is_as_many_as_it_takes() {
        let line = "ä".repeat(LINE);
        assert_eq!(lines(&line), [(false, line.as_str())]);
        let long = format!("{line}{line}b\n\nc");
        assert_eq!(lines(&long), [(false, line.as_str()), (true, &line), (true, "b"), (false, ""), (false, "c")]);
        let mut out = String::new();
        indent(&mut out, &format!("{line}b"), LINES);
        assert_eq!(out, format!("    {line}\n  ~ b\n"));
    }

    #[test]
    fn a_long_rule_is_cut_only_where_it_repeats_the_action() {
        let style = Style { color: false, unicode: true };
        let long = format!("echo {}", "x".repeat(60));
        let keys = |action: &str, grant: String| {
            let (tool, cwd, digest) = ("bash".to_owned(), "/w".to_owned(), String::new());
            let (permission, input) = ("q1".into(), Value::Null);
            Question {
                permission,
                tool,
                action: action.to_owned(),
                input,
                cwd,
                digest,
                grant,
                whole: false,
                answered: false,
            }
            .keys(&style, false)
        };
        let cut = format!(" always bash(echo {}…)  ", "x".repeat(35));
        assert!(keys(&long, format!("bash({long})")).contains(&cut));
        assert!(keys(&format!("{long} *"), format!("bash({long} *)")).contains(&format!("bash({long} *)")));
        assert!(keys("cargo test", "bash(cargo test)".to_owned()).contains("bash(cargo test)"));
    }

    #[test]
    fn nothing_is_allowed_that_was_not_shown() {
        let style = Style { color: false, unicode: true };
        let command = |lines: usize| (1..=lines).map(|n| format!("echo {n}")).collect::<Vec<_>>().join("\n");
        let asked = |action: String| {
            let (tool, cwd, digest, grant) = ("bash".to_owned(), "/w".to_owned(), String::new(), String::new());
            let question = Question {
                permission: "q1".into(),
                tool,
                action,
                input: Value::Null,
                cwd,
                digest,
                grant,
                whole: false,
                answered: false,
            };
            Questions { open: vec![question] }
        };
        let mut short = asked(command(40));
        assert!(short.first().unwrap().text(&style).contains("echo 20\n"));
        assert!(matches!(short.press('y').unwrap(), Press::Answer(answer) if answer.decision == Decision::AllowOnce));
        let mut long = asked(command(41));
        let text = |questions: &Questions| questions.first().unwrap().text(&style);
        assert!(text(&long).contains("    echo 30\n    (1 line is not shown)\n    echo 32\n"), "{}", text(&long));
        for key in ['y', 's', 'a', 'x'] {
            assert_eq!(long.press(key).unwrap(), Press::Nothing);
        }
        assert!(long.first().unwrap().keys(&style, false).starts_with("  v show all"));
        assert_eq!(long.press('v').unwrap(), Press::Show);
        assert!(text(&long).contains("    echo 31\n") && !text(&long).contains("not shown"));
        assert!(matches!(long.press('y').unwrap(), Press::Answer(_)) && long.first().is_none());
        long.again(&"q1".into());
        assert!(long.first().is_some_and(|question| !question.is_cut()), "a refused answer loses no question");
        let mut denied = asked(command(400));
        assert!(matches!(denied.press('n').unwrap(), Press::Answer(answer) if answer.decision == Decision::RejectOnce));
    }

    #[test]
    fn every_argument_is_shown_that_the_action_is_not() {
        let check = |tool: &str, action: &str, input: Value, expect: &[&str]| {
            let (tool, action, cwd, digest) = (tool.to_owned(), action.to_owned(), "/w".to_owned(), String::new());
            let (permission, grant, whole, answered) = ("q1".into(), String::new(), false, false);
            let question = Question { permission, tool, action, input, cwd, digest, grant, whole, answered };
            assert_eq!(question.parts(), expect);
        };
        let write = |content: &str| serde_json::json!({"path": "x.sh", "content": content});
        check("write", "write x.sh", write(""), &["write x.sh", "content: \"\""]);
        check("write", "write x.sh", write(" \n"), &["write x.sh", "content: \" \\n\""]);
        check("write", "write x.sh", write("sh"), &["write x.sh", "content: sh"]);
        check("write", "write x.sh", write("x.sh"), &["write x.sh", "content: x.sh"]);
        let edit = serde_json::json!({"new": "", "old": "x", "path": "x.sh"});
        check("edit", "edit x.sh", edit, &["edit x.sh", "new: \"\"", "old: x"]);
        let bash = serde_json::json!({"command": "sleep 30", "timeout": 30});
        check("bash", "sleep 30", bash, &["sleep 30", "timeout: 30"]);
        let elsewhere = serde_json::json!({"content": "true", "path": "/w/x.sh"});
        check("write", "write x.sh", elsewhere, &["write x.sh", "content: true", "path: /w/x.sh"]);
    }

    #[test]
    fn a_question_hides_no_character() {
        let mut out = String::new();
        indent(&mut out, "ls\rX\r # \u{e0041}\u{200b}\u{ad}\u{3164}\u{202e}ä\ttab\nnext", LINES);
        assert_eq!(out, "    ls␍X␍ # <e0041><200b><00ad><3164><202e>ä\ttab\n    next\n");
    }
}
