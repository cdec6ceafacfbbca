//! Where things lie, by the XDG conventions, and whether the socket's directory can be trusted.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use directories::ProjectDirs;

/// The socket's name in the state directory.
const SOCKET: &str = "lingerd.sock";

/// The longest path that a local socket can have (`sun_path`, the shortest of the supported systems).
const MAX_SOCKET_PATH: usize = 104;

/// The directories and files of one user's linger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// `config.toml`, `AGENTS.md`.
    pub config: PathBuf,
    /// `linger.db`, and `blobs` with what is too large for it.
    pub data: PathBuf,
    /// `lingerd.log`, the socket.
    pub state: PathBuf,
    /// The socket: `lingerd.sock` in the state directory, or what `LINGER_SOCKET` says.
    pub socket: PathBuf,
}

/// Why a place cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The user has no home directory.
    #[error("no home directory is known")]
    NoHome,
    /// A path of the environment does not begin at the root.
    #[error("{0} is not an absolute path")]
    Relative(PathBuf),
    /// The socket's path is longer than the system allows.
    #[error("the socket's path is {0} bytes long, the system allows {MAX_SOCKET_PATH}: {1}")]
    TooLong(usize, PathBuf),
    /// A directory is not as it must be.
    #[error("{path} {problem}")]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// The problem, after the path.
        problem: String,
        /// The command or change that helps.
        remedy: String,
    },
    /// The directory cannot be read or made.
    #[error("{path}: {error}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

impl PlaceError {
    /// The next thing to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NoHome => "set HOME".to_owned(),
            Self::Relative(_) => "set HOME and the XDG variables to paths that begin with /".to_owned(),
            Self::TooLong(..) => "set LINGER_SOCKET to a shorter path in a directory of your own".to_owned(),
            Self::Unsafe { remedy, .. } => format!(
                "{remedy}, if it is linger's alone; the XDG variables name other directories, LINGER_SOCKET another for the socket"
            ),
            Self::Io { .. } => {
                "see whether it can be made and written; the XDG variables move it, and LINGER_SOCKET the socket"
                    .to_owned()
            }
        }
    }
}

impl Places {
    /// The places of the user whose environment this is.
    pub fn of_user() -> Result<Self, PlaceError> {
        let dirs = ProjectDirs::from("", "", "linger").ok_or(PlaceError::NoHome)?;
        let state = dirs.state_dir().unwrap_or_else(|| dirs.data_local_dir()).to_path_buf();
        for path in [dirs.config_dir(), dirs.data_dir(), state.as_path()] {
            if !path.is_absolute() {
                return Err(PlaceError::Relative(path.to_path_buf()));
            }
        }
        let socket = match std::env::var_os("LINGER_SOCKET").filter(|path| !path.is_empty()) {
            Some(path) => std::path::absolute(PathBuf::from(path))
                .map_err(|error| PlaceError::Io { path: state.clone(), error })?,
            None => state.join(SOCKET),
        };
        Ok(Self { config: dirs.config_dir().to_path_buf(), data: dirs.data_dir().to_path_buf(), state, socket })
    }

    /// Whether the socket is that of this user's own state directory, however its path is written: then a daemon of this machine
    /// belongs there. Any other may be the end of a tunnel.
    pub fn is_own_socket(&self) -> bool {
        let own = self.state.join(SOCKET);
        let resolved = |path: &Path| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
        self.socket == own || resolved(&self.socket).is_some_and(|socket| Some(socket) == resolved(&own))
    }

    /// All of them in directories below `dir`, which are made if they are absent.
    pub fn below(dir: &Path) -> Result<Self, PlaceError> {
        let [config, data, state] = ["config", "data", "state"].map(|name| dir.join(name));
        private_directory(&data)?;
        private_directory(&state)?;
        Ok(Self { socket: state.join(SOCKET), config, data, state })
    }

    /// The configuration file.
    pub fn config_file(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// The SQLite file with all sessions.
    pub fn database(&self) -> PathBuf {
        self.data.join("linger.db")
    }

    /// The checkpoints of workspaces, a directory for each.
    pub fn checkpoints(&self) -> PathBuf {
        self.data.join("checkpoints")
    }

    /// The git worktrees of children, a directory for each.
    pub fn worktrees(&self) -> PathBuf {
        self.data.join("worktrees")
    }

    /// The record of the daemon's children.
    pub fn children(&self) -> PathBuf {
        self.state.join("lingerd.children")
    }

    /// The tools that MCP servers listed last.
    pub fn server_tools(&self) -> PathBuf {
        self.state.join("lingerd.mcp")
    }

    /// The names under which the operating system's keychain has keys for linger; never a key.
    pub fn kept_keys(&self) -> PathBuf {
        self.state.join("lingerd.keys")
    }

    /// The lists of models that providers have given.
    pub fn model_lists(&self) -> PathBuf {
        self.state.join("lingerd.models")
    }

    /// The addresses of providers that have answered before.
    pub fn reached(&self) -> PathBuf {
        self.state.join("lingerd.reached")
    }

    /// Signals that people were sent about sessions, and how far they read.
    pub fn attention(&self) -> PathBuf {
        self.state.join("lingerd.attention")
    }

    /// The gateway's lock, which says where it listens while it runs.
    pub fn gateway(&self) -> PathBuf {
        self.state.join("gateway.lock")
    }

    /// The gateway's access log.
    pub fn gateway_log(&self) -> PathBuf {
        self.state.join("gateway.log")
    }

    /// The log file.
    pub fn log(&self) -> PathBuf {
        self.state.join("lingerd.log")
    }
}

/// Makes `dir` with mode 0700 if it is absent, and refuses it unless it is the user's own and closed to others.
pub fn private_directory(dir: &Path) -> Result<(), PlaceError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(dir).map_err(|error| io_error(dir, error))?;
    check_directory(dir)
}

/// Makes `dir` with mode 0700 if it is absent, and refuses it if others can write into it; they may read it.
pub fn own_directory(dir: &Path) -> Result<(), PlaceError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(dir).map_err(|error| io_error(dir, error))?;
    let meta = std::fs::metadata(dir).map_err(|error| io_error(dir, error))?;
    check_owner(dir, &meta)?;
    if meta.mode() & 0o022 != 0 {
        return Err(closed_to_others(dir, "written", &meta));
    }
    Ok(())
}

fn check_owner(path: &Path, meta: &std::fs::Metadata) -> Result<(), PlaceError> {
    let (owner, me) = (meta.uid(), rustix::process::geteuid().as_raw());
    if owner == me {
        return Ok(());
    }
    let problem = format!("belongs to user {owner}, not to you ({me})");
    Err(PlaceError::Unsafe { path: path.to_path_buf(), problem, remedy: in_place_of(path) })
}

/// Advice for a directory that is not the user's to change.
fn in_place_of(path: &Path) -> String {
    format!("put a directory of yours in the place of {}", path.display())
}

fn closed_to_others(path: &Path, how: &str, meta: &std::fs::Metadata) -> PlaceError {
    let problem = format!("can be {how} by others (mode {:o})", meta.mode() & 0o777);
    // Others use a directory with the sticky bit, such as /tmp, whoever owns it.
    let is_shared = meta.mode() & 0o1000 != 0;
    let remedy = if is_shared { in_place_of(path) } else { format!("chmod 700 {}", path.display()) };
    PlaceError::Unsafe { path: path.to_path_buf(), problem, remedy }
}

/// Refuses a directory that is not the user's own and closed to others; never makes or changes one.
pub fn check_directory(dir: &Path) -> Result<(), PlaceError> {
    let other = |problem: &str| PlaceError::Unsafe {
        path: dir.to_path_buf(),
        problem: problem.to_owned(),
        remedy: in_place_of(dir),
    };
    let meta = std::fs::symlink_metadata(dir).map_err(|error| io_error(dir, error))?;
    if meta.file_type().is_symlink() {
        return Err(other("is a symbolic link"));
    }
    if !meta.is_dir() {
        return Err(other("is not a directory"));
    }
    check_owner(dir, &meta)?;
    if meta.mode() & 0o077 != 0 {
        return Err(closed_to_others(dir, "entered", &meta));
    }
    Ok(())
}

/// Checks the directory of `socket` and the length of its path.
pub fn check_socket(socket: &Path) -> Result<(), PlaceError> {
    let length = socket.as_os_str().len();
    if length > MAX_SOCKET_PATH {
        return Err(PlaceError::TooLong(length, socket.to_path_buf()));
    }
    check_directory(socket.parent().unwrap_or(Path::new("/")))
}

fn io_error(path: &Path, error: io::Error) -> PlaceError {
    PlaceError::Io { path: path.to_path_buf(), error }
}
