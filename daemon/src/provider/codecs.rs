//! The registry of wire formats: the codec of each kind of provider.

use std::sync::Arc;

use super::anthropic::Anthropic;
use super::compat::Compat;
use super::gemini::Gemini;
use super::kind::Kind;
use super::ollama::Ollama;
use super::openai::OpenAi;
use super::responses::Responses;
use super::types::Codec;

/// The codec of `kind` with these flags; `None` for `demo`.
pub fn codec(kind: Kind, compat: Compat) -> Option<Arc<dyn Codec>> {
    Some(match kind {
        Kind::Anthropic => Arc::new(Anthropic::new(compat)),
        Kind::Openai => Arc::new(OpenAi::new(compat)),
        Kind::OpenaiResponses => Arc::new(Responses::new(compat)),
        Kind::Gemini => Arc::new(Gemini::new(compat)),
        Kind::Ollama => Arc::new(Ollama::new(compat)),
        Kind::Demo => return None,
    })
}
