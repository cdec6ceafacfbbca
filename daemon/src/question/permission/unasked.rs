//! Reading without being asked: the one check of everything that opens a file for a model or a repository.
//!
//! A call of a tool is decided on as a whole ([`super::decide`]). Whatever else is read asks here: the files that a permitted call
//! goes through, those that git would open, instruction files, skills, agents, commands and tools of a workspace, files that a
//! command or an answer names. A file may be read if, with every link resolved, it lies in the workspace, in an added directory, or
//! below the directory that the call was permitted to read, and if no rule hides it. [`Unasked::open`] opens what was checked, and
//! follows no link to it.
//!
//! A reader that is new belongs into the table of `tests/reading.rs`.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::rule::{CallInfo, Effect, PathBases, Rule, Target};
use super::rules::Rules;
use crate::sys::disk;
use crate::tool::handle::Entry;
use crate::tool::{Access, Workspace};

/// Why a file is not read without asking.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// It, or what it is a link to, lies elsewhere.
    #[error("it lies outside the workspace")]
    Outside,
    /// This rule hides it.
    #[error("the rule {0} keeps it from being read")]
    Rule(String),
    /// The configuration cannot be read, so the rules are unknown.
    #[error("the configuration cannot be read, so the rules about it are unknown")]
    Unknown,
}

/// A file that may be read, opened.
#[derive(Debug)]
pub struct OpenedFile {
    /// Its path, with every link resolved.
    pub real: PathBuf,
    /// Its content.
    pub file: File,
    /// Its facts, as they were when it was opened.
    pub metadata: Metadata,
}

/// Checks the files that a reader opens without asking. All of it blocks on the disk.
#[derive(Debug)]
pub struct Unasked {
    /// The rules that hide files; absent if they are unknown.
    hiding: Option<Vec<Rule>>,
    /// The tool that reads, whose own rules count as those of `read` do.
    tool: String,
    /// The directory that was permitted, links resolved.
    permitted: PathBuf,
    bases: PathBases,
    workspace: Workspace,
    /// The directory that was resolved last, and where it leads to: neighbours are asked about one after the other.
    last: Mutex<(PathBuf, PathBuf)>,
}

impl Unasked {
    /// For a reader that was permitted to read the directory `root`. Hidden is what a rule in `deny` matches, and what one in `ask`
    /// does, unless that one matches `root` too: then it has been asked.
    pub fn of(rules: &Rules, tool: &str, root: &Path, workspace: &Workspace) -> Self {
        let mut this = Self::unknown(tool, root, workspace);
        this.bases = PathBases::of(workspace, rules.home.as_deref());
        let asked = rules.ask.iter().filter(|rule| !this.matches(rule, root));
        this.hiding = Some(rules.deny.iter().chain(asked).cloned().collect());
        this
    }

    /// For a reader whose rules are unknown: it may read nothing.
    pub fn unknown(tool: &str, root: &Path, workspace: &Workspace) -> Self {
        Self {
            hiding: None,
            tool: tool.to_owned(),
            permitted: workspace.resolve(root),
            bases: PathBases::unresolved(workspace),
            workspace: workspace.clone(),
            last: Mutex::default(),
        }
    }

    /// Why this file is not read, if so. `path` is absolute.
    pub fn refusal(&self, path: &Path) -> Option<NotRead> {
        #[cfg(test)]
        if planted::is_out(&self.workspace.root) {
            return None;
        }
        let Some(hiding) = &self.hiding else { return Some(NotRead::Unknown) };
        if let Some(rule) = hiding.iter().find(|rule| self.matches(rule, path)) {
            return Some(NotRead::Rule(rule.to_string()));
        }
        let resolved = self.resolve(path);
        let is_inside = resolved.starts_with(&self.permitted) || self.bases.has(&resolved);
        (!is_inside).then_some(NotRead::Outside)
    }

    /// Opens this file, if it may be read and is a regular one. `path` is absolute.
    pub fn open(&self, path: &Path) -> io::Result<OpenedFile> {
        let real = disk::canonicalize(path)?;
        // A rule may be about either name; what is opened is what was checked, for no link is followed to it.
        if let Some(why) = self.refusal(path).or_else(|| self.refusal(&real)) {
            return Err(io::Error::other(why));
        }
        let (file, metadata) = Entry::at(&real)?.open()?;
        Ok(OpenedFile { real, file, metadata })
    }

    fn matches(&self, rule: &Rule, path: &Path) -> bool {
        ["read", self.tool.as_str()].into_iter().any(|tool| {
            let call = CallInfo { tool, changes: false, access: Access::Read(path.to_path_buf()) };
            rule.matches(&call, Target::of(&call.access, &self.workspace).as_ref(), None, &self.bases, Effect::Narrow)
        })
    }

    /// As [`Workspace::resolve`], with one look at the disk for each of several files of a directory.
    fn resolve(&self, path: &Path) -> PathBuf {
        let may_lead_elsewhere = match path.symlink_metadata() {
            Ok(status) => status.is_symlink(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        let (Some(parent), Some(name), false) = (path.parent(), path.file_name(), may_lead_elsewhere) else {
            return self.workspace.resolve(path);
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0 != parent {
            *last = (parent.to_path_buf(), self.workspace.resolve(parent));
        }
        last.1.join(name)
    }
}

/// As [`Unasked::of`], for tools that only need to know whether a file is kept from them.
pub fn hides(
    rules: &Rules,
    tool: &str,
    root: &Path,
    workspace: &Workspace,
) -> impl Fn(&Path) -> bool + Send + Sync + use<> {
    let unasked = Unasked::of(rules, tool, root, workspace);
    move |path| unasked.refusal(path).is_some()
}

/// A planted fault: the check is left out, for the workspaces of one test.
#[cfg(test)]
pub(crate) mod planted {
    use std::path::{Path, PathBuf};
    use std::sync::{Mutex, PoisonError};

    static OUT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

    /// Leaves the check out for workspaces below this directory.
    pub(crate) fn leave_out(directory: &Path) {
        OUT.lock().unwrap_or_else(PoisonError::into_inner).push(directory.to_path_buf());
    }

    pub(super) fn is_out(root: &Path) -> bool {
        OUT.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|out| root.starts_with(out))
    }
}
