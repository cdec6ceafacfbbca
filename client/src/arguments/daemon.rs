//! Commands about the daemon.

use clap::{Args, Subcommand};

use super::Json;

#[derive(Debug, Subcommand)]
pub(crate) enum Daemon {
    /// Show where everything is and what is running
    Status(Json),
    /// Start the daemon if it is not running
    Start(Json),
    /// End the daemon, even if it hangs; turns continue when it starts again
    Stop {
        /// Also while a turn is running; kills a daemon that does not end
        #[arg(long)]
        force: bool,
        /// The same at once: commands of tools that run do not get 10 s to end
        #[arg(long)]
        now: bool,
        /// Print one JSON object: `stopped`, false if none was running
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Save what can be read of damaged data; stops the daemon meanwhile
    #[arg(long)]
    pub(crate) repair: bool,
    /// With --repair, also while a turn is running, which continues afterwards
    #[arg(long, requires = "repair")]
    pub(crate) force: bool,
    /// Ask each provider that can be used for its models, with its key
    #[arg(long)]
    pub(crate) probe: bool,
    /// One JSON object a line: `ok` (null: more about the line before), `text`, `hint`
    #[arg(long)]
    pub(crate) json: bool,
}
