//! Images of Gemini's: parts of an answer of `generateContent` with `responseModalities`.
//!
//! Source: Google's API reference.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use linger_protocol::message::Usage;
use serde_json::{Value, json};

use super::super::image::{made, tokens};
use super::super::types::{HttpRequest, ImageCodec, ImageRequest, MadeImage};
use super::super::wire::path_segment;

/// Images as parts.
#[derive(Debug)]
pub(super) struct GeminiImages;

impl ImageCodec for GeminiImages {
    fn encode(&self, model: &str, request: &ImageRequest) -> HttpRequest {
        parts(model, request)
    }

    fn decode(&self, answer: &Value) -> Result<MadeImage, String> {
        let parts = answer.pointer("/candidates/0/content/parts").and_then(Value::as_array);
        let parts = parts.map(Vec::as_slice).unwrap_or_default();
        let data = parts.iter().rev().find_map(|part| part.pointer("/inlineData/data"));
        let text: String = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
        let reason = ["/promptFeedback/blockReason", "/candidates/0/finishMessage", "/candidates/0/finishReason"];
        let reason = reason.iter().find_map(|place| answer.pointer(place)?.as_str()).unwrap_or_default();
        let thoughts = tokens(answer, "/usageMetadata/thoughtsTokenCount");
        let usage = Usage {
            input_tokens: tokens(answer, "/usageMetadata/promptTokenCount"),
            output_tokens: tokens(answer, "/usageMetadata/candidatesTokenCount").saturating_add(thoughts),
            reasoning_tokens: thoughts,
            ..Usage::default()
        };
        made(data, if text.trim().is_empty() { reason } else { &text }, usage)
    }
}

fn parts(model: &str, request: &ImageRequest) -> HttpRequest {
    let picture = |(media_type, bytes): &(&'static str, Vec<u8>)| json!({ "inlineData": { "mimeType": media_type, "data": BASE64.encode(bytes) } });
    let text = json!({ "text": request.prompt });
    let parts: Vec<Value> = request.pictures.iter().map(picture).chain([text]).collect();
    let body = json!({
        "contents": [{ "role": "user", "parts": parts }],
        "generationConfig": { "responseModalities": ["TEXT", "IMAGE"] },
    });
    let model = path_segment(model.strip_prefix("models/").unwrap_or(model));
    let path = format!("/v1beta/models/{model}:generateContent");
    HttpRequest { path, headers: Vec::new(), body: body.to_string().into_bytes() }
}
