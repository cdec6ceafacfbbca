//! Git worktrees of children, in words. Pure.

use linger_protocol::session::{Info, State};
use linger_protocol::worktree::{Merged, Worktree, WorktreeStatus};

use crate::environment::short_path;
use crate::terminal::clean_line;

/// Characters of a commit that are shown.
const COMMIT: usize = 12;

/// The line for a merge.
pub(crate) fn merged(done: &Merged) -> String {
    let Merged { branch, directory, commit, count, .. } = done;
    let files = if *count == 1 { "1 file".to_owned() } else { format!("{count} files") };
    let text = format!("merged {branch} into {}: {files}, commit {}", short_path(directory), short(commit));
    clean_line(&text).into_owned()
}

/// How a merge is taken back.
pub(crate) fn takes_back(done: &Merged) -> String {
    let text = format!("undo it with `git reset --keep {}` in {}", short(&done.before), short_path(&done.directory));
    clean_line(&text).into_owned()
}

/// The line for a worktree whose state has changed.
pub(crate) fn changed(worktree: &Worktree) -> String {
    let branch = &worktree.branch;
    let text = match worktree.status {
        WorktreeStatus::Removed => format!("the git worktree on {branch} was removed: it has no changes of its own"),
        WorktreeStatus::Merged => format!("{branch} was merged into the directory of the parent"),
        _ => format!("the git worktree on {branch} is {}", short_path(&worktree.path)),
    };
    clean_line(&text).into_owned()
}

/// The line below a session in a list, while its worktree is there. It offers the merge once the child is idle.
pub(crate) fn row(info: &Info) -> Option<String> {
    let worktree = info.delegated.as_ref()?.worktree.as_ref()?;
    let branch = clean_line(&worktree.branch).into_owned();
    match worktree.status {
        WorktreeStatus::Removed => None,
        WorktreeStatus::Merged => Some(format!("  worktree on {branch}, merged")),
        _ if !can_merge(info) => Some(format!("  worktree on {branch}")),
        _ => Some(format!("  worktree on {branch}: merge it with `linger merge {}`", info.session)),
    }
}

/// Whether a child has a worktree that can be merged: not while it works, and not twice.
pub(crate) fn can_merge(info: &Info) -> bool {
    let worktree = info.delegated.as_ref().and_then(|of| of.worktree.as_ref());
    let is_done = |worktree: &Worktree| matches!(worktree.status, WorktreeStatus::Removed | WorktreeStatus::Merged);
    info.state == State::Idle && worktree.is_some_and(|worktree| !is_done(worktree))
}

/// The line for a worktree that stays when its session is removed.
pub(crate) fn kept(worktree: &Worktree) -> String {
    let Worktree { path, branch, .. } = worktree;
    let text =
        format!("its git worktree {} on {branch} stays: it has changes that exist nowhere else", short_path(path));
    clean_line(&text).into_owned()
}

fn short(commit: &str) -> &str {
    commit.get(..COMMIT).unwrap_or(commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_says_what_it_did_and_how_it_is_taken_back() {
        let done = Merged {
            branch: "linger/c1\u{1b}[2J".to_owned(),
            directory: "/w".into(),
            before: "0123456789abcdef".to_owned(),
            commit: "fedcba9876543210".to_owned(),
            count: 1,
            ..Merged::default()
        };
        let said = merged(&done);
        assert!(
            said.starts_with("merged linger/c1") && said.ends_with(" into /w: 1 file, commit fedcba987654"),
            "{said}"
        );
        assert!(!said.contains('\u{1b}'), "{said}");
        assert_eq!(takes_back(&done), "undo it with `git reset --keep 0123456789ab` in /w");
    }
}
