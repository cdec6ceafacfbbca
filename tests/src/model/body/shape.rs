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
