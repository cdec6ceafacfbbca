//! A scripted MCP server, `tests/data/mcp.py`, in the configuration of a daemon.

pub(crate) use linger_tests::harness::scripted_server as server;
use linger_tests::model::Reply;
use serde_json::Value;

/// A call of one of its tools.
pub(crate) fn calls(tool: &str, arguments: Value) -> Reply {
    Reply::tool(&format!("mcp__s__{tool}"), arguments)
}
