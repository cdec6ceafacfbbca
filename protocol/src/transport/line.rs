//! Cuts a stream of bytes into messages, and frames messages for a stream. Pure: no I/O.
//!
//! A message is a line of UTF-8 that ends in LF (a CR before it and blank lines are ignored). Characters in strings that others
//! take for the end of a line are written as escapes.
//! A connection whose first byte is `C` speaks `Content-Length` framing instead, in both directions: Emacs' `jsonrpc.el` and
//! Neovim's RPC client know nothing else.

/// The longest header block of `Content-Length` framing, in bytes: two headers take about 80.
const MAX_HEADER: usize = 4096;

/// How many bytes of buffer an idle connection may keep.
const KEEP: usize = 4096;

/// How messages are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// One message a line.
    #[default]
    Lines,
    /// Each message after a header with its length.
    ContentLength,
}

/// Something that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message, as bytes that may be anything.
    Message(Vec<u8>),
    /// A message that was too large and was skipped.
    Oversize,
    /// The end of a message that the reader gave up ([`Decoder::give_up_message`]).
    GivenUp,
    /// A header that makes no sense: what follows cannot be told apart, the connection is of no more use.
    Broken,
}

/// Collects bytes and gives messages; memory is bounded by the limit, whatever arrives.
#[derive(Debug)]
pub struct Decoder {
    /// Bytes that have arrived; those not yet given out begin at `start`.
    buffer: Vec<u8>,
    start: usize,
    /// Up to where the buffer is known to have no end of line.
    searched: usize,
    /// The largest message, in bytes.
    limit: usize,
    framing: Option<Framing>,
    /// How much of a message that is not wanted is still to come.
    skip: Skip,
    /// It was given up, and is not too large.
    given_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skip {
    Nothing,
    ToLineEnd,
    Bytes(u64),
    /// Nothing can be told apart any more.
    Everything,
}

impl Decoder {
    /// A decoder for messages of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, searched: 0, limit, framing: None, skip: Skip::Nothing, given_up: false }
    }

    /// The framing, once the first byte has shown it.
    pub fn framing(&self) -> Framing {
        self.framing.unwrap_or_default()
    }

    /// Takes bytes that arrived; call [`Self::next_frame`] until it gives nothing before the next.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 && (self.start == self.buffer.len() || self.start >= self.buffer.capacity() / 2) {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// How much memory the message takes that has not come whole, in bytes.
    pub fn held(&self) -> usize {
        if self.start == self.buffer.len() { 0 } else { self.buffer.capacity() }
    }

    /// Drops what has come of a message that has not come whole, and its rest when it comes; then [`Frame::GivenUp`] says so.
    pub fn give_up_message(&mut self) {
        match self.framing {
            None => return,
            Some(Framing::Lines) => self.skip = Skip::ToLineEnd,
            Some(Framing::ContentLength) => match self.counted_head() {
                Some((body, Some(length))) => (self.start, self.skip) = (body, Skip::Bytes(length)),
                // What a message is not known to be is small.
                _ => return,
            },
        }
        self.given_up = true;
        // Nothing is whole: this drops the bytes, and remembers what is still to come.
        let _nothing = self.next_frame();
    }

    /// The next message, or nothing until more bytes come.
    pub fn next_frame(&mut self) -> Option<Frame> {
        let frame = match self.framing {
            None => {
                let first = *self.buffer.get(self.start)?;
                self.framing = Some(if first == b'C' { Framing::ContentLength } else { Framing::Lines });
                return self.next_frame();
            }
            Some(Framing::Lines) => self.next_line(),
            Some(Framing::ContentLength) => self.next_counted(),
        };
        if frame.is_none() && self.start == self.buffer.len() {
            self.buffer.clear();
            self.buffer.shrink_to(KEEP);
            (self.start, self.searched) = (0, 0);
        }
        frame
    }

    fn next_line(&mut self) -> Option<Frame> {
        loop {
            let rest = self.buffer.get(self.searched..)?;
            let Some(at) = memchr::memchr(b'\n', rest) else {
                return self.line_incomplete();
            };
            let end = self.searched + at;
            let line = self.buffer.get(self.start..end)?;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let oversize = self.skip == Skip::ToLineEnd || line.len() > self.limit;
            let message = if oversize { Vec::new() } else { line.to_vec() };
            self.start = end + 1;
            self.searched = self.start;
            self.skip = Skip::Nothing;
            if oversize {
                return Some(self.unwanted());
            }
            if !message.iter().all(u8::is_ascii_whitespace) {
                return Some(Frame::Message(message));
            }
        }
    }

    /// No end of line yet: remembers how far it looked, and drops what is already too long.
    fn line_incomplete(&mut self) -> Option<Frame> {
        self.searched = self.buffer.len();
        if self.searched - self.start > self.limit + 1 {
            self.skip = Skip::ToLineEnd;
        }
        if self.skip == Skip::ToLineEnd {
            self.start = self.searched;
        }
        None
    }

    /// Says once that the connection is of no more use, and takes nothing more from it.
    fn give_up(&mut self) -> Option<Frame> {
        self.skip = Skip::Everything;
        Some(Frame::Broken)
    }

    fn next_counted(&mut self) -> Option<Frame> {
        if self.skip == Skip::Everything {
            (self.start, self.searched) = (self.buffer.len(), self.buffer.len());
            return None;
        }
        if let Skip::Bytes(left) = self.skip {
            let here = (self.buffer.len() - self.start) as u64;
            let gone = left.min(here);
            self.start += gone as usize;
            self.searched = self.start;
            self.skip = if gone == left { Skip::Nothing } else { Skip::Bytes(left - gone) };
            return (gone == left).then(|| self.unwanted());
        }
        let Some((body, length)) = self.counted_head() else {
            return if self.buffer.len() - self.start >= MAX_HEADER { self.give_up() } else { None };
        };
        let Some(length) = length else {
            return self.give_up();
        };
        if length > self.limit as u64 {
            self.start = body;
            self.skip = Skip::Bytes(length);
            return self.next_counted();
        }
        let end = body + length as usize;
        let message = self.buffer.get(body..end)?.to_vec();
        self.start = end;
        self.searched = end;
        Some(Frame::Message(message))
    }

    /// Where the body of the next message begins and how long it is, if its header says so; nothing until the header is there.
    fn counted_head(&self) -> Option<(usize, Option<u64>)> {
        let rest = self.buffer.get(self.start..)?;
        let head = rest.get(..rest.len().min(MAX_HEADER))?;
        let at = memchr::memmem::find(head, b"\r\n\r\n")?;
        Some((self.start + at + 4, content_length(head.get(..at)?)))
    }

    /// The frame for a message whose end has come and that was dropped.
    fn unwanted(&mut self) -> Frame {
        if std::mem::take(&mut self.given_up) { Frame::GivenUp } else { Frame::Oversize }
    }
}

fn content_length(head: &[u8]) -> Option<u64> {
    let head = std::str::from_utf8(head).ok()?;
    let value = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-length").then_some(value)
    })?;
    value.trim().parse().ok()
}

/// Appends `message`, which is JSON without a line break, to `out` as `framing` wants it.
pub fn encode(framing: Framing, message: &str, out: &mut Vec<u8>) {
    match framing {
        Framing::Lines => {
            push_line(message.as_bytes(), out);
            out.push(b'\n');
        }
        Framing::ContentLength => {
            out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", message.len()).as_bytes());
            out.extend_from_slice(message.as_bytes());
        }
    }
}

/// Appends JSON with U+0085, U+2028 and U+2029 as escapes: Python's `splitlines()` cuts at them. They stand in strings only.
fn push_line(json: &[u8], out: &mut Vec<u8>) {
    let mut done = 0;
    for at in memchr::memchr2_iter(0xc2, 0xe2, json) {
        let (escape, length): (&[u8], _) = match json.get(at..) {
            Some([0xc2, 0x85, ..]) => (b"\\u0085", 2),
            Some([0xe2, 0x80, 0xa8, ..]) => (b"\\u2028", 3),
            Some([0xe2, 0x80, 0xa9, ..]) => (b"\\u2029", 3),
            _ => continue,
        };
        out.extend_from_slice(json.get(done..at).unwrap_or_default());
        out.extend_from_slice(escape);
        done = at + length;
    }
    out.extend_from_slice(json.get(done..).unwrap_or_default());
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames(decoder: &mut Decoder, bytes: &[u8], cut: usize) -> Vec<Frame> {
        let mut out = Vec::new();
        for chunk in bytes.chunks(cut.max(1)) {
            decoder.feed(chunk);
            while let Some(frame) = decoder.next_frame() {
                out.push(frame);
            }
        }
        out
    }

    #[test]
    fn lines_are_cut_at_lf_and_blank_ones_are_skipped() {
        let got = frames(&mut Decoder::new(9), b"{}\r\n\n \n0123456789\n[]\n012345678\nrest", 3);
        let message = |text: &str| Frame::Message(text.as_bytes().to_vec());
        assert_eq!(got, [message("{}"), Frame::Oversize, message("[]"), message("012345678")]);
    }

    #[test]
    fn a_first_c_means_content_length() {
        let input = b"Content-Length: 2\r\n\r\n{}Content-Type: x\r\ncontent-length:  20 \r\n\r\n01234567890123456789Content-Length: 2\r\n\r\n[]";
        let got = frames(&mut Decoder::new(9), input, 5);
        assert_eq!(got, [Frame::Message(b"{}".to_vec()), Frame::Oversize, Frame::Message(b"[]".to_vec())]);
        assert_eq!(frames(&mut Decoder::new(9), b"Cookie: 1\r\n\r\n", 99), [Frame::Broken]);
    }

    #[test]
    fn no_character_of_a_string_ends_a_line() {
        let check = |message: &str, expect: &str| {
            let mut line = Vec::new();
            encode(Framing::Lines, message, &mut line);
            let line = String::from_utf8(line).unwrap();
            assert_eq!(line.strip_suffix('\n'), Some(expect));
            let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(parse(message), parse(&line));
        };
        check("\"a\u{2028}\u{2029}b\u{85}\"", r#""a\u2028\u2029b\u0085""#);
        check("\"é – “…” \u{2027}\u{84}\u{86}\"", "\"é – “…” \u{2027}\u{84}\u{86}\"");
    }

    #[test]
    fn a_line_without_end_keeps_no_memory_beyond_the_limit() {
        let mut decoder = Decoder::new(1000);
        for _ in 0..10_000 {
            assert_eq!(frames(&mut decoder, &[b'x'; 1024], 1024), []);
            assert!(decoder.buffer.capacity() < 8192, "{}", decoder.buffer.capacity());
        }
        assert_eq!(frames(&mut decoder, b"\n{}\n", 2), [Frame::Oversize, Frame::Message(b"{}".to_vec())]);
    }

    #[test]
    fn a_message_that_is_given_up_is_dropped_to_its_end_and_the_next_one_is_whole() {
        for (begin, rest) in [("{\"a\":1", "}\n"), ("Content-Length: 8\r\n\r\n{\"a\":1", "}\n")] {
            let mut decoder = Decoder::new(1000);
            assert_eq!(frames(&mut decoder, begin.as_bytes(), 99), []);
            assert!(decoder.held() > 0);
            decoder.give_up_message();
            assert_eq!(decoder.held(), 0);
            let next = if begin.starts_with('C') { "Content-Length: 2\r\n\r\n{}" } else { "{}\n" };
            let got = frames(&mut decoder, format!("{rest}{next}").as_bytes(), 1);
            assert_eq!(got, [Frame::GivenUp, Frame::Message(b"{}".to_vec())], "{begin}");
        }
    }

    proptest! {
        #[test]
        fn cutting_the_input_differently_gives_the_same_frames(
            input in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'C'), Just(b'{'), any::<u8>()], 0..200),
            counted in any::<bool>(), cut in 1usize..50, limit in 1usize..40,
        ) {
            let mut bytes = if counted { b"Content-Length: 3\r\n\r\n{ }".to_vec() } else { Vec::new() };
            bytes.extend(input);
            let whole = frames(&mut Decoder::new(limit), &bytes, bytes.len());
            let cut = frames(&mut Decoder::new(limit), &bytes, cut);
            // After a broken header nothing more is promised.
            let upto = |f: &[Frame]| f.iter().position(|f| *f == Frame::Broken).unwrap_or(f.len());
            prop_assert_eq!(&whole[..upto(&whole)], &cut[..upto(&cut)]);
        }

        #[test]
        fn what_is_encoded_comes_out(messages in proptest::collection::vec(r"[^\r\n \x85\u{2028}\u{2029}][^\r\n\x85\u{2028}\u{2029}]{0,40}", 1..8), counted in any::<bool>(), cut in 1usize..50) {
            let framing = if counted { Framing::ContentLength } else { Framing::Lines };
            prop_assume!(counted || !messages[0].starts_with('C'));
            prop_assume!(counted || messages.iter().all(|m| !m.bytes().all(|b| b.is_ascii_whitespace())));
            let mut bytes = Vec::new();
            messages.iter().for_each(|m| encode(framing, m, &mut bytes));
            let got = frames(&mut Decoder::new(4096), &bytes, cut);
            let want: Vec<Frame> = messages.iter().map(|m| Frame::Message(m.clone().into_bytes())).collect();
            prop_assert_eq!(got, want);
        }
    }
}
