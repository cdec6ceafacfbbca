//! The codec for OpenAI's Responses (`POST …/responses`, streaming), without state on the server.
//!
//! Nothing is stored at the server, so everything goes back; reasoning as the encrypted item that it came as.
//! Source: the types of OpenAI's own SDK 3.52.
//! Deliberately absent: identifiers of messages and calls, which refer to stored items.

mod decode;
mod encode;
mod forward;
mod hosted;
mod options;

use std::sync::Arc;

use linger_protocol::session::Effort;
use serde_json::{Value, json};

use super::compat::Compat;
use super::kind::ProviderKind;
use super::openai::OpenAiImages;
use super::think_decoder::ThinkDecoder;
use super::types::{
    AnswerOptions, Codec, ConversationStart, Decoder, EncodedOptions, Encoder, Failure, Framing, HttpRequest,
    ImageCodec,
};
use crate::diagnostics::secret::Secret;

pub use forward::{ForwardDefaults, request as forwarded_request};

/// The fields of a body that linger sets itself.
const OWN_FIELDS: &[&str] = &[
    "model",
    "input",
    "instructions",
    "stream",
    "store",
    "include",
    "tools",
    "tool_choice",
    "max_output_tokens",
    "text.format",
    "reasoning.effort",
    "reasoning.summary",
    "prompt_cache_key",
    "previous_response_id",
    "conversation",
    "background",
];

/// The flags that this format reads.
const FLAGS: &[&str] = &[
    "prompt_cache_key",
    "streaming",
    "think_open",
    "encrypted_reasoning",
    "json_schema",
    "strict_schema",
    "schema_with_tools",
    "reasoning_effort",
    "thinking",
];

/// The wire format with one server's deviations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Responses {
    compat: Compat,
    /// Whether its requests are a caller's, sent as they are.
    forwards: bool,
}

impl Responses {
    /// The format with these flags.
    pub fn new(compat: Compat) -> Self {
        Self { compat, forwards: false }
    }
}

impl Codec for Responses {
    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(encode::ResponsesEncoder::new(self.compat))
    }

    fn authorize(&self, key: &Secret) -> (&'static str, String) {
        ("authorization", format!("Bearer {}", key.reveal()))
    }

    fn framing(&self) -> Framing {
        Framing::Sse
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        if self.forwards {
            return Box::new(forward::ForwardDecoder::default());
        }
        Box::new(ThinkDecoder::new(decode::ResponsesDecoder::default(), self.compat.think_open == Some(true)))
    }

    fn failure(&self, status: u16, body: &[u8]) -> Failure {
        Failure::of_response(status, body)
    }

    fn is_unstreamed(&self) -> bool {
        self.compat.streaming == Some(false)
    }

    fn as_event(&self, answer: Value) -> Value {
        json!({"type": "response.completed", "response": answer})
    }

    fn options(&self, _model: &str, options: &AnswerOptions<'_>) -> EncodedOptions {
        options::encode(options)
    }

    fn opening(&self) -> ConversationStart {
        ConversationStart::Message
    }

    fn forwarding(&self) -> Option<Arc<dyn Codec>> {
        (!self.is_unstreamed()).then(|| Arc::new(Self { forwards: true, ..*self }) as Arc<dyn Codec>)
    }

    fn kind(&self) -> ProviderKind {
        ProviderKind::OpenaiResponses
    }

    fn own_fields(&self) -> &'static [&'static str] {
        OWN_FIELDS
    }

    fn flags(&self) -> &'static [&'static str] {
        FLAGS
    }

    fn has_hosted_tools(&self) -> Result<(), &'static str> {
        Ok(())
    }

    fn takes_effort(&self, _model: &str, _effort: Effort) -> bool {
        self.compat.reasoning_effort != Some(false)
    }

    fn takes_schema_with_tools(&self, _model: &str) -> bool {
        self.compat.schema_with_tools.unwrap_or(true)
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
