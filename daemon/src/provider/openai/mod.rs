//! The codec for OpenAI's Chat Completions (`POST …/chat/completions`, streaming), which many other servers implement with deviations.
//!
//! Deviations of requests are data ([`Compat`]); deviations of responses are read as they come.
//! Source: the types of OpenAI's own SDK 3.52, and the known habits of compatible servers.
//! Deliberately absent: `store` and `strict`, which several servers refuse.

mod decode;
mod encode;
mod image;
mod options;

use linger_protocol::session::Effort;

use super::compat::Compat;
use super::kind::ProviderKind;
use super::types::{
    AnswerOptions, Codec, ConversationStart, Decoder, EncodedOptions, Encoder, Failure, Framing, HttpRequest,
    ImageCodec,
};
use crate::diagnostics::secret::Secret;
pub(super) use image::OpenAiImages;

/// The fields of a body that linger sets itself.
const OWN_FIELDS: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "max_tokens",
    "max_completion_tokens",
    "response_format",
    "reasoning_effort",
    "prompt_cache_key",
    "cache_control",
    "n",
];

/// The flags that this format reads.
const FLAGS: &[&str] = &[
    "max_completion_tokens",
    "developer_role",
    "prompt_cache_key",
    "cache_control",
    "streaming",
    "stream_usage",
    "usage_cost",
    "reasoning_content",
    "short_call_ids",
    "tool_result_name",
    "assistant_after_tool",
    "assistant_after_user",
    "think_open",
    "json_schema",
    "strict_schema",
    "schema_with_tools",
    "reasoning_effort",
];

/// The wire format with one server's deviations.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAi(Compat);

impl OpenAi {
    /// The format with these flags.
    pub fn new(compat: Compat) -> Self {
        Self(compat)
    }
}

impl Codec for OpenAi {
    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(encode::ChatEncoder::new(self.0))
    }

    fn authorize(&self, key: &Secret) -> (&'static str, String) {
        ("authorization", format!("Bearer {}", key.reveal()))
    }

    fn framing(&self) -> Framing {
        Framing::Sse
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(decode::ChatDecoder::new(self.0))
    }

    fn failure(&self, status: u16, body: &[u8]) -> Failure {
        Failure::of_response(status, body)
    }

    fn is_unstreamed(&self) -> bool {
        self.0.streaming == Some(false)
    }

    fn options(&self, _model: &str, options: &AnswerOptions<'_>) -> EncodedOptions {
        options::encode(options)
    }

    fn opening(&self) -> ConversationStart {
        // Templates that want user and model to take turns want the user first.
        if self.0.assistant_after_user == Some(true) { ConversationStart::User } else { ConversationStart::Nothing }
    }

    fn kind(&self) -> ProviderKind {
        ProviderKind::Openai
    }

    fn own_fields(&self) -> &'static [&'static str] {
        OWN_FIELDS
    }

    fn flags(&self) -> &'static [&'static str] {
        FLAGS
    }

    fn has_hosted_tools(&self) -> Result<(), &'static str> {
        Err("; the same models have them as kind openai-responses")
    }

    fn takes_effort(&self, _model: &str, _effort: Effort) -> bool {
        self.0.reasoning_effort != Some(false)
    }

    fn takes_schema_with_tools(&self, _model: &str) -> bool {
        self.0.schema_with_tools.unwrap_or(true)
    }

    fn takes_only_objects(&self) -> bool {
        true
    }

    fn images(&self) -> Option<&dyn ImageCodec> {
        Some(&OpenAiImages)
    }

    fn listing(&self) -> Option<HttpRequest> {
        Some(HttpRequest::listing("/models"))
    }
}
