//! Where skills, commands and agents lie, and reading their files. Blocks on the disk.
//!
//! Bounds hold for every place: how deep, how many directories, how many files, how large. A file of a workspace counts only if a
//! session may read it without asking ([`Unasked`]), and if a link leads to another file of its kind. A user's own may be links, to
//! a directory of dot files.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::kind::FileKind;
use crate::config::instructions::is_trusted;
use crate::mcp::settings::SERVER_FILES;
use crate::question::permission::Unasked;
use crate::sys::disk;
use crate::tool::handle::Entry;

/// The largest file, in bytes: ten times a long skill.
const MAX_FILE: u64 = 128 << 10;

/// The most files of one kind; a list of more is of no use to a person or a model.
const MAX_FILES: usize = 200;

/// How deep below `skills/` a skill may lie: collections have a level or two.
const MAX_DEPTH: usize = 4;

/// The most directories that are looked into for one kind.
const MAX_DIRECTORIES: usize = 2000;

/// The most entries of one directory that are looked at.
const MAX_ENTRIES: usize = 5000;

/// How many levels above a session's directory count, as for instruction files.
const MAX_LEVELS: usize = 32;

/// Why a link of a workspace does not count.
const OUTSIDE: &str = "is left out: it leads out of the workspace";

/// Why a link to another kind of file does not count.
const OTHER_KIND: &str = "is left out: it is a link to a file of another kind";

/// Directories that have no skills of the user's own.
const SKIPPED: [&str; 2] = [".git", "node_modules"];

/// Where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The user's configuration directory.
    pub config: PathBuf,
    /// The user's home directory.
    pub home: Option<PathBuf>,
    /// The root of the workspace.
    pub root: PathBuf,
    /// The session's directory, within it.
    pub cwd: PathBuf,
}

/// A file that is left out, and why.
pub(super) type LeftOut = (PathBuf, String);

/// A file that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFile {
    /// The name that its path gives it.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// The file, links resolved.
    pub real: PathBuf,
    /// Its path below the workspace's root; absent for the user's own.
    pub within: Option<String>,
    /// `sha256:` and the hash of its content; empty if it cannot be read.
    pub digest: String,
    /// Its text, or why it cannot be read.
    pub text: Result<String, String>,
}

impl FileKind {
    /// Its directories below the configuration directory, below home and below directories of a workspace; the first has precedence.
    fn directories(self) -> (&'static str, &'static [&'static str], &'static [&'static str]) {
        match self {
            Self::Skill => (
                "skills",
                &[".agents/skills", ".claude/skills"],
                &[".linger/skills", ".agents/skills", ".claude/skills"],
            ),
            Self::Command => ("commands", &[], &[".linger/commands", ".claude/commands", ".opencode/commands"]),
            Self::Agent => (
                "agents",
                &[],
                &[".linger/agents", ".agents/agents", ".claude/agents", ".opencode/agents", ".github/agents"],
            ),
            Self::Tool => ("tools", &[], &[".linger/tools"]),
            Self::Server => ("mcp", &[], &[SERVER_FILES]),
        }
    }

    /// Whether only the workspace's root has some.
    fn is_of_root(self) -> bool {
        matches!(self, Self::Tool | Self::Server)
    }

    /// The directories in which a change is one of some kind: below the configuration directory, below home, below a workspace; and
    /// whether those below count too.
    pub(super) fn watched(places: &Places) -> Vec<(PathBuf, bool)> {
        let mut watched = Vec::new();
        for kind in Self::ALL {
            let (own, of_home, of_workspace) = kind.directories();
            let deep = kind == Self::Skill;
            watched.push((places.config.join(own), deep));
            let home = places.home.iter().flat_map(|home| of_home.iter().map(move |dir| (home.join(dir), deep)));
            watched.extend(home);
            let levels = places.cwd.ancestors().take_while(|dir| dir.starts_with(&places.root)).take(MAX_LEVELS);
            let levels = levels.filter(|level| Some(*level) != places.home.as_deref());
            for level in levels.filter(|level| !kind.is_of_root() || *level == places.root) {
                watched.extend(of_workspace.iter().map(|dir| (level.join(dir), deep)));
            }
        }
        watched
    }

    /// Whether a link of a workspace may lead to this file.
    fn has(self, real: &Path) -> bool {
        self.name_of(real).is_some() && !real.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git"))
    }

    /// The name that a path gives it; `None` if it is no file of this kind.
    fn name_of(self, path: &Path) -> Option<String> {
        let file = path.file_name()?.to_str()?;
        match self {
            Self::Skill if file == "SKILL.md" => Some(path.parent()?.file_name()?.to_str()?.to_owned()),
            Self::Skill => None,
            Self::Command | Self::Tool | Self::Server => file.strip_suffix(".md").map(str::to_owned),
            Self::Agent => {
                let name = file.strip_suffix(".md")?;
                Some(name.strip_suffix(".agent").unwrap_or(name).to_owned())
            }
        }
        .filter(|name| !name.is_empty() && !name.starts_with('.'))
    }
}

/// The files of a kind, those first that have precedence: of the workspace, from the session's directory up, then the user's own.
/// With what was left out.
pub(super) fn find(kind: FileKind, places: &Places, unasked: &Unasked) -> (Vec<FoundFile>, Vec<LeftOut>) {
    let mut search =
        Search { kind, root: &places.root, unasked, files: Vec::new(), directories: 0, left_out: Vec::new() };
    let (own, of_home, of_workspace) = kind.directories();
    let home = places.home.as_deref();
    let levels = places.cwd.ancestors().take_while(|dir| dir.starts_with(&places.root)).take(MAX_LEVELS);
    // In HOME itself the directories of a workspace are the user's own.
    // The tool set is that of the workspace, whatever the session's directory.
    let counts = |level: &Path| !kind.is_of_root() || level == places.root;
    for level in levels.filter(|level| Some(*level) != home && counts(level)) {
        of_workspace.iter().for_each(|dir| search.all(&level.join(dir), true));
    }
    search.all(&places.config.join(own), false);
    if let Some(home) = home {
        of_home.iter().for_each(|dir| search.all(&home.join(dir), false));
    }
    let mut seen = HashSet::new();
    search.files.retain(|file| seen.insert(file.real.clone()));
    (search.files, search.left_out)
}

/// The file of a kind at `path`, wherever it lies.
pub(super) fn at(kind: FileKind, path: &Path) -> FoundFile {
    let path = if kind == FileKind::Skill && path.is_dir() { path.join("SKILL.md") } else { path.to_path_buf() };
    let name = kind.name_of(&path).or_else(|| Some(path.file_stem()?.to_string_lossy().into_owned()));
    let real = path.canonicalize().unwrap_or_else(|_| path.clone());
    read(name.unwrap_or_default(), path, real, None, |_| true)
}

struct Search<'a> {
    kind: FileKind,
    root: &'a Path,
    unasked: &'a Unasked,
    files: Vec<FoundFile>,
    directories: usize,
    left_out: Vec<LeftOut>,
}

impl Search<'_> {
    /// Takes all files below one directory. `of_workspace`: it is a workspace's and not the user's.
    fn all(&mut self, dir: &Path, of_workspace: bool) {
        let mut paths = Vec::new();
        self.walk(dir, of_workspace, 0, &mut paths);
        paths.sort();
        for path in paths {
            if self.files.len() >= MAX_FILES {
                let note = format!("is left out: there are more than {MAX_FILES} of its kind");
                return self.left_out.push((path, note));
            }
            let Some(name) = self.kind.name_of(&path) else { continue };
            let Ok(real) = path.canonicalize() else { continue };
            let within = of_workspace.then(|| real.strip_prefix(self.root).ok().map(Path::to_path_buf)).flatten();
            if of_workspace && within.is_none() {
                self.left_out.push((path, OUTSIDE.to_owned()));
                continue;
            }
            if of_workspace {
                if !self.kind.has(&real) {
                    self.left_out.push((path, OTHER_KIND.to_owned()));
                    continue;
                }
                if let Some(why) = self.unasked.refusal(&path).or_else(|| self.unasked.refusal(&real)) {
                    self.left_out.push((path, format!("is left out: {why}")));
                    continue;
                }
            }
            let owner = self.root.metadata().ok().map(|metadata| metadata.uid());
            let is_ours = |it: &Metadata| !of_workspace || is_trusted(it.uid()) || owner == Some(it.uid());
            self.files.push(read(name, path, real, within.map(|it| it.to_string_lossy().into_owned()), is_ours));
        }
    }

    fn walk(&mut self, dir: &Path, of_workspace: bool, depth: usize, paths: &mut Vec<PathBuf>) {
        let Ok(real) = disk::canonicalize(dir) else { return };
        if of_workspace && !real.starts_with(self.root) {
            return self.left_out.push((dir.to_path_buf(), OUTSIDE.to_owned()));
        }
        self.directories += 1;
        if self.directories > MAX_DIRECTORIES {
            return;
        }
        if self.directories == MAX_DIRECTORIES {
            self.left_out.push((dir.to_path_buf(), "is not searched: there are too many directories".to_owned()));
        }
        let Ok(entries) = fs::read_dir(&real) else { return };
        let mut names: Vec<_> = entries.take(MAX_ENTRIES).flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        if self.kind != FileKind::Skill {
            let files = names.iter().map(|name| dir.join(name)).filter(|path| self.kind.name_of(path).is_some());
            return paths.extend(files.filter(|path| path.is_file()));
        }
        // What lies below a skill belongs to it.
        if dir.join("SKILL.md").is_file() {
            return paths.push(dir.join("SKILL.md"));
        }
        for name in names.iter().filter(|name| depth < MAX_DEPTH && !SKIPPED.iter().any(|it| name.as_os_str() == *it)) {
            let below = dir.join(name);
            if below.is_dir() {
                self.walk(&below, of_workspace, depth + 1, paths);
            }
        }
    }
}

fn read(
    name: String,
    path: PathBuf,
    real: PathBuf,
    within: Option<String>,
    is_ours: impl Fn(&Metadata) -> bool,
) -> FoundFile {
    let read = || -> io::Result<String> {
        let (file, metadata) = Entry::at(&real)?.open()?;
        if !is_ours(&metadata) {
            return Err(io::Error::other("belongs to another user"));
        }
        let mut bytes = Vec::new();
        file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(io::Error::other(format!("is larger than {MAX_FILE} bytes")));
        }
        String::from_utf8(bytes).map(|text| text.replace('\0', "")).map_err(|_| io::Error::other("is not UTF-8"))
    };
    let text = read().map_err(|error| error.to_string());
    let digest = text.as_ref().map(|text| digest(text)).unwrap_or_default();
    FoundFile { name, path, real, within, digest, text }
}

/// `sha256:` and the hash of a text.
pub(crate) fn digest(text: &str) -> String {
    Sha256::digest(text).iter().fold("sha256:".to_owned(), |hex, byte| format!("{hex}{byte:02x}"))
}
