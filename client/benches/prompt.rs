//! What a person waits for at the prompt: from the start to the prompt, and from a key to its echo while 200 tokens a second
//! stream above it: `cargo bench -p linger --bench prompt`.
//!
//! The daemon is one from a script, in this process: what is measured is the client. Each floor is what the pseudo-terminal takes
//! for a program that does nothing else. The exit code is 1 if a target is missed.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../tests/fake/mod.rs"]
mod fake;

use std::io::{Read as _, Write};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use fake::{Connection, Fake};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use serde_json::json;

/// Starts that are measured.
const STARTS: usize = 30;

/// Keys that are measured; each is a letter of its own, so that its echo is known from redraws of the line.
const KEYS: u32 = 200;

/// Between two keys: a fast typist.
const BETWEEN_KEYS: Duration = Duration::from_millis(20);

/// Between two tokens: 200 a second.
const BETWEEN_TOKENS: Duration = Duration::from_millis(5);

/// What a start may take, warm, in milliseconds; it is over before the key that started it is released.
const START_MS: f64 = 8.0;

/// What an echo may take in 99 of 100 cases, in milliseconds; less is not noticed.
const ECHO_MS: f64 = 5.0;

/// How long to wait for anything.
const LIMIT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let (start, start_floor) = (median(STARTS, start), median(STARTS, floor_of_start));
    let (mut echo, mut echo_floor) = (echo(), floor_of_echo());
    let (p50, p99) = (at(&mut echo, 50), at(&mut echo, 99));
    let floor = [at(&mut echo_floor, 50), at(&mut echo_floor, 99)];
    if cfg!(debug_assertions) {
        eprintln!("these figures mean nothing: run with `cargo bench`");
    }
    let word = |good: bool| if good { "ok" } else { "MISS" };
    let (start_good, echo_good) = (start <= START_MS, p99 <= ECHO_MS);
    println!("{:<52} {:>9} {:>9} ms", "", "measured", "floor");
    println!("{:<52} {start:>9.2} {start_floor:>9.2} ms {}", "start to prompt, warm, median", word(start_good));
    println!("{:<52} {p50:>9.3} {:>9.3} ms", "echo of a key while 200 tokens/s stream, median", floor[0]);
    println!(
        "{:<52} {p99:>9.3} {:>9.3} ms {}",
        "echo of a key while 200 tokens/s stream, p99",
        floor[1],
        word(echo_good)
    );
    ExitCode::from(u8::from(!(start_good && echo_good)))
}

/// A program on a terminal.
struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    input: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    seen: String,
    _master: Box<dyn MasterPty + Send>,
}

impl Terminal {
    fn start(mut command: CommandBuilder, environment: &[(&str, String)]) -> Self {
        let size = PtySize { rows: 40, cols: 100, pixel_width: 0, pixel_height: 0 };
        let pty = native_pty_system().openpty(size).unwrap();
        command.env_clear();
        environment.iter().for_each(|(name, value)| command.env(name, value));
        let child = pty.slave.spawn_command(command).unwrap();
        let mut reader = pty.master.try_clone_reader().unwrap();
        let input = pty.master.take_writer().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut chunk) {
                if sender.send(chunk[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, input, output, seen: String::new(), _master: pty.master }
    }

    fn linger(fake: &Fake) -> Self {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_linger"));
        command.cwd(fake.home());
        let home = fake.home().display().to_string();
        let environment = [
            ("HOME", home.clone()),
            ("XDG_STATE_HOME", home),
            ("LINGER_SOCKET", fake.socket().display().to_string()),
            ("TERM", "xterm".to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
            ("PATH_WE_WANT", "/bin".to_owned()),
        ];
        Self::start(command, &environment)
    }

    fn press(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).and_then(|()| self.input.flush()).unwrap();
    }

    /// Waits for a text, and forgets what came up to it.
    fn sees(&mut self, text: &str) {
        let deadline = Instant::now() + LIMIT;
        while !self.seen.contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            let chunk = self.output.recv_timeout(left).unwrap_or_else(|_| panic!("no {text:?} in {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&chunk));
        }
        self.seen.clear();
    }

    fn ends(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Attached to an idle session, so large that what happened before is not read.
fn attached(daemon: &mut Connection) {
    daemon.hello();
    let mut row = fake::row("s1", "idle", None);
    (row["size"], row["cursor"]) = (json!(1 << 30), row["turn_cursor"].clone());
    daemon.answer("session/list", json!([row]));
    daemon.answer("session/attach", json!({"cursor": "7"}));
    daemon.event("7", json!({"kind": "caught_up"}));
}

/// From the start of the program to its prompt.
fn start() -> f64 {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        daemon.expect_end();
    });
    let began = Instant::now();
    let mut terminal = Terminal::linger(&fake);
    terminal.sees("> ");
    let took = ms(began);
    terminal.ends();
    fake.finish();
    took
}

fn floor_of_start() -> f64 {
    let mut command = CommandBuilder::new("/bin/echo");
    command.arg("> ");
    let began = Instant::now();
    let mut terminal = Terminal::start(command, &[]);
    terminal.sees("> ");
    let took = ms(began);
    let _ = terminal.child.wait();
    took
}

/// From each key to its echo while a text streams above the line.
fn echo() -> Vec<f64> {
    let mut fake = Fake::one(|daemon| {
        attached(daemon);
        daemon.answer("session/prompt", json!({"prompt": "p1", "seq": 8}));
        daemon.event("9", json!({"kind": "turn_started", "seq": 9, "turn": "t1", "prompt": "p1"}));
        let (mut offset, began) = (0, Instant::now());
        let keys = BETWEEN_KEYS * 2 * KEYS;
        for n in 0.. {
            let text = format!("token{n} ");
            daemon.delta("9+m2.0.8", "m2", offset, &text);
            offset += text.len() as u64;
            if began.elapsed() > keys {
                break;
            }
            // As a model does it; what is measured is the client meanwhile.
            std::thread::sleep(BETWEEN_TOKENS);
        }
        daemon.expect_end();
    });
    let mut terminal = Terminal::linger(&fake);
    terminal.sees("> ");
    terminal.press("go\r");
    terminal.sees("token9");
    let echo = typed(&mut terminal);
    terminal.ends();
    fake.finish();
    echo
}

/// The terminal's own echo, with no program that reads.
fn floor_of_echo() -> Vec<f64> {
    let mut command = CommandBuilder::new("/bin/sleep");
    command.arg("1000");
    let mut terminal = Terminal::start(command, &[]);
    let echo = typed(&mut terminal);
    terminal.ends();
    echo
}

fn typed(terminal: &mut Terminal) -> Vec<f64> {
    let letters = (0..KEYS).filter_map(|n| char::from_u32(0x400 + n));
    let mut echo = Vec::new();
    for (n, letter) in letters.enumerate() {
        // A line of one row.
        if n % 40 == 0 {
            terminal.press("\x15");
        }
        std::thread::sleep(BETWEEN_KEYS);
        let began = Instant::now();
        terminal.press(&letter.to_string());
        terminal.sees(&letter.to_string());
        echo.push(ms(began));
    }
    echo
}

fn ms(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

fn median(runs: usize, run: impl Fn() -> f64) -> f64 {
    at(&mut (0..runs).map(|_| run()).collect::<Vec<_>>(), 50)
}

/// The value below which so many of a hundred lie.
fn at(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() * percent / 100).min(values.len() - 1)]
}
