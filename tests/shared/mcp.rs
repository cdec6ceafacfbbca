//! A scripted MCP server, `tests/data/mcp.py`, in the configuration of a daemon.

use linger_tests::model::Reply;
use serde_json::{Value, json};

/// The table of the server `s` with these arguments, and more keys.
pub(crate) fn server(args: &[&str], more: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/data/mcp.py");
    let args: Vec<&str> = std::iter::once(script).chain(args.iter().copied()).collect();
    format!("[mcp.s]\ncommand = \"python3\"\nargs = {}\n{more}\n", json!(args))
}

/// A call of one of its tools.
pub(crate) fn calls(tool: &str, arguments: Value) -> Reply {
    Reply::tool(&format!("mcp__s__{tool}"), arguments)
}
