//! Commands over all sessions: their events, and search.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Only these sessions: names, ids or unique prefixes of ids
    #[arg(value_name = "SESSION")]
    pub(crate) sessions: Vec<String>,
    /// Only this kind of event, such as turn_finished, or `all`; repeatable
    #[arg(short, long = "kind", value_name = "KIND")]
    pub(crate) kinds: Vec<String>,
    /// Start after this: a cursor from --json, a time such as 2h or 2026-11-24, or `now` (the default with -f)
    #[arg(long, value_name = "CURSOR|TIME")]
    pub(crate) since: Option<String>,
    /// Follow: keep printing new events
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print JSON, one object per line: `session`, `cursor`, `event`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Only sessions of this directory
    #[arg(long)]
    pub(crate) here: bool,
    /// How many messages to show, at most 200
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) limit: u32,
    /// Print JSON, one object per line: `session`, `name`, `cwd`, `seq`, `at`, `role`, `snippet`
    #[arg(long)]
    pub(crate) json: bool,
    /// Words that the message must contain; "exact phrase"; prefix*
    #[arg(required = true)]
    pub(crate) text: Vec<String>,
}
