//! OpenAI's Responses, as its server would look at them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Said, Wrong, blank, blocks, id_fits, pairs, text};

/// Whether an item is the model's own.
fn own(item: &Value) -> bool {
    item["role"] == "assistant" || !matches!(item["type"].as_str(), None | Some("message" | "function_call_output"))
}

pub(super) fn check(json: &Value, input: &[Value], wrong: &mut Wrong) {
    wrong.unless(json["store"] == false, || "it would be stored".to_owned());
    let last = input.last().is_some_and(|item| !own(item));
    wrong.unless(last, || "the last item is the model's".to_owned());
    wrong.unless(input.first().is_some_and(|item| item["role"] == "user"), || {
        "the first item is not a user's".to_owned()
    });
    let mut seen = BTreeSet::new();
    let (mut open, mut answered) = (Vec::new(), Vec::new());
    let mut led_to_nothing = false;
    for (n, item) in input.iter().enumerate() {
        let output = item["type"] == "function_call_output";
        if !(output || own(item) && answered.is_empty()) {
            pairs(n, &open, &answered, wrong);
            open.clear();
            answered.clear();
        }
        wrong.unless(!led_to_nothing || own(item), || format!("item {n} comes right after reasoning"));
        led_to_nothing = item["type"] == "reasoning";
        match item["type"].as_str() {
            Some("function_call_output") => {
                let (content, any) = (blocks(&item["output"]), !blocks(&item["output"]).is_empty());
                wrong.unless(
                    any && content.iter().all(|part| part["type"] == "input_image" || !blank(&part["text"])),
                    || format!("item {n} has an empty output"),
                );
                answered.push(text(&item["call_id"]));
            }
            Some("function_call") => {
                let id = text(&item["call_id"]);
                wrong.unless(id_fits(&id), || format!("item {n}: bad call id '{id}'"));
                wrong.unless(seen.insert(id.clone()), || format!("item {n}: call id {id} is used twice"));
                let arguments = item["arguments"].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
                wrong.unless(arguments.is_some_and(|arguments| arguments.is_object()), || {
                    format!("item {n}: the arguments of {id} are no object in a string")
                });
                open.push(id);
            }
            Some("reasoning") => wrong.unless(item["encrypted_content"].is_string() && item["id"].is_string(), || {
                format!("item {n}: reasoning that is not whole")
            }),
            None | Some("message") => {
                let content = blocks(&item["content"]);
                let (of_user, of_model): (&[&str], &[&str]) =
                    (&["text", "input_text", "input_image"], &["output_text"]);
                let known = if own(item) { of_model } else { of_user };
                let kind = |part: &Value| part["type"].as_str().is_some_and(|kind| known.contains(&kind));
                wrong.unless(!content.is_empty() && content.iter().all(kind), || format!("item {n} has no content"));
                wrong.unless(!own(item) || item["type"] == "message", || format!("item {n} has no type"));
                let empty = content.iter().any(|part| part["type"] != "input_image" && blank(&part["text"]));
                wrong.unless(!empty, || format!("item {n} has empty text"));
            }
            _ => {}
        }
    }
    pairs(input.len(), &open, &answered, wrong);
}

/// Items of the model that follow each other are one answer. Reasoning must come back to the byte.
pub(super) fn answers(input: &[Value]) -> Vec<Said> {
    let mut answers = Vec::new();
    for items in input.chunk_by(|a, b| own(a) == own(b)).filter(|items| own(&items[0])) {
        let of = |kind: &'static str| items.iter().filter(move |item| item["type"] == kind);
        let thinking = of("reasoning").map(|item| (item.to_string(), String::new())).collect();
        let call = |item: &Value| (text(&item["call_id"]), text(&item["name"]), text(&item["arguments"]));
        answers.push((thinking, of("function_call").map(call).collect()));
    }
    answers
}
