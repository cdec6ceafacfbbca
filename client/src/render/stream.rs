//! The words of the model as they stream: text, thinking, and where one ends and the other begins.

use linger_protocol::event::{Delta, ToolKind};
use linger_protocol::message::{ContentBlock, text_of};
use serde_json::Value;

use super::renderer::{Call, Midline, Renderer};
use super::settings::Thinking;
use crate::terminal::{Output, clean};

impl Renderer {
    /// A piece of an answer: it is held back while it may be the JSON of a schema.
    pub(super) fn answer_delta(&mut self, delta: &Delta, out: &mut Vec<Output>) {
        if self.settings.raw {
            self.text_delta(delta, out);
        } else if let Some(delta) = self.shaped.text(delta) {
            self.text_delta(&delta, out);
        }
    }

    /// A whole answer: its end, if it streamed.
    pub(super) fn answer(&mut self, content: &[ContentBlock], interrupted: bool, cut: bool, out: &mut Vec<Output>) {
        self.wait = None;
        if let Some(delta) = self.shaped.end() {
            self.text_delta(&delta, out);
        }
        let shown = self.shaped.message(content).filter(|_| !self.settings.raw);
        self.message(shown.as_deref().unwrap_or(content), interrupted, cut, out);
    }

    fn text_delta(&mut self, delta: &Delta, out: &mut Vec<Output>) {
        let block = (delta.message.clone(), delta.block);
        if self.block.as_ref() != Some(&block) {
            self.block_begins(Midline::Text, out);
            self.block = Some(block);
        }
        self.text(&delta.text, out);
    }

    pub(super) fn text(&mut self, text: &str, out: &mut Vec<Output>) {
        if text.is_empty() {
            return;
        }
        self.last_call = None;
        if self.settings.raw {
            self.midline = (!text.ends_with('\n')).then_some(Midline::Text);
            return out.push(Output::Text(text.to_owned()));
        }
        let text = self.prose.push(&clean(text));
        self.midline = self.prose.is_open().then_some(Midline::Text);
        if !text.is_empty() {
            out.push(Output::Text(text));
        }
    }

    pub(super) fn thinking_delta(&mut self, delta: &Delta, out: &mut Vec<Output>) {
        if self.settings.thinking == Thinking::Hide || delta.text.is_empty() {
            return;
        }
        let block = (delta.message.clone(), delta.block);
        if self.block.as_ref() != Some(&block) {
            self.block_begins(Midline::Thinking, out);
            self.block = Some(block);
        }
        let text = match self.settings.thinking {
            Thinking::Summary => self.first_line.push(delta, self.settings.width, self.settings.style.ellipsis()),
            _ => clean(&delta.text).into_owned(),
        };
        if text.is_empty() {
            return;
        }
        self.last_call = None;
        let text = self.thought.push(&text);
        self.midline = self.thought.is_open().then_some(Midline::Thinking);
        if !text.is_empty() {
            out.push(Output::Talk(text));
        }
    }

    /// A new block begins on a line of its own; blocks of text in one message have an empty line between.
    pub(super) fn block_begins(&mut self, kind: Midline, out: &mut Vec<Output>) {
        let continues = std::mem::take(&mut self.cut) && kind == Midline::Text;
        let follows_text = self.block.is_some() && self.after == Some(Midline::Text) && kind == Midline::Text;
        match (kind, self.midline) {
            (Midline::Text, Some(Midline::Text)) if continues => {}
            (_, None) if continues => {}
            (Midline::Text, Some(Midline::Text)) if self.settings.raw => out.push(Output::Text("\n\n".to_owned())),
            (_, Some(Midline::Text)) if self.settings.raw => self.fresh_line(out),
            (_, Some(Midline::Hosted)) => self.fresh_line(out),
            _ => {
                self.end_text(out);
                if follows_text && !self.settings.raw {
                    out.push(Output::Text("\n".to_owned()));
                }
            }
        }
        self.after = Some(kind);
    }

    fn message(&mut self, content: &[ContentBlock], interrupted: bool, cut: bool, out: &mut Vec<Output>) {
        let hosted = |block: &ContentBlock| matches!(block, ContentBlock::Hosted { .. });
        if !self.settings.deltas && content.iter().any(hosted) {
            self.blocks(content, out);
        } else if !self.settings.deltas {
            self.after = Some(Midline::Text);
            self.text(&text_of(content), out);
        }
        // The next answer may continue the line.
        self.cut = cut && !interrupted && self.after == Some(Midline::Text);
        if self.settings.raw {
            self.cut &= self.midline == Some(Midline::Text);
        }
        if !self.cut {
            self.end_text(out);
            self.fresh_line(out);
            self.after = None;
        }
        self.block = None;
        for block in content {
            if let ContentBlock::ToolUse { call_id, name, input, .. } = block {
                let first = input.as_object().and_then(|arguments| arguments.values().find_map(Value::as_str));
                let action = first.unwrap_or_default().to_owned();
                self.calls.insert(
                    call_id.clone(),
                    Call { tool: name.clone(), action, kind: ToolKind::Other, started: false },
                );
            }
        }
        if interrupted {
            let rule = self.settings.style.rule();
            self.say(&self.settings.style.dim(&format!("{rule} interrupted {rule}")), out);
        }
    }
}
