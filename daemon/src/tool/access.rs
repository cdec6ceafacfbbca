//! The accesses and effects of a call, and the targets of its paths.

use std::path::{Path, PathBuf};

use linger_protocol::event::AfterCrash;

/// The effects of a call on the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effects {
    /// The things that it touches, for rules and modes.
    pub access: Access,
    /// Whether it may change anything; then its start is on disk before it runs, and mode `plan` refuses it.
    pub changes: bool,
    /// Whether it runs at the same time as its neighbours that overlap; the others run alone and in the model's order.
    pub overlaps: bool,
    /// How a restart treats it once it has started.
    pub after_crash: AfterCrash,
}

impl Effects {
    /// Reads a file or a directory tree.
    pub fn read(path: impl Into<PathBuf>) -> Self {
        Self { changes: false, overlaps: true, ..Self::change(Access::Read(path.into())) }
    }

    /// Gets something from a host, which changes nothing here.
    pub fn fetch(host: impl Into<String>) -> Self {
        let after_crash = AfterCrash::Again;
        Self { changes: false, overlaps: true, after_crash, ..Self::change(Access::Network(host.into())) }
    }

    /// The same to a file that was asked for by another name: a rule about either name counts.
    pub(super) fn asked_as(mut self, asked: Option<&Path>) -> Self {
        let as_asked = match (asked, &self.access) {
            (Some(asked), Access::Read(_)) => Access::Read(asked.to_path_buf()),
            (Some(asked), Access::Write(_)) => Access::Write(asked.to_path_buf()),
            _ => return self,
        };
        self.access = Access::Several(vec![self.access, as_asked]);
        self
    }

    /// Changes the file at this path.
    pub fn write(path: impl Into<PathBuf>) -> Self {
        Self::change(Access::Write(path.into()))
    }

    /// Does several things, each of which is decided on.
    pub fn several(parts: Vec<Access>) -> Self {
        Self::change(Access::Several(parts))
    }

    /// Runs a command.
    pub fn command(command: impl Into<String>) -> Self {
        Self::change(Access::Command(command.into()))
    }

    /// Runs a command that only reads, below `root`.
    pub fn inspect(command: impl Into<String>, root: impl Into<PathBuf>) -> Self {
        let (command, root) = (command.into(), root.into());
        Self { changes: false, overlaps: true, ..Self::change(Access::Inspect { command, root }) }
    }

    /// Shows or asks something; a restart does it again.
    pub fn nothing() -> Self {
        let after_crash = AfterCrash::Again;
        Self { changes: false, overlaps: true, after_crash, ..Self::change(Access::Nothing) }
    }

    /// May change anything within `access`, alone, with an outcome that is unknown after a restart.
    pub fn change(access: Access) -> Self {
        Self { access, changes: true, overlaps: false, after_crash: AfterCrash::Unknown }
    }
}

/// A thing that a call touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads a file or a directory tree; absolute, without `.` and `..`.
    Read(PathBuf),
    /// Changes or makes a file; absolute, without `.` and `..`.
    Write(PathBuf),
    /// Runs a command, which may do anything.
    Command(String),
    /// Runs a command that is known to read only what is below a directory.
    Inspect {
        /// The command as a shell would be given it.
        command: String,
        /// The directory; absolute, without `.` and `..`.
        root: PathBuf,
    },
    /// Talks to a host: its name or address, as the call has it.
    Network(String),
    /// All of these, each of which is decided on; never of several again.
    Several(Vec<Self>),
    /// Touches nothing: it shows or asks something. It needs no permission, unless a rule says so.
    Nothing,
    /// Asks a server that extends the daemon to do something; what that touches is not known.
    Other {
        /// Name of the server.
        server: String,
        /// The tool, as the server calls it.
        tool: String,
        /// The tool's version when it was permitted ([`Tool::version`](super::Tool::version)).
        version: String,
    },
}

impl Access {
    /// Its parts, each of which is decided on.
    pub fn each(&self) -> &[Self] {
        match self {
            Self::Several(parts) => parts,
            one => std::slice::from_ref(one),
        }
    }

    /// The file or directory; none for several.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Read(path) | Self::Write(path) | Self::Inspect { root: path, .. } => Some(path),
            Self::Command(_) | Self::Network(_) | Self::Several(_) | Self::Nothing | Self::Other { .. } => None,
        }
    }

    /// The directory or file that it reads.
    pub fn reads(&self) -> Option<&Path> {
        self.path().filter(|_| !matches!(self, Self::Write(_)))
    }

    /// The command that it runs.
    pub fn command(&self) -> Option<&str> {
        match self {
            Self::Command(command) | Self::Inspect { command, .. } => Some(command),
            _ => None,
        }
    }

    /// Whether it leaves what the rules of files and the workspace can hold.
    pub fn is_outside(&self) -> bool {
        self.each().iter().any(|part| matches!(part, Self::Network(_) | Self::Other { .. }))
    }
}

/// Where the paths of a call lead to, with every link resolved: what is permitted is what is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets(Vec<(PathBuf, PathBuf)>);

impl Targets {
    /// Where `path`, as the call has it, leads to; absent if the call has no such path.
    pub fn of(&self, path: &Path) -> Option<&Path> {
        self.0.iter().find(|(written, _)| written == path).map(|(_, target)| target.as_path())
    }

    /// Whether the call has no path.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each path as the call has it, and where it leads to.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &Path)> {
        self.0.iter().map(|(path, target)| (path.as_path(), target.as_path()))
    }

    /// The first path that leads elsewhere than in `other`, with where it leads to here and there.
    pub fn moved<'a>(&'a self, other: &'a Self) -> Option<(&'a Path, &'a Path)> {
        let other = |path| other.of(path).unwrap_or(Path::new(""));
        self.iter().map(|(path, target)| (target, other(path))).find(|(target, now)| target != now)
    }

    /// A note behind the description of a call whose paths are links.
    pub fn said(&self) -> String {
        let links: Vec<(&Path, &Path)> = self.iter().filter(|(path, target)| path != target).collect();
        match links.as_slice() {
            [] => String::new(),
            [(_, target)] if self.0.len() == 1 => format!(" (which is {})", target.display()),
            links => {
                let said = links.iter().map(|(path, target)| format!("{} is {}", path.display(), target.display()));
                format!(" ({})", said.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

impl FromIterator<(PathBuf, PathBuf)> for Targets {
    fn from_iter<I: IntoIterator<Item = (PathBuf, PathBuf)>>(targets: I) -> Self {
        Self(targets.into_iter().collect())
    }
}
