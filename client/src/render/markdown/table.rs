//! Tables: held until they end, or until they are long; then their columns are as wide as what was seen. Pure.

use super::inline;
use super::rows::Ink;
use super::width;

/// Rows that are held; those that follow are shown as they come, in columns of the same width.
const MAX_ROWS: usize = 60;

/// Bytes of the rows that are held.
const MAX_BYTES: usize = 16 << 10;

/// Columns of a table; a line with more is text.
const MAX_COLUMNS: usize = 24;

/// The least that a column shrinks to, in columns of the terminal, unless its content is narrower.
const MIN_COLUMN: usize = 6;

/// Columns of the separator between two cells.
const BETWEEN: usize = 3;

const FRAME: Ink = Ink::DIM;

/// A character of a cell, and how it is drawn.
pub(super) type Drawn = (char, Ink);

/// Where a column puts its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Align {
    #[default]
    Left,
    Center,
    Right,
}

/// A table that is not over.
#[derive(Debug)]
pub(super) struct Table {
    header: Vec<Vec<Drawn>>,
    aligns: Vec<Align>,
    rows: Vec<Vec<Vec<Drawn>>>,
    /// Bytes of `rows` as they were written.
    bytes: usize,
    /// The widths, once a part of it is shown; none where the columns do not fit side by side.
    fixed: Option<Option<Vec<usize>>>,
}

/// The cells of a line, without what frames it. A pipe behind a backslash, or in code, is text.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let (mut cells, mut cell, mut escaped, mut code) = (Vec::new(), String::new(), false, false);
    for c in line.chars() {
        match c {
            '|' if escaped => {
                cell.pop();
                cell.push('|');
            }
            '|' if !code => cells.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
        code ^= c == '`' && !escaped;
        escaped = c == '\\' && !escaped;
    }
    if !cell.trim().is_empty() {
        cells.push(cell);
    }
    cells.into_iter().map(|cell| cell.trim().to_owned()).collect()
}

/// The columns of the line below a header.
fn aligns(line: &str) -> Option<Vec<Align>> {
    let align = |cell: &String| {
        let dashes = cell.trim_matches(':');
        (!dashes.is_empty() && dashes.bytes().all(|byte| byte == b'-')).then(|| {
            match (cell.starts_with(':'), cell.ends_with(':')) {
                (true, true) => Align::Center,
                (false, true) => Align::Right,
                _ => Align::Left,
            }
        })
    };
    let cells = cells(line);
    (1..=MAX_COLUMNS).contains(&cells.len()).then(|| cells.iter().map(align).collect()).flatten()
}

fn draw(cell: &str, ink: Ink) -> Vec<Drawn> {
    let mut drawn = Vec::new();
    inline::whole(cell, ink, &mut |c, ink| drawn.push((c, ink)));
    drawn
}

fn columns(cell: &[Drawn]) -> usize {
    cell.iter().map(|(c, _)| width::of_char(*c)).sum()
}

impl Table {
    /// The table that these two lines begin, if they do.
    pub(super) fn begins(header: &str, below: &str) -> Option<Self> {
        let (aligns, cells) = (aligns(below)?, cells(header));
        (cells.len() == aligns.len()).then(|| Self {
            header: cells.iter().map(|cell| draw(cell, Ink::BOLD)).collect(),
            aligns,
            rows: Vec::new(),
            bytes: 0,
            fixed: None,
        })
    }

    /// Whether nothing of it is shown.
    pub(super) fn is_new(&self) -> bool {
        self.fixed.is_none()
    }

    /// Adds a row; true if the table is to be shown as far as it goes.
    pub(super) fn row(&mut self, line: &str) -> bool {
        let mut row: Vec<_> = cells(line).iter().map(|cell| draw(cell, Ink::PLAIN)).collect();
        row.resize(self.aligns.len(), Vec::new());
        self.rows.push(row);
        self.bytes += line.len();
        self.fixed.is_some() || self.rows.len() >= MAX_ROWS || self.bytes >= MAX_BYTES
    }

    /// The lines of what is not shown yet, for so many columns of the terminal.
    pub(super) fn lines(&mut self, space: usize, unicode: bool) -> Vec<Vec<Drawn>> {
        let is_first = self.fixed.is_none();
        let widths = match &self.fixed {
            Some(widths) => widths.clone(),
            None => self.widths(space),
        };
        self.fixed = Some(widths.clone());
        self.bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        let Some(widths) = widths else {
            return rows.iter().flat_map(|row| self.record(row)).collect();
        };
        let mut lines = Vec::new();
        if is_first {
            lines.extend(self.aligned(&self.header, &widths, unicode));
            let (dash, cross) = if unicode { ('─', "─┼─") } else { ('-', "-+-") };
            let dashes = widths.iter().map(|width| dash.to_string().repeat(*width));
            let line = dashes.collect::<Vec<_>>().join(cross);
            lines.push(line.chars().map(|c| (c, FRAME)).collect());
        }
        lines.extend(rows.iter().flat_map(|row| self.aligned(row, &widths, unicode)));
        lines
    }

    /// The width of each column: its widest cell; where there is no room for that, the wide columns share what the narrow
    /// ones leave. None if even the least does not fit.
    fn widths(&self, space: usize) -> Option<Vec<usize>> {
        let count = self.aligns.len();
        let cell = |row: &Vec<Vec<Drawn>>, n: usize| row.get(n).map_or(0, |cell| columns(cell));
        let natural: Vec<usize> = (0..count)
            .map(|n| self.rows.iter().chain([&self.header]).map(|row| cell(row, n)).max().unwrap_or(0).max(1))
            .collect();
        let space = space.checked_sub(BETWEEN * count.saturating_sub(1))?;
        let fits = |cap: usize| natural.iter().map(|width| *width.min(&cap)).sum::<usize>() <= space;
        if !fits(MIN_COLUMN) {
            return None;
        }
        let cap = (MIN_COLUMN..=space).rev().find(|cap| fits(*cap)).unwrap_or(MIN_COLUMN);
        let mut widths: Vec<usize> = natural.iter().map(|width| *width.min(&cap)).collect();
        // What is left of the room, a column each.
        let mut spare = space.saturating_sub(widths.iter().sum());
        for (width, natural) in widths.iter_mut().zip(&natural) {
            if *width < *natural && spare > 0 {
                (*width, spare) = (*width + 1, spare - 1);
            }
        }
        Some(widths)
    }

    /// A row, its cells side by side, each wrapped in its column.
    fn aligned(&self, row: &[Vec<Drawn>], widths: &[usize], unicode: bool) -> Vec<Vec<Drawn>> {
        let wrapped: Vec<Vec<Vec<Drawn>>> = row.iter().zip(widths).map(|(cell, width)| wrap(cell, *width)).collect();
        let height = wrapped.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let bar = if unicode { '│' } else { '|' };
        let mut lines = Vec::new();
        for n in 0..height {
            let mut line: Vec<Drawn> = Vec::new();
            for (at, ((cell, width), align)) in wrapped.iter().zip(widths).zip(&self.aligns).enumerate() {
                if at > 0 {
                    line.extend([(' ', Ink::PLAIN), (bar, FRAME), (' ', Ink::PLAIN)]);
                }
                let text = cell.get(n).map(Vec::as_slice).unwrap_or_default();
                let spare = width.saturating_sub(columns(text));
                let left = match align {
                    Align::Left => 0,
                    Align::Center => spare / 2,
                    Align::Right => spare,
                };
                line.extend(std::iter::repeat_n((' ', Ink::PLAIN), left));
                line.extend_from_slice(text);
                line.extend(std::iter::repeat_n((' ', Ink::PLAIN), spare - left));
            }
            while line.last().is_some_and(|(c, _)| *c == ' ') {
                line.pop();
            }
            lines.push(line);
        }
        lines
    }

    /// A row as a list of its cells, for a table that is too wide.
    fn record(&self, row: &[Vec<Drawn>]) -> Vec<Vec<Drawn>> {
        let cells = self.header.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
        let mut lines: Vec<Vec<Drawn>> = cells
            .map(|(name, cell)| {
                let mut line = name.clone();
                line.extend([(':', Ink::BOLD), (' ', Ink::PLAIN)]);
                line.extend_from_slice(cell);
                line
            })
            .collect();
        lines.push(Vec::new());
        lines
    }
}

/// A cell in lines of at most `width` columns, broken at blanks where there are some.
fn wrap(cell: &[Drawn], width: usize) -> Vec<Vec<Drawn>> {
    let mut lines: Vec<Vec<Drawn>> = vec![Vec::new()];
    let mut used = 0;
    for word in cell.split(|(c, _)| *c == ' ').filter(|word| !word.is_empty()) {
        let needs = columns(word);
        if used > 0 && used + 1 + needs > width {
            lines.push(Vec::new());
            used = 0;
        }
        let Some(line) = lines.last_mut() else { break };
        if used > 0 {
            // The blank is drawn as the word before it, so that underlined text has no holes.
            line.push((' ', Ink::PLAIN));
            used += 1;
        }
        for (c, ink) in word {
            let columns = width::of_char(*c);
            if used + columns > width && used > 0 {
                lines.push(Vec::new());
                used = 0;
            }
            if let Some(line) = lines.last_mut() {
                line.push((*c, *ink));
            }
            used += columns;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use insta::assert_snapshot;

    fn shown(space: usize, text: &str) -> String {
        let mut lines = text.lines();
        let mut table = Table::begins(lines.next().unwrap(), lines.next().unwrap()).unwrap();
        for line in lines {
            table.row(line);
        }
        let text = |line: Vec<Drawn>| line.into_iter().map(|(c, _)| c).collect::<String>();
        table.lines(space, true).into_iter().map(text).collect::<Vec<_>>().join("\n")
    }

    const TABLE: &str = "| File | Lines | What it does |\n|:--|--:|:-:|\n| `a|b.rs` | 12 | the *parser* of all that comes |\n| 日本語.rs | 3 | ok |\n| x |";

    #[test]
    fn columns_are_aligned_and_shrink_with_the_room() {
        assert_snapshot!(shown(60, TABLE), @r"
        File      │ Lines │         What it does
        ──────────┼───────┼─────────────────────────────
        a|b.rs    │    12 │ the parser of all that comes
        日本語.rs │     3 │              ok
        x         │       │
        ");
        assert_snapshot!(shown(30, TABLE), @r"
        File      │ Lines │  What it
                  │       │    does
        ──────────┼───────┼───────────
        a|b.rs    │    12 │ the parser
                  │       │   of all
                  │       │ that comes
        日本語.rs │     3 │     ok
        x         │       │
        ");
        assert_snapshot!(shown(16, TABLE), @r"
        File: a|b.rs
        Lines: 12
        What it does: the parser of all that comes

        File: 日本語.rs
        Lines: 3
        What it does: ok

        File: x
        ");
    }

    #[test]
    fn what_is_no_table_is_none() {
        assert!(Table::begins("| a | b |", "| - |").is_none());
        assert!(Table::begins("| a |", "| b |").is_none());
        assert!(Table::begins("| a | b |", "|---|:-:|").is_some());
    }

    #[test]
    fn a_long_table_goes_on_in_the_widths_of_its_beginning() {
        let mut table = Table::begins("|a|b|", "|-|-|").unwrap();
        let held = (0..1000).position(|n| table.row(&format!("|{n}|x|"))).unwrap();
        assert_eq!((held + 1, table.lines(40, true).len()), (MAX_ROWS, MAX_ROWS + 2));
        assert!(table.row("|much longer|y|"));
        assert_eq!(table.lines(40, true).len(), 5);
    }
}
