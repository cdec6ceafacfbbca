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
    /// The conversation: text, images, calls of the model and their results. Each call has its result in the next message. It may
    /// begin with the model's words, and end with them to have them continued; empty if the system prompt says everything.
    #[serde(default)]
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
    /// Whether the model may, must or must not call one of the tools. An answer that must be a call ignores `schema`.
    #[serde(default, skip_serializing_if = "ToolChoice::is_auto")]
    pub tool_choice: ToolChoice,
    /// The name of the one tool that must be called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced_tool: Option<String>,
    /// Whether an answer may have several calls; true when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// Texts that end the answer, at most 16; the answer ends before the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// The sampling temperature, in the provider's own range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The share of the probability that tokens are chosen from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// The seed of the sampling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// How much frequent tokens are avoided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// How much tokens are avoided that were there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// The same request as OpenAI's Responses has it, as the text of a JSON object. A provider of the kind `openai-responses` gets it
    /// in place of everything else but the model, and its events come back as they are: `native`. Other providers ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responses: Option<String>,
}

/// Whether the model calls tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It calls none.
    None,
    /// It calls at least one.
    Required,
}

impl ToolChoice {
    /// Whether the model decides.
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
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
    /// The parameters that its provider has no field for, and that therefore have no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<String>,
    /// Whether `responses` was sent as it is, and `native` events follow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub native: bool,
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
    /// An event of OpenAI's Responses, as the provider sent it.
    Native {
        /// The text of a JSON object.
        data: String,
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
        /// OpenAI's word for it, such as `rate_limit_exceeded`; `provider_failed` if it has none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        code: String,
        /// How long the provider asks to wait before the next request, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
}
