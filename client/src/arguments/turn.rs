//! Commands that give a session work, follow it or stop it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::common::{OutputFormat, timeout};
use super::options::{Check, Choice};
use crate::render::Thinking;

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Use this session: name, id or unique prefix of an id
    #[arg(short, long, conflicts_with_all = ["agent", "allow", "system", "directory"])]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) check: Check,
    /// Use the latest session of this project, including sessions created by `run`
    #[arg(short, long = "continue", conflicts_with_all = ["agent", "allow", "system", "session"])]
    pub(crate) continue_latest: bool,
    /// Delete the session when the turn has ended
    #[arg(long, conflicts_with_all = ["session", "continue_latest", "detach"])]
    pub(crate) rm: bool,
    /// The name that other programs use for `--json`.
    #[arg(long, hide = true)]
    pub(crate) output_format: Option<OutputFormat>,
    /// Accepted because other programs have it: `run` always prints and exits.
    #[arg(short, long, hide = true)]
    pub(crate) print: bool,
    /// Print the session's id and leave it running in the background
    #[arg(short, long, conflicts_with_all = ["stream", "timeout"])]
    pub(crate) detach: bool,
    /// Print the events as JSON, one per line; with -d one object: `session`, `prompt`
    #[arg(long)]
    pub(crate) json: bool,
    /// Require an answer that matches the JSON Schema in this file; print only that JSON
    #[arg(long, value_name = "FILE", conflicts_with = "stream")]
    pub(crate) schema: Option<PathBuf>,
    /// Show the model's thinking: show, hide or summary (first line)
    #[arg(long, default_value = "show")]
    pub(crate) thinking: Thinking,
    /// Print text as it arrives, also to a pipe; text cut by a crash stays, with a note on stderr
    #[arg(long)]
    pub(crate) stream: bool,
    /// Exit after this time (seconds, or 90s, 10m, 2h); the work continues
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    pub(crate) timeout: Option<Duration>,
    /// Prompt; `@picture.png` attaches a picture; piped standard input is appended, or replaces `-`
    pub(crate) prompt: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct New {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Print one JSON object: `session`, and `warning` if the model is unknown
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// Name, id or unique prefix of an id [default: the latest session of this project]
    pub(crate) session: Option<String>,
    /// Print the events as JSON, one per line, without input; same as `linger log --forever --json`
    #[arg(long)]
    pub(crate) json: bool,
    /// Watch only: no prompts, no answers
    #[arg(short, long)]
    pub(crate) read_only: bool,
    /// Number of past turns to show [default: one screenful]
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub(crate) tail: Option<usize>,
    /// Show the whole session
    #[arg(long)]
    pub(crate) all: bool,
    /// Continue after this cursor (from `--json`), without showing earlier text
    #[arg(long, value_name = "CURSOR", conflicts_with_all = ["all", "tail", "json", "read_only"])]
    pub(crate) since: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// Deliver it before the next step of the running turn
    #[arg(long, conflicts_with = "interrupt")]
    pub(crate) steer: bool,
    /// Cancel the running step and deliver it now
    #[arg(long)]
    pub(crate) interrupt: bool,
    #[command(flatten)]
    pub(crate) check: Check,
    /// Require an answer that matches the JSON Schema in this file; `turn_finished` has it as `answer`
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: Option<PathBuf>,
    /// Print one JSON object: `session`, `prompt`, `seq`
    #[arg(long)]
    pub(crate) json: bool,
    /// Name, id or unique prefix of an id
    pub(crate) session: String,
    /// Prompt; `@picture.png` attaches a picture; piped standard input is appended, or replaces `-`
    pub(crate) prompt: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Queue {
    /// Name, id or unique prefix of an id
    pub(crate) session: String,
    /// Take back a queued prompt or a draft, such as p3 [default: the last one]
    #[arg(long, value_name = "PROMPT", num_args = 0..=1)]
    pub(crate) drop: Option<Option<String>>,
    /// Continue an interrupted turn, start the queued prompts, or send all drafts
    #[arg(long, conflicts_with = "drop")]
    pub(crate) run: bool,
    /// Send this draft alone
    #[arg(long, value_name = "PROMPT", conflicts_with_all = ["drop", "run"])]
    pub(crate) send: Option<String>,
    /// Print JSON, one object per line: `prompt`, `text`, `draft`; with --drop, --run or --send `session`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Unqueue {
    /// Name, id or unique prefix of an id
    pub(crate) session: String,
    /// Prompt id, such as p3, as listed by `linger queue` [default: the last one]
    pub(crate) prompt: Option<String>,
    /// Print one JSON object: `session`, `prompt`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// Name, id or unique prefix of an id
    pub(crate) session: String,
    /// Also stop its background commands
    #[arg(long)]
    pub(crate) background: bool,
    /// Print one JSON object: `session`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Names, ids or unique prefixes of ids
    #[arg(required = true, value_name = "SESSION")]
    pub(crate) sessions: Vec<String>,
    /// Stop waiting when one of them has nothing left to do; prints its id
    #[arg(long)]
    pub(crate) any: bool,
    /// Print the last answer
    #[arg(long, conflicts_with = "json")]
    pub(crate) answer: bool,
    /// Exit after this time (seconds, or 90s, 10m, 2h); the work continues
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    pub(crate) timeout: Option<Duration>,
    /// Print one JSON object: the session, as in `linger ls --json`; `stop_reason` tells how its last turn ended
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Answer {
    /// Question id or a unique prefix of it; not needed when only one question waits
    pub(crate) question: Option<String>,
    /// The answer. Permission: allow (this call), session (similar calls in this session), always (also in later
    /// sessions of this workspace) or deny. Choice: the name of an option. Form: its fields, as in '{"name": "x"}', the
    /// text of its only field, or decline
    pub(crate) answer: Option<String>,
    /// A reason; with deny, the model reads it
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// With allow: also allow what else the same answer of the model asks. Shows all of it first and asks; without a
    /// terminal it prints the digests that --digest takes
    #[arg(long)]
    pub(crate) rest: bool,
    /// With --rest: the digests of exactly what is allowed, separated by commas
    #[arg(long, value_name = "DIGEST", value_delimiter = ',', requires = "rest")]
    pub(crate) digest: Vec<String>,
    /// Print one JSON object: `session` (absent if the daemon asks), `question` and `answer`; for a permission also
    /// `permission` and `decision` (`allow_once`, `allow_session`, `allow_always` or `reject_once`). With --rest one for
    /// each question
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Compact {
    /// Name, id or unique prefix of an id
    pub(crate) session: String,
    /// Print the events of the compaction as JSON, one per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Take back the latest summary: the model reads the original messages again
    #[arg(long, conflicts_with = "focus")]
    pub(crate) undo: bool,
    /// Focus of the summary
    pub(crate) focus: Vec<String>,
}
