//! Output of a command as a terminal would leave it: of a line that was written over only the last frame, and no escape sequences. Pure.
//!
//! A line is held until it ends, because a carriage return may take it back. What it gives does not depend on where the input is cut,
//! unless a silent line is let out early ([`Frames::let_out`]).

/// Bytes of a line that are held; a longer one is given as it comes, and the next frame begins a line of its own.
const LINE_MAX: usize = 8 << 10;

/// The longest escape sequence, in bytes: a link or a clipboard. One without an end does not swallow the rest.
const SEQUENCE_MAX: usize = 4 << 10;

/// Takes text in pieces and gives what stays of it.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The part of the current line that was not given yet.
    line: String,
    /// Whether a part of the current line was given.
    is_begun: bool,
    /// Whether anything of the current line was taken back.
    is_overwritten: bool,
    /// Whether the next character begins the line anew.
    at_start: bool,
    /// Characters that the next one goes back over.
    back: usize,
    sequence: Sequence,
    /// Bytes that were written over.
    overwritten: u64,
}

/// Where in an escape sequence the text is (ECMA-48, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sequence {
    #[default]
    None,
    /// Behind ESC.
    Escape,
    /// In a control sequence: the bytes so far, and its last digit if it has one digit or none (0) alone.
    Control { length: usize, number: Option<u8> },
    /// In a title, a link or another string: the bytes so far.
    Text(usize),
    /// Behind ESC in such a string.
    TextEscape(usize),
}

impl Frames {
    /// Gives the lines that have ended.
    pub(super) fn feed(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        if self.is_plain() && !text.contains(['\r']) && !text.contains('\x1b') && !has_rare(text) {
            let end = text.rfind('\n').map_or(0, |end| end + 1);
            let (lines, rest) = text.split_at_checked(end).unwrap_or((text, ""));
            if !lines.is_empty() {
                self.give(&mut out);
                out.push_str(lines);
                self.next_line();
            }
            self.line.push_str(rest);
        } else {
            text.chars().for_each(|c| self.take(c, &mut out));
        }
        if self.line.len() > LINE_MAX {
            self.give(&mut out);
        }
        out
    }

    /// Gives what is held of a line that nothing was written over, for who waits for it; what is written over it later begins a new line.
    pub(super) fn let_out(&mut self) -> String {
        let mut out = String::new();
        if self.is_plain() && !self.is_overwritten {
            self.give(&mut out);
        }
        out
    }

    /// Gives what is held.
    pub(super) fn finish(&mut self) -> String {
        let mut out = String::new();
        self.give(&mut out);
        out
    }

    /// The part of the current line that was not given yet.
    pub(super) fn shown(&self) -> &str {
        &self.line
    }

    /// Bytes of text that were written over.
    pub(super) fn overwritten(&self) -> u64 {
        self.overwritten
    }

    fn is_plain(&self) -> bool {
        !self.at_start && self.back == 0 && self.sequence == Sequence::None
    }

    fn give(&mut self, out: &mut String) {
        self.is_begun |= !self.line.is_empty();
        out.push_str(&self.line);
        self.line.clear();
    }

    fn next_line(&mut self) {
        (self.is_begun, self.is_overwritten, self.at_start, self.back) = (false, false, false, 0);
    }

    fn take(&mut self, c: char, out: &mut String) {
        self.sequence = match (self.sequence, c) {
            (Sequence::None, '\x1b') | (Sequence::Escape, '\x1b') => Sequence::Escape,
            (Sequence::None, '\u{9b}') | (Sequence::Escape, '[') => Sequence::Control { length: 0, number: Some(0) },
            (Sequence::None, '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}') => Sequence::Text(0),
            (Sequence::Escape, ']' | 'P' | 'X' | '^' | '_') => Sequence::Text(0),
            (Sequence::Escape, ' '..='/') => Sequence::Escape,
            (Sequence::Escape, '0'..='~') => Sequence::None,
            (Sequence::Control { length, number }, ' '..='?') if length < SEQUENCE_MAX => {
                let digit = c.to_digit(10).and_then(|digit| u8::try_from(digit).ok());
                Sequence::Control { length: length + 1, number: digit.filter(|_| length == 0 && number.is_some()) }
            }
            (Sequence::Control { number, .. }, '@'..='~') => {
                self.control(c, number);
                Sequence::None
            }
            (Sequence::Text(_), '\x07' | '\u{9c}') | (Sequence::TextEscape(_), '\\') => Sequence::None,
            (Sequence::Text(length), '\x1b') => Sequence::TextEscape(length),
            (Sequence::Text(length), _) if !c.is_control() && length < SEQUENCE_MAX => {
                Sequence::Text(length + c.len_utf8())
            }
            // What is no part of a sequence ends it, and counts itself.
            (Sequence::TextEscape(_), _) => {
                self.sequence = Sequence::Escape;
                return self.take(c, out);
            }
            (Sequence::Escape | Sequence::Control { .. } | Sequence::Text(_), _) => {
                self.sequence = Sequence::None;
                return self.take(c, out);
            }
            (Sequence::None, _) => {
                self.show(c, out);
                Sequence::None
            }
        };
    }

    fn show(&mut self, c: char, out: &mut String) {
        match c {
            '\n' => {
                self.give(out);
                out.push_str(if self.at_start { "\r\n" } else { "\n" });
                self.next_line();
            }
            '\r' => (self.at_start, self.back) = (true, 0),
            '\x08' => self.back = self.back.saturating_add(1),
            '\u{80}'..='\u{9f}' => {}
            c => {
                if self.at_start {
                    self.erase(out);
                }
                for _ in 0..std::mem::take(&mut self.back).min(self.line.len()) {
                    let gone = self.line.pop().map_or(0, char::len_utf8);
                    self.overwritten += gone as u64;
                    self.is_overwritten = true;
                }
                self.line.push(c);
                if self.line.len() > LINE_MAX {
                    self.give(out);
                }
            }
        }
    }

    /// Begins the line anew.
    fn erase(&mut self, out: &mut String) {
        self.at_start = false;
        self.is_overwritten = true;
        if self.is_begun {
            // What was given stays, with the rest of it.
            self.give(out);
            self.is_begun = false;
            out.push('\n');
        } else {
            self.overwritten += self.line.len() as u64;
            self.line.clear();
        }
    }

    /// A control sequence that changes what the line shows; the others only colour it, or move elsewhere.
    fn control(&mut self, last: char, number: Option<u8>) {
        match (last, number) {
            // To the first column.
            ('G', Some(0 | 1)) => (self.at_start, self.back) = (true, 0),
            // From the cursor to the end of the line, or all of it.
            ('K', Some(0)) if self.at_start => self.clear(),
            ('K', Some(2)) => self.clear(),
            _ => {}
        }
    }

    fn clear(&mut self) {
        self.overwritten += self.line.len() as u64;
        self.is_overwritten |= !self.line.is_empty();
        self.line.clear();
    }
}

/// Whether there is a backspace or a control character above ASCII.
fn has_rare(text: &str) -> bool {
    text.contains('\x08') || memchr::memchr_iter(0xc2, text.as_bytes()).any(|at| is_upper_control(text, at))
}

fn is_upper_control(text: &str, at: usize) -> bool {
    text.as_bytes().get(at + 1).is_some_and(|next| (0x80..=0x9f).contains(next))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn left(text: &str) -> String {
        let mut frames = Frames::default();
        frames.feed(text) + &frames.finish()
    }

    #[test]
    fn of_a_line_that_was_written_over_the_last_frame_stays() {
        let frames: String = (0..3000).map(|n| format!("\rprogress {n} of 3000")).collect();
        for (text, expect) in [
            (frames.as_str(), "progress 2999 of 3000"),
            ("a\n10%\r50%\r100%\nb\n", "a\n100%\nb\n"),
            ("10%\r50%\r100%\r", "100%"),
            ("10%\r100%\r\n", "100%\r\n"),
            ("one\r\ntwo\r\n", "one\r\ntwo\r\n"),
            ("one\r\r\ntwo", "one\r\ntwo"),
            ("10%\r\x1b[Kdone\n", "done\n"),
            ("10%\r\x1b[K\n", "\r\n"),
            ("10%\x1b[2K\x1b[1Gdone\n", "done\n"),
            ("10%\x1b[Gdone\n", "done\n"),
            ("|\x08/\x08-\x08ok\n", "ok\n"),
            ("N\x08NA\x08AM\x08ME\x08E\n", "NAME\n"),
            ("\x08\x08x\n", "x\n"),
            ("no end", "no end"),
            ("ö\rü\rä", "ä"),
        ] {
            assert_eq!(left(text), expect, "{text:?}");
        }
    }

    #[test]
    fn escape_sequences_are_gone_and_what_is_broken_ends() {
        for (text, expect) in [
            ("\x1b[1;31mred\x1b[0m\n", "red\n"),
            ("\x1b[38;5;1mred\x1b[m \x1b(Bx\n", "red x\n"),
            ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "alink\n"),
            ("\x1bP1$r0m\x1b\\a\x1b_apc\x1b\\b\x1b^pm\x1b\\c\n", "abc\n"),
            ("\u{9b}31mred\u{9b}0m\u{85}\u{9d}0;t\u{9c}x\n", "redx\n"),
            ("\x1b7\x1b8\x1b=\x1b>\x1bc a\n", " a\n"),
            ("\x1b[?25l\x1b[?2004ha\n", "a\n"),
            ("\x1b]0;no end\nnext\n", "\nnext\n"),
            ("\x1b[3\nnext\n", "\nnext\n"),
            ("a\x1b", "a"),
            ("\x1b\nb", "\nb"),
            ("\x1b\x1b[1mb", "b"),
            ("\x1b]a\x1b[1mb", "b"),
        ] {
            assert_eq!(left(text), expect, "{text:?}");
        }
        let long = format!("\x1b]{}b\n", "a".repeat(2 * SEQUENCE_MAX));
        assert!(left(&long).ends_with("ab\n"));
    }

    #[test]
    fn a_line_without_an_end_is_given_as_it_comes_and_does_not_fill_the_memory() {
        let mut frames = Frames::default();
        let mut given = 0;
        for _ in 0..1000 {
            given += frames.feed(&"x".repeat(1000)).len();
            assert!(frames.line.capacity() < 4 * LINE_MAX);
        }
        assert!(given > 900_000);
        assert_eq!(frames.feed("\rnext\n"), format!("{}\nnext\n", "x".repeat(1_000_000 - given)));
        for part in ["\x1b]", "\x1b[", "\x08", "\r"] {
            let mut frames = Frames::default();
            (0..1000).for_each(|_| drop(frames.feed(&format!("{part}{}", "1".repeat(1000)))));
            assert!(frames.line.capacity() < 8 * LINE_MAX, "{part:?}");
        }
    }

    #[test]
    fn a_silent_line_is_let_out_once_and_never_a_frame() {
        let mut frames = Frames::default();
        assert_eq!(
            (frames.feed("Sure? "), frames.let_out(), frames.let_out()),
            (String::new(), "Sure? ".into(), String::new())
        );
        assert_eq!(frames.feed("yes\n"), "yes\n");
        assert_eq!((frames.feed("1%\r2%"), frames.let_out()), (String::new(), String::new()));
        assert_eq!(frames.feed("\r3%\n"), "3%\n");
        assert_eq!(
            (frames.feed("1%"), frames.let_out(), frames.feed("\r2%\r3%\n")),
            (String::new(), "1%".into(), "\n3%\n".into())
        );
    }

    proptest! {
        #[test]
        fn it_does_not_depend_on_the_cuts(
            text in "[ab0-2\\r\\n\\x08\\x1b\\[\\]KGm;\\u{9b}\\u{e9}]{0,60}", cuts in prop::collection::vec(0usize..60, 0..6),
        ) {
            let chars: Vec<char> = text.chars().collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(chars.len())).collect();
            cuts.extend([0, chars.len()]);
            cuts.sort_unstable();
            let mut frames = Frames::default();
            let mut got: String =
                cuts.windows(2).map(|pair| frames.feed(&chars[pair[0]..pair[1]].iter().collect::<String>())).collect();
            got += &frames.finish();
            prop_assert!(!got.contains('\x1b'));
            prop_assert_eq!(got, left(&text));
        }
    }
}
