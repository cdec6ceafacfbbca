//! A server's output, line by line, and the latest lines that it logged.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linger_protocol::mcp::LogLine;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

use crate::diagnostics::secret::Redactor;
use crate::sys::clock;
use crate::tool::text;

/// The longest message of a server, in bytes: eight images of the largest size fit in three.
pub(crate) const MAX_MESSAGE: usize = 16 << 20;

/// Lines of a server's log that are kept, and the bytes of each, at most.
const LOG_LINES: usize = 500;
const LOG_LINE: usize = 1 << 10;

/// Warnings of one connection in the daemon's log, at most: a server must not fill it.
const MAX_LOGGED: u32 = 50;

/// Lines in the error of a server that ended, at most.
const TAIL_LINES: usize = 3;

/// The next line without its end; `None` at the end. Fails if it is longer than `max`.
pub(crate) async fn next_line(input: &mut (impl AsyncBufRead + Unpin), max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let buffer = input.fill_buf().await?;
        if buffer.is_empty() {
            return Ok(Some(line).filter(|line| !line.is_empty()));
        }
        let (piece, ended) = match memchr::memchr(b'\n', buffer) {
            Some(end) => (buffer.get(..end).unwrap_or_default(), true),
            None => (buffer, false),
        };
        if line.len() + piece.len() > max {
            return Err(io::Error::other(format!("it sent a message of more than {max} bytes")));
        }
        line.extend_from_slice(piece);
        let taken = piece.len() + usize::from(ended);
        input.consume(taken);
        if ended {
            return Ok(Some(line));
        }
    }
}

/// The latest lines of a server; all clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    /// The server's name.
    pub(super) server: Arc<str>,
    lines: Arc<Mutex<VecDeque<LogLine>>>,
    redactor: Redactor,
}

impl Log {
    /// The log of this server, without lines; it holds none of these secrets.
    pub(super) fn new(server: &str, redactor: Redactor) -> Self {
        Self { server: server.into(), redactor, ..Self::default() }
    }

    /// Adds what a server says that it logs; the worst is in the daemon's log too, as far as a connection may fill that.
    pub(super) fn said(&self, level: &str, data: &str, logged: &AtomicU32) {
        self.add(&format!("{level}: {data}"));
        let (server, data) = (&*self.server, text::one_line(text::head(data, LOG_LINE)));
        let is_bad = matches!(level, "warning" | "error" | "critical" | "alert" | "emergency");
        if is_bad && logged.fetch_add(1, Ordering::Relaxed) < MAX_LOGGED {
            tracing::warn!(target: "mcp", server, level, data, "a server logged")
        } else {
            tracing::debug!(target: "mcp", server, level, data, "a server logged")
        }
    }

    /// Adds a line; the oldest gives way.
    pub(super) fn add(&self, line: &str) {
        let line = self.redactor.redact(text::head(line.trim_end(), LOG_LINE));
        let text = text::one_line(&line);
        if text.is_empty() {
            return;
        }
        let mut lines = self.lines();
        lines.push_back(LogLine { at: clock::now(), text });
        if lines.len() > LOG_LINES {
            lines.pop_front();
        }
    }

    /// All of them, the oldest first.
    pub(super) fn all(&self) -> Vec<LogLine> {
        self.lines().iter().cloned().collect()
    }

    /// The last few since `at`, for an error: `; it wrote: …`. Where one before them names the error, such as that of a trace, it comes
    /// first.
    pub(super) fn tail(&self, at: u64) -> String {
        let lines = self.lines();
        let since: Vec<&str> = lines.iter().filter(|line| line.at >= at).map(|line| line.text.as_str()).collect();
        let last = since.get(since.len().saturating_sub(TAIL_LINES)..).unwrap_or_default();
        let before = since.get(..since.len() - last.len()).unwrap_or_default();
        let has_reason = last.iter().any(|line| names_error(line));
        let reason = before.iter().rev().find(|line| names_error(line)).filter(|_| !has_reason);
        let told: Vec<&str> = reason.into_iter().chain(last).copied().collect();
        if told.is_empty() { String::new() } else { format!("; it wrote: {}", told.join(" | ")) }
    }

    /// As [`Self::tail`], for a server that has not answered, and a hint if it speaks as language servers do.
    pub(super) fn wrote(&self, at: u64) -> String {
        let is_header = |line: &LogLine| {
            let text = line.text.to_ascii_lowercase();
            line.at >= at && text.contains("content-length:")
        };
        let has_headers = self.lines().iter().any(is_header);
        let hint = "; it writes `Content-Length:` headers, and MCP has one message a line instead";
        format!("{}{}", self.tail(at), if has_headers { hint } else { "" })
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<LogLine>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a line says what went wrong, and not only where: `TypeError: …`, `Error: …`, `error[E0308]: …`.
fn names_error(line: &str) -> bool {
    line.match_indices("rror").any(|(at, word)| {
        let rest = line.get(at + word.len()..).unwrap_or_default();
        let is_word = line.get(..at).is_some_and(|before| before.ends_with(['E', 'e']));
        is_word && (rest.starts_with(": ") || rest.starts_with('[') || rest.starts_with(" ["))
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    #[tokio::test]
    async fn lines_are_found_however_they_arrive_and_are_bounded() {
        for capacity in [1, 3, 64] {
            let mut input = BufReader::with_capacity(capacity, &b"one\n\ntwo\nthree"[..]);
            let mut lines = Vec::new();
            while let Some(line) = next_line(&mut input, 5).await.unwrap() {
                lines.push(String::from_utf8(line).unwrap());
            }
            assert_eq!(lines, ["one", "", "two", "three"]);
            let mut input = BufReader::with_capacity(capacity, &b"one\nsixsix\n"[..]);
            next_line(&mut input, 5).await.unwrap();
            assert!(next_line(&mut input, 5).await.is_err());
        }
    }

    #[test]
    fn a_log_keeps_the_latest_lines() {
        let log = Log::default();
        (0..LOG_LINES + 5).for_each(|n| log.add(&format!("line {n}\u{1b}\n")));
        let lines = log.all();
        assert_eq!((lines.len(), lines[0].text.as_str()), (LOG_LINES, "line 5\\u{1b}"));
        assert_eq!(log.tail(0), "; it wrote: line 502\\u{1b} | line 503\\u{1b} | line 504\\u{1b}");
        assert_eq!(log.tail(u64::MAX), "");
    }

    #[test]
    fn the_reason_of_a_trace_is_told_although_it_is_not_its_end() {
        let check = |lines: &[&str], expect: &str| {
            let log = Log::default();
            lines.iter().for_each(|line| log.add(line));
            assert_eq!(log.tail(0), format!("; it wrote: {expect}"), "{lines:?}");
        };
        let node = ["throw e;", "TypeError [ERR_X]: no such thing", "    at a (b.js:1)", "  ]", "}", "Node.js v22.1.0"];
        check(&node, "TypeError [ERR_X]: no such thing |   ] | } | Node.js v22.1.0");
        check(&["Traceback", "  File x", "  y()", "KeyError: 'z'"], "  File x |   y() | KeyError: 'z'");
        check(&["an error occurred", "a", "b", "c"], "a | b | c");
        let log = Log::default();
        log.add("Content-Length: 71\r");
        assert!(log.wrote(0).contains("one message a line"), "{}", log.wrote(0));
    }
}
