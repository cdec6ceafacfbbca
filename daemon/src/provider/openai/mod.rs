//! The codec for OpenAI's Chat Completions (`POST …/chat/completions`, streaming), which many other servers speak in their own way.
//!
//! What differs on sending is data ([`Compat`]); what differs in answers is read as it comes.
//! Source: the types of OpenAI's own SDK 3.52, and the known habits of compatible servers.
//! Deliberately absent: thinking that has a closing `</think>` but no opening one, which nothing tells from text while it streams.

mod decode;
mod encode;

use serde::Deserialize;

use super::wire;
use super::{Codec, Decoder, Encoder, Failure, Framing};
use crate::secret::Secret;

/// How a server departs from the format; what is not set depends on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Compat {
    /// The limit of an answer is called `max_completion_tokens`, not `max_tokens`. Only at api.openai.com unless set.
    pub max_completion_tokens: Option<bool>,
    /// The system prompt has the role `developer`, not `system`. Only at api.openai.com unless set.
    pub developer_role: Option<bool>,
    /// The server takes `prompt_cache_key`. Only api.openai.com unless set.
    pub prompt_cache_key: Option<bool>,
    /// The server takes `stream_options.include_usage`. All unless set.
    pub stream_usage: Option<bool>,
    /// A message with tool calls must have `reasoning_content`, even an empty one. Only at api.deepseek.com unless set.
    pub reasoning_content: Option<bool>,
}

/// The wire format.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAi {
    max_completion_tokens: bool,
    developer_role: bool,
    prompt_cache_key: bool,
    stream_usage: bool,
    reasoning_content: bool,
}

impl OpenAi {
    /// The format as it is spoken at `host`, with what the configuration says about it.
    pub fn new(host: &str, compat: Compat) -> Self {
        let original = host == "api.openai.com";
        Self {
            max_completion_tokens: compat.max_completion_tokens.unwrap_or(original),
            developer_role: compat.developer_role.unwrap_or(original),
            prompt_cache_key: compat.prompt_cache_key.unwrap_or(original),
            stream_usage: compat.stream_usage.unwrap_or(true),
            reasoning_content: compat.reasoning_content.unwrap_or(host == "api.deepseek.com"),
        }
    }
}

impl Codec for OpenAi {
    fn encoder(&self) -> Box<dyn Encoder> {
        Box::new(encode::ChatEncoder::new(*self))
    }

    fn authorize(&self, key: &Secret) -> (&'static str, String) {
        ("authorization", format!("Bearer {}", key.reveal()))
    }

    fn framing(&self) -> Framing {
        Framing::Sse
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::<decode::ChatDecoder>::default()
    }

    fn failure(&self, status: u16, body: &[u8]) -> Failure {
        wire::failure(status, body)
    }
}
