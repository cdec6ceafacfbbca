//! `completion/*`: a model is asked once, without a session: what the caller sends, and nothing of linger's. Nothing is kept.
//!
//! One attempt: a caller that asks so has its own way to try again. Dropping a [`Completion`] aborts it.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use linger_protocol::RpcError;
use linger_protocol::completion::{CompletionEvent, Message, Start, Started, Tool};
use linger_protocol::error::Code;
use linger_protocol::id::{CallId, CompletionId};
use linger_protocol::message::{ContentBlock, ImageSource, Role, StopReason, Usage};
use serde_json::Value;

use super::{Caller, Services};
use crate::provider::catalogue::Catalogue;
use crate::provider::key_source::Lack;
use crate::provider::models::Prices;
use crate::provider::output_schema::{OutputSchema, SchemaStrategy, answer_call_to_text};
use crate::provider::schema;
use crate::provider::tools::ToolSpecs;
use crate::provider::{
    Encoding, FailureClass, Images, Message as ContextMessage, Request, Response, Stop, Stream, StreamEvent, ToolSpec,
};
use crate::sys::clock;

/// The most messages of a conversation: a long one has some hundred.
const MAX_MESSAGES: usize = 10_000;

/// The most tools: providers take 128, and some fewer.
const MAX_TOOLS: usize = 512;

/// The longest name of a tool, as providers have it.
const MAX_NAME: usize = 64;

/// How long the source of a key may take: a keychain may ask a person.
const KEY_WAIT: Duration = Duration::from_secs(60);

/// The characters of a call's name that the daemon gives.
const CALL_WORD: usize = 20;

/// A completion that is under way.
pub struct Completion {
    /// Its id within the connection.
    pub id: CompletionId,
    stream: Stream,
    prices: Prices,
    /// The schema of the answer, and whether the provider wraps answers for it.
    schema: Option<(Value, bool)>,
    /// Events that came and were not taken yet.
    pieces: Vec<CompletionEvent>,
    has_ended: bool,
}

/// Begins to ask a model.
pub async fn start(
    services: &Services,
    caller: &Caller,
    id: u64,
    params: Start,
) -> Result<(Started, Completion), RpcError> {
    let Start { model, mut system, messages, tools, schema, max_tokens, effort } = params;
    check(&messages, &tools)?;
    if let Some(schema) = &schema {
        schema::check(schema).map_err(|error| RpcError::new(Code::BadSchema, error))?;
    }
    let resolved = services.providers.model(model.as_deref())?;
    let catalogue = services.providers.catalogue()?;
    let key = tokio::time::timeout(KEY_WAIT, services.providers.key_sources.obtain_all(&resolved)).await;
    let lack = match key {
        Ok(Ok(key)) => Ok(key),
        Ok(Err(Lack::Failed(why) | Lack::Waits(why))) => Err(why),
        Ok(Err(lack @ Lack::Gone)) => Err(lack.to_string()),
        Err(_) => Err(format!("not there within {} s", KEY_WAIT.as_secs())),
    };
    let key = lack.map_err(|why| {
        RpcError::new(Code::KeyMissing, format!("the key of {}: {why}", resolved.provider))
            .hint(format!("`linger key list` shows its source, `linger key set {}` stores one", resolved.provider))
    })?;
    let provider = services.providers.open(&resolved, key);
    let strategy = schema.as_ref().map(|schema| catalogue.schema_strategy(&resolved.origin, schema));
    let asks = match strategy {
        Some(SchemaStrategy::WithTools) => true,
        Some(SchemaStrategy::WithoutTools) => tools.is_empty(),
        Some(SchemaStrategy::PromptOnly) | None => false,
    };
    if let Some(schema) = schema.as_ref().filter(|_| !asks) {
        system.push_str(&in_words(schema, system.is_empty()));
    }
    let due = tools.is_empty();
    let tools = ToolSpecs::new(tools.into_iter().map(spec).collect());
    let context: Vec<ContextMessage> = messages.into_iter().map(context).collect();
    let request = Request {
        model: &resolved.model,
        origin: &resolved.origin,
        system: &system,
        tools: &tools,
        messages: &context,
        max_tokens: max_tokens.unwrap_or(resolved.max_tokens),
        cache_key: "",
        images: &Images::new(),
        output_schema: schema.as_ref().filter(|_| asks).map(|schema| OutputSchema { schema, due }),
        effort: if effort.is_auto() { resolved.facts.effort } else { effort },
        own_fields: Some(&resolved.body),
    };
    let stream = provider.start(&request, &mut Encoding::default());
    let id = CompletionId(format!("k{id}"));
    tracing::info!(target: "request", caller = caller.name(), model = resolved.origin, "completion");
    let started = Started { completion: id.clone(), model: resolved.origin.clone() };
    let prices = resolved.facts.prices;
    let schema = schema.map(|schema| wrapping(&catalogue, &resolved.origin, schema));
    Ok((started, Completion { id, stream, prices, schema, pieces: Vec::new(), has_ended: false }))
}

fn wrapping(catalogue: &Catalogue, model: &str, schema: Value) -> (Value, bool) {
    let wraps = catalogue.wraps(model, &schema);
    (schema, wraps)
}

impl Completion {
    /// Waits until something came; false at the end. A call that is dropped loses nothing.
    pub async fn ready(&mut self) -> bool {
        while self.pieces.is_empty() && !self.has_ended {
            for event in self.stream.next().await {
                let piece = self.piece(event);
                self.has_ended |=
                    matches!(piece, Some(CompletionEvent::Completed { .. } | CompletionEvent::Failed { .. }));
                self.pieces.extend(piece);
            }
        }
        !self.pieces.is_empty()
    }

    /// Takes the events that came.
    pub fn take(&mut self) -> Vec<CompletionEvent> {
        std::mem::take(&mut self.pieces)
    }

    fn piece(&self, event: StreamEvent) -> Option<CompletionEvent> {
        match event {
            // It may be wrapped, and is no answer before it is whole.
            StreamEvent::Text { .. } if self.schema.is_some() => None,
            StreamEvent::Text { block, text } => Some(CompletionEvent::Text { block, text }),
            StreamEvent::Thinking { block, text } => Some(CompletionEvent::Thinking { block, text }),
            StreamEvent::Call { .. } | StreamEvent::Hosted { .. } | StreamEvent::Counted => None,
            StreamEvent::Done(response) => Some(self.completed(response)),
            StreamEvent::Failed(failure) => {
                let hint = failure.class.hint().to_owned();
                Some(CompletionEvent::Failed { message: failure.message, hint, status: status(failure.class) })
            }
        }
    }

    fn completed(&self, mut response: Response) -> CompletionEvent {
        if let Some((schema, wraps)) = &self.schema {
            answer_call_to_text(&mut response);
            let calls = response.content.iter().any(|block| matches!(block, ContentBlock::ToolUse { .. }));
            // An answer that does not fit is given as it is: the caller has its own way to try again.
            if let Ok(answer) = schema::fit(schema, &response.content, *wraps)
                && !calls
            {
                response.content.retain(|block| block.as_text().is_none());
                response.content.push(ContentBlock::text(answer.to_string()));
            }
        }
        let mut names = BTreeSet::new();
        for block in &mut response.content {
            if let ContentBlock::ToolUse { call_id, native, .. } = block {
                let own = native.as_ref().and_then(|native| native.get("id")?.as_str()).filter(|id| !id.is_empty());
                let own = own.filter(|id| names.insert((*id).to_owned()));
                *call_id = own.map_or_else(|| CallId(format!("call_{}", clock::random_word(CALL_WORD))), CallId::from);
            }
        }
        let stop_reason = match response.stop {
            Stop::End | Stop::NoCalls | Stop::Paused => StopReason::EndTurn,
            Stop::MaxTokens => StopReason::MaxTokens,
            Stop::Refusal => StopReason::Refusal,
        };
        let usage = response.usage;
        let usage = Usage { cost_micros: usage.cost_micros.or_else(|| self.prices.cost(&usage)), ..usage };
        CompletionEvent::Completed { content: response.content, stop_reason, usage }
    }
}

/// The instruction for a model whose provider cannot be held to a schema.
fn in_words(schema: &Value, alone: bool) -> String {
    let before = if alone { "" } else { "\n\n" };
    format!(
        "{before}Give the answer as JSON alone, without a word before or after it, that fits this JSON Schema:\n{schema}"
    )
}

fn spec(tool: Tool) -> ToolSpec {
    ToolSpec { name: tool.name, description: tool.description, input_schema: tool.input_schema }
}

fn context(message: Message) -> ContextMessage {
    // Whose model wrote it is unknown: nothing of it is any provider's own.
    ContextMessage { role: message.role, content: message.content, origin: None }
}

/// The HTTP status of a failure.
fn status(class: FailureClass) -> u16 {
    match class {
        FailureClass::Connect | FailureClass::Refused | FailureClass::Network | FailureClass::Stream => 502,
        FailureClass::Overloaded => 503,
        FailureClass::Timeout => 504,
        FailureClass::Quota => 429,
        // The caller's own token is good: this is about the provider's key.
        FailureClass::Auth | FailureClass::Forbidden => 502,
        FailureClass::NotFound => 404,
        FailureClass::TooLong
        | FailureClass::PerhapsTooLong
        | FailureClass::Images
        | FailureClass::History
        | FailureClass::Reasoning
        | FailureClass::Parameter(_)
        | FailureClass::Rejected => 400,
    }
}

/// Whether a conversation is one that every provider takes: it begins with the user, the two take turns, nothing is empty, and each
/// call has one result, in the next message.
fn check(messages: &[Message], tools: &[Tool]) -> Result<(), RpcError> {
    let wrong = |path: String, what: &str| {
        let error = RpcError { code: Code::BadPrompt as i32, message: format!("{path}: {what}"), data: None };
        Err(error)
    };
    if messages.len() > MAX_MESSAGES || tools.len() > MAX_TOOLS {
        let text = format!("a completion may have {MAX_MESSAGES} messages and {MAX_TOOLS} tools");
        return Err(RpcError::new(Code::TooMuch, text));
    }
    let is_name = |name: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        (1..=MAX_NAME).contains(&name.len()) && name.chars().all(fits)
    };
    let mut names = HashSet::new();
    for (n, tool) in tools.iter().enumerate() {
        if !is_name(&tool.name) || !names.insert(&tool.name) {
            return wrong(format!("tools[{n}].name"), "a name of its own: letters, digits, _ and -, at most 64");
        }
        if !tool.input_schema.is_object() {
            return wrong(format!("tools[{n}].input_schema"), "is a JSON Schema of an object");
        }
    }
    let mut role = Role::Assistant;
    let mut open: HashSet<&CallId> = HashSet::new();
    for (n, message) in messages.iter().enumerate() {
        let path = format!("messages[{n}]");
        if message.role == role {
            return wrong(path, "user and assistant take turns, and the user begins");
        }
        role = message.role;
        if message.content.is_empty() {
            return wrong(path, "says nothing");
        }
        let mut calls = HashSet::new();
        for (at, block) in message.content.iter().enumerate() {
            let path = format!("{path}.content[{at}]");
            match (block, role) {
                (ContentBlock::Text { text }, _) if !text.is_empty() => {}
                (ContentBlock::Image { source: ImageSource::Data { .. }, .. }, Role::User) => {}
                (ContentBlock::ToolUse { call_id, .. }, Role::Assistant) => {
                    if call_id.0.is_empty() || !calls.insert(call_id) {
                        return wrong(path, "a call has a `call_id` of its own");
                    }
                }
                (ContentBlock::ToolResult { call_id, .. }, Role::User) => {
                    if !open.remove(call_id) {
                        return wrong(path, "there is no such call in the message before, or it has its result");
                    }
                }
                (ContentBlock::Thinking { .. }, Role::Assistant) => {}
                _ => {
                    return wrong(
                        path,
                        "is no block that this message can have: text, an image with `data`, calls, results",
                    );
                }
            }
        }
        if let Some(call) = open.iter().next() {
            return wrong(path, &format!("the call {call} has no result"));
        }
        open = calls;
    }
    match messages.last() {
        Some(last) if last.role == Role::User => Ok(()),
        Some(_) => wrong("messages".to_owned(), "the last one is the user's"),
        None => wrong("messages".to_owned(), "there is none"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn say(role: Role, content: Vec<ContentBlock>) -> Message {
        Message { role, content }
    }

    fn call(id: &str) -> ContentBlock {
        ContentBlock::ToolUse { call_id: id.into(), name: "f".to_owned(), input: json!({}), native: None }
    }

    fn result(id: &str) -> ContentBlock {
        ContentBlock::ToolResult { call_id: id.into(), is_error: false, content: vec![ContentBlock::text("x")] }
    }

    #[test]
    fn a_conversation_that_a_provider_would_refuse_is_refused_with_the_place() {
        let (user, model, text) = (Role::User, Role::Assistant, || ContentBlock::text("x"));
        let check = |messages: &[Message], expect: Option<&str>| {
            let found = check(messages, &[]).err().map(|error| error.message);
            assert_eq!(found.is_some(), expect.is_some(), "{found:?}");
            assert!(found.unwrap_or_default().contains(expect.unwrap_or_default()), "{expect:?}");
        };
        let asked = || say(user, vec![text()]);
        check(&[asked()], None);
        check(&[asked(), say(model, vec![call("a"), call("b")]), say(user, vec![result("b"), result("a")])], None);
        check(&[], Some("there is none"));
        check(&[say(model, vec![text()])], Some("messages[0]: user and assistant take turns"));
        check(&[asked(), asked()], Some("messages[1]"));
        check(&[asked(), say(model, vec![text()])], Some("the last one is the user's"));
        check(&[say(user, vec![])], Some("says nothing"));
        check(&[say(user, vec![ContentBlock::text("")])], Some("messages[0].content[0]"));
        check(&[asked(), say(model, vec![call("a")]), asked()], Some("the call a has no result"));
        check(&[asked(), say(model, vec![call("a"), call("a")]), asked()], Some("`call_id` of its own"));
        check(&[say(user, vec![result("a")])], Some("no such call"));
        check(&[say(user, vec![call("a")])], Some("is no block"));
    }

    #[test]
    fn tools_have_names_of_their_own() {
        let asked = [say(Role::User, vec![ContentBlock::text("x")])];
        let tool =
            |name: &str, schema| Tool { name: name.to_owned(), description: String::new(), input_schema: schema };
        let object = || json!({ "type": "object" });
        assert!(check(&asked, &[tool("a", object()), tool("b-1", object())]).is_ok());
        for tools in [vec![tool("", object())], vec![tool("a b", object())], vec![tool("a", json!([]))]] {
            assert!(check(&asked, &tools).is_err());
        }
        assert!(check(&asked, &[tool("a", object()), tool("a", object())]).is_err());
    }
}
