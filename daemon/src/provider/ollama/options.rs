//! A caller's options in Ollama's format, which cannot force a call: the answer is held to a schema instead.

use super::super::options::{SamplingField, sampling, stop};
use super::super::types::{AnswerOptions, EncodedOptions, Forcing};

const SAMPLING: &[SamplingField] = &[
    SamplingField("temperature", "options.temperature"),
    SamplingField("top_p", "options.top_p"),
    SamplingField("seed", "options.seed"),
    SamplingField("frequency_penalty", "options.frequency_penalty"),
    SamplingField("presence_penalty", "options.presence_penalty"),
];

pub(super) fn encode(options: &AnswerOptions<'_>) -> EncodedOptions {
    let mut encoded = EncodedOptions { forcing: Forcing::Schema, ..EncodedOptions::default() };
    sampling(options, SAMPLING, &mut encoded);
    stop(options, "options.stop", usize::MAX, |_| true, &mut encoded);
    encoded
}
