//! Lines that are printed above an open prompt, until the thread that reads the prompt draws them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::capacity::Capacity;

/// Lines to be drawn above the prompt. While the prompt cannot be drawn (history search, a stopped
/// terminal) they count against the capacity for input from the daemon.
#[derive(Clone, Debug, Default)]
pub(crate) struct Above {
    lines: Arc<Mutex<String>>,
    capacity: Capacity,
    /// Whether a line is being read.
    reading: Arc<AtomicBool>,
    wake: Option<SyncSender<()>>,
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
                if reading.load(Ordering::SeqCst) && !redraw() {
                    return;
                }
            }
        });
        above
    }

    /// Says whether a line is being read; only then can the prompt be drawn.
    pub(crate) fn set_reading(&self, reading: bool) {
        self.reading.store(reading, Ordering::SeqCst);
    }

    /// Adds whole lines.
    pub(crate) fn push(&self, lines: &str) {
        self.capacity.take_lines(lines.len());
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push_str(lines);
        if let Some(wake) = &self.wake {
            match wake.try_send(()) {
                // A redraw is due already and takes these lines too.
                Ok(()) | Err(TrySendError::Full(())) => {}
                // The prompt can no longer be drawn: the lines are written when it is closed.
                Err(TrySendError::Disconnected(())) => {}
            }
        }
    }

    /// Has the prompt drawn again.
    pub(crate) fn redraw(&self) {
        self.push("");
    }

    /// Takes the lines that are not drawn yet.
    pub(crate) fn take(&self) -> String {
        let lines = std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner));
        self.capacity.free_lines(lines.len());
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_not_drawn_keep_the_daemon_from_being_read() {
        let above = Above::default();
        above.push(&"x".repeat(2 << 20));
        assert!(!above.capacity.is_free(1));
        assert_eq!(above.take().len(), 2 << 20);
        assert!(above.capacity.is_free(1));
    }
}
