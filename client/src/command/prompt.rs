//! The prompt of a command: words or standard input, the pictures that the words name, a schema for the answer.

use std::fs::File;
use std::io::{IsTerminal as _, Read as _};
use std::path::Path;

use linger_protocol::prompt::PromptContent;
use linger_protocol::session::Info;
use linger_protocol::transport::MAX_REQUEST;
use serde_json::Value;

use crate::attachable::with_resources;
use crate::connect::Client;
use crate::environment::working_directory;
use crate::error::Failure;
use crate::picture::with_pictures;

/// The text of a prompt.
pub(super) struct Written {
    text: String,
    /// Whether it came from stdin: its author may be another person, so it names no files.
    piped: bool,
}

impl Written {
    /// Whether the user typed it, so that it may name files and resources.
    pub(super) fn is_typed(&self) -> bool {
        !self.piped
    }

    /// As [`Self::content`] for a session that is there, with the resources of MCP servers that the text names.
    pub(super) fn content_of(self, client: &mut Client, info: &Info) -> Result<PromptContent, Failure> {
        let typed = self.is_typed();
        let content = self.content(Some(&info.cwd))?;
        if typed { with_resources(client, &info.session, content) } else { Ok(content) }
    }

    /// The text with the pictures that it names, searched here and in the session's directory.
    pub(super) fn content(self, session: Option<&Path>) -> Result<PromptContent, Failure> {
        if self.piped {
            return Ok(PromptContent::Text(self.text));
        }
        let places: Vec<_> = working_directory().ok().into_iter().chain(session.map(Path::to_path_buf)).collect();
        with_pictures(self.text, &places)
    }
}

/// The words of a prompt, or stdin.
pub(super) fn written(words: &[String]) -> Result<Written, Failure> {
    let given = !words.is_empty();
    let words = words.join(" ");
    if given && words.trim().is_empty() {
        return Err(Failure::usage("the prompt is empty").hint("write the prompt after the command, or pipe it in"));
    }
    if given && words != "-" {
        return Ok(Written { text: words, piped: false });
    }
    let stdin = std::io::stdin();
    if !given && stdin.is_terminal() {
        return Err(Failure::usage("there is no prompt").hint("write it after the command, or pipe it in"));
    }
    let mut bytes = Vec::new();
    stdin.lock().take(MAX_REQUEST as u64).read_to_end(&mut bytes)?;
    if bytes.len() >= MAX_REQUEST {
        // Before a session is created for it.
        return Err(Failure::usage(format!(
            "the request cannot be sent: it may have {MAX_REQUEST} bytes, the prompt has more"
        ))
        .hint("make the prompt shorter"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::usage(format!("stdin is not UTF-8 text: byte {at} cannot be read"))
            .hint("convert it first, for example with iconv")
    })?;
    if text.trim().is_empty() {
        return Err(Failure::usage("the prompt on stdin is empty")
            .hint("look at what the command before the pipe prints, or write the prompt after the command"));
    }
    Ok(Written { text, piped: true })
}

/// The largest schema file, in bytes; the daemon has a stricter limit.
const MAX_SCHEMA: u64 = 1 << 20;

/// The schema in a file, as far as it is JSON.
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
