//! The area above an open prompt: whole lines, drawn once, and below them rows that are redrawn (the
//! unfinished line of the model, a running command's last lines, the status).
//!
//! Everything here is drawn together with the prompt by the thread that reads it; other threads only
//! change what is to be drawn and ask for it. So a redraw that comes late, twice or between two lines
//! does no harm. The rows vanish when a line ends: what stays on the screen is what was pushed as lines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use unicode_width::UnicodeWidthChar as _;

use super::flow;
use super::write::write;
use crate::capacity::Capacity;

/// The shortest time between two redraws: 20 in a second are as smooth as a person can see, and cheap
/// over a slow link.
const BETWEEN: Duration = Duration::from_millis(50);

/// Rows of a terminal in which only one row is redrawn: more would leave no room for the text.
const SMALL: usize = 10;

/// Columns between two tab stops.
const TAB: usize = 8;

/// The rows drawn above the prompt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Above {
    drawing: Arc<Mutex<Drawing>>,
    /// Lines that are not drawn yet (history search, a stopped terminal) count against the capacity for
    /// input from the daemon.
    capacity: Capacity,
    /// Whether a line is being read.
    reading: Arc<AtomicBool>,
    wake: Option<SyncSender<()>>,
}

#[derive(Debug, Default)]
struct Drawing {
    /// Whole lines that are not drawn yet.
    lines: String,
    /// The rows that are redrawn.
    rows: Vec<String>,
    /// The menu of choices for the line: rows below those.
    menu: Vec<String>,
    /// The widths of those that are on the screen.
    drawn: Vec<usize>,
    /// The columns of the terminal for which the line editor has laid the line out; 0 before it has.
    columns: usize,
    /// The prompt in front of the line.
    prompt: String,
    /// The line, and where its cursor is, in bytes.
    typed: (String, usize),
    /// Whether the line has ended: the rows are erased.
    ended: bool,
    /// The question whose text is in `lines`.
    asked: Option<KeyRequest>,
    /// The question that is on the screen.
    shown: Option<KeyRequest>,
}

/// A question on the screen, and the keys that answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyRequest {
    /// Which request for an answer it is.
    pub(crate) request: u32,
    /// The keys with a meaning.
    pub(crate) keys: &'static str,
    /// Whether a key counts alone; otherwise Enter has to follow.
    pub(crate) alone: bool,
}

impl Above {
    /// Lines that count against `capacity`. `redraw` has the prompt drawn again, and says whether it
    /// still can; it runs on a thread of its own, because it may wait for the next prompt.
    pub(crate) fn new(capacity: Capacity, mut redraw: impl FnMut() -> bool + Send + 'static) -> Self {
        let (wake, woken) = sync_channel(1);
        let above = Self { wake: Some(wake), capacity, ..Self::default() };
        let reading = above.reading.clone();
        std::thread::spawn(move || {
            for () in woken {
                if reading.load(Ordering::SeqCst) {
                    if !redraw() {
                        return;
                    }
                    std::thread::sleep(BETWEEN);
                }
            }
        });
        above
    }

    fn lock(&self) -> MutexGuard<'_, Drawing> {
        self.drawing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line is read from now on.
    pub(crate) fn begin(&self) {
        self.forget();
        self.lock().ended = false;
        self.reading.store(true, Ordering::SeqCst);
    }

    /// No line is read any more. Rows that are still on the screen stay there.
    pub(crate) fn end(&self) {
        self.reading.store(false, Ordering::SeqCst);
        self.forget();
    }

    /// The line has ended: the next drawing, which is its last, erases the rows.
    pub(crate) fn close(&self) {
        self.lock().ended = true;
    }

    /// Forgets where the rows were drawn: the screen has changed.
    pub(crate) fn forget(&self) {
        let mut drawing = self.lock();
        drawing.drawn.clear();
        drawing.columns = 0;
    }

    /// The prompt in front of the line.
    pub(crate) fn set_prompt(&self, prompt: &str) {
        prompt.clone_into(&mut self.lock().prompt);
    }

    /// Sets the text of the line, and its cursor in bytes.
    pub(crate) fn typed(&self, line: &str, at: usize) {
        let mut drawing = self.lock();
        line.clone_into(&mut drawing.typed.0);
        drawing.typed.1 = at;
    }

    /// The line editor is about to draw this line: brings the cursor to where the editor takes it for. After a change of the width
    /// the editor counts the rows of the old one, and the terminal has wrapped them again.
    pub(crate) fn lay_out(&self, line: &str, at: usize, size: Size) {
        let moves = self.moves(line, at, size);
        if !moves.is_empty() {
            // A terminal that has gone shows nothing.
            let _ = write(&mut std::io::stdout().lock(), &moves);
        }
    }

    fn moves(&self, line: &str, at: usize, size: Size) -> String {
        let mut drawing = self.lock();
        let before = std::mem::replace(&mut drawing.columns, size.columns);
        let is_same = drawing.typed.0 == line && drawing.typed.1 == at;
        if before != 0 && before != size.columns && is_same && size.reflows {
            drawing.rewrapped(before, size.columns)
        } else {
            String::new()
        }
    }

    /// Whether the line has just begun a row. The editor has then ended the row before as if a line ended there, and the terminal
    /// would wrap the two apart: the line is to be drawn again, in one piece.
    pub(crate) fn begins_row(&self, size: Size) -> bool {
        let drawing = self.lock();
        let line = &drawing.typed.0;
        let last = line.char_indices().next_back().filter(|(_, last)| *last != '\n');
        let before = last.and_then(|(last, _)| line.get(..last));
        let end = |line: &str| place(drawing.prompt.chars().chain(line.chars()), size.columns);
        before.is_some_and(|before| !before.ends_with('\n') && matches!(end(before), (1.., 0)))
    }

    /// Adds whole lines.
    pub(crate) fn push(&self, lines: &str) {
        self.capacity.take_lines(lines.len());
        self.lock().lines.push_str(lines);
        self.redraw();
    }

    /// Adds the text of a question; its keys count once it is drawn.
    pub(crate) fn ask(&self, text: &str, asked: KeyRequest) {
        self.capacity.take_lines(text.len());
        let mut drawing = self.lock();
        drawing.lines.push_str(text);
        drawing.asked = Some(asked);
        drop(drawing);
        self.redraw();
    }

    /// No key answers anything from now on.
    pub(crate) fn unask(&self) {
        let mut drawing = self.lock();
        (drawing.asked, drawing.shown) = (None, None);
    }

    /// The question that is on the screen.
    pub(crate) fn shown_question(&self) -> Option<KeyRequest> {
        self.lock().shown
    }

    /// Adds whole lines, and replaces the rows that are redrawn.
    pub(crate) fn set(&self, lines: &str, rows: Vec<String>) {
        self.capacity.take_lines(lines.len());
        let mut drawing = self.lock();
        let changed = !lines.is_empty() || drawing.rows != rows;
        drawing.lines.push_str(lines);
        drawing.rows = rows;
        drop(drawing);
        if changed {
            self.redraw();
        }
    }

    /// Sets the rows of what can be chosen; none takes them away.
    pub(crate) fn set_menu(&self, menu: Vec<String>) {
        let mut drawing = self.lock();
        let changed = drawing.menu != menu;
        drawing.menu = menu;
        drop(drawing);
        if changed {
            self.redraw();
        }
    }

    /// Has the prompt drawn again.
    pub(crate) fn redraw(&self) {
        if let Some(wake) = &self.wake {
            match wake.try_send(()) {
                // A redraw is due already and takes these lines too.
                Ok(()) | Err(TrySendError::Full(())) => {}
                // The prompt can no longer be drawn: the lines are written when it is closed.
                Err(TrySendError::Disconnected(())) => {}
            }
        }
    }

    /// Takes the lines that are not drawn yet.
    pub(crate) fn take(&self) -> String {
        let lines = std::mem::take(&mut self.lock().lines);
        self.capacity.free_lines(lines.len());
        lines
    }

    /// The bytes that bring the screen up to date, from the first column of the prompt's first row, on a terminal
    /// of this size: it erases the rows of the last drawing, and leaves the cursor where the prompt begins.
    pub(crate) fn draw(&self, size: Size) -> String {
        let mut drawing = self.lock();
        let mut out = drawing.erase(size);
        self.capacity.free_lines(drawing.lines.len());
        let lines = std::mem::take(&mut drawing.lines);
        out.push_str(&lines);
        drawing.drawn.clear();
        drawing.shown = drawing.asked.take().or(drawing.shown);
        if !drawing.ended {
            let skip = if size.rows < SMALL { drawing.rows.len().saturating_sub(1) } else { 0 };
            let rows = drawing.rows.iter().skip(skip).chain(&drawing.menu);
            let rows: Vec<String> = rows.map(|row| flow::cut(row, size.columns)).collect();
            drawing.drawn = rows.iter().map(|row| flow::width(row)).collect();
            rows.iter().for_each(|row| {
                out.push_str(row);
                out.push('\n');
            });
        }
        out
    }

    /// The bytes that erase the prompt and the rows above it, from within the prompt.
    pub(crate) fn erase(&self, size: Size) -> String {
        if !self.reading.load(Ordering::SeqCst) {
            return String::new();
        }
        let drawn = std::mem::take(&mut self.lock().drawn);
        format!("\r\x1b[2K{}", UP.repeat(drawn.iter().map(|width| rows_of(*width, size)).sum()))
    }

    /// Takes the prompt off the screen, which has ended without a line: the line editor has begun a row below it.
    pub(crate) fn take_back(&self, size: Size) {
        let erase = format!("\x1b[A{}", self.erase(size));
        // A terminal that has gone shows nothing.
        let _ = write(&mut std::io::stdout().lock(), &erase);
        self.end();
    }

    /// Takes the prompt and an unfinished line off the screen: the line editor has begun a row below them.
    pub(crate) fn take_back_line(&self, prompt: &str, line: &str, size: Size) {
        let (rows, _) = place(prompt.chars().chain(line.chars()), size.columns);
        // The last one is erased with the prompt.
        let erase = UP.repeat(rows);
        // A terminal that has gone shows nothing.
        let _ = write(&mut std::io::stdout().lock(), &erase);
        self.take_back(size);
    }
}

impl Drawing {
    /// The bytes that erase the rows of the last drawing, from the first row of the prompt.
    fn erase(&self, size: Size) -> String {
        UP.repeat(self.drawn.iter().map(|width| rows_of(*width, size)).sum())
    }

    /// From where a terminal of `now` columns has put the cursor, which had `before`: erases the line, makes room for the rows that
    /// it had, and leaves the cursor in that one of them which it was in.
    fn rewrapped(&self, before: usize, now: usize) -> String {
        let (line, at) = &self.typed;
        let (left, right) = line.split_at_checked(*at).unwrap_or((line, ""));
        let whole = || self.prompt.chars().chain(line.chars());
        let to_cursor = || self.prompt.chars().chain(left.chars());
        let (end, cursor) = (place(whole(), before), place(to_cursor(), before));
        let row = |text: &mut dyn Iterator<Item = char>, is_end: bool| match place(text, now) {
            // The cursor behind a full row stays there if nothing follows.
            (row @ 1.., 0) if is_end => row - 1,
            (row, _) => row,
        };
        // Empty rows at the end are not erased: some terminals have dropped them.
        let text = line.trim_end_matches('\n');
        let ends_at = row(&mut self.prompt.chars().chain(text.chars()), true);
        let is_at = match right.chars().next() {
            // Behind a full last row the editor has begun another one.
            None if end.1 == 0 && !line.ends_with('\n') => row(&mut whole().chain(['\n']), false),
            next => row(&mut to_cursor(), next.is_none_or(|next| next == '\n') && !left.ends_with('\n')),
        };
        let mut out = String::from("\r");
        if ends_at > is_at {
            out.push_str(&format!("\x1b[{}B", ends_at - is_at));
        }
        out.push_str("\x1b[2K");
        out.push_str(&UP.repeat(ends_at.max(is_at)));
        out.push_str(&"\n".repeat(end.0));
        if end.0 > cursor.0 {
            out.push_str(&format!("\x1b[{}A", end.0 - cursor.0));
        }
        out
    }
}

/// The row and the column behind a text that begins in the first column, as the line editor counts.
fn place(text: impl Iterator<Item = char>, columns: usize) -> (usize, usize) {
    let (mut row, mut column) = (0, 0);
    for c in text {
        if c == '\n' {
            (row, column) = (row + 1, 0);
            continue;
        }
        let width = if c == '\t' { TAB - column % TAB } else { c.width().unwrap_or(0) };
        column += width;
        if column > columns {
            (row, column) = (row + 1, width);
        }
    }
    if column == columns { (row + 1, 0) } else { (row, column) }
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
    /// Whether lines are wrapped anew when its width changes.
    pub(crate) reflows: bool,
}

/// Erases the row above. Not to the end of the screen: that makes some terminals keep a copy of it.
const UP: &str = "\x1b[A\x1b[2K";

/// The rows that one of such a width takes.
fn rows_of(width: usize, size: Size) -> usize {
    if size.reflows { width.div_ceil(size.columns.max(1)).max(1) } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { columns: 10, rows: 24, reflows: true };

    #[test]
    fn lines_that_are_not_drawn_keep_the_daemon_from_being_read() {
        let above = Above::default();
        above.push(&"x".repeat(2 << 20));
        assert!(!above.capacity.is_free(1));
        assert_eq!(above.take().len(), 2 << 20);
        assert!(above.capacity.is_free(1));
    }

    #[test]
    fn rows_are_drawn_again_in_their_place_and_vanish_with_the_line() {
        let above = Above::default();
        above.begin();
        above.push("one\n");
        above.set("", vec!["tail".to_owned(), "a status that is long".to_owned()]);
        assert_eq!(above.draw(SIZE), "one\ntail\na status t\n");
        above.set("", vec!["tail".to_owned()]);
        let up = "\x1b[A\x1b[2K";
        assert_eq!(above.draw(SIZE), format!("{up}{up}tail\n"));
        // The terminal is narrower, and has made two rows of the one.
        assert_eq!(above.draw(Size { columns: 2, ..SIZE }), format!("{up}{up}ta\n"));
        above.close();
        assert_eq!(above.draw(SIZE), up);
        assert_eq!(above.draw(SIZE), "");
    }

    /// A terminal that wraps lines again when its width changes.
    struct Screen {
        /// Its rows, the ones that have scrolled away too, and whether the line goes on in the next one.
        rows: Vec<(Vec<char>, bool)>,
        cursor: (usize, usize),
        columns: usize,
        height: usize,
    }

    impl Screen {
        fn new(columns: usize, height: usize) -> Self {
            Self { rows: vec![(Vec::new(), false); height], cursor: (0, 0), columns, height }
        }

        fn write(&mut self, text: &str) {
            let mut chars = text.chars().peekable();
            while let Some(c) = chars.next() {
                let (row, column) = self.cursor;
                match c {
                    '\r' => self.cursor.1 = 0,
                    '\n' => {
                        self.cursor = (row + 1, 0);
                        if row + 1 == self.rows.len() {
                            self.rows.push((Vec::new(), false));
                        }
                    }
                    '\x1b' => {
                        assert_eq!(chars.next(), Some('['));
                        let mut n = String::new();
                        while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                            n.push(digit);
                        }
                        let n: usize = n.parse().unwrap_or(1);
                        match chars.next() {
                            Some('A') => self.cursor.0 = row.saturating_sub(n).max(self.rows.len() - self.height),
                            Some('B') => self.cursor.0 = (row + n).min(self.rows.len() - 1),
                            Some('C') => self.cursor.1 = column + n,
                            Some('K') => self.rows[row] = (Vec::new(), false),
                            other => panic!("{other:?}"),
                        }
                    }
                    c => {
                        if column == self.columns {
                            self.rows[row].1 = true;
                            self.cursor = (row + 1, 0);
                            if row + 1 == self.rows.len() {
                                self.rows.push((Vec::new(), false));
                            }
                        }
                        let (row, column) = self.cursor;
                        let cells = &mut self.rows[row].0;
                        cells.resize(cells.len().max(column + 1), ' ');
                        cells[column] = c;
                        self.cursor.1 = column + 1;
                    }
                }
            }
        }

        /// Its lines; and the one in which the cursor is, and how far.
        fn lines(&self) -> (Vec<Vec<char>>, (usize, usize)) {
            let (mut lines, mut cursor, mut goes_on) = (Vec::<Vec<char>>::new(), (0, 0), false);
            for (at, (row, wraps)) in self.rows.iter().enumerate() {
                if !goes_on {
                    lines.push(Vec::new());
                }
                let last = lines.len() - 1;
                if at == self.cursor.0 {
                    cursor = (last, lines[last].len() + self.cursor.1);
                }
                lines[last].extend(row);
                goes_on = *wraps;
            }
            (lines, cursor)
        }

        fn resize(&mut self, columns: usize) {
            let (mut lines, cursor) = self.lines();
            while lines.len() > cursor.0 + 1 && lines.last().is_some_and(Vec::is_empty) {
                lines.pop();
            }
            self.rows.clear();
            for (n, line) in lines.iter().enumerate() {
                let begins = self.rows.len();
                let pieces: Vec<&[char]> = line.chunks(columns).collect();
                let last = pieces.len().max(1) - 1;
                for at in 0..=last {
                    self.rows.push((pieces.get(at).map(|piece| piece.to_vec()).unwrap_or_default(), at < last));
                }
                if n == cursor.0 {
                    let row = (cursor.1 / columns).min(last);
                    self.cursor = (begins + row, cursor.1 - row * columns);
                }
            }
            self.rows.resize(self.rows.len().max(self.height), (Vec::new(), false));
            self.columns = columns;
        }
    }

    /// Draws as the line editor does, which has drawn `old`: the row of the cursor, and the last one.
    fn draw(above: &Above, screen: &mut Screen, (line, at): (&str, usize), old: (usize, usize)) -> (usize, usize) {
        let size = Size { columns: screen.columns, rows: screen.height, reflows: true };
        screen.write(&above.moves(line, at, size));
        above.typed(line, at);
        if old.1 > old.0 {
            screen.write(&format!("\x1b[{}B", old.1 - old.0));
        }
        screen.write(&("\r\x1b[K\x1b[A".repeat(old.1) + "\r\x1b[K"));
        screen.write(&above.draw(size));
        let end = place("> ".chars().chain(line.chars()), screen.columns);
        let cursor = place("> ".chars().chain(line[..at].chars()), screen.columns);
        screen.write(&format!("> {line}"));
        if end.1 == 0 && !line.ends_with('\n') {
            screen.write("\n");
        }
        if end.0 > cursor.0 {
            screen.write(&format!("\x1b[{}A", end.0 - cursor.0));
        }
        screen.write("\r");
        if cursor.1 > 0 {
            screen.write(&format!("\x1b[{}C", cursor.1));
        }
        (cursor.0, end.0)
    }

    #[test]
    fn a_line_that_the_terminal_wraps_anew_costs_no_line_above_it_and_leaves_nothing_behind() {
        let widths = [12, 20, 33, 60];
        let text: String = ('a'..='z').cycle().take(70).collect();
        for (from, to) in widths.iter().flat_map(|from| widths.map(|to| (*from, to))).filter(|(from, to)| from != to) {
            for (n, line) in (0..=text.len()).map(|n| (n, text[..n].to_owned())) {
                let with_a_break = format!("{}\n{}", &line[..n / 2], &line[n / 2..]);
                let ats = [0, n / 3, n / 2, n.saturating_sub(1), n];
                for (line, at) in ats.iter().flat_map(|at| [(&line, *at), (&with_a_break, *at + 1)]) {
                    for filled in [3, 60] {
                        let above = Above::default();
                        above.begin();
                        above.set_prompt("> ");
                        above.set("", vec!["status".to_owned()]);
                        let mut screen = Screen::new(from, 40);
                        (0..filled).for_each(|n| screen.write(&format!("{n}\n")));
                        let old = draw(&above, &mut screen, (line, at), (0, 0));
                        screen.resize(to);
                        let old = draw(&above, &mut screen, (line, at), old);
                        // And it was left so that it can be drawn again.
                        draw(&above, &mut screen, (line, at), old);
                        let (lines, _) = screen.lines();
                        let lines: Vec<String> = lines.iter().map(|line| line.iter().collect()).collect();
                        let numbers: String = (0..filled).map(|n| format!("{n}\n")).collect();
                        let expect = format!("{numbers}status\n> {line}");
                        assert_eq!(lines.join("\n").trim_end(), expect.trim_end(), "{from} to {to}, {at} of {line:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_that_the_terminal_leaves_in_their_place_are_found_there() {
        let above = Above::default();
        above.begin();
        above.set_prompt("> ");
        let (line, size) = ("0123456789", |columns| Size { columns, rows: 24, reflows: false });
        assert_eq!(above.moves(line, 0, size(80)), "");
        above.typed(line, 0);
        assert_eq!(above.moves(line, 0, size(6)), "");
    }

    #[test]
    fn a_line_that_has_just_begun_a_row_is_drawn_again() {
        let above = Above::default();
        above.set_prompt("> ");
        let begins = |line: &str| {
            above.typed(line, line.len());
            above.begins_row(SIZE)
        };
        let at = |from: usize| "0123456789012345678901234567890"[..from].to_owned();
        assert_eq!((7..31).filter(|n| begins(&at(*n))).collect::<Vec<_>>(), [9, 19, 29]);
        assert!(!begins("0\n1") && !begins("01234567\n") && begins("0123456789\n0123456789x"));
    }

    #[test]
    fn a_menu_stands_next_to_the_prompt() {
        let above = Above::default();
        above.set("", vec!["status".to_owned()]);
        above.set_menu(vec!["  one".to_owned()]);
        assert_eq!(above.draw(SIZE), "status\n  one\n");
        above.set_menu(Vec::new());
        assert_eq!(above.draw(SIZE), "\x1b[A\x1b[2K\x1b[A\x1b[2Kstatus\n");
    }

    #[test]
    fn a_question_counts_once_it_is_drawn() {
        let above = Above::default();
        let asked = KeyRequest { request: 1, keys: "yn", alone: true };
        above.ask("? bash\n", asked);
        assert_eq!(above.shown_question(), None);
        above.draw(SIZE);
        assert_eq!(above.shown_question(), Some(asked));
        above.unask();
        assert_eq!(above.shown_question(), None);
    }
}
