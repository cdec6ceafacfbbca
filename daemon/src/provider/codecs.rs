//! The registry of wire formats: the codec of each kind of provider.

use std::sync::Arc;

use super::anthropic::Anthropic;
use super::compat::Compat;
use super::gemini::Gemini;
use super::kind::ProviderKind;
use super::ollama::Ollama;
use super::openai::OpenAi;
use super::responses::Responses;
use super::types::Codec;

/// The codec of `kind` with these flags; `None` for `demo`.
pub fn codec(kind: ProviderKind, compat: Compat) -> Option<Arc<dyn Codec>> {
    Some(match kind {
        ProviderKind::Anthropic => Arc::new(Anthropic::new(compat)),
        ProviderKind::Openai => Arc::new(OpenAi::new(compat)),
        ProviderKind::OpenaiResponses => Arc::new(Responses::new(compat)),
        ProviderKind::Gemini => Arc::new(Gemini::new(compat)),
        ProviderKind::Ollama => Arc::new(Ollama::new(compat)),
        ProviderKind::Demo => return None,
    })
}
