//! Images of OpenAI's (`POST /images/generations`, JSON; `POST /images/edits`, a form).
//!
//! Source: OpenAI's API reference.

use linger_protocol::message::Usage;
use serde_json::{Value, json};

use super::super::image::{made, tokens};
use super::super::types::{HttpRequest, ImageCodec, ImageRequest, MadeImage};

/// The images endpoints, which the providers of both of OpenAI's formats have.
#[derive(Debug)]
pub(in super::super) struct OpenAiImages;

impl ImageCodec for OpenAiImages {
    fn encode(&self, model: &str, request: &ImageRequest) -> HttpRequest {
        if request.pictures.is_empty() { generation(model, request) } else { edit(model, request) }
    }

    fn decode(&self, answer: &Value) -> Result<MadeImage, String> {
        let usage = Usage {
            input_tokens: tokens(answer, "/usage/input_tokens"),
            output_tokens: tokens(answer, "/usage/output_tokens"),
            ..Usage::default()
        };
        made(answer.pointer("/data/0/b64_json"), "", usage)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boundary_is_nowhere_in_what_is_sent() {
        let bytes = b"linger-00000000 and linger-00000001".to_vec();
        let (prompt, pictures) = ("a cat".to_owned(), vec![("image/png", bytes)]);
        let request = ImageRequest { prompt, pictures, format: "png", size: None };
        assert_eq!(boundary(&request), "linger-00000002");
    }
}
