//! Thinking that is shown by its first line only. Pure.

use linger_protocol::event::Delta;
use linger_protocol::id::MessageId;

use super::markdown::GUTTER;
use crate::terminal::clean_line;

/// Characters that are shown on a terminal without a width.
const WIDTH: usize = 80;

/// The first line of a block of thinking, as far as it was shown.
#[derive(Debug, Default)]
pub(super) struct FirstLine {
    block: Option<(MessageId, u32)>,
    /// How many characters of it were shown.
    shown: usize,
    /// Whether the line is complete.
    over: bool,
}

impl FirstLine {
    /// The part of a piece to show.
    pub(super) fn push(&mut self, delta: &Delta, width: usize, ellipsis: &str) -> String {
        let block = Some((delta.message.clone(), delta.block));
        if self.block != block {
            *self = Self { block, ..Self::default() };
        }
        if self.over {
            return String::new();
        }
        let width_left = if width > 10 { width - 5 - GUTTER } else { WIDTH };
        let fresh = if self.shown == 0 { delta.text.trim_start() } else { delta.text.as_str() };
        let line = fresh.split('\n').next().unwrap_or_default();
        let mut text: String = clean_line(line).chars().take(width_left.saturating_sub(self.shown)).collect();
        self.shown += text.chars().count();
        self.over = self.shown > 0 && (fresh.contains('\n') || self.shown >= width_left);
        if self.over {
            text.push_str(&format!(" {ellipsis}\n"));
        }
        text
    }
}
