//! `linger diff`, `fork`, `rewind`, `merge` and `uncompact`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// Name, id or unique prefix of an id [default: the latest session of this directory]
    pub(crate) session: Option<String>,
    /// Only this turn, such as t3 or 3 [default: all turns together]
    pub(crate) turn: Option<String>,
    /// Show only file names and line counts
    #[arg(long)]
    pub(crate) stat: bool,
    /// Print JSON, one object per file: `path`, `kind`, `added`, `removed`, `diff`, `note`, `child`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Fork {
    /// Name, id or unique prefix of an id
    pub(crate) session: String,
    /// Fork after this message (m12) or before this prompt (p3) [default: after the latest finished step]
    #[arg(long, value_name = "MESSAGE")]
    pub(crate) at: Option<String>,
    /// Name of the fork
    #[arg(long, short, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Directory where the fork works [default: the session's]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Print one JSON object: `session`, `origin`, `model`, `mode`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rewind {
    /// Name, id or unique prefix of an id
    pub(crate) session: String,
    /// Go back to before this prompt, such as p3 [default: the latest prompt]
    #[arg(long, value_name = "PROMPT")]
    pub(crate) to: Option<String>,
    /// Also restore the files that changed since
    #[arg(long)]
    pub(crate) files: bool,
    /// Leave files that something else may have changed while a command ran
    #[arg(long, requires = "files", conflicts_with = "force")]
    pub(crate) keep: bool,
    /// Restore them even if something else changed them
    #[arg(long, requires = "files")]
    pub(crate) force: bool,
    /// List the prompts it can go back to, latest first; change nothing
    #[arg(long, conflicts_with_all = ["to", "files"])]
    pub(crate) list: bool,
    /// Print one JSON object: `branch` (the session that keeps the abandoned part), `to`, `prompt`, `text`, `changes`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// Child session: name, id or unique prefix of an id
    #[arg(value_name = "CHILD")]
    pub(crate) session: String,
    /// Print one JSON object: `child`, `branch`, `directory`, `before`, `commit`, `files`, `count`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Uncompact {
    /// Name, id or unique prefix of an id
    pub(crate) session: String,
    /// Print one JSON object: `compacted`, `messages`, `tokens`
    #[arg(long)]
    pub(crate) json: bool,
}
