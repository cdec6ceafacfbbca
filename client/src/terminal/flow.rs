//! A line that is not complete yet, as rows of a terminal: what is full or ended is given back, and the
//! last row is kept. Pure.
//!
//! Rows break at a space where there is one. A style that is open where a row ends is closed there and
//! opened again on the next one, so that it never reaches what is drawn below.

use unicode_width::UnicodeWidthChar as _;

/// Columns between two tab stops.
const TAB: usize = 8;

/// The longest row in bytes, whatever its width: characters without width could fill memory.
const MAX_ROW: usize = 16 << 10;

/// The unfinished line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    row: String,
    /// Columns that the row takes.
    width: usize,
    /// The style that is open at its end, as the sequences that opened it.
    style: String,
    /// An escape sequence that is not complete yet.
    escape: String,
    /// The last place where the row may break.
    space: Option<Break>,
}

/// A space in a row.
#[derive(Clone, Debug)]
struct Break {
    /// Where the rest begins, in bytes.
    after: usize,
    /// Columns before that.
    width: usize,
    /// The style that is open there.
    style: String,
}

impl Flow {
    /// Whether nothing is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.row.is_empty()
    }

    /// The last row.
    pub(crate) fn row(&self) -> &str {
        &self.row
    }

    /// Takes the last row.
    pub(crate) fn take(&mut self) -> String {
        std::mem::take(self).row
    }

    /// Adds text; the rows that are full or ended, each with a line feed.
    pub(crate) fn push(&mut self, text: &str, columns: usize) -> String {
        let columns = columns.max(2);
        let mut out = String::new();
        for c in text.chars() {
            match c {
                _ if !self.escape.is_empty() || c == '\x1b' => self.sequence(c),
                '\n' => self.end(&mut out),
                '\t' => {
                    let to = (self.width / TAB + 1) * TAB;
                    (self.width..to.min(columns)).for_each(|_| self.put(' ', columns, &mut out));
                }
                c => self.put(c, columns, &mut out),
            }
        }
        out
    }

    fn sequence(&mut self, c: char) {
        self.escape.push(c);
        // Styles are the only sequences that we write: `ESC [ … m`.
        if self.escape.len() > 2 && c.is_ascii_alphabetic() {
            let sequence = std::mem::take(&mut self.escape);
            self.row.push_str(&sequence);
            if sequence == "\x1b[0m" || sequence == "\x1b[m" { self.style.clear() } else { self.style += &sequence }
        }
    }

    fn put(&mut self, c: char, columns: usize, out: &mut String) {
        let width = c.width().unwrap_or(0);
        if self.width + width > columns || self.row.len() > MAX_ROW {
            if c == ' ' {
                // The break stands for it.
                self.end(out);
                return;
            }
            self.wrap(out);
        }
        self.row.push(c);
        self.width += width;
        if c == ' ' && self.row.trim_start().len() > 1 {
            self.space = Some(Break { after: self.row.len(), width: self.width, style: self.style.clone() });
        }
    }

    /// Ends the row at its last space, or here.
    fn wrap(&mut self, out: &mut String) {
        let Some(Break { after, width, style }) = self.space.take() else { return self.end(out) };
        let rest = self.row.split_off(after);
        let (open, left) = (std::mem::take(&mut self.style), self.width - width);
        self.style = style;
        self.end(out);
        self.row.push_str(&rest);
        (self.width, self.style) = (left, open);
    }

    /// Ends the row; the next one has the same style.
    fn end(&mut self, out: &mut String) {
        out.push_str(self.row.trim_end_matches(' '));
        if !self.style.is_empty() {
            out.push_str("\x1b[0m");
        }
        out.push('\n');
        let style = std::mem::take(&mut self.style);
        *self = Self { row: style.clone(), style, ..Self::default() };
    }
}

/// The columns that a row takes, without its styles.
pub(crate) fn width(row: &str) -> usize {
    let mut chars = row.chars();
    let mut width = 0;
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => drop(chars.by_ref().find(char::is_ascii_alphabetic)),
            c => width += c.width().unwrap_or(0),
        }
    }
    width
}

/// The row, cut to so many columns; a style that is open there is closed.
pub(crate) fn cut(row: &str, columns: usize) -> String {
    if width(row) <= columns {
        return row.to_owned();
    }
    let (mut out, mut left) = (String::new(), columns);
    let mut chars = row.chars();
    while let Some(c) = chars.next() {
        if c == '\x1b' {
            out.push(c);
            for c in chars.by_ref() {
                out.push(c);
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
            continue;
        }
        match left.checked_sub(c.width().unwrap_or(0)) {
            Some(less) => left = less,
            None => break,
        }
        out.push(c);
    }
    if out.contains('\x1b') {
        out.push_str("\x1b[0m");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, columns: usize, rows: &str, row: &str) {
        let mut flow = Flow::default();
        assert_eq!(flow.push(text, columns), rows);
        assert_eq!(flow.row(), row);
    }

    #[test]
    fn a_full_row_breaks_at_its_last_space_or_where_it_is_full() {
        check("one two three", 8, "one two\n", "three");
        check("one two\nthree\n", 80, "one two\nthree\n", "");
        check("abcdefghij", 4, "abcd\nefgh\n", "ij");
        check("12345678 x", 8, "12345678\n", "x");
        check("漢字漢字", 5, "漢字\n", "漢字");
        check("a\tb", 20, "", "a       b");
        check("    indented", 8, "    inde\n", "nted");
    }

    #[test]
    fn a_style_does_not_reach_the_next_row() {
        check("\x1b[2mone two", 5, "\x1b[2mone\x1b[0m\n", "\x1b[2mtwo");
        check("\x1b[1mab\x1b[0m cd\n", 80, "\x1b[1mab\x1b[0m cd\n", "");
        assert_eq!((width("\x1b[1m漢a\x1b[0m"), cut("\x1b[1m漢ab\x1b[0m", 3)), (3, "\x1b[1m漢a\x1b[0m".to_owned()));
    }

    proptest! {
        #[test]
        fn nothing_but_spaces_is_lost_and_no_row_is_too_wide(text in "[a-d 漢\\n]{0,80}", at in 0usize..80, columns in 4usize..20) {
            let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let (left, right) = text.split_at(at);
            let mut flow = Flow::default();
            let out = flow.push(left, columns) + &flow.push(right, columns) + flow.row();
            let mut whole = Flow::default();
            prop_assert_eq!(&out, &(whole.push(&text, columns) + whole.row()));
            let dense = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(dense(&out), dense(&text));
            prop_assert!(out.lines().all(|row| width(row.trim_end()) <= columns));
        }
    }
}
