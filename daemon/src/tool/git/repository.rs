//! A repository as git may read it without asking: a private git directory with the objects, references and index of the real one,
//! and with a configuration of our own.
//!
//! Programs that a repository names (filters, textconv, fsmonitor, hooks, gpg, pagers, aliases, includes) are named in its
//! configuration, which git never reads here: of it only the [`KEPT`] settings count, which are about how files are stored. So no
//! list of dangerous settings has to be complete.
//! What leads out of the workspace is refused: links inside of `.git`, objects borrowed from another repository, a `.git` file
//! unless the repository that it names knows this directory as its worktree or submodule.
//! Blocks on the disk.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::tool::handle::Entry;

/// The longest file of a git directory that is read, in bytes; configurations and lists of patterns have some thousands.
const SMALL_MAX: u64 = 1 << 20;

/// The longest index that is copied, in bytes: about two million files.
const INDEX_MAX: u64 = 256 << 20;

/// Settings of a repository that count, and what they may be; git cannot read some repositories without them.
const KEPT: [(&str, &[&str]); 11] = [
    ("core.repositoryformatversion", &["0", "1"]),
    ("core.filemode", BOOLS),
    ("core.ignorecase", BOOLS),
    ("core.symlinks", BOOLS),
    ("core.precomposeunicode", BOOLS),
    ("core.autocrlf", &["true", "false", "input"]),
    ("core.eol", &["lf", "crlf", "native"]),
    ("core.sparsecheckout", BOOLS),
    ("core.sparsecheckoutcone", BOOLS),
    ("extensions.objectformat", &["sha1", "sha256"]),
    ("extensions.refstorage", &["files", "reftable"]),
];

const BOOLS: &[&str] = &["true", "false"];

/// Files that say what git is in the middle of, for `status`.
const STATES: [&str; 13] = [
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "ORIG_HEAD",
    "FETCH_HEAD",
    "BISECT_START",
    "rebase-merge/head-name",
    "rebase-merge/onto",
    "rebase-merge/done",
    "rebase-merge/git-rebase-todo",
    "rebase-merge/interactive",
    "rebase-apply/head-name",
    "rebase-apply/onto",
];

/// The settings of every inspection; those that name a program name one that is none, as a second fence.
const OWN: &str = "\tbare = false\n\tquotePath = false\n\tfsmonitor = false\n\thooksPath = /dev/null\n\tattributesFile = /dev/null\n\
     \tpager = cat\n\tsshCommand = /dev/null\n\tgitProxy = /dev/null\n[gpg]\n\tprogram = /dev/null\n[gpg \"ssh\"]\n\
     \tprogram = /dev/null\n[gpg \"x509\"]\n\tprogram = /dev/null\n[protocol]\n\tallow = never\n[log]\n\tshowSignature = false\n\
     [diff]\n\tignoreSubmodules = dirty\n";

/// The private git directory; removed when dropped.
#[derive(Debug)]
pub(in crate::tool) struct Mirror {
    dir: Option<TempDir>,
    path: PathBuf,
    /// The configuration of the repository, which nothing has read yet.
    pub(in crate::tool) config: Vec<u8>,
}

/// Where a repository keeps what it has.
pub(crate) struct Places {
    /// What belongs to the worktree: `HEAD`, `index`.
    pub(crate) own: PathBuf,
    /// What all worktrees share: `objects`, `refs`, `config`.
    pub(crate) common: PathBuf,
}

impl Mirror {
    /// Looks at the repository whose worktree is `root`, which has no link in it. Fails with the reason.
    pub(in crate::tool) fn of(root: &Path) -> Result<Self, String> {
        let Places { own, common } = Places::of(root)?;
        let failed = |what: &'static str| move |error: io::Error| format!("{what} of the repository: {error}");
        for (path, must) in [("objects", true), ("refs", true), ("objects/pack", false), ("objects/info", false)] {
            is_directory(&common.join(path), must)?;
        }
        no_links(&common.join("objects"))?;
        no_links(&common.join("objects/pack"))?;
        if let Some(lent) = small(&common.join("objects/info/alternates"))
            && !lent.is_empty()
        {
            return Err("it borrows objects of another repository (.git/objects/info/alternates)".to_owned());
        }
        let dir = tempfile::Builder::new().prefix("linger-git-").tempdir().map_err(failed("the copy"))?;
        let path = dir.path().to_path_buf();
        let head = small(&own.join("HEAD")).ok_or("it has no readable .git/HEAD")?;
        fs::write(path.join("HEAD"), head).map_err(failed("HEAD"))?;
        let config = small(&common.join("config")).unwrap_or_default();
        let own_config = small(&own.join("config.worktree")).unwrap_or_default();
        let mirror = Self { path, dir: Some(dir), config: [config, own_config].join(&b'\n') };
        mirror.configure(&[]).map_err(failed("the configuration"))?;
        mirror.fill(&own, &common).map_err(failed("the copy"))?;
        Ok(mirror)
    }

    pub(in crate::tool) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the configuration: ours, and of the repository's own settings, each its name and value, those that are kept.
    pub(in crate::tool) fn configure(&self, settings: &[(&str, &str)]) -> io::Result<()> {
        let mut kept = BTreeMap::from([("core.repositoryformatversion", "0")]);
        for (name, value) in settings {
            let value = value.to_ascii_lowercase();
            let known = KEPT.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            if let Some((name, value)) =
                known.and_then(|(name, values)| Some((*name, *values.iter().find(|known| **known == value)?)))
            {
                kept.insert(name, value);
            }
        }
        let mut text = String::new();
        for section in ["extensions", "core"] {
            text.push_str(&format!("[{section}]\n"));
            for (name, value) in &kept {
                if let Some(key) = name.strip_prefix(section).and_then(|rest| rest.strip_prefix('.')) {
                    text.push_str(&format!("\t{key} = {value}\n"));
                }
            }
        }
        fs::write(self.path.join("config"), text + OWN)
    }

    fn fill(&self, own: &Path, common: &Path) -> io::Result<()> {
        let to = |name: &str| self.path.join(name);
        for dir in ["info", "logs", "rebase-merge", "rebase-apply"] {
            let is_needed = !dir.starts_with("rebase") || own.join(dir).is_dir();
            if is_needed {
                fs::create_dir(to(dir))?;
            }
        }
        for (dir, from) in [("objects", common), ("refs", common), ("reftable", common), ("logs/refs", common)] {
            if is_directory(&from.join(dir), true).is_ok() {
                symlink(from.join(dir), to(dir))?;
            }
        }
        for (file, from) in [("packed-refs", common), ("logs/HEAD", own)] {
            if Entry::at(&from.join(file)).and_then(|entry| entry.open()).is_ok() {
                symlink(from.join(file), to(file))?;
            }
        }
        let copied = [("shallow", common), ("info/exclude", common), ("info/sparse-checkout", own)];
        for (file, from) in copied.into_iter().chain(STATES.map(|file| (file, own))) {
            if let Some(bytes) = small(&from.join(file)) {
                fs::write(to(file), bytes)?;
            }
        }
        // A copy, for git may write it.
        if let Ok((index, metadata)) = Entry::at(&own.join("index")).and_then(|entry| entry.open()) {
            if metadata.len() > INDEX_MAX {
                return Err(io::Error::other(format!("the index has more than {} MiB", INDEX_MAX >> 20)));
            }
            let mut copy = File::create(to("index"))?;
            io::copy(&mut index.take(INDEX_MAX), &mut copy)?;
            // Git looks again at files that are as new as the index: a newer copy would hide a change of the same moment.
            copy.set_modified(metadata.modified()?)?;
        }
        for entry in fs::read_dir(own)?.flatten() {
            let is_part = entry.file_name().as_encoded_bytes().starts_with(b"sharedindex.");
            if is_part && entry.file_type()?.is_file() {
                symlink(entry.path(), self.path.join(entry.file_name()))?;
            }
        }
        File::create(to("description"))?.flush()
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // Removing it blocks.
        if let (Some(dir), Ok(runtime)) = (self.dir.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(dir));
        }
    }
}

impl Places {
    /// Those of the repository whose worktree is `root`. Fails with the reason. Blocks.
    pub(crate) fn of(root: &Path) -> Result<Self, String> {
        let git = root.join(".git");
        let status = git.symlink_metadata().map_err(|_| format!("{} is no git repository", root.display()))?;
        if status.is_dir() {
            return match git.join("commondir").symlink_metadata() {
                Ok(_) => Err("its .git directory leads elsewhere (.git/commondir)".to_owned()),
                Err(_) => Ok(Self { own: git.clone(), common: git }),
            };
        }
        let elsewhere = || "its .git file leads to a repository that does not name this directory".to_owned();
        let named = small(&git).ok_or("its .git is neither a directory nor a small file")?;
        let named = String::from_utf8(named).map_err(|_| elsewhere())?;
        let own = named.strip_prefix("gitdir: ").ok_or_else(elsewhere)?.trim_end_matches('\n');
        let own = root.join(own).canonicalize().map_err(|_| elsewhere())?;
        // A worktree: only the repository itself has written both files.
        if let (Some(back), Some(common)) = (line(&own.join("gitdir")), line(&own.join("commondir"))) {
            let common = own.join(common).canonicalize().map_err(|_| elsewhere())?;
            let names_us = own.join(back).canonicalize().is_ok_and(|back| back == git);
            let is_its = own.parent() == Some(&*common.join("worktrees"));
            return if names_us && is_its { Ok(Self { own, common }) } else { Err(elsewhere()) };
        }
        // A submodule of the repository that it lies in.
        let modules = root.ancestors().skip(1).map(|above| above.join(".git/modules"));
        let mut modules = modules.filter_map(|modules| modules.canonicalize().ok());
        if modules.any(|modules| own.starts_with(modules)) && own.join("commondir").symlink_metadata().is_err() {
            return Ok(Self { common: own.clone(), own });
        }
        Err(elsewhere())
    }
}

/// All of a small regular file; nothing if it is something else.
pub(crate) fn small(path: &Path) -> Option<Vec<u8>> {
    Entry::at(path).ok()?.read(SMALL_MAX).ok()?
}

/// The text of a small file of one line.
fn line(path: &Path) -> Option<String> {
    Some(String::from_utf8(small(path)?).ok()?.trim_end_matches('\n').to_owned())
}

/// Fails if there is something else than a directory; also if there is nothing and it `must` exist.
fn is_directory(path: &Path, must: bool) -> Result<(), String> {
    match path.symlink_metadata() {
        Ok(status) if status.is_dir() => Ok(()),
        Err(_) if !must => Ok(()),
        _ => Err(format!("its {} is no directory", path.display())),
    }
}

/// Fails if a link is in this directory; one that does not exist has none.
fn no_links(dir: &Path) -> Result<(), String> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    let is_link = |entry: &fs::DirEntry| entry.file_type().map_or(true, |kind| kind.is_symlink());
    match entries.flatten().find(is_link) {
        Some(link) => Err(format!("its {} is a link", link.path().display())),
        None => Ok(()),
    }
}
