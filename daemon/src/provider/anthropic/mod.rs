//! The codec for Anthropic's Messages format (`POST /v1/messages`, streaming).
//!
//! Source: the types of Anthropic's own SDK 2.11.
//! Deliberately absent: citations, and a request for thinking (what comes is kept and given back).

mod decode;
mod encode;

use super::wire;
use super::{Codec, Decoder, Encoder, Failure, Framing, HttpRequest};
use crate::secret::Secret;

/// The wire format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anthropic;

impl Codec for Anthropic {
    fn encoder(&self) -> Box<dyn Encoder> {
        Box::<encode::MessagesEncoder>::default()
    }

    fn authorize(&self, key: &Secret) -> (&'static str, String) {
        ("x-api-key", key.reveal().to_owned())
    }

    fn framing(&self) -> Framing {
        Framing::Sse
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::<decode::MessagesDecoder>::default()
    }

    fn failure(&self, status: u16, body: &[u8]) -> Failure {
        wire::failure(status, body)
    }

    fn listing(&self) -> Option<HttpRequest> {
        Some(HttpRequest { headers: encode::headers(), ..HttpRequest::listing("/v1/models?limit=1000") })
    }
}
