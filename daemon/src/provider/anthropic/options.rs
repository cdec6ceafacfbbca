//! A caller's options in Messages, which has no seed and no penalties.
//!
//! Source: platform.claude.com on `tool_choice`, `stop_sequences` and sampling, as of autumn 2026.

use serde_json::{Number, Value, json};

use super::super::options::{SamplingField, sampling, set, stop};
use super::super::types::{AnswerOptions, CallChoice, EncodedOptions, Forcing, Sampling};
use super::claude;

const SAMPLING: &[SamplingField] = &[SamplingField("temperature", "temperature"), SamplingField("top_p", "top_p")];

pub(super) fn encode(model: &str, options: &AnswerOptions<'_>) -> EncodedOptions {
    let mut encoded = EncodedOptions::default();
    let claude = claude::named(model);
    let is_forced = options.calls.is_forced();
    // Models of this generation, and all while they think, refuse any but the default.
    let is_fixed = model.contains("claude") && claude.xhigh || options.thinks && !(is_forced && claude.forced);
    let has_temperature = options.sampling.iter().any(|option| option.name == "temperature");
    let mut taken = Vec::new();
    for option in options.sampling {
        match option.name {
            "temperature" | "top_p" if is_fixed => encoded.ignored.push(option.name),
            // Both together are refused.
            "top_p" if has_temperature => encoded.ignored.push(option.name),
            "temperature" => taken.push(Sampling { value: at_most_one(&option.value), ..option.clone() }),
            _ => taken.push(option.clone()),
        }
    }
    sampling(&AnswerOptions { sampling: &taken, ..*options }, SAMPLING, &mut encoded);
    // Blank ones are refused.
    stop(options, "stop_sequences", usize::MAX, |text| !text.trim().is_empty(), &mut encoded);
    encoded.stops_thinking = is_forced && claude.forced && options.thinks;
    if is_forced && !claude.forced {
        encoded.forcing = Forcing::Words;
        encoded.ignored.push("tool_choice");
    }
    let choice: Option<Value> = match options.calls {
        CallChoice::None => Some(json!({"type": "none"})),
        CallChoice::Any if claude.forced => Some(json!({"type": "any"})),
        CallChoice::Tool(name) if claude.forced => Some(json!({"type": "tool", "name": name})),
        // A schema has a choice of its own.
        CallChoice::Auto if options.is_single && !options.has_schema => Some(json!({"type": "auto"})),
        _ => None,
    };
    if let Some(choice) = choice.filter(|_| options.has_tools) {
        set(&mut encoded.fields, "tool_choice", choice);
        if options.is_single && options.calls != CallChoice::None {
            set(&mut encoded.fields, "tool_choice.disable_parallel_tool_use", true.into());
        }
    }
    encoded
}

/// A temperature in the format's range, which ends at 1 where others end at 2.
fn at_most_one(value: &Number) -> Number {
    if value.as_f64().is_some_and(|value| value > 1.0) { 1.into() } else { value.clone() }
}
