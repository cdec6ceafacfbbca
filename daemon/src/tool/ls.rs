//! `ls`: lists a directory.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use linger_protocol::event::ToolKind;
use rustix::fs::{DirEntry, FileType};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::access::Effects;
use super::handle::Dir;
use super::invalid::Invalid;
use super::names::Takes;
use super::text::one_line;
use super::types::{BoxFuture, Call, Context, Tool, ToolOutput, blocking};
use super::workspace::Workspace;
use super::{args, file, path};

/// Entries that are shown; the rest is counted.
const ENTRIES_MAX: usize = 500;

pub(super) struct Ls;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    path: Option<String>,
}

impl Tool for Ls {
    fn name(&self) -> &str {
        "ls"
    }

    fn description(&self) -> &str {
        include_str!("ls.md")
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

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { path } = args::parse(input)?;
        Ok(Box::new(DirectoryListing { path: workspace.directory(path.as_deref())?, workspace: workspace.clone() }))
    }
}

struct DirectoryListing {
    path: PathBuf,
    workspace: Workspace,
}

impl Call for DirectoryListing {
    fn action(&self) -> String {
        format!("ls {}", path::show(&self.workspace.cwd, &self.path))
    }

    fn effects(&self) -> Effects {
        Effects::read(self.path.clone())
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        blocking(move |token| {
            let target = context.reached(&self.workspace, &self.path);
            let listed = list(&target, token);
            listed.unwrap_or_else(|error| file::failure(&self.workspace, &self.path, &target, &error))
        })
    }
}

pub(super) fn list(target: &Path, token: &CancellationToken) -> io::Result<ToolOutput> {
    let dir = Dir::open(target)?;
    let mut names = BTreeSet::new();
    let mut total = 0;
    for entry in dir.list()?.take_while(|_| !token.is_cancelled()) {
        let entry = entry?;
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        total += 1;
        names.insert(show(&dir, &entry));
        if names.len() > ENTRIES_MAX {
            names.pop_last();
        }
    }
    let mut listed = names.iter().map(|name| format!("{name}\n")).collect::<String>();
    if total > names.len() {
        listed.push_str(&format!("[{} more entries]", total - names.len()));
    }
    if listed.is_empty() {
        listed.push_str("[empty directory]");
    }
    Ok(ToolOutput::text(listed))
}

fn show(dir: &Dir, entry: &DirEntry) -> String {
    let name = OsStr::from_bytes(entry.file_name().to_bytes());
    let shown = one_line(&name.to_string_lossy());
    let entry_of = || dir.entry(name).ok();
    let kind = match entry.file_type() {
        // Some disks do not say.
        FileType::Unknown => entry_of().and_then(|entry| entry.status().ok()).map(|status| status.st_mode),
        kind => Some(kind.as_raw_mode()),
    };
    match kind.map(FileType::from_raw_mode) {
        Some(FileType::Directory) => format!("{shown}/"),
        Some(FileType::Symlink) => match entry_of().and_then(|entry| entry.link().ok()) {
            Some(target) => format!("{shown} -> {}", one_line(&target.to_string_lossy())),
            None => shown,
        },
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::tool::tests::{run, test_workspace};

    #[tokio::test]
    async fn entries_are_sorted_and_show_what_they_are() {
        let (_dir, workspace) = test_workspace();
        let cwd = &workspace.cwd;
        assert_eq!(run(&Ls, &workspace, json!({})).await, ("[empty directory]".to_owned(), false));
        fs::create_dir(cwd.join("src")).unwrap();
        fs::write(cwd.join(".env"), "").unwrap();
        fs::write(cwd.join("a\nb"), "").unwrap();
        fs::write(cwd.join(OsStr::from_bytes(b"c\xff")), "").unwrap();
        std::os::unix::fs::symlink("src", cwd.join("link")).unwrap();
        let listed = ".env\na\\nb\nc\u{fffd}\nlink -> src\nsrc/\n";
        assert_eq!(run(&Ls, &workspace, json!({})).await, (listed.to_owned(), false));
        let error = ".env: Not a directory (os error 20)";
        assert_eq!(run(&Ls, &workspace, json!({"path": ".env"})).await, (error.to_owned(), true));
    }

    #[tokio::test]
    async fn a_large_directory_is_cut() {
        let (_dir, workspace) = test_workspace();
        (0..510).for_each(|i| fs::write(workspace.cwd.join(format!("{i:03}")), "").unwrap());
        let (text, _) = run(&Ls, &workspace, json!({"path": "."})).await;
        assert_eq!(text.lines().count(), 501);
        assert!(text.ends_with("499\n[10 more entries]"));
    }
}
