//! `linger daemon` and `linger doctor`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::common::Json;

#[derive(Debug, Subcommand)]
pub(crate) enum Daemon {
    /// Show where files are and what is running
    Status(Json),
    /// Start the daemon if it is not running
    Start(Json),
    /// Stop the daemon and start it again, as after an upgrade; sessions and turns continue
    Restart {
        /// Do not wait until no turn is running; running commands get 10 s to end
        #[arg(long)]
        now: bool,
        /// Print one JSON object: `version`, `socket`
        #[arg(long)]
        json: bool,
    },
    /// Stop the daemon, even if it hangs; turns continue when it starts again
    Stop {
        /// Stop it even while a turn is running; kill it if it does not end
        #[arg(long)]
        force: bool,
        /// Like --force, but without the 10 s that running commands get to end
        #[arg(long)]
        now: bool,
        /// Print one JSON object: `stopped` (false if it was not running)
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Save what can be read from damaged data; the daemon is stopped meanwhile
    #[arg(long)]
    pub(crate) repair: bool,
    /// With --repair: do it even while a turn is running; the turn continues afterwards
    #[arg(long, requires = "repair")]
    pub(crate) force: bool,
    /// Ask every usable provider for its models, with its key
    #[arg(long, conflicts_with_all = ["repair", "env", "files"])]
    pub(crate) probe: bool,
    /// Show which variables tools get, in SESSION or in a new session (names only)
    #[arg(long, value_name = "SESSION", num_args = 0..=1, conflicts_with_all = ["repair", "files"])]
    pub(crate) env: Option<Option<String>>,
    /// Check only the files linger reads for DIR: configuration, skills, agents, servers [default: this directory]
    #[arg(long, value_name = "DIR", num_args = 0..=1, conflicts_with = "repair")]
    pub(crate) files: Option<Option<PathBuf>>,
    /// Print JSON, one object per line: `ok` (null: more about the previous line), `text`, `hint`
    #[arg(long)]
    pub(crate) json: bool,
}
