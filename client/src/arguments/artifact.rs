//! Commands about artifacts.

use std::path::PathBuf;

use clap::Subcommand;

use super::Json;

/// What to do with artifacts.
#[derive(Debug, Subcommand)]
pub(crate) enum Artifact {
    /// Put a file, or standard input, at the daemon; prints its id
    Put {
        /// The file; `-` is standard input
        file: PathBuf,
        /// The name that it gets; the file's own if not said
        #[arg(long)]
        name: Option<String>,
        /// What it is, such as text/plain; told by the ending of its name if not said
        #[arg(long = "type", value_name = "TYPE")]
        content_type: Option<String>,
        /// Print one JSON object: the row of `linger artifact ls --json`
        #[arg(long)]
        json: bool,
    },
    /// Print its bytes, or write them to a file
    Get {
        /// Its id, or a beginning of it of at least four characters
        artifact: String,
        /// The file to write, which must not exist; standard output if not said
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// List them, the latest first
    Ls(Json),
    /// Delete some
    Rm {
        /// Their ids, or beginnings of them
        #[arg(required = true)]
        artifacts: Vec<String>,
        /// Print the row of each that is gone, as `linger artifact ls --json`
        #[arg(long)]
        json: bool,
    },
}
