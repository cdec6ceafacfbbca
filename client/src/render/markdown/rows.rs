//! Rows on a terminal: words are placed as they are complete, wrapped at the width, behind a gutter that no word leaves. Pure.
//!
//! What is written is never taken back, and what is written for a character depends on the characters before it alone: a
//! text gives the same rows however it is cut into pieces. Held back is at most one word, never more than a row.

use super::width;
use crate::terminal::MIN_WIDTH;

/// Blanks before every row. Lines of linger itself begin in the first column, with a sign or a word; so nothing that
/// stands behind the gutter passes for one.
pub(crate) const GUTTER: usize = 2;

/// Marks without width that may follow each other; more would pile up over other rows.
const MAX_MARKS: usize = 8;

/// Blanks in a row that are kept.
const MAX_BLANKS: usize = 200;

/// How a character is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ink {
    pub(super) bold: bool,
    pub(super) dim: bool,
    pub(super) italic: bool,
    pub(super) underline: bool,
    pub(super) strike: bool,
    /// The number of a colour of the terminal's own palette, 0 for none.
    pub(super) color: u8,
}

impl Ink {
    pub(super) const PLAIN: Self =
        Self { bold: false, dim: false, italic: false, underline: false, strike: false, color: 0 };
    pub(super) const DIM: Self = Self { dim: true, ..Self::PLAIN };
    pub(super) const BOLD: Self = Self { bold: true, ..Self::PLAIN };

    pub(super) const fn color(color: u8) -> Self {
        Self { color, ..Self::PLAIN }
    }

    /// Combines two inks.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            bold: self.bold || other.bold,
            dim: self.dim || other.dim,
            italic: self.italic || other.italic,
            underline: self.underline || other.underline,
            strike: self.strike || other.strike,
            color: if other.color == 0 { self.color } else { other.color },
        }
    }

    /// Writes what turns it on.
    fn begin(self, out: &mut String) {
        if self == Self::PLAIN {
            return;
        }
        let flags = [(self.bold, "1"), (self.dim, "2"), (self.italic, "3"), (self.underline, "4"), (self.strike, "9")];
        let mut codes: Vec<String> = flags.iter().filter(|(on, _)| *on).map(|(_, code)| (*code).to_owned()).collect();
        codes.extend((self.color != 0).then(|| self.color.to_string()));
        out.push_str(&format!("\x1b[{}m", codes.join(";")));
    }

    /// Writes what turns it off.
    fn end(self, out: &mut String) {
        if self != Self::PLAIN {
            out.push_str("\x1b[0m");
        }
    }
}

/// The beginning of a row behind the gutter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Prefix {
    /// Marks of quotes and lists, and blanks.
    pub(super) drawn: Vec<(String, Ink)>,
    pub(super) columns: usize,
}

impl Prefix {
    pub(super) fn push(&mut self, text: &str, ink: Ink) {
        if !text.is_empty() {
            self.columns += width::of(text);
            self.drawn.push((text.to_owned(), ink));
        }
    }

    pub(super) fn blanks(&mut self, count: usize) {
        self.push(&" ".repeat(count), Ink::PLAIN);
    }
}

/// Rows that are written from left to right.
#[derive(Debug)]
pub(super) struct Rows {
    /// Text that was written and not taken yet.
    out: String,
    /// Columns that a row may have.
    limit: usize,
    /// Whether ink is used.
    color: bool,
    /// The ink that everything has.
    base: Ink,
    /// How the first row of the line begins, until it is written.
    first: Option<Prefix>,
    /// How further rows of the line begin.
    next: Prefix,
    /// Whether a row is written and not ended.
    open: bool,
    /// Columns of the row that are taken.
    column: usize,
    /// Blanks before the word.
    blanks: usize,
    /// The word, as it is written, and its columns.
    word: String,
    taken: usize,
    word_ink: Ink,
    /// Marks without width that follow the last character; none may stand where there is no character.
    marks: Option<usize>,
    /// Empty rows before the next one.
    gap: usize,
    /// Whether there is a row above.
    any: bool,
}

impl Rows {
    pub(super) fn new(columns: usize, color: bool, base: Ink) -> Self {
        let mut rows = Self {
            out: String::new(),
            limit: 0,
            color,
            base,
            first: None,
            next: Prefix::default(),
            open: false,
            column: 0,
            blanks: 0,
            word: String::new(),
            taken: 0,
            word_ink: Ink::PLAIN,
            marks: None,
            gap: 0,
            any: false,
        };
        rows.set_width(columns);
        rows
    }

    /// Sets the columns of the terminal, for the rows to come. The last column stays free: terminals that disagree by one
    /// about a character still do not wrap.
    pub(super) fn set_width(&mut self, columns: usize) {
        self.limit = columns.max(MIN_WIDTH) - 1;
    }

    /// Columns behind the gutter.
    pub(super) fn space(&self) -> usize {
        self.limit - GUTTER
    }

    /// Takes the text that was written since the last call.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    /// Whether a row is written and not ended.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// A line begins: its first row with `first`, further ones with `next`. Half of the row is left for words.
    pub(super) fn begin(&mut self, first: Prefix, next: Prefix) {
        let fits = |prefix: Prefix| if prefix.columns > self.space() / 2 { Prefix::default() } else { prefix };
        (self.first, self.next) = (Some(fits(first)), fits(next));
        (self.blanks, self.marks) = (0, None);
    }

    /// Further rows of the line begin like this.
    pub(super) fn set_next(&mut self, next: Prefix) {
        if next.columns <= self.space() / 2 {
            self.next = next;
        }
    }

    /// Leaves at least `count` rows empty above the next one, if there is one above.
    pub(super) fn gap(&mut self, count: usize) {
        self.gap = self.gap.max(count);
    }

    /// Leaves one more row empty.
    pub(super) fn empty(&mut self) {
        self.gap += 1;
    }

    /// Adds a character to the line.
    pub(super) fn put(&mut self, c: char, ink: Ink) {
        let columns = match c {
            ' ' => return self.blank(1),
            '\t' => {
                self.place();
                return self.blank(4 - (self.column + self.blanks).saturating_sub(GUTTER) % 4);
            }
            c => width::of_char(c),
        };
        if columns == 0 {
            // On a blank, or piled up, it would change what is not its own.
            match &mut self.marks {
                Some(marks) if *marks < MAX_MARKS => *marks += 1,
                _ => return,
            }
        } else {
            self.marks = Some(0);
        }
        // A row can end on either side of a wide character.
        let wide = columns > 1;
        let prefix = self.next.columns.max(self.first.as_ref().map_or(0, |first| first.columns));
        let full = self.taken + columns > self.space() - prefix;
        if wide || full {
            self.place();
        }
        let ink = if self.color { self.base.and(ink) } else { Ink::PLAIN };
        if ink != self.word_ink || self.word.is_empty() {
            self.word_ink.end(&mut self.word);
            ink.begin(&mut self.word);
            self.word_ink = ink;
        }
        self.word.push(c);
        self.taken += columns;
        if wide {
            self.place();
        }
    }

    /// Adds a text to the line.
    pub(super) fn put_all(&mut self, text: &str, ink: Ink) {
        text.chars().for_each(|c| self.put(c, ink));
    }

    fn blank(&mut self, count: usize) {
        self.place();
        self.marks = None;
        self.blanks = (self.blanks + count).min(MAX_BLANKS);
    }

    /// Places the word that is held back.
    fn place(&mut self) {
        if self.word.is_empty() {
            return;
        }
        self.word_ink.end(&mut self.word);
        self.word_ink = Ink::PLAIN;
        if self.open && self.column + self.blanks + self.taken > self.limit {
            self.end_row();
        }
        if !self.open {
            // Blanks at the beginning of a line are its own; those at which it is broken are not.
            let broken = self.first.is_none();
            self.open_row();
            let space = self.limit.saturating_sub(self.column + self.taken);
            self.blanks = if broken { 0 } else { self.blanks.min(space) };
        }
        self.out.extend(std::iter::repeat_n(' ', self.blanks));
        self.out.push_str(&self.word);
        self.column += self.blanks + self.taken;
        (self.blanks, self.taken) = (0, 0);
        self.word.clear();
    }

    fn open_row(&mut self) {
        if self.any {
            self.out.extend(std::iter::repeat_n('\n', self.gap));
        }
        (self.gap, self.any, self.open) = (0, true, true);
        self.out.extend(std::iter::repeat_n(' ', GUTTER));
        let prefix = self.first.take();
        let prefix = prefix.as_ref().unwrap_or(&self.next);
        for (text, ink) in &prefix.drawn {
            let ink = if self.color && !text.trim().is_empty() { self.base.and(*ink) } else { Ink::PLAIN };
            ink.begin(&mut self.out);
            self.out.push_str(text);
            ink.end(&mut self.out);
        }
        self.column = GUTTER + prefix.columns;
    }

    /// Ends the row that is open; the word that is held back comes in the next one.
    pub(super) fn end_row(&mut self) {
        if std::mem::take(&mut self.open) {
            self.out.push('\n');
            self.column = 0;
        }
    }

    /// Writes the rows of the current line that are left.
    pub(super) fn end_line(&mut self) {
        self.place();
        if self.first.as_ref().is_some_and(|first| first.drawn.iter().any(|(text, _)| !text.trim().is_empty())) {
            // A mark alone.
            self.open_row();
        }
        self.end_row();
        (self.first, self.blanks, self.marks) = (None, 0, None);
    }

    /// Forgets what is above: what comes next is another text.
    pub(super) fn forget(&mut self) {
        (self.gap, self.any) = (0, false);
    }
}
