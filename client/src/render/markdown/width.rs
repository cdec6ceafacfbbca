//! How many columns text takes on a terminal. Pure.
//!
//! Terminals differ. Where they do, the larger number counts: a row that is thought too wide is broken early, but one that
//! is thought too narrow would be wrapped by the terminal itself, and its rest would stand outside the gutter.

use unicode_width::UnicodeWidthChar as _;

use crate::terminal::MIN_WIDTH;

/// The most columns that a terminal may give `c`. Control characters have none: they are not in clean text.
pub(crate) fn of_char(c: char) -> usize {
    match c {
        ' '..='~' => 1,
        // Asks for the wide form of the character before it.
        '\u{fe0f}' => 1,
        // Fillers: some terminals give them the room of a syllable.
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' => 2,
        // Invisible; older terminals give these a column.
        '\u{ad}'
        | '\u{61c}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff0}'..='\u{fff8}' => 1,
        // Jamo that compose; a terminal that does not compose them shows each.
        '\u{1161}'..='\u{11ff}' | '\u{d7b0}'..='\u{d7ff}' => 1,
        c => c.width().unwrap_or(0),
    }
}

/// The most columns that a terminal may give `text`.
pub(crate) fn of(text: &str) -> usize {
    text.chars().map(of_char).sum()
}

/// The longest beginning of `text` that fits into `room` columns, with the marks on its last character.
pub(crate) fn cut(text: &str, space: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += of_char(c);
        if used > space {
            return text.get(..at).unwrap_or_default();
        }
    }
    text
}

/// Breaks a line of ours, which may have colours, so that it fits into `width` columns: what follows the first row is
/// indented, so that no word of others in it comes to stand where a line of ours begins.
pub(crate) fn hang(line: &str, width: usize) -> String {
    let limit = width.max(MIN_WIDTH);
    let lead = unstyled(line).chars().take_while(|c| *c == ' ').count();
    let indent = (lead + 2).min(limit / 2);
    let (mut out, mut column) = (String::with_capacity(line.len() + 8), 0);
    // The word that is being read, behind the blanks before it.
    let (mut blanks, mut word, mut taken) = (0, String::new(), 0);
    let mut place = |blanks: &mut usize, word: &mut String, taken: &mut usize| {
        if column > 0 && column + *blanks + *taken > limit {
            out.push('\n');
            column = indent;
            *blanks = indent;
        } else {
            // Blanks of others at the beginning do not push the word out of the row.
            *blanks = if column == 0 { (*blanks).min(indent) } else { *blanks };
            column += *blanks;
        }
        out.extend(std::iter::repeat_n(' ', *blanks));
        out.push_str(word);
        column += *taken;
        (*blanks, *taken) = (0, 0);
        word.clear();
    };
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            // A colour of ours: cleaned text has none.
            '\x1b' => {
                word.push(c);
                for c in chars.by_ref() {
                    word.push(c);
                    if c == 'm' {
                        break;
                    }
                }
            }
            ' ' => {
                if !word.is_empty() {
                    place(&mut blanks, &mut word, &mut taken);
                }
                blanks += 1;
            }
            '\t' => blanks += 2,
            c => {
                let columns = of_char(c);
                if taken + columns > limit - indent {
                    place(&mut blanks, &mut word, &mut taken);
                }
                word.push(c);
                taken += columns;
            }
        }
    }
    place(&mut blanks, &mut word, &mut taken);
    out
}

/// The line, less the colours that it begins with.
fn unstyled(line: &str) -> &str {
    let mut rest = line;
    while let Some((_, after)) = rest.strip_prefix('\x1b').and_then(|style| style.split_once('m')) {
        rest = after;
    }
    rest
}

/// As [`hang`], for lines.
pub(crate) fn hang_lines(lines: &str, width: usize) -> String {
    lines.split('\n').map(|line| hang(line, width)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_and_combining_characters_count_as_they_are_shown() {
        assert_eq!(["a", "漢字", "e\u{301}", "☀\u{fe0f}", "\u{3164}"].map(of), [1, 4, 1, 2, 2]);
        assert_eq!((cut("漢字かな", 5), cut("abc", 2), cut("e\u{301}x", 1)), ("漢字", "ab", "e\u{301}"));
    }

    #[test]
    fn a_long_line_goes_on_indented() {
        assert_eq!(hang("• bash one two three four five", 20), "• bash one two three\n  four five");
        assert_eq!(hang("  \x1b[2mone two three four five\x1b[0m", 20), "  \x1b[2mone two three four\n    five\x1b[0m");
        assert_eq!(hang(&"x".repeat(40), 20), format!("{}\n  {}\n  {}", "x".repeat(18), "x".repeat(18), "x".repeat(4)));
        assert_eq!(hang("\x1b[2m    one two\x1b[0m", 10), "\x1b[2m    one\n     two\x1b[0m");
        assert_eq!(hang("short", 20), "short");
        assert_eq!(hang(&format!("{}x", " ".repeat(50)), 20), format!("{}x", " ".repeat(10)));
    }
}
