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
    /// All of them.
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

    /// The preset of its vendor, whose address a configured provider has unless it names another.
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
