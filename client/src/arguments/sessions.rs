//! Commands that list, show, change or remove sessions.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::options::Changeable;

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// All of them
    #[arg(long)]
    pub(crate) all: bool,
    /// Those that wait for an answer or a key
    #[arg(long)]
    pub(crate) waiting: bool,
    /// Those that run; with --waiting, both
    #[arg(long)]
    pub(crate) running: bool,
    /// Those of this directory
    #[arg(long)]
    pub(crate) here: bool,
    /// Those in the bin
    #[arg(long)]
    pub(crate) bin: bool,
    /// Forks under the sessions that they come from
    #[arg(long)]
    pub(crate) tree: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Log {
    /// A name, an id, or a unique prefix of an id; without it, the latest session of this directory
    pub(crate) session: Option<String>,
    /// Follow: continue with new events until the session has nothing more to do
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Follow, also when the session has nothing more to do
    #[arg(long)]
    pub(crate) forever: bool,
    /// The last turn
    #[arg(long)]
    pub(crate) last: bool,
    /// The last N turns
    #[arg(short = 'n', long = "turns", value_name = "N", conflicts_with = "last")]
    pub(crate) turns: Option<usize>,
    /// From here on: a time such as 2h or 2026-11-24T09:30 (UTC), or a cursor that --json printed
    #[arg(long, value_name = "CURSOR|TIME", conflicts_with_all = ["last", "turns"])]
    pub(crate) since: Option<String>,
    /// Show outputs, commands and differences whole
    #[arg(long)]
    pub(crate) full: bool,
    /// Show when each prompt came and each turn ended, in UTC, and how long each answer took
    #[arg(short, long)]
    pub(crate) times: bool,
    /// What summaries replaced for the model, and the summaries, in place of what happened
    #[arg(long, conflicts_with_all = ["follow", "forever", "last", "turns", "since", "full"])]
    pub(crate) compaction: bool,
    /// Print the events, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// A name, an id, or a unique prefix of an id; without it, the latest session of this directory
    pub(crate) session: Option<String>,
    /// Markdown for people, or the events, one JSON object a line
    #[arg(long, value_enum, default_value_t = ExportFormat::Md)]
    pub(crate) format: ExportFormat,
    /// As --format jsonl
    #[arg(long)]
    pub(crate) json: bool,
}

/// The form of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Md,
    Jsonl,
}

#[derive(Debug, Args)]
pub(crate) struct Inbox {
    /// Follow: print new questions as they come
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The line: {running} {waiting} {queued} count in all sessions; {session} {name} {model} {mode} {cost} {context} are of this
    /// project's latest session
    #[arg(long, value_name = "TEXT", default_value = "{running} running, {waiting} waiting, {queued} queued")]
    pub(crate) format: String,
    /// Print one JSON object with all of these
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Env {
    /// A name, an id, or a unique prefix of an id; without it, what a new session gets
    pub(crate) session: Option<String>,
    /// Print one JSON object: `session`, `variables`, `secret`, `missing`, `withheld` (of this shell, with the reasons)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Undo {
    /// A name, an id, or a unique prefix of an id; without it, the latest session of this directory
    pub(crate) session: Option<String>,
    /// Only the changes of this call, such as c12; `linger log --json` shows the ids
    #[arg(long, value_name = "ID", conflicts_with = "file")]
    pub(crate) call: Option<String>,
    /// Only this file, in the latest turn that changed it
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Also files that were changed since
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object: `session`, `step` (the turn, if it was undone as a whole), `changes`, `failed`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Redo {
    /// A name, an id, or a unique prefix of an id; without it, the latest session of this directory
    pub(crate) session: Option<String>,
    /// Also files that were changed since
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object: `session`, `step` (the turn, if it was undone as a whole), `changes`, `failed`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// Names or ids; unique prefixes of ids on a terminal, or with --yes
    #[arg(required = true, value_name = "SESSION")]
    pub(crate) sessions: Vec<String>,
    /// Also while a turn is running
    #[arg(long)]
    pub(crate) force: bool,
    /// Delete for good, also what is in the bin
    #[arg(long)]
    pub(crate) now: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print one JSON object a session: `session`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Prune {
    /// Sessions that have not changed for longer than this: 90d, 12h, 2w
    #[arg(long, value_name = "AGE", value_parser = linger_protocol::age::parse, required_unless_present = "now")]
    pub(crate) older_than: Option<u64>,
    /// Delete for good; without --older-than, everything in the bin
    #[arg(long)]
    pub(crate) now: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// List the sessions, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also sessions with a running turn, such as one that waits for an answer
    #[arg(long)]
    pub(crate) force: bool,
    /// One JSON object: `sessions`, `count`, `size`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    /// A name, an id, or a unique prefix of an id
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) changeable: Changeable,
    /// An added directory that counts no more; may be repeated
    #[arg(long, value_name = "DIR")]
    pub(crate) remove_dir: Vec<PathBuf>,
    /// Print one JSON object: `session`, `model`, `mode`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rename {
    /// A name, an id, or a unique prefix of an id
    pub(crate) session: String,
    /// The new name
    pub(crate) name: String,
    /// Print one JSON object: `session`, `name`
    #[arg(long)]
    pub(crate) json: bool,
}
