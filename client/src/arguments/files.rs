//! `linger files` and `linger tools`: the Markdown files that linger reads, and the tools that models get.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::common::Json;

/// A kind of Markdown file that linger reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileKind {
    #[value(alias = "agents")]
    Agent,
    #[value(alias = "skills")]
    Skill,
    #[value(alias = "commands")]
    Command,
    #[value(alias = "tools")]
    Tool,
    #[value(alias = "servers")]
    Server,
}

impl FileKind {
    /// The word for one such file in messages.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Skill => "skill",
            Self::Command => "command",
            Self::Tool => "tool",
            Self::Server => "server",
        }
    }
}

/// `linger files`: every kind of Markdown file in one place.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AllFiles {
    #[command(subcommand)]
    pub(crate) command: Option<FilesCommand>,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// The subcommands of `linger files`.
#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// List the files of this directory and their state
    List {
        /// Only this kind: agents, skills, commands, tools or servers
        #[arg(value_enum, hide_possible_values = true)]
        kind: Option<FileKind>,
        /// Print JSON, one object per line
        #[arg(long)]
        json: bool,
    },
    /// Print one file
    Show {
        /// Name of the file
        name: String,
        /// Kind of the file, if several kinds have that name
        #[arg(short, long, value_enum)]
        kind: Option<FileKind>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Check all files of this directory, or the given ones; exit code 1 if one has errors
    Validate {
        /// Files to check; for a skill its directory or SKILL.md
        paths: Vec<PathBuf>,
        /// Kind of the files, if their paths do not tell
        #[arg(short, long, value_enum)]
        kind: Option<FileKind>,
        /// Print JSON, one object per line
        #[arg(long)]
        json: bool,
    },
}

/// Subcommands on one kind of Markdown file: skills, commands, agents or tools.
#[derive(Debug, Subcommand)]
pub(crate) enum Files {
    /// List the files of this directory and their state
    List(Json),
    /// Print one file
    Show {
        /// Name of the file
        name: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Check all files of this directory, or the given ones; exit code 1 if one has errors
    Validate {
        /// Files to check; for a skill its directory or SKILL.md
        paths: Vec<PathBuf>,
        /// Print JSON, one object per line
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ToolsOf {
    /// Manage the Markdown files that define tools
    #[command(subcommand)]
    pub(crate) files: Option<Files>,
    /// Session: name, id or unique prefix of an id [default: a new session here]
    pub(crate) session: Option<String>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}
