//! The command line of differences, forks, of going back, of merging a child, and of taking back a summary.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// A name, an id, or a unique prefix of an id; without it, the latest session of this directory
    pub(crate) session: Option<String>,
    /// Only this turn, such as t3 or 3; without it, all turns together
    pub(crate) turn: Option<String>,
    /// The files and their counts alone
    #[arg(long)]
    pub(crate) stat: bool,
    /// Print one JSON object a file: `path`, `kind`, `added`, `removed`, `diff`, `note`, `child`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Fork {
    /// A name, an id, or a unique prefix of an id
    pub(crate) session: String,
    /// After this message, or before this prompt: m12, p3; without it, from the latest finished step
    #[arg(long, value_name = "MESSAGE")]
    pub(crate) at: Option<String>,
    /// A name for the fork
    #[arg(long, short, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Print one JSON object: `session`, `origin`, `model`, `mode`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rewind {
    /// A name, an id, or a unique prefix of an id
    pub(crate) session: String,
    /// To before this prompt, such as p3; without it, to before the latest one
    #[arg(long, value_name = "PROMPT")]
    pub(crate) to: Option<String>,
    /// Also put back the files that were changed since
    #[arg(long)]
    pub(crate) files: bool,
    /// Of these files also those that were changed since
    #[arg(long, requires = "files")]
    pub(crate) force: bool,
    /// Change nothing, and list the prompts that it can go back to, the latest first
    #[arg(long, conflicts_with_all = ["to", "files"])]
    pub(crate) list: bool,
    /// Print one JSON object: `branch` (the session with what was left), `to`, `prompt`, `text`, `changes`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// The child: a name, an id, or a unique prefix of an id
    #[arg(value_name = "CHILD")]
    pub(crate) session: String,
    /// Print one JSON object: `child`, `branch`, `directory`, `before`, `commit`, `files`, `count`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Uncompact {
    /// A name, an id, or a unique prefix of an id
    pub(crate) session: String,
    /// Print one JSON object: `compacted`, `messages`, `tokens`
    #[arg(long)]
    pub(crate) json: bool,
}
