//! Options of a session: model, mode, limits, the check of a turn.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use linger_protocol::budget::{self, Budget};
use linger_protocol::patience::Patience;
use linger_protocol::permission::Mode;
use linger_protocol::session::{Effort, Until};
use linger_protocol::unattended::Unattended;

use super::timeout;

/// Options of a new session.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Choice {
    #[command(flatten)]
    pub(crate) changeable: Changeable,
    /// The agent that the session is; `linger agents list` lists them
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// A rule of calls that run in this session without asking, such as 'bash(cargo test:*)'; may be repeated
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<String>,
    /// Add the text of this file to the system prompt
    #[arg(long, value_name = "FILE")]
    pub(crate) system: Option<PathBuf>,
    /// A name for the session
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The session's directory, in place of this one
    #[arg(short = 'C', long = "cwd", value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
}

/// Options that hold for a new session, and change one that exists.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Changeable {
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
    /// What happens to a question without an answer: hold, deny, or deny:10m after a time
    #[arg(long, value_name = "WHAT")]
    pub(crate) unattended: Option<Unattended>,
    #[command(flatten)]
    pub(crate) limits: Limits,
    /// The only tools of the session, such as read,grep; mcp__NAME__* is all of a server, '*' is all
    #[arg(long, value_delimiter = ',', value_name = "TOOLS")]
    pub(crate) tools: Vec<String>,
    /// A directory more that file tools treat like the session's own; may be repeated
    #[arg(long, value_name = "DIR")]
    pub(crate) add_dir: Vec<PathBuf>,
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
