//! `edit`: replaces pieces of a file.

use std::io;
use std::path::{Path, PathBuf};

use linger_protocol::event::ToolKind;
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::{Effects, Targets};
use super::alike::AskedName;
use super::change::{Change, Content};
use super::handle::Entry;
use super::invalid::Invalid;
use super::names::Takes;
use super::replace::{Edited, Piece, replace_all};
use super::types::{BoxFuture, Call, Context, Hidden, SessionTraits, Tool, ToolOutput, blocking};
use super::workspace::Workspace;
use super::{alike, args, file, patching, path};
use crate::store::blob::Blobs;

const NAME: &str = patching::EDIT;

pub(super) struct Edit;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    path: String,
    old: Option<String>,
    new: Option<String>,
    all: Option<bool>,
    edits: Option<Vec<Piece>>,
}

/// The most edits of one call.
const EDITS_MAX: usize = 100;

impl Tool for Edit {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        include_str!("edit.md")
    }

    fn schema(&self) -> Value {
        let all = json!({ "type": "boolean", "description": "replace every occurrence" });
        let text = json!({ "type": "string" });
        let piece = json!({ "old": text, "new": text, "all": { "type": "boolean" } });
        let piece = json!({ "type": "object", "properties": piece, "required": ["old", "new"] });
        let about = "in place of old and new: several, made in order, all or none";
        let edits = json!({ "type": "array", "description": about, "items": piece });
        let properties = json!({ "path": text, "old": text, "new": text, "all": all, "edits": edits });
        json!({ "type": "object", "properties": properties, "required": ["path"], "additionalProperties": false })
    }

    fn changes(&self) -> bool {
        true
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Edit
    }

    fn pattern(&self) -> Takes {
        Takes::Path
    }

    fn offered(&self, session: &SessionTraits<'_>) -> bool {
        session.names(NAME) && !patching::has_patches(session)
    }

    fn completes(&self) -> bool {
        true
    }

    fn complete(&self, input: &Value, workspace: &Workspace, hidden: &Hidden) -> Result<Option<Value>, Invalid> {
        Ok(alike::completed(input, workspace, hidden))
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let (input, asked) = AskedName::take(input, workspace)?;
        let Args { path, old, new, all, edits } = args::parse(&input)?;
        let path = workspace.absolute(&path)?;
        let pieces = match (old, new, edits) {
            (None, None, Some(edits)) => edits,
            (Some(old), Some(new), None) => vec![Piece { old, new, all: all.unwrap_or_default() }],
            _ => return Err(Invalid("give `old` and `new`, or `edits`".to_owned())),
        };
        if pieces.is_empty() || pieces.len() > EDITS_MAX {
            return Err(Invalid(format!("`edits` has {}, and may have 1 to {EDITS_MAX}", pieces.len())));
        }
        if pieces.iter().any(|piece| piece.old.is_empty()) {
            return Err(Invalid("`old` is empty; use write to make a file".to_owned()));
        }
        if pieces.iter().any(|piece| piece.old == piece.new) {
            return Err(Invalid("`old` and `new` are the same".to_owned()));
        }
        Ok(Box::new(Editing { path, pieces, asked, workspace: workspace.clone() }))
    }
}

struct Editing {
    path: PathBuf,
    pieces: Vec<Piece>,
    /// The name that the model gave, if the file has one that looks like it.
    asked: Option<AskedName>,
    workspace: Workspace,
}

impl Call for Editing {
    fn action(&self) -> String {
        format!("edit {}", path::show(&self.workspace.cwd, &self.path))
    }

    fn effects(&self) -> Effects {
        Effects::write(self.path.clone()).asked_as(self.asked.as_ref().map(|asked| asked.path.as_path()))
    }

    fn preview(&self, targets: &Targets) -> Vec<Change> {
        let change = |target: &Path| {
            let text = Entry::at(target).and_then(|entry| file::text(&entry)).ok()?;
            let edited = replace_all(&text, &self.pieces).ok()?;
            Some(Change::written(target, Content::Known(text.into()), edited.text))
        };
        targets.of(&self.path).and_then(change).into_iter().collect()
    }

    fn refusal(&self, targets: &Targets) -> Option<String> {
        let target = targets.of(&self.path)?;
        self.plan(target).err()
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        blocking(move |_| {
            let target = context.reached(&self.workspace, &self.path);
            let edited = self.edit(&target, &context.blobs).unwrap_or_else(ToolOutput::error);
            match &self.asked {
                Some(asked) => asked.say(&path::show(&self.workspace.cwd, &self.path), edited),
                None => edited,
            }
        })
    }
}

impl Editing {
    /// The file, its text, and what becomes of it. Fails if it is to be left unchanged; the error is for the model.
    fn plan(&self, target: &Path) -> Result<(Entry, String, Edited), String> {
        let found = Entry::at(target).and_then(|entry| Ok((file::text(&entry)?, entry)));
        let (text, entry) = found.map_err(|error| self.failure(target, &error))?;
        let unchanged = |why| format!("{} is unchanged: {why}", path::show(&self.workspace.cwd, &self.path));
        self.workspace.seen.check(target, &Content::Known(text.clone().into())).map_err(unchanged)?;
        let edited = replace_all(&text, &self.pieces).map_err(unchanged)?;
        Ok((entry, text, edited))
    }

    fn failure(&self, target: &Path, error: &io::Error) -> String {
        file::explain(&self.workspace, &self.path, target, error)
    }

    fn edit(&self, target: &Path, blobs: &Blobs) -> Result<ToolOutput, String> {
        let (entry, text, edited) = self.plan(target)?;
        let shown = path::show(&self.workspace.cwd, &self.path);
        let change = Change::written(target, Content::Known(text.clone().into()), edited.text.as_bytes());
        let kept = change.keep(blobs).and_then(|kept| entry.replace(edited.text.as_bytes()).map(|()| kept));
        let changes = vec![kept.map_err(|error| self.failure(target, &error))?];
        let said = match edited.count {
            1 => format!("edited {shown}, {}", edited.place),
            count => format!("edited {shown}, {count} places, {}", edited.place),
        };
        let diff = file::diff(&shown, &text, &edited.text);
        let told = self.workspace.seen.wrote(target, edited.text.as_bytes(), diff.as_deref());
        let said = told.into_iter().fold(said, |said, told| format!("{said}\n{told}"));
        Ok(ToolOutput { diff, changes, ..ToolOutput::text(said) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::tool::read::Read;
    use crate::tool::tests::{run, test_workspace};

    #[tokio::test]
    async fn a_file_is_edited_in_place() {
        let (_dir, workspace) = test_workspace();
        let file = workspace.cwd.join("a.rs");
        fs::write(&file, "one\ntwo\n").unwrap();
        let edit = |old: &str| json!({"path": "a.rs", "old": old, "new": "2"});
        let unread = "a.rs is unchanged: you have not read it; read it first";
        assert_eq!(run(&Edit, &workspace, edit("two")).await, (unread.to_owned(), true));
        run(&Read, &workspace, json!({"path": "a.rs", "limit": 1})).await;
        assert_eq!(run(&Edit, &workspace, edit("two")).await, ("edited a.rs, line 2".to_owned(), false));
        assert_eq!(fs::read_to_string(&file).unwrap(), "one\n2\n");
        let unchanged = "a.rs is unchanged: `old` was not found; read the file again";
        assert_eq!(run(&Edit, &workspace, edit("two")).await, (unchanged.to_owned(), true));
        let changed = "a.rs is unchanged: it has changed since you read or wrote it; read it again";
        fs::write(&file, "one\ntwo\n").unwrap();
        assert_eq!(run(&Edit, &workspace, edit("two")).await, (changed.to_owned(), true));
        run(&Read, &workspace, json!({"path": "a.rs"})).await;
        let edits = json!({"path": "a.rs", "edits": [{"old": "one", "new": "1"}, {"old": "two", "new": "2"}]});
        assert_eq!(run(&Edit, &workspace, edits).await, ("edited a.rs, 2 places, line 1, line 2".to_owned(), false));
        assert_eq!(fs::read_to_string(&file).unwrap(), "1\n2\n");
        fs::write(workspace.cwd.join("re\u{301}sume\u{301}"), "a\n").unwrap();
        let hidden: Hidden = std::sync::Arc::new(|_| false);
        let looks = json!({"path": "résumé", "old": "a", "new": "b"});
        let looks = Edit.complete(&looks, &workspace, &hidden).unwrap().unwrap();
        run(&Read, &workspace, json!({"path": "re\u{301}sume\u{301}"})).await;
        assert_eq!(Edit.prepare(&looks, &workspace).unwrap().effects().access.each().len(), 2);
        let (text, is_error) = run(&Edit, &workspace, looks).await;
        assert!(
            !is_error
                && text.starts_with("[there is no `résumé`; this is ")
                && text.ends_with("|edited re\u{301}sume\u{301}, line 1"),
            "{text}"
        );
        fs::write(&file, b"\xff").unwrap();
        assert_eq!(run(&Edit, &workspace, edit("two")).await, ("a.rs is not UTF-8 text".to_owned(), true));
    }
}
