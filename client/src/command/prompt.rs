//! Reads the prompt of a command from words and standard input, attaches the files it names, and reads the schema of the answer.

use std::fs::File;
use std::io::{IsTerminal as _, Read as _};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use linger_protocol::id::SessionId;
use linger_protocol::prompt::PromptContent;
use linger_protocol::transport::MAX_REQUEST;
use rustix::fs::FileType;
use serde_json::Value;

use crate::attachable::with_resources;
use crate::connect::Client;
use crate::environment::working_directory;
use crate::error::Failure;
use crate::mention::{missing, with_files};
use crate::terminal::Terminal;

/// The parts of a prompt, in order. Piped text may come from someone else, so it attaches no files.
#[derive(Debug, PartialEq)]
pub(super) struct Written(Vec<Part>);

#[derive(Debug, PartialEq)]
enum Part {
    Typed(String),
    Piped(String),
}

/// The parts with attached files. Resources of MCP servers are added once the session exists.
pub(super) struct Content(Vec<(PromptContent, bool)>);

impl Written {
    /// Whether it begins with typed words, which may name a command or a skill.
    pub(super) fn begins_typed(&self) -> bool {
        matches!(self.0.first(), Some(Part::Typed(_)))
    }

    /// Attaches the files and pictures that it names, searched here and in the session's directory.
    pub(super) fn content(self, session: Option<&Path>) -> Result<Content, Failure> {
        let places: Vec<_> = working_directory().ok().into_iter().chain(session.map(Path::to_path_buf)).collect();
        let part = |part| {
            let text = match part {
                Part::Typed(text) => text,
                Part::Piped(text) => return Ok((PromptContent::Text(text), false)),
            };
            let content = with_files(text.clone(), &text, &places)?;
            for name in missing(&text, &places) {
                Terminal::new().say(&format!("@{name}: no such file, sent as plain text"))?;
            }
            Ok((content, true))
        };
        self.0.into_iter().map(part).collect::<Result<_, _>>().map(Content)
    }
}

impl Content {
    /// The complete prompt, with the resources that its typed parts name.
    pub(super) fn with_resources(self, client: &mut Client, session: &SessionId) -> Result<PromptContent, Failure> {
        let mut parts = Vec::new();
        for (content, typed) in self.0 {
            parts.push(if typed { with_resources(client, session, content)? } else { content });
        }
        match <[PromptContent; 1]>::try_from(parts) {
            Ok([content]) => Ok(content),
            Err(parts) => Ok(PromptContent::Blocks(parts.into_iter().flat_map(PromptContent::into_blocks).collect())),
        }
    }
}

/// Combines the words of a prompt with piped text: after the words, in place of a word `-`, or alone.
pub(super) fn written(words: &[String]) -> Result<Written, Failure> {
    let place = words.iter().position(|word| word == "-");
    let (before, after) = match place {
        Some(at) => (words.get(..at).unwrap_or_default(), words.get(at + 1..).unwrap_or_default()),
        None => (words, &[][..]),
    };
    if words.iter().all(|word| word.trim().is_empty()) && !words.is_empty() {
        return Err(Failure::usage("the prompt is empty").hint("write it after the command, or pipe it in"));
    }
    let alone = before.is_empty() && after.is_empty();
    let piped = match (place, alone) {
        (Some(_), _) => Some(piped()?),
        (None, true) if std::io::stdin().is_terminal() => {
            return Err(Failure::usage("there is no prompt").hint("write it after the command, or pipe it in"));
        }
        (None, true) => Some(piped()?),
        (None, false) if is_given() => Some(patiently_piped()?),
        (None, false) => None,
    };
    if alone && piped.as_ref().is_none_or(|text| text.trim().is_empty()) {
        return Err(Failure::usage("the prompt on stdin is empty")
            .hint("check the output of the command before the pipe, or write the prompt after the command"));
    }
    Ok(composed(before, piped.filter(|text| !text.trim().is_empty()), after))
}

fn composed(before: &[String], piped: Option<String>, after: &[String]) -> Written {
    let typed = |words: &[String]| Some(words.join(" ")).filter(|text| !text.trim().is_empty()).map(Part::Typed);
    Written(typed(before).into_iter().chain(piped.map(Part::Piped)).chain(typed(after)).collect())
}

/// Whether stdin is a pipe or a file. A socket or device may stay open for ever, so it is read only with `-`.
fn is_given() -> bool {
    let kind = rustix::fs::fstat(rustix::stdio::stdin()).map(|stat| FileType::from_raw_mode(stat.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::RegularFile))
}

/// Like [`piped`], but says what it waits for if that takes long: the program may have inherited a pipe without a writer.
fn patiently_piped() -> Result<String, Failure> {
    let (done, read) = mpsc::channel();
    std::thread::spawn(move || done.send(piped()));
    match read.recv_timeout(PATIENCE) {
        Ok(text) => text,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Terminal::new().say("reading standard input until it ends; `</dev/null` sends none")?;
            read.recv().unwrap_or_else(|_| Ok(String::new()))
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => Ok(String::new()),
    }
}

/// How long to read standard input before saying so.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reads stdin to its end. Fails if it is too large or not UTF-8.
fn piped() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(MAX_REQUEST as u64).read_to_end(&mut bytes)?;
    if bytes.len() >= MAX_REQUEST {
        // Fail before a session is created.
        return Err(Failure::usage(format!(
            "the request cannot be sent: the prompt has more than {MAX_REQUEST} bytes"
        ))
        .hint("make the prompt shorter"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::usage(format!("stdin is not UTF-8 text: byte {at} cannot be read"))
            .hint("convert it first, for example with iconv")
    })
}

/// The largest schema file, in bytes; the daemon has a stricter limit.
const MAX_SCHEMA: u64 = 1 << 20;

/// Reads a schema from a file. Fails if it is not JSON; the daemon checks the rest.
pub(super) fn schema(path: &Path) -> Result<Value, Failure> {
    let bad = |why: String| {
        Failure::usage(format!("the schema {}: {why}", path.display()))
            .hint("--schema takes a file with JSON Schema, such as {\"type\": \"object\"}")
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| bad(error.to_string()))?;
    file.take(MAX_SCHEMA + 1).read_to_string(&mut text).map_err(|error| bad(error.to_string()))?;
    if text.len() as u64 > MAX_SCHEMA {
        return Err(bad(format!("it is larger than {MAX_SCHEMA} bytes")));
    }
    serde_json::from_str(&text).map_err(|error| bad(format!("it is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn piped_text_follows_the_words_or_takes_the_place_of_a_dash() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let piped = || Some("diff".to_owned());
        let (typed, from_pipe) = (|text: &str| Part::Typed(text.to_owned()), || Part::Piped("diff".to_owned()));
        let check = |before: &[&str], after: &[&str], expect: Vec<Part>| {
            assert_eq!(composed(&words(before), piped(), &words(after)), Written(expect));
        };
        check(&["review", "this"], &[], vec![typed("review this"), from_pipe()]);
        check(&["this:"], &["is", "it", "good?"], vec![typed("this:"), from_pipe(), typed("is it good?")]);
        check(&[], &[], vec![from_pipe()]);
    }
}
