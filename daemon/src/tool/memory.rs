//! `memory`: searching, reading, writing and removing notes that outlive sessions ([`super::notes`]).
//!
//! Reading needs no permission: the notes are the user's own. Writing and removing are changes of files: they ask, are shown as such,
//! and can be undone.

use std::io;
use std::path::{Path, PathBuf};

use linger_protocol::event::ToolKind;
use linger_protocol::memory::Scope;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::access::{Effects, Targets};
use super::change::{Change, Content};
use super::handle::Entry;
use super::invalid::Invalid;
use super::names::Takes;
use super::types::{BoxFuture, Call, Context, SessionTraits, Tool, ToolOutput, blocking};
use super::workspace::Workspace;
use super::{args, file, notes, text};

/// Name in lists of tools and in rules.
pub const NAME: &str = "memory";

/// The most of what a search gives, in bytes.
const FOUND_MAX: usize = 16 << 10;

pub(super) struct Memory;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum MemoryAction {
    Search,
    Read,
    Write,
    Remove,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum NoteScope {
    User,
    Workspace,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    action: MemoryAction,
    scope: Option<NoteScope>,
    name: Option<String>,
    /// words to search for; all notes when absent
    query: Option<String>,
    text: Option<String>,
}

impl Tool for Memory {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        include_str!("memory.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn changes(&self) -> bool {
        true
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Other
    }

    fn pattern(&self) -> Takes {
        Takes::Path
    }

    fn offered(&self, session: &SessionTraits<'_>) -> bool {
        session.has_notes && session.names(NAME)
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { action, scope, name, query, text } = args::parse(input)?;
        let workspace = workspace.clone();
        if action == MemoryAction::Search {
            return Ok(Box::new(SearchNotes { scope, query: query.unwrap_or_default(), workspace }));
        }
        // `user/style`, as the index has it.
        let name = name.ok_or_else(|| Invalid("`name` is missing".to_owned()))?;
        let (said, name) = match name.split_once('/') {
            Some(("user", name)) => (Some(NoteScope::User), name.to_owned()),
            Some(("workspace", name)) => (Some(NoteScope::Workspace), name.to_owned()),
            _ => (scope, name),
        };
        let scope = match said {
            Some(NoteScope::User) => Scope::User,
            Some(NoteScope::Workspace) | None => Scope::Workspace,
        };
        if !notes::is_name(&name) {
            let shown = text::brief(&name);
            return Err(Invalid(format!("`{shown}` is no name of a note: small letters, digits and `-`")));
        }
        let change = match action {
            MemoryAction::Read => return Ok(Box::new(ReadNote { scope, name, workspace })),
            MemoryAction::Write => {
                let text = text.ok_or_else(|| Invalid("`text` is missing".to_owned()))?;
                let text = if text.ends_with('\n') { text } else { text + "\n" };
                if let Some(why) = workspace.notes.refuses(scope, &name, &text, &workspace.secrets) {
                    return Err(Invalid(why));
                }
                Some(text)
            }
            MemoryAction::Remove | MemoryAction::Search => None,
        };
        if scope == Scope::User && workspace.notes.is_child {
            return Err(Invalid("a session that another one started does not change the user's notes".to_owned()));
        }
        Ok(Box::new(ChangeNote { scope, path: workspace.notes.file(scope, &name), name, text: change, workspace }))
    }
}

fn noun(scope: Scope) -> &'static str {
    if scope == Scope::User { "user" } else { "workspace" }
}

struct SearchNotes {
    scope: Option<NoteScope>,
    query: String,
    workspace: Workspace,
}

impl Call for SearchNotes {
    fn action(&self) -> String {
        format!("memory search {}", text::one_line(&self.query)).trim_end().to_owned()
    }

    fn effects(&self) -> Effects {
        let of_user = &self.workspace.notes.user;
        Effects::read(of_user.parent().unwrap_or(of_user))
    }

    fn run(self: Box<Self>, _: Context) -> BoxFuture<'static, ToolOutput> {
        blocking(move |_| {
            let words: Vec<String> = self.query.split_whitespace().map(str::to_lowercase).collect();
            let scopes = match self.scope {
                Some(NoteScope::User) => vec![Scope::User],
                Some(NoteScope::Workspace) => vec![Scope::Workspace],
                None => vec![Scope::User, Scope::Workspace],
            };
            let notes = &self.workspace.notes;
            let (mut found, mut more) = (String::new(), 0_usize);
            for scope in scopes {
                for note in notes.list(scope) {
                    let body = notes.read(scope, &note.name).unwrap_or_default();
                    let low = format!("{} {}", note.name, body).to_lowercase();
                    if !words.iter().all(|word| low.contains(word.as_str())) {
                        continue;
                    }
                    let has = |line: &&str| words.iter().any(|word| line.to_lowercase().contains(word.as_str()));
                    let line = body.lines().skip(1).find(has).map(|line| format!("\n  {}", text::one_line(line)));
                    let row = format!("{}/{}: {}{}\n", noun(scope), note.name, note.about, line.unwrap_or_default());
                    if found.len() + row.len() > FOUND_MAX { more += 1 } else { found.push_str(&row) }
                }
            }
            if more > 0 {
                found.push_str(&format!("[{more} more; search for more words]\n"));
            }
            ToolOutput::text(if found.is_empty() { "no note".to_owned() } else { notes.redact(&found) })
        })
    }
}

struct ReadNote {
    scope: Scope,
    name: String,
    workspace: Workspace,
}

impl Call for ReadNote {
    fn action(&self) -> String {
        format!("memory read {}/{}", noun(self.scope), self.name)
    }

    fn effects(&self) -> Effects {
        Effects::read(self.workspace.notes.file(self.scope, &self.name))
    }

    fn run(self: Box<Self>, _: Context) -> BoxFuture<'static, ToolOutput> {
        blocking(move |_| {
            let notes = &self.workspace.notes;
            match notes.read(self.scope, &self.name) {
                Ok(text) => ToolOutput::text(notes.redact(&text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let all: Vec<String> = notes.list(self.scope).into_iter().map(|note| note.name).collect();
                    let names: Vec<&str> = all.iter().map(String::as_str).collect();
                    let near = text::did_you_mean(&self.name, &names);
                    ToolOutput::error(format!("there is no note {}/{}{near}", noun(self.scope), self.name))
                }
                Err(error) => ToolOutput::error(format!("the note cannot be read: {error}")),
            }
        })
    }
}

/// Writes a note, or removes it.
struct ChangeNote {
    scope: Scope,
    name: String,
    path: PathBuf,
    /// Absent to remove it.
    text: Option<String>,
    workspace: Workspace,
}

impl ChangeNote {
    fn change(&self, target: &Path) -> io::Result<Change> {
        let before = match Entry::at(target) {
            Ok(entry) => Content::of(&entry)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Content::Missing,
            Err(error) => return Err(error),
        };
        let after = self.text.as_ref().map_or(Content::Missing, |text| Content::Known(text.clone().into()));
        Ok(Change { path: target.to_path_buf(), before, after })
    }

    fn apply(&self, context: &Context) -> io::Result<ToolOutput> {
        let target = context.reached(&self.workspace, &self.path);
        let shown = format!("{}/{}", noun(self.scope), self.name);
        let change = self.change(&target)?;
        if self.text.is_none() && change.before == Content::Missing {
            return Ok(ToolOutput::error(format!("there is no note {shown}")));
        }
        self.workspace.notes.make_directory(self.scope)?;
        let kept = change.keep(&context.blobs)?;
        let entry = Entry::at(&target)?;
        match &self.text {
            Some(text) => entry.replace(text.as_bytes())?,
            None => entry.remove()?,
        }
        let of = |content: &Content| content.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let (before, after) = (of(&change.before).unwrap_or_default(), self.text.clone().unwrap_or_default());
        let verb = if self.text.is_some() { "wrote" } else { "removed" };
        let diff = file::diff(&format!("memory/{shown}.md"), &before, &after);
        Ok(ToolOutput { diff, changes: vec![kept], ..ToolOutput::text(format!("{verb} the note {shown}")) })
    }
}

impl Call for ChangeNote {
    fn action(&self) -> String {
        let verb = if self.text.is_some() { "write" } else { "remove" };
        format!("memory {verb} {}/{}", noun(self.scope), self.name)
    }

    fn effects(&self) -> Effects {
        Effects::write(self.path.clone())
    }

    fn preview(&self, targets: &Targets) -> Vec<Change> {
        targets.of(&self.path).and_then(|target| self.change(target).ok()).into_iter().collect()
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        blocking(move |_| {
            self.apply(&context).unwrap_or_else(|error| ToolOutput::error(format!("the note is unchanged: {error}")))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::diagnostics::secret::Redactor;
    use crate::tool::notes::Notes;
    use crate::tool::tests::{run, test_workspace};

    fn workspace() -> (tempfile::TempDir, Workspace) {
        let (dir, mut workspace) = test_workspace();
        workspace.notes = Notes::of(&workspace.cwd.join("data"), &workspace.root, Redactor::default());
        (dir, workspace)
    }

    #[tokio::test]
    async fn a_note_is_written_found_read_and_removed() {
        let (_dir, workspace) = workspace();
        let write = json!({ "action": "write", "name": "tests", "text": "Run them with -p\nThe whole takes an hour." });
        assert_eq!(run(&Memory, &workspace, write).await, ("wrote the note workspace/tests".to_owned(), false));
        let (found, _) = run(&Memory, &workspace, json!({ "action": "search", "query": "HOUR" })).await;
        assert_eq!(found, "workspace/tests: Run them with -p\n  The whole takes an hour.\n");
        let (text, _) = run(&Memory, &workspace, json!({ "action": "read", "name": "workspace/tests" })).await;
        assert_eq!(text, "Run them with -p\nThe whole takes an hour.\n");
        let (text, failed) = run(&Memory, &workspace, json!({ "action": "read", "name": "test" })).await;
        assert!(failed && text.contains("did you mean `tests`?"), "{text}");
        let (text, _) = run(&Memory, &workspace, json!({ "action": "remove", "name": "tests" })).await;
        assert_eq!(text, "removed the note workspace/tests");
        assert_eq!(run(&Memory, &workspace, json!({ "action": "search" })).await.0, "no note");
    }

    #[test]
    fn a_write_is_a_change_of_a_file_and_a_read_is_none() {
        let (_dir, workspace) = workspace();
        let call = |input: Value| Memory.prepare(&input, &workspace).unwrap();
        let write = call(json!({ "action": "write", "scope": "user", "name": "a", "text": "x" }));
        assert_eq!(write.effects(), Effects::write(workspace.notes.user.join("a.md")));
        let path = workspace.notes.user.join("a.md");
        let preview = write.preview(&[(path.clone(), path)].into_iter().collect()).remove(0);
        assert_eq!((preview.before, preview.after), (Content::Missing, Content::Known(b"x\n".into())));
        assert!(!call(json!({ "action": "read", "name": "a" })).effects().changes);
    }

    #[test]
    fn a_child_never_changes_the_notes_of_the_user() {
        let (_dir, mut workspace) = workspace();
        workspace.notes.is_child = true;
        for action in ["write", "remove"] {
            for input in [json!({ "scope": "user", "name": "a" }), json!({ "scope": "workspace", "name": "user/a" })] {
                let mut input = input;
                input["action"] = json!(action);
                if action == "write" {
                    input["text"] = json!("x");
                }
                let refused = Memory.prepare(&input, &workspace).err().unwrap().0;
                assert!(refused.contains("does not change the user's notes"), "{refused}");
            }
        }
        assert!(Memory.prepare(&json!({ "action": "write", "name": "a", "text": "x" }), &workspace).is_ok());
        assert!(Memory.prepare(&json!({ "action": "write", "name": "../a", "text": "x" }), &workspace).is_err());
    }
}
