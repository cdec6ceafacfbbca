//! Committing what a child left in its worktree, and merging it into the directory of its parent.
//!
//! It is `git merge`, in an order in which nothing has to be aborted: the merged tree is made first, without touching a file, and a
//! conflict ends it there; then changes of the directory that are not committed are looked at; then the files and the index are
//! brought up to date in one step, and the branch last. A crash before that leaves files, or staged changes, that are as the merge
//! would have them: they do not block a merge, so the next one continues from there.
//! From the look at the directory to the branch the index is [locked](super::index), in a way that a kill does not leave for good.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linger_protocol::worktree::Worktree;

use super::Worktrees;
use super::index::IndexLock;
use super::run::{self, Repository};
use crate::process::End;
use crate::sys::disk;
use crate::tool::git::process::{Git, GitError};
use crate::tool::text;
use crate::tool::workspace::Workspace;

/// The most files that an error names.
const NAMED: usize = 10;

/// The most files that a merge names.
const LISTED: usize = 1000;

/// The work that a child committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Hash of the latest commit.
    pub commit: String,
    /// Whether that was made of changes that were not committed.
    pub is_new: bool,
}

/// The outcome of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeDone {
    /// Hash of the commit before the merge.
    pub before: String,
    /// Hash of the commit after the merge.
    pub commit: String,
    /// The files that differ, 1000 at most, relative to the directory.
    pub files: Vec<PathBuf>,
    /// How many there are.
    pub count: u32,
}

/// Why nothing was merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// There is nothing new; what the last merge of this branch did, unless the directory has another commit since.
    #[error("there is nothing to merge")]
    Nothing(Option<Box<MergeDone>>),
    /// The same places were changed differently.
    #[error("it conflicts in {0}")]
    Conflict(String),
    /// The directory has changes in the same files that are not committed.
    #[error("changes that are not committed are in the way: {0}")]
    Dirty(String),
    /// Something else; a reason for people.
    #[error("{0}")]
    Failed(String),
}

impl From<GitError> for MergeError {
    fn from(error: GitError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<String> for MergeError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl Worktrees {
    /// Commits everything in a worktree that git does not ignore, and gives its latest commit. Fails with the reason.
    pub async fn commit(&self, of: &Worktree, workspace: &Workspace, message: &str) -> Result<Work, String> {
        let _lock = self.lock(&of.path).await;
        let mut private = run::private(&of.path, workspace, &self.children).await?.on_own_index();
        if let Some(what) = private.unfinished() {
            return Err(format!("{} is in the middle of {what}", of.path.display()));
        }
        private.git.run(&["add", "--all", "--no-warn-embedded-repo"]).await?;
        let tree = private.git.run(&["write-tree"]).await?.trim().to_owned();
        let [head] = <[String; 1]>::try_from(private.git.commits(&["HEAD"]).await?)
            .map_err(|_| format!("{} has no commit", of.path.display()))?;
        if private.git.run(&["rev-parse", "--verify", &format!("{head}^{{tree}}")]).await?.trim() == tree {
            return Ok(Work { commit: head, is_new: false });
        }
        private.sign(workspace).await?;
        let commit = private.git.run(&["commit-tree", "-p", &head, "-m", message, &tree]).await?.trim().to_owned();
        let repository = Repository::of(&of.path, workspace, &self.children)?;
        let note = format!("commit: {}", text::one_line(message.lines().next().unwrap_or_default()));
        repository.git.run(&["update-ref", "-m", &note, "HEAD", &commit, &head]).await?;
        Ok(Work { commit, is_new: true })
    }

    /// Merges a commit of `branch` into the workspace.
    pub async fn merge(
        &self,
        commit: &str,
        branch: &str,
        workspace: &Workspace,
        message: &str,
    ) -> Result<MergeDone, MergeError> {
        let root: &Path = &workspace.root;
        let _lock = self.lock(root).await;
        let repository = Repository::of(root, workspace, &self.children)?;
        let mut private = run::private(root, workspace, &self.children).await?.on_own_index();
        if let Some(what) = private.unfinished() {
            return Err(MergeError::Failed(format!("{} is in the middle of {what}: end it first", root.display())));
        }
        let Some(before) = repository.git.commit("HEAD").await? else {
            return Err(MergeError::Failed(format!("{} has no commit", root.display())));
        };
        if is_within(&private.git, commit, &before).await? {
            let last = last_merge(&repository, &private.git, branch, &before).await?;
            return Err(MergeError::Nothing(last.map(Box::new)));
        }
        let is_forward = is_within(&private.git, &before, commit).await?;
        let tree =
            if is_forward { format!("{commit}^{{tree}}") } else { merged(&private.git, &before, commit).await? };
        let changed = differences(&private.git, &before, &tree).await?;
        let lock = private.lock_index(self.dir.to_string_lossy().into_owned()).await?;
        let put = async {
            let there = prepare_index(&private.git, &before, &changed).await?;
            let now = if is_forward {
                commit.to_owned()
            } else {
                private.sign(workspace).await?;
                let args = ["commit-tree", "-p", &before, "-p", commit, "-m", message, &tree];
                private.git.run(&args).await?.trim().to_owned()
            };
            advance(&repository, &private.git, &lock, MergeStep { branch, before: &before, now: &now, there: &there })
                .await?;
            Ok(now)
        };
        let put: Result<String, MergeError> = put.await;
        lock.release(root).await;
        let now = put?;
        // As `git merge` does; only a convenience.
        let _noted = repository.git.run(&["update-ref", "ORIG_HEAD", &before]).await;
        tracing::info!(target: "worktree", root = %root.display(), branch, commit = now, "merged");
        Ok(MergeDone::of(before, now, changed))
    }
}

/// Takes the files that a merge before this one wrote into the index, and gives them. Fails if changes that are not committed are in
/// the way.
async fn prepare_index(git: &Git, before: &str, changed: &Changed) -> Result<Vec<String>, MergeError> {
    let InTheWay { dirty, written } = in_the_way(git, before, changed).await?;
    if !dirty.is_empty() {
        return Err(MergeError::Dirty(listed(&dirty)));
    }
    if !written.is_empty() {
        tracing::info!(target: "worktree", root = %git.root.display(), files = written.len(), "continues a merge that was cut off");
        let names = written.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect();
        git.run_with(&["update-index", "--add", "--remove", "-z", "--stdin"], names).await?;
    }
    Ok(written)
}

/// The last step of a merge.
struct MergeStep<'a> {
    branch: &'a str,
    before: &'a str,
    now: &'a str,
    /// Files that were there before it as it would have them.
    there: &'a [String],
}

/// Brings the files, the index and then the branch from one commit to another. If the branch has moved, takes the files back.
async fn advance(
    repository: &Repository,
    git: &Git,
    lock: &Arc<IndexLock>,
    MergeStep { branch, before, now, there }: MergeStep<'_>,
) -> Result<(), MergeError> {
    let root = &git.root;
    git.run(&["-c", "core.sparseCheckout=false", "read-tree", "-m", "-u", before, now]).await?;
    lock.install(root).await?;
    let moved = repository.git.run(&["update-ref", "-m", &note(branch), "HEAD", now, before]).await;
    let Err(why) = moved else { return Ok(()) };
    // Another process has moved it.
    if !there.is_empty() {
        // Some of these files may be the user's own, and git would take them away.
        let stay = format!("its files stay, staged: {} were there before it", listed(there));
        return Err(MergeError::Failed(format!("{why}; {stay}")));
    }
    lock.renew(root).await?;
    git.run(&["read-tree", "-m", "-u", now, before]).await?;
    lock.install(root).await?;
    Err(why.into())
}

impl MergeDone {
    fn of(before: String, commit: String, changed: Changed) -> Self {
        let count = u32::try_from(changed.len()).unwrap_or(u32::MAX);
        let files = changed.into_keys().take(LISTED).map(PathBuf::from).collect();
        Self { before, commit, files, count }
    }
}

/// The note that git keeps of a merge in the log of the branch.
fn note(branch: &str) -> String {
    format!("merge {branch}")
}

/// The outcome of the merge that made the commit `now`; `None` if no merge of this branch made it.
async fn last_merge(repository: &Repository, git: &Git, branch: &str, now: &str) -> Result<Option<MergeDone>, String> {
    let Some((before, commit, noted)) = repository.last_move().await else { return Ok(None) };
    if commit != now || noted != note(branch) {
        return Ok(None);
    }
    let changed = differences(git, &before, &commit).await?;
    Ok(Some(MergeDone::of(before, commit, changed)))
}

/// The files that differ between two commits or trees.
async fn differences(git: &Git, before: &str, now: &str) -> Result<Changed, String> {
    let args = ["diff-tree", "-r", "--raw", "-z", "--no-abbrev", "--no-renames", before, now];
    Ok(entries(&git.run(&args).await?))
}

/// Whether a commit is an ancestor of another one, or the same.
async fn is_within(git: &Git, commit: &str, of: &str) -> Result<bool, String> {
    let done = git.finish(&["merge-base", "--is-ancestor", commit, of], Vec::new()).await?;
    match done.end {
        End::Status(status) if status.success() => Ok(true),
        End::Status(status) if status.code() == Some(1) => Ok(false),
        _ => Err(format!("git merge-base failed: {}", done.stderr.trim())),
    }
}

/// The tree of a merge of two commits.
async fn merged(git: &Git, ours: &str, theirs: &str) -> Result<String, MergeError> {
    let args = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs];
    let done = git.finish(&args, Vec::new()).await?;
    let output = String::from_utf8_lossy(&done.output).into_owned();
    let mut parts = output.split('\0').map(str::trim).filter(|part| !part.is_empty());
    let tree = parts.next().unwrap_or_default().to_owned();
    match done.end {
        End::Status(status) if status.success() => Ok(tree),
        End::Status(status) if status.code() == Some(1) => {
            let mut files: Vec<String> = parts.map(str::to_owned).collect();
            files.dedup();
            Err(MergeError::Conflict(listed(&files)))
        }
        _ if done.stderr.contains("usage:") => Err(MergeError::Failed(
            "this git cannot merge without touching files: 2.38 or later is needed; merge the branch yourself"
                .to_owned(),
        )),
        _ => Err(MergeError::Failed(format!("git merge-tree failed: {}", done.stderr.trim()))),
    }
}

/// A file as git names it: its mode and its object; of one that is not there the mode is of zeros alone.
type TreeEntry = (String, String);

/// Files by name: the entry of each before and after.
type Changed = BTreeMap<String, (TreeEntry, TreeEntry)>;

/// Parses the output of `--raw -z`.
fn entries(raw: &str) -> Changed {
    let mut entries = BTreeMap::new();
    let mut parts = raw.split('\0');
    while let (Some(head), Some(name)) = (parts.next(), parts.next()) {
        let mut words = head.trim_start_matches(':').split(' ').map(str::to_owned);
        let mut word = || words.next().unwrap_or_default();
        let (old, new, was, is) = (word(), word(), word(), word());
        entries.insert(name.to_owned(), ((old, was), (new, is)));
    }
    entries
}

fn is_absent(entry: &TreeEntry) -> bool {
    entry.0.bytes().all(|byte| byte == b'0')
}

/// Whether two entries are of one file; objects of files that are not there say nothing.
fn is_same(a: &TreeEntry, b: &TreeEntry) -> bool {
    a == b || is_absent(a) && is_absent(b)
}

/// The files that a merge changes, and that are not as the last commit has them.
struct InTheWay {
    /// Files with changes that are not committed, or that git does not track.
    dirty: Vec<String>,
    /// Files that are already as the merge would have them: an earlier one was cut off.
    written: Vec<String>,
}

async fn in_the_way(git: &Git, before: &str, changed: &Changed) -> Result<InTheWay, String> {
    // Its exit code says that something has changed.
    git.finish(&["update-index", "-q", "--refresh"], Vec::new()).await?;
    let fixed = ["diff-index", "--raw", "-z", "--no-abbrev", "--no-renames", "--ignore-submodules=dirty"];
    let args = |more: &[&'static str]| fixed.iter().chain(more).copied().chain([before]).collect::<Vec<&str>>();
    let staged = entries(&git.run(&args(&["--cached"])).await?);
    let differs = entries(&git.run(&args(&[])).await?);
    let added = changed.iter().filter(|(_, (was, _))| is_absent(was)).map(|(name, _)| name);
    let names: BTreeSet<&String> =
        staged.keys().chain(differs.keys()).chain(added).filter(|name| changed.contains_key(*name)).collect();
    let found = on_disk(git, names.into_iter().cloned().collect()).await?;
    let (mut dirty, mut written) = (Vec::new(), Vec::new());
    for (name, is) in found {
        let Some((_, wanted)) = changed.get(&name) else { continue };
        let is_known = staged.contains_key(&name) || differs.contains_key(&name);
        if !is_known && is_absent(&is) {
            continue;
        }
        let is_staged = staged.get(&name).is_none_or(|(_, now)| is_same(now, wanted));
        if is_staged && is_same(&is, wanted) { written.push(name) } else { dirty.push(name) }
    }
    Ok(InTheWay { dirty, written })
}

/// A name on the disk.
enum OnDisk {
    Absent,
    /// A link, and where it leads.
    Link(Vec<u8>),
    /// A file, by its mode.
    File(&'static str),
    /// Something that git does not take, or cannot be told of.
    Other,
}

/// Looks at a path. Asks the disk.
fn look(path: &Path) -> OnDisk {
    let Ok(status) = path.symlink_metadata() else { return OnDisk::Absent };
    if status.is_symlink() {
        return path
            .read_link()
            .map_or(OnDisk::Other, |target| OnDisk::Link(target.into_os_string().into_encoded_bytes()));
    }
    if !status.is_file() || path.to_str().is_none_or(|path| path.contains('\n')) {
        return OnDisk::Other;
    }
    OnDisk::File(if status.permissions().mode() & 0o100 == 0 { "100644" } else { "100755" })
}

/// Files as git would take them from the disk, by name.
async fn on_disk(git: &Git, names: Vec<String>) -> Result<Vec<(String, TreeEntry)>, String> {
    let (root, at) = (&git.root, git.root.clone());
    let look = move || names.into_iter().map(|name| (look(&at.join(&name)), name)).collect();
    let found: Option<Vec<(OnDisk, String)>> = disk::probe(root, disk::TIMEOUT, look).await;
    let found = found.ok_or_else(|| disk::unresponsive(root))?;
    let files = found.iter().filter(|(found, _)| matches!(found, OnDisk::File(_)));
    let paths: String = files.map(|(_, name)| format!("{}\n", root.join(name).display())).collect();
    let hashes = if paths.is_empty() {
        String::new()
    } else {
        git.run_with(&["hash-object", "--stdin-paths"], paths.into_bytes()).await?
    };
    let mut hashes = hashes.lines();
    let mut entries = Vec::new();
    for (found, name) in found {
        let (mode, object) = match found {
            OnDisk::Absent => ("0", String::new()),
            OnDisk::Link(target) => {
                ("120000", git.run_with(&["hash-object", "--stdin"], target).await?.trim().to_owned())
            }
            OnDisk::File(mode) => (mode, hashes.next().unwrap_or_default().to_owned()),
            OnDisk::Other => ("other", String::new()),
        };
        entries.push((name, (mode.to_owned(), object)));
    }
    Ok(entries)
}

/// Some names of files, for people.
fn listed(files: &[String]) -> String {
    let names: Vec<String> = files.iter().take(NAMED).map(|name| text::one_line(name)).collect();
    let more = files.len().saturating_sub(NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", names.join(", "))
}
