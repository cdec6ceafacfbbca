use serde_json::{Map, Value, json};

use super::super::codecs::codec;
use super::super::compat::Compat;
use super::super::kind::ProviderKind;
use super::super::own_fields::merge;
use super::super::types::{AnswerOptions, CallChoice, Forcing, Sampling};

const PLAIN: AnswerOptions<'static> = AnswerOptions {
    calls: CallChoice::Auto,
    has_tools: true,
    has_schema: false,
    is_single: false,
    stop: &[],
    sampling: &[],
    thinks: false,
};

/// The fields of a format for options, and what is ignored.
fn encoded(kind: ProviderKind, model: &str, options: &AnswerOptions<'_>) -> (Value, Vec<&'static str>, Forcing) {
    let encoded = codec(kind, Compat::NONE).unwrap().options(model, options);
    (encoded.fields.into(), encoded.ignored, encoded.forcing)
}

#[test]
fn every_format_has_its_word_for_the_calls_of_an_answer() {
    use ProviderKind::*;
    let check = |kind, calls, expect: Value| {
        assert_eq!(encoded(kind, "m", &AnswerOptions { calls, ..PLAIN }).0, expect, "{kind:?} {calls:?}");
        // Without tools nothing is sent.
        let none = encoded(kind, "m", &AnswerOptions { calls, has_tools: false, is_single: true, ..PLAIN }).0;
        assert_eq!(none, json!({}), "{kind:?} {calls:?}");
    };
    for kind in [Openai, OpenaiResponses, Anthropic, Gemini, Ollama] {
        check(kind, CallChoice::Auto, json!({}));
    }
    let (none, any, named) = (CallChoice::None, CallChoice::Any, CallChoice::Tool("f"));
    check(Openai, none, json!({"tool_choice": "none"}));
    check(Openai, any, json!({"tool_choice": "required"}));
    check(Openai, named, json!({"tool_choice": {"type": "function", "function": {"name": "f"}}}));
    check(OpenaiResponses, none, json!({"tool_choice": "none"}));
    check(OpenaiResponses, any, json!({"tool_choice": "required"}));
    check(OpenaiResponses, named, json!({"tool_choice": {"type": "function", "name": "f"}}));
    check(Anthropic, none, json!({"tool_choice": {"type": "none"}}));
    check(Anthropic, any, json!({"tool_choice": {"type": "any"}}));
    check(Anthropic, named, json!({"tool_choice": {"type": "tool", "name": "f"}}));
    let mode = |config: Value| json!({"toolConfig": {"functionCallingConfig": config}});
    check(Gemini, none, mode(json!({"mode": "NONE"})));
    check(Gemini, any, mode(json!({"mode": "ANY"})));
    check(Gemini, named, mode(json!({"mode": "ANY", "allowedFunctionNames": ["f"]})));
    for calls in [none, any, named] {
        check(Ollama, calls, json!({}));
    }
}

#[test]
fn a_call_is_forced_by_a_schema_or_by_words_where_no_field_does() {
    let forcing = |kind, model| encoded(kind, model, &AnswerOptions { calls: CallChoice::Any, ..PLAIN });
    assert_eq!(forcing(ProviderKind::Ollama, "m").2, Forcing::Schema);
    assert_eq!(forcing(ProviderKind::Openai, "m").2, Forcing::Field);
    assert_eq!(forcing(ProviderKind::Anthropic, "claude-sonnet-5").2, Forcing::Field);
    assert_eq!(forcing(ProviderKind::Anthropic, "claude-opus-5-5"), (json!({}), vec!["tool_choice"], Forcing::Words));
}

#[test]
fn one_call_at_most_is_said_where_it_can_be() {
    let single = |kind, calls| encoded(kind, "m", &AnswerOptions { calls, is_single: true, ..PLAIN }).0;
    let none = json!({"parallel_tool_calls": false});
    assert_eq!(single(ProviderKind::Openai, CallChoice::Auto), none);
    assert_eq!(single(ProviderKind::OpenaiResponses, CallChoice::Auto), none);
    let anthropic = |kind: &str| json!({"tool_choice": {"type": kind, "disable_parallel_tool_use": true}});
    assert_eq!(single(ProviderKind::Anthropic, CallChoice::Auto), anthropic("auto"));
    assert_eq!(single(ProviderKind::Anthropic, CallChoice::Any), anthropic("any"));
    assert_eq!(single(ProviderKind::Gemini, CallChoice::Auto), json!({}));
    assert_eq!(single(ProviderKind::Ollama, CallChoice::Auto), json!({}));
}

#[test]
fn stop_texts_and_sampling_go_into_the_fields_of_each_format() {
    let stop: Vec<String> = ["a", "\n", "c", "d", "e", "f"].map(str::to_owned).into();
    let sampling =
        [("temperature", json!(1.5)), ("top_p", json!(0.25)), ("seed", json!(-7)), ("frequency_penalty", json!(0.5))]
            .map(|(name, value)| Sampling { name, value: value.as_number().unwrap().clone() });
    let options = AnswerOptions { stop: &stop, sampling: &sampling, ..PLAIN };
    let check = |kind, model: &str, fields: Value, ignored: &[&str]| {
        let found = encoded(kind, model, &options);
        assert_eq!((found.0, found.1.as_slice()), (fields, ignored), "{kind:?} {model}");
    };
    let first = &stop[..4];
    let numbers = json!({"temperature": 1.5, "top_p": 0.25, "seed": -7, "frequency_penalty": 0.5});
    let with = |numbers: &Value, name: &str, stop: Value| {
        let mut fields: Map<String, Value> = numbers.as_object().unwrap().clone();
        merge(&mut fields, &Map::from_iter([(name.to_owned(), stop)]));
        Value::from(fields)
    };
    check(ProviderKind::Openai, "m", with(&numbers, "stop", json!(first)), &[]);
    let all = with(&numbers, "stop", json!(stop));
    check(ProviderKind::Ollama, "m", json!({"options": all}), &[]);
    let some = json!({"temperature": 1.5, "top_p": 0.25});
    check(ProviderKind::OpenaiResponses, "m", some, &["seed", "frequency_penalty"]);
    let google =
        json!({"temperature": 1.5, "topP": 0.25, "seed": -7, "frequencyPenalty": 0.5, "stopSequences": stop[..5]});
    check(ProviderKind::Gemini, "m", json!({"generationConfig": google}), &[]);
    // The range ends at 1, both numbers together are refused, and so are blank texts and, by newer models, all numbers.
    let stops = json!(["a", "c", "d", "e", "f"]);
    let ignored = ["top_p", "seed", "frequency_penalty"];
    check(ProviderKind::Anthropic, "claude-haiku-4-5", json!({"temperature": 1, "stop_sequences": stops}), &ignored);
    let ignored = ["temperature", "top_p", "seed", "frequency_penalty"];
    check(ProviderKind::Anthropic, "claude-sonnet-5", json!({"stop_sequences": stops}), &ignored);
}
