//! The codec for OpenAI's Chat Completions (`POST …/chat/completions`, streaming), which many other servers implement with deviations.
//!
//! Deviations of requests are data ([`Compat`]); deviations of responses are read as they come.
//! Source: the types of OpenAI's own SDK 3.52, and the known habits of compatible servers.
//! Deliberately absent: `store` and `strict`, which several servers refuse.

mod decode;
mod encode;

use super::compat::Compat;
use super::types::{Codec, Decoder, Encoder, Failure, Framing, HttpRequest};
use crate::diagnostics::secret::Secret;

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

    fn listing(&self) -> Option<HttpRequest> {
        Some(HttpRequest::listing("/models"))
    }
}
