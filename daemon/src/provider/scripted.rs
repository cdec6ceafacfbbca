//! A provider for tests: responds from a script, and records requests.
//!
//! Each request takes the next [`ScriptedResponse`]; a request without one fails. A request is recorded as one
//! line a message, and checked: each call has one result, in the next message.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linger_protocol::id::CallId;
use linger_protocol::message::{ContentBlock, HostedPart, HostedTool, Role, Usage, text_of};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::types::{Failure, FailureClass, Request, Response, Stop, StreamEvent};

/// The script, shared by the test and the provider.
#[derive(Clone, Debug, Default)]
pub struct Script(Arc<Mutex<ScriptState>>);

#[derive(Debug, Default)]
struct ScriptState {
    answers: VecDeque<ScriptedResponse>,
    asked: Vec<String>,
}

/// One response.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScriptedResponse {
    items: VecDeque<ScriptItem>,
    content: Vec<ContentBlock>,
    stop: Stop,
    usage: Usage,
    failure: Option<Failure>,
}

/// The next item of a response.
#[derive(Clone, Debug)]
enum ScriptItem {
    Event(StreamEvent),
    /// Waits for a permit.
    Wait(Arc<Semaphore>),
}

impl Script {
    /// Adds a response.
    pub(crate) fn push(&self, answer: ScriptedResponse) {
        self.inner().answers.push_back(answer);
    }

    /// The recorded requests, one text each.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.inner().asked.clone()
    }

    fn inner(&self) -> MutexGuard<'_, ScriptState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start(&self, request: &Request<'_>) -> ScriptedStream {
        check(request);
        let mut inner = self.inner();
        inner.asked.push(describe(request));
        let answer =
            inner.answers.pop_front().unwrap_or_else(|| ScriptedResponse::fails(FailureClass::Rejected, "no answer"));
        ScriptedStream { answer, begun: false }
    }
}

impl ScriptedResponse {
    /// A response with this text.
    pub(crate) fn text(text: &str) -> Self {
        Self { usage: Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() }, ..Self::default() }.says(text)
    }

    /// A response with only a tool call.
    pub(crate) fn call(name: &str, input: Value) -> Self {
        Self::text("").calls(name, input)
    }

    /// A failure before any event.
    pub(crate) fn fails(class: FailureClass, message: &str) -> Self {
        Self::default().then_fails(class, message)
    }

    /// Text, as a block of its own.
    pub(crate) fn says(mut self, text: &str) -> Self {
        if !text.is_empty() {
            let (block, text) = (self.content.len() as u32, text.to_owned());
            self.content.push(ContentBlock::text(text.clone()));
            self.items.push_back(ScriptItem::Event(StreamEvent::Text { block, text }));
        }
        self
    }

    /// More text of the last block.
    pub(crate) fn more(mut self, more: &str) -> Self {
        if let Some(ContentBlock::Text { text }) = self.content.last_mut() {
            text.push_str(more);
        }
        let block = self.content.len().saturating_sub(1) as u32;
        self.items.push_back(ScriptItem::Event(StreamEvent::Text { block, text: more.to_owned() }));
        self
    }

    /// Thinking.
    pub(crate) fn thinks(mut self, text: &str) -> Self {
        let (block, text) = (self.content.len() as u32, text.to_owned());
        self.content.push(ContentBlock::Thinking { text: text.clone(), native: Some(Value::from("signed")) });
        self.items.push_back(ScriptItem::Event(StreamEvent::Thinking { block, text }));
        self
    }

    /// A call of a tool that the provider runs itself.
    pub(crate) fn searches(mut self, text: &str) -> Self {
        let (block, text) = (self.content.len() as u32, text.to_owned());
        let (tool, part) = (HostedTool::WebSearch, HostedPart::Call);
        self.content.push(ContentBlock::Hosted { tool, part, text: text.clone(), native: None });
        self.items.push_back(ScriptItem::Event(StreamEvent::Hosted { block, tool, part, text }));
        self
    }

    /// A call of a tool.
    pub(crate) fn calls(mut self, name: &str, input: Value) -> Self {
        let name = name.to_owned();
        self.content.push(ContentBlock::ToolUse { call_id: CallId::default(), name, input, native: None });
        self
    }

    /// Waits here for a permit of `gate`.
    pub(crate) fn waits(mut self, gate: &Arc<Semaphore>) -> Self {
        self.items.push_back(ScriptItem::Wait(gate.clone()));
        self
    }

    /// Stops for this reason.
    pub(crate) fn stops(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }

    /// With `Retry-After`, in seconds.
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        let wait = Some(std::time::Duration::from_secs(seconds));
        self.failure = self.failure.map(|failure| Failure { retry_after: wait, ..failure });
        self
    }

    /// The provider's token counts.
    pub(crate) fn counts(mut self, input_tokens: u64, output_tokens: u64) -> Self {
        self.usage = Usage { input_tokens, output_tokens, ..Usage::default() };
        self
    }

    /// Fails after the previous items.
    pub(crate) fn then_fails(mut self, class: FailureClass, message: &str) -> Self {
        self.failure = Some(Failure { class, message: message.to_owned(), retry_after: None });
        self
    }
}

/// One attempt.
#[derive(Debug)]
pub struct ScriptedStream {
    answer: ScriptedResponse,
    begun: bool,
}

impl ScriptedStream {
    pub(super) async fn next(&mut self) -> Vec<StreamEvent> {
        while let Some(ScriptItem::Wait(gate)) = self.answer.items.front() {
            if let Ok(permit) = gate.acquire().await {
                permit.forget();
            }
            self.answer.items.pop_front();
        }
        if let Some(ScriptItem::Event(event)) = self.answer.items.pop_front() {
            self.begun = true;
            return vec![event];
        }
        if let Some(failure) = self.answer.failure.take() {
            return vec![StreamEvent::Failed(failure)];
        }
        self.begun = true;
        let ScriptedResponse { content, stop, usage, .. } = std::mem::take(&mut self.answer);
        vec![StreamEvent::Done(Response { content, stop, usage })]
    }

    pub(super) fn usage(&self) -> Usage {
        if self.begun { Usage { output_tokens: 0, ..self.answer.usage } } else { Usage::default() }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }
}

/// A request as text: one line a message.
fn describe(request: &Request<'_>) -> String {
    let mut lines: Vec<String> = Vec::new();
    if request.tools.is_empty() {
        lines.push("(without tools)".to_owned());
    }
    if let Some(output_schema) = request.output_schema {
        lines.push(format!("(schema{})", if output_schema.due { ", due" } else { "" }));
    }
    let block = |block: &ContentBlock| match block {
        ContentBlock::Text { text } => text.clone(),
        ContentBlock::Thinking { text, .. } => format!("({text})"),
        ContentBlock::ToolUse { call_id, name, .. } => format!("<{call_id} {name}>"),
        ContentBlock::ToolResult { call_id, content, .. } => format!("<{call_id}: {}>", text_of(content)),
        ContentBlock::Image { .. } => "<image>".to_owned(),
        ContentBlock::Hosted { text, .. } => format!("<hosted {text}>"),
        other => format!("{other:?}"),
    };
    lines.extend(request.messages.iter().map(|message| {
        let who = if message.role == Role::User { "user" } else { "model" };
        format!("{who}: {}", message.content.iter().map(block).collect::<Vec<_>>().join(" "))
    }));
    lines.join("\n")
}

/// Each call has one result in the next message, and no user's message is empty. An empty answer is left out by each format.
fn check(request: &Request<'_>) {
    let asks = |content: &[ContentBlock]| -> Vec<CallId> {
        let call = |block: &ContentBlock| match block {
            ContentBlock::ToolUse { call_id, .. } => Some(call_id.clone()),
            _ => None,
        };
        content.iter().filter_map(call).collect()
    };
    let gives = |content: &[ContentBlock]| -> Vec<CallId> {
        let result = |block: &ContentBlock| match block {
            ContentBlock::ToolResult { call_id, .. } => Some(call_id.clone()),
            _ => None,
        };
        content.iter().filter_map(result).collect()
    };
    let mut open: Vec<CallId> = Vec::new();
    for message in request.messages {
        let is_answer = message.role == Role::Assistant;
        assert!(is_answer || !message.content.is_empty(), "an empty message: {:?}", request.messages);
        assert_eq!(gives(&message.content), open, "{:?}", request.messages);
        open = asks(&message.content);
    }
    assert!(open.is_empty(), "calls without results: {:?}", request.messages);
    assert_eq!(request.messages.first().map(|first| first.role), Some(Role::User));
}
