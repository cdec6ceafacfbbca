//! A caller's options in Chat Completions.

use serde_json::{Value, json};

use super::super::options::{SamplingField, sampling, set, stop};
use super::super::types::{AnswerOptions, CallChoice, EncodedOptions};

/// The most stop texts of a request.
const MAX_STOPS: usize = 4;

const SAMPLING: &[SamplingField] = &[
    SamplingField("temperature", "temperature"),
    SamplingField("top_p", "top_p"),
    SamplingField("seed", "seed"),
    SamplingField("frequency_penalty", "frequency_penalty"),
    SamplingField("presence_penalty", "presence_penalty"),
];

pub(super) fn encode(options: &AnswerOptions<'_>) -> EncodedOptions {
    let mut encoded = EncodedOptions::default();
    sampling(options, SAMPLING, &mut encoded);
    stop(options, "stop", MAX_STOPS, |_| true, &mut encoded);
    let choice: Option<Value> = match options.calls {
        CallChoice::Auto => None,
        CallChoice::None => Some("none".into()),
        CallChoice::Any => Some("required".into()),
        CallChoice::Tool(name) => Some(json!({"type": "function", "function": {"name": name}})),
    };
    // Without tools both fields are errors.
    if options.has_tools {
        if let Some(choice) = choice {
            set(&mut encoded.fields, "tool_choice", choice);
        }
        if options.is_single {
            set(&mut encoded.fields, "parallel_tool_calls", false.into());
        }
    }
    encoded
}
