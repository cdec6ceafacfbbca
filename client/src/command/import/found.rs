//! The things found in another program's files, before they are compared with what linger has.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

/// Bytes of an imported file, at most: instructions and prompts are text.
pub(super) const MAX_FILE: u64 = 1 << 20;

/// Everything found in another program's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Importable {
    /// MCP servers, by name.
    pub(super) servers: BTreeMap<String, Server>,
    /// Rules by their list: `allow`, `ask` or `deny`.
    pub(super) rules: Vec<(&'static str, String)>,
    /// Files, and where they go below linger's configuration directory.
    pub(super) files: Vec<(PathBuf, PathBuf)>,
    /// Things left out, with the reason.
    pub(super) left_out: Vec<String>,
    /// The files that were read.
    pub(super) sources: Vec<PathBuf>,
}

/// An MCP server as the configuration describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) command: Option<String>,
    pub(super) args: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: Option<String>,
    pub(super) url: Option<String>,
    pub(super) headers: BTreeMap<String, String>,
    /// The only tools that models get; all if empty.
    pub(super) tools: Vec<String>,
}

impl Server {
    /// The table of the configuration. JSON strings and lists of them are valid TOML.
    pub(super) fn toml(&self, name: &str) -> String {
        let string = |text: &str| Value::from(text).to_string();
        let table = |values: &BTreeMap<String, String>| {
            let pairs: Vec<String> =
                values.iter().map(|(key, value)| format!("{} = {}", string(key), string(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        };
        let mut lines = vec![format!("[mcp.{}]", string(name))];
        lines.extend(self.command.iter().map(|command| format!("command = {}", string(command))));
        let list = |words: &[String]| words.iter().map(|word| string(word)).collect::<Vec<_>>().join(", ");
        if !self.args.is_empty() {
            lines.push(format!("args = [{}]", list(&self.args)));
        }
        lines.extend(self.url.iter().map(|url| format!("url = {}", string(url))));
        if !self.env.is_empty() {
            lines.push(format!("env = {}", table(&self.env)));
        }
        lines.extend(self.cwd.iter().map(|cwd| format!("cwd = {}", string(cwd))));
        if !self.headers.is_empty() {
            lines.push(format!("headers = {}", table(&self.headers)));
        }
        if !self.tools.is_empty() {
            lines.push(format!("tools = [{}]", list(&self.tools)));
        }
        lines.join("\n") + "\n"
    }

    /// Whether it runs or calls the same as this server of the configuration.
    pub(super) fn is_same_as(&self, there: &Value) -> bool {
        let text = |key: &str| there.get(key).and_then(Value::as_str);
        let args = there.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        self.command.as_deref() == text("command") && self.url.as_deref() == text("url") && args.eq(&self.args)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_is_written_as_a_table_whatever_its_words_are() {
        let server = Server {
            command: Some("npx".to_owned()),
            args: vec!["-y".to_owned(), "a \"b\"\n[mcp.evil]".to_owned()],
            env: [("TOKEN".to_owned(), "${TOKEN}".to_owned())].into(),
            ..Server::default()
        };
        let text = server.toml("x.y\"]");
        let parsed: toml::Table = text.parse().unwrap();
        let mcp = parsed["mcp"].as_table().unwrap();
        assert_eq!(mcp.keys().collect::<Vec<_>>(), ["x.y\"]"]);
        assert_eq!(mcp["x.y\"]"]["args"][1].as_str(), Some("a \"b\"\n[mcp.evil]"));
        assert_eq!(mcp["x.y\"]"]["env"]["TOKEN"].as_str(), Some("${TOKEN}"));
    }

    #[test]
    fn a_server_with_the_same_name_but_another_command_is_different() {
        let server = Server { command: Some("npx".to_owned()), args: vec!["docs".to_owned()], ..Server::default() };
        let check = |there: Value, expect| assert_eq!(server.is_same_as(&there), expect, "{there}");
        check(json!({ "command": "npx", "args": ["docs"], "env": { "A": "1" } }), true);
        check(json!({ "command": "npx" }), false);
        check(json!({ "command": "other", "args": ["docs"] }), false);
        check(json!({ "url": "https://x.example" }), false);
    }
}
