//! Moving a session to another directory, such as that of a project that has another name.

use std::path::{Path, PathBuf};

use linger_protocol::event::Moved;

use super::*;

impl Actor {
    /// Works in `cwd` from now on; gives what earlier events say otherwise, if the directory before is gone. The event is not written
    /// yet. Fails while anything works in the directory before.
    pub(super) async fn move_to(&mut self, cwd: &Path) -> Result<Option<Moved>, RpcError> {
        self.may_move()?;
        let (env, old) = (BTreeMap::clone(&self.workspace.env), self.workspace.clone());
        let limit = disk::SHORT_TIMEOUT;
        let workspace = Arc::new(self.env.workspaces.workspace(&self.id, cwd, env, limit).await);
        self.env.read_workspace(&workspace).await;
        self.env.workspaces.watch_files(&workspace);
        let are_gone = {
            let old = old.clone();
            let probe = move || [&old.cwd, &old.root].map(|dir| !dir.is_dir());
            disk::probe(cwd, limit, probe).await.unwrap_or_default()
        };
        let [is_gone, is_root_gone] = are_gone;
        let only_here = || Moved { from: old.cwd.clone(), to: cwd.to_path_buf() };
        // Where only this directory is gone, the rest of the workspace is where it was, and so are its checkpoints.
        let moved = is_gone.then(|| if is_root_gone { renamed(&old, cwd) } else { only_here() });
        if let Some(Moved { from, to }) = moved.clone().filter(|_| is_root_gone) {
            let (calls, from_root) = (self.env.calls.clone(), from.clone());
            let followed = disk::probe(cwd, limit, move || calls.checkpoints.follow(&from_root, &to)).await;
            if let Some(Err(error)) = followed {
                tracing::warn!(target: "checkpoint", session = %self.id, from = %from.display(), %error, "checkpoints stay behind");
            }
        }
        self.workspace = workspace;
        self.workspace.added.set(&self.state.settings.directories);
        tracing::info!(target: "session", session = %self.id, from = %old.cwd.display(), to = %cwd.display(), "moved");
        Ok(moved)
    }

    /// Fails if the session cannot move now.
    fn may_move(&self) -> Result<(), RpcError> {
        if self.state.identity.parent.is_some() || self.state.task.worktree().is_some() {
            let error = RpcError::new(Code::NotAllowed, format!("session {} works where its parent says", self.id));
            return Err(error.hint("fork it: `linger fork SESSION --dir DIR`"));
        }
        let is_idle = self.state.turn.is_none() && matches!(self.phase, Phase::Idle);
        let has_work = !self.state.queue.prompts.is_empty()
            || self.state.background.running().next().is_some()
            || !self.state.children.under_way.is_empty();
        if is_idle && !has_work {
            return Ok(());
        }
        if is_idle && self.state.queue.held && !self.state.queue.prompts.is_empty() {
            let busy = RpcError::new(Code::Busy, format!("session {} has queued prompts", self.id));
            return Err(busy.hint("send them or take them back first: `linger queue SESSION --run` or `--drop`"));
        }
        let busy = RpcError::new(Code::Busy, format!("session {} is at work in its directory", self.id));
        Err(busy.hint("wait for it, or cancel it: `linger cancel SESSION --background`"))
    }

    /// Says what of the files of the workspace waits for trust.
    pub(super) async fn ask_for_trust(&mut self) {
        if let Some(text) = self.env.policy.look(&self.workspace, &self.id).await {
            let body = EventBody::notice(Level::Warning, NoticeCode::ConfigWaits, text);
            self.append(vec![Draft::new(body)], Vec::new(), false, None);
        }
    }
}

/// The directories that have another name if the session of `old` goes on in `cwd`: the whole workspace, where the same place in it is meant.
fn renamed(old: &Workspace, cwd: &Path) -> Moved {
    let below = old.cwd.strip_prefix(&old.root).unwrap_or(Path::new(""));
    let root = || -> Option<PathBuf> {
        let rest = cwd.ancestors().nth(below.components().count())?;
        cwd.ends_with(below).then(|| rest.to_path_buf())
    };
    match root() {
        Some(to) => Moved { from: old.root.clone(), to },
        None => Moved { from: old.cwd.clone(), to: cwd.to_path_buf() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_workspace_has_another_name_where_the_same_place_is_meant() {
        let check = |root: &str, cwd: &str, to: &str, from: &str, expect: &str| {
            let old = Workspace::of_files(Path::new(root), Path::new(cwd));
            assert_eq!(renamed(&old, Path::new(to)), Moved { from: from.into(), to: expect.into() });
        };
        check("/p", "/p", "/q", "/p", "/q");
        check("/p", "/p/a/b", "/q/a/b", "/p", "/q");
        check("/p", "/p/a", "/q/b", "/p/a", "/q/b");
        check("/p", "/p/a", "/q", "/p/a", "/q");
        let moved = Moved { from: "/p".into(), to: "/q".into() };
        let path = |path: &str| moved.path(path.into());
        assert_eq!(
            [path("/p/x"), path("/p"), path("/pp/x"), path("/r")],
            ["/q/x", "/q", "/pp/x", "/r"].map(PathBuf::from)
        );
    }
}
