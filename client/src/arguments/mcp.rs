//! Commands about MCP servers.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Mcp {
    /// List the MCP servers, and how they are
    List(McpListing),
    /// Put a server into the configuration, and start it
    Add(McpAdd),
    /// Take a server out of the configuration
    Remove(McpConfigured),
    /// End a server; the next call starts it
    Restart(McpNamed),
    /// Print what a server wrote to standard error, and what it logged
    Logs(McpNamed),
    /// Start a server, if it does not run, and list its tools
    Test(McpConfigured),
    /// Log in at a server with an address, in the browser
    Login(McpLogin),
    /// Forget the login at a server
    Logout(McpNamed),
    /// Give linger's own tools, or its sessions, to another program, as an MCP server on stdin and stdout
    Serve(McpServe),
    /// Check the Markdown files that describe servers: exit code 1 if one cannot be used
    Validate {
        /// Files; without one all of this directory
        paths: Vec<PathBuf>,
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// List what a prompt can name as @SERVER:URI
    Resources(McpOffered),
    /// List the prompts that servers have ready: /SERVER:PROMPT in a session
    Prompts(McpOffered),
}

#[derive(Debug, Args)]
pub(crate) struct McpListing {
    /// A session's, with those that its client brought for it; by default those of this directory
    #[arg(short, long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpLogin {
    /// The server, as in [mcp.NAME]
    pub(crate) server: String,
    /// The session that has it, for one that its client brought
    #[arg(short, long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// The browser is on another machine: read the address that it ends at from standard input
    #[arg(long)]
    pub(crate) paste: bool,
    /// Print one JSON object: the server as in `linger mcp list --json`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpServe {
    /// The only tools, such as bash,read
    #[arg(long, value_name = "TOOL,TOOL", value_delimiter = ',')]
    pub(crate) tools: Vec<String>,
    /// A rule for calls that run without asking, such as 'bash(cargo test:*)'; may be given again
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<String>,
    /// Give it sessions in place of tools: create, prompt, wait for, read, list and cancel them
    #[arg(long, conflicts_with_all = ["tools", "allow"])]
    pub(crate) sessions: bool,
    /// It may answer the questions of sessions too, and start some in the modes edit and auto
    #[arg(long, requires = "sessions")]
    pub(crate) answer: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpOffered {
    /// The server; by default all of them
    pub(crate) server: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpNamed {
    /// The server, as in [mcp.NAME]
    pub(crate) server: String,
    /// The session that has it, for one that its client brought
    #[arg(short, long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpConfigured {
    /// The server, as in [mcp.NAME]
    pub(crate) server: String,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpAdd {
    /// Letters, digits, `-` and `_`; its tools are mcp__NAME__TOOL
    pub(crate) server: String,
    /// A variable of the server, not a secret
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Its directory; by default the root of each workspace
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Print one JSON object: the server as in `linger mcp list --json`
    #[arg(long)]
    pub(crate) json: bool,
    /// The address of a server, in place of a program
    #[arg(long, conflicts_with_all = ["env", "cwd", "command"])]
    pub(crate) url: Option<String>,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "url")]
    pub(crate) command: Vec<String>,
}
