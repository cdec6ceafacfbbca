//! The codec for Ollama's own format (`POST /api/chat`, a JSON value a line).
//!
//! Unlike its OpenAI-compatible endpoint, this format can set the size of the context; text beyond the server's default is
//! silently dropped from the beginning.
//! Source: the types of Ollama's own Python client 0.6, and docs.ollama.com on contexts and on errors while streaming.
//! Deliberately absent: `keep_alive`, which is up to the user and the server, and identifiers of calls, which are identified by
//! tool and order.

mod decode;
mod encode;
mod options;

use serde_json::{Value, json};

use super::compat::Compat;
use super::kind::ProviderKind;
use super::models::plausible_tokens;
use super::types::{
    AnswerOptions, Codec, ConversationStart, Decoder, EncodedOptions, Encoder, Failure, Framing, HttpRequest,
};
use crate::diagnostics::secret::Secret;

/// The fields of a body that linger sets itself.
const OWN_FIELDS: &[&str] =
    &["model", "messages", "stream", "tools", "format", "think", "options.num_ctx", "options.num_predict"];

/// The flags that this format reads.
const FLAGS: &[&str] = &["streaming", "think_open", "json_schema", "schema_with_tools", "thinking", "num_ctx"];

/// The wire format with one server's deviations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ollama(Compat);

impl Ollama {
    /// The format with these flags.
    pub fn new(compat: Compat) -> Self {
        Self(compat)
    }
}

impl Codec for Ollama {
    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(encode::OllamaEncoder::new(self.0))
    }

    /// The server needs no key; a proxy before it may.
    fn authorize(&self, key: &Secret) -> (&'static str, String) {
        ("authorization", format!("Bearer {}", key.reveal()))
    }

    fn framing(&self) -> Framing {
        Framing::NdJson
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(decode::OllamaDecoder::new(self.0))
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
        ConversationStart::Nothing
    }

    fn kind(&self) -> ProviderKind {
        ProviderKind::Ollama
    }

    fn own_fields(&self) -> &'static [&'static str] {
        OWN_FIELDS
    }

    fn flags(&self) -> &'static [&'static str] {
        FLAGS
    }

    /// The server silently drops text beyond the number that it is given, so that number is the window.
    fn requested_window(&self) -> Option<u32> {
        Some(self.0.num_ctx.unwrap_or(encode::NUM_CTX))
    }

    /// Its grammar excludes tool calls.
    fn takes_schema_with_tools(&self, _model: &str) -> bool {
        self.0.schema_with_tools.unwrap_or(false)
    }

    fn model_request(&self, model: &str) -> Option<HttpRequest> {
        let body = json!({ "model": model }).to_string().into_bytes();
        Some(HttpRequest { body, ..HttpRequest::listing("/api/show") })
    }

    /// `ARCHITECTURE.context_length` of `model_info`.
    fn model_window(&self, answer: &[u8]) -> Option<u64> {
        let shown: Value = serde_json::from_slice(answer).ok()?;
        let mut fields = shown.get("model_info")?.as_object()?.iter();
        plausible_tokens(fields.find(|(name, _)| name.ends_with(".context_length"))?.1)
    }

    fn listing(&self) -> Option<HttpRequest> {
        Some(HttpRequest::listing("/api/tags"))
    }
}
