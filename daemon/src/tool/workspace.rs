//! Where a session works: its directory and environment, and which paths belong to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linger_protocol::id::SessionId;

use super::added::AddedDirs;
use super::invalid::Invalid;
use super::notes::Notes;
use super::path::normalise;
use super::seen::Seen;
use super::skills::Skills;
use crate::diagnostics::secret::SecretVariables;
use crate::process::ledger::StartedFor;
use crate::process::server::{Children, Spawn};

/// How many links [`Workspace::resolve`] follows before it gives up on a loop; Linux allows as many.
const LINKS_MAX: usize = 40;

/// Where a session works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// The session's directory, absolute; relative paths begin here.
    pub cwd: PathBuf,
    /// The nearest directory above with a `.git` in it, or `cwd`.
    pub root: PathBuf,
    /// Whether `root` was looked up; the disk may not have answered.
    pub is_seen: bool,
    /// The root of the workspace whose files (rules, hooks, tools, agents, notes) count here, if it is another one: in a worktree of
    /// a child those of the workspace that it was made of do, so that it can do no more there.
    pub bound_by: Option<PathBuf>,
    /// The variables that children get; nothing else is inherited. A secret one has [`IN_MEMORY`] as its value.
    ///
    /// [`IN_MEMORY`]: linger_protocol::variable::IN_MEMORY
    pub env: Arc<BTreeMap<String, String>>,
    /// The values of the secret ones.
    pub secrets: SecretVariables,
    /// The contents of files that the session's model has seen.
    pub seen: Seen,
    /// The directories that a user added, which count like `root`.
    pub added: AddedDirs,
    /// The skills that the session's model can read.
    pub skills: Skills,
    /// The notes that outlive it.
    pub notes: Notes,
    /// The shell of `bash` calls may run this long unless the model asks for another time, in seconds.
    pub timeout_s: u64,
}

impl Workspace {
    /// The files of a workspace alone, for readers that belong to no session: nothing runs there.
    pub fn of_files(root: &Path, cwd: &Path) -> Self {
        Self {
            cwd: cwd.to_path_buf(),
            root: root.to_path_buf(),
            is_seen: true,
            bound_by: None,
            env: Arc::default(),
            secrets: SecretVariables::default(),
            seen: Seen::default(),
            added: AddedDirs::default(),
            skills: Skills::default(),
            notes: Notes::default(),
            timeout_s: 0,
        }
    }

    /// Starts child processes of a session's tools here; `children` has those that outlive a call.
    pub fn spawn(&self, children: Children, session: Option<SessionId>) -> Spawn {
        let started_for = session.map_or(StartedFor::Daemon, StartedFor::Session);
        Spawn { cwd: self.cwd.clone(), env: self.secrets.fill(&self.env), children, started_for }
    }

    /// Where commands run while the session's directory is gone: in the nearest directory above it that is still there, within the
    /// root, or else in `empty`, which is made. `None` while the directory is there. Blocks on the disk; fails if `empty` cannot be
    /// made.
    pub fn moved(&self, empty: &Path) -> std::io::Result<Option<Self>> {
        if is_usable(&self.cwd) {
            return Ok(None);
        }
        let within = self.cwd.ancestors().skip(1).take_while(|dir| dir.starts_with(&self.root));
        // A link in the place of one leads elsewhere.
        let is_there = |dir: &&Path| is_usable(dir) && dir.canonicalize().is_ok_and(|real| real == **dir);
        let cwd = match within.into_iter().find(is_there) {
            Some(dir) => dir.to_path_buf(),
            None => {
                linger_protocol::place::private_directory(empty).map_err(std::io::Error::other)?;
                empty.canonicalize()?
            }
        };
        Ok(Some(Self { cwd, ..self.clone() }))
    }

    /// The root of the workspace whose files count here.
    pub fn rules_root(&self) -> &Path {
        self.bound_by.as_deref().unwrap_or(&self.root)
    }

    /// The same place in the workspace whose files count here, for a path without links in a worktree.
    pub fn bound_place(&self, path: &Path) -> Option<PathBuf> {
        Some(self.bound_by.as_ref()?.join(path.strip_prefix(&self.root).ok()?))
    }

    /// Whether `path` lies within the workspace or an added directory, links resolved.
    pub fn contains(&self, path: &Path) -> bool {
        let resolved = self.resolve(path);
        resolved.starts_with(&self.root) || self.added.has(&resolved)
    }

    /// `path` with every link resolved, also where what it leads to does not exist (yet).
    pub fn resolve(&self, path: &Path) -> PathBuf {
        let mut rest = Vec::new();
        let mut existing = path.to_path_buf();
        let mut links = 0;
        loop {
            if let Ok(real) = existing.canonicalize() {
                return rest.iter().rev().fold(real, |path, part| path.join(part));
            }
            let (Some(name), Some(parent)) = (existing.file_name().map(ToOwned::to_owned), existing.parent()) else {
                return path.to_path_buf();
            };
            match existing.read_link() {
                // A link to nothing: a write to it creates the file at the other end.
                Ok(target) if links < LINKS_MAX => {
                    links += 1;
                    existing = normalise(&self.resolve(parent).join(target));
                }
                _ => {
                    existing = parent.to_path_buf();
                    rest.push(name);
                }
            }
        }
    }

    /// The absolute path without `.` and `..` that a model's `path` means; `~` is the session's HOME.
    pub(crate) fn absolute(&self, path: &str) -> Result<PathBuf, Invalid> {
        if path.is_empty() {
            return Err(Invalid("`path` is empty".to_owned()));
        }
        if path.contains('\0') {
            return Err(Invalid("`path` has a NUL in it".to_owned()));
        }
        let decoded = file_url(path)?;
        let path = decoded.as_deref().unwrap_or(path);
        let home = self.env.get("HOME").map(Path::new);
        let path = match (path.strip_prefix('~'), home) {
            (Some(""), Some(home)) => home.to_path_buf(),
            (Some(rest), Some(home)) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
            _ => self.cwd.join(path),
        };
        Ok(normalise(&path))
    }

    /// As [`Self::absolute`]; the session's directory when there is no path.
    pub(super) fn directory(&self, path: Option<&str>) -> Result<PathBuf, Invalid> {
        self.absolute(path.unwrap_or("."))
    }
}

/// Whether a process can start in this directory.
fn is_usable(dir: &Path) -> bool {
    dir.is_dir() && rustix::fs::access(dir, rustix::fs::Access::EXEC_OK).is_ok()
}

/// The path of a `file:` address on this machine; absent for anything else.
fn file_url(text: &str) -> Result<Option<String>, Invalid> {
    let Some(rest) = text.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("file://")).and(text.get(7..)) else {
        return Ok(None);
    };
    let local = rest.strip_prefix("localhost").unwrap_or(rest);
    if !local.starts_with('/') {
        return Err(Invalid("`path` is a file of another machine; give a path of this one".to_owned()));
    }
    let path = local.split(['#', '?']).next().unwrap_or_default();
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8();
    match decoded {
        Ok(path) if !path.contains('\0') => Ok(Some(path.into_owned())),
        _ => Err(Invalid("`path` is no address of a file: its %-codes are no text".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::path::show;
    use crate::tool::tests::test_workspace;

    #[test]
    fn paths_are_absolute_and_plain() {
        let (_dir, mut workspace) = test_workspace();
        workspace.cwd = "/w/x".into();
        let check = |path, absolute_path: &str, shown: &str| {
            let got = workspace.absolute(path).unwrap();
            assert_eq!((got.to_str().unwrap(), show(&workspace.cwd, &got).as_str()), (absolute_path, shown));
        };
        check(".", "/w/x", ".");
        check("a/./b/../c", "/w/x/a/c", "a/c");
        check("../../../../etc", "/etc", "/etc");
        check("/w/x/a", "/w/x/a", "a");
        check("~/a", "/home/nobody/a", "/home/nobody/a");
        check("~", "/home/nobody", "/home/nobody");
        check("~a", "/w/x/~a", "~a");
        check("a\nb", "/w/x/a\nb", "a\\nb");
        check("file:///w/x/a%20b.rs#L10", "/w/x/a b.rs", "a b.rs");
        check("FILE://localhost/etc/../w/x/%C3%A9", "/w/x/é", "é");
        check("file:a", "/w/x/file:a", "file:a");
        for (path, why) in
            [("file://server/a", "another machine"), ("file:///%ff", "%-codes"), ("file:///a%00", "%-codes")]
        {
            assert!(workspace.absolute(path).unwrap_err().0.contains(why), "{path}");
        }
    }
}
