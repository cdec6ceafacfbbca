//! Commands about configuration: models, usage, notes, files, keys, rules, trust.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::common::Json;

#[derive(Debug, Args)]
pub(crate) struct Models {
    /// Only models whose name contains this; `*` and `?` are wildcards
    pub(crate) pattern: Option<String>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Usage {
    /// Since this day (UTC): 7d or 2w, counting today, or a date such as 2026-11-01
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Group by this
    #[arg(long, value_enum, default_value_t = UsageBy::Day)]
    pub(crate) by: UsageBy,
    /// Print one JSON object: `rows`, `total`
    #[arg(long)]
    pub(crate) json: bool,
}

/// How `linger usage` groups its rows.
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

/// The subcommands of `linger memory`.
#[derive(Debug, Subcommand)]
pub(crate) enum Memory {
    /// List the notes that sessions here see
    List(Json),
    /// Print a note
    Show(MemoryNamed),
    /// Add a note about this workspace; the first line is its title
    Add {
        /// Text of the note
        #[arg(required = true)]
        text: Vec<String>,
        /// A note about you, for all workspaces
        #[arg(long)]
        user: bool,
        /// Print one JSON object: the note
        #[arg(long)]
        json: bool,
    },
    /// Edit a note with $VISUAL or $EDITOR
    Edit(MemoryNamed),
    /// Delete a note
    Rm(MemoryNamed),
}

#[derive(Debug, Args)]
pub(crate) struct MemoryNamed {
    /// Name of the note: NAME, user/NAME or workspace/NAME
    pub(crate) name: String,
    /// The note about you
    #[arg(long)]
    pub(crate) user: bool,
    /// Print one JSON object: the note
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Store a provider's key in the system's keychain; asks for it, or reads one line of stdin
    Set {
        /// Provider, as in PROVIDER/MODEL
        provider: Option<String>,
        /// Print one JSON object, as in `linger key list --json`
        #[arg(long)]
        json: bool,
        /// Catches a key given as an argument, to explain why that is refused.
        #[arg(hide = true, allow_hyphen_values = true, trailing_var_arg = true)]
        extra: Vec<String>,
    },
    /// Remove a provider's key from the system's keychain
    Rm {
        /// Provider, as in PROVIDER/MODEL
        provider: String,
        /// Print one JSON object: `removed`, and `now` if another key is used instead
        #[arg(long)]
        json: bool,
    },
    /// List providers and where their keys come from
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
    /// Print the value of one key, as in force
    Get(ConfigGetting),
    /// Print the path of the file
    Path(Json),
    /// Show pending changes of the file, and apply them if you agree
    Confirm(ConfigConfirmed),
    /// Set one key in the file; takes effect at once
    Set(ConfigSetting),
    /// Edit the file with $VISUAL or $EDITOR; checked when you save, takes effect at once
    Edit(Json),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigConfirmed {
    /// Confirm everything pending, without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// Confirm exactly the changes with this digest (from `linger config --json`), without asking
    #[arg(long, conflicts_with = "yes")]
    pub(crate) digest: Option<String>,
    /// Print one JSON object: `confirmed`, one line per change
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigGetting {
    /// Dotted key, such as `mode` or `permissions.allow`
    #[arg(value_name = "KEY")]
    pub(crate) name: String,
    /// Print the value as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigSetting {
    /// Dotted key, such as `mode` or `permissions.allow`
    #[arg(value_name = "KEY")]
    pub(crate) name: String,
    /// Value, as in the file; anything that is not TOML is a string
    #[arg(allow_hyphen_values = true)]
    pub(crate) value: String,
    /// Print one JSON object: `confirmed`, one line per change that grants more
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Trust {
    /// A directory in the workspace [default: this one]
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// List trusted workspaces
    #[arg(long, conflicts_with_all = ["directory", "revoke", "yes", "digest"])]
    pub(crate) list: bool,
    /// Stop trusting the workspace
    #[arg(long, conflicts_with_all = ["yes", "digest"])]
    pub(crate) revoke: bool,
    /// Trust everything pending, without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// Trust exactly the content with this digest, without asking
    #[arg(long, conflicts_with = "yes")]
    pub(crate) digest: Option<String>,
    /// Print one JSON object: `confirmed`, one line per change; with --list one object per line
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
    /// Explain whether a call would run, and which rule or mode decides
    Explain(ExplainCall),
    /// Remove a rule that an answer added
    Remove(RemoveRule),
}

#[derive(Debug, Args)]
pub(crate) struct ExplainCall {
    /// Call, written like a rule: 'bash(cargo test)', 'edit(src/main.rs)', 'mcp__server__tool'
    pub(crate) call: String,
    /// For a new session in this directory [default: the current directory]
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    pub(crate) cwd: Option<PathBuf>,
    /// For this session: name, id or unique prefix of an id
    #[arg(short, long)]
    pub(crate) session: Option<String>,
    /// Print one JSON object: `verdict` (allow, ask, deny), `by`, `place`, `mode`, `cwd`, `path`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveRule {
    /// Rule, as listed by `linger permissions`
    pub(crate) rule: String,
    /// Only in the workspace with this root [default: everywhere]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Print one JSON object: `removed`
    #[arg(long)]
    pub(crate) json: bool,
}
