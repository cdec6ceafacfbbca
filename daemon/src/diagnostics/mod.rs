//! The log file: one line an event, made for `grep`.
//!
//! `2026-11-21T10:00:00.123Z INFO  [turn] started session=…`: the tag is the last part of the event's target, its module. Control
//! characters are escaped, so that an event is one line and safe on a terminal; secrets are redacted. Each line is one blocking
//! write to a local file, a few microseconds, which is cheaper than a thread. Other crates log from `warn` up only: below that
//! they are verbose and may log secrets.
//!
//! If the file cannot be written, the daemon works without it and reports that ([`write_error`]); each line tries again. Anything
//! at its path that is not a file is moved to a dated name.

pub mod nearest;
pub mod secret;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::OFlags;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::diagnostics::secret::Redactor;

/// The size, in bytes, at which the file is rotated to `.1`: some 60,000 lines, weeks of work at `info`. At most two files exist.
const MAX_FILE: u64 = 8 << 20;

/// The longest line, in bytes: enough for a readable command, too little for a file's content.
const MAX_LINE: usize = 8 << 10;

/// Why the log cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `LINGER_LOG` is not a level.
    #[error("LINGER_LOG is '{0}': use one of error, warn, info, debug, trace")]
    Level(String),
    /// The process already has a log.
    #[error("the log is already set up")]
    Twice,
}

/// Sets up the log of this process; `level` is the value of `LINGER_LOG`, `info` if absent.
pub fn start(path: &Path, level: Option<&str>, redactor: Redactor) -> Result<(), LogError> {
    let subscriber = subscriber(path, level, redactor)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)
}

/// The error of opening the log at `path` for writing, if any. Blocks on the disk.
pub fn write_error(path: &Path) -> Option<io::Error> {
    open(OpenOptions::new().append(true).create(true).mode(0o600), path).err()
}

/// Appends one line without setting up a log: for a process that rarely logs.
pub fn append(path: &Path, level: &str, flow: &str, text: &str) -> io::Result<()> {
    let mut line = format!("{} {level:<5} [{flow}] ", timestamp(crate::sys::clock::now()));
    write_escaped(&mut line, text).map_err(io::Error::other)?;
    line.push('\n');
    LogFile::at(path).write_all(line.as_bytes())
}

fn subscriber(path: &Path, level: Option<&str>, redactor: Redactor) -> Result<impl Subscriber + use<>, LogError> {
    let level = parse_level(level)?;
    let others = filter_fn(|metadata| is_ours(metadata) || *metadata.level() <= Level::WARN);
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .event_format(RedactedFormat(redactor))
        .with_writer(Mutex::new(LogFile::at(path)))
        .with_filter(level.and(others));
    Ok(tracing_subscriber::registry().with(layer))
}

fn parse_level(level: Option<&str>) -> Result<LevelFilter, LogError> {
    match level.filter(|level| !level.is_empty()).unwrap_or("info") {
        "error" => Ok(LevelFilter::ERROR),
        "warn" => Ok(LevelFilter::WARN),
        "info" => Ok(LevelFilter::INFO),
        "debug" => Ok(LevelFilter::DEBUG),
        "trace" => Ok(LevelFilter::TRACE),
        other => Err(LogError::Level(other.escape_debug().to_string())),
    }
}

fn is_ours(metadata: &Metadata<'_>) -> bool {
    let ours = |path: &str| matches!(path.split("::").next(), Some("lingerd" | "linger_protocol"));
    // A target without `::` is a flow's name.
    let flow = !metadata.target().contains("::") && metadata.module_path().is_some_and(ours);
    flow || ours(metadata.target())
}

/// Formats an event as a line.
struct RedactedFormat(Redactor);

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N>
    for RedactedFormat
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        let metadata = event.metadata();
        let flow = metadata.target().rsplit("::").next().unwrap_or_default();
        write!(out, "{} {:<5} [{flow}] ", timestamp(crate::sys::clock::now()), metadata.level())?;
        write_escaped(&mut out, &self.0.redact(&text))?;
        writeln!(out)
    }
}

/// Writes `text` as one line of at most [`MAX_LINE`] bytes, with control and invisible characters escaped.
fn write_escaped(out: &mut impl fmt::Write, text: &str) -> fmt::Result {
    for (at, c) in text.char_indices() {
        if at >= MAX_LINE {
            return write!(out, "… ({} bytes more)", text.len() - at);
        }
        match c {
            '\n' | '\r' | '\t' => write!(out, "{}", c.escape_default())?,
            _ if c.is_control() || is_invisible(c) => write!(out, "{}", c.escape_unicode())?,
            _ => out.write_char(c)?,
        }
    }
    Ok(())
}

/// Invisible characters that change how a line looks: directions, joiners, tags.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}')
}

/// Unix milliseconds as RFC 3339; civil-from-days after H. Hinnant, "chrono-compatible low-level date algorithms".
fn timestamp(ms: u64) -> String {
    let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second, ms) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The file, rotated when it is full.
struct LogFile {
    path: PathBuf,
    /// Absent until it can be opened.
    file: Option<File>,
    length: u64,
    /// Device and inode, to notice a file that was deleted or moved.
    id: (u64, u64),
}

impl LogFile {
    /// The log at `path`; opened with the first line.
    fn at(path: &Path) -> Self {
        Self { path: path.to_path_buf(), file: None, length: 0, id: (0, 0) }
    }

    /// The open file; opens or rotates it first if needed.
    fn file(&mut self) -> io::Result<&mut File> {
        if std::fs::symlink_metadata(&self.path).map(|meta| (meta.dev(), meta.ino())).ok() != Some(self.id) {
            self.file = None;
        }
        if self.file.is_none() || self.length > MAX_FILE {
            match ready(&self.path) {
                Ok((file, meta)) => {
                    (self.file, self.length, self.id) = (Some(file), meta.len(), (meta.dev(), meta.ino()));
                }
                Err(error) if self.file.is_none() => return Err(error),
                // If rotation fails, keep the old file: a long log is better than none.
                Err(_) => self.length = 0,
            }
        }
        self.file.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let written = self.file()?.write(line)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the file at `path` after rotating a full one and moving away anything that is not a file.
fn ready(path: &Path) -> io::Result<(File, std::fs::Metadata)> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if !meta.is_file() => std::fs::rename(path, dated(path))?,
        Ok(meta) if meta.len() > MAX_FILE => std::fs::rename(path, aside(path))?,
        _ => {}
    }
    // An earlier build, or a copy, may have left it readable for others.
    for old in [path.to_path_buf(), aside(path)] {
        let open = std::fs::symlink_metadata(&old).is_ok_and(|meta| meta.is_file() && meta.mode() & 0o077 != 0);
        if open {
            std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o600))?;
        }
    }
    let file = open(OpenOptions::new().append(true).create(true).mode(0o600), path)?;
    let meta = file.metadata()?;
    Ok((file, meta))
}

/// Opens the path; fails if it is not a regular file.
fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(flags.bits() as i32).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("is not a file")) }
}

/// The new name of something that is not a log file.
fn dated(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    // The random word keeps two of one moment apart.
    let when = timestamp(crate::sys::clock::now()).replace(':', "");
    name.push(format!(".aside-{when}-{}", crate::sys::clock::random_word(4)));
    PathBuf::from(name)
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::secret::Secret;

    /// What is in the log after `act`, without the time.
    fn logged(level: Option<&str>, act: impl FnOnce()) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lingerd.log");
        let redactor = Redactor::default();
        redactor.add(&Secret::new("sk-hunter2"));
        tracing::subscriber::with_default(subscriber(&path, level, redactor).unwrap(), act);
        let Ok(text) = std::fs::read_to_string(&path) else { return String::new() };
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        text.lines().map(|line| line.get(25..).unwrap().to_owned() + "\n").collect()
    }

    #[test]
    fn a_line_has_level_flow_text_and_fields() {
        let text = logged(None, || {
            tracing::info!(target: "lingerd::session::turn", session = "s1", steps = 3, "started");
            tracing::error!(target: "lingerd::rpc", method = "a b");
        });
        assert_eq!(text, "INFO  [turn] started session=\"s1\" steps=3\nERROR [rpc] method=\"a b\"\n");
    }

    #[test]
    fn neither_secrets_nor_control_characters_reach_the_file() {
        let text = logged(None, || {
            tracing::info!(key = %"Bearer sk-hunter2", "sk-hunter2\n\x1b[31mred\r\u{202e}\u{9b}é");
        });
        assert_eq!(text, "INFO  [tests] <redacted>\\n\\x1b[31mred\\r\\u{202e}\\u{9b}é key=Bearer <redacted>\n");
    }

    #[test]
    fn the_level_and_the_crate_decide_what_is_heard() {
        let all = || {
            tracing::debug!("ours");
            tracing::info!(target: "hyper::client", "theirs");
            tracing::warn!(target: "hyper::client", "their trouble");
        };
        assert_eq!(logged(Some("debug"), all), "DEBUG [tests] ours\nWARN  [client] their trouble\n");
        assert_eq!(logged(Some("error"), all), "");
        let error = parse_level(Some("loud")).unwrap_err().to_string();
        assert_eq!(error, "LINGER_LOG is 'loud': use one of error, warn, info, debug, trace");
    }

    #[test]
    fn a_long_line_is_cut_and_says_so() {
        let text = logged(None, || tracing::info!("{}", "x".repeat(MAX_LINE + 5)));
        assert!(text.ends_with("x… (5 bytes more)\n"));
    }

    #[test]
    fn a_full_file_is_put_aside_at_the_start_and_while_running() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let full = |byte: u8| vec![byte; MAX_FILE as usize + 1];
        std::fs::write(&path, full(b'a')).unwrap();
        let mut file = LogFile::at(&path);
        file.write_all(&full(b'b')).unwrap();
        assert_eq!(std::fs::read(aside(&path)).unwrap(), full(b'a'));
        file.write_all(b"c").unwrap();
        assert_eq!(std::fs::read(aside(&path)).unwrap(), full(b'b'));
        assert_eq!(std::fs::read(&path).unwrap(), b"c");
        LogFile::at(&path).write_all(b"d").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"cd", "a restart goes on in the same file");
    }

    #[test]
    fn a_log_that_was_deleted_or_moved_away_is_there_again_with_the_next_line() {
        let dir = tempfile::tempdir().unwrap();
        let (path, moved) = (dir.path().join("log"), dir.path().join("moved"));
        let mut file = LogFile::at(&path);
        file.write_all(b"a").unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(b"b").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"b");
        std::fs::rename(&path, &moved).unwrap();
        file.write_all(b"c").unwrap();
        file.write_all(b"d").unwrap();
        assert_eq!([path, moved].map(|path| std::fs::read(path).unwrap()), [b"cd".to_vec(), b"b".to_vec()]);
    }

    #[test]
    fn a_log_that_others_could_read_is_the_users_alone_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        for path in [&path, &aside(&path)] {
            std::fs::write(path, "old").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o664)).unwrap();
        }
        LogFile::at(&path).write_all(b"new").unwrap();
        for path in [&path, &aside(&path)] {
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn what_is_no_file_is_set_aside_and_nothing_is_written_through_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let victim = dir.path().join("victim");
        let link = || std::os::unix::fs::symlink(&victim, &path).unwrap();
        let directory = || std::fs::create_dir(&path).unwrap();
        let pipe = || rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        for make in [&link as &dyn Fn(), &directory, &pipe] {
            make();
            assert!(write_error(&path).is_some());
            LogFile::at(&path).write_all(b"line").unwrap();
            assert!(write_error(&path).is_none());
            assert_eq!(std::fs::read(&path).unwrap(), b"line");
            std::fs::remove_file(&path).unwrap();
        }
        let mut left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left.len(), 3, "{left:?}");
        assert!(left.iter().all(|name| name.to_string_lossy().starts_with("log.aside-2")), "{left:?}");
    }

    #[test]
    fn a_log_that_cannot_be_written_is_tried_again_with_each_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("absent/log");
        let mut log = LogFile::at(&path);
        assert!(log.write_all(b"lost").is_err());
        std::fs::create_dir(dir.path().join("absent")).unwrap();
        log.write_all(b"kept").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
    }

    #[test]
    fn times_are_written_as_rfc_3339() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_255_200_123, "2026-11-21T10:00:00.123Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
        ] {
            assert_eq!(timestamp(ms), expected);
        }
    }
}
