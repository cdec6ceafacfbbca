//! `ls`: lists a directory.

use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::io;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::set::Takes;
use super::text::one_line;
use super::{BoxFuture, Call, Context, Effects, Invalid, Tool, ToolOutput, Workspace, args, blocking, file, path};

/// Entries that are shown; the rest is counted.
const ENTRIES_MAX: usize = 500;

/// The tool.
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

    fn pattern(&self) -> Takes {
        Takes::Path
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { path } = args::parse(input)?;
        Ok(Box::new(Listing { path: path::directory(workspace, path.as_deref())?, workspace: workspace.clone() }))
    }
}

struct Listing {
    path: PathBuf,
    workspace: Workspace,
}

impl Call for Listing {
    fn action(&self) -> String {
        format!("ls {}", path::show(&self.workspace.cwd, &self.path))
    }

    fn effects(&self) -> Effects {
        Effects::read(self.path.clone())
    }

    fn run(self: Box<Self>, _: Context) -> BoxFuture<'static, ToolOutput> {
        blocking(move |token| match self.list(token) {
            Ok(output) => output,
            Err(error) => ToolOutput::error(file::explain(&self.workspace, &self.path, &error)),
        })
    }
}

impl Listing {
    fn list(&self, token: &CancellationToken) -> io::Result<ToolOutput> {
        let mut names = BTreeSet::new();
        let mut total = 0;
        for entry in self.path.read_dir()?.take_while(|_| !token.is_cancelled()) {
            total += 1;
            names.insert(show(&entry?));
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
}

fn show(entry: &DirEntry) -> String {
    let name = one_line(&entry.file_name().to_string_lossy());
    match entry.file_type() {
        Ok(kind) if kind.is_dir() => format!("{name}/"),
        Ok(kind) if kind.is_symlink() => match entry.path().read_link() {
            Ok(target) => format!("{name} -> {}", one_line(&target.to_string_lossy())),
            Err(_) => name,
        },
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

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
