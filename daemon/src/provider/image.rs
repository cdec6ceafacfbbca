//! Making images: the requests and answers of OpenAI's images endpoints and of Gemini's parts. Pure.
//!
//! Sources: OpenAI's API reference (`POST /images/generations`, JSON; `POST /images/edits`, multipart/form-data), and Google's of
//! `generateContent` with `responseModalities`. Deliberately absent: which model is asked, and HTTP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use linger_protocol::message::{Usage, image_type};
use serde_json::{Value, json};

use super::failure::one_line;
use super::kind::Kind;
use super::types::HttpRequest;
use super::wire::path_segment;

/// The longest text of a model that is told in place of an image, in characters.
const SAID: usize = 500;

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRequest {
    /// What it shows.
    pub prompt: String,
    /// The pictures that it begins with: the media type, and the bytes.
    pub pictures: Vec<(&'static str, Vec<u8>)>,
    /// `png`, `jpeg` or `webp`; a provider may have another one.
    pub format: &'static str,
    /// Such as `1024x1024`; the provider's own choice if absent.
    pub size: Option<String>,
}

/// An image that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeImage {
    /// As its bytes say.
    pub media_type: &'static str,
    /// The file.
    pub bytes: Vec<u8>,
    /// The tokens of the request and the answer; all 0 if the provider does not say.
    pub usage: Usage,
}

/// Whether images can be asked of providers of this kind.
pub fn is_supported(kind: Kind) -> bool {
    matches!(kind, Kind::Openai | Kind::OpenaiResponses | Kind::Gemini)
}

/// The request for a model, or why there is none.
pub fn encode(kind: Kind, model: &str, request: &ImageRequest) -> Result<HttpRequest, String> {
    match kind {
        Kind::Openai | Kind::OpenaiResponses if request.pictures.is_empty() => Ok(generation(model, request)),
        Kind::Openai | Kind::OpenaiResponses => Ok(edit(model, request)),
        Kind::Gemini => Ok(parts(model, request)),
        _ => Err(format!("providers of the kind {} make no images", kind.name())),
    }
}

/// The image of an answer, or what was answered in its place.
pub fn decode(kind: Kind, body: &[u8]) -> Result<MadeImage, String> {
    let answer: Value = serde_json::from_slice(body).map_err(|error| format!("its answer is not JSON: {error}"))?;
    let (data, said) = match kind {
        Kind::Gemini => {
            let parts = answer.pointer("/candidates/0/content/parts").and_then(Value::as_array);
            let parts = parts.map(Vec::as_slice).unwrap_or_default();
            let data = parts.iter().rev().find_map(|part| part.pointer("/inlineData/data"));
            let text: String = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            let reason = ["/promptFeedback/blockReason", "/candidates/0/finishMessage", "/candidates/0/finishReason"];
            let reason = reason.iter().find_map(|place| answer.pointer(place)?.as_str()).unwrap_or_default();
            (data, if text.trim().is_empty() { reason.to_owned() } else { text })
        }
        _ => (answer.pointer("/data/0/b64_json"), String::new()),
    };
    let Some(data) = data.and_then(Value::as_str) else {
        let said: String = one_line(&said).chars().take(SAID).collect();
        return Err(if said.is_empty() { "it gave no image".to_owned() } else { format!("it gave no image: {said}") });
    };
    let bytes = BASE64.decode(data).map_err(|error| format!("its image is not base64: {error}"))?;
    let media_type = image_type(&bytes).ok_or("it gave something that is no image")?;
    Ok(MadeImage { media_type, bytes, usage: usage(&answer) })
}

/// What either format says of tokens.
fn usage(answer: &Value) -> Usage {
    let of = |places: &[&str]| {
        places.iter().filter_map(|place| answer.pointer(place)?.as_u64()).fold(0, u64::saturating_add)
    };
    Usage {
        input_tokens: of(&["/usage/input_tokens", "/usageMetadata/promptTokenCount"]),
        output_tokens: of(&[
            "/usage/output_tokens",
            "/usageMetadata/candidatesTokenCount",
            "/usageMetadata/thoughtsTokenCount",
        ]),
        reasoning_tokens: of(&["/usageMetadata/thoughtsTokenCount"]),
        ..Usage::default()
    }
}

fn generation(model: &str, request: &ImageRequest) -> HttpRequest {
    let mut body = json!({ "model": model, "prompt": request.prompt, "n": 1, "output_format": request.format });
    if let (Some(size), Some(fields)) = (&request.size, body.as_object_mut()) {
        fields.insert("size".to_owned(), size.as_str().into());
    }
    HttpRequest { path: "/images/generations".to_owned(), headers: Vec::new(), body: body.to_string().into_bytes() }
}

/// From pictures: a form, as this endpoint takes no JSON.
fn edit(model: &str, request: &ImageRequest) -> HttpRequest {
    let mut fields = vec![("model", model), ("prompt", &request.prompt), ("n", "1"), ("output_format", request.format)];
    fields.extend(request.size.as_deref().map(|size| ("size", size)));
    let boundary = boundary(request);
    let mut body = Vec::new();
    for (name, value) in fields {
        let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        body.extend([head.as_bytes(), value.as_bytes(), b"\r\n"].concat());
    }
    for (at, (media_type, bytes)) in request.pictures.iter().enumerate() {
        let kind = media_type.strip_prefix("image/").unwrap_or("png");
        let place = format!("Content-Disposition: form-data; name=\"image[]\"; filename=\"{at}.{kind}\"");
        let head = format!("--{boundary}\r\n{place}\r\nContent-Type: {media_type}\r\n\r\n");
        body.extend([head.as_bytes(), bytes, b"\r\n"].concat());
    }
    body.extend(format!("--{boundary}--\r\n").into_bytes());
    let headers = vec![("content-type", format!("multipart/form-data; boundary={boundary}"))];
    HttpRequest { path: "/images/edits".to_owned(), headers, body }
}

/// A text that is nowhere in the request.
fn boundary(request: &ImageRequest) -> String {
    let has = |boundary: &str| {
        let of = |bytes: &[u8]| memchr::memmem::find(bytes, boundary.as_bytes()).is_some();
        of(request.prompt.as_bytes()) || request.pictures.iter().any(|(_, bytes)| of(bytes))
    };
    let mut names = (0u32..).map(|n| format!("linger-{n:08x}"));
    names.find(|name| !has(name)).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";

    fn request(pictures: Vec<(&'static str, Vec<u8>)>) -> ImageRequest {
        ImageRequest { prompt: "a cat".to_owned(), pictures, format: "png", size: Some("1024x1024".to_owned()) }
    }

    fn body(request: &HttpRequest) -> Value {
        serde_json::from_slice(&request.body).unwrap()
    }

    #[test]
    fn each_format_has_its_request() {
        let made = encode(Kind::Openai, "gpt-image-1", &request(Vec::new())).unwrap();
        assert_eq!(made.path, "/images/generations");
        let expect = json!({
            "model": "gpt-image-1", "prompt": "a cat", "n": 1, "output_format": "png", "size": "1024x1024",
        });
        assert_eq!(body(&made), expect);
        let made = encode(Kind::OpenaiResponses, "m", &request(vec![("image/png", PNG.to_vec())])).unwrap();
        let kind = ("content-type", "multipart/form-data; boundary=linger-00000000".to_owned());
        assert_eq!((made.path.as_str(), made.headers), ("/images/edits", vec![kind]));
        let text = String::from_utf8_lossy(&made.body);
        let place = "--linger-00000000\r\nContent-Disposition: form-data; name=\"image[]\"; filename=\"0.png\"\r\n";
        assert!(text.contains(&format!("{place}Content-Type: image/png\r\n\r\n")), "{text}");
        assert!(text.ends_with("rest\r\n--linger-00000000--\r\n"), "{text}");
        let made =
            encode(Kind::Gemini, "gemini-2.5-flash-image", &request(vec![("image/png", b"x".to_vec())])).unwrap();
        assert_eq!(made.path, "/v1beta/models/gemini-2.5-flash-image:generateContent");
        assert_eq!(
            body(&made)["contents"][0]["parts"],
            json!([{ "inlineData": { "mimeType": "image/png", "data": "eA==" } }, { "text": "a cat" }])
        );
        assert!(encode(Kind::Anthropic, "m", &request(Vec::new())).unwrap_err().contains("make no images"));
    }

    #[test]
    fn a_boundary_is_nowhere_in_what_is_sent() {
        let bytes = b"linger-00000000 and linger-00000001".to_vec();
        assert_eq!(boundary(&request(vec![("image/png", bytes)])), "linger-00000002");
    }

    #[test]
    fn an_image_is_found_or_what_was_said_instead() {
        let data = BASE64.encode(PNG);
        let made = MadeImage { media_type: "image/png", bytes: PNG.to_vec(), usage: Usage::default() };
        let image = Ok(made.clone());
        let of = |kind: Kind, answer: Value| decode(kind, answer.to_string().as_bytes());
        assert_eq!(of(Kind::Openai, json!({ "data": [{ "b64_json": data }] })), image);
        let usage = json!({ "input_tokens": 9, "output_tokens": 1056, "total_tokens": 1065 });
        let counted = Usage { input_tokens: 9, output_tokens: 1056, ..Usage::default() };
        let counted = Ok(MadeImage { usage: counted, ..made });
        assert_eq!(of(Kind::Openai, json!({ "data": [{ "b64_json": data }], "usage": usage })), counted);
        let parts = json!([{ "text": "here" }, { "inlineData": { "mimeType": "image/png", "data": data } }]);
        let candidates = json!([{ "content": { "parts": parts } }]);
        assert_eq!(of(Kind::Gemini, json!({ "candidates": candidates })), image);
        let usage = json!({ "promptTokenCount": 9, "candidatesTokenCount": 1056 });
        assert_eq!(of(Kind::Gemini, json!({ "candidates": candidates, "usageMetadata": usage })), counted);
        let text = json!({ "candidates": [{ "content": { "parts": [{ "text": "I cannot\u{1b}[2J" }] } }] });
        assert!(of(Kind::Gemini, text).unwrap_err().starts_with("it gave no image: I cannot"));
        let blocked = json!({ "promptFeedback": { "blockReason": "SAFETY" } });
        assert_eq!(of(Kind::Gemini, blocked), Err("it gave no image: SAFETY".to_owned()));
        assert_eq!(of(Kind::Openai, json!({ "data": [] })), Err("it gave no image".to_owned()));
        let junk = json!({ "data": [{ "b64_json": "eHh4" }] });
        assert_eq!(of(Kind::Openai, junk), Err("it gave something that is no image".to_owned()));
        assert!(of(Kind::Openai, json!({ "data": [{ "b64_json": "?" }] })).unwrap_err().contains("not base64"));
        assert!(decode(Kind::Openai, b"<html>").unwrap_err().contains("not JSON"));
    }
}
