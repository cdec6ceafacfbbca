//! Resources and prompts of servers: what people attach to what they write. Models are not told of them.
//!
//! A person names a resource, `@server:uri`, or a prompt, `/server:prompt`; what the server gives becomes blocks of the person's
//! own prompt, bounded, and with its source named. Deliberately absent: subscriptions.

use std::collections::BTreeMap;
use std::sync::Arc;

use linger_protocol::mcp::{PromptArgument, Resource, ServerPrompt};
use linger_protocol::message::ContentBlock;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::connection::Connection;
use super::peer::{Failure, UNKNOWN_METHOD};
use super::result::CallResult;
use super::server::Server;
use super::servers::{Servers, ServersOf};
use crate::tool::Workspace;
use crate::tool::text;

/// The most resources or prompts of one server that are listed: a person looks for one of them.
const MAX_LISTED: usize = 1000;

/// The most text of one resource or prompt, in bytes: about 32,000 tokens.
const MAX_TEXT: usize = 128 << 10;

/// The longest description that is listed, in bytes: a line.
const MAX_ABOUT: usize = 300;

/// The longest name or address that is listed, in bytes.
const MAX_NAME: usize = 2 << 10;

/// Why a server gives nothing.
#[derive(Debug, thiserror::Error)]
pub enum OfferError {
    /// None has this name.
    #[error("no MCP server is called '{0}'")]
    Unknown(String),
    /// It has no such prompt, or that wants other arguments.
    #[error("{0}")]
    Wrong(String),
    /// It cannot be started, or refuses.
    #[error("the MCP server {0}: {1}")]
    Failed(String, String),
}

impl Servers {
    /// The resources of one server, or of all; those of servers that cannot be started are left out of all.
    pub async fn resources(&self, of: Option<&str>, at: &Place<'_>) -> Result<Vec<Resource>, OfferError> {
        let mut all = Vec::new();
        for server in self.chosen(of, at)? {
            match at.ask(&server, |connection| async move { resources(&connection).await }).await {
                Ok(items) => all.extend(items.iter().filter_map(|item| resource(&server.name, item))),
                Err(why) => left_out(of, &server.name, why)?,
            }
        }
        Ok(all)
    }

    /// The prompts of one server, or of all; those of servers that cannot be started are left out of all.
    pub async fn prompts(&self, of: Option<&str>, at: &Place<'_>) -> Result<Vec<ServerPrompt>, OfferError> {
        let mut all = Vec::new();
        for server in self.chosen(of, at)? {
            match at.ask(&server, |connection| async move { items(&connection, "prompts/list", "prompts").await }).await
            {
                Ok(items) => all.extend(items.iter().filter_map(|item| prompt(&server.name, item))),
                Err(why) => left_out(of, &server.name, why)?,
            }
        }
        Ok(all)
    }

    /// The content of a resource.
    pub async fn read(&self, name: &str, uri: &str, at: &Place<'_>) -> Result<Vec<ContentBlock>, OfferError> {
        let server = self.one(name, at)?;
        let failed = |why: String| OfferError::Failed(name.to_owned(), format!("{uri}: {why}"));
        let params = json!({ "uri": uri });
        let ask = |connection: Arc<Connection>| {
            let params = params.clone();
            async move { connection.ask("resources/read", params).await }
        };
        let answer = at.ask(&server, ask).await;
        let result = CallResult::of_resource(&answer.map_err(failed)?).map_err(failed)?;
        let result = result.redacted(|text| server.redacted(text));
        Ok(blocks(&format!("resource @{name}:{uri}"), result))
    }

    /// The content of a prompt, with arguments by name, or as `text`: words in the order in which the prompt declares them.
    pub async fn prompt(
        &self,
        name: &str,
        prompt: &str,
        mut given: BTreeMap<String, String>,
        text: &str,
        at: &Place<'_>,
    ) -> Result<Vec<ContentBlock>, OfferError> {
        let server = self.one(name, at)?;
        let all = self.prompts(Some(name), at).await?;
        let Some(known) = all.iter().find(|known| known.prompt == prompt) else {
            let names: Vec<&str> = all.iter().map(|known| known.prompt.as_str()).collect();
            let near = text::did_you_mean(prompt, &names);
            return Err(OfferError::Wrong(format!("the MCP server {name} has no prompt '{prompt}'{near}")));
        };
        given.extend(arguments(known, text, &given));
        let absent = known.arguments.iter().find(|it| it.required && !given.contains_key(&it.name));
        if let Some(PromptArgument { name: missing, .. }) = absent {
            return Err(OfferError::Wrong(format!("the prompt {name}:{prompt} needs the argument {missing}")));
        }
        let failed = |why: String| OfferError::Failed(name.to_owned(), format!("{prompt}: {why}"));
        let params = json!({ "name": prompt, "arguments": given });
        let ask = |connection: Arc<Connection>| {
            let params = params.clone();
            async move { connection.ask("prompts/get", params).await }
        };
        let answer = at.ask(&server, ask).await;
        let result = CallResult::of_prompt(&answer.map_err(failed)?).map_err(failed)?;
        let result = result.redacted(|text| server.redacted(text));
        Ok(blocks(&format!("prompt /{name}:{prompt}"), result))
    }

    fn one(&self, name: &str, at: &Place<'_>) -> Result<Arc<Server>, OfferError> {
        self.named(name, at.servers()).ok_or_else(|| OfferError::Unknown(name.to_owned()))
    }

    fn chosen(&self, of: Option<&str>, at: &Place<'_>) -> Result<Vec<Arc<Server>>, OfferError> {
        match of {
            Some(name) => Ok(vec![self.one(name, at)?]),
            None => Ok(self.of(at.servers())),
        }
    }
}

/// For which session something is asked.
pub struct Place<'a> {
    /// Where it works.
    pub workspace: &'a Workspace,
    /// Its id.
    pub session: &'a str,
}

impl Place<'_> {
    fn servers(&self) -> ServersOf<'_> {
        ServersOf { root: Some(self.workspace.rules_root()), session: Some(self.session) }
    }

    /// Asks a server, which may have to be started; it has the time of a start for its answer too. One that has forgotten the
    /// session is asked once more in a new one.
    async fn ask<T, F: Future<Output = Result<T, Failure>> + Send>(
        &self,
        server: &Arc<Server>,
        question: impl Fn(Arc<Connection>) -> F + Send + Sync,
    ) -> Result<T, String> {
        let limit = server.config.start_timeout();
        let mut again = true;
        loop {
            let connection = server.connection(self.workspace, self.session).await?;
            let _used = connection.used();
            match timeout(limit, question(connection.clone())).await {
                Ok(Err(Failure::Forgotten)) if std::mem::take(&mut again) => {}
                Ok(answer) => return answer.map_err(|failure| failure.to_string()),
                Err(_) => return Err(format!("no answer within {} s", limit.as_secs())),
            }
        }
    }
}

/// A server that was named has to answer; one of all may be missing.
fn left_out(of: Option<&str>, server: &str, why: String) -> Result<(), OfferError> {
    match of {
        Some(_) => Err(OfferError::Failed(server.to_owned(), why)),
        None => {
            tracing::debug!(target: "mcp", server, why, "left out of a list");
            Ok(())
        }
    }
}

async fn resources(connection: &Connection) -> Result<Vec<Value>, Failure> {
    let mut all = items(connection, "resources/list", "resources").await?;
    all.extend(items(connection, "resources/templates/list", "resourceTemplates").await?);
    Ok(all)
}

/// The items of a list; none if the server has no such list.
async fn items(connection: &Connection, method: &str, key: &str) -> Result<Vec<Value>, Failure> {
    match connection.pages(method, key, MAX_LISTED).await {
        Ok((items, _)) => Ok(items),
        Err(Failure::Refused { code: UNKNOWN_METHOD, .. }) => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

/// A row of a list; none if its name is missing or too long.
fn resource(server: &str, item: &Value) -> Option<Resource> {
    let template = item.get("uriTemplate").and_then(Value::as_str);
    let uri = template.or_else(|| item.get("uri")?.as_str()).filter(|uri| !uri.is_empty() && uri.len() <= MAX_NAME)?;
    let (server, uri, name, about) =
        (server.to_owned(), text::one_line(uri), line(item, &["title", "name"]), line(item, &["description"]));
    Some(Resource { server, uri, name, about, is_template: template.is_some() })
}

fn prompt(server: &str, item: &Value) -> Option<ServerPrompt> {
    let named = |item: &Value| {
        let name = item.get("name")?.as_str().filter(|name| !name.is_empty() && name.len() <= MAX_NAME)?;
        Some(text::one_line(name))
    };
    let argument = |item: &Value| {
        let required = item.get("required").and_then(Value::as_bool).unwrap_or_default();
        Some(PromptArgument { name: named(item)?, about: line(item, &["description"]), required })
    };
    let declared = item.get("arguments").and_then(Value::as_array).into_iter().flatten();
    let (server, about, arguments) =
        (server.to_owned(), line(item, &["description", "title"]), declared.filter_map(argument).collect());
    Some(ServerPrompt { server, prompt: named(item)?, about, arguments })
}

/// The first of these texts that there is, on one line.
fn line(item: &Value, keys: &[&str]) -> String {
    let text = keys.iter().find_map(|key| item.get(key)?.as_str()).unwrap_or_default();
    text::one_line(text::head(text.trim().lines().next().unwrap_or_default(), MAX_ABOUT))
}

/// The arguments that `text` has for a prompt beside those that are given: one word each, and the rest of it for the last.
fn arguments(prompt: &ServerPrompt, text: &str, given: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let open: Vec<&str> =
        prompt.arguments.iter().map(|it| it.name.as_str()).filter(|name| !given.contains_key(*name)).collect();
    let (mut found, mut rest) = (BTreeMap::new(), text.trim());
    for (at, name) in open.iter().enumerate() {
        let (word, after) = match rest.split_once(char::is_whitespace) {
            Some((word, after)) if at + 1 < open.len() => (word, after.trim_start()),
            _ => (rest, ""),
        };
        if !word.is_empty() {
            found.insert((*name).to_owned(), word.to_owned());
        }
        rest = after;
    }
    found
}

/// Content for a prompt: the text under its source, and the images.
fn blocks(source: &str, CallResult { text: said, images, links, .. }: CallResult) -> Vec<ContentBlock> {
    let kept = text::head(&said, MAX_TEXT);
    let cut = match said.len() - kept.len() {
        0 => String::new(),
        left => format!("\n[{left} bytes left out]"),
    };
    std::iter::once(ContentBlock::text(format!("[{source}]\n{kept}{cut}"))).chain(images).chain(links).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_what_a_person_needs() {
        let item = json!({ "uri": "file:///a\u{1b}", "name": "a", "description": "one\ntwo" });
        let row = resource("s", &item).unwrap();
        assert_eq!((row.uri.as_str(), row.name.as_str(), row.about.as_str()), ("file:///a\\u{1b}", "a", "one"));
        assert!(resource("s", &json!({ "uriTemplate": "x://{a}", "name": "t" })).unwrap().is_template);
        assert!(resource("s", &json!({ "name": "none" })).is_none());
    }

    #[test]
    fn words_are_the_arguments_of_a_prompt_in_their_order() {
        let declared = json!([{ "name": "city", "required": true }, { "name": "why" }]);
        let known = prompt("s", &json!({ "name": "p", "arguments": declared })).unwrap();
        let check = |text: &str, given: &[(&str, &str)], expect: &[(&str, &str)]| {
            let of = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
                pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
            };
            assert_eq!(arguments(&known, text, &of(given)), of(expect), "{text}");
        };
        check("", &[], &[]);
        check("Bern", &[], &[("city", "Bern")]);
        check("Bern  to see it", &[], &[("city", "Bern"), ("why", "to see it")]);
        check("to see it", &[("city", "Bern")], &[("why", "to see it")]);
    }

    #[test]
    fn what_is_attached_is_bounded_and_names_its_source() {
        let result = CallResult { text: "x\n".repeat(MAX_TEXT), ..CallResult::default() };
        let [ContentBlock::Text { text }] = &blocks("resource @s:u", result)[..] else { panic!("one block") };
        assert!(text.starts_with("[resource @s:u]\nx\n") && text.ends_with("[131072 bytes left out]"));
    }
}
