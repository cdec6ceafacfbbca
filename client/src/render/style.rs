//! Colours and signs, or plain text without them. Text must be clean before it is styled.

/// The style of talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    /// Whether colours are used.
    pub(crate) color: bool,
    /// Whether signs beyond ASCII are used.
    pub(crate) unicode: bool,
}

impl Style {
    pub(crate) fn dim(&self, text: &str) -> String {
        self.sgr("2", text)
    }

    pub(crate) fn bold(&self, text: &str) -> String {
        self.sgr("1", text)
    }

    pub(crate) fn red(&self, text: &str) -> String {
        self.sgr("31", text)
    }

    pub(crate) fn green(&self, text: &str) -> String {
        self.sgr("32", text)
    }

    pub(crate) fn yellow(&self, text: &str) -> String {
        self.sgr("33", text)
    }

    pub(crate) fn cyan(&self, text: &str) -> String {
        self.sgr("36", text)
    }

    fn sgr(&self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Before a tool call.
    pub(crate) fn bullet(&self) -> &'static str {
        if self.unicode { "•" } else { "*" }
    }

    /// The sign of success.
    pub(crate) fn good(&self) -> String {
        self.green(if self.unicode { "✓" } else { "ok" })
    }

    /// The sign of failure.
    pub(crate) fn bad(&self) -> String {
        self.red(if self.unicode { "✗" } else { "failed" })
    }

    /// Something was left out.
    pub(crate) fn ellipsis(&self) -> &'static str {
        if self.unicode { "…" } else { "..." }
    }

    /// A line under what was cut off.
    pub(crate) fn rule(&self) -> &'static str {
        if self.unicode { "╌╌╌" } else { "---" }
    }
}
