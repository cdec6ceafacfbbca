//! `linger mcp`: MCP servers.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Mcp {
    /// List MCP servers and their state
    List(McpListing),
    /// Add a server to the configuration and start it
    Add(McpAdd),
    /// Remove a server from the configuration
    Remove(McpConfigured),
    /// Stop a server; the next call starts it again
    Restart(McpNamed),
    /// Print a server's log and standard error
    Logs(McpNamed),
    /// Start a server if needed, and list its tools
    Test(McpConfigured),
    /// Log in to a remote server, in the browser
    Login(McpLogin),
    /// Log out of a server
    Logout(McpNamed),
    /// Serve linger's tools or sessions to another program, as an MCP server over stdin and stdout
    Serve(McpServe),
    /// Check the Markdown files that describe servers; exit code 1 if one is unusable
    Validate {
        /// Files to check [default: all of this directory]
        paths: Vec<PathBuf>,
        /// Print JSON, one object per line
        #[arg(long)]
        json: bool,
    },
    /// List resources: name one in a prompt as @SERVER:URI
    Resources(McpOffered),
    /// List server prompts: use one in a session as /SERVER:PROMPT
    Prompts(McpOffered),
}

#[derive(Debug, Args)]
pub(crate) struct McpListing {
    /// Servers of this session, including those its client brought [default: servers of this directory]
    #[arg(short, long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpLogin {
    /// Server name, as in [mcp.NAME]
    pub(crate) server: String,
    /// Session that has it, for a server that its client brought
    #[arg(short, long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// The browser is on another machine: paste the address it ends at
    #[arg(long)]
    pub(crate) paste: bool,
    /// Print one JSON object: the server, as in `linger mcp list --json`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpServe {
    /// Serve only these tools, such as bash,read
    #[arg(long, value_name = "TOOL,TOOL", value_delimiter = ',')]
    pub(crate) tools: Vec<String>,
    /// Rule for calls that run without asking, such as 'bash(cargo test:*)'; repeatable
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<String>,
    /// Serve sessions instead of tools: create, prompt, wait for, read, list and cancel them
    #[arg(long, conflicts_with_all = ["tools", "allow"])]
    pub(crate) sessions: bool,
    /// Let it also answer questions and start sessions in the modes edit and auto
    #[arg(long, requires = "sessions")]
    pub(crate) answer: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpOffered {
    /// Server name [default: all servers]
    pub(crate) server: Option<String>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpNamed {
    /// Server name, as in [mcp.NAME]
    pub(crate) server: String,
    /// Session that has it, for a server that its client brought
    #[arg(short, long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpConfigured {
    /// Server name, as in [mcp.NAME]
    pub(crate) server: String,
    /// Print JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct McpAdd {
    /// Server name: letters, digits, `-` and `_`; its tools are called mcp__NAME__TOOL
    pub(crate) server: String,
    /// Environment variable for the server, not a secret; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Working directory of the server [default: the root of each workspace]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Print one JSON object: the server, as in `linger mcp list --json`
    #[arg(long)]
    pub(crate) json: bool,
    /// Address of a remote server, instead of a program
    #[arg(long, conflicts_with_all = ["env", "cwd", "command"])]
    pub(crate) url: Option<String>,
    /// Program to start, with its arguments
    #[arg(last = true, required_unless_present = "url")]
    pub(crate) command: Vec<String>,
}
