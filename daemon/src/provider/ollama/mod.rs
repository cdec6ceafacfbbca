//! The codec for Ollama's own format (`POST /api/chat`, a JSON value a line).
//!
//! Its compatible endpoint would do, but for the size of the context: only here can a request set it, and what does not fit the
//! server's own is dropped from the beginning without a word.
//! Source: the types of Ollama's own Python client 0.6, and docs.ollama.com on contexts and on errors while streaming.
//! Deliberately absent: `keep_alive`, which is the user's and the server's business, and identifiers of calls, which are known by
//! their tool and their order.

mod decode;
mod encode;

use super::compat::Compat;
use super::{Codec, Decoder, Encoder, Failure, Framing, HttpRequest};
use crate::diagnostics::secret::Secret;

pub use encode::NUM_CTX;

/// The wire format, as one server speaks it.
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

    /// The server itself wants no key; what stands before it may.
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

    fn listing(&self) -> Option<HttpRequest> {
        Some(HttpRequest::listing("/api/tags"))
    }
}
