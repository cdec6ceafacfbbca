//! Commands that give a session work, follow it, or stop it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{Check, Choice, OutputFormat, timeout};
use crate::render::Thinking;

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Use this session: a name, an id, or a unique prefix of an id
    #[arg(short, long, conflicts_with_all = ["agent", "allow", "system", "directory"])]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) check: Check,
    /// Use the latest session of this project, also one that `run` made
    #[arg(short, long = "continue", conflicts_with_all = ["agent", "allow", "system", "session"])]
    pub(crate) continue_latest: bool,
    /// Delete the session when its turn has ended
    #[arg(long, conflicts_with_all = ["session", "continue_latest", "detach"])]
    pub(crate) rm: bool,
    /// As other programs name it.
    #[arg(long, hide = true)]
    pub(crate) output_format: Option<OutputFormat>,
    /// As other programs name it: `run` always prints and leaves.
    #[arg(short, long, hide = true)]
    pub(crate) print: bool,
    /// Print the session's id and leave it running
    #[arg(short, long, conflicts_with_all = ["stream", "timeout"])]
    pub(crate) detach: bool,
    /// Print the events, one JSON object a line; with -d one of the session and the prompt
    #[arg(long)]
    pub(crate) json: bool,
    /// Make the answer fit the JSON Schema in this file, and print JSON alone
    #[arg(long, value_name = "FILE", conflicts_with = "stream")]
    pub(crate) schema: Option<PathBuf>,
    /// What to show of the model's thinking: show, hide or summary (its first line)
    #[arg(long, default_value = "show")]
    pub(crate) thinking: Thinking,
    /// Print text as it comes, also to a pipe; text that a crash cut stays, with a line on stderr
    #[arg(long)]
    pub(crate) stream: bool,
    /// Leave after this time, in seconds or as 90s, 10m, 2h; the work continues
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    pub(crate) timeout: Option<Duration>,
    /// The prompt; `@picture.png` sends a picture; piped standard input follows it, or takes the place of `-`
    pub(crate) prompt: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct New {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Print one JSON object: `session`, and `warning` if its model is unknown
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Attach {
    /// A name, an id, or a unique prefix of an id; without it, the latest session of this project
    pub(crate) session: Option<String>,
    /// Print the events, one JSON object a line, and read no input: as `linger log --forever --json`
    #[arg(long)]
    pub(crate) json: bool,
    /// Only watch: no prompt, no answers
    #[arg(short, long)]
    pub(crate) read_only: bool,
    /// How many of the last turns to show, in place of a screenful
    #[arg(long, value_name = "N", conflicts_with = "all")]
    pub(crate) tail: Option<usize>,
    /// Show the session from its beginning
    #[arg(long)]
    pub(crate) all: bool,
    /// Read on after this cursor, as `--json` prints it, and show nothing of what was before
    #[arg(long, value_name = "CURSOR", conflicts_with_all = ["all", "tail", "json", "read_only"])]
    pub(crate) since: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// Before the next step of the running turn
    #[arg(long, conflicts_with = "interrupt")]
    pub(crate) steer: bool,
    /// Now: cancel the running step
    #[arg(long)]
    pub(crate) interrupt: bool,
    #[command(flatten)]
    pub(crate) check: Check,
    /// Make the answer fit the JSON Schema in this file; `turn_finished` has it as `answer`
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: Option<PathBuf>,
    /// Print one JSON object: `session`, `prompt`, `seq`
    #[arg(long)]
    pub(crate) json: bool,
    /// A name, an id, or a unique prefix of an id
    pub(crate) session: String,
    /// The prompt; `@picture.png` sends a picture; piped standard input follows it, or takes the place of `-`
    pub(crate) prompt: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Unqueue {
    /// A name, an id, or a unique prefix of an id
    pub(crate) session: String,
    /// The prompt, such as p3, as `linger queue` lists it; without it, the last one
    pub(crate) prompt: Option<String>,
    /// Print one JSON object: `session`, `prompt`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// A name, an id, or a unique prefix of an id
    pub(crate) session: String,
    /// Also end the commands that it runs in the background
    #[arg(long)]
    pub(crate) background: bool,
    /// Print one JSON object: `session`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Names, ids, or unique prefixes of ids
    #[arg(required = true, value_name = "SESSION")]
    pub(crate) sessions: Vec<String>,
    /// Until one of them has nothing more to do; prints its id
    #[arg(long)]
    pub(crate) any: bool,
    /// Print the last answer
    #[arg(long, conflicts_with = "json")]
    pub(crate) answer: bool,
    /// Leave after this time, in seconds or as 90s, 10m, 2h; the work continues
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    pub(crate) timeout: Option<Duration>,
    /// Print one JSON object: the session as in `linger ls --json`; `stop_reason` is the end of its last turn
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Answer {
    /// The question's id, or a unique prefix of it
    pub(crate) question: String,
    /// For a permission allow (this call), session (and those alike in this session), always (and in this workspace) or deny;
    /// for a choice the name of an option; for a form its fields, as in '{"name": "x"}', the text of its only
    /// field, or decline
    pub(crate) answer: String,
    /// A word with it; with deny, one to the model
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Print one JSON object: `session` (unless the daemon asks), `question` and `answer`; for a permission also `permission` and
    /// `decision` as `allow_once`, `allow_session`, `allow_always` or `reject_once`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Compact {
    /// A name, an id, or a unique prefix of an id
    pub(crate) session: String,
    /// Print the events of the compaction, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// What the summary should keep
    pub(crate) focus: Vec<String>,
}
