//! Completions without a session: parameters, result and notifications of `completion/*`.
//!
//! A model is asked once, with what the caller sends and nothing of linger's: no instructions, no tools, no log. Nothing is kept.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::CompletionId;
use crate::message::{ContentBlock, Role, StopReason, Usage};
use crate::session::Effort;

/// The method name of the notification that carries a piece of a completion.
pub const COMPLETION_EVENT: &str = "completion/event";

/// `completion/start`: ask a model, and send what it answers as notifications.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Start {
    /// `provider/model`, or a provider alone for its default model; the configuration's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The system prompt.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub system: String,
    /// The conversation, which begins with a user's message: text, images, calls of the model and their results. Each call has its
    /// result in the next message.
    pub messages: Vec<Message>,
    /// The caller's own tools; the model's calls of them are in the answer, and nothing runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// JSON Schema that the answer has to fit, as far as the provider can be held to it.
    #[serde(default, deserialize_with = "crate::prompt::schema", skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// The most tokens of the answer; the configuration's for the model when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// How hard the model thinks; the configuration's for the model when absent.
    #[serde(default, skip_serializing_if = "Effort::is_auto")]
    pub effort: Effort,
}

/// A message of such a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CompletionMessage")]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The content: an image has its bytes in `data`.
    pub content: Vec<ContentBlock>,
}

/// A tool of the caller's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CompletionTool")]
pub struct Tool {
    /// As the model calls it.
    pub name: String,
    /// The description for the model.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
}

/// The result of `completion/start`; pieces follow it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    /// The completion, unique within its connection.
    pub completion: CompletionId,
    /// The model that is asked, `provider/model`.
    pub model: String,
}

/// `completion/cancel`: asks no more. The end of its connection does the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CompletionCancel")]
pub struct Cancel {
    /// From the result of `completion/start`.
    pub completion: CompletionId,
}

/// The `params` of a `completion/event` notification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CompletionNotification")]
pub struct Notification {
    /// From the result of `completion/start`.
    pub completion: CompletionId,
    /// A piece of the answer, or its end.
    pub event: CompletionEvent,
}

/// A piece of a completion. After `completed` or `failed` nothing comes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CompletionEvent {
    /// A piece of the answer's text.
    Text {
        /// The block of the answer that it belongs to.
        block: u32,
        /// The piece.
        text: String,
    },
    /// A piece of the answer's thinking.
    Thinking {
        /// The block of the answer that it belongs to.
        block: u32,
        /// The piece.
        text: String,
    },
    /// The answer is whole.
    Completed {
        /// The answer: it begins with the pieces. A call has the provider's name for it, or one of the daemon's.
        content: Vec<ContentBlock>,
        /// Why the model stopped.
        stop_reason: StopReason,
        /// The tokens and the cost.
        usage: Usage,
    },
    /// There is no answer, or no more of it.
    Failed {
        /// One line for people.
        message: String,
        /// The next thing to do about it.
        hint: String,
        /// The kind of failure, as an HTTP status.
        status: u16,
    },
}
