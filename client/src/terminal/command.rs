//! A command of the user's own, in a terminal of its own within this one: it sees a terminal, and what it writes is shown as it
//! comes and kept for the next prompt.
//!
//! It runs in a pseudo-terminal whose other end is copied to and from the real one. A process can only take a terminal as its own
//! while it leads a session, so this program starts itself under another name ([`as_helper`]), which does that and becomes the
//! command's shell. The thread that reads the user's keys copies; another one waits for the command's end.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

use super::keyboard::with_shell_settings;

/// The name under which this program becomes a command's shell.
const HELPER: &str = "linger: a command of the user's";

/// The bytes that are kept of the beginning and of the end of what a command writes: some hundred lines each, of which a model
/// needs the end most.
const KEPT: usize = 16 << 10;

/// How often the size of the terminal is compared while a command runs; a program redraws when it is told.
const RESIZED: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// The bytes that are copied at once.
const CHUNK: usize = 4 << 10;

/// The bytes that are copied after a command's end: what it wrote last, and not all that a program of its in the background writes,
/// which may never stop.
const MAX_AFTER: usize = 1 << 20;

/// Becomes the shell of a command, if this program was started for that. Returns only if it was not, or with what went wrong.
pub(crate) fn as_helper() -> Option<io::Error> {
    let mut arguments = std::env::args_os();
    if arguments.next()? != HELPER {
        return None;
    }
    let become_shell = |terminal: OsString, command: OsString| -> io::Result<io::Error> {
        rustix::process::setsid()?;
        let terminal: OwnedFd = rustix::fs::open(&terminal, OFlags::RDWR, Mode::empty())?;
        rustix::process::ioctl_tiocsctty(&terminal)?;
        let shell = std::env::var_os("SHELL").filter(|shell| Path::new(shell).is_absolute());
        let shell = shell.unwrap_or_else(|| "/bin/sh".into());
        let [input, output] = [terminal.try_clone()?, terminal.try_clone()?];
        #[allow(clippy::disallowed_methods, reason = "the user's own command, in the user's terminal")]
        let mut shell = Command::new(shell);
        shell.arg("-c").arg(command);
        Ok(shell.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(terminal)).exec())
    };
    let (terminal, command) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    Some(become_shell(terminal, command).unwrap_or_else(|error| error))
}

/// Runs a command in a directory; what it wrote, as text, and how it ended. Fails if it cannot be started.
pub(crate) fn run(command: &str, directory: &Path) -> io::Result<(String, ExitStatus)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let name = name.to_str().map_err(io::Error::other)?.to_owned();
    // Held until the command ends: the terminal is not gone before the command opens it, and not gone while anything is unread.
    let slave = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    with_shell_settings(|| {
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin)?;
        tcsetattr(&slave, OptionalActions::Now, &before)?;
        resize(&master);
        let (ended, end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // Not by its path, which may be another program by now.
        let own = Path::new("/proc/self/exe");
        let own = if own.exists() { own.to_path_buf() } else { std::env::current_exe()? };
        #[allow(clippy::disallowed_methods, reason = "this program, which becomes the user's own command")]
        let mut child = Command::new(own)
            .arg0(HELPER)
            .args([&name, command])
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let waits = std::thread::spawn(move || {
            let status = child.wait();
            drop(end);
            status
        });
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin, OptionalActions::Now, &raw)?;
        let mut kept = CapturedOutput::default();
        let copied = copy(&master, &ended, &mut kept);
        tcsetattr(stdin, OptionalActions::Drain, &before)?;
        copied?;
        let status = waits.join().map_err(|_| io::Error::other("the thread that waits for the command ended"))??;
        if kept.last.is_some_and(|last| last != b'\n') {
            super::write(&mut io::stdout().lock(), "\n")?;
        }
        Ok((plain(&kept.text()), status))
    })
}

/// The exit code of a command, as shells say it.
pub(crate) fn code(status: ExitStatus) -> Option<i32> {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal))
}

fn resize(master: &OwnedFd) {
    // Without a size the command takes the usual one.
    if let Ok(size) = tcgetwinsize(rustix::stdio::stdout()) {
        let _ = tcsetwinsize(master, size);
    }
}

/// Copies between the two terminals until the command has ended and everything of it is shown, or [`MAX_AFTER`] bytes more. Never
/// waits until the command takes keys: those that it does not take stay with the user's terminal.
fn copy(master: &OwnedFd, ended: &OwnedFd, kept: &mut CapturedOutput) -> io::Result<()> {
    let mut terminal = File::from(master.try_clone()?);
    fcntl_setfl(master, fcntl_getfl(master)? | OFlags::NONBLOCK)?;
    let (mut stdin_open, mut bytes) = (true, [0; CHUNK]);
    // The keys that the command's terminal has not taken yet, and the bytes that came after its end.
    let (mut unwritten, mut after): (Vec<u8>, usize) = (Vec::new(), 0);
    let mut size = tcgetwinsize(rustix::stdio::stdout()).ok();
    loop {
        let stdin = rustix::stdio::stdin();
        let wanted = if unwritten.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
        let mut ready = [
            PollFd::new(master, wanted),
            PollFd::new(ended, PollFlags::IN),
            PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN),
        ];
        let open = if stdin_open && unwritten.is_empty() { 3 } else { 2 };
        match poll(ready.get_mut(..open).unwrap_or_default(), Some(&RESIZED)) {
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled?,
        };
        let [output, end, keys] = ready.map(|ready| ready.revents());
        if output.contains(PollFlags::IN) {
            let read = match terminal.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                read => read?,
            };
            let read = bytes.get(..read).unwrap_or_default();
            kept.push(read);
            let mut stdout = io::stdout().lock();
            stdout.write_all(read)?;
            stdout.flush()?;
            after += if end.is_empty() { 0 } else { read.len() };
            if !end.is_empty() && (read.is_empty() || after >= MAX_AFTER) {
                return Ok(());
            }
        } else if !end.is_empty() || output.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Ok(());
        }
        // After the end they are the next prompt's.
        if end.is_empty() && !keys.is_empty() {
            match rustix::io::read(stdin, &mut bytes) {
                Ok(read @ 1..) => unwritten.extend(bytes.get(..read).unwrap_or_default()),
                Ok(_) | Err(_) => stdin_open = false,
            }
        }
        if !unwritten.is_empty() {
            match terminal.write(&unwritten) {
                Ok(written) => drop(unwritten.drain(..written)),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        let now = tcgetwinsize(rustix::stdio::stdout()).ok();
        if now.map(|now| (now.ws_row, now.ws_col)) != size.map(|size| (size.ws_row, size.ws_col)) {
            size = now;
            resize(master);
        }
    }
}

/// The beginning and the end of what a command wrote.
#[derive(Debug, Default)]
struct CapturedOutput {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: usize,
    last: Option<u8>,
}

impl CapturedOutput {
    fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(KEPT.saturating_sub(self.head.len())));
        self.head.extend(head);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(KEPT);
        self.left_out += over;
        self.tail.drain(..over);
        self.last = bytes.last().copied().or(self.last);
    }

    fn text(mut self) -> String {
        let mut text = String::from_utf8_lossy(&self.head).into_owned();
        if self.left_out > 0 {
            text.push_str(&format!("\n[{} bytes left out]\n", self.left_out));
        }
        text + &String::from_utf8_lossy(self.tail.make_contiguous())
    }
}

/// The text as a person saw it: without escape sequences, and with overwritten lines in their last form.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next() {
                Some('[') => while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
                Some(']' | 'P' | 'X' | '^' | '_') => loop {
                    match chars.next() {
                        None | Some('\u{7}') => break,
                        Some('\u{1b}') => {
                            chars.next();
                            break;
                        }
                        Some(_) => {}
                    }
                },
                Some('(' | ')') => drop(chars.next()),
                _ => {}
            },
            '\r' if matches!(chars.peek(), Some('\n' | '\r')) => {}
            '\r' => out.truncate(out.rfind('\n').map_or(0, |at| at + 1)),
            '\u{8}' if !out.ends_with('\n') => drop(out.pop()),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_wrote_is_text() {
        assert_eq!(plain("a\u{1b}[1;31mb\u{1b}[0m\r\nc\u{1b}]0;title\u{7}d\u{1b}(B"), "ab\ncd");
        assert_eq!(plain("10 %\r55 %\rdone\r\nnext\u{8}\u{8}xt\u{0}\n"), "done\nnext\n");
    }

    #[test]
    fn of_a_long_output_the_beginning_and_the_end_are_kept() {
        let mut kept = CapturedOutput::default();
        kept.push(b"first\n");
        (0..1000).for_each(|_| kept.push(&[b'x'; 99]));
        kept.push(b"\nlast\n");
        let text = kept.text();
        assert!(text.starts_with("first\nxxx") && text.ends_with("xxx\nlast\n"));
        assert!(text.contains(&format!("\n[{} bytes left out]\n", 6 + 99_000 + 6 - 2 * KEPT)));
        let mut short = CapturedOutput::default();
        short.push("grün\n".as_bytes());
        assert_eq!(short.text(), "grün\n");
    }
}
