//! Everything that runs git: the tool, checkpoints of workspaces, and worktrees of children.
//!
//! Git is started in one file, with one set of rules for its environment ([`process`]). No program that a repository, its
//! configuration or the session's variables name is ever started by linger's own calls: those that read or write contents of files
//! work in a [private git directory](private), whose configuration is linger's own. The repository itself is only named where git
//! alone may write: references, and the administrative files of worktrees.
//!
//! | file | owns |
//! |---|---|
//! | `tool` | the tool `git`; `options`: which of its arguments run without asking; `inspection`: running those; `paths`: the paths they name |
//! | `checkpoint` | the state of a workspace at a moment, in a private git directory that stays |
//! | `worktree` | directories and branches of children: making, committing, merging, removing |
//! | `private` | private git directories: their layout and configuration; a mirror of a repository |
//! | `places` | where a repository keeps what it has |
//! | `plain` | whether git as a command only reads, in a repository that names no program |
//! | `process` | starting git: arguments, environment, limits, output |

pub mod checkpoint;
mod inspection;
mod options;
mod paths;
mod places;
pub mod plain;
mod private;
mod process;
#[cfg(test)]
mod scratch;
mod tool;
pub mod worktree;

pub(super) use tool::GitTool;
