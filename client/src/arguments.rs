//! The command line: one declaration makes parser, usage and help.
//!
//! Types of arguments alone; what a command does with them is in `command`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use linger_protocol::patience::Patience;
use linger_protocol::permission::Mode;
use linger_protocol::session::Effort;
use linger_protocol::unattended::Unattended;

use crate::render::Thinking;

/// Coding agents that outlive your terminal.
///
/// Without a command: attaches to the latest session of this directory, or starts one.
#[derive(Debug, Parser)]
#[command(name = "linger", version, disable_help_subcommand = true, arg_required_else_help = false)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Give a session a prompt and wait for the turn to end
    Run(Run),
    /// Create a session and print its id
    New(New),
    /// List sessions, the latest first
    Ls(Ls),
    /// Attach to a session
    Attach(Attach),
    /// Give a session a prompt and leave
    Send(Send),
    /// Wait until a session has nothing more to do
    Wait(Wait),
    /// Print what happened in a session
    Log(Log),
    /// List the questions that wait for an answer
    Inbox(Json),
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
    /// Delete a session
    Rm(Rm),
    /// Delete sessions that were not used for a while
    Prune(Prune),
    /// List the models that can be used
    Models(Models),
    /// Show what models cost, by day, model or session
    Usage(Usage),
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
    /// The only tools of the session, such as read,grep; mcp__NAME__* is all of a server
    #[arg(long, value_delimiter = ',', value_name = "TOOLS")]
    pub(crate) tools: Vec<String>,
    /// The agent that the session is; `linger agents list` lists them
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// A name for the session
    #[arg(long)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Use this session: an id, a unique prefix of one, or a name
    #[arg(short, long, conflicts_with_all = ["tools", "agent"])]
    pub(crate) session: Option<String>,
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
    /// The prompt; `@picture.png` sends a picture; `-`, or nothing with a piped stdin, reads stdin
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
    /// An id, a unique prefix of one, or a name
    pub(crate) session: String,
    /// Print the events, one JSON object a line, and read no input: as `linger log -f --json`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// Before the next step of the running turn
    #[arg(long, conflicts_with = "interrupt")]
    pub(crate) steer: bool,
    /// Now: cancel the running step
    #[arg(long)]
    pub(crate) interrupt: bool,
    /// Make the answer fit the JSON Schema in this file; `turn_finished` has it as `answer`
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: Option<PathBuf>,
    /// Print one JSON object: `session`, `prompt`, `seq`
    #[arg(long)]
    pub(crate) json: bool,
    /// An id, a unique prefix of one, or a name
    pub(crate) session: String,
    /// The prompt; `@picture.png` sends a picture; `-`, or nothing with a piped stdin, reads stdin
    pub(crate) prompt: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// An id, a unique prefix of one, or a name
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
    /// An id, a unique prefix of one, or a name
    pub(crate) session: String,
    /// Leave after this time, in seconds or as 90s, 10m, 2h; the work continues
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    pub(crate) timeout: Option<Duration>,
    /// Print one JSON object: the session as in `linger ls --json`; `stop_reason` is the end of its last turn
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Log {
    /// An id, a unique prefix of one, or a name
    pub(crate) session: String,
    /// Follow: continue with new events
    #[arg(short, long)]
    pub(crate) follow: bool,
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
pub(crate) struct ToolsOf {
    /// An id, a unique prefix of one, or a name; without it, what a new session here gets
    pub(crate) session: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do with skills, commands or agents.
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
    /// An id, a unique prefix of one, or a name; without it, what a new session gets
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
    /// An id, a unique prefix of one, or a name
    pub(crate) session: String,
    /// Print the events of the compaction, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// What the summary should keep
    pub(crate) focus: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Undo {
    /// An id, a unique prefix of one, or a name; without it, the latest session of this directory
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
    /// An id, a unique prefix of one, or a name; without it, the latest session of this directory
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
    /// An id, a unique prefix of one, or a name
    pub(crate) session: String,
    /// Also while a turn is running
    #[arg(long)]
    pub(crate) force: bool,
    /// Print one JSON object: `session`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Prune {
    /// Sessions that have not changed for longer than this: 90d, 12h, 2w
    #[arg(long, value_name = "AGE", value_parser = linger_protocol::age::parse)]
    pub(crate) older_than: u64,
    /// List what would be deleted, and delete nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also sessions with a running turn, such as one that waits for an answer
    #[arg(long)]
    pub(crate) force: bool,
    /// One JSON object: `sessions`, `count`, `size`
    #[arg(long)]
    pub(crate) json: bool,
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
    /// Give linger's own tools to another program, as an MCP server on stdin and stdout
    Serve(McpServe),
    /// List what a prompt can name as @SERVER:URI
    Resources(McpOffered),
    /// List the prompts that servers have ready: /SERVER:PROMPT in a session
    Prompts(McpOffered),
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
}
