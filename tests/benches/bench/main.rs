//! What linger costs, each figure beside its floor from the same run: `cargo bench -p linger-tests`.
//!
//! A floor is the least that the task can cost on this machine at this moment (`curl` making the same request, a bare echo
//! over a socket, one synced commit and one spawned process), so that figures of two machines can be compared. `--json` prints
//! one value a line; names of groups (`stream`, `tool_rounds` …) measure only these. The exit code is 1 when a figure misses its target.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // A bench has nobody to tell.

mod bare;
mod decoders;
mod delegates;
mod faces;
mod figures;
mod forks;
mod paced;
mod prompt;
mod rounds;
mod servers;

use std::process::ExitCode;

use linger_tests::floors::percentile;
use linger_tests::harness::measure_packaged;

/// One row of the table.
struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    floor: Option<f64>,
    /// Where the value lies with 95 % certainty, if it is one that hides in noise.
    between: Option<(f64, f64)>,
    /// The most that it should be, or the least if more is better; none where it is only told.
    target: Option<f64>,
    more_is_better: bool,
}

impl Figure {
    fn new(name: &'static str, value: f64, unit: &'static str, target: f64) -> Self {
        Self { target: Some(target), ..Self::told(name, value, unit) }
    }

    /// A figure that is no better or worse: the machine's, more than linger's.
    fn told(name: &'static str, value: f64, unit: &'static str) -> Self {
        Self { name, value, unit, floor: None, between: None, target: None, more_is_better: false }
    }

    /// A figure that is good if it is large.
    fn at_least(name: &'static str, value: f64, unit: &'static str, target: f64) -> Self {
        Self { more_is_better: true, ..Self::new(name, value, unit, target) }
    }

    fn over(self, floor: f64) -> Self {
        Self { floor: Some(floor), ..self }
    }

    fn between(self, between: (f64, f64)) -> Self {
        Self { between: Some(between), ..self }
    }

    /// What hides in noise is missed when it is certain to be.
    fn ok(&self) -> bool {
        let (low, high) = self.between.unwrap_or((self.value, self.value));
        self.target.is_none_or(|target| if self.more_is_better { high >= target } else { low <= target })
    }

    fn row(&self) -> String {
        let or_none = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let (floor, target) = (or_none(self.floor), or_none(self.target));
        let verdict = match (self.target, self.ok()) {
            (None, _) => "",
            (_, true) => "ok",
            (_, false) => "MISS",
        };
        let between = self.between.map_or_else(String::new, |(low, high)| format!("  ({low:.2} to {high:.2})"));
        let Self { name, value, unit, .. } = self;
        format!("{name:<56} {value:>10.2} {floor:>10} {target:>10} {unit:<6} {verdict}{between}").trim_end().to_owned()
    }

    fn json(&self) -> String {
        let row = serde_json::json!({
            "name": self.name, "value": self.value, "unit": self.unit, "floor": self.floor, "between": self.between, "target": self.target, "ok": self.ok(),
        });
        row.to_string()
    }
}

/// How often a figure that hangs on a handful of wake-ups is measured, its floor each time beside it. Whatever else a machine does
/// makes both longer, never shorter, so the least of each is what they cost.
const TRIES: usize = 3;

/// The least of what was measured.
fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

/// The value in the middle, and the two between which the true one lies with 95 % certainty, whatever the distribution: so many
/// values lie to the left of it as a coin shows heads.
fn median_between(mut values: Vec<f64>) -> (f64, (f64, f64)) {
    let off = 0.98 / (values.len() as f64).sqrt();
    let mut at = |part: f64| percentile(&mut values, part.clamp(0.0, 1.0));
    (at(0.5), (at(0.5 - off), at(0.5 + off)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let json = std::env::args().any(|arg| arg == "--json");
    if cfg!(debug_assertions) {
        eprintln!("these figures mean nothing: run with `cargo bench`");
    }
    measure_packaged();
    if !json {
        println!("{:<56} {:>10} {:>10} {:>10} {:<6}", "", "measured", "floor", "target", "unit");
    }
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|only| only == name);
    let mut good = true;
    let mut show = |figures: Vec<Figure>| {
        for figure in figures {
            good &= figure.ok();
            println!("{}", if json { figure.json() } else { figure.row() });
        }
    };
    macro_rules! measure {
        ($($module:ident::$name:ident)*) => {$(
            if wanted(stringify!($name)) {
                show($module::$name().await);
            }
        )*};
    }
    measure! {
        figures::warm_run figures::warm_turn prompt::prompt prompt::cold_prompt figures::cold_start figures::stream rounds::tool_rounds
        figures::memory paced::paced figures::round_trip figures::idle decoders::decoders decoders::prefix
        forks::forks faces::first_token faces::readers delegates::delegate delegates::delegate_memory
        servers::mcp_memory servers::mcp_first_turn servers::mcp_call servers::mcp_tools
    }
    ExitCode::from(u8::from(!good))
}
