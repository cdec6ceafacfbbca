//! A caller's options in Responses, which has no stop texts, no seed and no penalties.

use serde_json::{Value, json};

use super::super::options::{SamplingField, sampling, set};
use super::super::types::{AnswerOptions, CallChoice, EncodedOptions};

const SAMPLING: &[SamplingField] = &[SamplingField("temperature", "temperature"), SamplingField("top_p", "top_p")];

pub(super) fn encode(options: &AnswerOptions<'_>) -> EncodedOptions {
    let mut encoded = EncodedOptions::default();
    sampling(options, SAMPLING, &mut encoded);
    let choice: Option<Value> = match options.calls {
        CallChoice::Auto => None,
        CallChoice::None => Some("none".into()),
        CallChoice::Any => Some("required".into()),
        CallChoice::Tool(name) => Some(json!({"type": "function", "name": name})),
    };
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
