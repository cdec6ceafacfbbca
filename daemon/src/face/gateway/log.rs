//! The access log: a line a request, with its path and never with what could be a secret (no query, header or body). What the
//! gateway cannot do has a line there too: in the background it has no other place to say so.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::sys::clock;

/// The size at which the file is renamed to `.1`, in bytes: some 40,000 requests. At most two files exist.
const MAX_FILE: u64 = 4 << 20;

/// The longest path that is written, in characters.
const MAX_PATH: usize = 200;

/// The longest text of a warning, in characters: an error names a path, which may be long.
const MAX_TEXT: usize = 1000;

/// The log file; each line opens it, so that it can be moved away.
pub(super) struct AccessLog(PathBuf);

/// A line of the access log.
pub(super) struct AccessLine<'a> {
    pub(super) method: &'a str,
    /// Without its query.
    pub(super) path: &'a str,
    pub(super) status: u16,
    pub(super) took: Duration,
    /// The process at the other end, once it was looked for.
    pub(super) pid: Option<u32>,
}

impl AccessLog {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Appends a line. A log that cannot be written stops no request.
    pub(super) fn write(&self, line: &AccessLine<'_>) {
        let _unwritten = self.append(&text(line, clock::now()));
    }

    /// Appends what the gateway cannot do.
    pub(super) fn warn(&self, text: &str) {
        let _unwritten = self.append(&warning(text, clock::now()));
    }

    fn append(&self, line: &str) -> std::io::Result<()> {
        if std::fs::metadata(&self.0).is_ok_and(|file| file.len() > MAX_FILE) {
            std::fs::rename(&self.0, self.0.with_extension("log.1"))?;
        }
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.0)?;
        file.write_all(line.as_bytes())
    }
}

fn text(line: &AccessLine<'_>, now: u64) -> String {
    let AccessLine { method, path, status, took, pid } = line;
    let path: String = path.chars().flat_map(char::escape_default).take(MAX_PATH).collect();
    let pid = pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
    let ms = took.as_millis();
    format!("{} {method} {path} {status} {ms}ms pid={pid}\n", stamp(now))
}

fn warning(text: &str, now: u64) -> String {
    let text: String = text.chars().flat_map(char::escape_default).take(MAX_TEXT).collect();
    format!("{} WARN {text}\n", stamp(now))
}

/// The time `now`, in Unix milliseconds, to the second in UTC.
fn stamp(now: u64) -> String {
    let seconds = now % clock::DAY_MS / 1000;
    let (day, hour, minute, second) =
        (clock::date(now / clock::DAY_MS), seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{day}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_whatever_the_path_is() {
        let took = Duration::from_millis(7);
        let line = AccessLine { method: "GET", path: "/a\n\u{1b}[2J", status: 401, took, pid: Some(9) };
        assert_eq!(text(&line, 90_061_000), "1970-01-02T01:01:01Z GET /a\\n\\u{1b}[2J 401 7ms pid=9\n");
        let long = "x".repeat(9999);
        let line = AccessLine { path: &long, pid: None, ..line };
        assert!(text(&line, 0).len() < 300 && text(&line, 0).ends_with("pid=-\n"));
        assert_eq!(warning("a\nb", 90_061_000), "1970-01-02T01:01:01Z WARN a\\nb\n");
    }
}
