//! Log to context: what a model is sent, built from the events of a session. Pure.
//!
//! The history is never changed: superseded messages are left out, and calls whose results are not a message yet are returned
//! beside. The codecs see to the rules of their format.

use std::collections::{HashMap, HashSet};

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

/// Builds the context from stored events of [`KINDS`].
pub fn build(stored: &[Stored]) -> Result<Context, serde_json::Error> {
    let events = stored.iter().map(|stored| serde_json::from_str::<Event>(&stored.data));
    Ok(fold(&events.collect::<Result<Vec<_>, _>>()?))
}

fn fold(events: &[Event]) -> Context {
    let superseded: HashSet<&MessageId> = events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::MessageSuperseded { message } => Some(message),
            _ => None,
        })
        .collect();
    let mut context = Context::default();
    for event in events {
        match &event.body {
            EventBody::Message { message, role, content, model, .. } if !superseded.contains(message) => {
                if *role == Role::User {
                    context.results.clear();
                }
                let origin = model.clone();
                context.messages.push(Message { role: *role, content: content.clone(), origin });
            }
            body => context.results.extend(result_of(body)),
        }
    }
    context
}

/// The calls of the last message, if it has any that wait for results.
pub fn open_calls(messages: &[Message]) -> Vec<ContentBlock> {
    let last = messages.last().filter(|message| message.role == Role::Assistant);
    let blocks = last.map(|message| message.content.as_slice()).unwrap_or_default();
    blocks.iter().filter(|block| matches!(block, ContentBlock::ToolUse { .. })).cloned().collect()
}
