//! Setup commands: first configuration, key, import from other programs, shell completions, ACP.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use linger_protocol::permission::Mode;
use linger_protocol::session::Effort;

use super::files::FileKind;

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Write a commented first file of this kind instead of a configuration
    #[arg(value_enum, requires = "name", conflicts_with_all = ["provider", "model", "mode", "key"])]
    pub(crate) kind: Option<FileKind>,
    /// Name of the file: lower-case letters, digits and hyphens
    pub(crate) name: Option<String>,
    /// Write it for this workspace (in `.linger`) instead of for yourself
    #[arg(long, requires = "kind")]
    pub(crate) here: bool,
    /// Provider of new sessions, as in PROVIDER/MODEL
    #[arg(long)]
    pub(crate) provider: Option<String>,
    /// Model of new sessions: PROVIDER/MODEL, or only a provider
    #[arg(short, long, conflicts_with = "provider")]
    pub(crate) model: Option<String>,
    /// Permission mode: ask, edit, auto or plan
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
    /// Read the provider's key from standard input (one line) and keep it in the keychain
    #[arg(long)]
    pub(crate) key: bool,
    /// Print one JSON object: `file`, `model`, `mode`, `answered_ms`, `problem`; for other files `file`, `kind`, `name`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Login {
    /// Provider, as in PROVIDER/MODEL
    pub(crate) provider: Option<String>,
    /// Print one JSON object, as in `linger key list --json`
    #[arg(long)]
    pub(crate) json: bool,
    /// Catches a key given as an argument, to explain why that is refused.
    #[arg(hide = true, allow_hyphen_values = true, trailing_var_arg = true)]
    pub(crate) extra: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// A directory in the workspace to check [default: this one]
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Print JSON, one object per line: `ok`, `file`, `line`, `column`, `text`, `hint`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Program to import from: claude, codex or opencode
    #[arg(value_enum)]
    pub(crate) from: Program,
    /// Show what would be imported; change nothing
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Import everything shown, without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Import only these kinds, separated by commas
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_enum)]
    pub(crate) only: Vec<ImportKind>,
    /// Skip these kinds, separated by commas
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_enum, conflicts_with = "only")]
    pub(crate) skip: Vec<ImportKind>,
    /// Print JSON, one object per line: `kind`, `name`, `state` (`new`, `skipped`, `taken`, `note`), `text`
    #[arg(long)]
    pub(crate) json: bool,
}

/// A kind of thing that can be imported from another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImportKind {
    Servers,
    Rules,
    Agents,
    Skills,
    Commands,
    Instructions,
}

/// A program to import from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Program {
    Claude,
    Codex,
    Opencode,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell to generate completions for
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// A shell with completions for linger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub(crate) struct Complete {
    /// The line up to the cursor.
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) line: String,
}

/// Options of sessions that an editor starts.
#[derive(Debug, Args)]
pub(crate) struct Acp {
    /// Model of new sessions: PROVIDER/MODEL, or only a provider
    #[arg(short, long)]
    pub(crate) model: Option<String>,
    /// Permission mode of new sessions: ask, edit, auto or plan
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
    /// Reasoning effort of new sessions: none, minimal, low, medium, high, xhigh, max or auto
    #[arg(long)]
    pub(crate) effort: Option<Effort>,
    /// Agent for new sessions; `linger files list agents` lists them
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
}
