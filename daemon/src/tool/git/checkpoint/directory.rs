//! The private git directory of a workspace, and running git in it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::Skip;
use crate::process::server::Children;
use crate::sys::disk;
use crate::tool::git::places::{Places, small};
use crate::tool::git::private::lay_out;
use crate::tool::git::process::{Git, GitError};
use crate::tool::workspace::Workspace;

/// The most bytes that one call of git may write: the names of twice as many files as a checkpoint may have, or contents.
const OUTPUT_MAX: usize = 48 << 20;

/// How long one call of git may take.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// Where the names of checkpoints are kept, so that git knows which objects are used.
pub(super) const REFS: &str = "refs/checkpoints";

/// Settings of the directory. Objects are not synced: after a power cut a checkpoint may be gone, which costs an undo, and a
/// checkpoint that syncs thousands of files costs each call.
const SETTINGS: [(&str, &str); 9] = [
    ("core.repositoryformatversion", "0"),
    ("core.filemode", "true"),
    ("core.symlinks", "true"),
    ("core.autocrlf", "false"),
    ("core.logAllRefUpdates", "false"),
    ("core.fsync", "none"),
    ("core.untrackedCache", "false"),
    ("core.splitIndex", "false"),
    ("index.version", "4"),
];

/// Overrides the attributes of the workspace: contents are kept as they are.
const ATTRIBUTES: &str = "* -text -ident -diff !eol !filter !working-tree-encoding !crlf\n";

/// Git in the private directory of one workspace.
#[derive(Clone, Debug)]
pub(super) struct CheckpointGit {
    pub(super) dir: PathBuf,
    /// The workspace.
    pub(super) root: PathBuf,
    git: Git,
}

impl From<GitError> for Skip {
    fn from(error: GitError) -> Self {
        match error {
            GitError::NotStarted(error) if error.kind() == io::ErrorKind::NotFound => Self::NotHere,
            GitError::TooMuch(_) => Self::TooMuch("its files have too many names".to_owned()),
            GitError::TooLate(..) => Self::TooMuch(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl CheckpointGit {
    /// The directory of the workspace at `root`, below the directory of all.
    pub(super) fn of(all: &Path, root: &Path, workspace: &Workspace, children: Children) -> Self {
        let dir = private(all, root);
        let git = Git::of_daemon(root, workspace, children).within(CALL_LIMIT, OUTPUT_MAX).in_private(&dir);
        Self { dir, root: root.to_path_buf(), git }
    }

    /// The same, but objects are also looked up in the repository: for calls that only read, because git would change the times of
    /// files there when it finds what it is to write.
    pub(super) fn reading(&self) -> Self {
        let this = self.clone();
        match objects_of(&self.root) {
            Some(objects) => Self { git: this.git.with("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&objects)), ..this },
            None => this,
        }
    }

    /// Runs git for its output.
    pub(super) async fn run<S: AsRef<OsStr>>(&self, args: &[S], input: Vec<u8>) -> Result<Vec<u8>, Skip> {
        Ok(self.git.bytes(args, input).await?)
    }

    /// Whether these checkpoints are kept. Asks the disk, shortly.
    pub(super) fn has(&self, checkpoints: &[&str]) -> bool {
        checkpoints.iter().all(|tree| self.dir.join(REFS).join(tree).exists())
    }

    /// Runs `work` on a thread that may block.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Skip> {
        let this = self.clone();
        let done = disk::probe(&self.root, disk::TIMEOUT, move || work(&this)).await;
        done.ok_or_else(|| Skip::Failed(disk::unresponsive(&self.root)))
    }

    /// Makes the private directory, or what is missing of it; fails with [`Skip::NotHere`] without a repository. Blocks.
    pub(super) fn prepare(&self, is_ready: bool) -> Result<(), Skip> {
        if self.root.join(".git").symlink_metadata().is_err() {
            return Err(Skip::NotHere);
        }
        let failed = |error: io::Error| Skip::Failed(format!("{}: {error}", self.dir.display()));
        // A directory that was not used for long may have been removed meanwhile.
        if !is_ready || !self.dir.join("config").exists() {
            linger_protocol::place::private_directory(self.dir.parent().unwrap_or(&self.dir))
                .map_err(|error| Skip::Failed(error.to_string()))?;
            for below in ["objects/pack", "objects/info", REFS] {
                fs::create_dir_all(self.dir.join(below)).map_err(failed)?;
            }
            lay_out(&self.dir, b"ref: refs/heads/none\n", &SETTINGS).map_err(failed)?;
            fs::write(self.dir.join("info/attributes"), ATTRIBUTES).map_err(failed)?;
            self.repair().map_err(failed)?;
        }
        // Nothing else works here: it is of a process that is gone.
        match fs::remove_file(self.dir.join("index.lock")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let excluded = Places::of(&self.root).ok().and_then(|places| small(&places.common.join("info/exclude")));
        fs::write(self.dir.join("info/exclude"), excluded.unwrap_or_default()).map_err(failed)
    }

    /// Removes what a power cut has left empty: git would take an empty file for the object.
    fn repair(&self) -> io::Result<()> {
        let booted = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let stamp = self.dir.join("boot");
        if fs::read(&stamp).is_ok_and(|last| last == booted) {
            return Ok(());
        }
        for shelf in fs::read_dir(self.dir.join("objects"))?.flatten() {
            let Ok(objects) = fs::read_dir(shelf.path()) else { continue };
            for object in objects.flatten().filter(|object| object.metadata().is_ok_and(|meta| meta.len() == 0)) {
                fs::remove_file(object.path())?;
            }
        }
        fs::write(stamp, booted)
    }

    /// Forgets the index, which is made again from the files. Blocks.
    pub(super) fn forget_index(&self) {
        let _gone = fs::remove_file(self.dir.join("index"));
    }
}

/// The file with the path of a workspace that was moved, where its private directory was.
pub(super) const MOVED: &str = "moved";

/// The path in that file of a private directory, if there is one. Blocks, shortly.
pub(super) fn moved(dir: &Path) -> Option<PathBuf> {
    let to = small(&dir.join(MOVED))?;
    (!to.is_empty()).then(|| PathBuf::from(OsString::from_vec(to)))
}

/// The private directory of the workspace at `root`, below the directory of all.
pub(super) fn private(all: &Path, root: &Path) -> PathBuf {
    let hash = Sha256::digest(root.as_os_str().as_bytes());
    let name: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    all.join(name)
}

/// The objects of the repository whose worktree is `root`; absent where it is not as git makes it, or names objects by another hash.
fn objects_of(root: &Path) -> Option<PathBuf> {
    let common = Places::of(root).ok()?.common;
    let config = small(&common.join("config")).unwrap_or_default();
    let config = String::from_utf8_lossy(&config).to_ascii_lowercase();
    let objects = common.join("objects");
    (!config.contains("sha256") && objects.is_dir()).then_some(objects)
}

/// A path in a list of git's that is separated by colons: quoted as in C where it is not plain text.
fn quoted(path: &Path) -> String {
    match path.to_str() {
        Some(path) if !path.contains([':', '"', '\\', '\n']) => path.to_owned(),
        _ => {
            let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\') || byte == b' ';
            let sign =
                |byte: &u8| if is_plain(*byte) { char::from(*byte).to_string() } else { format!("\\{byte:03o}") };
            format!("\"{}\"", path.as_os_str().as_bytes().iter().map(sign).collect::<String>())
        }
    }
}
