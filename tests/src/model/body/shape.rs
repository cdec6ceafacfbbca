//! What a request adds to be answered in a shape: the schema, and what would be sent without it.

use serde_json::Value;

use super::super::wire::Format;

/// The tool that an answer is given with in the format that has no other means.
const ANSWER: &str = "final_answer";

/// The schema that the answer is held to, and the body without the tool that stands for it.
pub(super) fn taken_out(format: Format, json: &Value) -> (Option<Value>, Value) {
    let mut bare = json.clone();
    let schema = match format {
        Format::Anthropic => bare["tools"].as_array_mut().and_then(|tools| {
            let at = tools.iter().position(|tool| tool["name"] == ANSWER)?;
            Some(tools.remove(at)["input_schema"].clone())
        }),
        Format::OpenAi => Some(json["response_format"]["json_schema"]["schema"].clone()),
        Format::Responses => Some(json["text"]["format"]["schema"].clone()),
        Format::Gemini => Some(json["generationConfig"]["responseJsonSchema"].clone()),
        Format::Ollama => Some(json["format"].clone()),
    };
    (schema.filter(|schema| !schema.is_null()), bare)
}

/// Whether an answer that is held to `sent` fits `asked`: they are one, or `sent` has `asked` within an object, and may close what
/// `asked` leaves open.
pub(super) fn holds_to(sent: &Value, asked: &Value) -> bool {
    let inner = &sent["properties"]["answer"];
    let wraps =
        asked["type"] != "object" || ["anyOf", "oneOf", "allOf", "$ref"].iter().any(|word| asked.get(word).is_some());
    is_narrower(sent, asked) || (wraps && is_narrower(inner, asked))
}

fn is_narrower(sent: &Value, asked: &Value) -> bool {
    match (sent, asked) {
        (Value::Object(sent), Value::Object(asked)) => {
            let added = sent.keys().filter(|word| !asked.contains_key(*word));
            added.clone().all(|word| word == "additionalProperties" && sent[word] == false)
                && asked.iter().all(|(word, value)| sent.get(word).is_some_and(|sent| is_narrower(sent, value)))
        }
        (Value::Array(sent), Value::Array(asked)) => {
            sent.len() == asked.len() && sent.iter().zip(asked).all(|(sent, asked)| is_narrower(sent, asked))
        }
        _ => sent == asked,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_may_be_closed_or_put_within_an_object_and_nothing_else() {
        let open = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
        let mut closed = open.clone();
        closed["additionalProperties"] = json!(false);
        let list = json!({"type": "array", "items": open});
        let within =
            |schema: &Value| json!({"type": "object", "properties": {"answer": schema}, "required": ["answer"]});
        for (sent, asked) in [(&open, &open), (&closed, &open), (&list, &list), (&within(&list), &list)] {
            assert!(holds_to(sent, asked), "{sent} {asked}");
        }
        let mut other = closed.clone();
        other["required"] = json!([]);
        for (sent, asked) in [(&open, &closed), (&other, &open), (&within(&open), &open), (&list, &open)] {
            assert!(!holds_to(sent, asked), "{sent} {asked}");
        }
    }
}
