//! Messages: a role and content blocks, and what a provider says when it ends one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{BlobId, CallId};

/// Who speaks in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The user, and the results of tool calls.
    User,
    /// The model.
    Assistant,
}

/// One piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// Plain text, usually Markdown.
    Text {
        /// The text, UTF-8 without NUL.
        text: String,
    },
    /// What a model thought before it answered.
    Thinking {
        /// The readable part; may be empty when the provider hides it.
        text: String,
        /// What the provider wants back unchanged (a signature, encrypted reasoning), in the provider's own form.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        native: Option<Value>,
    },
    /// An image that a user sent, or a tool read.
    Image {
        /// Such as `image/png`.
        media_type: String,
        /// Its bytes, or where they are.
        #[serde(flatten)]
        source: ImageSource,
    },
    /// The model's request to run a tool.
    ToolUse {
        /// The daemon's name for the call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// The arguments: an object, or whatever the model wrote instead (the call then fails, and says so).
        input: Value,
        /// The provider's own identifier and, where they are not canonical JSON, the arguments as it wrote them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        native: Option<Value>,
    },
    /// The answer to a tool call.
    ToolResult {
        /// The call that is answered.
        call_id: CallId,
        /// Whether the call failed, was denied or did not run.
        #[serde(default)]
        is_error: bool,
        /// What the model reads.
        content: Vec<ContentBlock>,
    },
    /// Something that only its provider understands; kept, and given back unchanged.
    Opaque {
        /// The block in the provider's own form.
        native: Value,
    },
    /// A kind of block that this build does not know.
    #[serde(other)]
    Unknown,
}

/// The bytes of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "an image has `data` (base64) or `blob`")]
pub enum ImageSource {
    /// Here, as a client sends them.
    Data {
        /// The bytes in base64.
        data: String,
    },
    /// Stored, as events have them; `blob/get` gives them.
    Blob {
        /// Their name.
        blob: BlobId,
        /// How many there are; what a client says here is not looked at.
        #[serde(default)]
        bytes: u64,
    },
}

impl ContentBlock {
    /// An image whose bytes are here, in base64.
    pub fn image(media_type: impl Into<String>, data: impl Into<String>) -> Self {
        Self::Image { media_type: media_type.into(), source: ImageSource::Data { data: data.into() } }
    }

    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The blob that an image is in.
    pub fn blob(&self) -> Option<&BlobId> {
        match self {
            Self::Image { source: ImageSource::Blob { blob, .. }, .. } => Some(blob),
            _ => None,
        }
    }

    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            _ => None,
        }
    }
}

/// The text blocks of `content`, joined by empty lines.
pub fn text_of(content: &[ContentBlock]) -> String {
    let texts: Vec<&str> = content.iter().filter_map(ContentBlock::as_text).collect();
    texts.join("\n\n")
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model had nothing more to do.
    EndTurn,
    /// The model's answer was cut at its token limit.
    MaxTokens,
    /// The turn took as many steps as the configuration allows.
    MaxSteps,
    /// The provider or the model refused to answer.
    Refusal,
    /// A user cancelled the turn.
    Cancelled,
    /// Something failed; `turn_finished` says what in `detail`.
    Error,
    /// A reason that this build does not know.
    #[serde(other)]
    Unknown,
}

/// Tokens, as the provider counted them; absent where it said nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Tokens of the request, cached ones included.
    #[serde(default)]
    pub input_tokens: u64,
    /// Tokens of the answer, thinking included.
    #[serde(default)]
    pub output_tokens: u64,
    /// The part of `input_tokens` that was read from the provider's cache.
    #[serde(default)]
    pub cached_tokens: u64,
    /// The part of `input_tokens` that was written to the provider's cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// The part of `output_tokens` that was thinking.
    #[serde(default)]
    pub reasoning_tokens: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.cached_tokens += other.cached_tokens;
        self.cache_write_tokens += other.cache_write_tokens;
        self.reasoning_tokens += other.reasoning_tokens;
    }
}
