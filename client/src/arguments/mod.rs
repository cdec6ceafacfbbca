//! The command line: one declaration gives parser, usage, help, completions and man pages. One file per family of commands.
//!
//! Only types of arguments; the commands themselves are in `command`.

mod across;
mod artifact;
mod begin;
mod common;
mod daemon;
mod files;
mod gateway;
#[cfg(test)]
mod man;
mod mcp;
mod options;
pub(crate) mod overview;
mod sessions;
mod setup;
mod token;
mod tree;
mod turn;

use clap::{Args, Parser, Subcommand};

use crate::terminal::Color;

pub(crate) use across::{Events, Search};
pub(crate) use artifact::Artifact;
pub(crate) use begin::{Acp, Complete, Completions, Import, ImportKind, Init, Login, Program, Shell, Validate};
pub(crate) use common::{Json, Keyed, OutputFormat};
pub(crate) use daemon::{Daemon, Doctor};
pub(crate) use files::{AllFiles, FileKind, Files, FilesCommand, ToolsOf};
pub(crate) use gateway::{Gateway, GatewayStart, GatewayUrl};
pub(crate) use mcp::{Mcp, McpAdd, McpConfigured, McpListing, McpLogin, McpNamed, McpOffered, McpServe};
pub(crate) use options::{Changeable, Check, Choice};
pub(crate) use sessions::{Env, Export, ExportFormat, Inbox, Log, Ls, Prune, Redo, Rename, Rm, Set, Status, Undo};
pub(crate) use setup::{
    Config, ConfigConfirmed, ConfigGetting, ConfigSetting, Configure, ExplainCall, Key, Memory, MemoryNamed, Models,
    Permissions, PermissionsCommand, RemoveRule, Trust, Usage,
};
pub(crate) use token::{Mint as TokenMint, Token};
pub(crate) use tree::{Diff, Fork, Merge, Rewind, Uncompact};
pub(crate) use turn::{Answer, Attach, Cancel, Compact, New, Queue, Run, Send, Unqueue, Wait};

/// Coding agents that outlive your terminal.
///
/// Without a command, linger opens the latest session of this project, or starts one, and sends the prompt if there is one.
#[derive(Debug, Parser)]
#[command(
    name = "linger",
    version,
    disable_help_subcommand = true,
    args_conflicts_with_subcommands = true,
    override_help = overview::HELP
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) display: Display,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) bare: Bare,
}

/// `linger` without a command. Options that can be changed later also apply to an existing session.
#[derive(Debug, Args)]
pub(crate) struct Bare {
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Continue the latest session; fail if there is none
    #[arg(short, long = "continue")]
    pub(crate) continue_latest: bool,
    /// Start a new session
    #[arg(short, long, conflicts_with_all = ["continue_latest", "resume"])]
    pub(crate) new: bool,
    /// Attach to this session
    #[arg(short, long, value_name = "SESSION", conflicts_with = "continue_latest")]
    pub(crate) resume: Option<String>,
    /// Same as `linger run`, as in other programs.
    #[arg(short, long, hide = true, conflicts_with = "new")]
    pub(crate) print: bool,
    /// The name that other programs use for `--json`.
    #[arg(long, hide = true, requires = "print")]
    pub(crate) output_format: Option<OutputFormat>,
    /// First prompt; `@picture.png` attaches a picture
    pub(crate) prompt: Vec<String>,
}

/// The subcommands. Hidden ones are older spellings: they keep working and are listed nowhere.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send a prompt, wait for the turn to end, print the answer
    #[command(alias = "exec")]
    Run(Run),
    /// Send a prompt to a session and return at once
    Send(Send),
    /// Open a session, or the latest one of this project
    #[command(alias = "resume")]
    Attach(Attach),
    /// Wait until sessions have nothing left to do
    Wait(Wait),
    /// List the questions that wait for an answer
    Inbox(Inbox),
    /// Answer a question
    Answer(Answer),
    /// Stop a session's turn; the session stays
    Cancel(Cancel),
    /// List a session's queued prompts and drafts, drop one, or send them
    Queue(Queue),
    /// Merge a child's git worktree into its parent's directory
    Merge(Merge),
    /// List sessions, latest first
    #[command(alias = "list")]
    Ls(Ls),
    /// Create a session and print its id
    New(New),
    /// Print what happened in a session
    Log(Log),
    /// Search the messages of all sessions
    Search(Search),
    /// Print a session as Markdown or JSON
    Export(Export),
    /// Show what a session and its children changed in files
    Diff(Diff),
    /// Take back a turn's file changes, or redo them
    ///
    /// In git repositories this includes changes made by commands.
    Undo(Undo),
    /// Go back to before a prompt; the rest becomes its own session
    Rewind(Rewind),
    /// Start a new session from a point of another one
    Fork(Fork),
    /// Summarise older messages for the model, or take that back
    Compact(Compact),
    /// Change a session's name, model, mode, limits or directories
    Set(Set),
    /// Move sessions to the bin for 30 days, take them out, or delete them
    Rm(Rm),
    /// Write a first configuration: asks for provider, key and model
    Init(Init),
    /// Manage provider keys
    #[command(subcommand)]
    Key(Key),
    /// List the models you can use
    Models(Models),
    /// Show what models cost, by day, model or session
    Usage(Usage),
    /// View, edit and confirm configuration
    Config(Config),
    /// Trust or distrust this repository's config, hooks and MCP servers
    Trust(Trust),
    /// List or remove rules added by answers; explain a decision
    Permissions(Permissions),
    /// Import settings from Claude Code, Codex or opencode
    ///
    /// Imports MCP servers, rules, agents, skills, commands and instructions from your home directory.
    Import(Import),
    /// Check everything and say how to fix problems
    Doctor(Doctor),
    /// Generate shell completions
    Completions(Completions),
    /// Manage Markdown files: agents, skills, commands, tools, servers
    Files(AllFiles),
    /// List the tools that models get
    Tools(ToolsOf),
    /// Manage MCP servers
    #[command(subcommand)]
    Mcp(Mcp),
    /// Manage notes that outlive sessions
    #[command(subcommand)]
    Memory(Memory),
    /// Start, stop or inspect the daemon
    #[command(subcommand)]
    Daemon(Daemon),
    /// Serve a web page and an OpenAI-compatible API over HTTP
    #[command(subcommand)]
    Gateway(Gateway),
    /// Serve an editor that speaks ACP, over stdin and stdout
    Acp(Acp),
    /// One-line status for shell prompts and status bars
    Status(Status),
    /// Print what happens in all sessions
    Events(Events),
    /// Create and revoke access tokens
    #[command(subcommand)]
    Token(Token),
    /// Store files at the daemon, for prompts and other programs
    #[command(subcommand)]
    Artifact(Artifact),
    /// Explain a command or a topic of the manual
    Help(Help),
    /// Same as `linger` without a command, as in other programs
    #[command(hide = true)]
    Chat(Bare),
    /// Same as `linger queue --run`
    #[command(hide = true)]
    Continue(Keyed),
    /// Same as `linger queue --drop`
    #[command(hide = true)]
    Unqueue(Unqueue),
    /// Same as `linger undo --redo`
    #[command(hide = true)]
    Redo(Redo),
    /// Same as `linger compact --undo`
    #[command(hide = true)]
    Uncompact(Uncompact),
    /// Same as `linger set --name`
    #[command(hide = true)]
    Rename(Rename),
    /// Same as `linger rm --restore`
    #[command(hide = true)]
    Restore(Keyed),
    /// Same as `linger rm --older-than`; with --now alone, as `linger rm --bin`
    #[command(hide = true)]
    Prune(Prune),
    /// Same as `linger key set`
    #[command(hide = true)]
    Login(Login),
    /// Same as `linger doctor --env`
    #[command(hide = true)]
    Env(Env),
    /// Same as `linger doctor --files`
    #[command(hide = true)]
    Validate(Validate),
    /// Same as `linger files --kind skill`
    #[command(subcommand, hide = true)]
    Skills(Files),
    /// Same as `linger files --kind command`
    #[command(subcommand, hide = true)]
    Commands(Files),
    /// Same as `linger files --kind agent`
    #[command(subcommand, hide = true)]
    Agents(Files),
    /// Prints completions of a line; called by the shell functions
    #[command(hide = true)]
    Complete(Complete),
}

/// Options for every command.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Display {
    /// When to use colours: auto, always or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_default_value = true)]
    pub(crate) color: Color,
    /// Print the model's Markdown unformatted
    #[arg(long, global = true)]
    pub(crate) raw: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Help {
    /// A topic (such as start, rules, configuration), a command, or `commands`
    pub(crate) about: Vec<String>,
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use linger_protocol::budget::Budget;
    use linger_protocol::session::Until;

    use super::*;

    /// Commands with no output, or with output in another format.
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
        assert_eq!(run.check.into_until(), Some(Until { command: "true".to_owned(), tries: Some(3) }));
        assert!(Arguments::try_parse_from(["linger", "run", "--tries", "3", "p"]).is_err());
    }

    #[test]
    fn older_spellings_keep_working_and_are_not_listed() {
        let root = <Arguments as clap::CommandFactory>::command();
        for line in [
            "continue s1",
            "unqueue s1 p3",
            "redo s1",
            "uncompact s1",
            "rename s1 fox",
            "restore s1",
            "prune --older-than 90d --dry-run",
            "login anthropic",
            "env s1",
            "validate",
            "skills list",
            "commands show review",
            "agents validate",
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let parsed = Arguments::try_parse_from(std::iter::once("linger").chain(words.iter().copied()));
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
            let listed = root.find_subcommand(words[0]).is_some_and(|command| !command.is_hide_set());
            assert!(!listed, "{line}");
        }
    }
}
