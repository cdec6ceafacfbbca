//! `mcp/NAME.md`: an MCP server. Pure.
//!
//! The header is what `[mcp.NAME]` of the configuration has; the text says when to use it, and is told to models with its tools.

use std::path::Path;

use linger_protocol::agent::Problem;
use serde_json::Value;

use super::find::FoundFile;
use super::frontmatter::Page;
use crate::mcp::settings::ServerConfig;
use crate::tool::text;

/// Keys of the header that are no settings of the server.
const OWN: [&str; 3] = ["name", "description", "type"];

/// The longest text, in bytes: it is sent with every request.
const MAX_ABOUT: usize = 2 << 10;

/// The file of one MCP server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ServerFile {
    /// Its settings, with the text as `about`.
    pub settings: Value,
    /// Its purpose, in one line.
    pub description: Option<String>,
    /// When to use it.
    pub body: String,
}

/// Reads a server. Fails if it cannot be used.
pub(super) fn parse(found: &FoundFile, text: &str) -> (Result<ServerFile, Problem>, String, Vec<Problem>) {
    let name = found.name.clone();
    let mut page = match Page::parse(text) {
        Ok(page) => page,
        Err(problem) => return (Err(problem), name, Vec::new()),
    };
    let server = server(&name, found, &mut page);
    (server, name, page.problems)
}

fn server(name: &str, found: &FoundFile, page: &mut Page) -> Result<ServerFile, Problem> {
    if !page.has_header {
        return Err(Problem::error(1, "there is no header: the first line must be `---`"));
    }
    if page.body.len() > MAX_ABOUT {
        return Err(Problem::error(1, format!("the text is longer than {MAX_ABOUT} bytes")));
    }
    let description = page.text("description");
    if let Some(said) = page.text("name").filter(|said| said != name) {
        page.wrong("name", format!("the name `{}` differs from that of the file, which counts", text::one_line(&said)));
    }
    let mut settings = page.fields.clone();
    OWN.iter().for_each(|key| drop(settings.shift_remove(*key)));
    let about = [description.as_deref().unwrap_or_default(), &page.body].into_iter().find(|it| !it.is_empty());
    let about = if page.body.is_empty() { about.map(str::to_owned) } else { Some(page.body.clone()) };
    if settings.contains_key("about") {
        page.warn("about", "`about` is what the text behind the header says");
    }
    settings.extend(about.map(|about| ("about".to_owned(), Value::from(about))));
    let settings = Value::Object(settings);
    let config: ServerConfig = serde_path_to_error::deserialize(&settings).map_err(|error| {
        let why = error.inner().to_string();
        // Of an unknown key, the message has the name.
        let at = error.path().iter().next().map(ToString::to_string).filter(|_| !why.starts_with("unknown field"));
        let named = |before: &str| page.fields.keys().find(|key| why.contains(&format!("{before}`{key}`")));
        // The message lists the known keys too.
        let key = at.as_ref().or_else(|| named("unknown field ")).or_else(|| named(""));
        let line = key.map_or(1, |key| page.line(key));
        let shown = at.as_ref().map(|key| format!("`{}`: ", text::one_line(key))).unwrap_or_default();
        Problem::error(line, format!("is no server: {shown}{}", text::one_line(&why)))
    })?;
    if found.within.is_some() && !config.can.is_empty() {
        let why = "only your own files can say what a server may do with sessions";
        return Err(Problem::error(page.line("can"), format!("`can` {why}")));
    }
    // `~/` is the home directory, and in a workspace a path begins at its root.
    let cwd = config.cwd.as_ref().map(|cwd| Path::new("/").join(cwd));
    ServerConfig { cwd, ..config }.check(name).map_err(|(key, why)| {
        let line = if key.is_empty() { 1 } else { page.line(key) };
        let shown = if key.is_empty() { String::new() } else { format!("`{key}` ") };
        Problem::error(line, format!("{shown}{why}"))
    })?;
    Ok(ServerFile { settings, description, body: page.body.clone() })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;

    use super::*;

    fn parsed(name: &str, header: &str) -> Result<ServerFile, String> {
        let path = format!("/c/mcp/{name}.md");
        let found = FoundFile {
            name: name.to_owned(),
            path: path.clone().into(),
            real: path.into(),
            within: None,
            digest: String::new(),
            text: Ok(String::new()),
        };
        parse(&found, &format!("---\n{header}---\nUse it for history.\n")).0.map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_server_has_the_settings_of_the_configuration_and_a_text() {
        let server = parsed("git", "description: Git\ncommand: mcp-server-git\nargs: [--repo, .]\n").unwrap();
        let config = ServerConfig::deserialize(&server.settings).unwrap();
        assert_eq!(config.command.as_deref(), Some("mcp-server-git"));
        assert_eq!(config.about.as_deref(), Some("Use it for history."));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let check = |name: &str, header: &str, expect: &str| {
            let error = parsed(name, header).unwrap_err();
            assert!(error.starts_with(expect), "{header}: {error}");
        };
        check("git", "args: [x]\n", "line 1: needs `command`");
        check("git", "command: x\ncomand: y\n", "line 3: is no server: unknown field `comand`");
        check("git", "command: x\nargs: [7]\n", "line 3: is no server: `args`: invalid type");
        check("git", "command: x\nenv:\n  A: [b]\n", "line 3: is no server: `env`: invalid type");
        check("git", "command: x\nurl: http://h/\n", "line 3: `url` has `command` too");
        check("a__b", "command: x\n", "line 1: a server's name");
    }
}
