//! The text of a turn's messages as a client has it: one text in which nothing can be taken back. Pure.

use linger_protocol::id::MessageId;

/// A message was repeated, and says something else.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Differs;

/// The part of the last message that the client has.
#[derive(Debug, Default)]
pub(super) struct ShownText {
    /// The message and its block; absent before the first.
    last: Option<ShownBlock>,
    /// The text of that message.
    text: String,
    /// The text that the next message repeats before there is something new.
    due: String,
    /// Whether a message is out of the answer, and the one in its place was not seen yet.
    is_superseded: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct ShownBlock {
    message: MessageId,
    block: u32,
}

impl ShownText {
    /// Takes text of a message; gives what is new to the client. A line is left blank between two messages, and two blocks of one.
    pub(super) fn add(&mut self, message: &MessageId, block: u32, text: &str) -> Result<String, Differs> {
        let is_other_message = self.last.as_ref().is_none_or(|last| last.message != *message);
        let is_other_block = self.last.as_ref().is_some_and(|last| last.block != block || is_other_message);
        let is_first = self.last.is_none();
        // The message in the place of another one has no line before it: the other one had it.
        let replaces = is_other_message && std::mem::take(&mut self.is_superseded);
        if is_other_block || is_first {
            self.last = Some(ShownBlock { message: message.clone(), block });
        }
        if is_other_message {
            self.text.clear();
        }
        let has_line = is_other_block && !replaces;
        let piece = if has_line && !is_other_message { format!("\n\n{text}") } else { text.to_owned() };
        self.text.push_str(&piece);
        let new = self.unrepeated(piece)?;
        Ok(if has_line && is_other_message && !new.is_empty() { format!("\n\n{new}") } else { new })
    }

    /// The part of `piece` that follows what is due.
    fn unrepeated(&mut self, piece: String) -> Result<String, Differs> {
        if self.due.is_empty() {
            return Ok(piece);
        }
        if let Some(rest) = self.due.strip_prefix(&piece) {
            self.due = rest.to_owned();
            return Ok(String::new());
        }
        let new = piece.strip_prefix(self.due.as_str()).ok_or(Differs)?.to_owned();
        self.due.clear();
        Ok(new)
    }

    /// A message is out of the answer, and its step is repeated.
    pub(super) fn supersede(&mut self, message: &MessageId) {
        if self.last.as_ref().is_some_and(|last| last.message == *message) {
            // What was still due is not less than what came.
            self.due = std::mem::take(&mut self.text) + &self.due;
            self.is_superseded = true;
        }
    }

    /// Whether the client has text that was not said again yet.
    pub(super) fn is_repeating(&self) -> bool {
        !self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the client gets of messages: each text with its message and block, `-` for a message that is superseded.
    fn shown(events: &[(&str, u32, &str)]) -> Result<String, Differs> {
        let (mut shown, mut all) = (ShownText::default(), String::new());
        for (message, block, text) in events {
            let message = MessageId::from(*message);
            if *text == "-" {
                shown.supersede(&message);
            } else {
                all.push_str(&shown.add(&message, *block, text)?);
            }
        }
        Ok(all)
    }

    #[test]
    fn a_line_is_blank_between_messages_and_blocks() {
        assert_eq!(shown(&[("a", 0, "x"), ("a", 0, "y"), ("a", 2, "z"), ("b", 0, "w")]), Ok("xy\n\nz\n\nw".to_owned()));
    }

    #[test]
    fn what_is_said_again_is_not_shown_again() {
        let check = |events: &[(&str, u32, &str)], expect: &str| assert_eq!(shown(events), Ok(expect.to_owned()));
        let begun = [("a", 0, "x"), ("b", 0, "one "), ("b", 0, "two"), ("b", 0, "-")];
        let then = |more: &[(&'static str, u32, &'static str)]| [&begun[..], more].concat();
        check(&then(&[("c", 0, "o"), ("c", 0, "ne t"), ("c", 0, "wo three")]), "x\n\none two three");
        check(&then(&[("c", 0, "one two three")]), "x\n\none two three");
        // Cut again in the repetition, and after it.
        check(&then(&[("c", 0, "one"), ("c", 0, "-"), ("d", 0, "one two three")]), "x\n\none two three");
        check(&then(&[("c", 0, "one two th"), ("c", 0, "-"), ("d", 0, "one two three")]), "x\n\none two three");
        // The next message is one of its own.
        check(&then(&[("c", 0, "one two"), ("d", 0, "y")]), "x\n\none two\n\ny");
        // The first message, with two blocks.
        check(&[("a", 0, "x"), ("a", 1, "y"), ("a", 0, "-"), ("b", 0, "x"), ("b", 1, "yz")], "x\n\nyz");
        // Nothing of it was shown.
        check(&[("a", 0, "x"), ("b", 0, "-"), ("c", 0, "y")], "x\n\ny");
    }

    #[test]
    fn what_is_said_otherwise_is_an_error() {
        assert_eq!(shown(&[("a", 0, "one"), ("a", 0, "-"), ("b", 0, "ono")]), Err(Differs));
        assert_eq!(
            shown(&[("a", 0, "one"), ("a", 0, "-"), ("b", 0, "one"), ("b", 0, "-"), ("c", 0, "two")]),
            Err(Differs)
        );
    }
}
