//! What is drawn above an open prompt: whole lines, once, and below them rows that are redrawn (the
//! unfinished line of the model, a running command's last lines, the status).
//!
//! Everything here is drawn together with the prompt by the thread that reads it; other threads only
//! change what is to be drawn and ask for it. So a redraw that comes late, twice or between two lines
//! does no harm. The rows vanish when a line ends: what stays on the screen is what was pushed as lines.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use unicode_width::UnicodeWidthChar as _;

use super::flow;
use crate::capacity::Capacity;

/// The shortest time between two redraws: 20 in a second are as smooth as a person can see, and cheap
/// over a slow link.
const BETWEEN: Duration = Duration::from_millis(50);

/// Rows of a terminal in which only one row is redrawn: more would leave no room for the text.
const SMALL: usize = 10;

/// The last lines that are kept for the rows that the line editor erases too many: as many as a typed line has rows.
const RECENT: usize = 16;

/// Columns between two tab stops.
const TAB: usize = 8;

/// What is drawn above the prompt.
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
    /// What can be chosen for the line: rows below those.
    menu: Vec<String>,
    /// The widths of those that are on the screen.
    drawn: Vec<usize>,
    /// The columns of the terminal at the last drawing; 0 before the first of a line.
    columns: usize,
    /// The last lines that were drawn, while this line is read.
    recent: VecDeque<String>,
    /// What stands in front of the line.
    prompt: String,
    /// The line, and where its cursor is, in bytes.
    typed: (String, usize),
    /// Whether the line has ended: the rows are erased.
    ended: bool,
    /// The question whose text is in `lines`.
    asked: Option<Asked>,
    /// The question that is on the screen.
    shown: Option<Asked>,
}

/// A question on the screen, and the keys that answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
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

    /// What is on the screen is no longer where it was drawn.
    pub(crate) fn forget(&self) {
        let mut drawing = self.lock();
        drawing.drawn.clear();
        drawing.recent.clear();
        drawing.columns = 0;
    }

    /// What stands in front of the line.
    pub(crate) fn set_prompt(&self, prompt: &str) {
        prompt.clone_into(&mut self.lock().prompt);
    }

    /// What stands in the line now, and where its cursor is, in bytes.
    pub(crate) fn typed(&self, line: &str, at: usize) {
        let mut drawing = self.lock();
        line.clone_into(&mut drawing.typed.0);
        drawing.typed.1 = at;
    }

    /// Adds whole lines.
    pub(crate) fn push(&self, lines: &str) {
        self.capacity.take_lines(lines.len());
        self.lock().lines.push_str(lines);
        self.redraw();
    }

    /// Adds the text of a question; its keys count once it is drawn.
    pub(crate) fn ask(&self, text: &str, asked: Asked) {
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
    pub(crate) fn shown(&self) -> Option<Asked> {
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

    /// What brings the screen up to date, from the first column of the prompt's first row, on a terminal
    /// of this size: it erases the rows of the last drawing, and leaves the cursor where the prompt begins.
    pub(crate) fn draw(&self, size: Size) -> String {
        let mut drawing = self.lock();
        let mut out = drawing.erase(size);
        self.capacity.free_lines(drawing.lines.len());
        let lines = std::mem::take(&mut drawing.lines);
        out.push_str(&lines);
        drawing.keep(&lines);
        drawing.drawn.clear();
        drawing.columns = size.columns;
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

    /// What erases the prompt and the rows above it, from within the prompt.
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
        let _ = super::write(&mut std::io::stdout().lock(), &erase);
        self.end();
    }
}

impl Drawing {
    /// What erases the rows of the last drawing, from the row that the line editor takes for the prompt's first. After a change of
    /// the width that is another row: the editor counts the rows of the old width, and the terminal has wrapped them again.
    fn erase(&self, size: Size) -> String {
        let rows: usize = self.drawn.iter().map(|width| rows_of(*width, size)).sum();
        if self.columns == 0 || self.columns == size.columns || !size.reflows {
            return UP.repeat(rows);
        }
        let row = |at: usize, columns: usize| {
            let line = self.typed.0.get(..at).unwrap_or(&self.typed.0);
            last_row(self.prompt.chars().chain(line.chars()), columns)
        };
        let moved = |at: usize| (row(at, self.columns), row(at, size.columns));
        // A terminal that is wider has fewer rows: the cursor, which is moved down before, stays in the last one.
        let (before, now) = moved(if size.columns > self.columns { self.typed.0.len() } else { self.typed.1 });
        let (below, above) = (now.saturating_sub(before), before.saturating_sub(now));
        let mut out = UP.repeat(below + rows.saturating_sub(above));
        // Lines above ours that were erased too.
        let lost = above.saturating_sub(rows);
        self.recent.iter().skip(self.recent.len().saturating_sub(lost)).for_each(|line| {
            out.push_str(line);
            out.push('\n');
        });
        out
    }

    fn keep(&mut self, lines: &str) {
        for line in lines.lines() {
            self.recent.push_back(line.to_owned());
        }
        let over = self.recent.len().saturating_sub(RECENT);
        self.recent.drain(..over);
    }
}

/// The row in which a text ends that begins in the first column, as the line editor counts.
fn last_row(text: impl Iterator<Item = char>, columns: usize) -> usize {
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
    if column == columns { row + 1 } else { row }
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Columns.
    pub(crate) columns: usize,
    /// Rows.
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

    #[test]
    fn a_line_that_the_terminal_wraps_anew_costs_no_line_above_it_and_leaves_nothing_behind() {
        let drawn = |line: &str, at: usize, rows: &[&str], from: usize, to: Size| {
            let above = Above::default();
            above.begin();
            above.set_prompt("> ");
            above.typed(line, at);
            above.push("one\ntwo\n");
            above.set("", rows.iter().map(|row| (*row).to_owned()).collect());
            above.draw(Size { columns: from, ..to });
            above.draw(to)
        };
        let up = |rows: usize| "\x1b[A\x1b[2K".repeat(rows);
        let line = "漢字 abcdefgh";
        let size = |columns: usize| Size { columns, ..SIZE };
        // In 10 columns it has two rows, in 6 three, in 80 one.
        assert_eq!(drawn(line, line.len(), &["st"], 80, size(10)), format!("{}st\n", up(2)));
        assert_eq!(drawn(line, line.len(), &["st"], 80, size(6)), format!("{}st\n", up(3)));
        assert_eq!(drawn(line, 0, &["st"], 80, size(6)), format!("{}st\n", up(1)));
        assert_eq!(drawn(line, line.len(), &["st", "st"], 10, size(80)), format!("{}st\nst\n", up(1)));
        assert_eq!(drawn(line, line.len(), &["st"], 10, size(80)), "st\n");
        // The editor has erased a line more than ours.
        assert_eq!(drawn(line, line.len(), &[], 10, size(80)), "two\n");
        assert_eq!(drawn(line, line.len(), &["st"], 6, size(80)), "two\nst\n");
        assert_eq!(drawn("a\nb", 3, &["st"], 80, size(10)), format!("{}st\n", up(1)));
        // On a terminal that does not wrap again the rows stay where they are.
        assert_eq!(drawn(line, line.len(), &["st"], 80, Size { reflows: false, ..size(10) }), format!("{}st\n", up(1)));
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
        let asked = Asked { request: 1, keys: "yn", alone: true };
        above.ask("? bash\n", asked);
        assert_eq!(above.shown(), None);
        above.draw(SIZE);
        assert_eq!(above.shown(), Some(asked));
        above.unask();
        assert_eq!(above.shown(), None);
    }
}
