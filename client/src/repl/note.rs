//! `#note TEXT` at the prompt: a note that outlives the session, written at once and not sent to the model.

use linger_protocol::memory::{Add, Scope};
use linger_protocol::method::MemoryAdd;

use super::state::Repl;
use crate::error::{Exit, Failure};
use crate::terminal::clean_line;

/// The note in a line, and whether it is about the user; `None` if the line is a prompt.
pub(super) fn parse(line: &str) -> Option<(Scope, &str)> {
    let rest = line.trim().strip_prefix("#note")?;
    if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
        return None;
    }
    let rest = rest.trim();
    Some(match rest.strip_prefix("--user") {
        Some(text) if text.is_empty() || text.starts_with(char::is_whitespace) => (Scope::User, text.trim()),
        _ => (Scope::Workspace, rest),
    })
}

impl Repl {
    /// Writes a note for later sessions; the model does not see this line.
    pub(super) fn note(&mut self, scope: Scope, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return self.say("add the text: #note run the tests with -p (#note --user: for all projects)");
        }
        let add = Add { cwd: self.about.cwd.clone(), scope, text: text.to_owned(), name: None };
        match self.attachment.client.call(&MemoryAdd(add)) {
            Ok(note) => self.say(&format!("saved for later sessions: {}", clean_line(&note.path.to_string_lossy()))),
            Err(failure) if failure.exit == Exit::UNREACHABLE => Err(failure),
            Err(failure) => self.complain(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_note_or_a_prompt() {
        assert_eq!(parse("#note use pnpm"), Some((Scope::Workspace, "use pnpm")));
        assert_eq!(parse(" #note --user be short "), Some((Scope::User, "be short")));
        assert_eq!(parse("#note"), Some((Scope::Workspace, "")));
        assert_eq!(parse("#notes are odd"), None);
        assert_eq!(parse("# Title"), None);
    }
}
