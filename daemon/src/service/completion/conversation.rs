//! A caller's conversation: what is refused, and how it opens for a wire format. Pure.

use std::collections::HashSet;

use linger_protocol::RpcError;
use linger_protocol::completion::{Message, Start, Tool, ToolChoice};
use linger_protocol::error::Code;
use linger_protocol::id::CallId;
use linger_protocol::message::{ContentBlock, ImageSource, Role};

use crate::provider::{ConversationStart, Message as ContextMessage};

/// The most messages of a conversation: a long one has some hundred.
const MAX_MESSAGES: usize = 10_000;

/// The most tools: providers take 128, and some fewer.
const MAX_TOOLS: usize = 512;

/// The longest name of a tool, as providers have it.
const MAX_NAME: usize = 64;

/// The most stop texts: providers take 4 or 5.
const MAX_STOPS: usize = 16;

/// The longest stop text, in bytes: much of a line.
const MAX_STOP: usize = 1_000;

/// The user's words before a conversation that the model begins, for providers that want the user first.
const BEGUN: &str = "(the conversation begins)";

fn wrong<T>(path: &str, what: &str) -> Result<T, RpcError> {
    Err(RpcError { code: Code::BadPrompt as i32, message: format!("{path}: {what}"), data: None })
}

/// Whether a request is one that every provider takes: user and model take turns, nothing is empty, and each call has one result, in
/// the next message.
pub(super) fn check(params: &Start) -> Result<(), RpcError> {
    let Start { messages, tools, stop, system, .. } = params;
    if messages.len() > MAX_MESSAGES || tools.len() > MAX_TOOLS {
        let text = format!("a completion may have {MAX_MESSAGES} messages and {MAX_TOOLS} tools");
        return Err(RpcError::new(Code::TooMuch, text));
    }
    if stop.len() > MAX_STOPS || stop.iter().any(|text| text.len() > MAX_STOP) {
        let text = format!("a completion may have {MAX_STOPS} stop texts of {MAX_STOP} bytes");
        return Err(RpcError::new(Code::TooMuch, text));
    }
    if stop.iter().any(String::is_empty) {
        return wrong("stop", "a stop text is empty");
    }
    check_tools(tools)?;
    check_choice(params)?;
    check_messages(messages)?;
    if messages.is_empty() && system.trim().is_empty() {
        return wrong("messages", "there is none");
    }
    Ok(())
}

fn check_tools(tools: &[Tool]) -> Result<(), RpcError> {
    let is_name = |name: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        (1..=MAX_NAME).contains(&name.len()) && name.chars().all(fits)
    };
    let mut names = HashSet::new();
    for (n, tool) in tools.iter().enumerate() {
        if !is_name(&tool.name) || !names.insert(&tool.name) {
            return wrong(&format!("tools[{n}].name"), "a name of its own: letters, digits, _ and -, at most 64");
        }
        if !tool.input_schema.is_object() {
            return wrong(&format!("tools[{n}].input_schema"), "is a JSON Schema of an object");
        }
    }
    Ok(())
}

fn check_choice(params: &Start) -> Result<(), RpcError> {
    let Start { tools, tool_choice, forced_tool, .. } = params;
    match forced_tool {
        Some(_) if *tool_choice == ToolChoice::None => wrong("forced_tool", "tool_choice says that no tool is called"),
        Some(name) if !tools.iter().any(|tool| tool.name == *name) => {
            wrong("forced_tool", &format!("there is no tool `{}`", name.escape_debug()))
        }
        None if *tool_choice == ToolChoice::Required && tools.is_empty() => {
            wrong("tool_choice", "a call is required, and there are no tools")
        }
        _ => Ok(()),
    }
}

fn check_messages(messages: &[Message]) -> Result<(), RpcError> {
    let mut role = None;
    let mut open: HashSet<&CallId> = HashSet::new();
    for (n, message) in messages.iter().enumerate() {
        let path = format!("messages[{n}]");
        if role.replace(message.role) == Some(message.role) {
            return wrong(&path, "user and assistant take turns");
        }
        if message.content.is_empty() {
            return wrong(&path, "says nothing");
        }
        let mut calls = HashSet::new();
        for (at, block) in message.content.iter().enumerate() {
            let path = format!("{path}.content[{at}]");
            match (block, message.role) {
                (ContentBlock::Text { text }, _) if !text.is_empty() => {}
                (ContentBlock::Image { source: ImageSource::Data { .. }, .. }, Role::User) => {}
                (ContentBlock::ToolUse { call_id, .. }, Role::Assistant) => {
                    if call_id.0.is_empty() || !calls.insert(call_id) {
                        return wrong(&path, "a call has a `call_id` of its own");
                    }
                }
                (ContentBlock::ToolResult { call_id, .. }, Role::User) => {
                    if !open.remove(call_id) {
                        return wrong(&path, "there is no such call in the message before, or it has its result");
                    }
                }
                (ContentBlock::Thinking { .. }, Role::Assistant) => {}
                _ => {
                    return wrong(
                        &path,
                        "is no block that this message can have: text, an image with `data`, calls, results",
                    );
                }
            }
        }
        without_open(&path, &open)?;
        open = calls;
    }
    without_open("messages", &open)
}

/// Fails if a call has no result where the results end.
fn without_open(path: &str, open: &HashSet<&CallId>) -> Result<(), RpcError> {
    match open.iter().min_by_key(|call| call.as_str()) {
        Some(call) => wrong(path, &format!("the call {call} has no result")),
        None => Ok(()),
    }
}

/// The conversation as a wire format takes its beginning. Instructions alone become the user's words where there must be some.
pub(super) fn opened(
    mut messages: Vec<ContextMessage>,
    system: &mut String,
    opening: ConversationStart,
) -> Vec<ContextMessage> {
    let user =
        |text: String| ContextMessage { role: Role::User, content: vec![ContentBlock::text(text)], origin: None };
    match (messages.first().map(|first| first.role), opening) {
        (None, ConversationStart::User | ConversationStart::Message) => messages.push(user(std::mem::take(system))),
        (Some(Role::Assistant), ConversationStart::User) => messages.insert(0, user(BEGUN.to_owned())),
        _ => {}
    }
    // The beginning of an answer may not end in blanks there.
    if opening == ConversationStart::User
        && let Some(last) = messages.last_mut().filter(|last| last.role == Role::Assistant)
        && let Some(ContentBlock::Text { text }) = last.content.last_mut()
    {
        text.truncate(text.trim_end().len());
    }
    messages
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
