//! Text: cutting it without breaking a character, decoding what arrives in pieces, and names that look alike.

use crate::diagnostics::nearest::nearest;

/// Names that are less alike than this are no suggestion.
const LIKENESS: f32 = 0.6;

/// How much of a name that a model gave is repeated to it, in bytes: enough to know it again.
const BRIEF: usize = 80;

/// At most `max` bytes from the beginning; up to the end of a line if there is one in the second half.
pub(crate) fn head(text: &str, max: usize) -> &str {
    let cut = floor(text, max);
    let whole = text.get(..cut).unwrap_or_default();
    match whole.rfind('\n') {
        Some(end) if cut < text.len() && end + 1 >= max / 2 => whole.get(..=end).unwrap_or_default(),
        _ => whole,
    }
}

/// At most `max` bytes from the end; from the beginning of a line if there is one in the first half.
pub(crate) fn tail(text: &str, max: usize) -> &str {
    let mut cut = text.len().saturating_sub(max);
    while !text.is_char_boundary(cut) {
        cut += 1;
    }
    let whole = text.get(cut..).unwrap_or_default();
    match whole.find('\n') {
        Some(end) if cut > 0 && end < max / 2 => whole.get(end + 1..).unwrap_or_default(),
        _ => whole,
    }
}

/// The last place at or before `index` where `text` can be cut.
pub(crate) fn floor(text: &str, index: usize) -> usize {
    let mut cut = index.min(text.len());
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    cut
}

/// `text` as text for a model: UTF-8, and a NUL, which some providers refuse, shown as a replacement character.
pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}")
}

/// `text` on one line, with what does not print escaped: names can have line ends in them.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut line, c| {
        if c.is_control() {
            line.extend(c.escape_default())
        } else {
            line.push(c)
        }
        line
    })
}

/// The beginning of a name that a model gave, on one line.
pub(crate) fn brief(name: &str) -> String {
    let head = name.get(..floor(name, BRIEF)).unwrap_or_default();
    let rest = if head.len() < name.len() { "…" } else { "" };
    one_line(head) + rest
}

/// `word` as a shell reads it: itself if it is plain, else in quotes.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,+=@%".contains(c);
    if !word.is_empty() && !word.starts_with('=') && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if word.contains('\'') && !word.contains(['"', '$', '`', '\\', '!']) {
        format!("\"{word}\"")
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// ``; did you mean `…`?`` for the name most like `name`, or nothing.
pub(crate) fn did_you_mean(name: &str, names: &[&str]) -> String {
    match nearest(name, names.iter().copied(), LIKENESS) {
        Some(near) => format!("; did you mean `{}`?", one_line(near)),
        None => String::new(),
    }
}

/// Decodes UTF-8 that arrives in pieces; what it gives does not depend on where they are cut.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The beginning of a character whose end has not come.
    pending: Vec<u8>,
}

impl Decoder {
    /// The text of the next piece.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> String {
        let mut input = std::mem::take(&mut self.pending);
        input.extend_from_slice(bytes);
        if let Some(last) = input.utf8_chunks().last()
            && std::str::from_utf8(last.invalid()).is_err_and(|error| error.error_len().is_none())
        {
            self.pending = input.split_off(input.len() - last.invalid().len());
        }
        lossy(&input)
    }

    /// The text of an unfinished character at the end.
    pub(crate) fn finish(&mut self) -> String {
        lossy(&std::mem::take(&mut self.pending))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_cut_at_a_line_end_or_between_characters() {
        let check = |text, max, expect: (&str, &str)| assert_eq!((head(text, max), tail(text, max)), expect);
        check("abc", 5, ("abc", "abc"));
        check("", 5, ("", ""));
        check("one\ntwo\nsix\n", 9, ("one\ntwo\n", "two\nsix\n"));
        check("ab\ncdefghijk\nlm", 6, ("ab\n", "ijk\nlm"));
        check("öööö", 3, ("ö", "ö"));
    }

    #[test]
    fn a_character_split_over_pieces_is_whole() {
        let check = |pieces: &[&[u8]], expect: &[&str]| {
            let mut decoder = Decoder::default();
            let mut got: Vec<String> = pieces.iter().map(|piece| decoder.feed(piece)).collect();
            got.push(decoder.finish());
            assert_eq!(got, expect);
        };
        check(&[b"\xe2\x82", b"\xac!"], &["", "€!", ""]);
        check(&[b"a\xe2", b"b\0"], &["a", "\u{fffd}b\u{fffd}", ""]);
        check(&[b"\xf0\x9f", b"\x98"], &["", "", "\u{fffd}"]);
    }

    proptest! {
        #[test]
        fn decoding_does_not_depend_on_the_cuts(
            bytes in prop::collection::vec(prop::sample::select(b"ab\n\0\xe2\x82\xac\xf0\x9f\x98\x80\xff\xc3".to_vec()), 0..60),
            cuts in prop::collection::vec(0usize..60, 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut decoder = Decoder::default();
            let mut text: String = cuts.windows(2).map(|pair| decoder.feed(&bytes[pair[0]..pair[1]])).collect();
            text += &decoder.finish();
            prop_assert_eq!(text, lossy(&bytes));
        }
    }
}
