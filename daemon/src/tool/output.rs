//! The output of a command: streamed within a budget, its head and tail kept for the model, the whole in a file.
//!
//! Offsets count bytes of the decoded text. Memory is bounded whatever comes.

use std::path::PathBuf;

use linger_protocol::event::OutputSegment;
use linger_protocol::message::ContentBlock;
use linger_protocol::place::private_directory;
use sha2::{Digest as _, Sha256};
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::text::{self, Decoder};
use super::{Context, OutputDelta};

/// What is kept of the beginning and of the end: about 3,000 tokens each, enough for an error and what led to it.
const HEAD: usize = 12 * 1024;
const TAIL: usize = 12 * 1024;

/// Output up to this length is kept whole.
const WHOLE: usize = HEAD + TAIL;

/// What is streamed at once, and how much more each second: a build is seen whole, a flood is not stored.
const BURST: usize = 64 * 1024;
const BYTES_PER_S: usize = 32 * 1024;

/// A longer piece is streamed in part only if at least this much of it fits: each piece is a row in the store.
const PIECE_MIN: usize = 4 * 1024;

/// The file with the whole output ends here; a flood must not fill the disk.
const FILE_MAX: u64 = 1024 * 1024 * 1024;

/// Takes output as it comes.
pub(super) struct Output {
    decoder: Decoder,
    stream: mpsc::Sender<OutputDelta>,
    budget: Budget,
    /// Bytes of text so far.
    total: u64,
    /// All text as long as it is short, then its beginning.
    head: String,
    /// The latest text after `head`; twice `TAIL` at most, so that little is moved.
    tail: String,
    spill: Spill,
}

/// What is left of it for the model.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) content: Vec<ContentBlock>,
    pub(super) segments: Vec<OutputSegment>,
    pub(super) file: Option<(PathBuf, String)>,
}

impl Output {
    pub(super) fn new(context: Context) -> Self {
        Self {
            decoder: Decoder::default(),
            stream: context.output,
            budget: Budget { tokens: BURST as f64, at: Instant::now() },
            total: 0,
            head: String::new(),
            tail: String::new(),
            spill: Spill::Memory { path: context.spill, bytes: Vec::new() },
        }
    }

    /// Takes the next bytes.
    pub(super) async fn push(&mut self, bytes: &[u8]) {
        let text = self.decoder.feed(bytes);
        self.spill.add(bytes).await;
        self.add(text).await;
    }

    async fn add(&mut self, text: String) {
        let offset = self.total;
        self.total += text.len() as u64;
        self.keep(&text);
        if self.total > WHOLE as u64 {
            self.spill.open().await;
        }
        let streamed = self.budget.take(&text);
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

    /// Ends the output.
    pub(super) async fn finish(mut self) -> Kept {
        let rest = self.decoder.finish();
        self.add(rest).await;
        let mut kept = Kept::default();
        kept.add(&self.head, 0);
        if !self.tail.is_empty() {
            let tail = text::tail(&self.tail, TAIL);
            let offset = self.total - tail.len() as u64;
            let (whole, file) = self.spill.finish().await;
            let left_out = offset - self.head.len() as u64;
            kept.content.push(ContentBlock::text(format!("[… {left_out} bytes left out; {whole}]")));
            kept.add(tail, offset);
            kept.file = file;
        }
        if kept.content.is_empty() {
            let what = if self.total == 0 { "[no output]" } else { "[nothing but white space]" };
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

/// How much may be streamed: a bucket that fills with time, looked at only when something comes.
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

/// What names a whole output: `sha256:` and its hash.
pub(super) fn blob_name(hash: &[u8]) -> String {
    hash.iter().fold("sha256:".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

/// The whole output as it came, in memory until it is known to be long.
enum Spill {
    Memory { path: PathBuf, bytes: Vec<u8> },
    File { path: PathBuf, file: File, written: u64, full: bool, hash: Sha256 },
    Failed(std::io::Error),
}

impl Spill {
    async fn add(&mut self, new: &[u8]) {
        match self {
            Self::Memory { bytes, .. } => bytes.extend_from_slice(new),
            Self::File { file, written, full, hash, .. } => {
                let room = usize::try_from(FILE_MAX - *written).unwrap_or(usize::MAX);
                let fits = new.get(..room).unwrap_or(new);
                *full |= fits.len() < new.len();
                *written += fits.len() as u64;
                hash.update(fits);
                if let Err(error) = file.write_all(fits).await {
                    *self = Self::Failed(error);
                }
            }
            Self::Failed(_) => {}
        }
    }

    /// Makes the file and writes what came so far, once.
    async fn open(&mut self) {
        if let Self::Memory { path, bytes } = self {
            let bytes = std::mem::take(bytes);
            let made = path.parent().map_or(Ok(()), private_directory);
            let opened = match made {
                Ok(()) => OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).await,
                Err(error) => Err(std::io::Error::other(error)),
            };
            *self = match opened {
                Ok(file) => {
                    Self::File { path: std::mem::take(path), file, written: 0, full: false, hash: Sha256::new() }
                }
                Err(error) => Self::Failed(error),
            };
            self.add(&bytes).await;
        }
    }

    /// Where the output is, in words, and the file with the hash of what is in it.
    async fn finish(mut self) -> (String, Option<(PathBuf, String)>) {
        if let Self::File { file, .. } = &mut self
            && let Err(error) = file.flush().await
        {
            self = Self::Failed(error);
        }
        match self {
            Self::File { path, full: false, hash, .. } => {
                (format!("the whole output is in {}", path.display()), Some((path, blob_name(&hash.finalize()))))
            }
            Self::File { path, full: true, hash, .. } => {
                let said = format!("the first {} MiB of the output are in {}", FILE_MAX >> 20, path.display());
                (said, Some((path, blob_name(&hash.finalize()))))
            }
            Self::Failed(error) => (format!("they could not be stored: {error}"), None),
            Self::Memory { .. } => ("they were not stored".to_owned(), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn output(dir: &tempfile::TempDir) -> (Output, mpsc::Receiver<OutputDelta>) {
        let (output, receiver) = mpsc::channel(1024);
        (
            Output::new(Context { output, spill: dir.path().join("spill"), hidden: std::sync::Arc::new(|_| false) }),
            receiver,
        )
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
        let path = dir.path().join("spill");
        let file = File::create(&path).await.unwrap();
        let mut spill =
            Spill::File { path: path.clone(), file, written: FILE_MAX - 3, full: false, hash: Sha256::new() };
        spill.add(b"abcdef").await;
        spill.add(b"g").await;
        let (said, file) = spill.finish().await;
        assert_eq!(said, format!("the first 1024 MiB of the output are in {}", path.display()));
        assert_eq!(std::fs::read_to_string(file.unwrap().0).unwrap(), "abc");
    }
}
