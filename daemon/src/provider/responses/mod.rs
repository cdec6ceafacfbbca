//! The codec for OpenAI's Responses (`POST …/responses`, streaming), without state on the server.
//!
//! Nothing is stored there, so everything goes back: a model's reasoning as the encrypted item that it came as.
//! Source: the types of OpenAI's own SDK 3.52.
//! Deliberately absent: the identifiers of messages and calls, which refer to what is not stored.

mod decode;
mod encode;
mod hosted;

use super::compat::Compat;
use super::tagged::Tagged;
use super::{Codec, Decoder, Encoder, Failure, Framing, HttpRequest};
use crate::diagnostics::secret::Secret;

/// The wire format, as one server speaks it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Responses(Compat);

impl Responses {
    /// The format with these flags.
    pub fn new(compat: Compat) -> Self {
        Self(compat)
    }
}

impl Codec for Responses {
    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(encode::ResponsesEncoder::new(self.0))
    }

    fn authorize(&self, key: &Secret) -> (&'static str, String) {
        ("authorization", format!("Bearer {}", key.reveal()))
    }

    fn framing(&self) -> Framing {
        Framing::Sse
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Tagged::new(decode::ResponsesDecoder::default(), self.0.think_open == Some(true)))
    }

    fn failure(&self, status: u16, body: &[u8]) -> Failure {
        Failure::of_response(status, body)
    }

    fn listing(&self) -> Option<HttpRequest> {
        Some(HttpRequest::listing("/models"))
    }
}
