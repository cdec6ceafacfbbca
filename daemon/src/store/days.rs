//! The days on which a daemon ran: a second measure of time beside the clock, for everything that is deleted because it is old.
//!
//! A clock may be wrong for one start (an empty battery, a resumed machine), and a machine may be off for a month. So age counts in
//! days that were seen to pass: from one day on which a daemon ran to the next, unless there are more than [`MAX_GAP`] between them.
//! The record is a file next to the database: a list of days since 1970 in JSON. Without it everything is young, and nothing is
//! deleted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::files;
use crate::sys::clock::DAY_MS;

/// The longest gap between two days of the record that counts as time, in days: of a longer one nobody knows whether it has passed.
const MAX_GAP: u64 = 7;

/// The most days of the record, and the largest file that is read: eleven years.
const MAX_DAYS: usize = 4096;
const MAX_BYTES: u64 = 64 << 10;

/// The record of the days on which a daemon ran; the default one is kept in memory alone.
#[derive(Debug, Default)]
pub struct Days {
    file: PathBuf,
    days: Mutex<BTreeSet<u64>>,
}

impl Days {
    /// The record next to this database; empty if there is none or it cannot be read.
    pub fn beside(database: &Path) -> Self {
        let file = files::with(database, ".days");
        let is_small = std::fs::metadata(&file).is_ok_and(|meta| meta.is_file() && meta.len() <= MAX_BYTES);
        let text = if is_small { std::fs::read_to_string(&file).unwrap_or_default() } else { String::new() };
        let days = serde_json::from_str(&text).unwrap_or_default();
        Self { file, days: Mutex::new(days) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.days.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the day of `now` is not the latest of the record.
    pub fn is_new(&self, now: u64) -> bool {
        self.lock().last() != Some(&(now / DAY_MS))
    }

    /// Adds the day of `now`, in Unix milliseconds, and forgets later ones, which were of a wrong clock. Blocks on the disk.
    pub fn note(&self, now: u64) {
        let today = now / DAY_MS;
        let all = {
            let mut days = self.lock();
            if days.last() == Some(&today) {
                return;
            }
            days.split_off(&(today + 1));
            days.insert(today);
            while days.len() > MAX_DAYS {
                days.pop_first();
            }
            days.clone()
        };
        if self.file.as_os_str().is_empty() {
            return;
        }
        if let Err(error) = files::write_whole(&self.file, &all) {
            tracing::warn!(target: "retention", file = %self.file.display(), %error, "the day cannot be recorded");
        }
    }

    /// The time, in Unix milliseconds, before which a last use is older than `age_ms` by the clock and by the record; 0 if none is.
    /// `newest`: the last event of all sessions, if that is known; a clock that is behind it by days is wrong.
    pub fn before(&self, age_ms: u64, now: u64, newest: Option<u64>) -> u64 {
        if newest.is_some_and(|newest| newest > now.saturating_add(DAY_MS)) {
            return 0;
        }
        let today = now / DAY_MS;
        let (mut later, mut passed) = (today, 0);
        for day in self.lock().range(..today).rev() {
            let gap = later - day;
            if gap <= MAX_GAP {
                passed += gap;
            }
            if passed.saturating_mul(DAY_MS) >= age_ms {
                return now.saturating_sub(age_ms).min((day + 1) * DAY_MS);
            }
            later = *day;
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 20_000;

    /// The record of a daemon that ran on these days, and runs on `today` at noon.
    fn ran(days: impl IntoIterator<Item = u64>) -> Days {
        Days { days: Mutex::new(days.into_iter().collect()), ..Days::default() }
    }

    /// The last day whose end is old enough, `age` days before `today`.
    #[track_caller]
    fn check(days: impl IntoIterator<Item = u64>, today: u64, age: u64, expect: Option<u64>) {
        let days = ran(days);
        let before = days.before(age * DAY_MS, today * DAY_MS + DAY_MS / 2, None);
        assert_eq!((before > 0).then_some(before / DAY_MS), expect);
    }

    #[test]
    fn age_is_days_that_were_seen_to_pass() {
        check(NOW - 40..NOW, NOW, 30, Some(NOW - 30));
        check(NOW - 29..NOW, NOW, 30, None);
        check([], NOW, 1, None);
        // Once a week is enough, once a month is not.
        check((0..6).map(|n| NOW - 7 * n), NOW, 30, Some(NOW - 34));
        check((0..6).map(|n| NOW - 30 * n), NOW, 30, None);
        // The machine was off for a month: what was of that day is as old as before.
        check(NOW - 90..NOW - 60, NOW, 30, None);
        check((NOW - 90..NOW - 60).chain([NOW - 1]), NOW, 30, Some(NOW - 89));
    }

    #[test]
    fn a_clock_that_is_ahead_makes_nothing_older() {
        let used = || NOW - 20..=NOW;
        // One start, and several on other days.
        check(used(), NOW + 400, 30, None);
        check(used(), NOW + 400, 1, Some(NOW));
        check(used().chain([NOW + 400]), NOW + 700, 30, None);
        check(used().chain((400..408).map(|n| NOW + n)), NOW + 408, 30, None);
    }

    #[test]
    fn a_clock_that_was_ahead_leaves_no_trace_and_one_that_is_back_deletes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("linger.db");
        let days = Days::beside(&database);
        for day in [NOW - 1, NOW, NOW + 400, NOW + 401, NOW] {
            assert!(days.is_new(day * DAY_MS));
            days.note(day * DAY_MS);
            days.note(day * DAY_MS + 1);
        }
        let again = Days::beside(&database);
        assert_eq!(*again.lock(), BTreeSet::from([NOW - 1, NOW]));
        again.note(0);
        assert_eq!(*Days::beside(&database).lock(), BTreeSet::from([0]));
        assert_eq!(again.before(DAY_MS, 5 * DAY_MS, Some(NOW * DAY_MS)), 0);
        assert_eq!(again.before(DAY_MS, 5 * DAY_MS, Some(5 * DAY_MS)), DAY_MS);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("linger.db");
        for broken in [b"[20000, -3]".as_slice(), b"\xff\xfe", b"", b"20000"] {
            std::fs::write(folder.path().join("linger.db.days"), broken).unwrap();
            assert!(Days::beside(&database).lock().is_empty());
        }
        std::fs::remove_file(folder.path().join("linger.db.days")).unwrap();
        std::fs::create_dir(folder.path().join("linger.db.days")).unwrap();
        let days = Days::beside(&database);
        days.note(NOW * DAY_MS);
        assert!(!days.is_new(NOW * DAY_MS), "it is known until the daemon ends");
    }
}
