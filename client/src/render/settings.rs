//! How events are shown: what a terminal can do, and what the user wants to see.

use super::style::Style;

/// How events are shown.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Colours and signs.
    pub(crate) style: Style,
    /// Columns of the terminal.
    pub(crate) width: usize,
    /// Whether text is printed as it came, for a stdout that is no terminal.
    pub(crate) raw: bool,
    /// Whether Markdown is drawn; else its source is shown.
    pub(crate) markdown: bool,
    /// Whether text comes in deltas; else whole messages are printed.
    pub(crate) deltas: bool,
    /// How much thinking is shown.
    pub(crate) thinking: Thinking,
    /// Whether the end of a turn shows its cost.
    pub(crate) usage: bool,
    /// Whether permissions are shown here and not as questions.
    pub(crate) permissions: bool,
    /// Whether prompts are shown.
    pub(crate) prompts: bool,
    /// Our own name: after the replay our prompts are on the screen already.
    pub(crate) me: String,
}

/// How much of a model's thinking is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Thinking {
    /// All of it, dimmed.
    #[default]
    Show,
    /// Nothing.
    Hide,
    /// The beginning of its first line, dimmed.
    Summary,
}

impl std::fmt::Display for Thinking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Show => "show",
            Self::Hide => "hide",
            Self::Summary => "summary",
        })
    }
}

impl std::str::FromStr for Thinking {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = [Self::Show, Self::Hide, Self::Summary].into_iter().find(|known| known.to_string() == name);
        known.ok_or_else(|| format!("unknown value '{name}' for thinking: show, hide or summary"))
    }
}
