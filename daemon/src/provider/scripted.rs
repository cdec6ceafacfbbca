//! A provider for tests: answers from a script, and keeps what it was asked.
//!
//! Each request takes the next [`Answer`]; a request without one fails. What was asked is kept as one
//! line a message, and is checked: each call has one result, in the next message.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linger_protocol::id::CallId;
use linger_protocol::message::{ContentBlock, HostedPart, HostedTool, Role, Usage, text_of};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{Failure, FailureClass, Request, Response, Stop, StreamEvent};

/// The script, shared by the test and the provider.
#[derive(Clone, Debug, Default)]
pub struct Script(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    answers: VecDeque<Answer>,
    asked: Vec<String>,
}

/// One answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    beats: VecDeque<Beat>,
    content: Vec<ContentBlock>,
    stop: Stop,
    usage: Usage,
    failure: Option<Failure>,
}

/// What comes next in an answer.
#[derive(Clone, Debug)]
enum Beat {
    Event(StreamEvent),
    /// Nothing, until there is a permit.
    Wait(Arc<Semaphore>),
}

impl Script {
    /// Adds an answer.
    pub(crate) fn push(&self, answer: Answer) {
        self.inner().answers.push_back(answer);
    }

    /// What was asked, one text a request.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.inner().asked.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start(&self, request: &Request<'_>) -> ScriptedStream {
        check(request);
        let mut inner = self.inner();
        inner.asked.push(words(request));
        let answer = inner.answers.pop_front().unwrap_or_else(|| Answer::fails(FailureClass::Rejected, "no answer"));
        ScriptedStream { answer, begun: false }
    }
}

impl Answer {
    /// One that says this.
    pub(crate) fn text(text: &str) -> Self {
        Self { usage: Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() }, ..Self::default() }.says(text)
    }

    /// One that only calls a tool.
    pub(crate) fn call(name: &str, input: Value) -> Self {
        Self::text("").calls(name, input)
    }

    /// One that fails before anything comes.
    pub(crate) fn fails(class: FailureClass, message: &str) -> Self {
        Self::default().then_fails(class, message)
    }

    /// Text, as a block of its own.
    pub(crate) fn says(mut self, text: &str) -> Self {
        if !text.is_empty() {
            let (block, text) = (self.content.len() as u32, text.to_owned());
            self.content.push(ContentBlock::text(text.clone()));
            self.beats.push_back(Beat::Event(StreamEvent::Text { block, text }));
        }
        self
    }

    /// More text of the last block.
    pub(crate) fn more(mut self, more: &str) -> Self {
        if let Some(ContentBlock::Text { text }) = self.content.last_mut() {
            text.push_str(more);
        }
        let block = self.content.len().saturating_sub(1) as u32;
        self.beats.push_back(Beat::Event(StreamEvent::Text { block, text: more.to_owned() }));
        self
    }

    /// Thinking.
    pub(crate) fn thinks(mut self, text: &str) -> Self {
        let (block, text) = (self.content.len() as u32, text.to_owned());
        self.content.push(ContentBlock::Thinking { text: text.clone(), native: Some(Value::from("signed")) });
        self.beats.push_back(Beat::Event(StreamEvent::Thinking { block, text }));
        self
    }

    /// A call of a tool that the provider runs itself.
    pub(crate) fn searches(mut self, text: &str) -> Self {
        let (block, text) = (self.content.len() as u32, text.to_owned());
        let (tool, part) = (HostedTool::WebSearch, HostedPart::Call);
        self.content.push(ContentBlock::Hosted { tool, part, text: text.clone(), native: None });
        self.beats.push_back(Beat::Event(StreamEvent::Hosted { block, tool, part, text }));
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
        self.beats.push_back(Beat::Wait(gate.clone()));
        self
    }

    /// Stops for this reason.
    pub(crate) fn stops(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }

    /// The provider asks to be left alone for so many seconds.
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        let wait = Some(std::time::Duration::from_secs(seconds));
        self.failure = self.failure.map(|failure| Failure { retry_after: wait, ..failure });
        self
    }

    /// What the provider counts.
    pub(crate) fn counts(mut self, input_tokens: u64, output_tokens: u64) -> Self {
        self.usage = Usage { input_tokens, output_tokens, ..Usage::default() };
        self
    }

    /// Fails after what came so far.
    pub(crate) fn then_fails(mut self, class: FailureClass, message: &str) -> Self {
        self.failure = Some(Failure { class, message: message.to_owned(), retry_after: None });
        self
    }
}

/// One attempt.
#[derive(Debug)]
pub struct ScriptedStream {
    answer: Answer,
    begun: bool,
}

impl ScriptedStream {
    pub(super) async fn next(&mut self) -> Vec<StreamEvent> {
        while let Some(Beat::Wait(gate)) = self.answer.beats.front() {
            if let Ok(permit) = gate.acquire().await {
                permit.forget();
            }
            self.answer.beats.pop_front();
        }
        if let Some(Beat::Event(event)) = self.answer.beats.pop_front() {
            self.begun = true;
            return vec![event];
        }
        if let Some(failure) = self.answer.failure.take() {
            return vec![StreamEvent::Failed(failure)];
        }
        self.begun = true;
        let Answer { content, stop, usage, .. } = std::mem::take(&mut self.answer);
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
fn words(request: &Request<'_>) -> String {
    let mut lines: Vec<String> = Vec::new();
    if request.tools.is_empty() {
        lines.push("(without tools)".to_owned());
    }
    if let Some(shape) = request.shape {
        lines.push(format!("(schema{})", if shape.due { ", due" } else { "" }));
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

/// Each call has one result in the next message, and nothing is empty.
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
        assert!(!message.content.is_empty(), "an empty message: {:?}", request.messages);
        assert_eq!(gives(&message.content), open, "{:?}", request.messages);
        open = asks(&message.content);
    }
    assert!(open.is_empty(), "calls without results: {:?}", request.messages);
    assert_eq!(request.messages.first().map(|first| first.role), Some(Role::User));
}
