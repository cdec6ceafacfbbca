//! The kinds of provider: the wire formats, and the scripted model, by their names in the configuration.
//!
//! On the ground of the room. What the formats do differently is not here: it is in their codecs.

use serde::Deserialize;

/// A wire format, as the configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderKind {
    /// Anthropic's Messages: `POST /v1/messages`.
    Anthropic,
    /// OpenAI's Chat Completions: `POST …/chat/completions`.
    Openai,
    /// OpenAI's Responses: `POST …/responses`.
    OpenaiResponses,
    /// Google's Gemini: `:streamGenerateContent`.
    Gemini,
    /// Ollama's own format: `POST /api/chat`.
    Ollama,
    /// The built-in scripted model.
    Demo,
}

impl ProviderKind {
    /// Every kind, in the order in which messages list them.
    pub const ALL: [Self; 6] =
        [Self::Anthropic, Self::Openai, Self::OpenaiResponses, Self::Gemini, Self::Ollama, Self::Demo];

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::OpenaiResponses => "openai-responses",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::Demo => "demo",
        }
    }

    /// The preset of its vendor, whose address a configured provider has unless it names another; empty if it has no vendor.
    pub fn vendor(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Openai | Self::OpenaiResponses => "openai",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::Demo => "demo",
        }
    }
}
