//! Resources and prompts of MCP servers in a prompt: `@server:uri` attaches a resource, and `/server:prompt words` is a prompt
//! that a server has ready. Only typed text is searched, as for pictures.

use std::time::Duration;

use linger_protocol::id::SessionId;
use linger_protocol::mcp::{Attachable, GetPrompt, List, ReadResource};
use linger_protocol::message::ContentBlock;
use linger_protocol::method::{McpList, McpPrompt, McpResource};
use linger_protocol::prompt::PromptContent;

use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::picture::{self, PUNCTUATION};

/// How long a server may take to start and to answer; most start within a second.
const ANSWER: Duration = Duration::from_secs(60);

/// The most resources of one prompt: each may have 128 KiB.
const MAX_RESOURCES: usize = 16;

/// A prompt with the resources that its text names, behind what it has.
pub(crate) fn with_resources(
    client: &mut Client,
    session: &SessionId,
    content: PromptContent,
) -> Result<PromptContent, Failure> {
    let text = match &content {
        PromptContent::Text(text) => Some(text.as_str()),
        PromptContent::Blocks(blocks) => match blocks.first() {
            Some(ContentBlock::Text { text }) => Some(text.as_str()),
            _ => None,
        },
    };
    let mut named: Vec<(String, String)> = text.map(resources).unwrap_or_default();
    if named.is_empty() {
        return Ok(content);
    }
    let servers = client.call(&McpList(List { session: Some(session.clone()), cwd: None }))?;
    named.retain(|(server, _)| servers.iter().any(|known| known.server == *server));
    if named.len() > MAX_RESOURCES {
        return Err(Failure::usage(format!("the prompt names {} resources", named.len()))
            .hint(format!("a prompt may have {MAX_RESOURCES}")));
    }
    let mut blocks = content.into_blocks();
    for (server, uri) in named {
        let request = McpResource(ReadResource { session: session.clone(), server, uri });
        blocks.extend(client.call_within(&request, ANSWER).map_err(of_text)?.content);
    }
    Ok(PromptContent::Blocks(blocks))
}

/// The content of a server's prompt; `text` has its arguments.
pub(crate) fn prompt(
    client: &mut Client,
    session: &SessionId,
    server: String,
    prompt: String,
    text: String,
) -> Result<PromptContent, Failure> {
    let request = GetPrompt { session: session.clone(), server, prompt, arguments: Default::default(), text };
    let Attachable { content } = client.call_within(&McpPrompt(request), ANSWER).map_err(of_text)?;
    Ok(PromptContent::Blocks(content))
}

/// The typed text is at fault, and not the session, unless the daemon is gone.
fn of_text(failure: Failure) -> Failure {
    if failure.interrupted || failure.is_no_answer() || failure.exit == Exit::UNREACHABLE {
        failure
    } else {
        Failure { exit: Exit::USAGE, ..failure }
    }
}

/// The resources that a text names, each once: `@server:scheme:rest`.
fn resources(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for name in picture::names(text).filter_map(|name| resource(&name)) {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// The server and the address of a resource that follows an `@`.
pub(crate) fn resource(name: &str) -> Option<(String, String)> {
    let (server, uri) = name.split_once(':')?;
    let (scheme, rest) = uri.split_once(':')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let uri = uri.trim_end_matches(PUNCTUATION);
    let is_one =
        !server.is_empty() && server.chars().all(is_name) && scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    (is_one && scheme.chars().all(is_scheme) && !rest.is_empty()).then(|| (server.to_owned(), uri.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_has_a_server_and_an_address() {
        let check = |text: &str, expect: &[(&str, &str)]| {
            let found = resources(text);
            let found: Vec<(&str, &str)> = found.iter().map(|(server, uri)| (server.as_str(), uri.as_str())).collect();
            assert_eq!(found, expect, "{text}");
        };
        check("see @docs:file:///a.md, and @docs:file:///a.md", &[("docs", "file:///a.md")]);
        check("@s:demo://resource/1 (@t:x:y)", &[("s", "demo://resource/1"), ("t", "x:y")]);
        check("@user: hello @a.png @src/main.rs:10 me@docs:file:///a", &[]);
        check("@https://example.org/a:b", &[]);
    }
}
