//! Pictures in a prompt: `@picture.png` in what a user writes sends the file with it.
//!
//! A word that begins with `@` names a file. Its first bytes tell whether it is a picture; a name with
//! the ending of a picture that cannot be sent is an error, since the user meant one. All other words
//! stay text here: addresses, `@user`, and `@src/main.rs`, which is for [`crate::mention`]. The text is sent as written, and
//! the pictures follow in the order of their names. Only typed text is searched, never piped text: its author may be
//! another person.

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use linger_protocol::message::{ContentBlock, MAX_IMAGE, image_type};
use linger_protocol::prompt::PromptContent;
use linger_protocol::transport::MAX_REQUEST;

use crate::environment::short_path;
use crate::error::Failure;

/// The endings of pictures' names.
const ENDINGS: [&str; 10] = ["png", "jpg", "jpeg", "gif", "webp", "bmp", "tif", "tiff", "heic", "avif"];

/// Punctuation that may follow a name.
pub(crate) const PUNCTUATION: [char; 11] = ['.', ',', ';', ':', '!', '?', ')', ']', '}', '"', '\''];

/// Bytes of a request that are neither text nor picture.
const ENVELOPE: usize = 16 << 10;

/// The first bytes that identify a picture.
const PROBE: u64 = 16;

/// A text with the pictures that `typed`, the part of it that was typed, names; relative names are searched in `places`, in order.
pub(crate) fn with_pictures(text: String, typed: &str, places: &[PathBuf]) -> Result<PromptContent, Failure> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut blocks = Vec::new();
    let mut size = text.len() + ENVELOPE;
    for name in named(typed).into_iter().filter(|name| !is_address(&name.text)) {
        let Some(path) = find(&name, places)? else { continue };
        if found.contains(&path) {
            continue;
        }
        let Some((media_type, bytes)) = read(&path)? else { continue };
        size += bytes.len().div_ceil(3) * 4;
        if size > MAX_REQUEST {
            return Err(bad(&path, "makes the prompt too large: it has 16 MiB at most")
                .hint("send the pictures in several prompts, or make them smaller"));
        }
        blocks.push(ContentBlock::image(media_type, STANDARD.encode(bytes)));
        found.push(path);
    }
    if blocks.is_empty() {
        return Ok(PromptContent::Text(text));
    }
    blocks.insert(0, ContentBlock::Text { text });
    Ok(PromptContent::Blocks(blocks))
}

/// A name after an `@`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The name, without quotes and escapes.
    pub(crate) text: String,
    /// Whether quotes mark its end.
    pub(crate) quoted: bool,
    /// Its bytes in the whole text, as written.
    pub(crate) range: Range<usize>,
}

/// The texts that follow an `@` in a text.
pub(crate) fn names(text: &str) -> impl Iterator<Item = String> {
    named(text).into_iter().map(|name| name.text)
}

/// The names that a text has: `@name`, `@name\ with\ spaces`, `@"name with spaces"`.
pub(crate) fn named(text: &str) -> Vec<Name> {
    let mut names = Vec::new();
    let mut before = None;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let begins = before.is_none_or(|before: char| before.is_whitespace() || "([{<".contains(before));
        before = Some(c);
        if c != '@' || !begins {
            continue;
        }
        let quote = chars.next_if(|(_, c)| matches!(c, '"' | '\'')).map(|(_, quote)| quote);
        let start = at + 1 + quote.map_or(0, char::len_utf8);
        let mut name = String::new();
        while let Some((_, c)) = chars.next_if(|(_, c)| quote.map_or(!c.is_whitespace(), |quote| *c != quote)) {
            before = Some(c);
            // Shells write spaces so, and terminals that a file is dropped on.
            match (c, quote) {
                ('\\', None) => name.extend(chars.next().map(|(_, c)| c)),
                _ => name.push(c),
            }
        }
        let end = chars.peek().map_or(text.len(), |(at, _)| *at);
        if !name.is_empty() {
            names.push(Name { text: name, quoted: quote.is_some(), range: start..end });
        }
    }
    names
}

/// A name with its spaces escaped.
pub(crate) fn escaped(name: &str) -> String {
    name.chars()
        .flat_map(|c| (c.is_whitespace() || "\\\"'".contains(c)).then_some('\\').into_iter().chain([c]))
        .collect()
}

/// The file of a picture's name; `None` if the name means no picture.
fn find(name: &Name, places: &[PathBuf]) -> Result<Option<PathBuf>, Failure> {
    let short = name.text.trim_end_matches(PUNCTUATION);
    let readings = if name.quoted || short == name.text { vec![name.text.as_str()] } else { vec![&name.text, short] };
    for reading in &readings {
        for path in candidates(reading, places) {
            match path.metadata() {
                Ok(file) if file.is_file() => return Ok(Some(path)),
                Ok(_) => return Ok(None),
                Err(error) if is_absent(&error) => {}
                Err(error) if is_picture(reading) => return Err(unreadable(&path, &error)),
                Err(_) => return Ok(None),
            }
        }
    }
    match readings.last() {
        Some(reading) if is_picture(reading) => {
            // Without a place (a removed directory) there is only the name.
            let path = candidates(reading, places).into_iter().next().unwrap_or_else(|| PathBuf::from(reading));
            Err(bad(&path, "is not there")
                .hint(format!("correct the path; if no picture is meant, put it in backquotes: `@{reading}`")))
        }
        _ => Ok(None),
    }
}

/// Whether this names a resource of an MCP server, which may end like a picture: `@server:scheme:rest`.
pub(crate) fn is_address(name: &str) -> bool {
    name.split(':').nth(2).is_some()
}

/// The paths that a name may stand for.
pub(crate) fn candidates(name: &str, places: &[PathBuf]) -> Vec<PathBuf> {
    if let Some((rest, home)) = name.strip_prefix("~/").zip(std::env::home_dir()) {
        return vec![home.join(rest)];
    }
    if Path::new(name).is_absolute() {
        return vec![PathBuf::from(name)];
    }
    // By components, so that messages do not say `here/./picture.png`.
    places.iter().map(|place| place.join(name).components().collect()).collect()
}

/// Whether an error says that there is no such file.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename)
}

/// Whether a name has the ending of a picture.
fn is_picture(name: &str) -> bool {
    let ending = Path::new(name).extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

/// The type and the bytes of a picture; `None` for a file that neither is one nor has such a name.
fn read(path: &Path) -> Result<Option<(&'static str, Vec<u8>)>, Failure> {
    let meant = is_picture(&path.to_string_lossy());
    let mut bytes = Vec::new();
    let file = File::open(path).and_then(|mut file| {
        file.by_ref().take(PROBE).read_to_end(&mut bytes)?;
        Ok(file)
    });
    let file = match file {
        Ok(file) => file,
        Err(error) if meant => return Err(unreadable(path, &error)),
        Err(_) => return Ok(None),
    };
    let media_type = match image_type(&bytes) {
        Some(media_type) => media_type,
        None if !meant => return Ok(None),
        None if bytes.is_empty() => return Err(bad(path, "is empty").hint("choose another file")),
        None => {
            return Err(bad(path, "is no PNG, JPEG, GIF or WebP")
                .hint("convert it first, for example with `magick FILE picture.png`"));
        }
    };
    file.take(MAX_IMAGE + 1 - PROBE).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > MAX_IMAGE {
        return Err(bad(path, "is larger than 4 MiB, the most that a model takes")
            .hint("make a smaller copy, for example with `magick FILE -resize 1600x1600 smaller.png`"));
    }
    Ok(Some((media_type, bytes)))
}

fn bad(path: &Path, what: &str) -> Failure {
    Failure::usage(format!("the picture {} {what}", short_path(path)))
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    bad(path, &format!("cannot be read: {error}")).hint("check its permissions")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";

    fn check(text: &str, expect: &[&str]) {
        let found: Vec<String> = names(text).collect();
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn a_picture_that_is_nowhere_has_a_name_in_a_removed_directory_too() {
        let failure = with_pictures("see @x.png".to_owned(), "see @x.png", &[]).unwrap_err();
        assert_eq!(failure.message.as_deref(), Some("the picture x.png is not there"));
    }

    #[test]
    fn a_name_begins_where_a_word_does_and_may_have_spaces() {
        check("what is @a.png?", &["a.png?"]);
        check("@a.png (@b/c.jpg) @d", &["a.png", "b/c.jpg)", "d"]);
        check("@\"a b.png\", @'c d.gif' and @e\\ f.webp", &["a b.png", "c d.gif", "e f.webp"]);
        check("write to me@example.png or `@a.png`, a@b @ @", &[]);
        check("@", &[]);
        check("@\"open end", &["open end"]);
        check("@bild-ä€😀.png\n@next", &["bild-ä€😀.png", "next"]);
    }

    /// What comes of a text in a directory with some files: how many pictures, or what is wrong.
    fn outcome(text: &str) -> Result<usize, String> {
        let dir = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
        write("a.png", PNG);
        write("with space.png", PNG);
        write("no ending", PNG);
        write("dot.", PNG);
        write("text.png", b"no picture");
        write("empty.gif", b"");
        write("main.rs", b"fn main() {}");
        write("large.jpg", &[&[0xff, 0xd8, 0xff, 0xe0][..], &vec![0; 4 << 20]].concat());
        for n in 0..4 {
            write(&format!("big{n}.png"), &[PNG, &vec![0; 3 << 20]].concat());
        }
        fs::create_dir(dir.path().join("dir.png")).unwrap();
        fs::write(other.path().join("other.png"), PNG).unwrap();
        let places = [dir.path().to_path_buf(), other.path().to_path_buf()];
        let short = |failure: Failure| {
            let message = failure.message.unwrap();
            assert!(failure.hint.is_some(), "{message}");
            message.replace(&dir.path().display().to_string(), "DIR")
        };
        match with_pictures(text.to_owned(), text, &places).map_err(short)? {
            PromptContent::Text(same) => {
                assert_eq!(same, text);
                Ok(0)
            }
            PromptContent::Blocks(blocks) => {
                assert_eq!(blocks[0], ContentBlock::Text { text: text.to_owned() });
                assert!(blocks[1..].iter().all(|block| matches!(block, ContentBlock::Image { .. })));
                Ok(blocks.len() - 1)
            }
        }
    }

    #[test]
    fn pictures_are_sent_and_everything_else_stays_text() {
        for (text, pictures) in [
            ("what is @a.png?", 1),
            ("(@a.png), and again @a.png.", 1),
            ("@\"with space.png\" @with\\ space.png @other.png", 2),
            ("@'no ending' @dot.", 2),
            ("@main.rs @dir.png @user me@a.png @nowhere/at/all `@gone.png`", 0),
        ] {
            assert_eq!(outcome(text), Ok(pictures), "{text}");
        }
    }

    #[test]
    fn what_was_meant_as_a_picture_and_is_none_is_an_error() {
        for (text, error) in [
            ("@gone.png!", "the picture DIR/gone.png is not there"),
            ("@./gone.png", "the picture DIR/gone.png is not there"),
            ("@a.png/b.png", "the picture DIR/a.png/b.png is not there"),
            ("@text.png", "the picture DIR/text.png is no PNG, JPEG, GIF or WebP"),
            ("@empty.gif", "the picture DIR/empty.gif is empty"),
            ("@large.jpg", "the picture DIR/large.jpg is larger than 4 MiB, the most that a model takes"),
            (
                "@big0.png @big1.png @big2.png @big3.png",
                "the picture DIR/big3.png makes the prompt too large: it has 16 MiB at most",
            ),
        ] {
            assert_eq!(outcome(text), Err(error.to_owned()), "{text}");
        }
    }
}
