//! For tests: a repository of real git in a home of its own, and a program that leaves a file when it runs.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::process::{Input, Stderr};
use crate::tool::tests::test_workspace;
use crate::tool::workspace::Workspace;

/// The repository, of an author with a name.
pub(in crate::tool::git) struct Repository {
    /// Holds `w`, the workspace; `canary`, the program, which `$C` names; and `ran`, if it ran.
    pub(in crate::tool::git) dir: tempfile::TempDir,
    pub(in crate::tool::git) workspace: Workspace,
}

impl Repository {
    /// One on `main` after a script, with this program.
    pub(in crate::tool::git) async fn new(canary: &str, script: &str) -> Self {
        let (dir, mut workspace) = test_workspace();
        let home = dir.path().canonicalize().unwrap();
        let root = home.join("w");
        fs::create_dir(&root).unwrap();
        let mut env = (*workspace.env).clone();
        let more = [("HOME", home.clone()), ("C", home.join("canary"))];
        env.extend(more.map(|(name, value)| (name.to_owned(), value.to_string_lossy().into_owned())));
        (workspace.cwd, workspace.root, workspace.env) = (root.clone(), root, Arc::new(env));
        fs::write(home.join("canary"), canary).unwrap();
        let it = Self { dir, workspace };
        it.sh("chmod +x $C; git config --global user.name a; git config --global user.email a@b; git init -q -b main")
            .await;
        it.sh(script).await;
        it
    }

    /// Runs a script in the workspace; what it prints.
    pub(in crate::tool::git) async fn sh(&self, script: &str) -> String {
        let spawn = self.workspace.spawn(Default::default(), None);
        let process = spawn.shell(script, Input::Nothing, Stderr::Merged).await.unwrap();
        let done = process.finish(Duration::from_secs(60), 1 << 20).await.unwrap();
        String::from_utf8_lossy(&done.output).into_owned()
    }

    pub(in crate::tool::git) fn path(&self, name: &str) -> PathBuf {
        self.workspace.root.join(name)
    }

    /// Whether the program ran since the last time.
    pub(in crate::tool::git) fn ran(&self) -> bool {
        fs::remove_file(self.dir.path().join("ran")).is_ok()
    }
}
