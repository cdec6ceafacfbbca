//! Log to context: what a model is sent, built from the events of a session. Pure.
//!
//! The history is never changed: superseded messages are left out, and calls whose results are not a message yet are returned
//! beside. The codecs see to the rules of their format.

use std::collections::HashMap;

use linger_protocol::event::{Event, EventBody};
use linger_protocol::id::{CallId, MessageId};
use linger_protocol::message::{ContentBlock, Role};

use super::log::Stored;
use super::recovery::result_of;
use crate::provider::Message;

/// The kinds of event that a context is built from.
pub const KINDS: &[&str] = &["message", "message_superseded", "tool_finished"];

/// A context, and what is not a message yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// Results of calls of the last message.
    pub results: HashMap<CallId, ContentBlock>,
}

/// How much of a history is read and parsed at once, in bytes; it is in memory beside the context that it becomes a part of.
pub const PAGE: usize = 256 << 10;

/// Builds a context from the events of [`KINDS`], a page at a time.
#[derive(Debug, Default)]
pub struct Builder {
    /// The messages so far, each with its id while it can be superseded.
    messages: Vec<(MessageId, Message)>,
    results: HashMap<CallId, ContentBlock>,
}

impl Builder {
    /// Takes the next events.
    pub fn add(&mut self, page: &[Stored]) -> Result<(), serde_json::Error> {
        for stored in page {
            self.event(serde_json::from_str(&stored.data)?);
        }
        Ok(())
    }

    fn event(&mut self, event: Event) {
        match event.body {
            // It was cut before anything was shown of it, and no provider takes an empty message.
            EventBody::Message { interrupted: true, content, .. } if content.is_empty() => {}
            EventBody::Message { message, role, content, model, .. } => {
                if role == Role::User {
                    self.results.clear();
                }
                self.messages.push((message, Message { role, content, origin: model }));
            }
            EventBody::MessageSuperseded { message } => {
                // It is among the last ones: the step that it belongs to has not ended.
                if let Some(at) = self.messages.iter().rposition(|(id, _)| *id == message) {
                    self.messages.remove(at);
                }
            }
            body => self.results.extend(result_of(&body)),
        }
    }

    /// The context, once there are no more events.
    pub fn finish(self) -> Context {
        Context { messages: self.messages.into_iter().map(|(_, message)| message).collect(), results: self.results }
    }
}

/// The calls of the last message, if it has any that wait for results.
pub fn open_calls(messages: &[Message]) -> Vec<ContentBlock> {
    let last = messages.last().filter(|message| message.role == Role::Assistant);
    let blocks = last.map(|message| message.content.as_slice()).unwrap_or_default();
    blocks.iter().filter(|block| matches!(block, ContentBlock::ToolUse { .. })).cloned().collect()
}
