//! What a long run of checks comes to: the same few figures whatever was checked, so that one table can hold them all.

use std::time::{Duration, Instant};

/// Violations that are kept; one bug shows in thousands of places.
const KEPT: usize = 50;

/// What one run came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was done, in a few words.
    pub what: String,
    /// How often.
    pub count: u64,
    /// What did not hold, a line each; the first few of them.
    pub violations: Vec<String>,
    /// How many there were.
    pub violated: u64,
    /// What repeats the run.
    pub seed: u64,
    /// Wall time.
    pub took: Duration,
    /// Figures that show that the run was no empty one, for people.
    pub detail: String,
}

impl Report {
    /// An empty report.
    pub fn new(what: &str, seed: u64) -> Self {
        Self { what: what.to_owned(), seed, ..Self::default() }
    }

    /// Something did not hold.
    pub fn violation(&mut self, what: impl Into<String>) {
        self.violated += 1;
        if self.violations.len() < KEPT {
            self.violations.push(what.into());
        }
    }

    /// Notes how long it took.
    pub fn finish(mut self, began: Instant) -> Self {
        self.took = began.elapsed();
        self
    }

    /// Panics with the violations, if there are any.
    pub fn assert_clean(&self) {
        eprintln!("{self}");
        assert!(self.violated == 0, "{self}\n  {}", self.violations.join("\n  "));
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, count, violated, seed, took, detail, .. } = self;
        write!(f, "{what}: {count}, {violated} violations, seed {seed}, {:.1} s; {detail}", took.as_secs_f64())
    }
}
