//! The private git directory of a workspace, and running git in it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::Skip;
use crate::process::ledger::StartedFor;
use crate::process::server::{Children, Spawn};
use crate::process::{End, Input, Stderr};
use crate::sys::disk;
use crate::tool::git::repository::{Places, small};
use crate::tool::git::{KEPT, OWN, programs};
use crate::tool::workspace::Workspace;

/// What one call of git may write, in bytes: the names of twice as many files as a checkpoint may have.
pub(super) const OUTPUT_MAX: usize = 16 << 20;

/// How long one call of git may take, in seconds.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// Where the names of checkpoints are kept, so that git knows which objects are used.
pub(super) const REFS: &str = "refs/checkpoints";

/// The whole configuration. What it names as a program is none. Objects are not synced: after a power cut a checkpoint may be gone,
/// which costs an undo, and a checkpoint that syncs thousands of files costs each call.
const CONFIG: &str = "\
[core]
	repositoryformatversion = 0
	bare = false
	filemode = true
	symlinks = true
	autocrlf = false
	quotePath = false
	logAllRefUpdates = false
	fsync = none
	fsmonitor = false
	untrackedCache = false
	splitIndex = false
	hooksPath = /dev/null
	attributesFile = /dev/null
	pager = cat
	editor = false
	sshCommand = false
	askPass = false
[gc]
	auto = 0
[maintenance]
	auto = false
[protocol]
	allow = never
[index]
	version = 4
";

/// Overrides the attributes of the workspace: contents are kept as they are.
const ATTRIBUTES: &str = "* -text -ident -diff !eol !filter !working-tree-encoding !crlf\n";

/// Runs git for one workspace.
#[derive(Clone, Debug)]
pub(super) struct Git {
    /// The private git directory.
    pub(super) dir: PathBuf,
    /// The workspace.
    pub(super) root: PathBuf,
    spawn: Spawn,
}

impl Git {
    /// That of the workspace at `root`, below the directory of all.
    pub(super) fn of(all: &Path, root: &Path, workspace: &Workspace, children: Children) -> Self {
        use std::os::unix::ffi::OsStrExt as _;
        let hash = Sha256::digest(root.as_os_str().as_bytes());
        let name: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let dir = all.join(name);
        let path = programs(workspace.env.get("PATH").map_or("", String::as_str), root);
        let kept = KEPT.iter().filter_map(|name| Some(((*name).to_owned(), workspace.env.get(*name)?.clone())));
        let own = OWN.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let places = [("GIT_DIR", &*dir), ("GIT_WORK_TREE", root)];
        let places = places.map(|(name, path)| (name.to_owned(), path.to_string_lossy().into_owned()));
        let env: BTreeMap<String, String> = kept.chain(own).chain(places).chain([("PATH".to_owned(), path)]).collect();
        let spawn = Spawn { cwd: root.to_path_buf(), env: Arc::new(env), children, started_for: StartedFor::Daemon };
        Self { dir, root: root.to_path_buf(), spawn }
    }

    /// As this, but objects are also looked up in the repository: for calls that only read, because git would change the times of
    /// files there when it finds what it is to write.
    pub(super) fn reading(&self) -> Self {
        let (root, mut env) = (self.root.clone(), BTreeMap::clone(&self.spawn.env));
        if let Some(objects) = objects_of(&root) {
            env.insert("GIT_ALTERNATE_OBJECT_DIRECTORIES".to_owned(), quoted(&objects));
        }
        Self { spawn: Spawn { env: Arc::new(env), ..self.spawn.clone() }, ..self.clone() }
    }

    /// Runs git for its output.
    pub(super) async fn run<S: AsRef<OsStr>>(&self, args: &[S], input: Vec<u8>, max: usize) -> Result<Vec<u8>, Skip> {
        let input = if input.is_empty() { Input::Nothing } else { Input::Bytes(input) };
        let process = self.spawn.program("git", args, input, Stderr::Apart).await;
        let process = process.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Skip::NotHere,
            _ => Skip::Failed(format!("git could not be started: {error}")),
        })?;
        let done = process.finish(CALL_LIMIT, max).await;
        let done = done.map_err(|error| Skip::Failed(format!("the output of git could not be read: {error}")))?;
        let what = args.first().map(|arg| arg.as_ref().to_string_lossy().into_owned()).unwrap_or_default();
        match done.end {
            End::Status(status) if status.success() => Ok(done.output),
            End::Status(status) => {
                let said = done.stderr.trim();
                let why = said.lines().next().map_or_else(|| status.to_string(), str::to_owned);
                Err(Skip::Failed(format!("git {what} failed: {why}")))
            }
            End::TooMuch => Err(Skip::TooMuch("its files have too many names".to_owned())),
            End::TooLate => Err(Skip::TooMuch(format!("git {what} takes longer than {} s", CALL_LIMIT.as_secs()))),
        }
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
            for below in ["objects/pack", "objects/info", "info", REFS] {
                fs::create_dir_all(self.dir.join(below)).map_err(failed)?;
            }
            let files = [("HEAD", "ref: refs/heads/none\n"), ("config", CONFIG), ("info/attributes", ATTRIBUTES)];
            for (file, text) in files {
                fs::write(self.dir.join(file), text).map_err(failed)?;
            }
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

/// The objects of the repository whose worktree is `root`; absent where it is not as git makes it, or names objects by another hash.
fn objects_of(root: &Path) -> Option<PathBuf> {
    let common = Places::of(root).ok()?.common;
    let config = small(&common.join("config")).unwrap_or_default();
    let config = String::from_utf8_lossy(&config).to_ascii_lowercase();
    let objects = common.join("objects");
    (!config.contains("sha256") && objects.is_dir()).then_some(objects)
}

/// A path in a list of git's that is separated by colons.
fn quoted(path: &Path) -> String {
    let path = path.to_string_lossy();
    if path.contains([':', '"', '\\', '\n']) {
        format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
    } else {
        path.into_owned()
    }
}
