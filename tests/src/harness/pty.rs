//! The real `linger` in a pseudo-terminal: keys go in, and what a person would see comes out.
//!
//! A thread reads the terminal into a model of the screen; dropping the pty hangs up, as closing a window does.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use rustix::process::Signal;
use tokio::sync::watch;

use super::{process, programs, until};
use crate::TIMEOUT;

/// The size of the terminal; wide, so that what is waited for is not wrapped.
const SIZE: PtySize = PtySize { rows: 50, cols: 160, pixel_width: 0, pixel_height: 0 };

/// How many lines that have scrolled away are kept.
const SCROLLBACK: usize = 5000;

struct Shown {
    screen: vt100::Parser,
    bytes: Vec<u8>,
}

/// A terminal with `linger` in it.
pub struct Pty {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    shown: Arc<Mutex<Shown>>,
    changed: watch::Receiver<u64>,
}

impl Pty {
    pub(super) fn spawn(env: &[(String, String)], cwd: &Path, args: &[&str]) -> Self {
        Self::open(&programs().client, env, cwd, args)
    }

    /// A terminal with any program in it.
    pub fn open(program: &Path, env: &[(String, String)], cwd: &Path, args: &[&str]) -> Self {
        let pair = native_pty_system().openpty(SIZE).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(program);
        command.args(args);
        command.env_clear();
        env.iter().for_each(|(name, value)| command.env(name, value));
        // The model of the screen does not wrap lines anew when its width changes; neither does xterm.
        command.env("XTERM_VERSION", "XTerm(390)");
        command.cwd(cwd);
        let child = pair.slave.spawn_command(command).expect("linger can be run");
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().expect("the terminal can be read");
        let keys = pair.master.take_writer().expect("the terminal takes keys");
        let shown = Shown { screen: vt100::Parser::new(SIZE.rows, SIZE.cols, SCROLLBACK), bytes: Vec::new() };
        let shown = Arc::new(Mutex::new(shown));
        let (changes, changed) = watch::channel(0);
        let into = shown.clone();
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            // Linux ends a terminal whose program has gone with an error.
            while let Ok(n @ 1..) = reader.read(&mut chunk) {
                let mut shown = into.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                shown.screen.process(&chunk[..n]);
                shown.bytes.extend(&chunk[..n]);
                drop(shown);
                changes.send_modify(|version| *version += 1);
            }
        });
        Self { child, master: pair.master, keys, shown, changed }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.process_id().expect("the program runs")
    }

    /// Types.
    pub fn keys(&mut self, keys: &str) {
        self.raw_keys(keys.as_bytes());
    }

    /// Types what may be no text.
    pub fn raw_keys(&mut self, bytes: &[u8]) {
        self.keys.write_all(bytes).and_then(|()| self.keys.flush()).expect("the terminal takes keys");
    }

    /// Types a line.
    pub fn line(&mut self, line: &str) {
        self.keys(&format!("{line}\r"));
    }

    /// Changes the size of the terminal.
    pub fn resize(&mut self, rows: u16, cols: u16) {
        self.shown().screen.screen_mut().set_size(rows, cols);
        self.master.resize(PtySize { rows, cols, ..SIZE }).expect("the terminal is open");
    }

    /// The rows of the screen that have something, without spaces at their end.
    pub fn rows(&self) -> Vec<String> {
        let screen = self.screen();
        screen.lines().map(str::trim_end).filter(|row| !row.is_empty()).map(str::to_owned).collect()
    }

    /// Waits until the cursor is in this column, counted from 0.
    pub async fn until_column(&self, column: usize) {
        let is_there = || usize::from(self.shown().screen.screen().cursor_position().1) == column;
        let mut changed = self.changed.clone();
        let reached = async {
            while !is_there() {
                changed.changed().await.expect("the terminal is open");
            }
        };
        let reached = tokio::time::timeout(TIMEOUT, reached).await;
        reached.unwrap_or_else(|_| panic!("the cursor comes to {column}; the screen:\n{}", self.screen()));
    }

    /// Waits until the rows of the screen are as they should be; gives them.
    pub async fn until_rows(&self, what: &str, mut look: impl FnMut(&[String]) -> bool) -> Vec<String> {
        let found = tokio::time::timeout(TIMEOUT, async {
            let mut changed = self.changed.clone();
            loop {
                changed.borrow_and_update();
                let rows = self.rows();
                if look(&rows) {
                    return Some(rows);
                }
                changed.changed().await.ok()?;
            }
        });
        let found = found.await;
        found.ok().flatten().unwrap_or_else(|| panic!("{what}; the screen:\n{}", self.screen()))
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        self.shown().screen.screen().contents()
    }

    /// Everything that was ever written, without control sequences.
    pub fn text(&self) -> String {
        plain(&String::from_utf8_lossy(&self.shown().bytes))
    }

    /// Every byte that was ever written.
    pub fn bytes(&self) -> Vec<u8> {
        self.shown().bytes.clone()
    }

    /// Whether the terminal shows what is typed.
    pub fn echoes(&self) -> bool {
        let modes = self.master.get_termios().expect("the terminal is open");
        // ECHO, which is the same number on Linux and macOS.
        modes.local_flags.bits() & 0o10 != 0
    }

    /// Waits until `text` has been written.
    pub async fn shows(&mut self, text: &str) {
        self.until(&format!("the terminal shows '{text}'"), |all| all.contains(text)).await;
    }

    /// Waits until `text` has been written `n` times.
    pub async fn shows_times(&mut self, text: &str, n: usize) {
        self.until(&format!("the terminal shows '{text}' {n} times"), |all| all.matches(text).count() >= n).await;
    }

    /// Waits for an open prompt. Between a turn and the prompt the terminal changes hands, and a key that is pressed just then may
    /// go to neither.
    pub async fn prompts(&self) {
        self.until_rows("an open prompt", |rows| rows.last().is_some_and(|row| row == ">")).await;
    }

    /// Waits for an open prompt, types Ctrl-D, and gives the exit code.
    pub async fn leaves(&mut self) -> u32 {
        self.prompts().await;
        self.keys("\x04");
        self.exits().await
    }

    async fn until(&mut self, what: &str, mut look: impl FnMut(&str) -> bool) {
        let mut changed = self.changed.clone();
        let search = async {
            loop {
                changed.borrow_and_update();
                if look(&self.text()) {
                    return true;
                }
                if changed.changed().await.is_err() {
                    return look(&self.text());
                }
            }
        };
        let found = tokio::time::timeout(TIMEOUT, search).await;
        assert!(found == Ok(true), "{what}: {found:?}; the screen:\n{}\n---\n{}", self.screen(), self.text());
    }

    /// Sends what the kernel sends when a window is closed or a link is lost. (The terminal itself stays: a thread reads it, and
    /// what closes its other end types Control-D first.)
    pub fn hang_up(&mut self) {
        let pid = self.child.process_id().expect("it runs");
        process::signal(pid, Signal::HUP);
    }

    /// Waits for the program's end; gives its exit code.
    pub async fn exits(&mut self) -> u32 {
        let child = &mut self.child;
        until("linger ends", async || child.try_wait().ok().flatten()).await.exit_code()
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Text without escape sequences and carriage returns.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next() {
                Some('[') => while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
                Some(']') => while chars.next().is_some_and(|c| c != '\u{7}' && c != '\u{1b}') {},
                _ => {}
            },
            '\r' => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_has_no_escape_sequences() {
        assert_eq!(plain("a\u{1b}[1;31mb\u{1b}[0m\r\nc\u{1b}]0;title\u{7}d"), "ab\ncd");
    }

    #[tokio::test]
    async fn a_terminal_takes_keys_and_shows_what_the_program_writes() {
        let dirs = crate::harness::Dirs::default();
        let mut terminal = Pty::open(Path::new("/bin/sh"), &dirs.env(), &dirs.workspace(), &[]);
        terminal.line("test -t 0 && echo on-$((40+2))");
        terminal.shows("on-42").await;
        terminal.keys("\u{4}");
        assert_eq!(terminal.exits().await, 0);
        assert!(terminal.screen().contains("on-42"));
    }
}
