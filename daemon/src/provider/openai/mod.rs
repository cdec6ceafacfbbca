//! The codec for OpenAI's Chat Completions (`POST …/chat/completions`, streaming), which many other servers speak in their own way.
//!
//! What differs on sending is data ([`Compat`]); what differs in answers is read as it comes.
//! Source: the types of OpenAI's own SDK 3.52, and the known habits of compatible servers.
//! Deliberately absent: `store` and `strict`, which several servers refuse.

mod decode;
mod encode;

use super::compat::Compat;
use super::{Codec, Decoder, Encoder, Failure, Framing, HttpRequest};
use crate::diagnostics::secret::Secret;

/// The wire format, as one server speaks it.
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

    fn listing(&self) -> Option<HttpRequest> {
        Some(HttpRequest::listing("/models"))
    }
}
