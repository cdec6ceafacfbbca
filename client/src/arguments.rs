//! The command line: one declaration makes parser, usage and help.
//!
//! Types of arguments alone; what a command does with them is in `command`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use linger_protocol::budget::{self, Budget};
use linger_protocol::patience::Patience;
use linger_protocol::permission::Mode;
use linger_protocol::session::{Effort, Until};
use linger_protocol::unattended::Unattended;

use crate::render::Thinking;
use crate::terminal::Color;

/// Coding agents that outlive your terminal.
///
/// Without a command: attaches to the latest session of this project, or starts one, and sends the prompt if there is one.
#[derive(Debug, Parser)]
#[command(name = "linger", version, disable_help_subcommand = true, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) display: Display,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) bare: Bare,
}

/// `linger` without a command. Options of a new session change one that is there.
#[derive(Debug, Args)]
pub(crate) struct Bare {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Go on with the latest session, and fail if there is none
    #[arg(short, long = "continue")]
    pub(crate) continue_latest: bool,
    /// Start a new session
    #[arg(short, long, conflicts_with_all = ["continue_latest", "resume"])]
    pub(crate) new: bool,
    /// Attach to this session
    #[arg(short, long, value_name = "SESSION", conflicts_with = "continue_latest")]
    pub(crate) resume: Option<String>,
    /// As `linger run`, which is the name of it here.
    #[arg(short, long, hide = true, conflicts_with = "new")]
    pub(crate) print: bool,
    /// As other programs name it.
    #[arg(long, hide = true, requires = "print")]
    pub(crate) output_format: Option<OutputFormat>,
    /// The first prompt; `@picture.png` sends a picture
    pub(crate) prompt: Vec<String>,
}

/// What other programs call the form of the output; `--json` is the name here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Text,
    #[value(alias = "json")]
    StreamJson,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Give a session a prompt and wait for the turn to end
    #[command(alias = "exec")]
    Run(Run),
    /// Create a session and print its id
    New(New),
    /// List sessions, the latest first
    #[command(alias = "list")]
    Ls(Ls),
    /// Attach to a session, or to the latest of this project
    #[command(alias = "resume")]
    Attach(Attach),
    /// As `linger` alone, as other programs name it.
    #[command(hide = true)]
    Chat(Bare),
    /// Say how it stands, in a form of your own: for prompts and status bars
    Status(Status),
    /// Give a session a prompt and leave
    Send(Send),
    /// Resume a turn that was interrupted, or start prompts that are still queued
    Continue(Keyed),
    /// List the prompts that wait for their turn
    Queue(Keyed),
    /// Take back a prompt that waits for its turn
    Unqueue(Unqueue),
    /// Wait until sessions have nothing more to do
    Wait(Wait),
    /// Print what happened in a session
    Log(Log),
    /// Print a session as Markdown, or its events as JSON
    Export(Export),
    /// List the questions that wait for an answer
    Inbox(Inbox),
    /// Answer a question
    Answer(Answer),
    /// Stop a session's turn and keep the session
    Cancel(Cancel),
    /// Replace a session's older messages by a summary, for the model
    Compact(Compact),
    /// Put files back to what they were before a turn; what bash changed is not covered
    Undo(Undo),
    /// Make the changes again that were undone last
    Redo(Redo),
    /// Give a session another name
    Rename(Rename),
    /// Put sessions into the bin, where they stay for 30 days
    Rm(Rm),
    /// Take a session out of the bin
    Restore(Keyed),
    /// Put sessions into the bin that were not used for a while; or empty the bin
    Prune(Prune),
    /// List the models that can be used
    Models(Models),
    /// Show what models cost, by day, model or session
    Usage(Usage),
    /// Notes that outlive sessions: list, show, add, edit, rm
    #[command(subcommand)]
    Memory(Memory),
    /// List the tools that models are given
    Tools(ToolsOf),
    /// Skills, which a model reads when a task fits: list, show, validate
    #[command(subcommand)]
    Skills(Files),
    /// Commands, which are prompts with a name: list, show, validate
    #[command(subcommand)]
    Commands(Files),
    /// Agents, which are roles of sessions: list, show, validate
    #[command(subcommand)]
    Agents(Files),
    /// Show which variables a session's tools get
    Env(Env),
    /// What is always allowed: list, remove; and which rule or mode decides on a call: explain
    Permissions(Permissions),
    /// MCP servers: list, add, remove, restart, logs, test
    #[command(subcommand)]
    Mcp(Mcp),
    /// Keys of providers: list, set, remove
    #[command(subcommand)]
    Key(Key),
    /// The configuration: show what is in force and what waits, confirm, set, edit
    Config(Config),
    /// What the files of a workspace want that widens what may happen: show and trust it, list, revoke
    Trust(Trust),
    /// The daemon itself
    #[command(subcommand)]
    Daemon(Daemon),
    /// Check everything, and say what to do about problems
    Doctor(Doctor),
    /// Explain a command or a topic; alone: list both
    Help(Help),
}

/// How output looks, for every command.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Display {
    /// When to use colours: auto, always or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    pub(crate) color: Color,
    /// Show the source of the model's Markdown
    #[arg(long, global = true)]
    pub(crate) raw: bool,
}

/// Options of a new session.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Choice {
    /// PROVIDER/MODEL, or a provider alone
    #[arg(short, long)]
    pub(crate) model: Option<String>,
    /// What runs without asking: ask, edit, auto or plan
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
    /// How hard the model thinks: none, minimal, low, medium, high, xhigh, max, or auto for its default
    #[arg(long)]
    pub(crate) effort: Option<Effort>,
    /// How long a turn waits while its provider cannot answer: such as 90s, 2h, forever, or 0
    #[arg(long, value_name = "TIME")]
    pub(crate) patience: Option<Patience>,
    /// A model that stands in while the session's own cannot answer; may be repeated
    #[arg(long, value_name = "MODEL")]
    pub(crate) fallback: Vec<String>,
    /// What happens to a question that nobody answers: hold, deny, or deny:10m after a time
    #[arg(long, value_name = "WHAT")]
    pub(crate) unattended: Option<Unattended>,
    #[command(flatten)]
    pub(crate) limits: Limits,
    /// A directory more that file tools treat like this one; may be repeated
    #[arg(long, value_name = "DIR")]
    pub(crate) add_dir: Vec<PathBuf>,
    /// The only tools of the session, such as read,grep; mcp__NAME__* is all of a server
    #[arg(long, value_delimiter = ',', value_name = "TOOLS")]
    pub(crate) tools: Vec<String>,
    /// The agent that the session is; `linger agents list` lists them
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// A name for the session
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The session's directory, in place of this one
    #[arg(short = 'C', long = "cwd", value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
}

/// Limits of a session; 0 takes one away.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Limits {
    /// Ask before the next step once the session has cost so many dollars
    #[arg(long, value_name = "DOLLARS", value_parser = budget::parse_dollars)]
    pub(crate) max_cost: Option<u64>,
    /// Ask before the next step once the session has used so many tokens: 50000, 200k, 2M
    #[arg(long, value_name = "TOKENS", value_parser = budget::parse_tokens)]
    pub(crate) max_tokens: Option<u64>,
    /// Ask before the next step once its turns have run so long, such as 90s, 30m, 2h
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    pub(crate) max_time: Option<Duration>,
    /// End each turn after so many steps, one request to the model each
    #[arg(long, value_name = "STEPS")]
    pub(crate) max_steps: Option<u32>,
}

impl From<Limits> for Budget {
    fn from(Limits { max_cost, max_tokens, max_time, max_steps }: Limits) -> Self {
        let max_ms = max_time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        Self { max_cost_micros: max_cost, max_tokens, max_ms, max_steps }
    }
}

/// A check that has to pass before a turn ends well.
#[derive(Debug, Default, Args)]
pub(crate) struct Check {
    /// Run this command when the turn would end; its failure is the next prompt, until it passes
    #[arg(long, value_name = "COMMAND")]
    pub(crate) until: Option<String>,
    /// How often its failure is the next prompt, 10 at most [default: 10]
    #[arg(long, value_name = "N", requires = "until")]
    pub(crate) tries: Option<u32>,
}

impl Check {
    /// What a prompt asks for.
    pub(crate) fn asked(self) -> Option<Until> {
        let Self { until, tries } = self;
        until.map(|command| Until { command, tries })
    }
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Use this session: a name, an id, or a unique prefix of an id
    #[arg(short, long, conflicts_with_all = ["tools", "agent", "directory"])]
    pub(crate) session: Option<String>,
    #[command(flatten)]
    pub(crate) check: Check,
    /// Use the latest session of this project, also one that `run` made
    #[arg(short, long = "continue", conflicts_with_all = ["tools", "agent", "session"])]
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
}

#[derive(Debug, Args)]
pub(crate) struct Models {
    /// Only models whose name contains this; `*` and `?` match other characters
    pub(crate) pattern: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Usage {
    /// From this day (UTC) on: days or weeks such as 7d, counting today, or a date such as 2026-11-01
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// What to sum up by
    #[arg(long, value_enum, default_value_t = UsageBy::Day)]
    pub(crate) by: UsageBy,
    /// One JSON object: `rows`, `total`
    #[arg(long)]
    pub(crate) json: bool,
}

/// What a line of `usage` stands for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum UsageBy {
    Day,
    Model,
    Session,
}

impl From<UsageBy> for linger_protocol::usage::By {
    fn from(by: UsageBy) -> Self {
        match by {
            UsageBy::Day => Self::Day,
            UsageBy::Model => Self::Model,
            UsageBy::Session => Self::Session,
        }
    }
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
pub(crate) struct Log {
    /// A name, an id, or a unique prefix of an id
    pub(crate) session: String,
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
    /// Show when each prompt came and each turn ended, in UTC
    #[arg(short, long)]
    pub(crate) times: bool,
    /// Print the events, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Json {
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ToolsOf {
    /// What to do with the Markdown files that describe tools
    #[command(subcommand)]
    pub(crate) files: Option<Files>,
    /// A name, an id, or a unique prefix of an id; without it, what a new session here gets
    pub(crate) session: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do with notes.
#[derive(Debug, Subcommand)]
pub(crate) enum Memory {
    /// List the notes that sessions here have
    List(Json),
    /// Print one
    Show(MemoryNamed),
    /// Write one about this workspace; its first line says what it is about
    Add {
        /// The text
        #[arg(required = true)]
        text: Vec<String>,
        /// About the user, for all workspaces
        #[arg(long)]
        user: bool,
    },
    /// Open one in $VISUAL or $EDITOR
    Edit(MemoryNamed),
    /// Remove one
    Rm(MemoryNamed),
}

#[derive(Debug, Args)]
pub(crate) struct MemoryNamed {
    /// Its name: NAME, user/NAME or workspace/NAME
    pub(crate) name: String,
    /// The one about the user
    #[arg(long)]
    pub(crate) user: bool,
}

/// What to do with skills, commands, agents, or the files of tools.
#[derive(Debug, Subcommand)]
pub(crate) enum Files {
    /// List those of this directory, and whether sessions have them
    List(Json),
    /// Print the text of one
    Show {
        /// Its name
        name: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Check all of this directory, or the files that are named: exit code 1 if one breaks the rules
    Validate {
        /// Files; of a skill its directory or its SKILL.md
        paths: Vec<PathBuf>,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
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
    /// Also files that somebody changed since
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
    /// Also files that somebody changed since
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
pub(crate) struct Keyed {
    /// A name, an id, or a unique prefix of an id
    pub(crate) session: String,
    /// Print JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
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
pub(crate) struct Rename {
    /// A name, an id, or a unique prefix of an id
    pub(crate) session: String,
    /// The new name
    pub(crate) name: String,
    /// Print one JSON object: `session`, `name`
    #[arg(long)]
    pub(crate) json: bool,
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
pub(crate) struct Export {
    /// A name, an id, or a unique prefix of an id
    pub(crate) session: String,
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

#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Put a provider's key into the system's keychain; asks for it, or reads a line of stdin
    Set {
        /// The provider, as in PROVIDER/MODEL
        provider: String,
        /// Print one JSON object: the row of `linger key list --json`
        #[arg(long)]
        json: bool,
        /// Accepted only for an error that explains why a key is no argument.
        #[arg(hide = true, allow_hyphen_values = true, trailing_var_arg = true)]
        extra: Vec<String>,
    },
    /// Take a provider's key out of the system's keychain
    Rm {
        /// The provider, as in PROVIDER/MODEL
        provider: String,
        /// Print one JSON object: `removed`, and `now` if another key is used
        #[arg(long)]
        json: bool,
    },
    /// List where each provider's key comes from
    List(Json),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Config {
    #[command(subcommand)]
    pub(crate) command: Option<Configure>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Configure {
    /// Put changes of the file that wait into force; shows them, and asks
    Confirm(ConfigConfirmed),
    /// Set one key in the file, in force at once
    Set(ConfigSetting),
    /// Edit the file with $VISUAL or $EDITOR; it is checked, written, and in force at once
    Edit,
}

#[derive(Debug, Args)]
pub(crate) struct Trust {
    /// A directory in the workspace; this one when absent
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// List what is trusted
    #[arg(long, conflicts_with_all = ["directory", "revoke", "yes", "digest"])]
    pub(crate) list: bool,
    /// Trust nothing of the workspace any more
    #[arg(long, conflicts_with_all = ["yes", "digest"])]
    pub(crate) revoke: bool,
    /// Do not ask: trust whatever waits
    #[arg(long)]
    pub(crate) yes: bool,
    /// Do not ask: trust exactly what has this digest
    #[arg(long, conflicts_with = "yes")]
    pub(crate) digest: Option<String>,
    /// Print one JSON object: `confirmed`, a line for each change; with --list one a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigConfirmed {
    /// Do not ask: confirm whatever waits
    #[arg(long)]
    pub(crate) yes: bool,
    /// Do not ask: confirm exactly the changes with this digest, from `linger config --json`
    #[arg(long, conflicts_with = "yes")]
    pub(crate) digest: Option<String>,
    /// Print one JSON object: `confirmed`, a line for each change
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigSetting {
    /// The dotted key, such as `mode` or `permissions.allow`
    #[arg(value_name = "KEY")]
    pub(crate) name: String,
    /// The value as in the file; what is not TOML is a string
    #[arg(allow_hyphen_values = true)]
    pub(crate) value: String,
    /// Print one JSON object: `confirmed`, a line for each change that widens
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Permissions {
    #[command(subcommand)]
    pub(crate) command: Option<PermissionsCommand>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PermissionsCommand {
    /// Say whether a call would run, and which rule or mode says so
    Explain(ExplainCall),
    /// Take a rule that an answer added out of the configuration
    Remove(RemoveRule),
}

#[derive(Debug, Args)]
pub(crate) struct ExplainCall {
    /// The call, as a rule is written: 'bash(cargo test)', 'edit(src/main.rs)', 'mcp__server__tool'
    pub(crate) call: String,
    /// In a new session in this directory, in place of the current one
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    pub(crate) cwd: Option<PathBuf>,
    /// In this session: an id, a unique prefix of one, or a name
    #[arg(short, long)]
    pub(crate) session: Option<String>,
    /// Print one JSON object: `verdict` (allow, ask, deny), `by`, `place`, `mode`, `cwd`, `path`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveRule {
    /// The rule, as `linger permissions` lists it
    pub(crate) rule: String,
    /// Only that of the workspace with this root, in place of all
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Print one JSON object: `removed`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Mcp {
    /// List the MCP servers, and how they are
    List(Json),
    /// Put a server into the configuration, and start it
    Add(McpAdd),
    /// Take a server out of the configuration
    Remove(McpNamed),
    /// End a server; the next call starts it
    Restart(McpNamed),
    /// Print what a server wrote to standard error, and what it logged
    Logs(McpNamed),
    /// Start a server, if it does not run, and list its tools
    Test(McpNamed),
    /// Log in at a server with an address, in the browser
    Login(McpLogin),
    /// Forget the login at a server
    Logout(McpNamed),
    /// Give linger's own tools to another program, as an MCP server on stdin and stdout
    Serve(McpServe),
    /// Check the Markdown files that describe servers: exit code 1 if one cannot be used
    Validate {
        /// Files; without one all of this directory
        paths: Vec<PathBuf>,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// List what a prompt can name as @SERVER:URI
    Resources(McpOffered),
    /// List the prompts that servers have ready: /SERVER:PROMPT in a session
    Prompts(McpOffered),
}

#[derive(Debug, Args)]
pub(crate) struct McpLogin {
    /// The server, as in [mcp.NAME]
    pub(crate) server: String,
    /// The browser is on another machine: read the address that it ends at from standard input
    #[arg(long)]
    pub(crate) paste: bool,
    /// Print one JSON object: the server as in `linger mcp list --json`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpServe {
    /// The only tools, such as bash,read
    #[arg(long, value_name = "TOOL,TOOL", value_delimiter = ',')]
    pub(crate) tools: Vec<String>,
    /// A rule for calls that run without asking, such as 'bash(cargo test:*)'; may be given again
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct McpOffered {
    /// The server; by default all of them
    pub(crate) server: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpNamed {
    /// The server, as in [mcp.NAME]
    pub(crate) server: String,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpAdd {
    /// Letters, digits, `-` and `_`; its tools are mcp__NAME__TOOL
    pub(crate) server: String,
    /// A variable of the server, not a secret
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Its directory; by default the root of each workspace
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Print one JSON object: the server as in `linger mcp list --json`
    #[arg(long)]
    pub(crate) json: bool,
    /// The address of a server, in place of a program
    #[arg(long, conflicts_with_all = ["env", "cwd", "command"])]
    pub(crate) url: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "url")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Daemon {
    /// Show where everything is and what is running
    Status(Json),
    /// Start the daemon if it is not running
    Start(Json),
    /// End the daemon, even if it hangs; turns continue when it starts again
    Stop {
        /// Also while a turn is running; kills a daemon that does not end
        #[arg(long)]
        force: bool,
        /// The same at once: commands of tools that run do not get 10 s to end
        #[arg(long)]
        now: bool,
        /// Print one JSON object: `stopped`, false if none was running
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Save what can be read of damaged data; stops the daemon meanwhile
    #[arg(long)]
    pub(crate) repair: bool,
    /// With --repair, also while a turn is running, which continues afterwards
    #[arg(long, requires = "repair")]
    pub(crate) force: bool,
    /// Ask each provider that can be used for its models, with its key
    #[arg(long)]
    pub(crate) probe: bool,
    /// One JSON object a line: `ok` (null: more about the line before), `text`, `hint`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Help {
    /// A topic (such as configuration, keys, permissions), or a command
    pub(crate) about: Vec<String>,
}

/// How long to wait: seconds, or a number with a unit.
fn timeout(text: &str) -> Result<Duration, String> {
    let seconds = || Duration::try_from_secs_f64(text.trim().parse().ok()?).ok();
    let unit = || linger_protocol::age::parse(text).ok().map(Duration::from_millis);
    seconds()
        .or_else(unit)
        .ok_or_else(|| "write seconds, such as 30 or 0.5, or a number and a unit, such as 10m or 2h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_seconds_or_has_a_unit() {
        let check =
            |text: &str, ms: Option<u64>| assert_eq!(timeout(text).ok(), ms.map(Duration::from_millis), "{text}");
        check("0.5", Some(500));
        check("30", Some(30_000));
        check("10m", Some(600_000));
        check("2 h", Some(7_200_000));
        for wrong in ["", "-1", "soon", "nan", "inf", "1e99", "5x"] {
            check(wrong, None);
        }
    }

    #[test]
    fn limits_checks_and_directories_are_read() {
        let words = "linger run --max-cost 0.50 --max-tokens 2k --max-time 2h --max-steps 9 --until true --tries 3 --add-dir x p";
        let parsed = Arguments::try_parse_from(words.split(' ')).unwrap();
        let Some(Command::Run(run)) = parsed.command else { panic!("it is a run") };
        let budget = Budget {
            max_cost_micros: Some(500_000),
            max_tokens: Some(2000),
            max_ms: Some(7_200_000),
            max_steps: Some(9),
        };
        assert_eq!((Budget::from(run.choice.limits), run.choice.add_dir), (budget, vec![PathBuf::from("x")]));
        assert_eq!(run.check.asked(), Some(Until { command: "true".to_owned(), tries: Some(3) }));
        assert!(Arguments::try_parse_from(["linger", "run", "--tries", "3", "p"]).is_err());
    }
}
