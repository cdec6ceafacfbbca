//! Options of a session (model, mode, limits), and the check at the end of a turn.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use linger_protocol::budget::{self, Budget};
use linger_protocol::patience::Patience;
use linger_protocol::permission::Mode;
use linger_protocol::session::{Effort, Until};
use linger_protocol::unattended::Unattended;

use super::common::timeout;

/// Options of a new session.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Choice {
    #[command(flatten)]
    pub(crate) changeable: Changeable,
    /// Agent for the session; `linger files list agents` lists them
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Rule for calls that run in this session without asking, such as 'bash(cargo test:*)'; repeatable
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<String>,
    /// Add the text of this file to the system prompt
    #[arg(long, value_name = "FILE")]
    pub(crate) system: Option<PathBuf>,
    /// Name of the session
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Working directory of the session [default: this one]
    #[arg(short = 'C', long = "cwd", value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
}

/// Options of a new session that can also be changed later.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Changeable {
    /// PROVIDER/MODEL, or only a provider
    #[arg(short, long)]
    pub(crate) model: Option<String>,
    /// Permission mode: ask, edit, auto or plan
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
    /// Reasoning effort: none, minimal, low, medium, high, xhigh, max, or auto for the model's default
    #[arg(long)]
    pub(crate) effort: Option<Effort>,
    /// How long a turn waits for a provider that is down: 90s, 2h, forever, or 0
    #[arg(long, value_name = "TIME")]
    pub(crate) patience: Option<Patience>,
    /// Fallback model; repeatable
    #[arg(long, value_name = "MODEL")]
    pub(crate) fallback: Vec<String>,
    /// Unanswered questions: hold, deny, or deny:10m (deny after a time)
    #[arg(long, value_name = "WHAT")]
    pub(crate) unattended: Option<Unattended>,
    #[command(flatten)]
    pub(crate) limits: Limits,
    /// Only these tools, such as read,grep; mcp__NAME__* for all of a server, '*' for all
    #[arg(long, value_delimiter = ',', value_name = "TOOLS")]
    pub(crate) tools: Vec<String>,
    /// Additional working directory; repeatable
    #[arg(long, value_name = "DIR")]
    pub(crate) add_dir: Vec<PathBuf>,
}

/// Limits of a session; 0 removes a limit.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Limits {
    /// Pause and ask once the session has cost this much (USD)
    #[arg(long, value_name = "DOLLARS", value_parser = budget::parse_dollars)]
    pub(crate) max_cost: Option<u64>,
    /// Pause and ask once the session has used this many tokens: 50000, 200k, 2M
    #[arg(long, value_name = "TOKENS", value_parser = budget::parse_tokens)]
    pub(crate) max_tokens: Option<u64>,
    /// Pause and ask once its turns have run this long: 90s, 30m, 2h
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    pub(crate) max_time: Option<Duration>,
    /// End each turn after this many steps (requests to the model)
    #[arg(long, value_name = "STEPS")]
    pub(crate) max_steps: Option<u32>,
}

impl From<Limits> for Budget {
    fn from(Limits { max_cost, max_tokens, max_time, max_steps }: Limits) -> Self {
        let max_ms = max_time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        Self { max_cost_micros: max_cost, max_tokens, max_ms, max_steps }
    }
}

/// A command that must pass before a turn ends well.
#[derive(Debug, Default, Args)]
pub(crate) struct Check {
    /// Run this command when the turn would end; while it fails, its output is the next prompt
    #[arg(long, value_name = "COMMAND")]
    pub(crate) until: Option<String>,
    /// How many times to try again, at most 10 [default: 10]
    #[arg(long, value_name = "N", requires = "until")]
    pub(crate) tries: Option<u32>,
}

impl Check {
    /// The check as a prompt carries it; none without `--until`.
    pub(crate) fn into_until(self) -> Option<Until> {
        let Self { until, tries } = self;
        until.map(|command| Until { command, tries })
    }
}
