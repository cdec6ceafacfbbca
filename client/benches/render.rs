//! What a token costs to show, early and late in an answer: `cargo bench -p linger`.
//!
//! The floor is the same text made safe for the terminal and copied, without structure. The exit code is 1 if a late token
//! costs more than an early one.
#![allow(missing_docs)]

use std::process::ExitCode;
use std::time::Instant;

/// Where in the answer a token stands.
const EARLY: usize = 1_000;
const LATE: usize = 100_000;

/// Tokens that are measured at each place.
const SAMPLE: usize = 1_000;

/// Answers; the least of each figure is what it costs, as the machine only adds to it.
const RUNS: usize = 9;

/// How much more a late token may cost, for the noise of a machine.
const FACTOR: f64 = 1.25;

/// What a model says over and over.
const TEXT: &str = "\
## Why it fails\n\nThe **parser** reads `len` bytes, *not* characters; see [the docs](https://example.org/a).\n
- one that is long enough to go on in a second row of the terminal, as most are
  - nested, with `code` and a 漢字 or two\n
| File | Lines | What |\n|---|--:|---|\n| `src/main.rs` | 12 | the *loop* |\n| `src/lib.rs` | 3 | the rest |\n
```rust\nfn main() {\n    let x = \"text\"; // a comment\n    println!(\"{x}\");\n}\n```\n
> A quote.\n\n";

/// Bytes of a token, about as models have them.
const TOKEN: usize = 4;

fn main() -> ExitCode {
    let chars: Vec<char> = TEXT.chars().collect();
    let tokens: Vec<String> = chars.chunks(TOKEN).map(|token| token.iter().collect()).collect();
    let (mut early, mut late, mut floor) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    for _ in 0..RUNS {
        let mut show = linger::answer(80);
        let mut stream = tokens.iter().cycle();
        let mut bytes = 0;
        let mut some = |count: usize| {
            let start = Instant::now();
            bytes += stream.by_ref().take(count).map(|token| show(token).len()).sum::<usize>();
            start.elapsed().as_secs_f64() * 1e9 / count as f64
        };
        some(EARLY - SAMPLE / 2);
        early = early.min(some(SAMPLE));
        some(LATE - EARLY - SAMPLE);
        late = late.min(some(SAMPLE));
        let start = Instant::now();
        let copied: String = tokens.iter().cycle().take(SAMPLE).map(String::as_str).collect();
        floor = floor.min(start.elapsed().as_secs_f64() * 1e9 / SAMPLE as f64);
        assert!(bytes > LATE && !copied.is_empty(), "the answer was shown");
    }
    if cfg!(debug_assertions) {
        eprintln!("these figures mean nothing: run with `cargo bench`");
    }
    let good = late <= early * FACTOR;
    println!("{:<40} {:>10} {:>10} ns", "", "measured", "floor");
    println!("{:<40} {early:>10.0} {floor:>10.0} ns", format!("render a token, the {EARLY}th"));
    println!(
        "{:<40} {late:>10.0} {floor:>10.0} ns {}",
        format!("render a token, the {LATE}th"),
        if good { "ok" } else { "MISS" }
    );
    ExitCode::from(u8::from(!good))
}
