//! How hard a model thinks, in the words of each wire format. A table, and pure.
//!
//! Where a format has no word for an effort, it gets the nearest. Without a word from user or configuration nothing is sent.

use linger_protocol::session::Effort;

/// An effort in the words of the formats.
#[derive(Debug)]
pub(super) struct Words {
    effort: Effort,
    /// Anthropic's `output_config.effort`.
    pub(super) anthropic: &'static str,
    /// `reasoning_effort` of Chat Completions, and `reasoning.effort` of Responses.
    pub(super) openai: &'static str,
    /// Gemini's `thinkingLevel`, from its third generation on.
    pub(super) gemini: &'static str,
    /// Ollama's `think`.
    pub(super) ollama: &'static str,
    /// Tokens to think with, for models that want a number. About what the vendors' own programs give.
    pub(super) budget: u32,
}

const fn words(effort: Effort, [anthropic, openai, gemini, ollama]: [&'static str; 4], budget: u32) -> Words {
    Words { effort, anthropic, openai, gemini, ollama, budget }
}

const WORDS: &[Words] = &[
    // Gemini's third generation cannot be kept from thinking.
    words(Effort::None, ["low", "none", "MINIMAL", ""], 0),
    words(Effort::Minimal, ["low", "minimal", "MINIMAL", "low"], 1_024),
    words(Effort::Low, ["low", "low", "LOW", "low"], 4_096),
    words(Effort::Medium, ["medium", "medium", "MEDIUM", "medium"], 8_192),
    words(Effort::High, ["high", "high", "HIGH", "high"], 16_384),
    words(Effort::Xhigh, ["xhigh", "xhigh", "XHIGH", "high"], 24_576),
    words(Effort::Max, ["max", "max", "XHIGH", "high"], 24_576),
];

/// The words for `effort`; none for what a provider does by itself.
pub(super) fn of(effort: Effort) -> Option<&'static Words> {
    WORDS.iter().find(|words| words.effort == effort)
}

/// Whether `effort` is asked for, and is more than none.
pub(super) fn thinks(effort: Effort) -> bool {
    effort > Effort::None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_effort_has_its_words_and_nothing_said_has_none() {
        let known: Vec<Effort> = Effort::ALL.into_iter().filter(|effort| of(*effort).is_some()).collect();
        assert_eq!(known, &Effort::ALL[1..]);
        assert!(WORDS.is_sorted_by_key(|words| words.budget));
        assert!(!thinks(Effort::Auto) && !thinks(Effort::None) && thinks(Effort::Minimal));
    }
}
