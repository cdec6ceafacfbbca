//! Taking a checkpoint: the index of the private directory is brought up to date, and becomes a tree.
//!
//! `ls-files` names what differs from the index, which costs a look at each file. Of few files the contents are stored at once. Of
//! many, as the first time, they are only hashed; what the repository has of them is not stored again.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Access, access};

use super::directory::{CheckpointGit, REFS};
use super::modes::Modes;
use super::{MAX_BYTES, MAX_FILES, RootState, Skip};
use crate::tool::change::KEPT_MAX;

/// Files whose contents are stored without asking whether the repository has them.
const DIRECT: usize = 256;

/// Files that differ from the index.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Files whose contents are kept, and names that are gone.
    kept: Vec<Vec<u8>>,
    /// Files that are too long to keep; only their hashes are kept.
    long: Vec<Vec<u8>>,
}

#[cfg(test)]
impl Changed {
    pub(super) fn count(&self) -> usize {
        self.kept.len() + self.long.len()
    }
}

/// Takes a checkpoint, and gives its name.
pub(super) async fn take(git: &CheckpointGit, state: &mut RootState) -> Result<String, Skip> {
    let is_ready = state.is_ready;
    git.blocking(move |git| git.prepare(is_ready)).await??;
    state.is_ready = true;
    let mut modes = Modes::default();
    let taken = match attempt(git, state.last.as_deref(), &mut modes).await {
        Err(Skip::Failed(why)) => {
            // An index that cannot be read, or a file that changed while it was read.
            tracing::debug!(target: "checkpoint", root = %git.root.display(), why, "tried again with a new index");
            git.blocking(CheckpointGit::forget_index).await?;
            attempt(git, None, &mut modes).await
        }
        taken => taken,
    };
    state.last = taken.as_ref().ok().cloned();
    let tree = taken?;
    state.keep_modes(&tree, modes);
    let name = tree.clone();
    git.blocking(move |git| {
        let failed = |error: std::io::Error| Skip::Failed(format!("{}: {error}", git.dir.display()));
        fs::write(git.dir.join(REFS).join(&name), format!("{name}\n")).map_err(failed)?;
        fs::write(git.dir.join("used"), git.root.as_os_str().as_bytes()).map_err(failed)
    })
    .await??;
    Ok(tree)
}

async fn attempt(git: &CheckpointGit, last: Option<&str>, modes: &mut Modes) -> Result<String, Skip> {
    let args = ["ls-files", "-z", "--others", "--modified", "--exclude-standard"];
    // Both look at each file; they do it at the same time.
    let known = git.blocking(|git| Modes::of_index(&git.root, &fs::read(git.dir.join("index")).unwrap_or_default()));
    let (listed, known) = tokio::join!(git.run(&args, Vec::new()), known);
    let listed = listed?;
    *modes = known?;
    if let Some(last) = last.filter(|_| listed.is_empty()) {
        return Ok(last.to_owned());
    }
    let mut known = std::mem::take(modes);
    let (changed, known) = git
        .blocking(move |git| {
            let changed = measure(&git.root, &listed)?;
            let mut directories = BTreeSet::new();
            for name in listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
                known.look(&git.root, name, &mut directories);
            }
            Ok::<_, Skip>((changed, known))
        })
        .await??;
    *modes = known;
    if changed.kept.len() <= DIRECT {
        update(git, &["--add"], &changed.kept).await?;
        update(git, &["--add", "--info-only"], &changed.long).await?;
    } else {
        let all = [changed.kept, changed.long.clone()].concat();
        update(git, &["--add", "--info-only"], &all).await?;
        let missing = missing(git, changed.long.into_iter().collect()).await?;
        // So that git reads them again.
        let input = missing.join(&0);
        if !missing.is_empty() {
            git.run(&["update-index", "--force-remove", "-z", "--stdin"], ended(input)).await?;
            update(git, &["--add"], &missing).await?;
        }
    }
    let tree = git.run(&["write-tree", "--missing-ok"], Vec::new()).await?;
    let tree = String::from_utf8_lossy(&tree).trim().to_owned();
    if is_name(&tree) { Ok(tree) } else { Err(Skip::Failed("git write-tree gave no tree".to_owned())) }
}

/// Brings these names of the index up to date.
async fn update(git: &CheckpointGit, options: &[&str], names: &[Vec<u8>]) -> Result<(), Skip> {
    if names.is_empty() {
        return Ok(());
    }
    let args: Vec<&str> = [&["update-index"], options, &["--remove", "--replace", "-z", "--stdin"]].concat();
    git.run(&args, ended(names.join(&0))).await.map(drop)
}

/// The files whose contents neither the private directory nor the repository has, but for these.
async fn missing(git: &CheckpointGit, but: BTreeSet<Vec<u8>>) -> Result<Vec<Vec<u8>>, Skip> {
    let staged = git.run(&["ls-files", "--stage", "-z"], Vec::new()).await?;
    let mut files: HashMap<Vec<u8>, Vec<Vec<u8>>> = HashMap::new();
    for entry in staged.split(|byte| *byte == 0) {
        let Some((head, name)) = split_at(entry, b'\t') else { continue };
        let object = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        if !but.contains(name) {
            files.entry(object.to_vec()).or_default().push(name.to_vec());
        }
    }
    let mut input = Vec::new();
    files.keys().for_each(|object| input.extend(object.iter().chain(b"\n")));
    if input.is_empty() {
        return Ok(Vec::new());
    }
    let found = git.reading().run(&["cat-file", "--batch-check"], input).await?;
    let lost = found.split(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b" missing"));
    Ok(lost.filter_map(|object| files.remove(object)).flatten().collect())
}

/// Looks at the files that `ls-files` named. Blocks.
pub(super) fn measure(root: &Path, listed: &[u8]) -> Result<Changed, Skip> {
    let names: BTreeSet<&[u8]> = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    if names.len() > MAX_FILES {
        return Err(Skip::TooMuch(format!("it has more than {MAX_FILES} files that git does not ignore")));
    }
    let (mut changed, mut total) = (Changed::default(), 0_u64);
    for name in names {
        // A repository in the workspace is one of its own.
        if name.ends_with(b"/") {
            continue;
        }
        let path = root.join(OsStr::from_bytes(name));
        let Ok(status) = path.symlink_metadata() else {
            changed.kept.push(name.to_vec());
            continue;
        };
        if status.is_file() && access(&path, Access::READ_OK).is_err() {
            continue;
        }
        total = total.saturating_add(status.len());
        if total > MAX_BYTES {
            return Err(Skip::TooMuch(format!("more than {} MB in it are new or changed", MAX_BYTES >> 20)));
        }
        let list = if status.len() > KEPT_MAX { &mut changed.long } else { &mut changed.kept };
        list.push(name.to_vec());
    }
    Ok(changed)
}

fn ended(mut names: Vec<u8>) -> Vec<u8> {
    names.push(0);
    names
}

fn split_at(bytes: &[u8], sign: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == sign)?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

/// Whether this is the name of an object, in full.
pub(super) fn is_name(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}
