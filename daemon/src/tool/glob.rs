//! `glob`: finds files by name.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::path::{Path, PathBuf};

use linger_protocol::event::ToolKind;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::access::Effects;
use super::handle::{Below, Dir};
use super::invalid::Invalid;
use super::names::Takes;
use super::pattern::Pattern;
use super::types::{BoxFuture, Call, Context, Tool, ToolOutput, blocking};
use super::walk::Walk;
use super::workspace::Workspace;
use super::{args, file, path};

/// Files that are shown; the rest is counted.
const RESULTS_MAX: usize = 200;

pub(super) struct Glob;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct Args {
    pattern: String,
    /// directory to search
    path: Option<String>,
}

impl Tool for Glob {
    fn name(&self) -> &str {
        "glob"
    }

    fn description(&self) -> &str {
        include_str!("glob.md")
    }

    fn schema(&self) -> Value {
        args::schema::<Args>()
    }

    fn changes(&self) -> bool {
        false
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Search
    }

    fn pattern(&self) -> Takes {
        Takes::Path
    }

    fn prepare(&self, input: &Value, workspace: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        let Args { pattern, path } = args::parse(input)?;
        let root = workspace.directory(path.as_deref())?;
        Pattern::check(&pattern)?;
        Ok(Box::new(Finding { pattern, root, workspace: workspace.clone() }))
    }
}

struct Finding {
    pattern: String,
    root: PathBuf,
    workspace: Workspace,
}

impl Call for Finding {
    fn action(&self) -> String {
        format!("glob {} in {}", self.pattern, path::show(&self.workspace.cwd, &self.root))
    }

    fn effects(&self) -> Effects {
        Effects::read(self.root.clone())
    }

    fn run(self: Box<Self>, context: Context) -> BoxFuture<'static, ToolOutput> {
        blocking(move |token| {
            let target = context.reached(&self.workspace, &self.root);
            match Pattern::new(&self.pattern).map(|glob| self.find(&target, &glob, token)) {
                Ok(Ok(output)) => output,
                Ok(Err(error)) => file::failure(&self.workspace, &self.root, &target, &error),
                Err(Invalid(problem)) => ToolOutput::error(problem),
            }
        })
    }
}

impl Finding {
    fn find(&self, target: &Path, glob: &Pattern, token: &CancellationToken) -> io::Result<ToolOutput> {
        let dir = Dir::open(target).map_err(|error| match error.kind() {
            io::ErrorKind::NotADirectory => io::Error::other("is not a directory"),
            _ => error,
        })?;
        // The oldest on top, to be thrown out.
        let mut newest = BinaryHeap::new();
        let mut below = Below::of(&dir);
        let mut total = 0;
        let mut walk = Walk::new(target, Some(glob), false, token);
        for (path, _) in walk.by_ref().filter(|(path, _)| glob.is_match(path)) {
            // Only what is there counts: a name may be one of another directory, whose link the walk met.
            let Ok(status) = below.status(&path) else { continue };
            total += 1;
            newest.push((Reverse((status.st_mtime, status.st_mtime_nsec)), self.root.join(path)));
            if newest.len() > RESULTS_MAX {
                newest.pop();
            }
        }
        let shown = newest.len();
        let cwd = &self.workspace.cwd;
        let mut found: String =
            newest.into_sorted_vec().iter().map(|(_, file)| format!("{}\n", path::show(cwd, file))).collect();
        if total > shown {
            found.push_str(&format!("[{} older files left out]\n", total - shown));
        }
        found.push_str(&walk.left_out());
        if found.is_empty() {
            found.push_str("[no file matches]");
        }
        Ok(ToolOutput::text(found))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::{Duration, SystemTime};

    use serde_json::json;

    use super::*;
    use crate::tool::tests::{run, test_workspace};

    #[tokio::test]
    async fn patterns_find_what_they_mean_and_keep_to_gitignore() {
        let (_dir, workspace) = test_workspace();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("out.rs"), "").unwrap();
        std::os::unix::fs::symlink(outside.path(), workspace.cwd.join("link")).unwrap();
        let files = ["src/a.rs", "src/deep/b.rs", "c.rs", "target/d.rs", ".github/e.yml", ".git/f.yml", "src/.g.rs"];
        for (age, file) in files.iter().enumerate() {
            let path = workspace.cwd.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = File::create(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - age as u64)).unwrap();
        }
        fs::write(workspace.cwd.join(".gitignore"), "/target\n").unwrap();
        for (input, expect) in [
            (json!({"pattern": "*.rs"}), "src/a.rs\nsrc/deep/b.rs\nc.rs\n"),
            (json!({"pattern": "./src/*.rs"}), "src/a.rs\n"),
            (json!({"pattern": "**/*.rs", "path": "src"}), "src/a.rs\nsrc/deep/b.rs\n"),
            (json!({"pattern": "*.yml"}), "[no file matches]"),
            (json!({"pattern": ".github/**"}), ".github/e.yml\n"),
            (json!({"pattern": ".g.*"}), "src/.g.rs\n"),
            (json!({"pattern": "*", "path": "c.rs"}), "c.rs is not a directory"),
            (json!({"pattern": "*", "path": "scr"}), "scr does not exist; did you mean `src`?"),
        ] {
            assert_eq!(run(&Glob, &workspace, input.clone()).await.0, expect, "{input}");
        }
    }

    #[tokio::test]
    async fn the_newest_of_many_are_shown() {
        let (_dir, workspace) = test_workspace();
        for age in 0..210 {
            let file = File::create(workspace.cwd.join(format!("{age:03}"))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - age)).unwrap();
        }
        let (text, _) = run(&Glob, &workspace, json!({"pattern": "*"})).await;
        assert!(text.starts_with("000\n001\n"));
        assert!(text.ends_with("199\n[10 older files left out]\n"), "{text}");
    }
}
