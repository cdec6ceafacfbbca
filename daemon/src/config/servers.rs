//! Adding and removing `[mcp.NAME]` in the file; comments and order stay.

use linger_protocol::mcp::Add;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, Value, value};

use super::edit::{EditError, table};
use super::{ConfigError, ConfigStore};

impl ConfigStore {
    /// Adds a server to the file, confirmed by `by`. Blocks on the disk.
    pub fn add_server(&self, add: &Add, by: &str) -> Result<(), EditError> {
        self.change(by, |text| {
            self.parse(text).map_err(EditError::Broken)?;
            with_server(text, add).map(Some)
        })
        .map(drop)
    }

    /// Removes a server from the file; whether it was there. Blocks on the disk.
    pub fn remove_server(&self, name: &str, by: &str) -> Result<bool, EditError> {
        let mut removed = false;
        self.change(by, |text| {
            self.parse(text).map_err(EditError::Broken)?;
            let new = without_server(text, name)?;
            removed = new.is_some();
            Ok(new)
        })?;
        Ok(removed)
    }

    /// Why a server cannot be added, before the file is touched.
    pub fn has_server(&self, name: &str) -> Result<bool, ConfigError> {
        Ok(self.current()?.mcp.contains_key(name))
    }
}

fn with_server(text: &str, add: &Add) -> Result<String, EditError> {
    let Add { server, command, args, env, cwd, url } = add;
    let mut document: DocumentMut = text.parse().map_err(std::io::Error::other)?;
    let mut implicit = Table::new();
    implicit.set_implicit(true);
    let servers = table(document.as_table_mut(), "mcp", implicit)?;
    if servers.contains_key(server) {
        let there = "is in the file already; `linger mcp remove` removes it, `linger config confirm` confirms it";
        return Err(EditError::Invalid(format!("the MCP server '{server}' {there}")));
    }
    let mut new = Table::new();
    command.iter().for_each(|command| drop(new.insert("command", value(command))));
    if !args.is_empty() {
        new.insert("args", value(args.iter().map(String::as_str).collect::<Array>()));
    }
    if !env.is_empty() {
        let env: InlineTable = env.iter().map(|(name, text)| (name.as_str(), Value::from(text.as_str()))).collect();
        new.insert("env", value(env));
    }
    cwd.iter().for_each(|cwd| drop(new.insert("cwd", value(linger_protocol::path::text(cwd).as_ref()))));
    url.iter().for_each(|url| drop(new.insert("url", value(url))));
    servers.insert(server, Item::Table(new));
    Ok(document.to_string())
}

/// The text without the server; `None` if it is not there.
fn without_server(text: &str, name: &str) -> std::io::Result<Option<String>> {
    let mut document: DocumentMut = text.parse().map_err(std::io::Error::other)?;
    let servers = document.get_mut("mcp").and_then(Item::as_table_like_mut);
    let removed = servers.and_then(|servers| servers.remove(name));
    Ok(removed.map(|_| document.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_added_at_the_end_and_removed_without_a_trace() {
        let text = "# mine\nmode = \"ask\" # careful\n";
        let add = Add {
            server: "git".to_owned(),
            command: Some("uvx".to_owned()),
            args: vec!["mcp-server-git".to_owned(), "a \"b\"".to_owned()],
            env: [("A".to_owned(), "b".to_owned())].into(),
            ..Add::default()
        };
        let new = with_server(text, &add).unwrap();
        let table = "\n[mcp.git]\ncommand = \"uvx\"\nargs = [\"mcp-server-git\", 'a \"b\"']\nenv = { A = \"b\" }\n";
        assert_eq!(new, format!("{text}{table}"));
        assert!(with_server(&new, &add).is_err());
        assert_eq!(without_server(&new, "git").unwrap().as_deref(), Some(text));
        assert_eq!(without_server(text, "git").unwrap(), None);
    }
}
