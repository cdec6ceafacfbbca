//! Commands about the gateway.

use clap::{Args, Subcommand};

use super::Json;

#[derive(Debug, Subcommand)]
pub(crate) enum Gateway {
    /// Start the gateway if it is not running
    Start(GatewayStart),
    /// End the gateway; sessions go on
    Stop(Json),
    /// Show where the gateway listens
    Status(Json),
    /// Print a link that opens the page in a browser, once
    Url(GatewayUrl),
}

#[derive(Debug, Args)]
pub(crate) struct GatewayStart {
    /// Stay in the foreground, for a service manager
    #[arg(long, conflicts_with = "json")]
    pub(crate) foreground: bool,
    /// Print one JSON object: `pid`, `listen`, `url`, `version`, `started_at`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GatewayUrl {
    /// A link to this question
    #[arg(long, value_name = "QUESTION")]
    pub(crate) question: Option<String>,
    /// For reading alone: the page may neither prompt nor answer
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Print one JSON object: `url`, `id` of the code
    #[arg(long)]
    pub(crate) json: bool,
}
