//! The directories of one test: a home and all XDG directories, with paths short enough for a socket.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Directories that nothing else uses; gone when dropped.
#[derive(Debug)]
pub struct Dirs {
    root: tempfile::TempDir,
}

impl Default for Dirs {
    fn default() -> Self {
        // Not the system's own temporary directory: its path may be too long for a socket (104 bytes).
        let root =
            tempfile::Builder::new().prefix("lg").rand_bytes(8).tempdir_in("/tmp").expect("a directory for the test");
        let dirs = Self { root };
        for dir in ["h", "c/linger", "d/linger", "s/linger", "r", "k", "w"] {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700).create(dirs.root().join(dir)).expect("a directory for the test");
        }
        dirs
    }
}

impl Dirs {
    /// The directory that holds all others.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// A working directory for sessions.
    pub fn workspace(&self) -> PathBuf {
        self.root().join("w")
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.root().join("c/linger/config.toml")
    }

    /// The database.
    pub fn database(&self) -> PathBuf {
        self.root().join("d/linger/linger.db")
    }

    /// The state directory: log and socket.
    pub fn state(&self) -> PathBuf {
        self.root().join("s/linger")
    }

    /// The daemon's log.
    pub fn log(&self) -> PathBuf {
        self.state().join("lingerd.log")
    }

    /// The daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.state().join("lingerd.sock")
    }

    /// The whole environment of whatever is started in these directories; nothing of the test's own but `PATH`.
    pub fn env(&self) -> Vec<(String, String)> {
        let dir = |name: &str| self.root().join(name).display().to_string();
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
        let env = [
            ("HOME", dir("h")),
            ("XDG_CONFIG_HOME", dir("c")),
            ("XDG_DATA_HOME", dir("d")),
            ("XDG_STATE_HOME", dir("s")),
            ("XDG_RUNTIME_DIR", dir("r")),
            ("XDG_CACHE_HOME", dir("k")),
            ("PATH", path),
            ("LANG", "C.UTF-8".to_owned()),
            ("TERM", "xterm-256color".to_owned()),
            ("USER", "tester".to_owned()),
        ];
        env.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }
}
