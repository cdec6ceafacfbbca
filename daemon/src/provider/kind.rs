//! The kinds of provider: the wire formats, and the scripted model, by their names in the configuration.
//!
//! On the ground of the room. What the formats do differently is not here: it is in their codecs.

use serde::Deserialize;

/// A wire format, as the configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Chat Completions.
    Openai,
    /// OpenAI's Responses.
    OpenaiResponses,
    /// Google's Gemini.
    Gemini,
    /// Ollama's own.
    Ollama,
    /// The built-in scripted model.
    Demo,
}

impl Kind {
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
}
