//! Commands that run at the same time in one directory: what changed there meanwhile may be of either.
//!
//! Each command that may change files has a window while it runs. Windows are in memory: after a restart of the daemon no change
//! counts as certain. Deliberately absent: writes of file tools, whose contents `seen` knows.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A command that takes longer leaves a person the time to change a file meanwhile.
const SHORT: Duration = Duration::from_secs(1);

/// The windows that are open, over all sessions; clones are one.
#[derive(Clone, Debug, Default)]
pub struct Overlaps(Arc<Mutex<OpenWindows>>);

#[derive(Debug, Default)]
struct OpenWindows {
    last: u64,
    open: Vec<Window>,
}

#[derive(Debug)]
struct Window {
    number: u64,
    root: PathBuf,
    session: String,
    /// Whether a command of another session ran meanwhile.
    is_shared: bool,
}

/// A command that runs; it has ended when this is dropped.
#[derive(Debug)]
pub struct CommandWindow {
    overlaps: Overlaps,
    number: u64,
    began: Instant,
}

impl Overlaps {
    /// A command of `session` begins below `root`.
    pub fn open(&self, root: &Path, session: &str) -> CommandWindow {
        let mut windows = self.windows();
        windows.last += 1;
        let (number, mut is_shared) = (windows.last, false);
        for other in &mut windows.open {
            if other.session != session && (other.root.starts_with(root) || root.starts_with(&other.root)) {
                (other.is_shared, is_shared) = (true, true);
            }
        }
        windows.open.push(Window { number, root: root.to_path_buf(), session: session.to_owned(), is_shared });
        CommandWindow { overlaps: self.clone(), number, began: Instant::now() }
    }

    fn windows(&self) -> MutexGuard<'_, OpenWindows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommandWindow {
    /// When it began.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Whether a command that took `ran` is surely what changed files in its window.
    pub fn is_certain(&self, ran: Duration) -> bool {
        let windows = self.overlaps.windows();
        let own = windows.open.iter().find(|window| window.number == self.number);
        ran < SHORT && own.is_some_and(|window| !window.is_shared)
    }
}

impl Drop for CommandWindow {
    fn drop(&mut self) {
        self.overlaps.windows().open.retain(|window| window.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_command_that_ran_alone_is_certain() {
        let overlaps = Overlaps::default();
        let (at, short) = (Path::new("/w"), Duration::from_millis(999));
        let alone = overlaps.open(at, "a");
        assert!(alone.is_certain(short) && !alone.is_certain(SHORT));
        let (own, elsewhere) = (overlaps.open(at, "a"), overlaps.open(Path::new("/v"), "b"));
        assert!(alone.is_certain(short) && own.is_certain(short) && elsewhere.is_certain(short));
        let below = overlaps.open(Path::new("/w/sub"), "b");
        drop(own);
        assert!(!alone.is_certain(short) && !below.is_certain(short) && elsewhere.is_certain(short));
        drop(below);
        assert!(!alone.is_certain(short), "it ran meanwhile");
        drop(alone);
        assert!(overlaps.open(at, "b").is_certain(short));
        drop(elsewhere);
        assert!(overlaps.windows().open.is_empty());
    }
}
