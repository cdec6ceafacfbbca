//! Commands about tokens.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use linger_protocol::permission::Mode;
use linger_protocol::token::Can;

use super::Json;

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Make one: its text is printed once, on standard output
    Mint(Mint),
    /// List them: what each allows, its end, when it was last used
    List(Json),
    /// End one, and at once each connection that has it
    Revoke {
        /// Its id, or the name of its grant if only one has it
        token: String,
        /// Print one JSON object: `id`, `name`
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Mint {
    /// Where it is used, such as phone; the log names what comes by it so
    pub(crate) name: String,
    /// What it allows: observe, speak, steer, answer_edits, answer_commands, administer; observe and speak if not said
    #[arg(long, value_name = "RIGHT", value_delimiter = ',', num_args = 1..)]
    pub(crate) can: Vec<Can>,
    /// Only this session and its children: a name, an id, or a unique prefix of an id; may be repeated
    #[arg(short, long = "session", value_name = "SESSION")]
    pub(crate) sessions: Vec<String>,
    /// Only sessions that work in this directory or below it
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) dir: Option<PathBuf>,
    /// The loosest mode of what it creates or sets: plan, ask, edit or auto; ask if not said
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
    /// How many days it lasts
    #[arg(long, value_name = "DAYS", default_value_t = linger_protocol::token::DAYS)]
    pub(crate) days: u32,
    /// Print one JSON object: `id`, `token`, `grant`
    #[arg(long)]
    pub(crate) json: bool,
}
