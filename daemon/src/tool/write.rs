//! `write`: makes or replaces a file.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use linger_protocol::event::ToolKind;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::access::{Effects, Targets};
use super::change::{Change, Content};
use super::handle::{self, Entry};
use super::invalid::Invalid;
use super::names::Takes;
use super::types::{BoxFuture, Call, Context, SessionTraits, Tool, ToolOutput, blocking};
use super::workspace::Workspace;
use super::{args, file, patching, path, replace};
use crate::store::blob::Blobs;

const NAME: &str = patching::WRITE;

/// The byte order mark of UTF-8.
const MARK: &str = "\u{feff}";

pub(super) struct Write;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    path: String,
    content: String,
}

impl Tool for Write {
    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        include_str!("write.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
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

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { path, content } = args::parse(input)?;
        Ok(Box::new(PreparedWrite { path: workspace.absolute(&path)?, content, workspace: workspace.clone() }))
    }
}

struct PreparedWrite {
    path: PathBuf,
    content: String,
    workspace: Workspace,
}

impl Call for PreparedWrite {
    fn action(&self) -> String {
        format!("write {}", path::show(&self.workspace.cwd, &self.path))
    }

    fn effects(&self) -> Effects {
        Effects::write(self.path.clone())
    }

    fn preview(&self, targets: &Targets) -> Vec<Change> {
        let change = |target: &Path| match Entry::at(target) {
            Ok(entry) => self.change(target, &entry).ok(),
            // Its directories are made when it runs.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Some(Change::written(target, Content::Missing, self.content.as_bytes()))
            }
            Err(_) => None,
        };
        targets.of(&self.path).and_then(change).into_iter().collect()
    }

    fn refusal(&self, targets: &Targets) -> Option<String> {
        let target = targets.of(&self.path)?;
        let before = match Entry::at(target).and_then(|entry| Content::of(&entry)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Content::Missing,
            Err(error) => return Some(file::explain(&self.workspace, &self.path, target, &error)),
            Ok(before) => before,
        };
        self.may_replace(target, &before).err()
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        blocking(move |_| {
            let target = context.reached(&self.workspace, &self.path);
            let written = self.write(&target, &context.blobs);
            written.unwrap_or_else(|error| file::failure(&self.workspace, &self.path, &target, &error))
        })
    }
}

impl PreparedWrite {
    fn write(&self, target: &Path, blobs: &Blobs) -> io::Result<ToolOutput> {
        if !self.workspace.cwd.is_dir() {
            // Its directories are not to be made again.
            return Err(io::ErrorKind::NotFound.into());
        }
        let missing = handle::missing_above(target);
        let entry = Entry::make(target)?;
        let change = self.change(target, &entry)?;
        let shown = path::show(&self.workspace.cwd, &self.path);
        if let Err(why) = self.may_replace(target, &change.before) {
            return Ok(ToolOutput::error(why));
        }
        let mut kept = change.keep(blobs)?;
        kept.change.directories = vec![0o755; missing];
        let written = self.text(&change.before);
        entry.replace(written.as_bytes())?;
        let (verb, old) = match &change.before {
            Content::Missing => ("created", Some("")),
            before => ("wrote", before.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())),
        };
        let diff = old.and_then(|old| file::diff(&shown, old, &written));
        let told = self.workspace.seen.wrote(target, written.as_bytes(), diff.as_deref());
        let told = told.map(|told| format!("\n{told}")).unwrap_or_default();
        let said = ToolOutput::text(format!("{verb} {shown}, {} bytes{told}", written.len()));
        Ok(ToolOutput { diff, changes: vec![kept], ..said })
    }

    /// Fails unless the model knows what it overwrites; the error is for the model.
    fn may_replace(&self, target: &Path, before: &Content) -> Result<(), String> {
        let shown = path::show(&self.workspace.cwd, &self.path);
        self.workspace.seen.check(target, before).map_err(|why| format!("{shown} is not overwritten: {why}"))
    }

    fn change(&self, target: &Path, entry: &Entry) -> io::Result<Change> {
        let before = Content::of(entry)?;
        let after = self.text(&before).into_owned();
        Ok(Change::written(target, before, after))
    }

    /// The text that is written over `before`: with its byte order mark, and with its line ends if all of them are those of Windows,
    /// neither of which a model sees. A text that has them itself is written as it is.
    fn text(&self, before: &Content) -> Cow<'_, str> {
        let Some(before) = before.bytes() else { return Cow::Borrowed(&self.content) };
        let mut text = Cow::Borrowed(self.content.as_str());
        if !text.contains('\r') && replace::windows(&String::from_utf8_lossy(before)) {
            text = Cow::Owned(replace::with_crlf(&text));
        }
        if before.starts_with(MARK.as_bytes()) && !text.starts_with(MARK) {
            text = Cow::Owned(format!("{MARK}{text}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use serde_json::json;

    use super::*;
    use crate::tool::read::Read;
    use crate::tool::tests::{run, test_context, test_workspace};

    #[tokio::test]
    async fn a_new_file_gets_its_directories_and_the_usual_mode() {
        let (_dir, workspace) = test_workspace();
        let (text, _) = run(&Write, &workspace, json!({"path": "a/b/c", "content": "x\n"})).await;
        assert_eq!(text, "created a/b/c, 2 bytes");
        let path = workspace.cwd.join("a/b/c");
        fs::write(workspace.cwd.join("usual"), "").unwrap();
        let usual = workspace.cwd.join("usual").metadata().unwrap().permissions();
        assert_eq!(path.metadata().unwrap().permissions(), usual);
        assert_eq!(fs::read_to_string(path).unwrap(), "x\n");
    }

    #[tokio::test]
    async fn an_old_file_keeps_its_mode_its_link_and_shows_what_changed() {
        let (_dir, workspace) = test_workspace();
        let file = workspace.cwd.join("script");
        fs::write(&file, "a\nb\n").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o750)).unwrap();
        symlink("script", workspace.cwd.join("link")).unwrap();
        let unread = run(&Write, &workspace, json!({"path": "link", "content": "x"})).await;
        assert_eq!(unread, ("link is not overwritten: you have not read it; read it first".to_owned(), true));
        run(&Read, &workspace, json!({"path": "link"})).await;
        let call = Write.prepare(&json!({"path": "link", "content": "a\nc\n"}), &workspace).unwrap();
        let (output, _receiver) = tokio::sync::mpsc::channel(1);
        let output = call.run(test_context(&workspace, output)).await;
        assert_eq!(output.content, ToolOutput::text("wrote link, 4 bytes").content);
        assert_eq!(output.diff.unwrap(), "--- link\n+++ link\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
        assert_eq!(fs::read_to_string(&file).unwrap(), "a\nc\n");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o750);
        assert!(workspace.cwd.join("link").is_symlink());
        let left = fs::read_dir(&workspace.cwd).unwrap().count();
        assert_eq!(left, 3, "a temporary file was left beside the file, its link and the blobs");
    }

    #[tokio::test]
    async fn a_file_keeps_its_mark_and_its_uniform_line_ends() {
        let (_dir, workspace) = test_workspace();
        let file = workspace.cwd.join("f");
        for (old, new, expect) in [
            ("one\r\ntwo\r\n", "one\nTWO\n", "one\r\nTWO\r\n"),
            ("\u{feff}a\nb\n", "a\nc\n", "\u{feff}a\nc\n"),
            ("\u{feff}a;b\r\n", "a;c", "\u{feff}a;c"),
            ("\u{feff}a;b\r\n", "a\n\n", "\u{feff}a\r\n\r\n"),
            ("a\r\nb\n", "x\ny\n", "x\ny\n"),
            ("a\r\n", "x\r\ny\n", "x\r\ny\n"),
            ("a\n", "x\r\n", "x\r\n"),
            ("\u{feff}a\n", "\u{feff}b\n", "\u{feff}b\n"),
            ("a", "x\n", "x\n"),
            ("", "x\n", "x\n"),
        ] {
            fs::write(&file, old).unwrap();
            run(&Read, &workspace, json!({"path": "f"})).await;
            let call = Write.prepare(&json!({"path": "f", "content": new}), &workspace).unwrap();
            let (output, _receiver) = tokio::sync::mpsc::channel(1);
            let context = test_context(&workspace, output);
            let output = call.run(context).await;
            assert_eq!(fs::read_to_string(&file).unwrap(), expect, "{old:?} {new:?}");
            let text = linger_protocol::message::text_of(&output.content);
            assert_eq!(text, format!("wrote f, {} bytes", expect.len()), "{old:?} {new:?}");
            // What was written is known.
            let again = run(&Write, &workspace, json!({"path": "f", "content": new})).await;
            assert!(!again.1, "{again:?}");
        }
        let latin = b"caf\xe9\r\n";
        fs::write(&file, latin).unwrap();
        workspace
            .seen
            .knows(&file, sha2::Digest::finalize(<sha2::Sha256 as sha2::Digest>::new_with_prefix(latin)).into());
        run(&Write, &workspace, json!({"path": "f", "content": "x\ny\n"})).await;
        assert_eq!(fs::read(&file).unwrap(), b"x\r\ny\r\n");
    }

    #[tokio::test]
    async fn what_is_no_file_is_left_alone() {
        let (_dir, workspace) = test_workspace();
        fs::create_dir(workspace.cwd.join("dir")).unwrap();
        fs::write(workspace.cwd.join("file"), "x").unwrap();
        for (path, expect) in [
            ("dir", "dir is a directory; use ls"),
            ("/dev/null", "/dev/null is not a regular file"),
            ("file/x", "file/x: Not a directory (os error 20)"),
        ] {
            let got = run(&Write, &workspace, json!({"path": path, "content": ""})).await;
            assert_eq!(got, (expect.to_owned(), true));
        }
    }

    #[tokio::test]
    async fn a_long_diff_is_cut() {
        let diff = file::diff("x", "", &"line\n".repeat(10_000)).unwrap();
        assert!(diff.len() < 8300 && diff.ends_with(" bytes left out]\n"), "{}", diff.len());
    }
}
