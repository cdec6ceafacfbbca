//! The output of `linger doctor`: a sign, a sentence and perhaps a hint for each check.

use serde_json::json;

use crate::error::Failure;
use crate::render::style::Style;
use crate::terminal::{Terminal, clean_line};

/// The output and result of the checks so far.
pub(super) struct Report {
    pub(super) terminal: Terminal,
    pub(super) style: Style,
    pub(super) json: bool,
    pub(super) healthy: bool,
    /// Problems printed so far, so that none is printed twice.
    pub(super) bad: Vec<String>,
}

impl Report {
    pub(super) fn good(&mut self, text: &str) -> Result<(), Failure> {
        let sign = self.style.good();
        self.row(Some(true), &sign, text, None)
    }

    pub(super) fn bad(&mut self, text: &str, hint: Option<&str>) -> Result<(), Failure> {
        self.healthy = false;
        // One cause can make several checks fail with the same message.
        if self.bad.iter().any(|printed| printed == text) {
            return Ok(());
        }
        self.bad.push(text.to_owned());
        let sign = self.style.bad();
        self.row(Some(false), &sign, text, hint)
    }

    pub(super) fn failure(&mut self, failure: &Failure) -> Result<(), Failure> {
        self.bad(failure.message.as_deref().unwrap_or("failed"), failure.hint.as_deref())
    }

    /// Adds a detail to the previous line.
    pub(super) fn more(&mut self, text: &str, hint: Option<&str>) -> Result<(), Failure> {
        self.row(None, " ", text, hint)
    }

    fn row(&mut self, ok: Option<bool>, sign: &str, text: &str, hint: Option<&str>) -> Result<(), Failure> {
        if self.json {
            return Ok(self.terminal.data(&json!({ "ok": ok, "text": text, "hint": hint }).to_string())?);
        }
        self.terminal.text(&format!("{sign} {}\n", clean_line(text)))?;
        hint.map_or(Ok(()), |hint| Ok(self.terminal.line(&format!("  hint: {hint}"))?))
    }
}
