//! The codec for OpenAI's Responses (`POST …/responses`, streaming), without state on the server.
//!
//! Nothing is stored at the server, so everything goes back; reasoning as the encrypted item that it came as.
//! Source: the types of OpenAI's own SDK 3.52.
//! Deliberately absent: identifiers of messages and calls, which refer to stored items.

mod decode;
mod encode;
mod hosted;

use serde_json::{Value, json};

use super::compat::Compat;
use super::think_decoder::ThinkDecoder;
use super::types::{Codec, Decoder, Encoder, Failure, Framing, HttpRequest};
use crate::diagnostics::secret::Secret;

/// The wire format with one server's deviations.
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
        Box::new(ThinkDecoder::new(decode::ResponsesDecoder::default(), self.0.think_open == Some(true)))
    }

    fn failure(&self, status: u16, body: &[u8]) -> Failure {
        Failure::of_response(status, body)
    }

    fn is_unstreamed(&self) -> bool {
        self.0.streaming == Some(false)
    }

    fn as_event(&self, answer: Value) -> Value {
        json!({"type": "response.completed", "response": answer})
    }

    fn listing(&self) -> Option<HttpRequest> {
        Some(HttpRequest::listing("/models"))
    }
}
