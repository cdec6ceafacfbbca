//! The codec for Ollama's own format (`POST /api/chat`, a JSON value a line).
//!
//! Unlike its OpenAI-compatible endpoint, this format can set the size of the context; text beyond the server's default is
//! silently dropped from the beginning.
//! Source: the types of Ollama's own Python client 0.6, and docs.ollama.com on contexts and on errors while streaming.
//! Deliberately absent: `keep_alive`, which is up to the user and the server, and identifiers of calls, which are identified by
//! tool and order.

mod decode;
mod encode;

use super::compat::Compat;
use super::types::{Codec, Decoder, Encoder, Failure, Framing, HttpRequest};
use crate::diagnostics::secret::Secret;

pub use encode::NUM_CTX;

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

    fn listing(&self) -> Option<HttpRequest> {
        Some(HttpRequest::listing("/api/tags"))
    }
}
