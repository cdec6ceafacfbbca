//! What is drawn above an open prompt: whole lines, once, and below them rows that are redrawn (the
//! unfinished line of the model, a running command's last lines, the status).
//!
//! Everything here is drawn together with the prompt by the thread that reads it; other threads only
//! change what is to be drawn and ask for it. So a redraw that comes late, twice or between two lines
//! does no harm. The rows vanish when a line ends: what stays on the screen is what was pushed as lines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::flow;
use crate::capacity::Capacity;

/// The shortest time between two redraws: 20 in a second are as smooth as a person can see, and cheap
/// over a slow link.
const BETWEEN: Duration = Duration::from_millis(50);

/// Rows of a terminal in which only one row is redrawn: more would leave no room for the text.
const SMALL: usize = 10;

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
        self.lock().drawn.clear();
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
        let mut out = erase(&drawing.drawn, size);
        self.capacity.free_lines(drawing.lines.len());
        out.push_str(&std::mem::take(&mut drawing.lines));
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

    /// What erases the prompt and the rows above it, from within the prompt.
    pub(crate) fn erase(&self, size: Size) -> String {
        if !self.reading.load(Ordering::SeqCst) {
            return String::new();
        }
        let drawn = std::mem::take(&mut self.lock().drawn);
        format!("\r\x1b[2K{}", erase(&drawn, size))
    }
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

fn erase(drawn: &[usize], size: Size) -> String {
    let rows = |width: &usize| if size.reflows { width.div_ceil(size.columns.max(1)).max(1) } else { 1 };
    // Not to the end of the screen: that makes some terminals keep a copy of it.
    "\x1b[A\x1b[2K".repeat(drawn.iter().map(rows).sum())
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
