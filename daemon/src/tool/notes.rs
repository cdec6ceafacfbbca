//! Notes that outlive sessions: plain Markdown files of the user, some about a workspace, which a person may write too.
//!
//! They lie in linger's own data directory and never in a repository: what a workspace's notes say is the user's own. A note's first
//! line says what it is about; these lines are the index, which a system prompt has. Blocks on the disk.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use linger_protocol::memory::{Note, Scope};
use sha2::{Digest as _, Sha256};

use super::handle::Entry;
use super::text;
use crate::diagnostics::secret::{Redactor, SecretVariables};

/// The longest note, in bytes: about 4,000 tokens. More belongs into a file of the workspace.
pub const MAX_NOTE: usize = 16 << 10;

/// The most notes of the user, and of each workspace.
pub const MAX_NOTES: usize = 200;

/// The longest name of a note.
const MAX_NAME: usize = 64;

/// The longest line of the index, in bytes.
const MAX_LINE: usize = 160;

/// The longest index, in bytes: about 1,500 tokens, sent with every request.
const MAX_INDEX: usize = 6 << 10;

/// Digits of the hash in the name of a workspace's directory: 64 bits.
const DIGITS: usize = 16;

/// Where the notes lie that a session has.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// The directory of the user's.
    pub user: PathBuf,
    /// The directory of those about the workspace.
    pub workspace: PathBuf,
    /// Whether another session started this one: then it never writes the user's.
    pub is_child: bool,
    /// Knows the secrets that no note has.
    redactor: Redactor,
}

impl PartialEq for Notes {
    fn eq(&self, other: &Self) -> bool {
        (&self.user, &self.workspace, self.is_child) == (&other.user, &other.workspace, other.is_child)
    }
}

impl Eq for Notes {}

impl Notes {
    /// The notes below `data` for sessions in the workspace with this root.
    pub fn of(data: &Path, root: &Path, redactor: Redactor) -> Self {
        let hash = Sha256::digest(root.as_os_str().as_encoded_bytes());
        let hash = hash.iter().fold(String::new(), |mut hex, byte| {
            // Writing to a string does not fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let name = slug(&root.file_name().unwrap_or_default().to_string_lossy());
        let name = if name.is_empty() { "root".to_owned() } else { name };
        let directory = format!("{name}-{}", hash.get(..DIGITS).unwrap_or(&hash));
        let memory = data.join("memory");
        let (user, workspace) = (memory.join("user"), memory.join("workspaces").join(directory));
        Self { user, workspace, is_child: false, redactor }
    }

    /// The directory of a scope.
    pub fn directory(&self, scope: Scope) -> &Path {
        match scope {
            Scope::User => &self.user,
            Scope::Workspace | Scope::Unknown => &self.workspace,
        }
    }

    /// The file of a note.
    pub fn file(&self, scope: Scope, name: &str) -> PathBuf {
        self.directory(scope).join(format!("{name}.md"))
    }

    /// The notes of a scope, by name.
    pub fn list(&self, scope: Scope) -> Vec<Note> {
        let Ok(entries) = fs::read_dir(self.directory(scope)) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| {
            let name = entry.file_name().to_str()?.strip_suffix(".md")?.to_owned();
            is_name(&name).then_some(name)
        });
        let mut names: Vec<String> = names.take(2 * MAX_NOTES).collect();
        names.sort();
        let note = |name: String| {
            let text = self.read(scope, &name).ok()?;
            let (about, bytes, path) = (about(&text), text.len() as u64, self.file(scope, &name));
            Some(Note { scope, name, about, path, bytes, text: None })
        };
        names.into_iter().take(MAX_NOTES).filter_map(note).collect()
    }

    /// The text of a note.
    pub fn read(&self, scope: Scope, name: &str) -> io::Result<String> {
        read(&self.file(scope, name))
    }

    /// Why this cannot be written as a note, if so.
    pub fn refuses(&self, scope: Scope, name: &str, text: &str, secrets: &SecretVariables) -> Option<String> {
        if !is_name(name) {
            return Some(format!("a note's name has 1 to {MAX_NAME} small letters, digits and `-`"));
        }
        if text.trim().is_empty() {
            return Some("the note is empty; `remove` removes one".to_owned());
        }
        if text.len() > MAX_NOTE {
            return Some(format!("the note is longer than {MAX_NOTE} bytes: say less, or make two"));
        }
        if self.redactor.redact(text) != text || secrets.occur_in(text) {
            return Some("the note has a secret in it, such as a key".to_owned());
        }
        let is_new = !self.file(scope, name).exists();
        (is_new && self.list(scope).len() >= MAX_NOTES)
            .then(|| format!("there are {MAX_NOTES} notes already: remove some, or add to one"))
    }

    /// Writes a note. `refuses` has been asked.
    pub fn write(&self, scope: Scope, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.file(scope, name);
        self.make_directory(scope)?;
        Entry::at(&path)?.replace(text.as_bytes())?;
        Ok(path)
    }

    /// Makes the directory of a scope, for the user alone.
    pub fn make_directory(&self, scope: Scope) -> io::Result<()> {
        linger_protocol::place::private_directory(self.directory(scope)).map_err(io::Error::other)
    }

    /// A name for a new note with this text.
    pub fn name_for(&self, scope: Scope, text: &str) -> String {
        let words: Vec<&str> = text.split_whitespace().take(6).collect();
        let slug = slug(&words.join(" "));
        let slug = if slug.is_empty() { "note".to_owned() } else { slug };
        let numbered = (2..=MAX_NOTES + 1).map(|number| format!("{slug}-{number}"));
        let mut names = std::iter::once(slug.clone()).chain(numbered);
        names.find(|name| !self.file(scope, name).exists()).unwrap_or(slug)
    }

    /// The index of all notes, for a system prompt; empty without any.
    pub fn index(&self) -> String {
        let mut lines = String::new();
        let mut left_out = 0_usize;
        for (scope, noun) in [(Scope::User, "user"), (Scope::Workspace, "workspace")] {
            for note in self.list(scope) {
                let line = format!("- {noun}/{}: {}\n", note.name, self.redactor.redact(&note.about));
                if lines.len() + line.len() > MAX_INDEX {
                    left_out += 1;
                } else {
                    lines.push_str(&line);
                }
            }
        }
        if lines.is_empty() {
            return lines;
        }
        if left_out > 0 {
            // Writing to a string does not fail.
            let _ = writeln!(lines, "[{left_out} more: search for them]");
        }
        format!(
            "\nNotes from earlier sessions, by their first lines; read one with the tool `memory` when it matters. They may be out \
             of date.\n<memory>\n{lines}</memory>\n"
        )
    }

    /// `text` without a secret that the daemon holds.
    pub fn redact(&self, text: &str) -> String {
        self.redactor.redact(text)
    }
}

/// Whether it can be the name of a note: a file's name without surprises.
pub fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_part) && !name.starts_with('-')
}

/// The text of a note's file, bounded.
fn read(path: &Path) -> io::Result<String> {
    let (file, _) = Entry::at(path)?.open()?;
    let mut bytes = Vec::new();
    file.take(MAX_NOTE as u64 + 1).read_to_end(&mut bytes)?;
    // A person may have written more.
    bytes.truncate(MAX_NOTE);
    Ok(text::lossy(&bytes).replace('\0', ""))
}

/// The first line that says something.
fn about(body: &str) -> String {
    let line = body.lines().map(|line| line.trim_start_matches(['#', '-', ' '])).find(|line| !line.trim().is_empty());
    let line = text::one_line(line.unwrap_or_default().trim()).replace(['<', '>'], " ");
    let head = text::head(&line, MAX_LINE);
    if head.len() < line.len() { format!("{head}…") } else { line }
}

fn slug(words: &str) -> String {
    let mut slug = String::new();
    for c in words.to_lowercase().chars() {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.ends_with('-') && !slug.is_empty() {
            slug.push('-');
        }
    }
    let slug = text::head(&slug, MAX_NAME - 4);
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::secret::Secret;

    fn notes(dir: &Path) -> Notes {
        let redactor = Redactor::default();
        redactor.add(&Secret::new("sk-very-secret"));
        Notes::of(dir, Path::new("/home/u/my project"), redactor)
    }

    #[test]
    fn notes_are_files_of_the_user_and_an_index_of_first_lines() {
        let dir = tempfile::tempdir().unwrap();
        let notes = notes(dir.path());
        assert_eq!(notes.index(), "");
        notes.write(Scope::User, "style", "# Prefers short answers\nAlways.\n").unwrap();
        notes.write(Scope::Workspace, "tests", "\n- Run <b>cargo</b> with -p\n").unwrap();
        let index = notes.index();
        assert!(
            index.contains("- user/style: Prefers short answers\n- workspace/tests: Run  b cargo /b  with -p\n"),
            "{index}"
        );
        let file = notes.file(Scope::Workspace, "tests");
        assert!(file.to_string_lossy().contains("memory/workspaces/my-project-"), "{file:?}");
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&notes.user.metadata().unwrap().permissions()) & 0o777,
            0o700
        );
        for n in 0..150 {
            fs::write(notes.file(Scope::User, &format!("n{n}")), "x".repeat(5000)).unwrap();
        }
        let index = notes.index();
        assert!(index.len() < MAX_INDEX + 400 && index.contains("more: search for them"), "{}", index.len());
    }

    #[test]
    fn a_note_with_a_secret_a_bad_name_or_too_much_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (notes, secrets) = (notes(dir.path()), SecretVariables::default());
        secrets.put("TOKEN", Secret::new("hunter22"));
        let refuses = |name: &str, text: &str| notes.refuses(Scope::User, name, text, &secrets).unwrap_or_default();
        assert_eq!(refuses("a-1", "fine"), "");
        for name in ["", "../x", "A", "a b", "-a"] {
            assert!(refuses(name, "x").contains("a note's name"), "{name}");
        }
        assert!(refuses("a", " \n").contains("empty"));
        assert!(refuses("a", &"x".repeat(MAX_NOTE + 1)).contains("longer"));
        assert!(refuses("a", "key: sk-very-secret").contains("secret"));
        assert!(refuses("a", "it is hunter22").contains("secret"));
        for n in 0..MAX_NOTES {
            notes.write(Scope::User, &format!("n{n}"), "x").unwrap();
        }
        assert!(refuses("new", "x").contains("already"));
        assert_eq!(refuses("n1", "y"), "");
    }

    #[test]
    fn a_name_is_made_of_the_first_words() {
        let dir = tempfile::tempdir().unwrap();
        let notes = notes(dir.path());
        assert_eq!(notes.name_for(Scope::User, "Use pnpm, not npm!"), "use-pnpm-not-npm");
        notes.write(Scope::User, "use-pnpm-not-npm", "x").unwrap();
        assert_eq!(notes.name_for(Scope::User, "Use pnpm, not npm!"), "use-pnpm-not-npm-2");
        assert_eq!(notes.name_for(Scope::User, "äöü"), "note");
    }
}
