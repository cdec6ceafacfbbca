//! The codec for Anthropic's Messages format (`POST /v1/messages`, streaming).
//!
//! Source: the types of Anthropic's own SDK 2.12, and platform.claude.com on server tools.

mod claude;
mod decode;
mod encode;
mod hosted;
mod options;
mod thinking;

use linger_protocol::session::Effort;

use super::compat::Compat;
use super::kind::ProviderKind;
use super::think_decoder::ThinkDecoder;
use super::types::{AnswerOptions, Codec, Decoder, EncodedOptions, Encoder, Failure, Framing, HttpRequest};
use crate::diagnostics::secret::Secret;

/// The fields of a body that linger sets itself.
const OWN_FIELDS: &[&str] = &[
    "model",
    "messages",
    "system",
    "stream",
    "tools",
    "tool_choice",
    "max_tokens",
    "thinking",
    "output_config.effort",
    "container",
    "cache_control",
];

/// The flags that this format reads.
const FLAGS: &[&str] = &["think_open", "json_schema", "thinking_budget", "thinking", "vertex"];

/// The wire format with one server's flags.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anthropic(Compat);

impl Anthropic {
    /// The format with these flags.
    pub fn new(compat: Compat) -> Self {
        Self(compat)
    }
}

impl Codec for Anthropic {
    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(encode::MessagesEncoder::new(self.0))
    }

    fn authorize(&self, key: &Secret) -> (&'static str, String) {
        match self.0.vertex {
            Some(true) => ("authorization", format!("Bearer {}", key.reveal())),
            _ => ("x-api-key", key.reveal().to_owned()),
        }
    }

    fn framing(&self) -> Framing {
        Framing::Sse
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(ThinkDecoder::new(decode::MessagesDecoder::default(), self.0.think_open == Some(true)))
    }

    fn failure(&self, status: u16, body: &[u8]) -> Failure {
        Failure::of_response(status, body)
    }

    fn options(&self, model: &str, options: &AnswerOptions<'_>) -> EncodedOptions {
        options::encode(model, options)
    }

    fn kind(&self) -> ProviderKind {
        ProviderKind::Anthropic
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

    fn needs_max_tokens(&self) -> bool {
        true
    }

    fn takes_effort(&self, model: &str, effort: Effort) -> bool {
        thinking::takes(&self.0, model, effort)
    }

    /// The answer is a tool call.
    fn takes_schema_with_tools(&self, _model: &str) -> bool {
        true
    }

    fn takes_only_objects(&self) -> bool {
        true
    }

    fn listing(&self) -> Option<HttpRequest> {
        // Vertex AI has no list of usable models.
        let listed = self.0.vertex != Some(true);
        listed.then(|| HttpRequest { headers: encode::headers(), ..HttpRequest::listing("/v1/models?limit=1000") })
    }
}
