//! Commands about the configuration: keys, rules, trust, skills, models.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Json;

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
        /// Print one JSON object: the note
        #[arg(long)]
        json: bool,
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
    /// Print one JSON object: the note
    #[arg(long)]
    pub(crate) json: bool,
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
    /// Print the value of one key that is in force
    Get(ConfigGetting),
    /// Print where the file is
    Path(Json),
    /// Put changes of the file that wait into force; shows them, and asks
    Confirm(ConfigConfirmed),
    /// Set one key in the file, in force at once
    Set(ConfigSetting),
    /// Edit the file with $VISUAL or $EDITOR; it is checked, written, and in force at once
    Edit(Json),
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
pub(crate) struct ConfigGetting {
    /// The dotted key, such as `mode` or `permissions.allow`
    #[arg(value_name = "KEY")]
    pub(crate) name: String,
    /// Print the value as JSON
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
