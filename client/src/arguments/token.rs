//! `linger token`: access for other programs and machines.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use linger_protocol::permission::Mode;
use linger_protocol::token::Can;

use super::common::Json;

/// The subcommands of `linger token`.
#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Create a token; it is printed once, on standard output
    Mint(Mint),
    /// List tokens: rights, expiry and last use
    List(Json),
    /// Revoke a token and close its connections at once
    Revoke {
        /// Token id, or its name if unique
        token: String,
        /// Print one JSON object: `id`, `name`
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Mint {
    /// Name of the token, such as phone; used in the log
    pub(crate) name: String,
    /// Rights: observe, speak, steer, answer_edits, answer_commands, administer [default: observe,speak]
    #[arg(long, value_name = "RIGHT", value_delimiter = ',', num_args = 1..)]
    pub(crate) can: Vec<Can>,
    /// Only this session and its children (name, id or unique prefix of an id); repeatable
    #[arg(short, long = "session", value_name = "SESSION")]
    pub(crate) sessions: Vec<String>,
    /// Only sessions in or below this directory
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) dir: Option<PathBuf>,
    /// Most permissive mode it may create or set: plan, ask, edit or auto [default: ask]
    #[arg(long)]
    pub(crate) mode: Option<Mode>,
    /// Days until it expires
    #[arg(long, value_name = "DAYS", default_value_t = linger_protocol::token::DAYS)]
    pub(crate) days: u32,
    /// Print one JSON object: `id`, `token`, `grant`
    #[arg(long)]
    pub(crate) json: bool,
}
