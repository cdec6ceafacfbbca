//! Private git directories, in which linger's own git works: with a configuration of linger's own.
//!
//! Programs that a repository names (filters, textconv, fsmonitor, hooks, gpg, pagers, aliases, includes) are named in its
//! configuration, which git never reads here. So no list of dangerous settings has to be complete.
//!
//! A [`Mirror`] has the objects and references of a repository by links, and a copy of its index; it is removed after use. Only the
//! repository's [`KEPT`] settings count there, which are about how files are stored. What leads out of the workspace is refused:
//! links inside of `.git`, objects borrowed from another repository, and what [`Places`] refuses. So is what git would wait for, a
//! FIFO; and what cannot be read is refused, not taken for absent.
//! The directory of checkpoints stays; it has the same frame ([`lay_out`]), and objects and an index of its own.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::runtime::Handle;

use super::places::{Places, if_there, only_files, small};
use super::process::{Git, GitError, QUIET};
use crate::sys::disk;
use crate::tool::handle::Entry;

/// The longest index that is copied, in bytes: about two million files.
const INDEX_MAX: u64 = 256 << 20;

/// How much of it is read at once.
const INDEX_PART: usize = 64 << 10;

/// The mode of a submodule in an index (gitformat-index(5)).
pub(super) const SUBMODULE: [u8; 4] = 0o160_000_u32.to_be_bytes();

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

/// Settings of every private git directory in addition to [`QUIET`].
const PRIVATE: [(&str, &str); 2] = [("core.bare", "false"), ("core.quotePath", "false")];

/// Settings of every mirror in addition to the repository's kept ones.
const MIRROR: [(&str, &str); 2] = [("log.showSignature", "false"), ("diff.ignoreSubmodules", "dirty")];

/// A private git directory that mirrors a repository; removed when dropped.
#[derive(Debug)]
pub(super) struct Mirror {
    dir: Option<TempDir>,
    pub(super) path: PathBuf,
    /// The configuration of the repository, which nothing has read yet.
    config: Vec<u8>,
    /// Whether the index may have submodules.
    pub(super) may_have_submodules: bool,
}

impl Mirror {
    /// Looks at the repository whose worktree is `root`, which has no link in it. Fails with the reason.
    pub(super) fn of(root: &Path) -> Result<Self, String> {
        let Places { own, common } = Places::of(root)?;
        let failed = |what: &'static str| move |error: io::Error| format!("{what} of the repository: {error}");
        check(&common)?;
        let dir = tempfile::Builder::new().prefix("linger-git-").tempdir().map_err(failed("the copy"))?;
        let path = dir.path().to_path_buf();
        let head = small(&own.join("HEAD")).ok_or("it has no readable .git/HEAD")?;
        lay_out(&path, &head, &[("core.repositoryformatversion", "0")]).map_err(failed("the copy"))?;
        let config = if_there(&common.join("config"))?.unwrap_or_default();
        let own_config = if_there(&own.join("config.worktree"))?.unwrap_or_default();
        let config = [config, own_config].join(&b'\n');
        let mut mirror = Self { path, dir: Some(dir), config, may_have_submodules: false };
        mirror.fill(&own, &common).map_err(failed("the copy"))?;
        Ok(mirror)
    }

    /// Writes the configuration: linger's own, with those of the repository's settings that are kept.
    fn configure(&self, settings: &[(String, String)]) -> io::Result<()> {
        let mut kept = BTreeMap::from([("core.repositoryformatversion", "0")]);
        for (name, value) in settings {
            let value = value.to_ascii_lowercase();
            let known = KEPT.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
            if let Some((name, values)) = known
                && let Some(value) = values.iter().find(|known| **known == value)
            {
                kept.insert(name, value);
            }
        }
        fs::write(self.path.join("config"), configuration(kept.into_iter().chain(MIRROR)))
    }

    fn fill(&mut self, own: &Path, common: &Path) -> io::Result<()> {
        let path = self.path.clone();
        let to = |name: &str| path.join(name);
        for dir in ["logs", "rebase-merge", "rebase-apply"] {
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
            match Entry::at(&from.join(file)).and_then(|entry| entry.open()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unreadable(&from.join(file), &error)),
                Ok(_) => symlink(from.join(file), to(file))?,
            }
        }
        if let Some(shallow) = if_there(&common.join("shallow")).map_err(io::Error::other)? {
            fs::write(to("shallow"), shallow)?;
        }
        let copied = [("info/exclude", common), ("info/sparse-checkout", own)];
        for (file, from) in copied.into_iter().chain(STATES.map(|file| (file, own))) {
            if let Some(bytes) = small(&from.join(file)) {
                fs::write(to(file), bytes)?;
            }
        }
        match Entry::at(&own.join("index")).and_then(|entry| entry.open()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unreadable(&own.join("index"), &error)),
            Ok((index, metadata)) => self.copy_index(index, &metadata)?,
        }
        for entry in fs::read_dir(own)?.flatten() {
            let is_part = entry.file_name().as_encoded_bytes().starts_with(b"sharedindex.");
            if is_part && entry.file_type()?.is_file() {
                symlink(entry.path(), self.path.join(entry.file_name()))?;
                self.may_have_submodules = true;
            }
        }
        File::create(to("description"))?.flush()
    }

    /// Copies the index, for git may write it.
    fn copy_index(&mut self, mut index: File, metadata: &Metadata) -> io::Result<()> {
        if metadata.len() > INDEX_MAX {
            return Err(io::Error::other(format!("the index has more than {} MiB", INDEX_MAX >> 20)));
        }
        let mut copy = File::create(self.path.join("index"))?;
        let (mut part, mut kept, mut left) = (vec![0; INDEX_PART], 0, INDEX_MAX);
        loop {
            let read = index.read(part.get_mut(kept..).unwrap_or_default())?;
            let read_to = kept + read;
            let Some(new) = part.get(kept..read_to).filter(|new| !new.is_empty() && left > 0) else { break };
            copy.write_all(new)?;
            left = left.saturating_sub(new.len() as u64);
            self.may_have_submodules |=
                memchr::memmem::find(part.get(..read_to).unwrap_or_default(), &SUBMODULE).is_some();
            // The end of this part may be the beginning of what is searched for.
            let begin = read_to.saturating_sub(SUBMODULE.len() - 1);
            part.copy_within(begin..read_to, 0);
            kept = read_to - begin;
        }
        // Git looks again at files that are as new as the index: a newer copy would hide a change of the same moment.
        copy.set_modified(metadata.modified()?)
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

/// A [`Mirror`] whose configuration is complete, and git that works in it.
#[derive(Debug)]
pub(super) struct Private {
    pub(super) mirror: Mirror,
    pub(super) git: Git,
    /// Directory of the worktree's own files in the real repository.
    pub(super) own: PathBuf,
}

impl Private {
    /// Mirrors the repository of the worktree that `git` is about. Fails with the reason.
    pub(super) async fn of(git: Git) -> Result<Self, String> {
        let at = git.root.clone();
        let made = disk::probe(&git.root, disk::TIMEOUT, move || Ok((Mirror::of(&at)?, Places::of(&at)?))).await;
        let (mirror, Places { own, .. }) = made.unwrap_or_else(|| Err(disk::unresponsive(&git.root)))?;
        let git = git.in_private(&mirror.path);
        let this = Self { mirror, git, own };
        let settings = this.repository_settings().await?;
        this.mirror.configure(&settings).map_err(|error| error.to_string())?;
        Ok(this)
    }

    /// The same on the worktree's own index, not on a copy.
    pub(super) fn on_own_index(mut self) -> Self {
        self.git = self.git.with("GIT_INDEX_FILE", self.own.join("index"));
        self
    }

    /// Fails if a submodule leads git elsewhere or would make it wait: git looks into each, whatever it is told to ignore.
    pub(super) async fn check_submodules(&self) -> Result<(), String> {
        if !self.mirror.may_have_submodules {
            return Ok(());
        }
        let listed = self.git.run(&["ls-files", "--stage", "-z"]).await?;
        // `MODE OBJECT STAGE<tab>PATH`: git-ls-files(1).
        let submodules = listed.split('\0').filter(|line| line.starts_with("160000 "));
        let at: Vec<PathBuf> =
            submodules.filter_map(|line| Some(self.git.root.join(line.split_once('\t')?.1))).collect();
        let look = move || at.iter().try_for_each(|at| check_submodule(at));
        let looked = disk::probe(&self.git.root, disk::TIMEOUT, look).await;
        looked.unwrap_or_else(|| Err(disk::unresponsive(&self.git.root)))
    }

    /// The settings of the repository: names in lower case, and values.
    pub(super) async fn repository_settings(&self) -> Result<Vec<(String, String)>, GitError> {
        self.settings(self.mirror.config.clone()).await
    }

    /// The settings in the text of a configuration, which includes no other.
    pub(super) async fn settings(&self, text: Vec<u8>) -> Result<Vec<(String, String)>, GitError> {
        let listed = self.git.run_with(&["config", "--file", "-", "--no-includes", "-z", "--list"], text).await?;
        let pairs = listed.split('\0').filter_map(|line| line.split_once('\n'));
        Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }
}

/// Writes what every private git directory has: `HEAD`, and a configuration with these settings and linger's own. Blocks.
pub(super) fn lay_out(dir: &Path, head: &[u8], settings: &[(&str, &str)]) -> io::Result<()> {
    fs::create_dir_all(dir.join("info"))?;
    fs::write(dir.join("HEAD"), head)?;
    fs::write(dir.join("config"), configuration(settings.iter().copied()))
}

/// The text of a configuration with these settings and linger's own.
fn configuration<'a>(settings: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let line = |(name, value): (&str, &str)| {
        let (section, key) = name.rsplit_once('.').unwrap_or_default();
        let section =
            section.split_once('.').map_or(section.to_owned(), |(section, part)| format!("{section} \"{part}\""));
        format!("[{section}]\n\t{key} = {value}\n")
    };
    settings.chain(PRIVATE).chain(QUIET).map(line).collect()
}

/// Fails if there is something else than a directory; also if there is nothing and it `must` exist.
fn is_directory(path: &Path, must: bool) -> Result<(), String> {
    match path.symlink_metadata() {
        Ok(status) if status.is_dir() => Ok(()),
        Err(_) if !must => Ok(()),
        _ => Err(format!("its {} is no directory", path.display())),
    }
}

/// Fails if the directory that all worktrees of a repository share has something that git would follow out of it or wait for.
pub(super) fn check(common: &Path) -> Result<(), String> {
    for (path, must) in [("objects", true), ("refs", true), ("objects/pack", false), ("objects/info", false)] {
        is_directory(&common.join(path), must)?;
    }
    only_files(["objects", "refs", "logs", "reftable"].map(|directory| common.join(directory)).into())?;
    match if_there(&common.join("objects/info/alternates"))? {
        Some(lent) if !lent.is_empty() => {
            Err("it borrows objects of another repository (.git/objects/info/alternates)".to_owned())
        }
        _ => Ok(()),
    }
}

/// Fails unless the submodule in this directory is not checked out, or has a repository that leads nowhere else.
fn check_submodule(submodule: &Path) -> Result<(), String> {
    let look = || match submodule.join(".git").symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.to_string()),
        Ok(_) => {
            let Places { own, common } = Places::of(submodule)?;
            small(&own.join("HEAD")).ok_or("it has no readable HEAD")?;
            if_there(&common.join("packed-refs"))?;
            check(&common)
        }
    };
    look().map_err(|why| format!("of its submodule {}: {why}", submodule.display()))
}

fn unreadable(path: &Path, error: &io::Error) -> io::Error {
    io::Error::other(format!("{} cannot be read: {error}", path.display()))
}
