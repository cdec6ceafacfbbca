//! Commands over all sessions: their events, and the search in them.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Only these sessions: names, ids, or unique prefixes of ids
    #[arg(value_name = "SESSION")]
    pub(crate) sessions: Vec<String>,
    /// Only this kind, such as turn_finished; may be repeated; `all` for all kinds
    #[arg(short, long = "kind", value_name = "KIND")]
    pub(crate) kinds: Vec<String>,
    /// After this: a cursor that --json printed, a time such as 2h or 2026-11-24, or `now`; with -f `now` is the default
    #[arg(long, value_name = "CURSOR|TIME")]
    pub(crate) since: Option<String>,
    /// Follow: continue with new events
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// One JSON object a line: `session`, `cursor`, `event`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Only sessions of this directory
    #[arg(long)]
    pub(crate) here: bool,
    /// The most messages to show, 200 at most
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) limit: u32,
    /// One JSON object a line: `session`, `name`, `cwd`, `seq`, `at`, `role`, `snippet`
    #[arg(long)]
    pub(crate) json: bool,
    /// Words that a message must have; "several words" that stand in this order; a beginning of a word with `*`
    #[arg(required = true)]
    pub(crate) text: Vec<String>,
}
