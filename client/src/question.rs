//! Permissions as questions: what is shown of one, which key means which decision, and which are still open.

use std::path::Path;

use linger_protocol::event::EventBody;
use linger_protocol::id::PermissionId;
use linger_protocol::permission::{AlreadyAnswered, Answer, Decision, Pending};
use serde_json::Value;

use crate::connect::key;
use crate::error::Failure;
use crate::render::style::Style;
use crate::terminal::{clean, clean_line};

/// Lines of one argument that are shown; the rest is counted.
const MAX_LINES: usize = 40;

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
        }
    }

    /// What would run, all of it that fits.
    pub(crate) fn text(&self, style: &Style) -> String {
        let mut out = format!(
            "{} {} wants to run in {}\n",
            style.yellow("?"),
            style.bold(&clean_line(&self.tool)),
            clean_line(&self.cwd)
        );
        indent(&mut out, &self.action);
        for (name, value) in self.input.as_object().into_iter().flatten() {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if !self.action.contains(value.trim()) {
                indent(&mut out, &format!("{name}: {value}"));
            }
        }
        out
    }

    /// The line that says which keys there are.
    pub(crate) fn keys(&self, style: &Style) -> String {
        let key = |key: &str| style.bold(key);
        let grant = if self.grant.is_empty() { String::new() } else { format!(" {}", self.short_grant(style)) };
        format!("  {} once  {} in this session  {} always{grant}  {} no\n", key("y"), key("s"), key("a"), key("n"))
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
        format!("answer with `linger answer {} allow|session|always|deny`", self.permission)
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
pub(crate) fn decision(key: char) -> Option<Decision> {
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
        self.open.first()
    }

    /// Takes a question off, once it is answered.
    pub(crate) fn remove(&mut self, permission: &PermissionId) {
        self.open.retain(|question| question.permission != *permission);
    }
}

fn indent(out: &mut String, text: &str) {
    let text = clean(text);
    let total = text.lines().count();
    for line in text.lines().take(MAX_LINES) {
        out.push_str(&format!("    {line}\n"));
    }
    if total > MAX_LINES {
        out.push_str(&format!("    ({} more lines)\n", total - MAX_LINES));
    }
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
    fn a_long_rule_is_cut_only_where_it_repeats_the_action() {
        let style = Style { color: false, unicode: true };
        let long = format!("echo {}", "x".repeat(60));
        let keys = |action: &str, grant: String| {
            let (tool, cwd, digest) = ("bash".to_owned(), "/w".to_owned(), String::new());
            let (permission, input) = ("q1".into(), Value::Null);
            Question { permission, tool, action: action.to_owned(), input, cwd, digest, grant }.keys(&style)
        };
        let cut = format!(" always bash(echo {}…)  ", "x".repeat(35));
        assert!(keys(&long, format!("bash({long})")).contains(&cut));
        assert!(keys(&format!("{long} *"), format!("bash({long} *)")).contains(&format!("bash({long} *)")));
        assert!(keys("cargo test", "bash(cargo test)".to_owned()).contains("bash(cargo test)"));
    }
}
