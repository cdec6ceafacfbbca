//! Committing what a child left in its worktree, and merging it into the directory of its parent.
//!
//! It is `git merge`, in an order in which nothing has to be aborted: the merged tree is made first, without touching a file, and a
//! conflict ends it there; then changes of the directory that are not committed are looked at; then the files and the index are
//! brought up to date in one step, and the branch last. A crash before that leaves files, or staged changes, that are as the merge
//! would have them: they are in no merge's way, so the next one goes on from there.
//! From the look at the directory to the branch the index is [locked](super::index), in a way that a kill does not leave for good.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use linger_protocol::worktree::Worktree;

use super::Worktrees;
use super::run::{Private, Repository};
use crate::process::End;
use crate::sys::disk;
use crate::tool::text;
use crate::tool::workspace::Workspace;

/// The most files that an error names.
const NAMED: usize = 10;

/// The most files that a merge names.
const LISTED: usize = 1000;

/// What a child did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The latest commit.
    pub commit: String,
    /// Whether that was made of changes that were not committed.
    pub is_new: bool,
}

/// What a merge did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeDone {
    /// The commit before.
    pub before: String,
    /// The commit now.
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

impl From<String> for MergeError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl Worktrees {
    /// Commits everything in a worktree that git does not ignore, and gives its latest commit. Fails with the reason.
    pub async fn commit(&self, of: &Worktree, workspace: &Workspace, message: &str) -> Result<Work, String> {
        let _lock = self.lock(&of.path).await;
        let mut private = Private::of(&of.path, workspace, &self.children, true).await?;
        if let Some(what) = private.is_in_the_middle_of() {
            return Err(format!("{} is in the middle of {what}", of.path.display()));
        }
        private.run(&["add", "--all", "--no-warn-embedded-repo"]).await?;
        let tree = private.run(&["write-tree"]).await?.trim().to_owned();
        let [head] = <[String; 1]>::try_from(private.commits(&["HEAD"]).await?)
            .map_err(|_| format!("{} has no commit", of.path.display()))?;
        if private.run(&["rev-parse", "--verify", &format!("{head}^{{tree}}")]).await?.trim() == tree {
            return Ok(Work { commit: head, is_new: false });
        }
        private.sign(workspace).await?;
        let commit = private.run(&["commit-tree", "-p", &head, "-m", message, &tree]).await?.trim().to_owned();
        let repository = Repository::of(&of.path, workspace, &self.children)?;
        let note = format!("commit: {}", text::one_line(message.lines().next().unwrap_or_default()));
        repository.run(&["update-ref", "-m", &note, "HEAD", &commit, &head]).await?;
        Ok(Work { commit, is_new: true })
    }

    /// Merges a commit into the workspace at `root`.
    pub async fn merge(
        &self,
        (commit, branch): (&str, &str),
        workspace: &Workspace,
        message: &str,
    ) -> Result<MergeDone, MergeError> {
        let root: &Path = &workspace.root;
        let _lock = self.lock(root).await;
        let repository = Repository::of(root, workspace, &self.children)?;
        let mut private = Private::of(root, workspace, &self.children, true).await?;
        if let Some(what) = private.is_in_the_middle_of() {
            return Err(MergeError::Failed(format!("{} is in the middle of {what}: end it first", root.display())));
        }
        let Some(before) = repository.try_commit("HEAD").await? else {
            return Err(MergeError::Failed(format!("{} has no commit", root.display())));
        };
        if is_within(&private, commit, &before).await? {
            let last = last_merge(&repository, &private, branch, &before).await?;
            return Err(MergeError::Nothing(last.map(Box::new)));
        }
        let is_forward = is_within(&private, &before, commit).await?;
        let tree = if is_forward { format!("{commit}^{{tree}}") } else { merged(&private, &before, commit).await? };
        let changed = differences(&private, &before, &tree).await?;
        let lock = private.lock_index(root, self.dir.to_string_lossy().into_owned()).await?;
        let put = async {
            let InTheWay { dirty, written } = in_the_way(&private, root, &before, &changed).await?;
            if !dirty.is_empty() {
                return Err(MergeError::Dirty(listed(&dirty)));
            }
            if !written.is_empty() {
                tracing::info!(target: "worktree", root = %root.display(), files = written.len(), "goes on with a merge that was cut off");
                let names = written.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect();
                private.run_with(&["update-index", "--add", "--remove", "-z", "--stdin"], names).await?;
            }
            let now = match is_forward {
                true => commit.to_owned(),
                false => {
                    private.sign(workspace).await?;
                    let args = ["commit-tree", "-p", &before, "-p", commit, "-m", message, &tree];
                    private.run(&args).await?.trim().to_owned()
                }
            };
            private.run(&["-c", "core.sparseCheckout=false", "read-tree", "-m", "-u", &before, &now]).await?;
            lock.install(root).await?;
            let note = note(branch);
            if let Err(why) = repository.run(&["update-ref", "-m", &note, "HEAD", &now, &before]).await {
                // Another process has moved it.
                if !written.is_empty() {
                    // Some of these files may be the user's own, and git would take them away.
                    let stay = format!("its files stay, staged: {} were there before it", listed(&written));
                    return Err(MergeError::Failed(format!("{why}; {stay}")));
                }
                lock.renew(root).await?;
                private.run(&["read-tree", "-m", "-u", &now, &before]).await?;
                lock.install(root).await?;
                return Err(MergeError::Failed(why));
            }
            Ok(now)
        };
        let put = put.await;
        lock.release(root).await;
        let now = put?;
        // As `git merge` does; only a convenience.
        let _noted = repository.run(&["update-ref", "ORIG_HEAD", &before]).await;
        tracing::info!(target: "worktree", root = %root.display(), branch, commit = now, "merged");
        Ok(MergeDone::of(before, now, changed))
    }
}

impl MergeDone {
    fn of(before: String, commit: String, changed: BTreeMap<String, (Entry, Entry)>) -> Self {
        let count = u32::try_from(changed.len()).unwrap_or(u32::MAX);
        let files = changed.into_keys().take(LISTED).map(PathBuf::from).collect();
        Self { before, commit, files, count }
    }
}

/// What git notes of a merge in the log of the branch.
fn note(branch: &str) -> String {
    format!("merge {branch}")
}

/// What the merge did that made the commit `now`; `None` if that is another one.
async fn last_merge(
    repository: &Repository,
    private: &Private,
    branch: &str,
    now: &str,
) -> Result<Option<MergeDone>, String> {
    let Some((before, commit, noted)) = repository.last_move().await else { return Ok(None) };
    if commit != now || noted != note(branch) {
        return Ok(None);
    }
    let changed = differences(private, &before, &commit).await?;
    Ok(Some(MergeDone::of(before, commit, changed)))
}

/// The files that differ between two commits or trees.
async fn differences(private: &Private, before: &str, now: &str) -> Result<BTreeMap<String, (Entry, Entry)>, String> {
    let args = ["diff-tree", "-r", "--raw", "-z", "--no-abbrev", "--no-renames", before, now];
    Ok(entries(&private.run_raw(&args).await?))
}

/// Whether a commit is an ancestor of another one, or the same.
async fn is_within(private: &Private, commit: &str, of: &str) -> Result<bool, String> {
    let done = private.try_run(&["merge-base", "--is-ancestor", commit, of]).await?;
    match done.end {
        End::Status(status) if status.success() => Ok(true),
        End::Status(status) if status.code() == Some(1) => Ok(false),
        _ => Err(format!("git merge-base failed: {}", done.stderr.trim())),
    }
}

/// The tree of a merge of two commits.
async fn merged(private: &Private, ours: &str, theirs: &str) -> Result<String, MergeError> {
    let args = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs];
    let done = private.try_run(&args).await?;
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
type Entry = (String, String);

/// What `--raw -z` says, by name: the entry before and after.
fn entries(raw: &str) -> BTreeMap<String, (Entry, Entry)> {
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

fn is_absent(entry: &Entry) -> bool {
    entry.0.bytes().all(|byte| byte == b'0')
}

/// Whether two entries are of one file; objects of files that are not there say nothing.
fn is_same(a: &Entry, b: &Entry) -> bool {
    a == b || is_absent(a) && is_absent(b)
}

/// The files that a merge changes, and that are not as the last commit has them.
struct InTheWay {
    /// Those with changes that are not committed, or that are there without being git's.
    dirty: Vec<String>,
    /// Those that are as the merge would have them already: one before it was cut off.
    written: Vec<String>,
}

async fn in_the_way(
    private: &Private,
    root: &Path,
    before: &str,
    changed: &BTreeMap<String, (Entry, Entry)>,
) -> Result<InTheWay, String> {
    // Its exit code says that something has changed.
    private.try_run(&["update-index", "-q", "--refresh"]).await?;
    let fixed = ["diff-index", "--raw", "-z", "--no-abbrev", "--no-renames", "--ignore-submodules=dirty"];
    let args = |more: &[&'static str]| fixed.iter().chain(more).copied().chain([before]).collect::<Vec<&str>>();
    let staged = entries(&private.run_raw(&args(&["--cached"])).await?);
    let differs = entries(&private.run_raw(&args(&[])).await?);
    let added = changed.iter().filter(|(_, (was, _))| is_absent(was)).map(|(name, _)| name);
    let names: BTreeSet<&String> =
        staged.keys().chain(differs.keys()).chain(added).filter(|name| changed.contains_key(*name)).collect();
    let found = on_disk(private, root, names.into_iter().cloned().collect()).await?;
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

/// What is on the disk under a name.
enum Found {
    Absent,
    /// A link, and where it leads.
    Link(Vec<u8>),
    /// A file, by its mode.
    File(&'static str),
    /// Something that git does not take, or cannot be told of.
    Other,
}

/// Looks at a path. Asks the disk.
fn look(path: &Path) -> Found {
    let Ok(status) = path.symlink_metadata() else { return Found::Absent };
    if status.is_symlink() {
        return path
            .read_link()
            .map_or(Found::Other, |target| Found::Link(target.into_os_string().into_encoded_bytes()));
    }
    if !status.is_file() || path.to_str().is_none_or(|path| path.contains('\n')) {
        return Found::Other;
    }
    Found::File(if status.permissions().mode() & 0o100 == 0 { "100644" } else { "100755" })
}

/// Files as git would take them from the disk, by name.
async fn on_disk(private: &Private, root: &Path, names: Vec<String>) -> Result<Vec<(String, Entry)>, String> {
    let at = root.to_path_buf();
    let look = move || names.into_iter().map(|name| (look(&at.join(&name)), name)).collect();
    let found: Option<Vec<(Found, String)>> = disk::probe(root, disk::TIMEOUT, look).await;
    let found = found.ok_or_else(|| disk::unresponsive(root))?;
    let files = found.iter().filter(|(found, _)| matches!(found, Found::File(_)));
    let paths: String = files.map(|(_, name)| format!("{}\n", root.join(name).display())).collect();
    let hashes = match paths.is_empty() {
        true => String::new(),
        false => private.run_with(&["hash-object", "--stdin-paths"], paths.into_bytes()).await?,
    };
    let mut hashes = hashes.lines();
    let mut entries = Vec::new();
    for (found, name) in found {
        let (mode, object) = match found {
            Found::Absent => ("0", String::new()),
            Found::Link(target) => {
                ("120000", private.run_with(&["hash-object", "--stdin"], target).await?.trim().to_owned())
            }
            Found::File(mode) => (mode, hashes.next().unwrap_or_default().to_owned()),
            Found::Other => ("other", String::new()),
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
