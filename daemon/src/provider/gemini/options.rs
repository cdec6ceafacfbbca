//! A caller's options in Gemini, which has no limit of one call.

use serde_json::json;

use super::super::options::{SamplingField, sampling, set, stop};
use super::super::types::{AnswerOptions, CallChoice, EncodedOptions};

/// The most stop texts of a request.
const MAX_STOPS: usize = 5;

const SAMPLING: &[SamplingField] = &[
    SamplingField("temperature", "generationConfig.temperature"),
    SamplingField("top_p", "generationConfig.topP"),
    SamplingField("seed", "generationConfig.seed"),
    SamplingField("frequency_penalty", "generationConfig.frequencyPenalty"),
    SamplingField("presence_penalty", "generationConfig.presencePenalty"),
];

pub(super) fn encode(options: &AnswerOptions<'_>) -> EncodedOptions {
    let mut encoded = EncodedOptions::default();
    sampling(options, SAMPLING, &mut encoded);
    stop(options, "generationConfig.stopSequences", MAX_STOPS, |_| true, &mut encoded);
    let choice = match options.calls {
        CallChoice::Auto => None,
        CallChoice::None => Some(json!({"mode": "NONE"})),
        CallChoice::Any => Some(json!({"mode": "ANY"})),
        CallChoice::Tool(name) => Some(json!({"mode": "ANY", "allowedFunctionNames": [name]})),
    };
    if let Some(choice) = choice.filter(|_| options.has_tools) {
        set(&mut encoded.fields, "toolConfig.functionCallingConfig", choice);
    }
    encoded
}
