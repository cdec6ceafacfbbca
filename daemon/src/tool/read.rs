//! `read`: a text file with line numbers, an image, a directory, or the whole output of an earlier call.

use std::fs::Metadata;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use encoding_rs::Encoding;
use linger_protocol::event::{Location, ToolKind};
use linger_protocol::message::{ContentBlock, MAX_IMAGE, image_type};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use super::access::Effects;
use super::alike::AskedName;
use super::change::TEXT_MAX;
use super::handle::Entry;
use super::invalid::Invalid;
use super::names::Takes;
use super::seen::Hash;
use super::types::{BoxFuture, Call, Context, Hidden, Tool, ToolOutput, blocking};
use super::workspace::Workspace;
use super::{alike, args, charset, file, ls, path, text};

/// The most bytes that one call gives: about 12,000 tokens.
const BYTES_MAX: usize = 48 * 1024;

/// Lines that one call gives unless the model asks for fewer; named in `read.md`.
const LINES_MAX: u64 = 2000;

/// A longer line is cut: minified code is seldom worth reading.
const LINE_MAX: usize = 2000;

/// A NUL in this much of the beginning makes a file binary, as for grep and git.
const PROBE: usize = 8 * 1024;

pub(super) struct Read;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    path: String,
    /// first line, from 1
    offset: Option<u64>,
    /// number of lines
    limit: Option<u64>,
}

impl Tool for Read {
    fn name(&self) -> &str {
        "read"
    }

    fn description(&self) -> &str {
        include_str!("read.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn changes(&self) -> bool {
        false
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn pattern(&self) -> Takes {
        Takes::Path
    }

    fn completes(&self) -> bool {
        true
    }

    fn complete(&self, input: &Value, workspace: &Workspace, hidden: &Hidden) -> Result<Option<Value>, Invalid> {
        let is_output = |path: &str| workspace.seen.output_named(path).is_some();
        let path = input.get("path").and_then(Value::as_str).filter(|path| !is_output(path));
        Ok(path.and_then(|_| alike::completed(input, workspace, hidden)))
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let (input, asked) = AskedName::take(input, workspace)?;
        let Args { path, offset, limit } = args::parse(&input)?;
        let output = workspace.seen.output_named(&path);
        let path = workspace.absolute(&path)?;
        if offset == Some(0) {
            return Err(Invalid("`offset` counts from 1".to_owned()));
        }
        if limit == Some(0) {
            return Err(Invalid("`limit` must be at least 1".to_owned()));
        }
        let (first, limit) = (offset.unwrap_or(1), limit.unwrap_or(LINES_MAX).min(LINES_MAX));
        Ok(Box::new(Reading { path, output, first, limit, asked, workspace: workspace.clone() }))
    }
}

struct Reading {
    path: PathBuf,
    /// The file, if it is the whole output of an earlier call.
    output: Option<PathBuf>,
    first: u64,
    limit: u64,
    /// The name that the model gave, if the file has one that looks like it.
    asked: Option<AskedName>,
    workspace: Workspace,
}

impl Call for Reading {
    fn action(&self) -> String {
        format!("read {}", path::show(&self.workspace.cwd, &self.path))
    }

    fn effects(&self) -> Effects {
        match self.output {
            // It is the session's own.
            Some(_) => Effects::nothing(),
            None => Effects::read(self.path.clone()).asked_as(self.asked.as_ref().map(|asked| asked.path.as_path())),
        }
    }

    fn locations(&self) -> Vec<Location> {
        vec![Location { path: self.path.clone(), line: (self.first > 1).then_some(self.first) }]
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        blocking(move |token| {
            let target = context.reached(&self.workspace, &self.path);
            let read = self.read(&target, token);
            let read = read.unwrap_or_else(|error| file::failure(&self.workspace, &self.path, &target, &error));
            match &self.asked {
                Some(asked) => asked.say(&path::show(&self.workspace.cwd, &self.path), read),
                None => read,
            }
        })
    }
}

impl Reading {
    fn read(&self, target: &Path, token: &CancellationToken) -> io::Result<ToolOutput> {
        let opened = match &self.output {
            Some(output) => file::open(output).and_then(|file| file.metadata().map(|metadata| (file, metadata))),
            None => Entry::at(target).and_then(|entry| entry.open()),
        };
        let (file, metadata) = match opened {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => return ls::list(target, token),
            opened => opened?,
        };
        let mut file = Hashing::new(file);
        let shown = self.show(&mut file, &metadata, token);
        if self.output.is_none()
            && metadata.len() <= TEXT_MAX
            && let Some(hash) = file.finish(token)?
        {
            // Also of a part: what the model does not see it can ask for.
            self.workspace.seen.knows(target, hash);
        }
        shown
    }

    fn show(
        &self,
        file: &mut Hashing<impl io::Read>,
        metadata: &Metadata,
        token: &CancellationToken,
    ) -> io::Result<ToolOutput> {
        let mut probe = Vec::with_capacity(PROBE);
        file.by_ref().take(PROBE as u64).read_to_end(&mut probe)?;
        let rest = io::Cursor::new(probe.clone()).chain(file);
        if let Some(media_type) = image_type(&probe) {
            return image(rest, media_type, metadata.len());
        }
        if let Some(encoding) = charset::utf16(&probe) {
            return self.wide(rest, encoding, metadata.len(), token);
        }
        if memchr::memchr(0, &probe).is_some() {
            return Err(io::Error::other(format!("is a binary file of {} bytes", metadata.len())));
        }
        if probe.is_empty() {
            return Ok(ToolOutput::text("[empty file]"));
        }
        self.lines(BufReader::new(rest), metadata.len(), token)
    }

    /// Text in UTF-16, which is shown as any other.
    fn wide(
        &self,
        input: impl io::Read,
        encoding: &'static Encoding,
        size: u64,
        token: &CancellationToken,
    ) -> io::Result<ToolOutput> {
        let mut bytes = Vec::new();
        input.take(TEXT_MAX + 1).read_to_end(&mut bytes)?;
        let name = encoding.name();
        if bytes.len() as u64 > TEXT_MAX {
            return Err(io::Error::other(format!(
                "is text in {name} of {size} bytes; at most {TEXT_MAX} can be shown"
            )));
        }
        let (text, _) = encoding.decode_with_bom_removal(&bytes);
        let mut output = self.lines(text.as_bytes(), size, token)?;
        let note = format!("[text in {name}, which the other tools of files cannot change]");
        output.content.insert(0, ContentBlock::text(note));
        Ok(output)
    }

    fn lines(&self, mut input: impl BufRead, size: u64, token: &CancellationToken) -> io::Result<ToolOutput> {
        let mut shown = String::new();
        let mut number = 0;
        while let Some((line, length)) = next_line(&mut input, token)? {
            number += 1;
            if number < self.first {
                continue;
            }
            let line = show_line(number, &line, length);
            if number >= self.first.saturating_add(self.limit) || shown.len() + line.len() > BYTES_MAX {
                shown.push_str(&format!("[the file of {size} bytes goes on; read on with offset {number}]"));
                return Ok(ToolOutput::text(shown));
            }
            shown.push_str(&line);
        }
        if shown.is_empty() {
            Err(io::Error::other(format!("has only {number} lines")))
        } else {
            Ok(ToolOutput::text(shown))
        }
    }
}

/// Hashes what is read of a file.
struct Hashing<R> {
    file: R,
    hash: Sha256,
    bytes: u64,
}

impl<R: io::Read> Hashing<R> {
    fn new(file: R) -> Self {
        Self { file, hash: Sha256::new(), bytes: 0 }
    }

    /// The hash of the whole file; absent if it has grown too long to be edited, or the call is cancelled.
    fn finish(mut self, token: &CancellationToken) -> io::Result<Option<Hash>> {
        let mut rest = vec![0; 64 << 10];
        while self.bytes <= TEXT_MAX && !token.is_cancelled() {
            if self.read(&mut rest)? == 0 {
                return Ok(Some(self.hash.finalize().into()));
            }
        }
        Ok(None)
    }
}

impl<R: io::Read> io::Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.hash.update(buffer.get(..read).unwrap_or_default());
        self.bytes += read as u64;
        Ok(read)
    }
}

/// The beginning of the next line, without its end, and the length of the whole; nothing at the end of the file.
fn next_line(input: &mut impl BufRead, token: &CancellationToken) -> io::Result<Option<(Vec<u8>, usize)>> {
    let mut line = Vec::new();
    let mut length = 0;
    loop {
        if token.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let buffer = input.fill_buf()?;
        if buffer.is_empty() {
            return Ok((length > 0).then_some((line, length)));
        }
        let end = memchr::memchr(b'\n', buffer);
        let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
        // A little more than is shown, so that a character is never cut here.
        line.extend(part.iter().take((LINE_MAX + 4).saturating_sub(line.len())));
        length += part.len();
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(Some((line, length)));
        }
    }
}

fn show_line(number: u64, line: &[u8], length: usize) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = line.strip_prefix("\u{feff}".as_bytes()).filter(|_| number == 1).unwrap_or(line);
    let line = text::lossy(line);
    if length > LINE_MAX {
        let kept = line.get(..text::floor(&line, LINE_MAX)).unwrap_or_default();
        format!("{number}\t{kept}[… the line has {length} bytes]\n")
    } else {
        format!("{number}\t{line}\n")
    }
}

fn image(input: impl io::Read, media_type: &str, size: u64) -> io::Result<ToolOutput> {
    let mut bytes = Vec::new();
    input.take(MAX_IMAGE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_IMAGE {
        return Err(io::Error::other(format!(
            "is an image of {size} bytes; at most {MAX_IMAGE} can be shown, make a smaller copy"
        )));
    }
    let mut output = ToolOutput::text(format!("[{media_type}, {size} bytes]"));
    output.content.push(ContentBlock::image(media_type, BASE64.encode(bytes)));
    Ok(output)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::tool::tests::{run, test_context, test_workspace};

    async fn check(content: &[u8], extra: Value, expect: &str) {
        let (_dir, workspace) = test_workspace();
        fs::write(workspace.cwd.join("file"), content).unwrap();
        let mut input = json!({"path": "file"});
        input.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        assert_eq!(run(&Read, &workspace, input).await.0, expect);
    }

    #[tokio::test]
    async fn lines_are_numbered_and_windows_line_ends_do_not_show() {
        check(b"one\ntwo", json!({}), "1\tone\n2\ttwo\n").await;
        check(b"\xef\xbb\xbfone\r\n\r\nthree\r\n", json!({}), "1\tone\n2\t\n3\tthree\n").await;
        check(b"\xff\n", json!({}), "1\t\u{fffd}\n").await;
        check(b"", json!({}), "[empty file]").await;
    }

    #[tokio::test]
    async fn a_part_says_how_to_read_on() {
        let part = json!({"offset": 2, "limit": 1});
        check(b"1\n2\n3\n", part.clone(), "2\t2\n[the file of 6 bytes goes on; read on with offset 3]").await;
        check(b"1\n2\n", part.clone(), "2\t2\n").await;
        check(b"1\n", part, "file has only 1 lines").await;
    }

    #[tokio::test]
    async fn long_lines_and_long_files_are_cut() {
        let line = "ö".repeat(2000);
        check(line.as_bytes(), json!({}), &format!("1\t{}[… the line has 4000 bytes]\n", "ö".repeat(1000))).await;
        let (_dir, workspace) = test_workspace();
        fs::write(workspace.cwd.join("long"), format!("{}\n", "x".repeat(1000)).repeat(100)).unwrap();
        let (text, _) = run(&Read, &workspace, json!({"path": "long"})).await;
        assert!(text.len() < BYTES_MAX + 100, "{}", text.len());
        assert!(text.ends_with("\n[the file of 100100 bytes goes on; read on with offset 49]"), "{text}");
    }

    #[tokio::test]
    async fn what_is_no_text_is_named() {
        let (_dir, workspace) = test_workspace();
        let cwd = &workspace.cwd;
        fs::write(cwd.join("binary"), b"\x7fELF\0\0").unwrap();
        fs::create_dir(cwd.join("dir")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, cwd.join("fifo"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        fs::write(cwd.join("main.rs"), "").unwrap();
        std::os::unix::fs::symlink("dangling2", cwd.join("dangling")).unwrap();
        for (path, expect) in [
            ("binary", "binary is a binary file of 6 bytes"),
            ("fifo", "fifo is not a regular file"),
            ("/dev/zero", "/dev/zero is not a regular file"),
            ("mian.rs", "mian.rs does not exist; did you mean `main.rs`?"),
            ("other/x", "other/x does not exist"),
            ("dangling", "dangling is a link to what does not exist"),
        ] {
            assert_eq!(run(&Read, &workspace, json!({"path": path})).await, (expect.to_owned(), true));
        }
    }

    #[tokio::test]
    async fn text_in_utf16_is_shown_and_named() {
        let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let said = "[text in UTF-16LE, which the other tools of files cannot change]";
        check(&wide("\u{feff}öne\r\n日本\n"), json!({}), &format!("{said}|1\töne\n2\t日本\n")).await;
        check(
            &wide("a\nb\nc\n"),
            json!({"offset": 2, "limit": 1}),
            &format!("{said}|2\tb\n[the file of 12 bytes goes on; read on with offset 3]"),
        )
        .await;
        let broad: Vec<u8> = "\u{feff}x".encode_utf16().flat_map(u16::to_be_bytes).collect();
        check(&broad, json!({}), &format!("{}|1\tx\n", said.replace("LE", "BE"))).await;
        let long = "word word\n".repeat(5000);
        check(&wide(&long), json!({"offset": 4999}), &format!("{said}|4999\tword word\n5000\tword word\n")).await;
    }

    #[tokio::test]
    async fn a_file_is_read_by_a_name_that_looks_like_its_own_and_a_rule_about_either_counts() {
        let (_dir, workspace) = test_workspace();
        fs::write(workspace.cwd.join("Shot 3.14\u{202f}PM.txt"), "text\n").unwrap();
        let hidden: Hidden = std::sync::Arc::new(|_| false);
        let asked = json!({"path": "Shot 3.14 PM.txt"});
        let input = Read.complete(&asked, &workspace, &hidden).unwrap().unwrap();
        let call = Read.prepare(&input, &workspace).unwrap();
        let paths: Vec<_> = call.effects().access.each().iter().map(|part| part.path().unwrap().to_owned()).collect();
        assert_eq!(paths, ["Shot 3.14\u{202f}PM.txt", "Shot 3.14 PM.txt"].map(|name| workspace.cwd.join(name)));
        assert!(!call.effects().changes && call.effects().overlaps);
        let (text, is_error) = run(&Read, &workspace, input).await;
        assert!(
            text.starts_with("[there is no `Shot 3.14 PM.txt`; this is ") && text.ends_with("]|1\ttext\n"),
            "{text}"
        );
        assert!(
            !is_error && text.contains("it has U+202F (narrow no-break space) where yours has U+0020 (space)"),
            "{text}"
        );
        let plain = Read.complete(&json!({"path": "none"}), &workspace, &hidden).unwrap();
        assert_eq!(plain, None);
        let (text, _) = run(&Read, &workspace, asked).await;
        assert!(text.contains(" is there, which looks the same: it has U+202F"), "{text}");
        let url = json!({"path": format!("file://{}/Shot%203.14%E2%80%AFPM.txt", workspace.cwd.display())});
        assert_eq!(run(&Read, &workspace, url).await, ("1\ttext\n".to_owned(), false));
    }

    #[tokio::test]
    async fn a_directory_is_listed_and_an_output_of_the_session_is_read_without_a_question() {
        let (_dir, workspace) = test_workspace();
        fs::create_dir_all(workspace.cwd.join("dir/sub")).unwrap();
        assert_eq!(run(&Read, &workspace, json!({"path": "dir"})).await, ("sub/\n".to_owned(), false));
        let data = tempfile::tempdir().unwrap();
        let held = crate::store::blob::Blobs::of(&data.path().join("linger.db")).put(b"1\n2\n3\n").unwrap();
        let by_id = json!({"path": held.id().as_str(), "offset": 2, "limit": 1});
        assert!(run(&Read, &workspace, by_id.clone()).await.1, "it is no output of this session");
        workspace.seen.output(&held);
        let by_path = json!({"path": held.path().unwrap(), "offset": 2, "limit": 1});
        for input in [by_id, by_path] {
            assert_eq!(Read.prepare(&input, &workspace).unwrap().effects(), Effects::nothing());
            let (text, _) = run(&Read, &workspace, input).await;
            assert_eq!(text, "2\t2\n[the file of 6 bytes goes on; read on with offset 3]");
        }
    }

    #[tokio::test]
    async fn a_vanished_workspace_is_named() {
        let (dir, workspace) = test_workspace();
        drop(dir);
        let (text, is_error) = run(&Read, &workspace, json!({"path": "x"})).await;
        assert_eq!(
            (text, is_error),
            (
                format!(
                    "the working directory {} is gone; absolute paths still work, and `linger set --dir` moves the session",
                    workspace.cwd.display()
                ),
                true
            )
        );
    }

    #[tokio::test]
    async fn an_image_is_shown_as_one() {
        let (_dir, workspace) = test_workspace();
        fs::write(workspace.cwd.join("a.png"), b"\x89PNG\r\n\x1a\n\0").unwrap();
        let call = Read.prepare(&json!({"path": "a.png"}), &workspace).unwrap();
        let (output, _receiver) = tokio::sync::mpsc::channel(1);
        let output = call.run(test_context(&workspace, output)).await;
        let image = ContentBlock::image("image/png", "iVBORw0KGgoA");
        assert_eq!(output.content, [ContentBlock::text("[image/png, 9 bytes]"), image]);
    }
}
