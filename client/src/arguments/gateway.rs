//! `linger gateway`: linger over HTTP.

use clap::{Args, Subcommand};

use super::common::Json;

#[derive(Debug, Subcommand)]
pub(crate) enum Gateway {
    /// Start the gateway if it is not running
    Start(GatewayStart),
    /// Stop the gateway; sessions continue
    Stop(Json),
    /// Show where the gateway listens
    Status(Json),
    /// Print a link to the web page; it works once
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
    /// Link to this question
    #[arg(long, value_name = "QUESTION")]
    pub(crate) question: Option<String>,
    /// Read-only link: the page can neither prompt nor answer
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Print one JSON object: `url`, `id` (of the code)
    #[arg(long)]
    pub(crate) json: bool,
}
