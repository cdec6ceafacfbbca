//! Making images: what the images endpoints of the formats have in common. Pure.
//!
//! Deliberately absent: the requests and answers of each format, which are in the directory of its codec; which model is asked, and HTTP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use linger_protocol::message::{Usage, image_type};
use serde_json::Value;

use super::failure::one_line;
use super::types::Codec;
pub use super::types::{ImageRequest, MadeImage};

/// The longest text of a model that is told in place of an image, in characters.
const MAX_TEXT: usize = 500;

/// The image of an answer, or what was answered in its place; fails if the format of `codec` has no images.
pub fn decode(codec: &dyn Codec, body: &[u8]) -> Result<MadeImage, String> {
    let answer: Value = serde_json::from_slice(body).map_err(|error| format!("its answer is not JSON: {error}"))?;
    let Some(images) = codec.images() else {
        return Err(format!("providers of the kind {} make no images", codec.kind().name()));
    };
    images.decode(&answer)
}

/// The image in `data`, which is base64; without one the error has `text`, the model's words in its place.
pub(super) fn made(data: Option<&Value>, text: &str, usage: Usage) -> Result<MadeImage, String> {
    let Some(data) = data.and_then(Value::as_str) else {
        let text: String = one_line(text).chars().take(MAX_TEXT).collect();
        return Err(if text.is_empty() { "it gave no image".to_owned() } else { format!("it gave no image: {text}") });
    };
    let bytes = BASE64.decode(data).map_err(|error| format!("its image is not base64: {error}"))?;
    let media_type = image_type(&bytes).ok_or("it gave something that is no image")?;
    Ok(MadeImage { media_type, bytes, usage })
}

/// The tokens at `pointer`; 0 if the provider does not say.
pub(super) fn tokens(answer: &Value, pointer: &str) -> u64 {
    answer.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::codecs::codec;
    use super::super::compat::Compat;
    use super::super::kind::ProviderKind;
    use super::super::types::HttpRequest;
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";

    fn request(pictures: Vec<(&'static str, Vec<u8>)>) -> ImageRequest {
        ImageRequest { prompt: "a cat".to_owned(), pictures, format: "png", size: Some("1024x1024".to_owned()) }
    }

    fn encode(kind: ProviderKind, model: &str, request: &ImageRequest) -> HttpRequest {
        codec(kind, Compat::NONE).unwrap().images().unwrap().encode(model, request)
    }

    fn body(request: &HttpRequest) -> Value {
        serde_json::from_slice(&request.body).unwrap()
    }

    #[test]
    fn each_format_has_its_request() {
        let made = encode(ProviderKind::Openai, "gpt-image-1", &request(Vec::new()));
        assert_eq!(made.path, "/images/generations");
        let expect = json!({
            "model": "gpt-image-1", "prompt": "a cat", "n": 1, "output_format": "png", "size": "1024x1024",
        });
        assert_eq!(body(&made), expect);
        let made = encode(ProviderKind::OpenaiResponses, "m", &request(vec![("image/png", PNG.to_vec())]));
        let kind = ("content-type", "multipart/form-data; boundary=linger-00000000".to_owned());
        assert_eq!((made.path.as_str(), made.headers), ("/images/edits", vec![kind]));
        let text = String::from_utf8_lossy(&made.body);
        let place = "--linger-00000000\r\nContent-Disposition: form-data; name=\"image[]\"; filename=\"0.png\"\r\n";
        assert!(text.contains(&format!("{place}Content-Type: image/png\r\n\r\n")), "{text}");
        assert!(text.ends_with("rest\r\n--linger-00000000--\r\n"), "{text}");
        let made = encode(ProviderKind::Gemini, "gemini-2.5-flash-image", &request(vec![("image/png", b"x".to_vec())]));
        assert_eq!(made.path, "/v1beta/models/gemini-2.5-flash-image:generateContent");
        assert_eq!(
            body(&made)["contents"][0]["parts"],
            json!([{ "inlineData": { "mimeType": "image/png", "data": "eA==" } }, { "text": "a cat" }])
        );
        let anthropic = codec(ProviderKind::Anthropic, Compat::NONE).unwrap();
        assert!(decode(anthropic.as_ref(), b"{}").unwrap_err().contains("make no images"));
    }

    #[test]
    fn an_image_is_found_or_what_was_said_instead() {
        let data = BASE64.encode(PNG);
        let made = MadeImage { media_type: "image/png", bytes: PNG.to_vec(), usage: Usage::default() };
        let image = Ok(made.clone());
        let of = |kind: ProviderKind, answer: Value| {
            decode(codec(kind, Compat::NONE).unwrap().as_ref(), answer.to_string().as_bytes())
        };
        assert_eq!(of(ProviderKind::Openai, json!({ "data": [{ "b64_json": data }] })), image);
        let usage = json!({ "input_tokens": 9, "output_tokens": 1056, "total_tokens": 1065 });
        let counted = Usage { input_tokens: 9, output_tokens: 1056, ..Usage::default() };
        let counted = Ok(MadeImage { usage: counted, ..made });
        assert_eq!(of(ProviderKind::Openai, json!({ "data": [{ "b64_json": data }], "usage": usage })), counted);
        let parts = json!([{ "text": "here" }, { "inlineData": { "mimeType": "image/png", "data": data } }]);
        let candidates = json!([{ "content": { "parts": parts } }]);
        assert_eq!(of(ProviderKind::Gemini, json!({ "candidates": candidates })), image);
        let usage = json!({ "promptTokenCount": 9, "candidatesTokenCount": 1056 });
        assert_eq!(of(ProviderKind::Gemini, json!({ "candidates": candidates, "usageMetadata": usage })), counted);
        let text = json!({ "candidates": [{ "content": { "parts": [{ "text": "I cannot\u{1b}[2J" }] } }] });
        assert!(of(ProviderKind::Gemini, text).unwrap_err().starts_with("it gave no image: I cannot"));
        let blocked = json!({ "promptFeedback": { "blockReason": "SAFETY" } });
        assert_eq!(of(ProviderKind::Gemini, blocked), Err("it gave no image: SAFETY".to_owned()));
        assert_eq!(of(ProviderKind::Openai, json!({ "data": [] })), Err("it gave no image".to_owned()));
        let junk = json!({ "data": [{ "b64_json": "eHh4" }] });
        assert_eq!(of(ProviderKind::Openai, junk), Err("it gave something that is no image".to_owned()));
        assert!(of(ProviderKind::Openai, json!({ "data": [{ "b64_json": "?" }] })).unwrap_err().contains("not base64"));
        let openai = codec(ProviderKind::Openai, Compat::NONE).unwrap();
        assert!(decode(openai.as_ref(), b"<html>").unwrap_err().contains("not JSON"));
    }
}
