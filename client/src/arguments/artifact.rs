//! `linger artifact`: files kept by the daemon.

use std::path::PathBuf;

use clap::Subcommand;

use super::common::Json;

/// The subcommands of `linger artifact`.
#[derive(Debug, Subcommand)]
pub(crate) enum Artifact {
    /// Store a file or standard input; prints the artifact's id
    Put {
        /// File to store; `-` is standard input
        file: PathBuf,
        /// Name of the artifact [default: the file's name]
        #[arg(long)]
        name: Option<String>,
        /// Media type, such as text/plain [default: from the file's extension]
        #[arg(long = "type", value_name = "TYPE")]
        content_type: Option<String>,
        /// Print one JSON object, as in `linger artifact ls --json`
        #[arg(long)]
        json: bool,
    },
    /// Print an artifact, or write it to a file
    Get {
        /// Artifact id, or a prefix of at least four characters
        artifact: String,
        /// File to write; it must not exist yet [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// List artifacts, newest first
    Ls(Json),
    /// Delete artifacts
    Rm {
        /// Artifact ids, or prefixes of them
        #[arg(required = true)]
        artifacts: Vec<String>,
        /// Print each deleted artifact, as in `linger artifact ls --json`
        #[arg(long)]
        json: bool,
    },
}
