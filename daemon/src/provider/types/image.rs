//! Images that a model makes: what is asked for, and what came.

use linger_protocol::message::Usage;
use serde_json::Value;

use super::codec::HttpRequest;

/// An image to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRequest {
    /// A description of the image.
    pub prompt: String,
    /// Pictures to start from: media type and bytes of each.
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
    /// The content of the image file.
    pub bytes: Vec<u8>,
    /// The tokens of the request and the answer; all 0 if the provider does not say.
    pub usage: Usage,
}

/// The images endpoint of a wire format. Pure.
pub trait ImageCodec {
    /// The request for an image by `model`.
    fn encode(&self, model: &str, request: &ImageRequest) -> HttpRequest;
    /// The image in an answer; the error says what was answered in its place.
    fn decode(&self, answer: &Value) -> Result<MadeImage, String>;
}
