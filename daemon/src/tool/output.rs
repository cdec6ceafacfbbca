//! The output of a command: streamed within a budget, its head and tail kept for the model, the whole in a blob.
//!
//! Of a command's output the model reads and a terminal shows what [`Frames`] leaves of it; the blob has it as it came.
//! Offsets count bytes of that text. Memory is bounded whatever comes.

use linger_protocol::event::OutputSegment;
use linger_protocol::message::ContentBlock;
use sha2::{Digest as _, Sha256};
use tempfile::TempPath;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::frames::Frames;
use super::text::{self, Decoder};
use crate::store::blob::{Blobs, Held, id_of};
use crate::sys::task;

/// Bytes kept from the beginning and from the end: about 3,000 tokens each, enough for an error and its cause.
const HEAD: usize = 12 * 1024;
const TAIL: usize = 12 * 1024;

/// Output up to this length is kept whole.
const WHOLE: usize = HEAD + TAIL;

/// Bytes that may be streamed at once, and more of them each second: a build is seen whole, a flood is not stored.
const BURST: usize = 64 * 1024;
const BYTES_PER_S: usize = 32 * 1024;

/// A longer piece is streamed in part only if at least this much of it fits: each piece is a row in the store.
const PIECE_MIN: usize = 4 * 1024;

/// A shorter output takes about as much space as a report on it, so no blob keeps it.
const REPORT: usize = 4 * 1024;

/// The file with the whole output ends here; a flood must not fill the disk.
const FILE_MAX: u64 = 1024 * 1024 * 1024;

/// The file ends here too when its disk has less left, in bytes: many calls must not fill it either, and the database and the user's
/// work need some. It is looked at each time that so much was written.
const RESERVE: u64 = 256 * 1024 * 1024;
const LOOK_EACH: u64 = 16 * 1024 * 1024;

/// A piece of output while a call runs; a jump in `offset` marks what was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputDelta {
    /// Where the piece begins, in bytes of UTF-8.
    pub offset: u64,
    /// Decoded text; not empty.
    pub text: String,
}

/// Takes output as it comes.
pub(crate) struct Output {
    decoder: Decoder,
    /// Absent where the text is shown as it is.
    frames: Option<Frames>,
    stream: mpsc::Sender<OutputDelta>,
    budget: Budget,
    /// Bytes of text so far.
    total: u64,
    /// Bytes shown before `head` that are not kept.
    base: u64,
    /// All text as long as it is short, then its beginning.
    head: String,
    /// The latest text after `head`; twice `TAIL` at most, so that little is moved.
    tail: String,
    spill: Spill,
    /// The latest bytes, for who reads more of the end than a model is shown, and how many are kept.
    end: Option<(Vec<u8>, usize)>,
}

/// The part of an output that the model reads.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) content: Vec<ContentBlock>,
    pub(crate) segments: Vec<OutputSegment>,
    pub(crate) whole: Option<Held>,
}

impl Output {
    /// The output of a command, streamed to `stream`: without what it wrote over and without escape sequences.
    pub(crate) fn of_command(stream: mpsc::Sender<OutputDelta>, blobs: Blobs) -> Self {
        Self { frames: Some(Frames::default()), ..Self::to(stream, blobs) }
    }

    /// Text that is streamed to `stream` as it is.
    pub(crate) fn to(stream: mpsc::Sender<OutputDelta>, blobs: Blobs) -> Self {
        Self {
            decoder: Decoder::default(),
            frames: None,
            stream,
            budget: Budget { tokens: BURST as f64, at: Instant::now() },
            total: 0,
            base: 0,
            head: String::new(),
            tail: String::new(),
            spill: Spill::Memory { blobs, bytes: Vec::new() },
            end: None,
        }
    }

    /// Keeps up to `max` bytes of the end for [`Self::take_end`], and the whole output in a blob if it is longer than a report.
    pub(crate) fn keep_end(&mut self, max: usize) {
        self.end = Some((Vec::new(), max));
    }

    /// The bytes that [`Self::keep_end`] kept; they may begin within a line.
    pub(crate) fn take_end(&mut self) -> String {
        let (end, max) = self.end.as_mut().map_or((&[][..], 0), |(end, max)| (end.as_slice(), *max));
        let from = end.len().saturating_sub(max);
        let text = String::from_utf8_lossy(end.get(from..).unwrap_or_default());
        if self.frames.is_none() {
            return text.into_owned();
        }
        let mut frames = Frames::default();
        frames.feed(&text) + &frames.finish()
    }

    /// Takes the next bytes.
    pub(crate) async fn push(&mut self, bytes: &[u8]) {
        let text = self.decoder.feed(bytes);
        if let Some((end, max)) = &mut self.end {
            end.extend_from_slice(bytes);
            // Twice as much at most, so that little is moved.
            if end.len() > 2 * *max {
                end.drain(..end.len() - *max);
            }
        }
        self.spill.add(bytes).await;
        // What was written over and what is held are no part of the text, and must not stay in memory either.
        if self.spill.in_memory() > WHOLE {
            self.spill.open().await;
        }
        let text = match &mut self.frames {
            Some(frames) => frames.feed(&text),
            None => text,
        };
        self.add(text).await;
    }

    /// Shows the line that a command has begun and not ended, such as a question.
    pub(crate) async fn let_out(&mut self) {
        let text = self.frames.as_mut().map(Frames::let_out).unwrap_or_default();
        self.add(text).await;
    }

    /// Shows progress: text that comes before the output and is no part of it.
    pub(crate) async fn aside(&mut self, text: &str) {
        if self.total == self.base {
            self.show(text).await;
            self.base = self.total;
        }
    }

    async fn add(&mut self, text: String) {
        self.keep(&text);
        if self.total + text.len() as u64 > self.base + WHOLE as u64 {
            self.spill.open().await;
        }
        self.show(&text).await;
    }

    async fn show(&mut self, text: &str) {
        let offset = self.total;
        self.total += text.len() as u64;
        let streamed = self.budget.take(text);
        if !streamed.is_empty() {
            // When nobody takes it any more, the call is about to be dropped.
            let _ = self.stream.send(OutputDelta { offset, text: streamed.to_owned() }).await;
        }
    }

    fn keep(&mut self, text: &str) {
        if self.tail.is_empty() {
            self.head.push_str(text);
            if self.head.len() > WHOLE {
                let cut = text::head(&self.head, HEAD).len();
                self.tail = self.head.split_off(cut);
            }
        } else {
            self.tail.push_str(text);
        }
        if self.tail.len() > 2 * TAIL {
            let cut = text::floor(&self.tail, self.tail.len() - TAIL);
            self.tail.drain(..cut);
        }
    }

    /// Ends the output: the blocks for the model, and the blob with the whole if there is one.
    pub(crate) async fn finish(mut self) -> Kept {
        let mut rest = self.decoder.finish();
        let mut overwritten = 0;
        if let Some(frames) = &mut self.frames {
            rest = frames.feed(&rest) + &frames.finish();
            overwritten = frames.overwritten();
        }
        self.add(rest).await;
        let mut kept = Kept::default();
        kept.add(&self.head, self.base);
        if !self.tail.is_empty() {
            let tail = text::tail(&self.tail, TAIL);
            let offset = self.total - tail.len() as u64;
            let (said, whole) = self.spill.finish().await;
            let left_out = offset - self.base - self.head.len() as u64;
            kept.content.push(ContentBlock::text(format!("[… {left_out} bytes left out; {said}]")));
            kept.add(tail, offset);
            kept.whole = whole;
        } else if overwritten > REPORT as u64 {
            self.spill.open().await;
            let (said, whole) = self.spill.finish().await;
            kept.content
                .push(ContentBlock::text(format!("[{overwritten} bytes that were written over are left out; {said}]")));
            kept.whole = whole;
        } else if self.end.is_some() && self.head.len() > REPORT {
            self.spill.open().await;
            let (said, whole) = self.spill.finish().await;
            kept.content.push(ContentBlock::text(format!("[{said}]")));
            kept.whole = whole;
        }
        if kept.content.is_empty() {
            let what = if self.total == self.base { "[no output]" } else { "[nothing but white space]" };
            kept.content.push(ContentBlock::text(what));
        }
        kept
    }
}

impl Kept {
    /// Adds a block of output; providers refuse one of white space alone.
    fn add(&mut self, text: &str, offset: u64) {
        if !text.trim().is_empty() {
            self.segments.push(OutputSegment { block: self.content.len() as u32, offset });
            self.content.push(ContentBlock::text(text));
        }
    }
}

/// The bytes that may be streamed: a bucket that fills with time and is only updated when output arrives.
struct Budget {
    tokens: f64,
    at: Instant,
}

impl Budget {
    /// As much of the beginning of `text` as may be streamed now.
    fn take<'a>(&mut self, text: &'a str) -> &'a str {
        let now = Instant::now();
        let filled = self.tokens + (now - self.at).as_secs_f64() * BYTES_PER_S as f64;
        self.at = now;
        self.tokens = filled.min(BURST as f64);
        let available = self.tokens as usize;
        if available < text.len().min(PIECE_MIN) {
            return "";
        }
        let taken = text.get(..text::floor(text, available)).unwrap_or_default();
        self.tokens -= taken.len() as f64;
        taken
    }
}

/// The whole output as it came, in memory until it is known to be long. The file is gone unless it becomes a blob.
enum Spill {
    Memory { blobs: Blobs, bytes: Vec<u8> },
    File(Box<Begun>),
    Failed(std::io::Error),
}

struct Begun {
    blobs: Blobs,
    path: TempPath,
    file: File,
    written: u64,
    /// The reason why the file ended before the output did.
    full: Option<Full>,
    /// When to look at the disk again, in bytes written.
    look_at: u64,
    hash: Sha256,
}

/// Why a file has not the whole output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    File,
    Disk,
}

/// Whether the disk of this file has less left than is to be kept; one that does not tell has not.
fn is_low(path: &std::path::Path) -> bool {
    rustix::fs::statvfs(path)
        .is_ok_and(|disk| disk.f_blocks > 0 && disk.f_bavail.saturating_mul(disk.f_frsize) < RESERVE)
}

impl Begun {
    fn new(blobs: Blobs) -> std::io::Result<Self> {
        let (file, path) = blobs.begin()?.into_parts();
        Ok(Self { blobs, path, file: File::from_std(file), written: 0, full: None, look_at: 0, hash: Sha256::new() })
    }

    /// Writes what fits.
    async fn add(&mut self, new: &[u8], is_low: impl Fn(&std::path::Path) -> bool) -> std::io::Result<()> {
        if self.written >= self.look_at && self.full.is_none() {
            self.look_at = self.written + LOOK_EACH;
            self.full = is_low(&self.path).then_some(Full::Disk);
        }
        if self.full.is_some() {
            return Ok(());
        }
        let room = usize::try_from(FILE_MAX - self.written).unwrap_or(usize::MAX);
        let fits = new.get(..room).unwrap_or(new);
        self.full = (fits.len() < new.len()).then_some(Full::File);
        self.written += fits.len() as u64;
        self.hash.update(fits);
        self.file.write_all(fits).await
    }

    async fn finish(mut self) -> std::io::Result<Held> {
        self.file.flush().await?;
        let Self { blobs, path, written, hash, .. } = self;
        let adopted = task::spawn_blocking(move || blobs.adopt(path, id_of(&hash.finalize()), written)).await;
        adopted.unwrap_or_else(|error| Err(std::io::Error::other(error)))
    }
}

impl Spill {
    /// Bytes that are in memory.
    fn in_memory(&self) -> usize {
        match self {
            Self::Memory { bytes, .. } => bytes.len(),
            Self::File(_) | Self::Failed(_) => 0,
        }
    }

    async fn add(&mut self, new: &[u8]) {
        match self {
            Self::Memory { bytes, .. } => bytes.extend_from_slice(new),
            Self::File(begun) => {
                if let Err(error) = begun.add(new, is_low).await {
                    *self = Self::Failed(error);
                }
            }
            Self::Failed(_) => {}
        }
    }

    /// Makes the file and writes what came so far, once.
    async fn open(&mut self) {
        if let Self::Memory { blobs, bytes } = self {
            let (blobs, bytes) = (blobs.clone(), std::mem::take(bytes));
            *self = Begun::new(blobs).map_or_else(Self::Failed, |begun| Self::File(Box::new(begun)));
            self.add(&bytes).await;
        }
    }

    /// Where the output is, in words, and the blob.
    async fn finish(self) -> (String, Option<Held>) {
        let (full, stored) = match self {
            Self::File(begun) if begun.full == Some(Full::Disk) && begun.written == 0 => {
                (None, Err(std::io::Error::other(format!("less than {} MiB are free on the disk", RESERVE >> 20))))
            }
            Self::File(begun) => (begun.full.map(|full| (full, begun.written)), begun.finish().await),
            Self::Failed(error) => (None, Err(error)),
            Self::Memory { .. } => return ("they were not stored".to_owned(), None),
        };
        match stored {
            Ok(held) => {
                let path = held.path().unwrap_or_default();
                let shown = path.display();
                let said = match full {
                    None => format!("the whole output is in {shown}"),
                    Some((Full::File, _)) => format!("the first {} MiB of the output are in {shown}", FILE_MAX >> 20),
                    Some((Full::Disk, written)) => format!(
                        "the first {written} bytes of the output are in {shown}; less than {} MiB are free on that disk",
                        RESERVE >> 20
                    ),
                };
                (said, Some(held))
            }
            Err(error) => (format!("they could not be stored: {error}"), None),
        }
    }
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
