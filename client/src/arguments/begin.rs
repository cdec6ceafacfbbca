//! Commands of the first day: a configuration, a key, what another program has, the shell's completions.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use linger_protocol::permission::Mode;
use linger_protocol::session::Effort;

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// A first file of this kind in the place of a configuration, with comments
    #[arg(value_enum, requires = "name", conflicts_with_all = ["provider", "model", "mode", "key"])]
    pub(crate) kind: Option<FirstFile>,
    /// The file's name: small letters, digits and hyphens
    pub(crate) name: Option<String>,
    /// Write it for this workspace, below `.linger` of its root, and not for yourself
    #[arg(long, requires = "kind")]
    pub(crate) here: bool,
    /// The provider of new sessions' models, as in PROVIDER/MODEL
    #[arg(long)]
    pub(crate) provider: Option<String>,
    /// The model of new sessions: PROVIDER/MODEL, or a provider alone
    #[arg(short, long, conflicts_with = "provider")]
    pub(crate) model: Option<String>,
    /// What runs without asking: ask, edit, auto or plan
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
    /// Read the provider's key as a line of standard input, and keep it in the keychain
    #[arg(long)]
    pub(crate) key: bool,
    /// Print one JSON object: `file`, `model`, `mode`; of another file `file`, `kind`, `name`
    #[arg(long)]
    pub(crate) json: bool,
}

/// A Markdown file that linger reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FirstFile {
    Agent,
    Skill,
    Command,
    Tool,
    Server,
}

impl FirstFile {
    /// What people call it.
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

#[derive(Debug, Args)]
pub(crate) struct Login {
    /// The provider, as in PROVIDER/MODEL
    pub(crate) provider: Option<String>,
    /// Print one JSON object: the row of `linger key list --json`
    #[arg(long)]
    pub(crate) json: bool,
    /// Accepted only for an error that explains why a key is no argument.
    #[arg(hide = true, allow_hyphen_values = true, trailing_var_arg = true)]
    pub(crate) extra: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// A directory in the workspace whose files count; this one when absent
    #[arg(value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// One JSON object a line: `ok`, `file`, `line`, `column`, `text`, `hint`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The program: claude, codex or opencode
    #[arg(value_enum)]
    pub(crate) from: Program,
    /// Show what would be taken, and take nothing
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// Do not ask: take all that is shown
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Take these kinds alone, with commas between them
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_enum)]
    pub(crate) only: Vec<Kind>,
    /// Leave these kinds out, with commas between them
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_enum, conflicts_with = "only")]
    pub(crate) skip: Vec<Kind>,
    /// One JSON object a line: `kind`, `name`, `state` (`new`, `skipped`, `taken`, and of a `note` why), `text`
    #[arg(long)]
    pub(crate) json: bool,
}

/// What can be taken from another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Servers,
    Rules,
    Agents,
    Skills,
    Commands,
    Instructions,
}

/// Another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Program {
    Claude,
    Codex,
    Opencode,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// A shell that has completions.
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

/// What sessions of an editor begin with.
#[derive(Debug, Args)]
pub(crate) struct Acp {
    /// PROVIDER/MODEL of new sessions, or a provider alone
    #[arg(short, long)]
    pub(crate) model: Option<String>,
    /// What runs without asking in new sessions: ask, edit, auto or plan
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
    /// How hard the model thinks in new sessions: none, minimal, low, medium, high, xhigh, max, or auto
    #[arg(long)]
    pub(crate) effort: Option<Effort>,
    /// The agent that new sessions are; `linger agents list` lists them
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
}
