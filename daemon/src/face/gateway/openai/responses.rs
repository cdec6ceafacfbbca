//! `POST /v1/responses`.

use hyper::body::{Bytes, Incoming};
use linger_protocol::message::{ContentBlock, Role, StopReason, Usage, text_of};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::answer;
use super::asked::{ApiRequest, image};
use super::chat::{arguments, final_text};
use super::native;
use super::object::{error_value, name};
use super::options::{AnswerHeaders, RequestOptions};
use super::piece::{AnswerPiece, AnswerStream, Finished};
use super::stream::{event_line, first, next};
use crate::face::gateway::body;
use crate::face::gateway::client::Client;
use crate::face::gateway::reply::{Failure, Reply, event_stream, json_of};
use crate::sys::clock;
use crate::sys::task;

/// Answers it, whole or as a stream.
pub(super) async fn answer(client: Client, options: RequestOptions, body: Incoming) -> Result<Reply, Failure> {
    let bytes = body::read(body, body::MAX_JSON).await?;
    let wrong = |error: String| Failure::bad_request(format!("the body is not what it should be: {error}"));
    let body: Map<String, Value> = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
    let asked = parse(&body, text)?;
    let (is_stream, shape) = (asked.is_stream, asked.schema.is_some());
    let permit = if is_stream { Some(client.stream_permit()?) } else { None };
    let mut running = answer::begin(client, options, asked).await?;
    let headers = AnswerHeaders::of(&running);
    let response = Response::new(running.model.clone(), &body);
    if !is_stream {
        let reply =
            if running.is_native { native::whole(&mut running).await } else { whole(response, &mut running).await };
        return Ok(headers.add(reply?));
    }
    let begun = first(&mut running).await?;
    let (sender, reply) = event_stream();
    task::spawn(async move {
        let _permit = permit;
        let stream = Stream { response, sender, shape, number: 0, open: None };
        // A client that has gone needs no more.
        let _gone = stream.run(begun, running).await;
    });
    Ok(headers.add(reply))
}

/// The fields that are read here, or change no answer.
const READ: &[&str] = &[
    "model",
    "input",
    "instructions",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "max_output_tokens",
    "reasoning",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "user",
    "safety_identifier",
    "metadata",
    "client_metadata",
    "store",
    "prompt_cache_key",
    "prompt_cache_retention",
];

/// A request: as every provider can have it, and as it came, for one that speaks this interface itself.
fn parse(body: &Map<String, Value>, text: String) -> Result<ApiRequest, Failure> {
    let mut asked = ApiRequest::of(body)?;
    let items = body.get("input").and_then(Value::as_array);
    let is_reference = |item: &Value| item.get("type").is_some_and(|kind| kind == "item_reference");
    if let Some(n) = items.and_then(|items| items.iter().position(is_reference)) {
        let failure = Failure::bad_request(format!("input[{n}]: nothing is stored that could be referred to"));
        return Err(failure.hint("send the item itself; clients do with `store` false"));
    }
    if let Err(failure) = read(&mut asked, body) {
        asked = ApiRequest { unless_native: Some(failure), ..ApiRequest::of(body)? };
    }
    asked.responses = Some(text);
    Ok(asked)
}

/// Reads the request as every provider can have it.
fn read(asked: &mut ApiRequest, body: &Map<String, Value>) -> Result<(), Failure> {
    asked
        .system
        .extend(body.get("instructions").and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned));
    match body.get("input") {
        Some(Value::String(text)) => asked.say(Role::User, vec![ContentBlock::text(text.as_str())]),
        Some(Value::Array(items)) => {
            for (n, it) in items.iter().enumerate() {
                let at = |failure: Failure| Failure { message: format!("input[{n}]: {}", failure.message), ..failure };
                item(asked, n, it).map_err(at)?;
            }
        }
        _ => return Err(Failure::bad_request("`input` is a text or a list")),
    }
    for (n, tool) in body.get("tools").and_then(Value::as_array).into_iter().flatten().enumerate() {
        match tool.get("type").and_then(Value::as_str).unwrap_or("function") {
            "function" => asked.tool(tool)?,
            // It runs at OpenAI, or its calls have a form of their own.
            kind => asked.ignored.push(format!("tools[{n}] ({kind})")),
        }
    }
    asked.options(body)?;
    asked.note_unread(body, READ);
    asked.tool_choice(body.get("tool_choice"))?;
    let format = body.get("text").and_then(|text| text.get("format"));
    asked.format(format, format.and_then(|format| format.get("schema")))?;
    asked.limits(body.get("max_output_tokens"), body.get("reasoning").and_then(|it| it.get("effort")))
}

fn item(asked: &mut ApiRequest, n: usize, item: &Value) -> Result<(), Failure> {
    let text = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
    match item.get("type").and_then(Value::as_str).unwrap_or("message") {
        "message" => {
            let content = parts(item.get("content"))?;
            match text("role") {
                "system" | "developer" => asked.system.push(text_of(&content)),
                "user" => asked.say(Role::User, content),
                "assistant" => asked.say(Role::Assistant, content),
                other => return Err(Failure::bad_request(format!("unknown role '{}'", other.escape_default()))),
            }
        }
        "function_call" => asked.call(text("call_id"), text("name"), text("arguments")),
        "function_call_output" => asked.result(text("call_id"), parts(item.get("output"))?)?,
        // Another model's, or of an earlier answer of which nothing is kept.
        "reasoning" => {}
        // Of tools that run at OpenAI, or whose calls have a form of their own: those are not passed on either.
        other => asked.ignored.push(format!("input[{n}] ({other})")),
    }
    Ok(())
}

/// Content: a text, or a list of parts.
fn parts(content: Option<&Value>) -> Result<Vec<ContentBlock>, Failure> {
    let part = |part: &Value| match part.get("type").and_then(Value::as_str) {
        Some("input_text" | "output_text" | "text") => {
            Ok(ContentBlock::text(part.get("text").and_then(Value::as_str).unwrap_or_default()))
        }
        Some("refusal") => Ok(ContentBlock::text(part.get("refusal").and_then(Value::as_str).unwrap_or_default())),
        Some("input_image") => image(part.get("image_url").and_then(Value::as_str).unwrap_or_default()),
        other => {
            let kind = other.unwrap_or_default().escape_default();
            Err(Failure::bad_request(format!("a part of type '{kind}' is not supported"))
                .hint("input_text and input_image are"))
        }
    };
    match content {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![ContentBlock::text(text.as_str())]),
        Some(Value::Array(parts)) => parts.iter().map(part).collect(),
        Some(_) => Err(Failure::bad_request("content is a text or a list of parts")),
    }
}

/// The object that the answer is.
struct Response {
    fields: Map<String, Value>,
    output: Vec<Value>,
}

impl Response {
    fn new(model: String, body: &Map<String, Value>) -> Self {
        let said = |name: &str, absent: Value| body.get(name).cloned().unwrap_or(absent);
        let fields = json!({
            "id": name("resp_"), "object": "response", "created_at": clock::now() / 1000, "status": "in_progress",
            "background": false, "error": null, "incomplete_details": null,
            "instructions": said("instructions", Value::Null),
            "max_output_tokens": said("max_output_tokens", Value::Null), "metadata": said("metadata", json!({})),
            "model": model, "parallel_tool_calls": said("parallel_tool_calls", json!(true)), "previous_response_id": null,
            "reasoning": said("reasoning", json!({ "effort": null, "summary": null })), "store": false,
            "temperature": said("temperature", Value::Null), "text": said("text", json!({ "format": { "type": "text" } })),
            "tool_choice": said("tool_choice", json!("auto")), "tools": said("tools", json!([])),
            "top_p": said("top_p", Value::Null), "truncation": "disabled", "usage": null,
        });
        let fields = if let Value::Object(fields) = fields { fields } else { Map::new() };
        Self { fields, output: Vec::new() }
    }

    fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    fn finish(&mut self, finished: &Finished) {
        let cut = match finished.reason {
            StopReason::MaxTokens | StopReason::MaxSteps => Some("max_output_tokens"),
            StopReason::Refusal => Some("content_filter"),
            _ => None,
        };
        self.set("status", if cut.is_some() { "incomplete" } else { "completed" });
        self.set("incomplete_details", cut.map_or(Value::Null, |reason| json!({ "reason": reason })));
        self.set("usage", usage(&finished.usage));
    }

    fn value(&self) -> Value {
        let mut fields = self.fields.clone();
        fields.insert("output".to_owned(), Value::Array(self.output.clone()));
        Value::Object(fields)
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": { "cached_tokens": usage.cached_tokens },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
        "total_tokens": usage.input_tokens + usage.output_tokens,
    })
}

fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn message_item(id: &str, text: &str) -> Value {
    json!({ "id": id, "type": "message", "status": "completed", "role": "assistant", "content": [text_part(text)] })
}

/// The calls of an answer, as items.
fn call_items(content: &[ContentBlock]) -> Vec<Value> {
    let item = |block: &ContentBlock| match block {
        ContentBlock::ToolUse { call_id, name: tool, input, .. } => Some(json!({
            "id": name("fc_"), "type": "function_call", "status": "completed", "call_id": call_id, "name": tool,
            "arguments": arguments(input),
        })),
        _ => None,
    };
    content.iter().filter_map(item).collect()
}

/// The answer as a whole: each message of the model is an item.
async fn whole(mut response: Response, running: &mut AnswerStream) -> Result<Reply, Failure> {
    loop {
        match running.pieces.recv().await {
            Some(AnswerPiece::Message(text)) => response.output.push(message_item(&name("msg_"), &text)),
            Some(AnswerPiece::Finished(finished)) => {
                let text = final_text(&finished);
                if response.output.is_empty() && !text.is_empty() {
                    response.output.push(message_item(&name("msg_"), &text));
                }
                response.output.extend(call_items(&finished.content));
                response.finish(&finished);
                return json_of(&response.value());
            }
            Some(AnswerPiece::Failed(failure)) => return Err(failure),
            Some(_) => {}
            None => return Err(Failure::unavailable("the answer was cut off")),
        }
    }
}

/// An answer in pieces.
struct Stream {
    response: Response,
    sender: mpsc::Sender<Bytes>,
    /// Whether the answer has to fit a schema, and comes whole.
    shape: bool,
    /// The number of the next event.
    number: u64,
    /// The message that is open: its name, and its text so far.
    open: Option<(String, String)>,
}

/// The code of a failed response: OpenAI's word where there is one.
fn error_code(failure: &Failure) -> &str {
    match failure.code.as_str() {
        code @ ("rate_limit_exceeded" | "insufficient_quota" | "context_length_exceeded" | "model_not_found") => code,
        _ => "server_error",
    }
}

/// The client has gone.
struct Gone;

impl Stream {
    async fn run(mut self, mut begun: Vec<AnswerPiece>, mut running: AnswerStream) -> Result<(), Gone> {
        let is_native = running.is_native;
        if !is_native {
            self.state("response.created").await?;
            self.state("response.in_progress").await?;
        }
        while let Some(piece) = next(&mut begun, &mut running, &self.sender).await {
            match piece {
                AnswerPiece::Text(text) => self.text(&text).await?,
                AnswerPiece::Thinking(_) => {}
                AnswerPiece::Message(_) => self.close().await?,
                AnswerPiece::Event(event) => self.send(event_line(&event, r#""type":"keepalive""#)).await?,
                AnswerPiece::Native(data) => self.send(native::lines(&data)).await?,
                AnswerPiece::Finished(_) if is_native => return Ok(()),
                AnswerPiece::Finished(finished) => return self.finish(&finished).await,
                AnswerPiece::Failed(failure) => return self.fail(&failure).await,
            }
        }
        Ok(())
    }

    /// Tells of text; opens a message for it.
    async fn text(&mut self, text: &str) -> Result<(), Gone> {
        let index = self.response.output.len();
        let is_new = self.open.is_none();
        let (id, whole) = self.open.get_or_insert_with(|| (name("msg_"), String::new()));
        let id = id.clone();
        // The blank line between two messages stands for itself here.
        let text = if is_new { text.trim_start_matches('\n') } else { text };
        whole.push_str(text);
        if is_new {
            let item =
                json!({ "id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": [] });
            self.event("response.output_item.added", json!({ "output_index": index, "item": item })).await?;
            let part = json!({ "item_id": id, "output_index": index, "content_index": 0, "part": text_part("") });
            self.event("response.content_part.added", part).await?;
        }
        let delta = json!({ "item_id": id, "output_index": index, "content_index": 0, "delta": text, "logprobs": [] });
        self.event("response.output_text.delta", delta).await
    }

    /// Ends the message that is open.
    async fn close(&mut self) -> Result<(), Gone> {
        let Some((id, text)) = self.open.take() else { return Ok(()) };
        let index = self.response.output.len();
        let done = json!({ "item_id": id, "output_index": index, "content_index": 0, "text": text, "logprobs": [] });
        self.event("response.output_text.done", done).await?;
        let part = json!({ "item_id": id, "output_index": index, "content_index": 0, "part": text_part(&text) });
        self.event("response.content_part.done", part).await?;
        let item = message_item(&id, &text);
        self.response.output.push(item.clone());
        self.event("response.output_item.done", json!({ "output_index": index, "item": item })).await
    }

    async fn finish(mut self, finished: &Finished) -> Result<(), Gone> {
        let text = final_text(finished);
        if (self.shape || self.response.output.is_empty() && self.open.is_none()) && !text.is_empty() {
            self.text(&text).await?;
        }
        self.close().await?;
        for item in call_items(&finished.content) {
            let index = self.response.output.len();
            let field = |name: &str| item.get(name).cloned().unwrap_or_default();
            let (id, arguments) = (field("id"), field("arguments"));
            let mut begun = item.clone();
            if let Some(fields) = begun.as_object_mut() {
                fields.insert("status".to_owned(), "in_progress".into());
                fields.insert("arguments".to_owned(), "".into());
            }
            self.event("response.output_item.added", json!({ "output_index": index, "item": begun })).await?;
            let delta = json!({ "item_id": id, "output_index": index, "delta": arguments });
            self.event("response.function_call_arguments.delta", delta).await?;
            let done = json!({ "item_id": id, "output_index": index, "name": field("name"), "arguments": arguments });
            self.event("response.function_call_arguments.done", done).await?;
            self.response.output.push(item.clone());
            self.event("response.output_item.done", json!({ "output_index": index, "item": item })).await?;
        }
        self.response.finish(finished);
        let is_whole = self.response.fields.get("status").is_some_and(|status| status == "completed");
        self.state(if is_whole { "response.completed" } else { "response.incomplete" }).await
    }

    async fn fail(mut self, failure: &Failure) -> Result<(), Gone> {
        let error = error_value(failure);
        let message = error.pointer("/error/message").cloned().unwrap_or_default();
        self.response.set("status", "failed");
        self.response.set("error", json!({ "code": error_code(failure), "message": message }));
        self.state("response.failed").await
    }

    /// An event with the whole object.
    async fn state(&mut self, kind: &str) -> Result<(), Gone> {
        let response = self.response.value();
        self.event(kind, json!({ "response": response })).await
    }

    async fn event(&mut self, kind: &str, fields: Value) -> Result<(), Gone> {
        let mut event = Map::new();
        event.insert("type".to_owned(), kind.into());
        event.insert("sequence_number".to_owned(), self.number.into());
        if let Value::Object(fields) = fields {
            event.extend(fields);
        }
        self.number += 1;
        self.send(Bytes::from(format!("event: {kind}\ndata: {}\n\n", Value::Object(event)))).await
    }

    async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        self.sender.send(bytes).await.map_err(|_| Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_a_text_or_items_of_every_kind_that_can_be() {
        let parsed = |body: Value| {
            let asked = parse(body.as_object().unwrap(), body.to_string()).map_err(|failure| failure.message)?;
            asked.unless_native.as_ref().map_or(Ok(()), |failure| Err(failure.message.clone()))?;
            Ok::<_, String>(asked)
        };
        let asked = parsed(json!({ "model": "m", "instructions": "i", "input": "x" })).unwrap();
        assert_eq!((asked.system, asked.messages.len()), (vec!["i".to_owned()], 1));
        let items = json!([
            { "role": "user", "content": [{ "type": "input_text", "text": "a" }] },
            { "type": "reasoning", "summary": [] },
            { "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "c", "output": "r" },
            { "role": "assistant", "content": [{ "type": "output_text", "text": "b" }] },
            { "type": "message", "role": "user", "content": "c" },
        ]);
        let asked = parsed(json!({ "model": "m", "input": items })).unwrap();
        let roles: Vec<Role> = asked.messages.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::User, Role::Assistant, Role::User]);
        assert!(
            parsed(json!({ "model": "m", "input": [{ "type": "item_reference" }] })).unwrap_err().contains("input[0]")
        );
        assert!(parsed(json!({ "model": "m", "input": 7 })).is_err());
        let refused = json!([{ "role": "user", "content": [{ "type": "input_file", "file_id": "f" }] }]);
        assert!(parsed(json!({ "model": "m", "input": refused })).unwrap_err().contains("'input_file'"));
    }

    #[test]
    fn what_only_openai_has_is_left_out_and_named() {
        let body = json!({ "model": "m", "include": ["reasoning.encrypted_content"], "background": false,
            "tools": [{ "type": "namespace", "tools": [] }, { "type": "function", "name": "f" }, { "type": "web_search" }],
            "input": [
                { "role": "user", "content": "a" },
                { "type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "x" },
                { "type": "custom_tool_call_output", "call_id": "c", "output": "y" },
                { "type": "message", "role": "user", "content": "b" },
            ] });
        let asked = parse(body.as_object().unwrap(), body.to_string()).unwrap();
        let ignored = "tools[0] (namespace), tools[2] (web_search), include";
        assert_eq!(
            asked.ignored.join(", "),
            format!("input[1] (custom_tool_call), input[2] (custom_tool_call_output), {ignored}")
        );
        assert_eq!((asked.tools.len(), asked.messages.len()), (1, 1));
        assert_eq!(asked.responses, Some(body.to_string()));
    }
}
