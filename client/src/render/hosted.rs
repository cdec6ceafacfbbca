//! Calls and results of tools that run at the provider, as lines in the style of tool calls.
//!
//! The text may come in pieces, cut anywhere; the shown lines grow with them.

use linger_protocol::event::Delta;
use linger_protocol::message::{ContentBlock, HostedPart, HostedTool};

use super::markdown::width::cut;
use super::renderer::{HostedText, Midline, Renderer};
use super::style::Style;

use crate::terminal::{Output, clean_line};

/// Lines of a result that are shown; the session has all of them.
const MAX_LINES: usize = 7;

impl Renderer {
    pub(super) fn hosted_delta(&mut self, tool: HostedTool, part: HostedPart, delta: &Delta, out: &mut Vec<Output>) {
        let block = Some((delta.message.clone(), delta.block));
        let begins = self.hosted.block != block;
        if begins {
            self.hosted = HostedText { block: block.clone(), ..HostedText::default() };
        }
        let style = self.settings.style;
        self.hosted.text.push_str(&delta.text);
        let whole = lines(tool, part, &self.hosted.text, self.settings.width, &style);
        if self.settings.raw {
            // stdout has its own lines; a second piece gets none here.
            if begins {
                self.say(&whole, out);
            }
            return;
        }
        if begins {
            self.end_text(out);
            self.fresh_line(out);
        }
        self.after = Some(Midline::Hosted);
        (self.block, self.last_call) = (block, None);
        let fresh = whole.get(self.hosted.shown..).unwrap_or_default();
        if !fresh.is_empty() {
            self.hosted.shown = whole.len();
            self.midline = Some(Midline::Hosted);
            out.push(Output::Talk(fresh.to_owned()));
        }
    }

    /// Prints the blocks of a whole message.
    pub(super) fn blocks(&mut self, content: &[ContentBlock], out: &mut Vec<Output>) {
        for block in content {
            match block {
                ContentBlock::Text { text } if !text.is_empty() => {
                    self.block_begins(Midline::Text, out);
                    self.text(text, out);
                }
                ContentBlock::Hosted { tool, part, text, .. } if !text.is_empty() => {
                    let style = self.settings.style;
                    self.end_text(out);
                    self.after = Some(Midline::Hosted);
                    self.say(&lines(*tool, *part, text, self.settings.width, &style), out);
                }
                _ => {}
            }
        }
    }
}

/// A call by its first line, a result by its first lines. The lines of a prefix of `text` are a prefix
/// of the lines of `text`.
fn lines(tool: HostedTool, part: HostedPart, text: &str, width: usize, style: &Style) -> String {
    let (head, most) = match part {
        HostedPart::Call | HostedPart::Unknown => (format!("{} {} ", style.bullet(), style.bold(tool.name())), 1),
        HostedPart::Result => (format!("{} ", style.good()), MAX_LINES),
        HostedPart::Error => (format!("{} ", style.bad()), MAX_LINES),
    };
    let space = width.saturating_sub(tool.name().len() + 8).max(10);
    let mut shown = head;
    for (n, line) in text.split('\n').enumerate() {
        if n == most {
            match most {
                1 if shown.ends_with(style.ellipsis()) => {}
                1 => shown.push_str(&format!(" {}", style.ellipsis())),
                _ => shown.push_str(&format!("\n    {}", style.ellipsis())),
            }
            break;
        }
        if n > 0 {
            shown.push_str("\n    ");
        }
        // A tab takes more room than one character, and how much the terminal says.
        let clean = clean_line(line).replace('\t', " ");
        let fits = cut(&clean, space);
        shown.push_str(fits);
        if fits.len() < clean.len() {
            shown.push_str(style.ellipsis());
        }
    }
    shown
}
