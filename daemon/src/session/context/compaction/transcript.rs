//! Messages as text for a summary: without another provider's calls and signed items, and always within a bound.

use linger_protocol::message::{ContentBlock, Role};
use serde_json::Value;

use crate::provider::Message;
use crate::provider::hosted::readable;

/// Bounds on each result or call, and on each text, in bytes; tried in order until the transcript fits.
const LEVELS: [[usize; 2]; 5] = [[8 << 10, usize::MAX], [2 << 10, 16 << 10], [512, 4 << 10], [160, 1 << 10], [80, 320]];

/// How much of the first message always stays, in bytes, so that the goal is known.
const BEGINNING: usize = 4 << 10;

/// The messages in at most `room` bytes: shortens long output first, then long texts, then drops older messages except the first.
pub fn transcript(messages: &[Message], room: usize) -> String {
    for level in LEVELS {
        let whole: Vec<String> = messages.iter().map(|message| written(message, level)).collect();
        if whole.iter().map(String::len).sum::<usize>() <= room {
            return whole.concat();
        }
    }
    let [output, text] = LEVELS.last().copied().unwrap_or_default();
    let first = messages.first().map(|message| written(message, [output, BEGINNING])).unwrap_or_default();
    let first = short(&first, room / 2);
    let mut left = room.saturating_sub(first.len() + 80);
    let rest = messages.get(1..).unwrap_or_default();
    let mut latest: Vec<String> = Vec::new();
    for message in rest.iter().rev() {
        let written = written(message, [output, text]);
        if written.len() > left {
            break;
        }
        left -= written.len();
        latest.push(written);
    }
    let gone = rest.len() - latest.len();
    latest.reverse();
    format!("{first}\n[{gone} messages are left out here]\n\n{}", latest.concat())
}

/// One message under its heading.
fn written(message: &Message, [output, text]: [usize; 2]) -> String {
    let mut lines = Vec::new();
    for block in &message.content {
        match block {
            ContentBlock::Text { text: said } if !said.trim().is_empty() => lines.push(short(said.trim(), text)),
            ContentBlock::Image { .. } => lines.push("[an image]".to_owned()),
            ContentBlock::ToolUse { call_id, name, input, .. } => {
                lines.push(format!("[{call_id} calls {name}: {}]", short(&arguments(input), output)));
            }
            ContentBlock::ToolResult { call_id, is_error, content } => {
                let failed = if *is_error { " failed" } else { "" };
                let said: Vec<&str> = content.iter().filter_map(ContentBlock::as_text).collect();
                let images =
                    content.iter().filter(|block| matches!(block, ContentBlock::Image { .. })).map(|_| " [an image]");
                let images: String = images.collect();
                lines.push(format!("[{call_id}{failed}:{images}]\n{}", short(said.join("\n").trim(), output)));
            }
            ContentBlock::Hosted { .. } => lines.extend(readable(block).map(|said| short(&said, output))),
            // Thinking is not part of the conversation.
            _ => {}
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let who = match message.role {
        Role::User if message.content.iter().any(|block| matches!(block, ContentBlock::ToolResult { .. })) => "results",
        Role::User => "user",
        Role::Assistant => "agent",
    };
    format!("### {who}\n{}\n\n", lines.join("\n"))
}

fn arguments(input: &Value) -> String {
    input.as_str().map_or_else(|| input.to_string(), str::to_owned)
}

/// `text` in about `most` bytes: its beginning and, half as long, its end.
pub(super) fn short(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let whole = |at: &usize| text.is_char_boundary(*at);
    let head = (0..=most / 3 * 2).rev().find(whole).unwrap_or_default();
    let tail = (text.len() - most / 3..=text.len()).find(whole).unwrap_or(text.len());
    let (begins, ends) = (text.get(..head).unwrap_or_default(), text.get(tail..).unwrap_or_default());
    format!("{begins}\n[… {} bytes left out …]\n{ends}", tail - head)
}
