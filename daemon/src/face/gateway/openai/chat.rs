//! `POST /v1/chat/completions`.

use hyper::body::{Bytes, Incoming};
use linger_protocol::message::{ContentBlock, Role, StopReason, Usage, text_of};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::answer;
use super::asked::{ApiRequest, image};
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
    let body: Map<String, Value> = body::json(body).await?;
    let asked = parse(&body)?;
    let has_usage = body.get("stream_options").and_then(|options| options.get("include_usage")) == Some(&true.into());
    let (is_stream, shape) = (asked.is_stream, asked.schema.is_some());
    let permit = if is_stream { Some(client.stream_permit()?) } else { None };
    let mut running = answer::begin(client, options, asked).await?;
    let headers = AnswerHeaders::of(&running);
    let head = Head { id: name("chatcmpl-"), created: clock::now() / 1000, model: running.model.clone() };
    if !is_stream {
        return Ok(headers.add(json_of(&whole(&head, &mut running).await?)?));
    }
    let begun = first(&mut running).await?;
    let (sender, reply) = event_stream();
    task::spawn(async move {
        let _permit = permit;
        // A client that has gone needs no more.
        let _gone = Stream { head, sender, has_usage, shape, has_text: false }.run(begun, running).await;
    });
    Ok(headers.add(reply))
}

/// The fields that all objects of an answer share.
struct Head {
    id: String,
    created: u64,
    model: String,
}

/// The fields that are read here, or change no answer.
const READ: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "max_tokens",
    "max_completion_tokens",
    "reasoning_effort",
    "stop",
    "temperature",
    "top_p",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "n",
    "user",
    "safety_identifier",
    "metadata",
    "store",
    "prompt_cache_key",
    "prompt_cache_retention",
];

fn parse(body: &Map<String, Value>) -> Result<ApiRequest, Failure> {
    let mut asked = ApiRequest::of(body)?;
    let messages = body.get("messages").and_then(Value::as_array);
    let messages = messages.ok_or_else(|| Failure::bad_request("`messages` is a list"))?;
    for (n, message) in messages.iter().enumerate() {
        let at = |failure: Failure| Failure { message: format!("messages[{n}]: {}", failure.message), ..failure };
        self::message(&mut asked, message).map_err(at)?;
    }
    for (n, tool) in body.get("tools").and_then(Value::as_array).into_iter().flatten().enumerate() {
        match (tool.get("type").and_then(Value::as_str).unwrap_or("function"), tool.get("function")) {
            ("function", Some(function)) => asked.tool(function)?,
            ("function", None) => {
                return Err(Failure::bad_request(format!(
                    "tools[{n}]: a function is `{{\"type\":\"function\",\"function\":{{…}}}}`"
                )));
            }
            (kind, _) => asked.ignored.push(format!("tools[{n}] ({kind})")),
        }
    }
    asked.options(body)?;
    asked.note_unread(body, READ);
    asked.tool_choice(body.get("tool_choice"))?;
    let format = body.get("response_format");
    asked.format(format, format.and_then(|format| format.pointer("/json_schema/schema")))?;
    asked.limits(body.get("max_completion_tokens").or(body.get("max_tokens")), body.get("reasoning_effort"))?;
    Ok(asked)
}

fn message(asked: &mut ApiRequest, message: &Value) -> Result<(), Failure> {
    let text = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
    let content = parts(message.get("content"))?;
    match text("role") {
        "system" | "developer" => asked.system.push(text_of(&content)),
        "user" => asked.say(Role::User, content),
        "assistant" => {
            asked.say(Role::Assistant, content);
            for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
                let field = |path: &str| call.pointer(path).and_then(Value::as_str).unwrap_or_default();
                asked.call(field("/id"), field("/function/name"), field("/function/arguments"));
            }
            if let Some(call) = message.get("function_call").filter(|call| !call.is_null()) {
                let field = |name: &str| call.get(name).and_then(Value::as_str).unwrap_or_default();
                asked.call("", field("name"), field("arguments"));
            }
        }
        "tool" => asked.result(text("tool_call_id"), content)?,
        "function" => asked.function_result(text("name"), content),
        other => return Err(Failure::bad_request(format!("unknown role '{}'", other.escape_default()))),
    }
    Ok(())
}

/// Content: a text, or a list of parts.
fn parts(content: Option<&Value>) -> Result<Vec<ContentBlock>, Failure> {
    let part = |part: &Value| match part.get("type").and_then(Value::as_str) {
        Some("text" | "refusal") => {
            let text = part.get("text").or(part.get("refusal")).and_then(Value::as_str);
            Ok(ContentBlock::text(text.unwrap_or_default()))
        }
        Some("image_url") => image(part.pointer("/image_url/url").and_then(Value::as_str).unwrap_or_default()),
        other => {
            let kind = other.unwrap_or_default().escape_default();
            Err(Failure::bad_request(format!("a part of type '{kind}' is not supported"))
                .hint("text and image_url are"))
        }
    };
    match content {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![ContentBlock::text(text.as_str())]),
        Some(Value::Array(parts)) => parts.iter().map(part).collect(),
        Some(_) => Err(Failure::bad_request("`content` is a text or a list of parts")),
    }
}

/// The answer as a whole: of a turn, its last message.
async fn whole(head: &Head, running: &mut AnswerStream) -> Result<Value, Failure> {
    loop {
        match running.pieces.recv().await {
            Some(AnswerPiece::Finished(finished)) => return Ok(completion(head, &finished)),
            Some(AnswerPiece::Failed(failure)) => return Err(failure),
            Some(_) => {}
            None => return Err(Failure::unavailable("the answer was cut off")),
        }
    }
}

fn completion(head: &Head, finished: &Finished) -> Value {
    let (text, calls) = (final_text(finished), calls(&finished.content));
    let mut message = json!({ "role": "assistant", "content": text, "refusal": null });
    if !calls.is_empty()
        && let Some(fields) = message.as_object_mut()
    {
        fields.insert("tool_calls".to_owned(), json!(calls));
        if text.is_empty() {
            fields.insert("content".to_owned(), Value::Null);
        }
    }
    let reason = finish_reason(finished);
    json!({
        "id": head.id, "object": "chat.completion", "created": head.created, "model": head.model,
        "choices": [{ "index": 0, "message": message, "logprobs": null, "finish_reason": reason }],
        "usage": usage(&finished.usage),
    })
}

/// The text of an answer; the one that fits the schema, if there was one.
pub(super) fn final_text(finished: &Finished) -> String {
    match &finished.answer {
        Some(answer) => answer.to_string(),
        None => text_of(&finished.content),
    }
}

/// The calls of an answer: a model's own, of the caller's tools.
fn calls(content: &[ContentBlock]) -> Vec<Value> {
    let call = |block: &ContentBlock| match block {
        ContentBlock::ToolUse { call_id, name, input, .. } => {
            let function = json!({ "name": name, "arguments": arguments(input) });
            Some(json!({ "id": call_id, "type": "function", "function": function }))
        }
        _ => None,
    };
    content.iter().filter_map(call).collect()
}

/// Arguments as a text of JSON, or what the model wrote in their place.
pub(super) fn arguments(input: &Value) -> String {
    input.as_str().map_or_else(|| input.to_string(), str::to_owned)
}

fn finish_reason(finished: &Finished) -> &'static str {
    let has_calls = finished.content.iter().any(|block| matches!(block, ContentBlock::ToolUse { .. }));
    match finished.reason {
        StopReason::MaxTokens | StopReason::MaxSteps => "length",
        StopReason::Refusal => "content_filter",
        _ if has_calls => "tool_calls",
        _ => "stop",
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": { "cached_tokens": usage.cached_tokens },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
    })
}

/// An answer in pieces.
struct Stream {
    head: Head,
    sender: mpsc::Sender<Bytes>,
    /// Whether a last piece has the usage.
    has_usage: bool,
    /// Whether the answer has to fit a schema, and comes whole.
    shape: bool,
    /// Whether text was sent.
    has_text: bool,
}

/// The client has gone.
struct Gone;

impl Stream {
    async fn run(mut self, mut begun: Vec<AnswerPiece>, mut running: AnswerStream) -> Result<(), Gone> {
        self.delta(json!({ "role": "assistant", "content": "" }), None).await?;
        while let Some(piece) = next(&mut begun, &mut running, &self.sender).await {
            match piece {
                AnswerPiece::Text(text) => {
                    self.has_text = true;
                    self.delta(json!({ "content": text }), None).await?;
                }
                // Not OpenAI's own, and what other servers call it.
                AnswerPiece::Thinking(text) => self.delta(json!({ "reasoning_content": text }), None).await?,
                AnswerPiece::Message(_) | AnswerPiece::Native(_) => {}
                AnswerPiece::Event(event) => self.send(event_line(&event, r#""choices":[]"#)).await?,
                AnswerPiece::Finished(finished) => return self.finish(&finished).await,
                AnswerPiece::Failed(failure) => return self.line(&error_value(&failure)).await,
            }
        }
        Ok(())
    }

    async fn finish(&self, finished: &Finished) -> Result<(), Gone> {
        let text = final_text(finished);
        if (self.shape || !self.has_text) && !text.is_empty() {
            self.delta(json!({ "content": text }), None).await?;
        }
        let calls = calls(&finished.content).into_iter().enumerate().map(|(n, mut call)| {
            if let Some(fields) = call.as_object_mut() {
                fields.insert("index".to_owned(), n.into());
            }
            call
        });
        let calls: Vec<Value> = calls.collect();
        if !calls.is_empty() {
            self.delta(json!({ "tool_calls": calls }), None).await?;
        }
        self.delta(json!({}), Some(finish_reason(finished))).await?;
        if self.has_usage {
            let mut chunk = self.chunk(json!([]));
            if let Some(fields) = chunk.as_object_mut() {
                fields.insert("usage".to_owned(), usage(&finished.usage));
            }
            self.line(&chunk).await?;
        }
        self.send(Bytes::from_static(b"data: [DONE]\n\n")).await
    }

    async fn delta(&self, delta: Value, reason: Option<&str>) -> Result<(), Gone> {
        let choice = json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason }]);
        self.line(&self.chunk(choice)).await
    }

    fn chunk(&self, choices: Value) -> Value {
        let Head { id, created, model } = &self.head;
        json!({ "id": id, "object": "chat.completion.chunk", "created": created, "model": model, "choices": choices })
    }

    async fn line(&self, value: &Value) -> Result<(), Gone> {
        self.send(Bytes::from(format!("data: {value}\n\n"))).await
    }

    async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        self.sender.send(bytes).await.map_err(|_| Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(body: Value) -> Result<ApiRequest, String> {
        parse(body.as_object().unwrap()).map_err(|failure| failure.message)
    }

    #[test]
    fn a_conversation_with_calls_is_one_that_the_daemon_takes() {
        let asked = parsed(json!({ "model": "m", "messages": [
            { "role": "system", "content": "s" },
            { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } }] },
            { "role": "assistant", "content": null, "tool_calls": [
                { "id": "c1", "type": "function", "function": { "name": "f", "arguments": "{\"x\":1}" } },
                { "id": "c2", "type": "function", "function": { "name": "g", "arguments": "" } }] },
            { "role": "tool", "tool_call_id": "c1", "content": "one" },
            { "role": "tool", "tool_call_id": "c2", "content": "two" },
            { "role": "user", "content": "b" },
        ], "tools": [{ "type": "function", "function": { "name": "f", "description": "d" } }], "max_tokens": 7, "reasoning_effort": "low" }));
        let asked = asked.unwrap();
        let call = |id: &str, name: &str, input| ContentBlock::ToolUse {
            call_id: id.into(),
            name: name.to_owned(),
            input,
            native: None,
        };
        let result = |id: &str, text: &str| ContentBlock::ToolResult {
            call_id: id.into(),
            is_error: false,
            content: vec![ContentBlock::text(text)],
        };
        let contents: Vec<_> = asked.messages.iter().map(|message| message.content.clone()).collect();
        assert_eq!(
            contents,
            [
                vec![ContentBlock::text("a"), ContentBlock::image("image/png", "AA==")],
                vec![call("c1", "f", json!({ "x": 1 })), call("c2", "g", json!({}))],
                vec![result("c1", "one"), result("c2", "two"), ContentBlock::text("b")],
            ]
        );
        assert_eq!((asked.system, asked.max_tokens, asked.tools.len()), (vec!["s".to_owned()], Some(7), 1));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let messages = |message: Value| parsed(json!({ "model": "m", "messages": [message] })).unwrap_err();
        assert!(messages(json!({ "role": "wizard" })).starts_with("messages[0]: unknown role 'wizard'"));
        assert!(messages(json!({ "role": "user", "content": [{ "type": "input_audio" }] })).contains("'input_audio'"));
        assert!(messages(json!({ "role": "user", "content": 7 })).contains("a text or a list"));
        assert!(parsed(json!({ "model": "m" })).unwrap_err().contains("`messages`"));
    }

    #[test]
    fn an_answer_is_put_together_as_clients_read_it() {
        let head = Head { id: "i".to_owned(), created: 1, model: "m".to_owned() };
        let call =
            ContentBlock::ToolUse { call_id: "c".into(), name: "f".to_owned(), input: json!({ "x": 1 }), native: None };
        let usage = Usage { input_tokens: 3, output_tokens: 2, cached_tokens: 1, ..Usage::default() };
        let finished = Finished { content: vec![call], answer: None, reason: StopReason::EndTurn, usage };
        let whole = completion(&head, &finished);
        assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(whole["choices"][0]["message"]["content"], Value::Null);
        assert_eq!(whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{\"x\":1}");
        assert_eq!(whole["usage"]["total_tokens"], 5);
        let shaped = Finished { content: vec![ContentBlock::text("x")], answer: Some(json!({ "a": 1 })), ..finished };
        assert_eq!(completion(&head, &shaped)["choices"][0]["message"]["content"], "{\"a\":1}");
    }
}
