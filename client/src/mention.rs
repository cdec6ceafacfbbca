//! Files in a prompt: `@src/main.rs`, `@src/main.rs:10-40` and `@src/` send a text file, lines of it, or the list of a directory.
//!
//! The user names them, so they may lie anywhere. What is no file stays text, and pictures go as pictures ([`crate::picture`]).
//! The text is sent as written; each file follows as a block that names it, with numbered lines, as the tool `read` gives them.
//! Only typed text is searched, never piped text or a long paste: its author may be another person, who would have a file sent.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use linger_protocol::message::{ContentBlock, image_type};
use linger_protocol::prompt::PromptContent;

use crate::environment::short_path;
use crate::error::Failure;
use crate::picture::{Name, PUNCTUATION, candidates, is_absent, is_address, named, with_pictures};
use crate::render::attached;
use crate::terminal::clean_line;

/// The text of one file, in bytes: about 30,000 tokens, as much as one resource of an MCP server may have. The model reads more
/// of it by itself where it needs more.
const MAX_TEXT: usize = 128 << 10;

/// The files of one prompt: with [`MAX_TEXT`] each, more would fill the window of most models.
const MAX_FILES: usize = 16;

/// How far into a file lines are searched for, in bytes: a second or so. A file that is longer is a log, which tools read better.
const MAX_SEARCHED: u64 = 256 << 20;

/// The names of a directory that are listed: a screenful or ten; of more the model needs a pattern.
const MAX_NAMES: usize = 500;

/// The first bytes that say whether a file is a picture.
const PROBE: usize = 16;

/// A text with the pictures, files and directories that `typed`, the part of it that was typed, names. Relative names are searched
/// in `places`, in order; paths are shown as they are within the last of them, where the session works.
pub(crate) fn with_files(text: String, typed: &str, places: &[PathBuf]) -> Result<PromptContent, Failure> {
    let mut blocks: Vec<ContentBlock> = Vec::new();
    let mut found: Vec<Mentioned> = Vec::new();
    for name in named(typed).into_iter().filter(|name| !is_address(&name.text)) {
        let Some(mentioned) = mentioned(&name, typed, places) else { continue };
        if found.contains(&mentioned) {
            continue;
        }
        let base = places.last().map_or(Path::new("/"), PathBuf::as_path);
        let Some(block) = mentioned.block(base)? else { continue };
        if blocks.len() == MAX_FILES {
            return Err(Failure::usage(format!("the prompt names more than {MAX_FILES} files"))
                .hint("name the directory instead; the model reads what it needs"));
        }
        blocks.push(block);
        found.push(mentioned);
    }
    let content = with_pictures(text, typed, places)?;
    if blocks.is_empty() {
        return Ok(content);
    }
    Ok(PromptContent::Blocks(content.into_blocks().into_iter().chain(blocks).collect()))
}

/// The attachments of a prompt, in a few words each; `None` for words alone.
pub(crate) fn with(content: &PromptContent) -> Option<String> {
    let PromptContent::Blocks(blocks) = content else { return None };
    let (_, with) = attached::shown(blocks);
    (!with.is_empty()).then(|| format!("with {}", with.join("; ")))
}

/// Typed names that look like files but do not exist: most are typos, so a person is warned.
pub(crate) fn missing(typed: &str, places: &[PathBuf]) -> Vec<String> {
    let looks = |text: &str| text.contains(['/', '.']) && !text.contains(':') && !is_address(text);
    let names = named(typed).into_iter().map(|name| (mentioned(&name, typed, places).is_none(), name));
    let shown = names
        .filter(|(is_missing, _)| *is_missing)
        .map(|(_, name)| if name.quoted { name.text } else { name.text.trim_end_matches(PUNCTUATION).to_owned() });
    let mut missing: Vec<String> = shown.filter(|text| looks(text)).collect();
    missing.dedup();
    missing
}

/// A file or a directory, and which lines of it.
#[derive(Debug, PartialEq, Eq)]
struct Mentioned {
    path: PathBuf,
    lines: Option<(usize, usize)>,
}

/// Resolves a name; `None` if it names no file.
fn mentioned(name: &Name, text: &str, places: &[PathBuf]) -> Option<Mentioned> {
    let mut readings: Vec<(&str, Option<(usize, usize)>)> = Vec::new();
    if name.quoted {
        // Lines follow the quote.
        let behind = text.get(name.range.end..).and_then(|rest| rest.get(1..)).unwrap_or_default();
        let word = behind.split(char::is_whitespace).next().unwrap_or_default().trim_end_matches(PUNCTUATION);
        readings.push((&name.text, word.strip_prefix(':').and_then(lines)));
    } else {
        let short = name.text.trim_end_matches(PUNCTUATION);
        for reading in [name.text.as_str(), short] {
            readings.push((reading, None));
            if let Some((file, numbers)) = reading.rsplit_once(':')
                && let Some(numbers) = lines(numbers)
            {
                readings.push((file, Some(numbers)));
            }
        }
    }
    for (reading, lines) in readings.into_iter().filter(|(reading, _)| !reading.is_empty()) {
        for path in candidates(reading, places) {
            match path.metadata() {
                Ok(it) if it.is_file() || it.is_dir() => return Some(Mentioned { path, lines }),
                // A pipe or a device would never end.
                Ok(_) => return None,
                Err(error) if is_absent(&error) => {}
                Err(_) => return None,
            }
        }
    }
    None
}

/// The lines that `10-40`, `10-` and `10` mean, both included.
fn lines(text: &str) -> Option<(usize, usize)> {
    let number = |text: &str| text.parse::<usize>().ok().filter(|n| *n > 0);
    match text.split_once('-') {
        None => number(text).map(|line| (line, line)),
        Some((from, "")) => number(from).map(|from| (from, usize::MAX)),
        Some((from, to)) => number(from).zip(number(to)),
    }
}

impl Mentioned {
    /// The block; `None` for a picture, which goes as one.
    fn block(&self, base: &Path) -> Result<Option<ContentBlock>, Failure> {
        let absolute = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        let shown = absolute.strip_prefix(base).ok().filter(|path| !path.as_os_str().is_empty()).unwrap_or(&absolute);
        // A name with a line feed has none in a heading.
        let shown = clean_line(&shown.to_string_lossy()).into_owned();
        if self.path.is_dir() {
            return self.directory(&shown).map(Some);
        }
        self.file(&shown)
    }

    fn file(&self, shown: &str) -> Result<Option<ContentBlock>, Failure> {
        let (from, to) = self.lines.unwrap_or((1, usize::MAX));
        if from > to {
            return Err(self.bad(&format!("has no lines {from} to {to}")).hint("write the smaller number first"));
        }
        let file = File::open(&self.path).map_err(|error| self.unreadable(&error))?;
        let mut reader = BufReader::new(file.take(MAX_SEARCHED));
        if image_type(reader.fill_buf().map_err(|error| self.unreadable(&error))?.get(..PROBE).unwrap_or_default())
            .is_some()
        {
            return Ok(None);
        }
        let (mut body, mut line, mut number, mut last, mut left) = (String::new(), Vec::new(), 0, 0, MAX_TEXT);
        // After the last wanted line, lines are only counted.
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line).map_err(|error| self.unreadable(&error))? == 0 {
                break;
            }
            number += 1;
            if line.contains(&0) {
                return Err(self.bad("is binary").hint("drop the `@`: the agent's tools can look at it"));
            }
            if number < from || number > to || left == 0 {
                continue;
            }
            let end = line.strip_suffix(b"\n").map_or(line.len(), <[u8]>::len);
            let text = std::str::from_utf8(line.get(..end).unwrap_or_default()).map_err(|_| {
                self.bad(&format!("is not UTF-8 text: line {number} cannot be read"))
                    .hint("convert it first, for example with iconv")
            })?;
            let text = if number == 1 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
            let numbered = format!("{number}\t{}\n", text.strip_suffix('\r').unwrap_or(text));
            match left.checked_sub(numbered.len()) {
                Some(less) => {
                    left = less;
                    body.push_str(&numbered);
                    last = number;
                }
                None if body.is_empty() => {
                    let end = (0..=MAX_TEXT.min(numbered.len())).rev().find(|at| numbered.is_char_boundary(*at));
                    body.push_str(numbered.get(..end.unwrap_or_default()).unwrap_or_default());
                    body.push('\n');
                    (last, left) = (number, 0);
                }
                None => left = 0,
            }
        }
        if from > number && self.lines.is_some() {
            return Err(self.bad(&format!("has {number} lines, and no line {from}")).hint("correct the numbers"));
        }
        if last < to.min(number) || left == 0 {
            body.push_str(&format!(
                "[cut here: {} lines more; read on from line {}]\n",
                to.min(number) - last,
                last + 1
            ));
        }
        let counted = if number == 1 { "1 line".to_owned() } else { format!("{number} lines") };
        let which = match self.lines {
            None => counted,
            Some((from, _)) if from == last => format!("line {from} of {number}"),
            Some((from, _)) => format!("lines {from} to {last} of {number}"),
        };
        Ok(Some(attached::block(&format!("file {shown}, {which}"), &body)))
    }

    fn directory(&self, shown: &str) -> Result<ContentBlock, Failure> {
        let entries = fs::read_dir(&self.path).map_err(|error| self.unreadable(&error))?;
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| {
                let slash = if entry.file_type().is_ok_and(|kind| kind.is_dir()) { "/" } else { "" };
                format!("{}{slash}", clean_line(&entry.file_name().to_string_lossy()))
            })
            .collect();
        names.sort_unstable();
        let count = names.len();
        let more = count.saturating_sub(MAX_NAMES);
        names.truncate(MAX_NAMES);
        let mut body: String = names.iter().map(|name| format!("{name}\n")).collect();
        if more > 0 {
            body.push_str(&format!("[{more} more]\n"));
        }
        let entries = if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") };
        Ok(attached::block(&format!("directory {shown}, {entries}"), &body))
    }

    fn bad(&self, what: &str) -> Failure {
        Failure::usage(format!("the file {} {what}", short_path(&self.path)))
    }

    fn unreadable(&self, error: &std::io::Error) -> Failure {
        self.bad(&format!("cannot be read: {error}")).hint("check its permissions")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks that follow the text, in a directory with some files.
    fn outcome(text: &str) -> Result<Vec<String>, String> {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
        fs::create_dir(dir.path().join("src")).unwrap();
        write("src/main.rs", b"fn main() {\r\n    run();\n}");
        write("a b.txt", b"one\ntwo\n");
        write("x:1", b"odd\n");
        write("empty", b"");
        write("icon.svg", b"<svg/>\n");
        write("a.out", b"\x7fELF\0\0");
        write("latin", b"caf\xe9\n");
        write("long", "0123456789abcde\n".repeat(20_000).as_bytes());
        write("pic", b"\x89PNG\r\n\x1a\n 0123456789");
        fs::write(other.path().join("there.txt"), "away\n").unwrap();
        let away = other.path().join("there.txt").display().to_string();
        let short = |text: String| {
            text.replace(&other.path().display().to_string(), "AWAY").replace(&dir.path().display().to_string(), "DIR")
        };
        let content =
            with_files(text.replace("AWAY", &away), &text.replace("AWAY", &away), &[dir.path().to_path_buf()])
                .map_err(|failure| {
                    assert!(failure.hint.is_some(), "{failure:?}");
                    short(failure.message.unwrap())
                })?;
        let blocks = content.into_blocks();
        let texts = blocks.iter().skip(1).map(|block| block.as_text().unwrap_or("(picture)").to_owned());
        Ok(texts.map(short).collect())
    }

    #[track_caller]
    fn check(text: &str, expect: &[&str]) {
        assert_eq!(outcome(text).unwrap(), expect, "{text}");
    }

    #[test]
    fn files_lines_and_directories_follow_the_text_as_blocks_that_name_them() {
        let whole = "[file src/main.rs, 3 lines]\n1\tfn main() {\n2\t    run();\n3\t}\n";
        check("review @src/main.rs, please", &[whole]);
        check("(@./src/main.rs) and @src/main.rs again", &[whole]);
        check("@src/main.rs:2-3.", &["[file src/main.rs, lines 2 to 3 of 3]\n2\t    run();\n3\t}\n"]);
        check("@src/main.rs:2", &["[file src/main.rs, line 2 of 3]\n2\t    run();\n"]);
        check("@src/main.rs:2-", &["[file src/main.rs, lines 2 to 3 of 3]\n2\t    run();\n3\t}\n"]);
        check(
            "@\"a b.txt\":2 and @a\\ b.txt",
            &["[file a b.txt, line 2 of 2]\n2\ttwo\n", "[file a b.txt, 2 lines]\n1\tone\n2\ttwo\n"],
        );
        check("@x:1", &["[file x:1, 1 line]\n1\todd\n"]);
        check(
            "@src @empty @icon.svg",
            &["[directory src, 1 entry]\nmain.rs\n", "[file empty, 0 lines]\n", "[file icon.svg, 1 line]\n1\t<svg/>\n"],
        );
        check("a file elsewhere: @AWAY", &["[file AWAY/there.txt, 1 line]\n1\taway\n"]);
    }

    #[test]
    fn what_was_not_typed_names_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret"), "s").unwrap();
        let text = "what does this mean? look at @secret";
        let content = with_files(text.to_owned(), "what does this mean? [9 lines pasted]", &[dir.path().to_path_buf()]);
        assert_eq!(content.unwrap(), PromptContent::Text(text.to_owned()));
    }

    #[test]
    fn what_is_no_file_stays_text() {
        check("@nobody me@src/main.rs `@src/main.rs` @docs:file:///a.md @src/gone.rs:3 @/dev/null @", &[]);
    }

    #[test]
    fn what_cannot_be_sent_is_refused_in_words() {
        for (text, error) in [
            ("@a.out", "the file DIR/a.out is binary"),
            ("@latin", "the file DIR/latin is not UTF-8 text: line 1 cannot be read"),
            ("@src/main.rs:9", "the file DIR/src/main.rs has 3 lines, and no line 9"),
            ("@src/main.rs:3-2", "the file DIR/src/main.rs has no lines 3 to 2"),
        ] {
            assert_eq!(outcome(text), Err(error.to_owned()), "{text}");
        }
        let many: String = (1..=17).map(|n| format!("@src/main.rs:1-{n} ")).collect();
        assert_eq!(outcome(&many), Err("the prompt names more than 16 files".to_owned()));
    }

    #[test]
    fn a_long_file_is_cut_at_a_line_and_says_where_it_goes_on() {
        let blocks = outcome("@long").unwrap();
        assert!(blocks[0].starts_with("[file long, 20000 lines]\n1\t0123"), "{}", &blocks[0][..60]);
        assert!(blocks[0].len() <= MAX_TEXT + 200);
        let end = blocks[0].lines().last().unwrap();
        let kept = blocks[0].lines().count() - 2;
        assert_eq!(end, format!("[cut here: {} lines more; read on from line {}]", 20_000 - kept, kept + 1));
    }
}
