//! Commands that list, show, change or remove sessions.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::options::Changeable;

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// All sessions, not only the latest
    #[arg(long)]
    pub(crate) all: bool,
    /// Only sessions that wait for an answer or a key
    #[arg(long)]
    pub(crate) waiting: bool,
    /// Only running sessions; with --waiting, both
    #[arg(long)]
    pub(crate) running: bool,
    /// Only sessions of this directory
    #[arg(long)]
    pub(crate) here: bool,
    /// Sessions in the bin
    #[arg(long)]
    pub(crate) bin: bool,
    /// Show forks below the sessions they come from
    #[arg(long)]
    pub(crate) tree: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Log {
    /// Name, id or unique prefix of an id [default: the latest session of this directory]
    pub(crate) session: Option<String>,
    /// Follow: keep printing until the session has nothing left to do
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Follow even when the session has nothing left to do
    #[arg(long)]
    pub(crate) forever: bool,
    /// Only the last turn
    #[arg(long)]
    pub(crate) last: bool,
    /// Only the last N turns
    #[arg(short = 'n', long = "turns", value_name = "N", conflicts_with = "last")]
    pub(crate) turns: Option<usize>,
    /// Start here: a time such as 2h or 2026-11-24T09:30 (UTC), or a cursor from --json
    #[arg(long, value_name = "CURSOR|TIME", conflicts_with_all = ["last", "turns"])]
    pub(crate) since: Option<String>,
    /// Show outputs, commands and diffs in full
    #[arg(long)]
    pub(crate) full: bool,
    /// Show the time of each prompt and end of turn (UTC), and how long each answer took
    #[arg(short, long)]
    pub(crate) times: bool,
    /// Show the summaries made by compaction, and what they replaced
    #[arg(long, conflicts_with_all = ["follow", "forever", "last", "turns", "since", "full"])]
    pub(crate) compaction: bool,
    /// Print the events as JSON, one per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Name, id or unique prefix of an id [default: the latest session of this directory]
    pub(crate) session: Option<String>,
    /// Output format: Markdown, or the events as JSON lines
    #[arg(long, value_enum, default_value_t = ExportFormat::Md)]
    pub(crate) format: ExportFormat,
    /// Same as --format jsonl
    #[arg(long)]
    pub(crate) json: bool,
}

/// Output format of `linger export`.
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
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Format of the line: {running} {waiting} {queued} count all sessions; {session} {name} {model} {mode} {cost} {context}
    /// describe this project's latest session
    #[arg(long, value_name = "TEXT", default_value = "{running} running, {waiting} waiting, {queued} queued")]
    pub(crate) format: String,
    /// Print one JSON object with all of these fields
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Env {
    /// Name, id or unique prefix of an id [default: a new session]
    pub(crate) session: Option<String>,
    /// Print one JSON object: `session`, `variables`, `secret`, `missing`, `withheld` (from this shell, with reasons)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Undo {
    /// Name, id or unique prefix of an id [default: the latest session of this directory]
    pub(crate) session: Option<String>,
    /// Make the changes again that were undone last
    #[arg(long, conflicts_with_all = ["call", "file", "keep"])]
    pub(crate) redo: bool,
    /// Only the changes of this call, such as c12 (ids: `linger log --json`)
    #[arg(long, value_name = "ID", conflicts_with = "file")]
    pub(crate) call: Option<String>,
    /// Only this file, in the latest turn that changed it, even if something else may have changed it; repeatable
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Vec<PathBuf>,
    /// Leave files that something else may have changed while a command ran
    #[arg(long, conflicts_with = "file")]
    pub(crate) keep: bool,
    /// Also overwrite files that changed since, and files that something else may have changed while a command ran
    #[arg(long, conflicts_with = "keep")]
    pub(crate) force: bool,
    /// Print one JSON object: `session`, `step` (the turn, if all of it was undone), `changes`, `failed`, `uncertain`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Redo {
    /// Name, id or unique prefix of an id [default: the latest session of this directory]
    pub(crate) session: Option<String>,
    /// Also overwrite files that changed since
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object: `session`, `step` (the turn, if all of it was undone), `changes`, `failed`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// Names or ids; unique prefixes of ids only on a terminal or with --yes
    #[arg(required_unless_present_any = ["older_than", "bin"], value_name = "SESSION")]
    pub(crate) sessions: Vec<String>,
    /// Even while a turn is running; the turn is cancelled
    #[arg(long)]
    pub(crate) force: bool,
    /// Delete for good, also from the bin
    #[arg(long)]
    pub(crate) now: bool,
    /// Take them out of the bin again
    #[arg(long, conflicts_with_all = ["force", "now", "older_than", "bin"])]
    pub(crate) restore: bool,
    /// All sessions that have not changed for longer than this: 90d, 12h, 2w
    #[arg(long, value_name = "AGE", value_parser = linger_protocol::age::parse, conflicts_with = "sessions")]
    pub(crate) older_than: Option<u64>,
    /// Empty the bin: delete all sessions in it for good
    #[arg(long, conflicts_with_all = ["sessions", "older_than"])]
    pub(crate) bin: bool,
    /// With --older-than or --bin: list the sessions; change nothing
    #[arg(long, conflicts_with = "sessions")]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print JSON, one object per session: `session`; with --older-than or --bin one object: `sessions`, `count`, `size`
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
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// List the sessions; change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also sessions with a running turn, such as one that waits for an answer
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object: `sessions`, `count`, `size`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    /// Name, id or unique prefix of an id
    pub(crate) session: String,
    /// New name of the session
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Directory where it works from now on, such as that of a renamed project
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) changeable: Changeable,
    /// Remove an added directory; repeatable
    #[arg(long, value_name = "DIR")]
    pub(crate) remove_dir: Vec<PathBuf>,
    /// Print one JSON object: `session`, `model`, `mode`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Rename {
    /// Name, id or unique prefix of an id
    pub(crate) session: String,
    /// New name
    pub(crate) name: String,
    /// Print one JSON object: `session`, `name`
    #[arg(long)]
    pub(crate) json: bool,
}
