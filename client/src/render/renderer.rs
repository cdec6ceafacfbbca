//! The renderer: what it keeps between events, and how a line of linger itself is printed.
//!
//! Events are told apart in `event`; the other chapters (`stream`, `tool`, `hosted`, …) print one kind of them each.

use std::collections::{HashMap, HashSet};

use linger_protocol::event::ToolKind;
use linger_protocol::id::{CallId, MessageId, PromptId};

use super::first_line::FirstLine;
use super::markdown::width::hang_lines;
use super::markdown::{Layout, Prose};
use super::settings::{Settings, Thinking};
use super::shaped::Shaped;
use super::style::Style;
use crate::terminal::Output;

/// The kind of the last output, if its line is not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Midline {
    Text,
    Thinking,
    /// A tool that runs at the provider.
    Hosted,
}

/// A tool call without a result.
pub(super) struct Call {
    pub(super) tool: String,
    /// The daemon's description of it; its first argument until then.
    pub(super) action: String,
    pub(super) kind: ToolKind,
    /// Whether its line was printed.
    pub(super) started: bool,
}

/// The text of a hosted tool's block.
#[derive(Debug, Default)]
pub(super) struct HostedText {
    pub(super) block: Option<(MessageId, u32)>,
    pub(super) text: String,
    /// Bytes of its lines that are on the screen.
    pub(super) shown: usize,
}

/// Turns events into text.
pub(crate) struct Renderer {
    pub(super) settings: Settings,
    pub(super) midline: Option<Midline>,
    /// The kind of the block that streams, or streamed last.
    pub(super) after: Option<Midline>,
    pub(super) block: Option<(MessageId, u32)>,
    /// The text that streams, and the thinking; both behind a gutter.
    pub(super) prose: Prose,
    pub(super) thought: Prose,
    /// The held-back part of answers that must fit a schema.
    pub(super) shaped: Shaped,
    pub(super) calls: HashMap<CallId, Call>,
    /// The call whose line was printed last.
    pub(super) last_call: Option<CallId>,
    /// Our own prompts that are on the screen where they begin.
    pub(super) mine: HashSet<PromptId>,
    /// The first line of each prompt that has not begun, for when it is taken back.
    pub(super) waiting: HashMap<PromptId, String>,
    /// Whether a turn runs: a prompt that waits for its end is shown again where it begins.
    pub(super) busy: bool,
    pub(super) replaying: bool,
    /// Whether the last answer was cut at the token limit with its line open, so that the next one may continue it.
    pub(super) cut: bool,
    /// The end of the last announced wait, and whether the turn continues then.
    pub(super) wait: Option<(u64, bool)>,
    /// The thinking that is shown by its first line only.
    pub(super) first_line: FirstLine,
    /// The call or result of a tool that runs at the provider, as far as it has streamed.
    pub(super) hosted: HostedText,
    /// Whether outputs, actions and differences are shown whole.
    pub(super) whole: bool,
    /// The line with the files that a call changed, until its result.
    pub(super) changed: Option<(CallId, String)>,
    /// Whether the session is new: no request was made, so none can be another one than before.
    pub(super) is_new: bool,
    /// Why the context was not compacted, until the end of that turn, which says the same.
    pub(super) not_compacted: Option<String>,
}

impl Renderer {
    /// A renderer for a new screen.
    pub(crate) fn new(settings: Settings) -> Self {
        let Style { color, unicode } = settings.style;
        let layout = Layout { width: settings.width, markdown: settings.markdown, color, unicode, dim: false };
        Self {
            settings,
            midline: None,
            after: None,
            block: None,
            prose: Prose::new(layout),
            thought: Prose::new(Layout { markdown: false, dim: true, ..layout }),
            shaped: Shaped::default(),
            calls: HashMap::new(),
            last_call: None,
            mine: HashSet::new(),
            waiting: HashMap::new(),
            busy: false,
            replaying: true,
            cut: false,
            wait: None,
            first_line: FirstLine::default(),
            hosted: HostedText::default(),
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

    /// How much thinking is shown.
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

    /// Prints a line of linger itself: it begins in the first column, and its further rows do not.
    pub(super) fn say(&mut self, line: &str, out: &mut Vec<Output>) {
        self.fresh_line(out);
        self.last_call = None;
        out.push(Output::Talk(format!("{}\n", hang_lines(line, self.settings.width))));
    }

    /// Prints a dimmed line of linger itself.
    pub(super) fn say_dim(&mut self, line: &str, out: &mut Vec<Output>) {
        self.say(&self.settings.style.dim(line), out);
    }

    /// Ends an open line, before other output.
    pub(crate) fn fresh_line(&mut self, out: &mut Vec<Output>) {
        match self.midline.take() {
            // In a pipe only the end of the message ends its line.
            Some(Midline::Text) if self.settings.raw => self.midline = Some(Midline::Text),
            Some(Midline::Text) => out.push(Output::Text(self.prose.end_row())),
            Some(Midline::Thinking) => out.push(Output::Talk(self.thought.end_row())),
            Some(Midline::Hosted) => out.push(Output::Talk("\n".to_owned())),
            None => {}
        }
    }

    /// Ends the text of the model, with what is held back of it.
    pub(super) fn end_text(&mut self, out: &mut Vec<Output>) {
        let thought = self.thought.end();
        if !thought.is_empty() {
            out.push(Output::Talk(thought));
        }
        let text = if !self.settings.raw {
            self.prose.end()
        } else if self.midline == Some(Midline::Text) {
            "\n".to_owned()
        } else {
            String::new()
        };
        if !text.is_empty() {
            out.push(Output::Text(text));
        }
        if self.midline != Some(Midline::Hosted) {
            self.midline = None;
        }
    }

    /// Ends the line of a cut answer that nothing continues.
    pub(super) fn end_cut(&mut self, out: &mut Vec<Output>) {
        if std::mem::take(&mut self.cut) {
            self.end_text(out);
        }
    }
}
