//! The command line: one declaration makes parser, usage and help; a file a family of commands.
//!
//! Types of arguments alone; what a command does with them is in `command`.

mod across;
mod artifact;
mod begin;
mod daemon;
mod gateway;
#[cfg(test)]
mod man;
mod mcp;
mod options;
mod sessions;
mod setup;
mod token;
mod tree;
mod turn;

use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::terminal::Color;

pub(crate) use across::{Events, Search};
pub(crate) use artifact::Artifact;
pub(crate) use begin::{Acp, Complete, Completions, FirstFile, Import, Init, Kind, Login, Program, Shell, Validate};
pub(crate) use daemon::{Daemon, Doctor};
pub(crate) use gateway::{Gateway, GatewayStart, GatewayUrl};
pub(crate) use mcp::{Mcp, McpAdd, McpConfigured, McpListing, McpLogin, McpNamed, McpOffered, McpServe};
pub(crate) use options::{Changeable, Check, Choice};
pub(crate) use sessions::{Env, Export, ExportFormat, Inbox, Log, Ls, Prune, Redo, Rename, Rm, Set, Status, Undo};
pub(crate) use setup::{
    Config, ConfigConfirmed, ConfigGetting, ConfigSetting, Configure, ExplainCall, Files, Key, Memory, MemoryNamed,
    Models, Permissions, PermissionsCommand, RemoveRule, ToolsOf, Trust, Usage,
};
pub(crate) use token::{Mint as TokenMint, Token};
pub(crate) use tree::{Diff, Fork, Merge, Rewind, Uncompact};
pub(crate) use turn::{Answer, Attach, Cancel, Compact, New, Run, Send, Unqueue, Wait};

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
    /// Print what happens in all sessions
    Events(Events),
    /// Find messages of all sessions by their words
    Search(Search),
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
    /// Show what a session's turns changed in files, those of its children too
    Diff(Diff),
    /// Put files back to what they were before a turn; in git repositories what commands changed too
    Undo(Undo),
    /// Make the changes again that were undone last
    Redo(Redo),
    /// Take back the latest summary: the model reads the messages again
    Uncompact(Uncompact),
    /// Make a session that goes on from a point of another one
    Fork(Fork),
    /// Go back to before a prompt; what is left stays as a session of its own
    Rewind(Rewind),
    /// Merge what a child did in its git worktree into its parent's directory
    Merge(Merge),
    /// Give a session another name
    Rename(Rename),
    /// Change a session: its model, mode, limits, directories
    Set(Set),
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
    /// Notes that outlive sessions: list, show, add, edit, rm
    #[command(subcommand)]
    Memory(Memory),
    /// Show which variables a session's tools get
    Env(Env),
    /// What is always allowed: list, remove; and which rule or mode decides on a call: explain
    Permissions(Permissions),
    /// MCP servers: list, add, remove, restart, logs, test
    #[command(subcommand)]
    Mcp(Mcp),
    /// Be an agent for an editor that speaks ACP, over standard input and output
    Acp(Acp),
    /// Keys of providers: list, set, remove
    #[command(subcommand)]
    Key(Key),
    /// Write a first configuration: asks for provider, key and model
    Init(Init),
    /// Put a provider's key into the system's keychain, as `linger key set`
    Login(Login),
    /// Take over what Claude Code, Codex or opencode has: servers, rules, agents, skills, commands, instructions
    Import(Import),
    /// Check the configuration, and what else is read: skills, commands, agents, servers, the files of this workspace
    Validate(Validate),
    /// The configuration: show what is in force and what waits, confirm, set, edit
    Config(Config),
    /// What the files of a workspace want that widens what may happen: show and trust it, list, revoke
    Trust(Trust),
    /// Files at the daemon, for prompts and other programs: put, get, ls, rm
    #[command(subcommand)]
    Artifact(Artifact),
    /// Tokens, by which others may do a part of what you may: mint, list, revoke
    #[command(subcommand)]
    Token(Token),
    /// The daemon itself
    #[command(subcommand)]
    Daemon(Daemon),
    /// linger over HTTP, for browsers and OpenAI's clients: start, stop, status, url
    #[command(subcommand)]
    Gateway(Gateway),
    /// Check everything, and say what to do about problems
    Doctor(Doctor),
    /// Print what makes a shell complete commands, options and names
    Completions(Completions),
    /// What the shells ask.
    #[command(hide = true)]
    Complete(Complete),
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

#[derive(Debug, Args)]
pub(crate) struct Json {
    /// One JSON object a line
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
    use std::path::PathBuf;

    use linger_protocol::budget::Budget;
    use linger_protocol::session::Until;

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

    /// Commands whose output is of another form, or none.
    const WITHOUT_JSON: [&str; 5] = ["acp", "artifact get", "completions", "help", "mcp serve"];

    fn without_json(command: &clap::Command, name: &str, found: &mut Vec<String>) {
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            let name = format!("{name} {}", below.get_name()).trim().to_owned();
            let takes = below.get_arguments().any(|argument| argument.get_id() == "json");
            // A group alone does nothing.
            if !takes && !below.is_subcommand_required_set() && !WITHOUT_JSON.contains(&name.as_str()) {
                found.push(name.clone());
            }
            without_json(below, &name, found);
        }
    }

    #[test]
    fn every_command_prints_json() {
        let mut found = Vec::new();
        without_json(&<Arguments as clap::CommandFactory>::command(), "", &mut found);
        assert_eq!(found, Vec::<String>::new(), "`--json` is missing");
    }

    #[test]
    fn limits_checks_and_directories_are_read() {
        let words = "linger run --max-cost 0.50 --max-tokens 2k --max-time 2h --max-steps 9 --until true --tries 3 --add-dir x p";
        let parsed = Arguments::try_parse_from(words.split(' ')).unwrap();
        let Some(Command::Run(run)) = parsed.command else { panic!("it is a run") };
        let options = run.choice.changeable;
        let budget = Budget {
            max_cost_micros: Some(500_000),
            max_tokens: Some(2000),
            max_ms: Some(7_200_000),
            max_steps: Some(9),
        };
        assert_eq!((Budget::from(options.limits), options.add_dir), (budget, vec![PathBuf::from("x")]));
        assert_eq!(run.check.asked(), Some(Until { command: "true".to_owned(), tries: Some(3) }));
        assert!(Arguments::try_parse_from(["linger", "run", "--tries", "3", "p"]).is_err());
    }
}
