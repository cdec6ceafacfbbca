//! Text of a model as rows on a terminal, as it streams: Markdown with structure and colours, or its source. Pure.
//!
//! Reads character by character and keeps one state for the line, so a text gives the same rows however it is cut, and the
//! 20,000th token costs what the first did. Held back are: a word; the beginning of a line, until it is clear what it is;
//! emphasis, code and links, until they close; a line of code; a table, until it ends or is long.
//! A line feed of the source is one on the screen. Deliberately absent: what needs text that comes later (link references,
//! underlined headings) and HTML, which are shown as they are.

mod code;
mod inline;
mod rows;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod width;

use code::Lexer;
use inline::Inline;
pub(crate) use rows::GUTTER;
use rows::{Ink, Prefix, Rows};
use table::Table;

/// The beginning of a line that is held until it is clear what it is, in bytes.
const MAX_LEAD: usize = 200;

/// A row of a table, or a line of code, that is held until its end, in bytes.
const MAX_LINE: usize = 4096;

/// Quotes within quotes, and lists within lists, that are drawn.
const MAX_NESTED: usize = 6;

/// Blanks at the beginning of a line that are counted.
const MAX_INDENT: usize = 64;

/// Columns of a line that separates.
const MAX_RULE: usize = 40;

const MARK: Ink = Ink::color(36);

/// How text is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Columns of the terminal.
    pub(crate) width: usize,
    /// Whether Markdown is drawn; else its source is shown.
    pub(crate) markdown: bool,
    /// Whether colours are used.
    pub(crate) color: bool,
    /// Whether signs beyond ASCII are used.
    pub(crate) unicode: bool,
    /// Whether all of it is dim, as thinking is.
    pub(crate) dim: bool,
}

/// The form of the current line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineForm {
    /// Not known yet: what there is of it is held.
    Unknown,
    /// Text in this ink.
    Text(Ink),
    /// Shown as it is.
    Literal,
}

/// The block that a line's beginning starts; numbers are bytes of the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockStart {
    /// More has to come.
    Unclear,
    Empty,
    Paragraph,
    Heading(usize),
    Quote(usize),
    /// The end of its mark.
    ListItem(usize),
    Fence,
    Row,
    Rule,
}

/// An item of a list.
#[derive(Debug)]
struct ListItem {
    /// The column of its mark in the source.
    mark: usize,
    /// Columns before its text on the screen.
    hang: usize,
}

/// Code between fences.
#[derive(Debug)]
struct Fence {
    mark: char,
    length: usize,
    /// Columns before the fence in the source.
    indent: usize,
    quotes: usize,
    lexer: Lexer,
    /// Whether a part of the line is shown: it is longer than what is held.
    midline: bool,
}

/// A text that streams.
#[derive(Debug)]
pub(crate) struct Prose {
    layout: Layout,
    rows: Rows,
    line: LineForm,
    /// The line, as far as it is held.
    lead: String,
    /// Columns of the line in the source that stand before `lead`.
    consumed: usize,
    inline: Inline,
    /// Quotes around the line.
    quotes: usize,
    /// Quotes around the line before.
    last_quotes: usize,
    lists: Vec<ListItem>,
    fence: Option<Fence>,
    /// A line that may be the header of a table.
    header: Option<String>,
    table: Option<Table>,
    /// Whether the line before was empty.
    after_empty: bool,
    /// Whether the line has begun on the screen.
    begun: bool,
}

impl Prose {
    /// Starts an empty text.
    pub(crate) fn new(layout: Layout) -> Self {
        let base = if layout.dim { Ink::DIM } else { Ink::PLAIN };
        Self {
            layout,
            rows: Rows::new(layout.width, layout.color, base),
            line: LineForm::Unknown,
            lead: String::new(),
            consumed: 0,
            inline: Inline::default(),
            quotes: 0,
            last_quotes: 0,
            lists: Vec::new(),
            fence: None,
            header: None,
            table: None,
            after_empty: true,
            begun: false,
        }
    }

    /// Sets the columns of the terminal, for the rows to come.
    pub(crate) fn set_width(&mut self, columns: usize) {
        self.layout.width = columns;
        self.rows.set_width(columns);
    }

    /// Adds text, which must be clean; gives what is to be written for it.
    pub(crate) fn push(&mut self, text: &str) -> String {
        for c in text.chars() {
            match c {
                '\n' => self.end_line(),
                c if self.layout.markdown => self.char(c),
                c => self.plain(c),
            }
        }
        self.rows.take()
    }

    /// Whether a row is written and not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.rows.is_open()
    }

    /// Ends the open row, because something else is written; what is held back stays so.
    pub(crate) fn end_row(&mut self) -> String {
        self.rows.end_row();
        self.rows.take()
    }

    /// Ends the text.
    pub(crate) fn end(&mut self) -> String {
        if self.line != LineForm::Unknown || !self.lead.is_empty() || self.fence.as_ref().is_some_and(|it| it.midline) {
            self.end_line();
        }
        self.end_table();
        self.rows.end_row();
        self.rows.forget();
        let text = self.rows.take();
        *self = Self::new(self.layout);
        text
    }

    /// A character of a source that is shown as it is.
    fn plain(&mut self, c: char) {
        if self.line == LineForm::Unknown {
            if matches!(c, ' ' | '\t') && indent(&self.lead) < MAX_INDENT {
                return self.lead.push(c);
            }
            let blanks = std::mem::take(&mut self.lead);
            self.begin(0, indent(&blanks));
            self.line = LineForm::Literal;
        }
        self.rows.put(c, Ink::PLAIN);
    }

    /// A character of Markdown.
    fn char(&mut self, c: char) {
        match self.line {
            LineForm::Text(ink) => self.inline.push(c, ink, &mut |c, ink| self.rows.put(c, ink)),
            LineForm::Literal => self.rows.put(c, Ink::PLAIN),
            LineForm::Unknown => {
                self.lead.push(c);
                if self.fence.is_none() {
                    self.decide(false);
                } else if self.lead.len() >= MAX_LINE {
                    self.code(false);
                }
            }
        }
    }

    fn end_line(&mut self) {
        match self.line {
            LineForm::Text(ink) => self.inline.end(ink, &mut |c, ink| self.rows.put(c, ink)),
            LineForm::Unknown if self.fence.is_some() => return self.code(true),
            LineForm::Unknown if self.layout.markdown => self.decide(true),
            // Blanks alone.
            LineForm::Unknown => self.rows.empty(),
            LineForm::Literal => {}
        }
        // Deciding may have begun a text.
        if let LineForm::Text(ink) = self.line {
            self.inline.end(ink, &mut |c, ink| self.rows.put(c, ink));
        }
        self.rows.end_line();
        self.line_is_over();
    }

    fn line_is_over(&mut self) {
        (self.line, self.begun) = (LineForm::Unknown, false);
        self.lead.clear();
        (self.last_quotes, self.quotes, self.consumed) = (self.quotes, 0, 0);
    }

    /// Looks at the beginning of the line, and begins what it is once that is clear.
    fn decide(&mut self, ended: bool) {
        loop {
            let kind = kind(&self.lead, ended);
            if kind == BlockStart::Unclear {
                return;
            }
            let same_table = kind == BlockStart::Row && self.quotes == self.last_quotes;
            if !same_table && !matches!(kind, BlockStart::Quote(_)) {
                self.end_table();
            }
            if !matches!(kind, BlockStart::Quote(_) | BlockStart::Empty) && self.quotes != self.last_quotes {
                self.lists.clear();
                self.last_quotes = self.quotes;
            }
            let column = self.consumed + indent(&self.lead);
            if !matches!(kind, BlockStart::Empty | BlockStart::ListItem(_) | BlockStart::Quote(_)) {
                // Text belongs to an item if it is indented more than its mark.
                self.leave_lists(column);
            }
            match kind {
                BlockStart::Unclear => {}
                BlockStart::Empty => self.empty(),
                BlockStart::Quote(end) => {
                    self.quotes = (self.quotes + 1).min(MAX_NESTED);
                    self.consume(end);
                    if !self.lead.is_empty() || ended {
                        continue;
                    }
                }
                BlockStart::ListItem(end) => {
                    self.item(column, end);
                    if !self.lead.is_empty() {
                        continue;
                    }
                }
                BlockStart::Heading(end) => self.heading(end),
                BlockStart::Fence => self.open_fence(column),
                BlockStart::Row => self.row(),
                BlockStart::Rule => self.rule(),
                BlockStart::Paragraph => self.paragraph(column),
            }
            return;
        }
    }

    fn consume(&mut self, bytes: usize) {
        let rest = self.lead.split_off(bytes.min(self.lead.len()));
        let taken = std::mem::replace(&mut self.lead, rest);
        self.consumed += width::of(&taken);
    }

    fn empty(&mut self) {
        self.rows.gap(1);
        self.after_empty = true;
        self.lead.clear();
        if self.quotes == 0 {
            self.last_quotes = 0;
        }
    }

    /// Leaves the items that text in this column does not belong to.
    fn leave_lists(&mut self, column: usize) {
        while self.lists.last().is_some_and(|item| column < item.mark + 2) {
            self.lists.pop();
        }
    }

    fn hang(&self) -> usize {
        self.lists.last().map_or(0, |item| item.hang)
    }

    /// The prefix of each row of a line in these quotes.
    fn bars(&self, quotes: usize) -> Prefix {
        let mut prefix = Prefix::default();
        let bar = if self.layout.unicode { "│ " } else { "| " };
        (0..quotes).for_each(|_| prefix.push(bar, Ink::DIM));
        prefix
    }

    /// A line begins, so many columns behind the quotes.
    fn begin(&mut self, quotes: usize, hang: usize) {
        let mut prefix = self.bars(quotes);
        prefix.blanks(hang);
        self.rows.begin(prefix.clone(), prefix);
        self.begun = true;
    }

    fn paragraph(&mut self, column: usize) {
        let text = std::mem::take(&mut self.lead);
        let indented = self.lists.is_empty() && column >= 4 && self.after_empty && self.quotes == 0;
        self.after_empty = false;
        if indented {
            self.begin(0, 4);
            self.line = LineForm::Literal;
            return self.rows.put_all(skip_indent(&text, 4), Ink::PLAIN);
        }
        // The text of an item stands in the row of its mark.
        if !self.begun {
            self.begin(self.quotes, self.hang());
        }
        self.text(text.trim_start(), Ink::PLAIN);
    }

    fn text(&mut self, text: &str, ink: Ink) {
        self.line = LineForm::Text(ink);
        text.chars().for_each(|c| self.inline.push(c, ink, &mut |c, ink| self.rows.put(c, ink)));
    }

    fn heading(&mut self, end: usize) {
        let level = self.lead.trim_start().len() - self.lead.trim_start().trim_start_matches('#').len();
        let ink = match level {
            1 => Ink { underline: true, ..Ink::BOLD }.and(Ink::color(36)),
            2 => Ink::BOLD.and(Ink::color(36)),
            _ => Ink::BOLD,
        };
        self.consume(end);
        let text = std::mem::take(&mut self.lead);
        if !self.begun {
            self.rows.gap(1);
            self.begin(self.quotes, self.hang());
        }
        self.after_empty = false;
        self.text(&text, ink);
    }

    fn item(&mut self, column: usize, end: usize) {
        while self.lists.last().is_some_and(|item| column < item.mark + 2) {
            self.lists.pop();
        }
        let mark: String = self.lead.get(..end).unwrap_or_default().trim().to_owned();
        let mark = if mark.len() == 1 { "-".to_owned() } else { mark };
        let before = self.hang();
        self.consume(end);
        let hang = before + mark.len() + 1;
        if self.lists.len() < MAX_NESTED {
            self.lists.push(ListItem { mark: column, hang });
        }
        let (mut first, mut next) = (self.bars(self.quotes), self.bars(self.quotes));
        first.blanks(before);
        first.push(&mark, MARK);
        first.blanks(1);
        next.blanks(hang);
        if self.begun {
            // A list that begins within an item, on the same line: its mark is text of that row.
            self.rows.put_all(&format!("{mark} "), MARK);
            self.rows.set_next(next);
        } else {
            self.rows.begin(first, next);
            self.begun = true;
        }
        self.after_empty = false;
    }

    fn rule(&mut self) {
        self.lead.clear();
        self.begin(self.quotes, self.hang());
        let dash = if self.layout.unicode { '─' } else { '-' };
        let length = self.rows.space().min(MAX_RULE).saturating_sub(self.hang() + 2 * self.quotes);
        (0..length).for_each(|_| self.rows.put(dash, Ink::DIM));
        self.after_empty = false;
    }

    fn open_fence(&mut self, column: usize) {
        let line = std::mem::take(&mut self.lead);
        let line = line.trim();
        let mark = line.chars().next().unwrap_or('`');
        let info = line.trim_start_matches(mark);
        let lexer = Lexer::new(info.trim());
        let (length, quotes) = (line.len() - info.len(), self.quotes);
        self.fence = Some(Fence { mark, length, indent: column, quotes, lexer, midline: false });
        self.rows.gap(1);
        self.after_empty = false;
    }

    /// A line of code, or so much of it as is held.
    fn code(&mut self, ended: bool) {
        let line = std::mem::take(&mut self.lead);
        let hang = self.hang() + 2;
        let Some(fence) = &mut self.fence else { return };
        if !fence.midline && fence.quotes > 0 && !line.trim_start().starts_with('>') {
            // The quote is over, and the code with it.
            (self.fence, self.lead) = (None, line);
            return if ended { self.end_line() } else { self.decide(false) };
        }
        let text = if fence.midline { line.as_str() } else { unquoted(&line, fence.quotes) };
        let trimmed = text.trim();
        let mark = trimmed.len() - trimmed.trim_start_matches(fence.mark).len();
        if !fence.midline && ended && mark == trimmed.len() && mark >= fence.length {
            self.fence = None;
            self.rows.gap(1);
            self.after_empty = true;
            return self.line_is_over();
        }
        let text = if fence.midline { text } else { skip_indent(text, fence.indent) };
        let (quotes, midline) = (fence.quotes, fence.midline);
        fence.midline = !ended;
        if !midline && text.trim().is_empty() && ended {
            self.rows.empty();
            return self.line_is_over();
        }
        let mut lexer = std::mem::take(&mut fence.lexer);
        if !midline {
            self.begin(quotes, hang);
            // A row that does not hold the line goes on a little to the right of where it began.
            let mut next = self.bars(quotes);
            next.blanks(hang + indent(text) + 2);
            self.rows.set_next(next);
        }
        lexer.line(text, &mut |piece, ink| self.rows.put_all(piece, ink));
        if let Some(fence) = &mut self.fence {
            fence.lexer = lexer;
        }
        if ended {
            self.rows.end_line();
            self.line_is_over();
        }
    }

    /// A line that begins with a pipe.
    fn row(&mut self) {
        let line = std::mem::take(&mut self.lead);
        self.after_empty = false;
        if let Some(table) = &mut self.table {
            if table.row(&line) {
                self.show_table();
            }
            return;
        }
        match self.header.take() {
            None => self.header = Some(line),
            Some(header) => match Table::begins(&header, &line) {
                Some(table) => self.table = Some(table),
                None => {
                    self.source_line(&header);
                    self.header = Some(line);
                }
            },
        }
    }

    /// A line that was held and is text.
    fn source_line(&mut self, line: &str) {
        self.begin(self.last_quotes, self.hang());
        inline::whole(line.trim(), Ink::PLAIN, &mut |c, ink| self.rows.put(c, ink));
        self.rows.end_line();
    }

    fn end_table(&mut self) {
        if let Some(header) = self.header.take() {
            self.source_line(&header);
        }
        if self.table.is_some() {
            self.show_table();
            self.rows.gap(1);
            self.table = None;
        }
    }

    fn show_table(&mut self) {
        let (quotes, hang) = (self.last_quotes, self.hang());
        let space = self.rows.space().saturating_sub(self.bars(quotes).columns + hang);
        let Some(mut table) = self.table.take() else { return };
        if table.is_new() {
            self.rows.gap(1);
        }
        for line in table.lines(space, self.layout.unicode) {
            if line.is_empty() {
                self.rows.gap(1);
                continue;
            }
            self.begin(quotes, hang);
            for (c, ink) in line {
                self.rows.put(c, ink);
            }
            self.rows.end_line();
        }
        self.table = Some(table);
    }
}

/// Columns of the blanks that a line begins with.
fn indent(line: &str) -> usize {
    let blanks = line.chars().take_while(|c| matches!(c, ' ' | '\t'));
    blanks.fold(0, |column, c| if c == '\t' { column + 4 - column % 4 } else { column + 1 })
}

/// A line without at most so many columns of blanks at its beginning.
fn skip_indent(line: &str, columns: usize) -> &str {
    let mut rest = line;
    let mut skipped = 0;
    while skipped < columns {
        match rest.strip_prefix([' ', '\t']) {
            Some(after) => {
                skipped += if rest.starts_with('\t') { 4 } else { 1 };
                rest = after;
            }
            None => break,
        }
    }
    rest
}

/// A line without the marks of so many quotes.
fn unquoted(line: &str, quotes: usize) -> &str {
    let mut rest = line;
    for _ in 0..quotes {
        let Some(after) = rest.trim_start_matches(' ').strip_prefix('>') else { break };
        rest = after.strip_prefix(' ').unwrap_or(after);
    }
    rest
}

/// Classifies a line by its beginning.
fn kind(lead: &str, ended: bool) -> BlockStart {
    let unclear = |kind: BlockStart| if ended || lead.len() > MAX_LEAD { kind } else { BlockStart::Unclear };
    let text = lead.trim_start_matches([' ', '\t']);
    let skipped = lead.len() - text.len();
    let Some(first) = text.chars().next() else {
        return match (ended, indent(lead) < MAX_INDENT) {
            (true, _) => BlockStart::Empty,
            (false, true) => BlockStart::Unclear,
            (false, false) => BlockStart::Paragraph,
        };
    };
    let run = text.len() - text.trim_start_matches(first).len();
    let after = text.get(run..).and_then(|rest| rest.chars().next());
    match first {
        '#' if run <= 6 => match after {
            None => unclear(BlockStart::Heading(skipped + run)),
            Some(' ') => BlockStart::Heading(skipped + run + 1),
            Some(_) => BlockStart::Paragraph,
        },
        '>' => match text.as_bytes().get(1) {
            None => unclear(BlockStart::Quote(skipped + 1)),
            Some(b' ') => BlockStart::Quote(skipped + 2),
            Some(_) => BlockStart::Quote(skipped + 1),
        },
        '`' | '~' => match after {
            None if run < 3 => unclear(BlockStart::Paragraph),
            Some(_) if run < 3 => BlockStart::Paragraph,
            _ if first == '`' && text.get(run..).is_some_and(|info| info.contains('`')) => BlockStart::Paragraph,
            _ if ended => BlockStart::Fence,
            _ => unclear(BlockStart::Paragraph),
        },
        '|' if lead.len() > MAX_LINE => BlockStart::Paragraph,
        '|' => {
            if ended {
                BlockStart::Row
            } else {
                BlockStart::Unclear
            }
        }
        '-' | '*' | '_' | '+' => {
            let marks = text.chars().filter(|c| *c == first).count();
            let alone = text.chars().all(|c| c == first || c == ' ') && first != '+';
            let item = first != '_' && text.as_bytes().get(1) == Some(&b' ');
            match (alone, marks >= 3) {
                (true, true) => unclear(BlockStart::Rule),
                (true, false) if item => unclear(BlockStart::ListItem(skipped + 2)),
                _ if item => BlockStart::ListItem(skipped + 2),
                (true, false) => unclear(BlockStart::Paragraph),
                _ if text.len() == 1 => unclear(BlockStart::Paragraph),
                _ => BlockStart::Paragraph,
            }
        }
        '0'..='9' => {
            let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            match (digits <= 9, text.as_bytes().get(digits), text.as_bytes().get(digits + 1)) {
                (true, None, _) | (true, Some(b'.' | b')'), None) => unclear(BlockStart::Paragraph),
                (true, Some(b'.' | b')'), Some(b' ')) => BlockStart::ListItem(skipped + digits + 2),
                _ => BlockStart::Paragraph,
            }
        }
        _ => BlockStart::Paragraph,
    }
}
