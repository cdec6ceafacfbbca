//! The output of a command: streamed within a budget, its head and tail kept for the model, the whole in a blob.
//!
//! Offsets count bytes of the decoded text. Memory is bounded whatever comes.

use linger_protocol::event::OutputSegment;
use linger_protocol::message::ContentBlock;
use sha2::{Digest as _, Sha256};
use tempfile::TempPath;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

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
    /// Output that is streamed to `stream`.
    pub(crate) fn to(stream: mpsc::Sender<OutputDelta>, blobs: Blobs) -> Self {
        Self {
            decoder: Decoder::default(),
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
        String::from_utf8_lossy(end.get(from..).unwrap_or_default()).into_owned()
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
        let rest = self.decoder.finish();
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
    full: bool,
    hash: Sha256,
}

impl Begun {
    fn new(blobs: Blobs) -> std::io::Result<Self> {
        let (file, path) = blobs.begin()?.into_parts();
        Ok(Self { blobs, path, file: File::from_std(file), written: 0, full: false, hash: Sha256::new() })
    }

    async fn finish(mut self) -> std::io::Result<Held> {
        self.file.flush().await?;
        let Self { blobs, path, written, hash, .. } = self;
        let adopted = task::spawn_blocking(move || blobs.adopt(path, id_of(&hash.finalize()), written)).await;
        adopted.unwrap_or_else(|error| Err(std::io::Error::other(error)))
    }
}

impl Spill {
    async fn add(&mut self, new: &[u8]) {
        match self {
            Self::Memory { bytes, .. } => bytes.extend_from_slice(new),
            Self::File(begun) => {
                let room = usize::try_from(FILE_MAX - begun.written).unwrap_or(usize::MAX);
                let fits = new.get(..room).unwrap_or(new);
                begun.full |= fits.len() < new.len();
                begun.written += fits.len() as u64;
                begun.hash.update(fits);
                if let Err(error) = begun.file.write_all(fits).await {
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
            Self::File(begun) => (begun.full, begun.finish().await),
            Self::Failed(error) => (false, Err(error)),
            Self::Memory { .. } => return ("they were not stored".to_owned(), None),
        };
        match stored {
            Ok(held) => {
                let path = held.path().unwrap_or_default();
                let said = if full {
                    format!("the first {} MiB of the output are in {}", FILE_MAX >> 20, path.display())
                } else {
                    format!("the whole output is in {}", path.display())
                };
                (said, Some(held))
            }
            Err(error) => (format!("they could not be stored: {error}"), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn output(dir: &tempfile::TempDir) -> (Output, mpsc::Receiver<OutputDelta>) {
        let (output, receiver) = mpsc::channel(1024);
        (Output::to(output, Blobs::of(&dir.path().join("linger.db"))), receiver)
    }

    #[tokio::test]
    async fn memory_does_not_grow_with_the_output() {
        let dir = tempfile::tempdir().unwrap();
        let (mut output, _receiver) = output(&dir);
        for _ in 0..1000 {
            output.push(&[b'x'; 32 * 1024]).await;
        }
        let memory = output.head.capacity() + output.tail.capacity() + output.decoder.finish().capacity();
        assert!(memory < 256 * 1024, "{memory}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_build_stays_visible_and_a_flood_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let (mut output, mut receiver) = output(&dir);
        let piece = [b'x'; 16 * 1024];
        let mut seen = Vec::new();
        for pause in [0, 0, 0, 0, 0, 0, 100, 500, 500] {
            tokio::time::advance(Duration::from_millis(pause)).await;
            output.push(&piece).await;
            seen.push(receiver.try_recv().map_or(0, |delta| delta.text.len()));
        }
        // The burst, nothing, a part of 100 ms too small to be worth a row, then what half a second allows.
        assert_eq!(seen, [16384, 16384, 16384, 16384, 0, 0, 0, 16384, 16384]);
    }

    #[tokio::test]
    async fn the_file_is_capped_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::of(&dir.path().join("linger.db"));
        let mut spill = Spill::File(Box::new(Begun { written: FILE_MAX - 3, ..Begun::new(blobs).unwrap() }));
        spill.add(b"abcdef").await;
        spill.add(b"g").await;
        let (said, held) = spill.finish().await;
        let path = held.unwrap().path().unwrap();
        assert_eq!(said, format!("the first 1024 MiB of the output are in {}", path.display()));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "abc");
    }

    #[tokio::test]
    async fn an_output_that_is_given_up_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let (mut output, _receiver) = output(&dir);
        output.push(&[b'x'; 2 * WHOLE]).await;
        let begun = || walk(dir.path());
        assert_eq!(begun(), 1);
        drop(output);
        assert_eq!(begun(), 0);
    }

    /// How many files there are below `dir`.
    fn walk(dir: &std::path::Path) -> usize {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| if path.is_dir() { walk(&path) } else { 1 }).sum()
    }
}
